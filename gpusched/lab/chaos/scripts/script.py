"""What happens in one run, as data that can be written down, read, cut and played again.

One step a line::

    seed: 17
    daemons: 2
    steps:
    - {at: 0, do: node, name: n0, gpus: 8, rack: r0}
    - {at: 12.5, do: kill, slot: 0, writes: 3, answered: true, back: 5}
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from gpusched.base.classes import frozen
from gpusched.base.errors import ConfigError

Obj = dict[str, Any]
BYTES_MAX: Final = 4 * 2**20
_KEYS: Final = frozenset(
    {"seed", "daemons", "latency", "thinks", "actions", "stale_after", "steps"}
)
VERBS: Final = frozenset(
    {
        # what there is
        "node", "unnode", "cordon", "offer", "label", "queue", "requeue", "unqueue", "priority",
        "topology", "budget", "unbudget", "foreign", "cards", "claimables", "claim", "unclaim",
        # work
        "gang", "resize", "ungang", "lose", "fail", "replace", "remake", "ungate", "pods", "job",
        # processes
        "start", "kill", "stop", "pause", "clock", "reload",
        # API server
        "fault", "events", "server", "remember", "restore", "lease", "solver",
    }
)  # fmt: skip


@frozen(kw_only=True)
class ScriptStep:
    """One thing that happens.

    Attributes:
        at: virtual seconds after the beginning.
        do: one of ``VERBS``.
        args: what it needs.
    """

    at: float
    do: str
    args: Mapping[str, Any]

    def plain(self) -> Obj:
        """As it is written."""
        return {"at": self.at, "do": self.do, **self.args}

    def __str__(self) -> str:
        return _flow(self.plain())


@frozen(kw_only=True)
class ChaosScript:
    """One run.

    Attributes:
        seed: of uids, delays and jitter.
        daemons: how many slots there are, in each of which one daemon runs.
        steps: in the order of their times.
        latency: seconds that a request takes to the server at least and at most, and the answer
            back.
        thinks: seconds that a session takes at least and at most.
        actions: of the daemons' configuration; empty for the shipped ones.
        stale_after: of their plugin ``lifetime``: ``never``, a duration, or empty for the shipped
            one.
    """

    seed: int
    daemons: int = 1
    steps: tuple[ScriptStep, ...] = ()
    latency: tuple[float, float] = (0.0, 0.0)
    thinks: tuple[float, float] = (0.0, 0.0)
    actions: tuple[str, ...] = ()
    stale_after: str = ""

    @property
    def busy_s(self) -> float:
        """When the last step has happened and its effect is over."""
        return max((step.at + float(step.args.get("for", 0)) for step in self.steps), default=0.0)

    def text(self) -> str:
        """As it is written to a file."""
        head = [
            f"seed: {self.seed}",
            f"daemons: {self.daemons}",
            f"latency: {_flow(list(self.latency))}",
            f"thinks: {_flow(list(self.thinks))}",
        ]
        if self.actions:
            head.append(f"actions: {_flow(list(self.actions))}")
        if self.stale_after:
            head.append(f"stale_after: {self.stale_after}")
        return "\n".join([*head, "steps:", *(f"- {step}" for step in self.steps), ""])


def _flow(value: Any) -> str:
    text: str = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10**6)
    return text.strip()


def read_script(path: Path) -> ChaosScript:
    """Read a script.

    Raises:
        ConfigError: it is none; the sentence says where.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    if len(data) > BYTES_MAX:
        raise ConfigError(f"{path} has {len(data)} bytes; {BYTES_MAX} are the most")
    try:
        return parse_script(yaml.safe_load(data))
    except (yaml.YAMLError, TypeError, ValueError) as error:
        raise ConfigError(f"{path} is no script: {' '.join(str(error).split())}") from error


def parse_script(value: Any) -> ChaosScript:
    """A script from what YAML made of it; raises ValueError or TypeError."""
    if not isinstance(value, dict) or not isinstance(value.get("steps"), list):
        raise TypeError("it needs a mapping with seed and steps")
    if unknown := set(value) - _KEYS:
        raise ValueError(f"{min(map(str, unknown))} is no known key")
    steps = tuple(_step(each, number) for number, each in enumerate(value["steps"], start=1))
    return ChaosScript(
        seed=int(value.get("seed", 0)),
        daemons=int(value.get("daemons", 1)),
        steps=tuple(sorted(steps, key=lambda step: step.at)),
        latency=_two(value.get("latency")),
        thinks=_two(value.get("thinks")),
        actions=tuple(map(str, value.get("actions") or ())),
        stale_after=_stale_after(value.get("stale_after")),
    )


def _stale_after(value: Any) -> str:
    text = "" if value is None else str(value)
    if text and text != "never" and not re.fullmatch(r"[0-9]+[smh]", text):
        raise ValueError(f"stale_after is {text!r}; never and durations such as 60s are known")
    return text


def _two(value: Any) -> tuple[float, float]:
    low, high = value or (0.0, 0.0)
    return float(low), float(high)


def _step(value: Any, number: int) -> ScriptStep:
    if not isinstance(value, dict) or "at" not in value or value.get("do") not in VERBS:
        known = ", ".join(sorted(VERBS))
        raise ValueError(f"step {number} needs at, and do as one of {known}")
    # YAML 1.1 reads a bare `on` as true.
    named = {"on" if key is True else key: item for key, item in value.items()}
    args = {key: item for key, item in named.items() if key not in {"at", "do"}}
    return ScriptStep(at=float(value["at"]), do=value["do"], args=args)
