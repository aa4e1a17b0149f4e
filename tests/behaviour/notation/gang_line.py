"""The line of a gang: who it is, its pods, and after the arrow what must come of it."""

from __future__ import annotations

import re
from typing import Any, Final

from tests.behaviour.notation.model import CaseGang, CasePods, Wanted
from tests.behaviour.notation.numbers import InvalidCase, amount, between, seconds, series

_PODS: Final = re.compile(r"([@!x~])([^*/:]*)(?:\*(\d+))?(?:/([^:]+))?((?::[\w.+]+)*)")
_PRIORITY: Final = re.compile(r"p(\d+)")
_KEYS: Final = {
    "subreq": ("sub_required", str),
    "min": ("min_member", int),
    "minsub": ("min_sub_groups", int),
    "required": ("required", str),
    "preferred": ("preferred", str),
    "keep": ("keep", int),
}
_TIMES: Final = {
    "minrun": "min_runtime_s",
    "at": "at_s",
    "for": "lasts_s",
    "walltime": "walltime_s",
    "maxwait": "wait_s",
    "timeout": "timeout_s",
    "checkpoint": "checkpoint_s",
}
_FLAGS: Final = {
    "hard": ("preemptible", False),
    "soft": ("preemptible", True),
    "apart": ("apart", True),
    "never": ("never_preempts", True),
    "ranked": ("ranked", True),
    "whole": ("whole", True),
    "extras": ("only_extras", True),
}


def parse_gang(text: str) -> CaseGang:
    """A gang from what stands after the word ``gang``; see ``notation``.

    Raises:
        BadCase: a word is not understood.
    """
    left, arrow, right = text.partition("->")
    if not arrow:
        raise InvalidCase("a gang without an arrow")
    name, queue, asked, *words = left.split()
    fields: dict[str, Any] = {"node_labels": {}}
    pods: list[CasePods] = []
    for word in words:
        key, _, value = word.partition("=")
        priority = _PRIORITY.fullmatch(word)
        if priority:
            fields["priority"] = int(priority[1])
        elif word in _FLAGS:
            field, flag = _FLAGS[word]
            fields[field] = flag
        elif not value:
            pods.append(_pods(word))
        elif key in _KEYS:
            field, kind = _KEYS[key]
            fields[field] = kind(value)
        elif key in {"sub", "roles"}:
            pairs = [each.split(":") for each in value.split(",")]
            fields["roles" if key == "roles" else "sub_groups"] = {a: int(b) for a, b in pairs}
        elif key == "on":
            fields["on_nodes"] = tuple(value.split(","))
        elif key in _TIMES:
            fields[_TIMES[key]] = seconds(value)
        else:
            fields["node_labels"][key] = value
    pods = pods or [CasePods()]
    bound = sum(each.count for each in pods if each.node)
    return CaseGang(
        name=name,
        queue=queue,
        asks=amount(asked),
        pods=tuple(pods),
        wanted=_wanted(
            right,
            bound=0 if "lasts_s" in fields else bound,
            all_=sum(each.count for each in pods),
        ),
        **fields,
    )


def _pods(word: str) -> CasePods:
    found = _PODS.fullmatch(word)
    if found is None:
        raise InvalidCase(f"{word!r} of a gang")
    kind, what, times, part, own = found.groups()
    priority = asks = None
    words = (own or "").split(":")[1:]
    for each in words:
        special = _PRIORITY.fullmatch(each)
        if special:
            priority = int(special[1])
        elif each not in {"never", "slow"}:
            asks = amount(each)
    on_node = kind in "@!"
    what, _, slots = what.partition("^")
    return CasePods(
        count=int(times or 1) if on_node else int(what),
        node=what if on_node else "",
        leaving=kind == "!",
        gated=kind == "~",
        part=part or "",
        priority=priority,
        asks=asks,
        never_preempts="never" in words,
        slow="slow" in words,
        slots=slots,
    )


def _wanted(text: str, *, bound: int, all_: int) -> Wanted:
    words = text.split()
    runs = (all_, all_) if words[0] == "all" else between(words[0])
    fields: dict[str, Any] = {"evicted": (max(0, bound - runs[1]), max(0, bound - runs[0]))}
    rest = iter(words[1:])
    for word in rest:
        if word == "evicted":
            fields["evicted"] = between(next(rest))
        elif word.startswith("@"):
            fields |= _places(word[1:])
        else:
            raise InvalidCase(f"{word!r} after the arrow")
    return Wanted(runs=runs, **fields)


def _places(text: str) -> dict[str, Any]:
    if "*" in text or "+" in text:
        exact = {}
        for each in text.split("+"):
            name, _, times = each.partition("*")
            exact[name] = int(times or 1)
        return {"exact": exact, "nodes": frozenset(exact)}
    if text in {"rack", "zone", "block"}:
        return {"together": text}
    return {"nodes": frozenset(name for each in text.split(",") for name in series(each))}
