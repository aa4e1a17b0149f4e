"""Whether quotas allow a gang to start at a later time, beside what has started and ended by then."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from operator import is_not
from typing import Final, Protocol

from gpusched.api.meta.resources import NOTHING, Resources
from gpusched.cache.gangs.gang import Gang
from gpusched.session.framework.verdict import first_refusal
from gpusched.session.state.session import Session

_AHEAD: Final = 16
"""Gangs of each kind that are asked about beyond twice those that are there."""

LoadPart = tuple[tuple[str, ...], Resources]
"""Names of a queue and those above it, and the amounts of one gang there."""


class Planned(Protocol):
    """A gang for which room is planned: its queue and those above it, and its amounts."""

    @property
    def path(self) -> tuple[str, ...]:
        """Names of the queues."""

    @property
    def requests(self) -> Resources:
        """Amounts of its minimum."""


class QueueLoad:
    """Gangs that queues are charged with, counted by queue and amounts.

    Gangs of a kind share the object of their amounts: they are added up by counting them.

    Args:
        parts: one for each gang.
    """

    def __init__(self, parts: Iterable[LoadPart] = ()) -> None:
        self.counts: dict[tuple[tuple[str, ...], int], int] = {}
        self._amounts: dict[int, Resources] = {}
        self.add(parts)

    def add(self, parts: Iterable[LoadPart]) -> None:
        """Add more, one part for each gang."""
        counts, amounts_of = self.counts, self._amounts
        for path, amounts in parts:
            number = id(amounts)
            amounts_of[number] = amounts
            key = (path, number)
            counts[key] = counts.get(key, 0) + 1

    def at_least_as(self, other: QueueLoad) -> bool:
        """Whether it has as many gangs of each kind, or more."""
        known = self.counts.get
        return all(known(key, 0) >= count for key, count in other.counts.items())

    def grown_beyond(self, other: QueueLoad) -> QueueLoad:
        """What it has, and well over what the other has."""
        grown = QueueLoad()
        grown.counts = self.counts | {
            key: max(self.counts.get(key, 0), 2 * count + _AHEAD)
            for key, count in other.counts.items()
        }
        grown._amounts = self._amounts | other._amounts
        return grown

    def sums(self) -> list[LoadPart]:
        """Amounts of all gangs by queue, sorted."""
        found: dict[tuple[str, ...], Resources] = {}
        for (path, number), count in self.counts.items():
            found[path] = found.get(path, NOTHING).plus(self._amounts[number], times=count)
        return sorted(found.items())


_NO_LOAD: Final = QueueLoad()


class FittingLoad:
    """The load beside which quotas are known to allow one more gang of a kind, in one state of the accounts.

    A quota that allows a gang beside a load allows it beside less. So it is asked about more than there is, and seldom.
    """

    def __init__(self) -> None:
        self._load = _NO_LOAD
        self._limited = False
        """Whether a quota was met: from then on each load is asked about as it is."""
        self._all = QueueLoad()
        self._counted: list[Planned] = []
        """Those of whom it was made up, and some that do not matter."""

    def covers_all(self, planned: Sequence[Planned], path: AbstractSet[str]) -> bool:
        """Whether quotas are known to allow the gang beside all that are planned, and so beside some of them.

        Args:
            planned: those of the call before, and mostly some that came behind them.
            path: of the gang: others do not matter.
        """
        known = len(self._counted)
        if len(planned) < known or any(map(is_not, self._counted, planned)):
            self._all, self._counted, known = QueueLoad(), [], 0
        new = planned[known:]
        self._counted += new
        self._all.add((each.path, each.requests) for each in new if not path.isdisjoint(each.path))
        return bool(self._all.counts) and self._load.at_least_as(self._all)

    def covers(self, load: QueueLoad, allows: Callable[[QueueLoad], bool]) -> bool:
        """Whether quotas are known to allow the gang beside a load.

        Args:
            load: of others.
            allows: whether quotas allow the gang beside so much.
        """
        if self._load.at_least_as(load):
            return bool(load.counts)
        if self._limited:
            return False
        more = self._load.grown_beyond(load)
        self._limited = not allows(more)
        if not self._limited:
            self._load = more
        return not self._limited


def quota_allows_beside(
    session: Session, gang: Gang, started: QueueLoad, ended: QueueLoad = _NO_LOAD
) -> bool:
    """Whether the gang's minimum is within every quota beside what has started and ended meanwhile.

    Args:
        session: whose accounts and checks count.
        gang: to be charged.
        started: what is held by then beside what is held now.
        ended: what is held now and not then.
    """
    moves = [(path, amounts, 1) for path, amounts in started.sums()]
    moves += [(path, amounts, -1) for path, amounts in ended.sums()]
    if not moves:
        return not first_refusal(session.hooks.quota_checks, gang).refuses
    with session.queue_accounts.assume_moves(moves):
        return not first_refusal(session.hooks.quota_checks, gang).refuses
