"""Victims of the first queues for one class of claimants and area; what a search needs of them is made when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cached_property

import attrs

from gpusched.api.meta.identity import GangKey
from gpusched.base.classes import define
from gpusched.cache.gangs.gang import Gang
from gpusched.session.preempt.pools.line_choice import VictimLines
from gpusched.session.preempt.pools.pod_blocks import StandingBlocks
from gpusched.session.preempt.victim_pool import VictimPool, VictimTable


@define(eq=False)
class FoundVictims:
    """Who may leave, for all areas of a claimant.

    Attributes:
        make_table: makes a table of them.
        every: whether nobody was left out.
        work: steps that it took to find them.
        standing: the same by queue, where each is a pod alone; else None.
    """

    make_table: Callable[[], VictimTable]
    every: bool
    work: int
    standing: StandingBlocks | None

    @property
    def size(self) -> int:
        """Bundles that the table has."""
        return len(self.table.parts) if self.standing is None else self.standing.size

    @cached_property
    def table(self) -> VictimTable:
        """The table, made when it is asked for first."""
        return self.make_table()


@define(eq=False)
class PoolStage:
    """Victims of the first queues, for one class and area.

    Attributes:
        make_pool: makes the pool, which is worth its while only where somebody may leave or there is room.
        size: bundles that may leave.
        room: for how many claimants nodes have room as things are; None where devices decide, too.
        gangs: how many there were room for.
        every: whether nobody was left out.
        lines: the same victims in lines, where each makes room for one claimant; else None.
    """

    make_pool: Callable[[], VictimPool]
    size: int
    room: Callable[[], int] | None
    gangs: int
    every: bool
    lines: VictimLines | None = None
    reached: int | None = None
    """Claimants that fitted by the last choice, where lines made it."""
    _pool: VictimPool | None = None
    _excluded: list[Callable[[VictimPool], None]] = attrs.Factory(list)

    @property
    def pool(self) -> VictimPool:
        """The pool, made when it is asked for first."""
        if self._pool is None:
            self._pool = self.make_pool()
            for exclude in self._excluded:
                exclude(self._pool)
        return self._pool

    @property
    def reach(self) -> int:
        """How many claimants fitted by the last choice, or would have fitted at most."""
        return self.pool.search_state.reach if self.reached is None else self.reached

    def is_in_vain(self, need: int) -> bool:
        """Whether nobody may leave and so many claimants find no room as things are."""
        return self.every and not self.size and self.room is not None and self.room() < need

    def exclude_gangs(self, gangs: Sequence[Gang]) -> None:
        """These are no victims after all."""
        if self.lines is not None:
            self.lines.exclude_gangs(gangs)
        self._exclude(lambda pool: pool.exclude_gangs(gangs))

    def exclude_queue(self, queue: str, keep: Collection[GangKey]) -> None:
        """Nothing may be taken from a queue but what these gangs lose."""
        if self.lines is not None:
            self.lines.exclude_queue(queue, keep)
        self._exclude(lambda pool: pool.exclude_queue(queue, keep))

    def _exclude(self, exclude: Callable[[VictimPool], None]) -> None:
        """Of the pool, now or when it is made."""
        if self._pool is None:
            self._excluded.append(exclude)
        else:
            exclude(self._pool)
