"""Where two plans part, gang by gang, in sentences: what was decided then and what is now."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

import attrs

Json: TypeAlias = dict[str, Any]


@attrs.frozen(order=True)
class Difference:
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


Told: TypeAlias = Mapping[tuple[str, str], str]
"""What a plan says, by what it is about and what of it."""


def differences(then: Json, now: Json) -> Iterator[Difference]:
    """Of two plans as JSON values, in the order of what they are about.

    What has no sentence of its own is told by its path, so that plans which differ always have
    a difference.
    """
    before, after = _told(then), _told(now)
    found = False
    for key in sorted({*before, *after}):
        was, is_now = before.get(key, ""), after.get(key, "")
        if was != is_now:
            found = True
            yield Difference(*key, was, is_now)
    if not found:
        yield from (Difference("plan", *each) for each in _paths(then, now, ""))


def _told(plan: Json) -> Told:
    told: dict[tuple[str, str], str] = {}
    for name, tell in _PARTS.items():
        for each in plan.get(name, ()):
            told.update(tell(each))
    return told


def _binds(bind: Json) -> Told:
    gang = bind["gang"]
    return {(gang, f"pod {each['key']}"): _place(each) for each in bind["binds"]} | {
        (gang, "proof"): bind["proof"]
    }


def _place(bind: Json) -> str:
    slots = f" with GPUs {bind['slots']}" if bind["slots"] else ""
    rank = f" as rank {bind['rank']}" if bind["rank"] >= 0 else ""
    return f"goes to {bind['node']}{slots}{rank}"


def _claims(claim: Json) -> Told:
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


def _stops(stop: Json) -> Told:
    told = {
        (stop["gang"], f"pod {each['key']}"): f"is evicted from {each['node']}: {each['sentence']}"
        for each in stop["evictions"]
    }
    if stop["pause"]:
        told[stop["gang"], "Job"] = f"is paused: {stop['pause']['sentence']}"
    return told


def _undos(undo: Json) -> Told:
    return {
        (undo["gang"], f"pod {key}"): f"is undone: {undo['sentence']}" for key, _ in undo["pods"]
    }


def _switches(switch: Json) -> Told:
    verb = "is paused" if switch["suspend"] else "is started"
    pool = ", ".join(f"{key}={value}" for key, value in switch["node_selector"])
    size = "" if switch["parallelism"] is None else f" with {switch['parallelism']} pods"
    return {
        (f"Job/{switch['key']}", "Job"): f"{verb}{size}{f' on {pool}' if pool else ''}: "
        f"{switch['sentence']}"
    }


def _gangs(gang: Json) -> Told:
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


def _queues(queue: Json) -> Told:
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


_PARTS: Final[Mapping[str, Callable[[Json], Told]]] = {
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
