"""Decides again on what was recorded, under the same configuration or another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

import attrs

from gpusched.api.meta.gpu_resources import gpu_resources_in_force
from gpusched.base.classes import frozen
from gpusched.base.clock import Clock
from gpusched.base.errors import SolverFault
from gpusched.config.model import Config
from gpusched.io.decisions.decision_file import DecisionFile, RecordedSearch, component_versions
from gpusched.io.decisions.file_names import tag_in, tag_of
from gpusched.io.decisions.plan_json import canonical_json, plan_as_json, plan_digest
from gpusched.placement.model.problem import SearchJob, search_in_process
from gpusched.pluginhost.guard import PluginGuard
from gpusched.pluginhost.registry import load_policy
from gpusched.session.decide import decide
from gpusched.session.state.session_cache import SessionCache

Json: TypeAlias = dict[str, Any]


@frozen(order=True)
class PlanDifference:
    """One.

    Attributes:
        about: a gang as kind/namespace/name, a queue as ``queue NAME``, or what else it is about.
        what: of it, in a word or two.
        then, now: sentences; empty where there was or is nothing.
    """

    about: str
    what: str
    then: str
    now: str

    def __str__(self) -> str:
        return f"{self.about}: {self.what}: {self.then or 'nothing'} -> {self.now or 'nothing'}"


DifferenceMessage: TypeAlias = Mapping[tuple[str, str], str]
"""What a plan says, by what it is about and what of it."""


def plan_differences(then: Json, now: Json) -> Iterator[PlanDifference]:
    """Of two plans as JSON values, in the order of what they are about.

    What has no sentence of its own is told by its path, so that plans which differ always have
    a difference.
    """
    before, after = _plan_messages(then), _plan_messages(now)
    found = False
    for key in sorted({*before, *after}):
        was, is_now = before.get(key, ""), after.get(key, "")
        if was != is_now:
            found = True
            yield PlanDifference(*key, was, is_now)
    if not found:
        yield from (PlanDifference("plan", *each) for each in _paths(then, now, ""))


def _plan_messages(plan: Json) -> DifferenceMessage:
    told: dict[tuple[str, str], str] = {}
    for name, tell in _PARTS.items():
        for each in plan.get(name, ()):
            told.update(tell(each))
    return told


def _binds(bind: Json) -> DifferenceMessage:
    gang = bind["gang"]
    return {(gang, f"pod {each['key']}"): _place(each) for each in bind["binds"]} | {
        (gang, "proof"): bind["proof"]
    }


def _place(bind: Json) -> str:
    slots = f" with GPUs {bind['slots']}" if bind["slots"] else ""
    rank = f" as rank {bind['rank']}" if bind["rank"] >= 0 else ""
    return f"goes to {bind['node']}{slots}{rank}"


def _claims(claim: Json) -> DifferenceMessage:
    gang = claim["gang"]
    told = {
        (gang, f"pod {key}"): f"is promised room on {node}" for key, _, node in claim["nominations"]
    }
    told[gang, "room is made"] = f"{claim['action']}: {claim['sentence']}"
    told[gang, "victims"] = ", ".join(
        each["key"] for stop in claim["stops"] for each in stop["evictions"]
    )
    told[gang, "pauses"] = ", ".join(
        stop["pause"]["key"] for stop in claim["stops"] if stop["pause"]
    )
    told |= {(each["gang"], "moves for another"): _moved(each["move"]) for each in claim["moves"]}
    return told


def _moved(move: Json) -> str:
    return ", ".join(f"{each['pods']} pods to {each['node']}" for each in move["places"])


def _stops(stop: Json) -> DifferenceMessage:
    told = {
        (stop["gang"], f"pod {each['key']}"): f"is evicted from {each['node']}: {each['sentence']}"
        for each in stop["evictions"]
    }
    if stop["pause"]:
        told[stop["gang"], "Job"] = f"is paused: {stop['pause']['sentence']}"
    return told


def _undos(undo: Json) -> DifferenceMessage:
    return {
        (undo["gang"], f"pod {key}"): f"is undone: {undo['sentence']}" for key, _ in undo["pods"]
    }


def _switches(switch: Json) -> DifferenceMessage:
    verb = "is paused" if switch["suspend"] else "is started"
    pool = ", ".join(f"{key}={value}" for key, value in switch["node_selector"])
    size = "" if switch["parallelism"] is None else f" with {switch['parallelism']} pods"
    return {
        (f"Job/{switch['key']}", "Job"): f"{verb}{size}{f' on {pool}' if pool else ''}: "
        f"{switch['sentence']}"
    }


def _gangs(gang: Json) -> DifferenceMessage:
    name = gang["gang"]
    told = {
        (name, "phase"): gang["phase"],
        (name, "admitted"): _ask(gang["admitted"], holds=gang["is_admitted"]),
        (name, "scheduled"): _ask(gang["scheduled"], holds=gang["is_scheduled"]),
        (name, "position"): str(gang["queue_position"] or ""),
        (name, "estimated start"): str(gang["estimated_start"] or ""),
        (name, "placement"): ", ".join(f"{level} {domain}" for level, domain in gang["placement"]),
    }
    for part, what in (("waiting_ask", "waiting pods"), ("preempted", "preempted")):
        if gang[part]:
            told[name, what] = _ask(gang[part], holds=False)
    return told


def _ask(ask: Json, *, holds: bool) -> str:
    return f"{'yes' if holds else 'no'}, {ask['reason']}: {ask['sentence']}"


def _queues(queue: Json) -> DifferenceMessage:
    name = f"queue {queue['name']}"
    amounts = ("allocated", "requested", "borrowed", "fair_share")
    counts = ("state", "pending", "inqueue", "running")
    return {
        **{(name, part.replace("_", " ")): _amounts(queue[part]) for part in amounts},
        **{(name, part): str(queue[part]) for part in counts},
        (name, "ready"): _ask(queue["ready"], holds=queue["is_ready"]),
    }


def _amounts(amounts: Mapping[str, int]) -> str:
    return ", ".join(f"{resource} {amount}" for resource, amount in sorted(amounts.items()))


_PARTS: Final[Mapping[str, Callable[[Json], DifferenceMessage]]] = {
    "binds": _binds,
    "undos": _undos,
    "claims": _claims,
    "stops": _stops,
    "switches": _switches,
    "gangs": _gangs,
    "queues": _queues,
}


def _paths(then: Any, now: Any, path: str) -> Iterator[tuple[str, str, str]]:
    """Where two JSON values differ, and what is there."""
    if isinstance(then, dict) and isinstance(now, dict):
        for key in sorted({*then, *now}):
            yield from _paths(then.get(key), now.get(key), f"{path}.{key}".lstrip("."))
    elif isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
        for number, (one, other) in enumerate(zip(then, now, strict=True)):
            yield from _paths(one, other, f"{path}[{number}]")
    elif then != now:
        yield path, str(then), str(now)


_BY_THE_CLOCK: Final = frozenset({"seconds"})
"""Fields of answers that no decision depends on."""


@frozen(kw_only=True)
class Replay:
    """What came of deciding again.

    Attributes:
        recorded, digest: SHA-256 of the canonical plans, then and now.
        differences: by gang; empty when the plans are the same bytes.
        notes: what else should be known, one sentence each.
    """

    recorded: str
    digest: str
    differences: tuple[PlanDifference, ...]
    notes: tuple[str, ...] = ()

    @property
    def identical(self) -> bool:
        """Whether the plans are the same bytes."""
        return self.recorded == self.digest


def replay_decision(file: DecisionFile, *, clock: Clock, config: Config | None = None) -> Replay:
    """Decide again.

    Args:
        file: what was recorded.
        clock: times plugins; no decision depends on it.
        config: another configuration; None for the recorded one.

    Raises:
        ConfigError: a plugin or action of the configuration is not installed.
    """
    inputs = file.inputs
    search = _RecordedAnswers(inputs.searches)
    guard = PluginGuard(clock)
    if config is None:
        guard.resume_failing(inputs.failing)
    used = inputs.config if config is None else config
    guard.begin_session()
    snapshot = inputs.snapshot
    if config is not None:
        snapshot = attrs.evolve(snapshot, limits=config.limits)
    decision = decide(
        snapshot,
        load_policy(used),
        guard=guard,
        session_cache=SessionCache(),
        placement=used.placement,
        search=search if config is None else search_in_process,
    )
    with gpu_resources_in_force(inputs.snapshot.gpu_resources):
        plain = plan_as_json(decision.plan)
    body = canonical_json(plain)
    notes = [*search.notes()] if config is None else []
    if config is None and list(decision.faults) != file.header.faults:
        notes.append(_faults(file.header.faults, decision.faults))
    return Replay(
        recorded=file.header.plan,
        digest=plan_digest(body),
        differences=tuple(plan_differences(file.decided, plain)) if body != file.plan else (),
        notes=tuple(notes),
    )


def version_notes(file: DecisionFile) -> list[str]:
    """What decided has other versions than what decides here: one sentence each."""
    return [
        f"{file.path} was recorded by {name} {then}, this is {now}: "
        + ("decisions may differ" if name == "gpusched" else "searches may end otherwise")
        for name, now in component_versions().items()
        if (then := getattr(file.header, name)) != now
    ]


def _faults(then: list[str], now: tuple[str, ...]) -> str:
    return (
        "plugins failed otherwise than they did: then "
        f"{'; '.join(then) or 'none'}; now {'; '.join(now) or 'none'}"
    )


class _RecordedAnswers:
    """Searches again, and goes on with what was answered then where a clock had a part in it.

    A search has a limit in deterministic time, and ends alike everywhere. A machine that is too
    slow for that stops it by the clock, and its process may be lost: then the answer was another.
    """

    def __init__(self, recorded: tuple[RecordedSearch, ...]) -> None:
        self._recorded = recorded
        self._asked = 0
        self._other: list[str] = []
        self._strange = False

    def __call__(self, job: SearchJob) -> object:
        """Answer of one search, as ``SearchRunner`` gives it."""
        number, name = self._asked, tag_of(type(job))
        self._asked += 1
        if (
            number >= len(self._recorded)
            or tag_in(self._recorded[number].job) != name
            or self._strange
        ):
            # What is asked differs already, so that no answer of then belongs to it.
            self._strange = True
            return search_in_process(job)
        then = self._recorded[number]
        if then.fault:
            self._other.append(f"search {number + 1} ({name}) failed: {then.fault}")
            raise SolverFault(then.fault)
        answer = search_in_process(job)
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
