"""Regular expressions in bounded time: Python's backtracking where it is cheap, else all states at once.

The API server uses RE2, whose time is linear in the text. Python tries one way after another, which
for ``(a|a)*b`` takes time exponential in the text. Such patterns are run as a nondeterministic
automaton whose states advance together (K. Thompson, "Regular Expression Search Algorithm", 1968).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, Final

import attrs

from gpusched.base.classes import define, frozen
from gpusched.cel.errors import CelError

_STATES_MAX: Final = 10_000
_STEPS_A_UNIT: Final = 4
"""Steps of a search that cost one unit of an evaluation."""
_UNBOUNDED: Final = 32
"""Repetitions beyond which a loop counts as one without end."""
_WAYS_MAX: Final = 10**12
_FASTER: Final = 8
"""Steps of Python's own search that take as long as one of the automaton."""
_FIND_STEPS_MAX: Final = 4_000_000
_SINGLE: Final = frozenset({"LITERAL", "NOT_LITERAL", "IN", "ANY", "AT"})

_Test = Callable[[str, int], bool]
"""Whether a place of a text is such that the automaton goes on without a character."""


class _TooHard(Exception):
    """A pattern that the automaton does not know, or that has too many states."""


@define(slots=True, eq=False)
class _Automaton:
    """States of a pattern: each consumes a character, asks about the place, or goes on by itself.

    Attributes:
        consumes: by state, the test of a character; None for states that consume none.
        asks: by state, the test of a place.
        following: by state, the states after it.
    """

    consumes: list[Callable[[str], bool] | None] = attrs.field(factory=list)
    asks: list[_Test | None] = attrs.field(factory=list)
    following: list[list[int]] = attrs.field(factory=list)
    start: int = 0
    end: int = 0

    def add(self, consumes: Callable[[str], bool] | None = None, asks: _Test | None = None) -> int:
        """A new state."""
        if len(self.following) >= _STATES_MAX:
            raise _TooHard
        self.consumes.append(consumes)
        self.asks.append(asks)
        self.following.append([])
        return len(self.following) - 1

    def search(self, text: str) -> bool:
        """Whether the pattern is found somewhere in the text."""
        states: set[int] = set()
        for place in range(len(text) + 1):
            states.add(self.start)
            states = self._closure(states, text, place)
            if self.end in states:
                return True
            if place < len(text):
                states = {
                    after
                    for state in states
                    if (test := self.consumes[state]) is not None and test(text[place])
                    for after in self.following[state]
                }
        return False

    def _closure(self, states: set[int], text: str, place: int) -> set[int]:
        left, found = list(states), set(states)
        while left:
            state = left.pop()
            test = self.asks[state]
            if self.consumes[state] is None and (test is None or test(text, place)):
                for after in self.following[state]:
                    if after not in found:
                        found.add(after)
                        left.append(after)
        return found


@frozen(slots=True, eq=False)
class Pattern:
    """A pattern, ready to be searched for.

    Attributes:
        ways: how Python's own search grows with the text, see ``_ways``.
    """

    compiled: re.Pattern[str]
    ways: tuple[int, int] | None
    automaton: _Automaton | None

    def units(self, text: str) -> int:
        """Units that a search in a text costs at most.

        Raises:
            CelError: it cannot be bounded.
        """
        steps = [each for each in (self._own_steps(text), self._automaton_steps(text)) if each]
        if not steps:
            raise CelError("error parsing regexp: expression is too large to be searched for")
        return min(steps) // _STEPS_A_UNIT

    def _own_steps(self, text: str) -> int:
        return 0 if self.ways is None else (len(text) + 1) ** (self.ways[0] + 1) * self.ways[1]

    def _automaton_steps(self, text: str) -> int:
        return 0 if self.automaton is None else (len(text) + 1) * len(self.automaton.following)

    def is_in(self, text: str) -> bool:
        """Whether a text has it, in time bounded by ``units``."""
        own, other = self._own_steps(text), self._automaton_steps(text)
        if self.automaton is None or 0 < own <= other * _FASTER:
            return self.compiled.search(text) is not None
        return self.automaton.search(text)

    def all_in(self, text: str) -> Iterable[str]:
        """All places of a text that have it, one after another.

        Raises:
            CelError: Python's search for them cannot be bounded.
        """
        if not 0 < self._own_steps(text) < _FIND_STEPS_MAX:
            raise CelError("error parsing regexp: expression is too costly to be searched for")
        return (found.group(0) for found in self.compiled.finditer(text))


@lru_cache(maxsize=1024)
def compile_pattern(text: str) -> Pattern:
    """A pattern by its text.

    Raises:
        CelError: it is none.
    """
    try:
        compiled = re.compile(text)
        tree = parser.parse(text)
    except (re.error, OverflowError, RecursionError) as fault:
        raise CelError(f"error parsing regexp: {fault}") from None
    automaton: _Automaton | None = _Automaton()
    try:
        assert automaton is not None
        automaton.start = automaton.add()
        automaton.end = _build(automaton, list(tree), automaton.start, compiled.flags)
    except (_TooHard, RecursionError):
        automaton = None
    return Pattern(compiled, _ways(tree), automaton)


def _ways(tree: Any) -> tuple[int, int] | None:
    """How Python's search grows: loops without end on one way, and ways to go; None where loops nest."""
    loops, ways = 0, 1
    for code, argument in tree:
        inner = _ways_of(str(code), argument)
        if inner is None:
            return None
        loops += inner[0]
        ways = min(ways * inner[1], _WAYS_MAX)
    return loops, ways


def _ways_of(name: str, argument: Any) -> tuple[int, int] | None:
    if name in ("MAX_REPEAT", "MIN_REPEAT"):
        least, most, body = argument
        inner = _ways(body)
        if inner is None or most <= 1:
            return inner and (inner[0], inner[1] + (least != most))
        loops, ways = inner
        if loops or (ways > 1 and most > _UNBOUNDED):
            return None
        return (1, 1) if most > _UNBOUNDED else (0, min(ways**most * (most - least + 1), _WAYS_MAX))
    if name == "SUBPATTERN":
        return _ways(argument[-1])
    if name == "BRANCH":
        each = [_ways(way) for way in argument[1]]
        known = [way for way in each if way is not None]
        if len(known) < len(each):
            return None
        return max(way[0] for way in known), sum(way[1] for way in known)
    return (0, 1) if name in _SINGLE else None


def _build(automaton: _Automaton, tree: list[Any], at: int, flags: int) -> int:
    """Add the states of a sequence behind a state; the state behind them."""
    for code, argument in tree:
        name = str(code)
        if name in ("MAX_REPEAT", "MIN_REPEAT"):
            at = _build_repeat(automaton, argument, at, flags)
        elif name == "SUBPATTERN":
            _, more, fewer, body = argument
            at = _build(automaton, list(body), at, (flags | more) & ~fewer)
        elif name == "BRANCH":
            after = automaton.add()
            for way in argument[1]:
                first = automaton.add()
                automaton.following[at].append(first)
                last = _build(automaton, list(way), first, flags)
                automaton.following[last].append(after)
            at = after
        elif name == "AT":
            state = automaton.add(asks=_place_test(str(argument), flags))
            automaton.following[at].append(state)
            after = automaton.add()
            automaton.following[state].append(after)
            at = after
        else:
            state = automaton.add(consumes=_character_test(name, argument, flags))
            automaton.following[at].append(state)
            after = automaton.add()
            automaton.following[state].append(after)
            at = after
    return at


def _build_repeat(automaton: _Automaton, argument: Any, at: int, flags: int) -> int:
    least, most, body = argument
    for _ in range(least):
        at = _build(automaton, list(body), at, flags)
    after = automaton.add()
    automaton.following[at].append(after)
    if most is parser.MAXREPEAT:
        first = automaton.add()
        automaton.following[at].append(first)
        last = _build(automaton, list(body), first, flags)
        automaton.following[last] += [first, after]
        return after
    for _ in range(most - least):
        at = _build(automaton, list(body), at, flags)
        automaton.following[at].append(after)
    return after


def _character_test(name: str, argument: Any, flags: int) -> Callable[[str], bool]:
    """Whether a character is one that an element of a pattern takes, as Python's own search says."""
    if name == "ANY":
        return (lambda _: True) if flags & re.DOTALL else (lambda character: character != "\n")
    if name not in ("LITERAL", "NOT_LITERAL", "IN"):
        raise _TooHard
    folded = bool(flags & re.IGNORECASE)
    if name == "IN":
        negated = bool(argument) and str(argument[0][0]) == "NEGATE"
        parts = [_class_part(code, each) for code, each in argument[1 if negated else 0 :]]
        text = f"[{'^' if negated else ''}{''.join(parts)}]"
    else:
        text = f"[{'^' if name == 'NOT_LITERAL' else ''}{re.escape(chr(argument))}]"
    single = re.compile(text, re.DOTALL | (re.IGNORECASE if folded else 0) | (flags & re.ASCII))
    return lambda character: single.match(character) is not None


_CATEGORIES: Final = {
    "CATEGORY_DIGIT": r"\d", "CATEGORY_NOT_DIGIT": r"\D", "CATEGORY_SPACE": r"\s",
    "CATEGORY_NOT_SPACE": r"\S", "CATEGORY_WORD": r"\w", "CATEGORY_NOT_WORD": r"\W",
}  # fmt: skip


def _class_part(code: Any, argument: Any) -> str:
    name = str(code)
    if name == "LITERAL":
        return re.escape(chr(argument))
    if name == "RANGE":
        return f"{re.escape(chr(argument[0]))}-{re.escape(chr(argument[1]))}"
    if name == "CATEGORY":
        return _CATEGORIES[str(argument)]
    raise _TooHard


def _place_test(name: str, flags: int) -> _Test:
    lines = bool(flags & re.MULTILINE)
    text = {
        "AT_BEGINNING": "^", "AT_BEGINNING_STRING": r"\A", "AT_END": "$", "AT_END_STRING": r"\Z",
        "AT_BOUNDARY": r"\b", "AT_NON_BOUNDARY": r"\B",
    }.get(name)  # fmt: skip
    if text is None:
        raise _TooHard
    compiled = re.compile(text, (re.MULTILINE if lines else 0) | (flags & re.ASCII))
    return lambda where, place: compiled.match(where, place) is not None
