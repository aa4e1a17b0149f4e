"""What ends later, by time: as objects and as arrays, changed where a few gangs changed."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Final

import numpy as np

from gpusched.api.meta.identity import GangKey
from gpusched.api.meta.resources import NOTHING, Resources
from gpusched.arrays.columns import Bools, Ints, RequestVector, how_many_fit
from gpusched.base.classes import frozen

FOREVER: Final = 2**62
"""The end of what has no known end."""
_REBUILT_FROM: Final = 8
"""What comes first in a list is sorted anew where an eighth of it changes."""
_RELEASES_COUNTED_MIN: Final = 1024
"""Releases for which free amounts are worked out at once: most gangs start long before all have ended."""
_CHUNK_MIN: Final = 64
"""Members that are looked at first where the last ends are sought; then twice as many."""


FlatReleases = tuple[Ints, Ints, Ints]
"""Times, rows and amounts of what ends, by time; int64, shapes (members,), (members,) and (members, resources)."""

_Edit = tuple[int, int, "Release | None"]
"""Places of the first release that goes and of the first behind it that stays, and the one that comes in its place."""


@frozen(slots=True, eq=False)
class Release:
    """At ``time`` so much becomes free on some rows.

    Attributes:
        rows: row numbers, repeated where several members of a gang share a node; of a gang that is known from session to
            session they are changed in place where nodes get other rows.
        amounts: int64, shape (len(rows), resources), never negative.
        gang: that ends then.
        path: names of its queue and those above it.
        requests: the same amounts for the accounts of these queues.
    """

    time: int
    rows: Ints
    amounts: Ints
    gang: GangKey
    path: tuple[str, ...] = ()
    requests: Resources = NOTHING

    @property
    def ends(self) -> bool:
        """Whether its time is known."""
        return self.time < FOREVER


def _turn(release: Release) -> tuple[int, GangKey]:
    return release.time, release.gang


class ReleaseOrder:
    """Releases by time and gang. It is not changed: changes make another one.

    Args:
        releases: in any order.
    """

    def __init__(self, releases: Iterable[Release]) -> None:
        self.releases: list[Release] = sorted(releases, key=_turn)
        self._flat: FlatReleases | None = None
        self._counts: Ints | None = None
        """Members of each release."""
        self._known_ends: Ints | None = None
        self._times: list[int] | None = None

    @property
    def _ends(self) -> Ints:
        """How many members the releases up to each have together."""
        assert self._counts is not None, "arrays were asked for"
        if self._known_ends is None:
            self._known_ends = np.cumsum(self._counts)
        return self._known_ends

    def with_changes(self, gone: Collection[Release], more: Collection[Release]) -> ReleaseOrder:
        """An order without some of these releases, and with others."""
        if not gone and not more:
            return self
        last_turn = max(map(_turn, (*gone, *more)))
        first_behind = bisect_right(self.releases, last_turn, key=_turn)
        if (len(gone) + len(more)) * _REBUILT_FROM > first_behind:
            return self._with_other_head(first_behind, gone, more)
        edits = self._edits(gone, sorted(more, key=_turn))
        other = ReleaseOrder(())
        at = 0
        for first, last, release in edits:
            other.releases += self.releases[at:first]
            if release is not None:
                other.releases.append(release)
            at = last
        other.releases += self.releases[at:]
        if self._times is not None:
            other._times = self._times.copy()
            for time in {each.time for each in (*gone, *more)}:
                other._note_time(time)
        if self._flat is not None:
            other._flat, other._counts = self._edited_arrays(edits)
        return other

    def _with_other_head(
        self, size: int, gone: Iterable[Release], more: Iterable[Release]
    ) -> ReleaseOrder:
        """An order of which so many of the first releases are sorted anew, without some of them and with others; those behind stay."""
        left = set(map(id, gone))
        head = ReleaseOrder([*(e for e in self.releases[:size] if id(e) not in left), *more])
        tail = self.releases[size:]
        if not tail:
            return head
        other = ReleaseOrder(())
        other.releases = head.releases + tail
        if self._times is not None:
            behind = self._times[bisect_left(self._times, tail[0].time) :]
            times = head.times
            other._times = times[: bisect_left(times, behind[0])] + behind
        if self._flat is not None and self._counts is not None:
            flat, members = head.arrays(self._flat[2].shape[1]), int(self._counts[:size].sum())
            assert head._counts is not None
            other._counts = np.concatenate([head._counts, self._counts[size:]])
            times_of, rows, amounts = (
                np.concatenate([first, each[members:]])
                for first, each in zip(flat, self._flat, strict=True)
            )
            other._flat = (times_of, rows, amounts)
        return other

    def with_rows(self, moved: Ints) -> ReleaseOrder:
        """The same order of releases whose rows were moved.

        Args:
            moved: by each old row the new one.
        """
        flat = self._flat
        return self._with_same_turns(
            self.releases, None if flat is None else (flat[0], moved[flat[1]], flat[2])
        )

    def with_releases(self, rooms: Mapping[int, Release]) -> ReleaseOrder:
        """The same order of releases that are other objects.

        Args:
            rooms: by ``id``, the release that takes the place of each.
        """
        return self._with_same_turns([rooms[id(each)] for each in self.releases], self._flat)

    def _with_same_turns(self, releases: list[Release], flat: FlatReleases | None) -> ReleaseOrder:
        other = ReleaseOrder(())
        other.releases, other._flat = releases, flat
        other._times, other._counts, other._known_ends = self._times, self._counts, self._known_ends
        return other

    def _edits(self, gone: Iterable[Release], added: Iterable[Release]) -> list[_Edit]:
        """Where releases go and come, ascending."""
        places = map(self._position, gone)
        edits: list[_Edit] = [(place, place + 1, None) for place in places]
        for each in added:
            place = bisect_right(self.releases, _turn(each), key=_turn)
            edits.append((place, place, each))
        return sorted(edits, key=itemgetter(0, 1))

    @property
    def times(self) -> list[int]:
        """When something ends, ascending, each once. Not to be changed."""
        if self._times is None:
            times = _times_of(self.releases)
            self._times = times[np.diff(times, prepend=-1) > 0].tolist()
        return self._times

    def _note_time(self, time: int) -> None:
        """Enter a time among those that are known, or take it out, as something ends then or does not."""
        assert self._times is not None
        place = bisect_left(self._times, time)
        is_known = self._times[place : place + 1] == [time]
        if is_known == (self.first_at(time) is not None):
            return
        if is_known:
            del self._times[place]
        else:
            self._times.insert(place, time)

    def _position(self, release: Release) -> int:
        position = bisect_left(self.releases, _turn(release), key=_turn)
        while self.releases[position] is not release:
            position += 1
        return position

    def ended_by(self, time: int) -> list[Release]:
        """Releases up to a time."""
        return self.releases[: bisect_right(self.releases, time, key=lambda each: each.time)]

    def first_at(self, time: int) -> GangKey | None:
        """The first gang that ends at a time."""
        position = bisect_left(self.releases, time, key=lambda each: each.time)
        found = self.releases[position : position + 1]
        return found[0].gang if found and found[0].time == time else None

    def last_on_rows(self, on: Bools, until: int, most: int) -> list[tuple[int, GangKey]]:
        """Times and gangs of the last releases on some rows up to a time: the last one first, of one time by gang.

        Args:
            on: the rows, shape (rows,).
            until: the last moment that counts.
            most: releases that are told.
        """
        assert self._flat is not None
        times, rows, _ = self._flat
        ends = self._ends
        high, size = int(times.searchsorted(until, side="right")), _CHUNK_MIN
        found: list[tuple[int, GangKey]] = []
        seen = set[int]()
        # Those of one time are looked at together, as the first gangs of them are told.
        while high and (len(found) < most or times[high - 1] == -found[most - 1][0]):
            low = max(0, high - size)
            places = on[rows[low:high]].nonzero()[0] + low
            seen.update(ends.searchsorted(places, side="right").tolist())
            of_seen = map(self.releases.__getitem__, seen)
            found = sorted((-each.time, each.gang) for each in of_seen)
            high, size = low, size * 2
        return [(-time, gang) for time, gang in found[:most]]

    def _edited_arrays(self, edits: Sequence[_Edit]) -> tuple[FlatReleases, Ints]:
        """Arrays of members, and how many each release has, after edits of the releases."""
        assert self._flat is not None
        assert self._counts is not None
        begins = np.concatenate([np.zeros(1, dtype=np.int64), self._ends])
        members = [(int(begins[first]), int(begins[last])) for first, last, _ in edits]

        def changed(
            array: Ints, spans: list[tuple[int, int]], of: Callable[[Release], Ints]
        ) -> Ints:
            return _edited(array, spans, [None if e is None else of(e) for _, _, e in edits])

        times, rows, amounts = self._flat
        flat = (
            changed(times, members, lambda each: np.full(len(each.rows), each.time)),
            changed(rows, members, lambda each: each.rows),
            changed(amounts, members, lambda each: each.amounts),
        )
        releases = [(first, last) for first, last, _ in edits]
        return flat, changed(self._counts, releases, lambda each: np.full(1, len(each.rows)))

    def arrays(self, width: int) -> FlatReleases:
        """Times, rows and amounts of all members that end, by time.

        Args:
            width: columns of the amounts.

        Returns:
            int64, shapes (members,), (members,) and (members, width). Not to be changed.
        """
        if self._flat is None:
            self._counts = np.array([len(each.rows) for each in self.releases], dtype=np.int64)
            self._flat = (
                np.repeat(_times_of(self.releases), self._counts),
                np.concatenate([_NO_ROWS, *(each.rows for each in self.releases)]),
                np.concatenate(
                    [
                        np.zeros((0, width), dtype=np.int64),
                        *(each.amounts for each in self.releases),
                    ]
                ),
            )
        return self._flat


class RowReleases:
    """What is free on its row before and after each release, worked out for as many of the first ones as are asked about.

    Args:
        free: before the first of them, int64, shape (rows, resources).
        flat: releases by time.
    """

    def __init__(self, free: Ints, flat: FlatReleases) -> None:
        self.free, self.flat = free, flat
        self._after: Ints = np.zeros((0, free.shape[1]), dtype=np.int64)
        self._fits: dict[tuple[bytes, bytes], RequestFits] = {}

    def fits_of(self, request: RequestVector) -> RequestFits:
        """How many fit that request so much: worked out once for all gangs of such members."""
        asked = request.columns.tobytes(), request.amounts.tobytes()
        known = self._fits.get(asked)
        if known is None:
            known = self._fits[asked] = RequestFits(self, request)
        return known

    def free_after(self, count: int) -> Ints:
        """Free amounts after each of the first so many releases, shape (releases, resources)."""
        if count > len(self._after):
            self._count_first(max(count, 2 * len(self._after), _RELEASES_COUNTED_MIN))
        return self._after[:count]

    def _count_first(self, count: int) -> None:
        rows, amounts = self.flat[1][:count], self.flat[2][:count]
        order = np.argsort(rows, kind="stable")
        of_row = rows[order]
        first = np.flatnonzero(np.diff(of_row, prepend=-1))
        sums = np.cumsum(amounts[order], axis=0)
        before_row = sums[first] - amounts[order[first]]
        counts = np.diff(first, append=len(rows))
        after = np.empty_like(amounts, order="F")  # each resource is looked at by itself
        after[order] = sums - np.repeat(before_row, counts, axis=0) + self.free[of_row]
        self._after = after


class RequestFits:
    """How many members that request the same fit a row before and after each release there, as often as that was asked for.

    Args:
        releases: of all rows.
        request: of a member.
    """

    def __init__(self, releases: RowReleases, request: RequestVector) -> None:
        self._releases, self._request = releases, request
        self.at_first: Ints = how_many_fit(releases.free[:, request.columns], request.amounts)
        """How many fit each row before anything has ended, shape (rows,)."""
        self._before: Ints = np.zeros(0, dtype=np.int64)
        self._after: Ints = np.zeros(0, dtype=np.int64)

    def beside_releases(self, count: int) -> tuple[Ints, Ints]:
        """How many fit before, and after, each of the first so many releases, on its row; shapes (releases,)."""
        known = len(self._after)
        if known < count:
            columns, amounts = self._request.columns, self._request.amounts
            free = self._releases.free_after(count)[known:, columns]
            freed = self._releases.flat[2][known:count, columns]
            self._before = np.concatenate([self._before, how_many_fit(free - freed, amounts)])
            self._after = np.concatenate([self._after, how_many_fit(free, amounts)])
        return self._before, self._after


_NO_ROWS: Final[Ints] = np.zeros(0, dtype=np.int64)


def _edited(array: Ints, spans: Iterable[tuple[int, int]], added: Iterable[Ints | None]) -> Ints:
    """An array with something else, or nothing, in place of each of some spans, ascending."""
    pieces, at = [], 0
    for (first, last), more in zip(spans, added, strict=True):
        pieces.append(array[at:first])
        if more is not None:
            pieces.append(more)
        at = last
    return np.concatenate([*pieces, array[at:]])


def _times_of(releases: Iterable[Release]) -> Ints:
    return np.array([each.time for each in releases], dtype=np.int64)
