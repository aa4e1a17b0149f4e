"""Who holds the GPUs that are short, told to those who are next in line: the largest, and who ends first."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from heapq import nsmallest
from typing import Final

import attrs

from gpusched.api.meta.identity import GangKey, format_time
from gpusched.api.meta.quantity import format_quantity
from gpusched.api.pod.pod import PodClass
from gpusched.base.classes import frozen
from gpusched.cache.gangs.counting.placed_gangs import changed_keys
from gpusched.cache.gangs.gang import Gang
from gpusched.session.backfill.running.release_order import FOREVER
from gpusched.session.backfill.walltimes import Walltimes, session_walltimes
from gpusched.session.framework.reasons import Reason, shorten, truncate_message
from gpusched.session.state.plan import PendingReason
from gpusched.session.state.session import Session

_NAMED_MAX: Final = 2
POSITION_WITH_HOLDERS_MAX: Final = 8
"""Places in a queue that are told: others wait for those before them, and their sentences stay as they are."""
_GANGS_MAX: Final = 64
"""Gangs that are told in one session, in the order of their keys."""
_LOOKED_AT_MAX: Final = 50
"""Gangs with the most GPUs in the cluster that are looked at for one sentence."""
_RANKED_ANEW_FROM: Final = 8
"""Where an eighth of all gangs are others, they are ranked anew."""


@frozen(eq=False)
class _Holding:
    """GPUs of a gang by row, and when it ends; 0 where that is unknown, or over already."""

    key: GangKey
    rows: Counter[int]
    ends: int


class HolderRanking:
    """Gangs that run, by how much of a resource they hold: kept between sessions, changed where gangs changed."""

    def __init__(self) -> None:
        self._placed: Mapping[GangKey, Gang] = {}
        self._ranked: dict[str, list[tuple[int, GangKey]]] = {}
        self._row_of: Mapping[str, int] = {}
        self._by_row: dict[tuple[GangKey, str], Counter[int]] = {}

    def rank_holders(
        self, placed: Mapping[GangKey, Gang], gpu: str
    ) -> Sequence[tuple[int, GangKey]]:
        """Amounts, negative, and gangs that hold some of a resource: the most first, equal ones by key.

        Args:
            placed: all gangs of which a member has a place.
            gpu: the resource.
        """
        changed = changed_keys(self._placed, placed)
        if len(changed) * _RANKED_ANEW_FROM > len(placed):
            self._ranked.clear()
        for name, ranked in self._ranked.items():
            for key in sorted(changed):
                if (entry := _entry(self._placed, key, name)) is not None:
                    del ranked[bisect_left(ranked, entry)]
                if (entry := _entry(placed, key, name)) is not None:
                    insort(ranked, entry)
        self._placed = placed
        for known in [each for each in self._by_row if each[0] in changed]:
            del self._by_row[known]
        if gpu not in self._ranked:
            found = (_entry(placed, key, gpu) for key in placed)
            self._ranked[gpu] = sorted(entry for entry in found if entry is not None)
        return self._ranked[gpu]

    def amounts_by_row(self, key: GangKey, gpu: str, row_of: Mapping[str, int]) -> Counter[int]:
        """Base units of a resource that a gang of ``rank_holders`` holds on each row, not to be changed.

        Args:
            key: the gang's.
            gpu: the resource.
            row_of: rows of nodes, by name; the same object as long as no node comes or goes.
        """
        if row_of is not self._row_of:
            self._row_of = row_of
            self._by_row.clear()
        found = self._by_row.get((key, gpu))
        if found is None:
            found = self._by_row[key, gpu] = Counter()
            gang = self._placed.get(key)
            for member in gang.placed if gang is not None else ():
                if member.node in row_of:
                    found[row_of[member.node]] += member.pod.pod_class.requests.get(gpu)
        return found


def _entry(placed: Mapping[GangKey, Gang], key: GangKey, gpu: str) -> tuple[int, GangKey] | None:
    gang = placed.get(key)
    amount = gang.allocated.get(gpu) if gang is not None else 0
    return (-amount, key) if amount else None


class GpuHolders:
    """Asked after all actions of a session, about the gangs that it refused.

    Args:
        session: that is over.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._told = 0
        self._largest: dict[str, list[_Holding]] = {}
        self._on_all_rows: dict[str, tuple[list[tuple[int, _Holding]], str]] = {}
        """Who holds some of a resource wherever it is, the most first, and the sentence that tells it."""

    def holders_text(self, gang: Gang) -> str:
        """``default/a holds 64 nvidia.com/gpu, default/b 32, others the rest``; empty where it does not help."""
        reason = self._session.outcomes.refusal(gang)
        if (
            reason is None
            or not 0 < self._session.outcomes.position(gang) <= POSITION_WITH_HOLDERS_MAX
        ):
            return ""
        pod_class = _class_that_lacks_gpus(gang, reason)
        if pod_class is None or self._told >= _GANGS_MAX:
            return ""
        self._told += 1
        rows = self._session.class_info(pod_class).class_fit.fixed
        if rows.all():
            return self._text_on_all_rows(gang, pod_class.gpu)
        on = rows.tolist()
        found = []
        for each in self._largest_holders(pod_class.gpu):
            self._session.on_gang(each.key)  # a fault is put down to whom it is about
            amount = _amount_on(each.key, each.rows, on)
            if amount and each.key != gang.key:
                found.append((amount, each))
        self._session.on_gang(gang.key)
        return _text(_most_first(found), pod_class.gpu)

    def _text_on_all_rows(self, gang: Gang, gpu: str) -> str:
        """The sentence for a gang that may be on each node: the same for all that are not among the holders."""
        known = self._on_all_rows.get(gpu)
        if known is None:
            held = ((sum(each.rows.values()), each) for each in self._largest_holders(gpu))
            found = [pair for pair in held if pair[0]]
            ranked = _most_first(found)
            known = self._on_all_rows[gpu] = (ranked, _text(ranked, gpu))
        ranked, text = known
        if all(each.key != gang.key for _, each in ranked):
            return text
        return _text([pair for pair in ranked if pair[1].key != gang.key], gpu)

    def _largest_holders(self, gpu: str) -> list[_Holding]:
        """Gangs with the most of a resource in the cluster; those that started in this session count."""
        known = self._largest.get(gpu)
        if known is None:
            placed = self._session.snapshot.placed_gangs
            more = {
                key: sum(rows[gpu].values()) if gpu in rows else 0
                for key, (_, rows) in self._started.items()
            }
            ranked = self._ranking.rank_holders(placed, gpu)[: _LOOKED_AT_MAX + len(more)]
            found = [each for each in ranked if each[1] not in more]
            for key, amount in more.items():
                held = placed[key].allocated.get(gpu) if key in placed else 0
                found.append((-amount - held, key))
            known = [self._holding(key, gpu) for _, key in nsmallest(_LOOKED_AT_MAX, found)]
            self._largest[gpu] = known
        return known

    @cached_property
    def _started(self) -> dict[GangKey, tuple[Gang, dict[str, Counter[int]]]]:
        """GPUs that gangs were given in this session, by resource and row."""
        found: dict[GangKey, tuple[Gang, dict[str, Counter[int]]]] = {}
        for gang, places in self._session.placements.by_gang():
            rows = found.setdefault(gang.key, (gang, {}))[1]
            for place in places:
                gpu = place.pod.pod_class.gpu
                if gpu:
                    amount = place.pod.pod_class.requests.get(gpu)
                    rows.setdefault(gpu, Counter())[place.row] += amount
        return found

    def _holding(self, key: GangKey, gpu: str) -> _Holding:
        self._session.on_gang(key)
        snapshot = self._session.snapshot
        gang = snapshot.placed_gangs.get(key)
        rows = self._ranking.amounts_by_row(key, gpu, snapshot.nodes.row)
        started, given = self._started.get(key, (None, {}))
        if gpu in given:
            rows = rows + given[gpu]
        ends = FOREVER
        if gang is not None:
            ends = self._walltimes.end_of_running(gang)
        elif started is not None:
            ends = self._walltimes.end_if_started_now(started)
        over = key in self._walltimes.overruns
        return _Holding(key, rows, 0 if over or ends >= FOREVER else ends)

    @cached_property
    def _ranking(self) -> HolderRanking:
        return self._session.cache.kept.get_or_make(HolderRanking, HolderRanking)

    @cached_property
    def _walltimes(self) -> Walltimes:
        return session_walltimes(self._session)


def with_holders(reason: PendingReason, holders: str) -> PendingReason:
    """The reason with who holds what is short, where that was found."""
    if not holders:
        return reason
    return attrs.evolve(reason, message=truncate_message(f"{reason.message}; {holders}"))


def _class_that_lacks_gpus(gang: Gang, reason: PendingReason) -> PodClass | None:
    """The pods that were said to lack free GPUs; None where others lack, or nobody's end would help."""
    known = any(each in reason.message for each in (" is to have ended", " even empty "))
    if reason.reason != Reason.INSUFFICIENT_RESOURCES or known:
        return None
    for pod_set in gang.pod_sets:
        gpu = pod_set.pod_class.gpu
        if gpu and (f" free {gpu}" in reason.message or " no GPU with room" in reason.message):
            return pod_set.pod_class
    return None


def _most_first(found: list[tuple[int, _Holding]]) -> list[tuple[int, _Holding]]:
    return sorted(found, key=lambda pair: (-pair[0], pair[1].key))


def _text(found: list[tuple[int, _Holding]], gpu: str) -> str:
    if not found:
        return ""
    parts = []
    for number, (amount, each) in enumerate(found[:_NAMED_MAX]):
        text = format_quantity(amount, resource=gpu)
        parts.append(
            f"{_name(each.key)} {text}" if number else f"{_name(each.key)} holds {text} {gpu}"
        )
    first = min((each for _, each in found if each.ends), key=lambda each: each.ends, default=None)
    more = ", others the rest" if len(found) > _NAMED_MAX else ""
    joint = ", " if more else " and "
    end = f"; {_name(first.key)} is the first to end, at {format_time(first.ends)}" if first else ""
    return joint.join(parts) + more + end


def _amount_on(_key: GangKey, held: Counter[int], on: Sequence[bool]) -> int:
    """Base units that a gang holds on some rows; the key tells whom a fault in here is about."""
    return sum(amount for row, amount in held.items() if on[row])


def _name(key: GangKey) -> str:
    return shorten(f"{key.namespace}/{key.name}")
