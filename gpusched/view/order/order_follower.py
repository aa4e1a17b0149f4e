"""What changed of the order of gangs that wait: only turns that are another are told.

A turn names the gang just before it, and the terms of its queues by a number, so that a start, which
moves the shares of a queue and with them the keys of all that wait there, changes few of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from gpusched.api.meta.identity import GangKey
from gpusched.cache.gangs.gang import Gang
from gpusched.session.framework.plugin import Plugin
from gpusched.session.state.order.waiting_turns import NO_ORDER, WaitingOrder, WaitingTurn
from gpusched.view.frames import PartsGone, QueueTermsPut, TurnPut, ViewFrame
from gpusched.view.order.order_terms import OrderTeller, name_of_gang

_REST_EVERY = 64


class _ShownTurn(NamedTuple):
    """A turn that was told, with its gang and the number of its queues' terms."""

    turn: WaitingTurn
    gang: Gang
    path: int
    before: GangKey | None


class OrderFollower:
    """Remembers the order that it told; ``changes`` tells what is another now."""

    def __init__(self) -> None:
        self._order = NO_ORDER
        self._turns: dict[GangKey, _ShownTurn] = {}
        self._paths: dict[int, tuple[tuple[str, Any], ...]] = {}
        self._numbers = 0
        self._teller = OrderTeller()

    def take_faults(self) -> list[tuple[str, str]]:
        """Policies that failed to say what their keys mean, and why; each is told once."""
        return self._teller.take_faults()

    def changes(
        self,
        order: WaitingOrder,
        plugins: Sequence[Plugin],
        gangs: Mapping[GangKey, tuple[Gang, object]],
    ) -> Iterator[ViewFrame | None]:
        """Frames that make the order told before this one.

        Args:
            order: of the last session.
            plugins: that gave its keys.
            gangs: that are shown, each with whatever stands beside it.
        """
        anew = list(self._teller.plugins) != list(plugins)
        if anew:
            self._teller = OrderTeller(plugins)
        elif order == self._order:
            return
        known, now = self._turns, dict[GangKey, _ShownTurn]()
        paths = _Paths({} if anew else self._paths, self._numbers)
        last: _ShownTurn | None = None
        for number, turn in enumerate(order.turns):
            found = gangs.get(turn.gang)
            if found is None:
                continue
            before = known.get(turn.gang)
            path = paths.number_for(turn, before.path if before is not None else 0)
            told = paths.take_untold()
            if told:
                yield QueueTermsPut(path=path, terms=self._teller.queue_terms(order, turn))
            one = _ShownTurn(turn, found[0], path, last.turn.gang if last is not None else None)
            if anew or before is None or _is_another(before, one, last, known):
                yield self._turn_told(order, one, last)
            elif number % _REST_EVERY == 0:
                yield None
            now[turn.gang] = last = one
        gone = sorted(known.keys() - now.keys())
        unused = sorted(self._paths.keys() - paths.used.keys())
        self._order, self._turns = order, now
        self._paths, self._numbers = paths.used, paths.numbers
        if gone or unused:
            names = tuple(name_of_gang(key) for key in gone)
            yield PartsGone(turns=names, paths=tuple(unused))

    def _turn_told(self, order: WaitingOrder, one: _ShownTurn, last: _ShownTurn | None) -> TurnPut:
        before = None if last is None else (last.turn, last.gang)
        return self._teller.turn(order, (one.turn, one.gang), before, path=one.path)


class _Paths:
    """Numbers of the keys of queues on the paths of turns.

    Args:
        before: what each number stood for.
        numbers: how many were given so far.
    """

    def __init__(self, before: Mapping[int, tuple[tuple[str, Any], ...]], numbers: int) -> None:
        self._before = before
        self._by_keys: dict[tuple[tuple[str, Any], ...], int] = {}
        self._untold = False
        self.used: dict[int, tuple[tuple[str, Any], ...]] = {}
        self.numbers = numbers

    def number_for(self, turn: WaitingTurn, before: int) -> int:
        """The number of a turn's queues, the one that it had before where that is possible."""
        keys = turn.queues
        if before and self.used.get(before) == keys:
            return before
        number = self._by_keys.get(keys)
        if number is None:
            number = before if before and before not in self.used else 0
            if not number:
                self.numbers += 1
                number = self.numbers
            self._by_keys[keys] = number
            self.used[number] = keys
            self._untold = self._before.get(number) != keys
        return number

    def take_untold(self) -> bool:
        """Whether the number that was given last stands for something new."""
        untold, self._untold = self._untold, False
        return untold


def _is_another(
    before: _ShownTurn,
    one: _ShownTurn,
    last: _ShownTurn | None,
    known: Mapping[GangKey, _ShownTurn],
) -> bool:
    """Whether what is told of a turn is another now."""
    if before.before != one.before or before.path != one.path or before.gang is not one.gang:
        return True
    if before.turn.own != one.turn.own or before.turn.first != one.turn.first:
        return True
    if last is None:
        return False
    first = known.get(last.turn.gang)
    if first is None or first.gang is not last.gang or first.turn.own != last.turn.own:
        return True
    if first.turn.first != last.turn.first:
        return True
    alike = one.turn.queues[-1:] and last.turn.queues[-1:]
    if alike and one.turn.queues[-1][0] == last.turn.queues[-1][0]:
        return False  # of one queue: nothing above it is told
    return (first.turn.queues, before.turn.queues) != (last.turn.queues, one.turn.queues)
