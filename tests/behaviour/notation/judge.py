"""Compare what was seen with what a case asks for: one sentence for each difference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from tests.behaviour.notation.model import Case, CaseGang, Seen

_COUNTS: Final[Mapping[str, Callable[[Seen], int]]] = {
    "runs": lambda seen: len(seen.nodes),
    "evictions": lambda seen: seen.evicted,
    "done": lambda seen: seen.done,
}


def outcome_differences(case: Case, seen: Mapping[str, Seen]) -> list[str]:
    """Where the outcome is not what the case asks for; empty is good."""
    wrong = [each for gang in case.gangs for each in _gang(case, gang, seen[gang.name])]
    for total in case.totals:
        picked = [seen[name] for name in total.gangs or [gang.name for gang in case.gangs]]
        count = sum(_COUNTS[total.what](each) for each in picked)
        if not _inside(count, total.count):
            names = " ".join(total.gangs) or "all"
            wrong.append(f"{total.what} {names}: {_said(total.count)} expected, {count} seen")
    for names in case.one_gpu:
        places = {place for name in names for place in seen[name].slots.values()}
        if len(places) > 1:
            wrong.append(f"{' '.join(names)}: on one GPU expected, {sorted(places)} seen")
    for names in case.two_gpus:
        places = [place for name in names for place in seen[name].slots.values()]
        if len(places) != len(set(places)):
            wrong.append(f"{' '.join(names)}: on different GPUs expected, {places} seen")
    for check in case.checks:
        count = seen[check.gang].at.get(check.at_s, 0)
        if not _inside(count, check.runs):
            wrong.append(
                f"{check.gang}: {_said(check.runs)} run at {check.at_s} s expected, {count} seen"
            )
    for told in case.told:
        heard = seen[told.gang].told
        if not any(
            told.text == reason if told.is_reason else told.text in message
            for reason, message in heard
        ):
            wrong.append(f"{told.gang}: {told.text!r} is not told, but {list(heard)}")
    return wrong


def _gang(case: Case, gang: CaseGang, seen: Seen) -> list[str]:
    want = gang.wanted
    wrong = []
    if not _inside(len(seen.nodes), want.runs):
        wrong.append(f"{gang.name}: {_said(want.runs)} run expected, {len(seen.nodes)} seen")
    if not _inside(seen.evicted, want.evicted):
        wrong.append(f"{gang.name}: {_said(want.evicted)} evicted expected, {seen.evicted} seen")
    used = Counter(seen.nodes.values())
    if want.exact and used != Counter(want.exact):
        wrong.append(f"{gang.name}: on {dict(want.exact)} expected, {dict(used)} seen")
    elif want.nodes and not set(used) <= want.nodes:
        wrong.append(f"{gang.name}: on {sorted(want.nodes)} expected, {dict(used)} seen")
    if want.together:
        labels = {node.name: node.labels.get(want.together, "") for node in case.nodes}
        domains = sorted({labels[node] for node in used})
        if len(domains) > 1:
            wrong.append(f"{gang.name}: one {want.together} expected, {domains} seen")
    return wrong


def _inside(count: int, between: tuple[int, int]) -> bool:
    return between[0] <= count <= between[1]


def _said(between: tuple[int, int]) -> str:
    low, high = between
    return str(low) if low == high else f"{low}..{high}"
