"""Gangs of a queue that run and may lose members, those that are one pod and alike in lines: kept between sessions.

Thousands of them are of a few kinds, and policies that say the same of all of a kind are asked about one.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from gpusched.api.gang.running_kind import RunningKind
from gpusched.api.meta.identity import GangKey
from gpusched.base.classes import define
from gpusched.cache.gangs.gang import Gang

_SORTED_ANEW_FROM: Final = 8
"""A line of which an eighth is new is sorted anew."""


class KindLine:
    """Gangs of one kind, of which those that run for the shortest time lose the least."""

    def __init__(self) -> None:
        self._gangs: dict[GangKey, Gang] = {}
        self._turns: list[tuple[float, GangKey]] = []
        """The youngest first."""

    def __len__(self) -> int:
        """How many gangs there are."""
        return len(self._gangs)

    @property
    def speaker(self) -> Gang:
        """One of them, about which policies are asked for all."""
        return next(iter(self._gangs.values()))

    def youngest(self, begin: int, end: int) -> list[Gang]:
        """Some of them, those that started last before others."""
        return [self._gangs[key] for _, key in self._turns[begin:end]]

    def add(self, gangs: Sequence[Gang]) -> None:
        """Take in gangs that are not among them."""
        self._gangs.update((gang.key, gang) for gang in gangs)
        turns = sorted(map(_turn, gangs))
        if len(turns) * _SORTED_ANEW_FROM > len(self._turns):
            self._turns = sorted([*self._turns, *turns])
        else:
            for turn in turns:
                insort(self._turns, turn)

    def remove(self, gang: Gang) -> None:
        """Let go of a gang that is among them."""
        del self._gangs[gang.key]
        del self._turns[bisect_left(self._turns, _turn(gang))]


def _turn(gang: Gang) -> tuple[float, GangKey]:
    return -gang.placed[0].pod.scheduled, gang.key


@define(eq=False)
class QueueKinds:
    """Gangs of one queue.

    Attributes:
        lines: those that are one pod which runs, by their kind.
        others: all others.
    """

    lines: dict[RunningKind, KindLine]
    others: dict[GangKey, Gang]

    def __len__(self) -> int:
        """How many gangs there are."""
        return sum(map(len, self.lines.values())) + len(self.others)

    @classmethod
    def unlike(cls, gangs: Iterable[Gang]) -> QueueKinds:
        """Gangs that are looked at one by one."""
        return cls({}, {gang.key: gang for gang in gangs})

    def add(self, gangs: Iterable[Gang]) -> None:
        """Take in gangs that are not among them."""
        alike: dict[RunningKind, list[Gang]] = {}
        for gang in gangs:
            kind = gang.running_kind
            if kind is None:
                self.others[gang.key] = gang
            else:
                alike.setdefault(kind, []).append(gang)
        for kind, some in alike.items():
            line = self.lines.get(kind)
            if line is None:
                line = self.lines[kind] = KindLine()
            line.add(some)

    def remove(self, gang: Gang) -> None:
        """Let go of a gang that is among them."""
        kind = gang.running_kind
        if kind is None:
            del self.others[gang.key]
            return
        line = self.lines[kind]
        line.remove(gang)
        if not line:
            del self.lines[kind]


class VictimsInLines(NamedTuple):
    """Gangs that may be victims.

    Attributes:
        lines: of those that are alike, each with the number of its queue in the order of queues.
        others: all others, each with its place among all: its queue's number and its key, or its own number.
    """

    lines: Sequence[tuple[int, KindLine]]
    others: Sequence[tuple[Any, Gang]]

    @classmethod
    def one_by_one(cls, gangs: Iterable[Gang]) -> VictimsInLines:
        """Gangs that are looked at one by one, in this order."""
        return cls((), list(enumerate(gangs)))
