"""What a journal of starts and evictions says about stability; no code of the scheduler is used.

A journal is a list of happenings in the order of time. From it alone follows

* ``early``: a gang, or a member above its minimum, that was started and evicted within
  ``EARLY_S`` seconds though nothing happened from outside after it was started, the end of a limit of
  time (``staleAfter``, ``maxRuntime``) among it: who was stopped by one has a right to be made again;
* ``chains``: a gang for which others were evicted though it had been evicted itself, and nothing
  happened from outside since: two gangs lost work for one claim;
* ``passed_on``: the same where not the victim itself but another gang of its queue took the room;
* ``again``: a gang that was evicted twice, and nothing happened from outside in between.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import attrs

EARLY_S: Final = 10.0


@attrs.frozen
class Outside:
    """Something that was none of the scheduler's doing: a gang came or ended, a node went."""

    at: float


@attrs.frozen
class Started:
    """Pods of a gang were bound.

    Attributes:
        whole: whether the gang had its minimum only then.
    """

    at: float
    gang: str
    queue: str
    pods: tuple[str, ...]
    whole: bool


@attrs.frozen
class Evicted:
    """Pods of a gang were told to go.

    Attributes:
        claimant: name of the gang for which they go; empty where they go for no other gang.
        claimant_queue: queue of that gang.
        whole: whether the gang has less than its minimum afterwards.
        moved: whether it has other places.
    """

    at: float
    gang: str
    queue: str
    pods: tuple[str, ...]
    claimant: str
    claimant_queue: str
    whole: bool
    moved: bool = False


Journal = Sequence[Outside | Started | Evicted]


def early(journal: Journal, *, within: float = EARLY_S) -> list[str]:
    """Starts that were undone at once."""
    found = []
    outside = -1.0
    since: dict[str, float] = {}
    bound: dict[str, float] = {}
    for each in journal:
        if _is_from_outside(each):
            outside = each.at
        elif isinstance(each, Started):
            if each.whole:
                since[each.gang] = each.at
            bound.update(dict.fromkeys(each.pods, each.at))
        elif each.claimant and not each.moved:
            begun = since.get(each.gang) if each.whole else None
            if begun is None:
                begun = max((bound[pod] for pod in each.pods if pod in bound), default=None)
            if begun is not None and each.at - begun <= within and outside <= begun:
                what = "gang" if each.whole else "member of"
                found.append(
                    f"early: {what} {each.gang} started at {begun:g} and evicted at {each.at:g} "
                    f"for {each.claimant}"
                )
    return found


def _is_from_outside(each: Outside | Started | Evicted) -> bool:
    """Whether it was no choice among gangs: what a limit of time ends counts as what ends by itself."""
    return isinstance(each, Outside) or (isinstance(each, Evicted) and not each.claimant)


def chains(journal: Journal) -> list[str]:
    """Victims that evict."""
    return [
        f"chain: {cause.claimant} evicted {cause.gang} at {cause.at:g}, which evicted {each.gang} "
        f"at {each.at:g}"
        for each, causes in _with_causes(journal)
        for cause in causes
        if cause.gang == each.claimant
    ]


def passed_on(journal: Journal) -> list[str]:
    """Queues that take elsewhere what was taken from them, with another gang than the victim."""
    return [
        f"passed on: {cause.claimant} evicted {cause.gang} of {cause.queue} at {cause.at:g}, and "
        f"{each.claimant} evicted {each.gang} at {each.at:g}"
        for each, causes in _with_causes(journal)
        for cause in causes
        if cause.queue == each.claimant_queue
        and each.claimant not in {cause.gang, cause.claimant}
        and not any(other.gang == each.claimant for other in causes)
    ]


def again(journal: Journal) -> list[str]:
    """Gangs that lose members twice."""
    return [
        f"again: {each.gang} was evicted at {cause.at:g} and at {each.at:g}"
        for each, causes in _with_causes(journal)
        for cause in causes
        if cause.gang == each.gang and each.at > cause.at
    ]


def _with_causes(journal: Journal) -> Iterator[tuple[Evicted, list[Evicted]]]:
    """Each eviction for a gang, with those before it since something happened from outside."""
    causes: list[Evicted] = []
    for each in journal:
        if _is_from_outside(each):
            causes.clear()
        elif isinstance(each, Evicted) and each.claimant and not each.moved:
            yield each, [cause for cause in causes if cause.at < each.at]
            causes.append(each)
