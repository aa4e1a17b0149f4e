"""Decides again on what was recorded, under the same configuration or another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import attrs

from gpusched.clock import Clock
from gpusched.config.model import Config
from gpusched.errors import SolverFault
from gpusched.io.canonical import canonical, digest_of, plain_plan
from gpusched.io.decision_file import DecisionFile, Searched, versions
from gpusched.io.file_names import tag_in, tag_of
from gpusched.placement.problem import Job, search_here
from gpusched.pluginhost.guard import Guard
from gpusched.pluginhost.registry import load_policy
from gpusched.session.decide import decide
from gpusched.session.masks import MaskCache
from gpusched.simulate.plan_differences import Difference, differences

_BY_THE_CLOCK: Final = frozenset({"seconds"})
"""Fields of answers that no decision depends on."""


@attrs.frozen(kw_only=True)
class Replay:
    """What came of deciding again.

    Attributes:
        recorded, digest: SHA-256 of the canonical plans, then and now.
        differences: by gang; empty when the plans are the same bytes.
        notes: what else should be known, one sentence each.
    """

    recorded: str
    digest: str
    differences: tuple[Difference, ...]
    notes: tuple[str, ...] = ()

    @property
    def identical(self) -> bool:
        """Whether the plans are the same bytes."""
        return self.recorded == self.digest


def replay(file: DecisionFile, *, clock: Clock, config: Config | None = None) -> Replay:
    """Decide again.

    Args:
        file: what was recorded.
        clock: times plugins; no decision depends on it.
        config: another configuration; None for the recorded one.

    Raises:
        ConfigError: a plugin or action of the configuration is not installed.
    """
    inputs = file.inputs
    search = _Repeating(inputs.searches)
    guard = Guard(clock)
    if config is None:
        guard.resume(inputs.failing)
    used = inputs.config if config is None else config
    guard.begin_session()
    decision = decide(
        inputs.snapshot,
        load_policy(used),
        guard=guard,
        masks=MaskCache(),
        placement=used.placement,
        search=search if config is None else search_here,
    )
    plain = plain_plan(decision.plan)
    body = canonical(plain)
    notes = [*search.notes()] if config is None else []
    if config is None and list(decision.faults) != file.header.faults:
        notes.append(_faults(file.header.faults, decision.faults))
    return Replay(
        recorded=file.header.plan,
        digest=digest_of(body),
        differences=tuple(differences(file.decided, plain)) if body != file.plan else (),
        notes=tuple(notes),
    )


def version_notes(file: DecisionFile) -> list[str]:
    """What decided has other versions than what decides here: one sentence each."""
    return [
        f"{file.path} was recorded by {name} {then}, this is {now}: "
        + ("decisions may differ" if name == "gpusched" else "searches may end otherwise")
        for name, now in versions().items()
        if (then := getattr(file.header, name)) != now
    ]


def _faults(then: list[str], now: tuple[str, ...]) -> str:
    return (
        "plugins failed otherwise than they did: then "
        f"{'; '.join(then) or 'none'}; now {'; '.join(now) or 'none'}"
    )


class _Repeating:
    """Searches again, and goes on with what was answered then where a clock had a part in it.

    A search has a limit in deterministic time, and ends alike everywhere. A machine that is too
    slow for that stops it by the clock, and its process may be lost: then the answer was another.
    """

    def __init__(self, recorded: tuple[Searched, ...]) -> None:
        self._recorded = recorded
        self._asked = 0
        self._other: list[str] = []
        self._strange = False

    def __call__(self, job: Job) -> object:
        """See ``Search``."""
        number, name = self._asked, tag_of(type(job))
        self._asked += 1
        if (
            number >= len(self._recorded)
            or tag_in(self._recorded[number].job) != name
            or self._strange
        ):
            # What is asked differs already, so that no answer of then belongs to it.
            self._strange = True
            return search_here(job)
        then = self._recorded[number]
        if then.fault:
            self._other.append(f"search {number + 1} ({name}) failed: {then.fault}")
            raise SolverFault(then.fault)
        answer = search_here(job)
        if _plain(answer) != _plain(then.answer):
            self._other.append(f"search {number + 1} ({name}) was answered otherwise")
            return then.answer
        return answer

    def notes(self) -> Iterator[str]:
        """What could not be repeated."""
        for each in self._other:
            yield (
                f"{each} when this was recorded, as on a machine that is slow or loses the "
                "solver; what it came to then is used here"
            )
        if self._strange:
            yield "other searches are made than when this was recorded"


def _plain(value: Any) -> Any:
    """An answer as values that can be compared, without what a clock measured."""
    if attrs.has(type(value)):
        return {
            each.name: _plain(getattr(value, each.name))
            for each in attrs.fields(type(value))
            if each.name not in _BY_THE_CLOCK
        }
    if hasattr(value, "tolist"):
        return (str(value.dtype), value.tolist())
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    return value
