"""Which rules forbid the evictions by which a gang would start: smallest sets without which it does start."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import groupby
from typing import Final, TypeVar

import attrs

from gpusched.advice.proposals.forbidden_evictions import (
    EvictionRule,
    ForbiddenEvictions,
    Obstacle,
)
from gpusched.advice.proposals.proposal import Suggestion
from gpusched.advice.search import ChangeSearch
from gpusched.advice.start_answer import start_answer
from gpusched.api.meta.identity import GangKey
from gpusched.cache.gangs.gang import Gang

Item = TypeVar("Item")
_GANGS_FREED_MAX: Final = 100
"""Running gangs of which all may be made free to go at once."""
_IN_LONG_LINES_MAX: Final = 2
"""Rules that are told where many gangs wait."""
_SINGLES_MAX: Final = 24
"""Obstacles of one rule of which it is tried whether one alone is in the way."""


class ForbiddenSearch:
    """Takes obstacles off a copy of the cluster: all of a rule, then only those that are needed.

    Args:
        forbidden: everything that may be in the way.
        search: decides.
        awaited: gangs whose ends let it start.
    """

    def __init__(
        self, forbidden: ForbiddenEvictions, search: ChangeSearch, awaited: Sequence[Gang]
    ) -> None:
        self._forbidden = forbidden
        self._search = search
        self._awaited = awaited

    def suggestions(self, told: Collection[str]) -> Iterator[Suggestion]:
        """One for each rule that alone is in the way, else one of several rules.

        Args:
            told: rules that other suggestions are about.
        """
        obstacles = self._forbidden.obstacles
        together = self._together()
        if not obstacles or (len(together) == len(obstacles) and not self._starts(obstacles)):
            return
        found = 0
        rules = [(rule, list(some)) for rule, some in groupby(obstacles, lambda each: each.rule)]
        for rule, some in rules:
            if not self._search.is_exact and found == _IN_LONG_LINES_MAX:
                return
            if rule in told or (len(rules) > 1 and not self._starts(some)):
                continue
            suggestion = self._smallest(some)
            if suggestion is not None:
                found += 1
                yield suggestion
        if not (found or told) and len({each.rule for each in together}) > 1:
            suggestion = self._smallest(together) if self._starts(together) else None
            if suggestion is not None:
                yield suggestion

    def _together(self) -> list[Obstacle]:
        """Obstacles that are taken away at once; of many, those of the gangs whose ends it waits for.

        Where everything may be evicted, a session has thousands of victims to choose from.
        """
        obstacles = self._forbidden.obstacles
        if self._forbidden.count <= _GANGS_FREED_MAX:
            return list(obstacles)
        return [each for each in obstacles if any(map(each.protects, self._awaited))]

    def _starts(self, obstacles: Sequence[Obstacle]) -> bool:
        return self._search.starts_alone(self._forbidden.without(obstacles), evict=True)

    def _smallest(self, obstacles: Sequence[Obstacle]) -> Suggestion | None:
        """The fewest of these obstacles that are in the way, confirmed with the others that wait."""
        needed = self._needed(obstacles)
        found = self._confirmed(needed)
        if found is not None or not self._search.is_exact:
            return found
        # Gangs before it have those evicted that it would have: more must be free to go.
        if self._confirmed(obstacles) is None:
            return None
        more = smallest_part(obstacles, lambda some: self._confirmed(some) is not None)
        return self._confirmed(more)

    def _needed(self, obstacles: Sequence[Obstacle]) -> list[Obstacle]:
        needed = self._around_victims(list(obstacles))
        needed = smallest_part(needed, self._starts)
        if len(needed) > 1 and len({each.rule for each in needed}) == 1:
            for each in obstacles[:_SINGLES_MAX]:
                if self._starts([each]):
                    needed = [each]
                    break
        return [self._no_more_than_needed(needed, number) for number in range(len(needed))]

    def _around_victims(self, obstacles: list[Obstacle]) -> list[Obstacle]:
        """Those that keep a gang which would be evicted without all of them."""
        evicted = self._forbidden.gangs_of(self._evicted(obstacles))
        near = [each for each in obstacles if any(each.protects(gang) for gang in evicted)]
        return near if near and len(near) < len(obstacles) and self._starts(near) else obstacles

    def _no_more_than_needed(self, needed: Sequence[Obstacle], number: int) -> Obstacle:
        """One of the obstacles, lowered in place of taken off where that is enough."""
        one = needed[number]
        if one.rule is EvictionRule.PRIORITY:
            choices = list(self._forbidden.lower_priorities())
        elif one.rule in (EvictionRule.DESERVED, EvictionRule.GUARANTEE):
            evicted = self._forbidden.gangs_of(self._evicted(needed))
            lowered = self._forbidden.tightened(one, evicted)
            choices = [lowered] if lowered is not None else []
        else:
            return one
        for each in choices:
            if self._starts([*needed[:number], each, *needed[number + 1 :]]):
                return each
        return one

    def _evicted(self, obstacles: Sequence[Obstacle]) -> tuple[GangKey, ...]:
        decision = self._search.decided_alone(self._forbidden.without(obstacles), evict=True)
        return () if decision is None else start_answer(decision, self._search.gang).evicted

    def _confirmed(self, obstacles: Sequence[Obstacle]) -> Suggestion | None:
        found = self._search.confirmed(self._forbidden.without(obstacles), evict=True)
        if found is None or not found.start.evicted:
            return None  # a higher priority may help by its turn alone
        evicted = self._forbidden.gangs_of(found.start.evicted)
        return attrs.evolve(found, proposal=self._forbidden.without(obstacles, evicted))


def smallest_part(items: Sequence[Item], holds: Callable[[Sequence[Item]], bool]) -> list[Item]:
    """Part of what something holds for of which every item is needed for it: halves are left out, then less.

    The last are left out first.
    """
    kept = list(items)
    size = len(kept) // 2
    while size and len(kept) > 1:
        end = len(kept)
        while end > 0 and len(kept) > 1:
            fewer = [*kept[: max(0, end - size)], *kept[end:]]
            if fewer and holds(fewer):
                kept = fewer
            end = max(0, end - size)
        size //= 2
    return kept
