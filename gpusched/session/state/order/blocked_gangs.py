"""Gangs that did not start in their turns, in queue order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count

from gpusched.api.meta.identity import GangKey
from gpusched.cache.gangs.gang import Gang
from gpusched.session.state.order.waiting_turns import WaitingTurn


class BlockedGangs:
    """Gangs that were blocked in one session.

    Attributes:
        waiting: in queue order.
        turns: of those that were blocked in a turn of theirs.
    """

    def __init__(self) -> None:
        self.waiting: list[Gang] = []
        self.turns: dict[GangKey, WaitingTurn] = {}
        self._places: dict[GangKey, int] = {}
        self._passed: set[GangKey] = set()

    def note(
        self, gang: Gang, serving: Callable[[Gang], WaitingTurn | None] | None, *, passed: bool
    ) -> bool:
        """Note a gang that keeps its place in queue order; whether it was not noted before.

        Args:
            gang: that is blocked.
            serving: tells its turn, where it is its turn.
            passed: whether only a reservation of another kept it from starting.
        """
        number = len(self.waiting)
        if self._places.setdefault(gang.key, number) != number:
            return False
        self.waiting.append(gang)
        turn = serving(gang) if serving is not None else None
        if turn is not None:
            self.turns[gang.key] = turn
        if passed:
            self._passed.add(gang.key)
        return True

    def note_turns(self, turns: Sequence[tuple[Gang, WaitingTurn]]) -> None:
        """Note gangs that were blocked in their turns, one after the other, and are new here."""
        keys = [gang.key for gang, _ in turns]
        self._places.update(zip(keys, count(len(self.waiting))))
        self.waiting += [gang for gang, _ in turns]
        self.turns.update(zip(keys, [turn for _, turn in turns], strict=True))

    def place_of(self, gang: Gang) -> int | None:
        """Its place among blocked gangs, from 0; None where it is not one of them."""
        return self._places.get(gang.key)

    def is_passed(self, gang: Gang) -> bool:
        """Whether only a reservation of another kept it from starting."""
        return gang.key in self._passed
