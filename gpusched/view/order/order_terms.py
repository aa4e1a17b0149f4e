"""What the keys say by which gangs that wait were sorted, in words of the policies that gave them.

Nothing is computed here that was not part of a key: a term is told as its policy tells it
(``tell_gang_order``, ``tell_queue_order``), or as its name and value where that says nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from gpusched.api.meta.identity import GangKey, format_time
from gpusched.cache.gangs.gang import Gang
from gpusched.session.framework.plugin import Plugin
from gpusched.session.framework.reasons import shorten, truncate_message
from gpusched.session.framework.sort_keys import Key, KeyMeaning, plain_key
from gpusched.session.state.order.waiting_turns import TurnFirst, WaitingOrder, WaitingTurn
from gpusched.view.frames import TurnPut
from gpusched.view.model import OrderTermView

TURNS: Final = "turns"
SINCE: Final = "since"
NAME: Final = "name"
_US: Final = 1_000_000
_KNOWN_MAX: Final = 10_000
"""Meanings of keys of queues that are remembered; thousands of gangs share few of them."""


class Difference(NamedTuple):
    """What puts a gang after another one: who decided, and what is so here and there."""

    decided_by: str
    here: str
    there: str


class OrderTeller:
    """Tells turns of one loaded policy.

    Args:
        plugins: in their order.
    """

    def __init__(self, plugins: Sequence[Plugin] = ()) -> None:
        self.plugins = plugins
        self._faults: dict[str, str] = {}
        self._told: set[str] = set()
        self._of_gangs = _methods(plugins, "tell_gang_order")
        self._of_queues = _methods(plugins, "tell_queue_order")
        self._known: dict[tuple[str, str, Any], tuple[KeyMeaning, ...]] = {}

    def queue_terms(self, order: WaitingOrder, turn: WaitingTurn) -> tuple[OrderTermView, ...]:
        """Terms of the queues on the path of a turn."""
        return tuple(
            _term(policy, name, meaning)
            for name, key in turn.queues
            for policy, part in zip(order.queue_policies, key or (), strict=key is not None)
            for meaning in self._queue_meanings(policy, name, part)
            if meaning.message and not meaning.only_if_decisive
        )

    def turn(
        self,
        order: WaitingOrder,
        now: tuple[WaitingTurn, Gang],
        before: tuple[WaitingTurn, Gang] | None,
        *,
        path: int,
    ) -> TurnPut:
        """A turn of a gang, and what puts it after the one before it; None for the first.

        Args:
            order: that both are of.
            now: the turn with its gang.
            before: the one before it.
            path: number of its queues' terms.
        """
        turn, gang = now
        name, terms = name_of_gang(turn.gang), tuple(self._own_terms(order, turn, gang))
        if before is None:
            return TurnPut(gang=name, path=path, terms=terms)
        why = self._difference(order, before, now)
        return TurnPut(
            gang=name,
            before=name_of_gang(before[0].gang),
            path=path,
            terms=terms,
            decided_by=why.decided_by,
            here=truncate_message(why.here),
            there=truncate_message(why.there),
        )

    def take_faults(self) -> list[tuple[str, str]]:
        """Policies that failed to say what their keys mean, and why; each is told once."""
        found = [each for each in sorted(self._faults.items()) if each[0] not in self._told]
        self._told.update(self._faults)
        return found

    # -- terms -----------------------------------------------------------------------------
    def _own_terms(
        self, order: WaitingOrder, turn: WaitingTurn, gang: Gang
    ) -> Iterator[OrderTermView]:
        if turn.first is not None:
            yield _term(turn.first, "", KeyMeaning("yes", _FIRST[turn.first][0]))
        for policy, part in zip(order.gang_policies, turn.own[0], strict=True):
            for meaning in self._gang_meanings(policy, gang, part):
                if meaning.message and not meaning.only_if_decisive:
                    yield _term(policy, "", meaning)
        since = format_time(turn.own[2] / _US)
        yield _term(SINCE, "", KeyMeaning(since, f"it waits since {since}"))

    def _gang_meanings(self, policy: str, gang: Gang, part: Any) -> tuple[KeyMeaning, ...]:
        return self._meanings(policy, self._of_gangs, gang, plain_key(part))

    def _queue_meanings(self, policy: str, queue: str, part: Any) -> tuple[KeyMeaning, ...]:
        asked = (policy, queue, part)
        known = self._known.get(asked)
        if known is None:
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            known = self._meanings(policy, self._of_queues, queue, plain_key(part))
            self._known[asked] = known
        return known

    def _meanings(
        self,
        policy: str,
        methods: Mapping[str, Callable[[Any, Key], Sequence[KeyMeaning]]],
        about: Gang | str,
        key: Key,
    ) -> tuple[KeyMeaning, ...]:
        """Meanings of the parts of a key, those that say nothing left out by an empty message."""
        tell = methods.get(policy)
        if not key:  # the order is off, or has no opinion
            return ()
        if tell is not None:
            try:
                found = tuple(tell(about, key))[: len(key)]
                if all(isinstance(each, KeyMeaning) for each in found):
                    return tuple(
                        KeyMeaning(shorten(m.value), shorten(m.message), m.only_if_decisive)
                        for m in found
                    )
                why = f"answered {type(found[0]).__name__} in place of KeyMeaning"
            except Exception as error:  # noqa: BLE001 - words cost no gang its place
                why = f"{type(error).__name__}: {error}"
            self._faults.setdefault(policy, shorten(why))
        value = ", ".join(shorten(str(int(p) if isinstance(p, bool) else p)) for p in key)
        return (KeyMeaning(value, f"policy {policy} counts {value}, and smaller goes first"),)

    # -- differences -----------------------------------------------------------------------
    def _difference(
        self,
        order: WaitingOrder,
        before: tuple[WaitingTurn, Gang],
        now: tuple[WaitingTurn, Gang],
    ) -> Difference:
        """The first thing in which the keys of two turns in a row differ."""
        (first, other), (turn, gang) = before, now
        for there, here in zip(first.queues, turn.queues, strict=False):
            if there[0] != here[0]:
                return self._queue_difference(order, there, here) or _by_time(first, turn)
        if len(first.queues) > len(turn.queues):
            return _by_time(first, turn)
        if len(first.queues) < len(turn.queues):
            inner = shorten(turn.queues[len(first.queues)][0])
            return Difference(
                TURNS, f"queue {inner} is below that queue", "it is in the queue above"
            )
        for number, policy in enumerate(order.gang_policies):
            there, here = first.own[0][number], turn.own[0][number]
            if there != here:
                if there > here:
                    return _by_time(first, turn)
                return self._part_difference(
                    policy,
                    (self._gang_meanings(policy, other, there), there),
                    (self._gang_meanings(policy, gang, here), here),
                )
        return _own_difference(first, turn)

    def _queue_difference(
        self, order: WaitingOrder, there: tuple[str, Any], here: tuple[str, Any]
    ) -> Difference | None:
        """Between two queues of one parent; None where the later one has the smaller key."""
        (one, theirs), (other, mine) = there, here
        if theirs is None or mine is None:
            text = f"there is no queue {shorten(other)}", f"queue {shorten(one)} is there"
            return Difference(TURNS, *text) if theirs is not None else None
        for number, policy in enumerate(order.queue_policies):
            if mine[number] == theirs[number]:
                continue
            if theirs[number] > mine[number]:
                return None
            return self._part_difference(
                policy,
                (self._queue_meanings(policy, one, theirs[number]), theirs[number]),
                (self._queue_meanings(policy, other, mine[number]), mine[number]),
            )
        text = (
            f"queue {shorten(other)} takes turns with its equals",
            f"queue {shorten(one)} was first",
        )
        return Difference(TURNS, *text)

    @staticmethod
    def _part_difference(
        policy: str,
        there: tuple[tuple[KeyMeaning, ...], Any],
        here: tuple[tuple[KeyMeaning, ...], Any],
    ) -> Difference:
        """By the part in which two keys of one policy differ."""
        pairs = enumerate(zip(there[1], here[1], strict=False))
        number = next((number for number, (one, other) in pairs if one != other), 0)
        return Difference(
            policy,
            _meaning_at(policy, here[0], number, plain_key(here[1])),
            _meaning_at(policy, there[0], number, plain_key(there[1])),
        )


_FIRST: Final = {
    TurnFirst.REPAIR: (
        "it lost members that it needs, so it has its turn before all that is new",
        "it lost nothing that it needs",
    ),
    TurnFirst.STARTED: (
        "its Job was started, so its pods have their turn before all that is new",
        "it is not started yet",
    ),
}
"""What is told of a gang that has its turn first, and of one behind it."""


def name_of_gang(key: GangKey) -> str:
    """``NAMESPACE/KIND/NAME``."""
    return f"{key.namespace}/{key.kind}/{key.name}"


def _methods(plugins: Sequence[Plugin], name: str) -> dict[str, Callable[[Any, Key], Any]]:
    found = {plugin.name: getattr(plugin, name, None) for plugin in plugins}
    return {plugin: method for plugin, method in found.items() if callable(method)}


def _term(policy: str, queue: str, meaning: KeyMeaning) -> OrderTermView:
    return OrderTermView(
        policy=policy, queue=queue, value=meaning.value, message=truncate_message(meaning.message)
    )


def _meaning_at(policy: str, meanings: Sequence[KeyMeaning], number: int, key: Key) -> str:
    said = meanings[number].message if number < len(meanings) else ""
    value = key[number] if number < len(key) else "nothing"
    value = int(value) if isinstance(value, bool) else value
    return said or f"policy {policy} counts {shorten(str(value))}"


def _by_time(first: WaitingTurn, turn: WaitingTurn) -> Difference:
    """Keys do not say it: it was served before all others, or they moved between the two turns."""
    if first.first is not None and turn.first is None:
        return Difference(first.first, _FIRST[first.first][1], _FIRST[first.first][0])
    return Difference(
        TURNS,
        "its turn came when others had theirs",
        "its turn came first, by shares of that moment",
    )


def _own_difference(first: WaitingTurn, turn: WaitingTurn) -> Difference:
    """Between two gangs of one queue that are equal to all policies."""
    if first.own[1] < turn.own[1]:
        return Difference(TURNS, "it had more turns", "it had fewer turns")
    there, here = format_time(first.own[2] / _US), format_time(turn.own[2] / _US)
    if here != there:
        return Difference(SINCE, f"it waits since {here}", f"it waits since {there}")
    return Difference(NAME, f"it waits since {here}, too", "its name is the smaller one")
