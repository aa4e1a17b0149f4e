"""Gangs of a session in lines, one for each namespace in a queue, and what is read of a line in every session.

Gangs are frozen, and shared by snapshots as long as nothing about them changes. So a line stays the same object from
session to session while all its gangs do, with whatever was summed and counted of it: a session costs the lines that
changed, not the gangs that wait.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from heapq import merge
from itertools import chain, compress, count
from operator import attrgetter, is_, is_not
from typing import Any, Final, NamedTuple

from gpusched.api.meta.identity import GangKey
from gpusched.api.meta.resources import Resources, total
from gpusched.api.pod.pod import PodClass
from gpusched.base.classes import frozen
from gpusched.base.limits import COLUMN_MAX
from gpusched.cache.gangs.gang import Gang


class LineKey(NamedTuple):
    """Whose gangs stand in a line."""

    queue: str
    namespace: str


class Requested(NamedTuple):
    """What some gangs request of one resource together, and how many of them name it."""

    sum: int
    gangs: int


Tally = Mapping[str, Requested]
"""The same by resource; of gangs that left it is taken off again."""


@frozen(slots=True, eq=False)
class GangLine:
    """The gangs of one namespace in one queue.

    Attributes:
        shown: as the snapshot has them, sorted by key.
        gangs: the same as the session sees them.
    """

    key: LineKey
    shown: tuple[Gang, ...]
    gangs: tuple[Gang, ...]

    def _pick(self, name: str, gangs: tuple[Gang, ...]) -> tuple[Gang, ...]:
        # Without a call of ours for the many that run and are complete.
        some = filter(_POD_SETS, gangs) if name in _PICKED_WITH_PODS else gangs
        return tuple(filter(_PICKED[name], some))

    @cached_property
    def optional(self) -> tuple[Gang, ...]:
        """Gangs that a session may leave to the next ones."""
        return self._pick("optional", self.gangs)

    @cached_property
    def always(self) -> tuple[Gang, ...]:
        """Gangs that every session looks at."""
        return self._pick("always", self.gangs)

    @cached_property
    def waits(self) -> bool:
        """Whether some gang has pods that may get a place."""
        return any(gang.pod_sets for gang in self.gangs)

    @cached_property
    def missing(self) -> int:
        """Gangs that miss members."""
        return _count_missing(self.gangs)

    @cached_property
    def incomplete(self) -> tuple[Gang, ...]:
        """Gangs that hold places and miss members, each of which every session looks at."""
        return self._pick("incomplete", self.gangs)

    @cached_property
    def told_counts(self) -> tuple[int, int]:
        """Gangs that miss members which exist, not admitted and admitted, as their last status tells."""
        counts = [0, 0]
        for gang in self.gangs:
            if gang.pod_sets and gang.missing_members:
                counts[gang.is_told_admitted] += 1
        return counts[0], counts[1]

    @cached_property
    def requested(self) -> Resources:
        """Requests of all pods that may get a place."""
        return total(gang.pending_requests for gang in self.gangs if gang.pod_sets)

    @cached_property
    def startable(self) -> tuple[Gang, ...]:
        """Gangs, as the snapshot has them, with pods that may get a place and nothing wrong about them."""
        return self._pick("startable", self.shown)

    @cached_property
    def applicants(self) -> tuple[Gang, ...]:
        """Gangs on whose admission their queue and policies decide alone: nothing of their own speaks against it."""
        return self._pick("applicants", self.gangs)

    @cached_property
    def startable_tally(self) -> Tally:
        """What ``startable`` gangs request."""
        return _tallied({}, self.startable)

    @cached_property
    def requested_without_errors(self) -> Resources:
        """Requests of the pods of ``startable`` gangs."""
        named = {name: each for name, each in self.startable_tally.items() if each.gangs}
        return Resources.of({name: min(COLUMN_MAX, each.sum) for name, each in named.items()})

    @cached_property
    def without_reason(self) -> tuple[Gang, ...]:
        """Gangs of which no status tells yet why they wait."""
        return self._pick("without_reason", self.gangs)

    @cached_property
    def claiming(self) -> tuple[Gang, ...]:
        """Gangs of which a pod has claims for devices."""
        return self._pick("claiming", self.gangs)

    @cached_property
    def claiming_classes(self) -> Mapping[str, PodClass]:
        """Classes of pods with claims for devices, by digest."""
        return {
            pod_set.pod_class.digest: pod_set.pod_class
            for gang in self.claiming
            for pod_set in gang.pod_sets
            if pod_set.pod_class.claims
        }

    @cached_property
    def repelling(self) -> tuple[Gang, ...]:
        """Gangs, as the snapshot has them, with a pod that has required anti-affinity."""
        return self._pick("repelling", self.shown)

    @cached_property
    def nominated(self) -> tuple[Gang, ...]:
        """Gangs, as the snapshot has them, of which an existing pod was nominated to a node."""
        return self._pick("nominated", self.shown)

    @cached_property
    def near(self) -> tuple[Gang, ...]:
        """Gangs that may name levels of the topology."""
        return self._pick("near", self.gangs)

    @cached_property
    def level_names(self) -> frozenset[str]:
        """What its gangs name as levels of the topology."""
        requests = chain.from_iterable(gang.topology_requests for gang in self.near)
        return frozenset({n for each in requests for n in (each.required, each.preferred)} - {""})


class GangLines:
    """All gangs of a session.

    Attributes:
        gangs: sorted by key, as the session sees them.
        by_key: the same by their keys, in any order; not to be changed.
        lines: by queue and namespace, in any order; not to be changed.
    """

    def __init__(
        self,
        gangs: tuple[Gang, ...],
        by_key: Mapping[GangKey, Gang],
        lines: Mapping[LineKey, GangLine],
    ) -> None:
        self.gangs = gangs
        self.by_key = by_key
        self.lines = lines

    @cached_property
    def sorted_lines(self) -> tuple[GangLine, ...]:
        """All lines, sorted by queue and namespace."""
        return tuple(line for _, line in sorted(self.lines.items()))

    @cached_property
    def by_queue(self) -> Mapping[str, tuple[GangLine, ...]]:
        """Lines by their queue, sorted by both."""
        found: dict[str, list[GangLine]] = {}
        for line in self.sorted_lines:
            found.setdefault(line.key.queue, []).append(line)
        return {queue: tuple(lines) for queue, lines in found.items()}

    def gathered(self, of_line: Callable[[GangLine], Iterable[Gang]]) -> Iterator[Gang]:
        """Some gangs of each line, sorted by key.

        Args:
            of_line: gives those of a line, sorted by key.
        """
        return merge(*map(of_line, self.lines.values()), key=lambda gang: gang.key)


class KeptLines:
    """Lines as the last session had them, from which those of the next are made."""

    def __init__(self) -> None:
        self._last: tuple[Gang, ...] = ()
        """Gangs of the last snapshot."""
        self._shown: dict[int, Gang] = {}
        """The same by ``id``, in any order; kept, so that no other gets its ``id``."""
        self._seen: dict[int, Gang] = {}
        """What the session saw in their place, where that was another object; by the same ``id``."""
        self._changeable: dict[int, Gang] = {}
        """Those of them of which a session may see another."""
        self._overdue = set[int]()
        """Those whose pods had not come in time in the last session; by the same ``id``."""
        self._by_key: dict[GangKey, Gang] = {}
        self._lines: dict[LineKey, GangLine] = {}
        self._rests_on: tuple[object, ...] = ()

    def follow(
        self,
        shown: tuple[Gang, ...],
        *,
        may_differ: Callable[[Gang], bool],
        rests_on: Callable[[], tuple[object, ...]],
        without_overdue: Callable[[Gang], Gang],
        as_seen: Callable[[Gang], Gang],
    ) -> GangLines:
        """The lines of a session.

        Args:
            shown: gangs of its snapshot, sorted by key.
            may_differ: whether the session may see a gang as another than its snapshot does.
            rests_on: objects; while they are the same ones, ``as_seen`` of a gang is the same.
            without_overdue: a gang without pods that did not come in time; itself where there are none.
            as_seen: a gang as the session sees it.
        """
        gone, fresh = _changes(self._last, shown)
        self._last = shown
        for gang in gone:
            del self._shown[id(gang)]
            self._changeable.pop(id(gang), None)
        self._shown.update((id(gang), gang) for gang in fresh)
        self._changeable.update((id(gang), gang) for gang in fresh if may_differ(gang))
        moved = self._look_again(rests_on, without_overdue, as_seen)
        seen = self._seen
        for gang in gone:
            del self._by_key[gang.key]
        for gang in chain(fresh, moved):
            self._by_key[gang.key] = seen.get(id(gang), gang)
        self._mend_lines(gone, fresh, moved)
        gangs = shown
        if seen:
            gangs = tuple([seen.get(id(gang), gang) for gang in shown])
        return GangLines(gangs, self._by_key, self._lines)

    def _look_again(
        self,
        rests_on: Callable[[], tuple[object, ...]],
        without_overdue: Callable[[Gang], Gang],
        as_seen: Callable[[Gang], Gang],
    ) -> list[Gang]:
        """Gangs of the snapshot that the session sees as another object than the last one did."""
        overdue, self._overdue = self._overdue, set()
        if not self._changeable:
            self._seen = {}
            return []
        basis = rests_on()
        same = len(basis) == len(self._rests_on) and all(
            one is other for one, other in zip(basis, self._rests_on, strict=True)
        )
        self._rests_on = basis
        before, self._seen = self._seen, {}
        moved = []
        for number, gang in self._changeable.items():
            known = before.get(number)
            if without_overdue(gang) is not gang:
                self._overdue.add(number)
                known = None
            elif not same or number in overdue:  # the clock may have been set back
                known = None
            if known is None:
                known = as_seen(gang)
            if known is not gang:
                self._seen[number] = known
            if before.get(number, gang) is not known:
                moved.append(gang)
        return moved

    def _mend_lines(self, gone: list[Gang], fresh: list[Gang], moved: list[Gang]) -> None:
        """Make the lines anew in which a gang came, went or is seen otherwise."""
        came, went = _by_line(fresh), _by_line(gone)
        lines, seen = self._lines, self._seen
        for key in {*came, *went, *map(_line_key, moved)}:
            line = lines.get(key)
            stay = list(line.shown) if line is not None else []
            stay = _with_others(stay, came.get(key, ()), went.get(key, ()))
            if stay:
                of_snapshot = tuple(stay)
                gangs = of_snapshot
                if seen:
                    gangs = tuple([seen.get(id(gang), gang) for gang in stay])
                lines[key] = GangLine(key, of_snapshot, gangs)
                if line is not None and not seen and all(map(is_, line.gangs, line.shown)):
                    _pick_as_before(lines[key], line, came.get(key, ()), went.get(key, ()))
            else:
                lines.pop(key, None)


def _with_others(gangs: list[Gang], came: Sequence[Gang], gone: Sequence[Gang]) -> list[Gang]:
    """Gangs sorted by key, which may be changed, with others and without some, of which not all need be there."""
    if (len(came) + len(gone)) * _MENDED_FROM > len(gangs):
        ids = set(map(id, gone))
        return sorted([*(e for e in gangs if id(e) not in ids), *came], key=_KEY)
    for gang in gone:
        place = bisect_left(gangs, gang.key, key=_KEY)
        if place < len(gangs) and gangs[place] is gang:
            del gangs[place]
    for gang in came:
        insort(gangs, gang, key=_KEY)
    return gangs


def _changes(before: tuple[Gang, ...], now: tuple[Gang, ...]) -> tuple[list[Gang], list[Gang]]:
    """Gangs that are not there any more as the same object, and those that were not: what both begin and end with is left out."""
    first = _alike_at_start(before, now)
    before, now = before[first:], now[first:]
    last = _alike_at_start(before[::-1], now[::-1])
    there = {id(gang): gang for gang in before[: len(before) - last]}
    here = {id(gang): gang for gang in now[: len(now) - last]}
    gone = [there[number] for number in there.keys() - here.keys()]
    return gone, [here[number] for number in here.keys() - there.keys()]


def _alike_at_start(before: tuple[Gang, ...], now: tuple[Gang, ...]) -> int:
    """With how many of the same objects both begin."""
    most, first = min(len(before), len(now)), 0
    while first < most and before[first : first + _COMPARED] == now[first : first + _COMPARED]:
        first = min(most, first + _COMPARED)  # gangs are equal to themselves alone
    there, here = before[first : first + _COMPARED], now[first : first + _COMPARED]
    return first + next(compress(count(), map(is_not, there, here)), min(len(there), len(here)))


_KEY: Final = attrgetter("key")
_MENDED_FROM: Final = 8
"""Gangs in which at most one of so many comes or goes are not sorted anew."""
_COMPARED: Final = 256
"""Gangs that are compared at once where most are the same."""


def _tallied(tally: Tally, gangs: Iterable[Gang], *, sign: int = 1) -> Tally:
    """What some gangs request with others, or where the sign is -1 without them."""
    parts = [gang.pending_requests for gang in gangs]
    by_id, found = dict(zip(map(id, parts), parts, strict=True)), dict(tally)
    for number, times in Counter(map(id, parts)).items():
        for name, amount in by_id[number].items:
            known = found.get(name, _NOT_REQUESTED)
            found[name] = Requested(known.sum + sign * times * amount, known.gangs + sign * times)
    return found


_NOT_REQUESTED: Final = Requested(0, 0)


def _count_missing(gangs: Iterable[Gang]) -> int:
    """Of some gangs those that miss members."""
    return sum(1 for gang in gangs if gang.missing_members)


def is_startable(gang: Gang) -> bool:
    """Whether the gang has pods that may get a place, and nothing is wrong about it."""
    return bool(gang.pod_sets) and not gang.error[0]


def is_applicant(gang: Gang) -> bool:
    """Whether the gang has no places and nothing wrong about it, and was never admitted as far as its objects tell."""
    was_admitted = gang.job is not None and gang.job.admitted
    return not (gang.placed or gang.error[0] or gang.pod_group is not None or was_admitted)


def is_always_included(gang: Gang) -> bool:
    """Whether every session must look at the gang, as it costs little, holds GPUs or was promised some."""
    was_started = gang.job is not None and bool(gang.job.admitted) and not gang.suspended
    return (
        (not gang.pod_sets and (bool(gang.placed) or not gang.missing_members))
        or bool((gang.placed or was_started) and gang.missing_members)
        or (bool(gang.expected_count) and not gang.suspended)
    )


def _by_line(gangs: Iterable[Gang]) -> dict[LineKey, list[Gang]]:
    found: dict[tuple[str, str], list[Gang]] = {}
    for gang in gangs:  # a key of its own for each gang would cost several times as much
        found.setdefault((gang.queue, gang.key.namespace), []).append(gang)
    return {LineKey(*about): those for about, those in found.items()}


def _line_key(gang: Gang) -> LineKey:
    return LineKey(gang.queue, gang.key.namespace)


def _has_published_reason(gang: Gang) -> bool:
    if gang.pod_group is not None and gang.pod_group.our_condition("Scheduled") is not None:
        return True
    return any(pod.unschedulable_reason for pod_set in gang.pod_sets for pod in pod_set.pods)


_PICKED: Final[Mapping[str, Callable[[Gang], object]]] = {
    "optional": lambda gang: not is_always_included(gang),
    "always": lambda gang: is_always_included(gang),  # noqa: PLW0108 - looked up when it is called, as tests plant faults in it
    "incomplete": lambda gang: gang.placed and gang.missing_members,
    "startable": lambda gang: is_startable(gang),  # noqa: PLW0108 - the same
    "applicants": lambda gang: is_applicant(gang),  # noqa: PLW0108 - the same
    "claiming": lambda gang: (
        gang.pod_sets
        and (
            gang.pod_sets[0].pod_class.claims
            or (len(gang.pod_sets) > 1 and any(each.pod_class.claims for each in gang.pod_sets))
        )
    ),
    "near": lambda gang: gang.sub_groups or gang.topology.required or gang.topology.preferred,
    "without_reason": lambda gang: not _has_published_reason(gang),
    "repelling": lambda gang: (
        gang.pod_sets
        and (
            gang.pod_sets[0].pod_class.pod_anti_affinity
            or (
                len(gang.pod_sets) > 1
                and any(each.pod_class.pod_anti_affinity for each in gang.pod_sets)
            )
        )
    ),
    "nominated": lambda gang: gang.pod_sets and not gang.suspended and gang.has_nominated_pods,
}
"""Attributes of a line that hold some of its gangs, and which."""
_POD_SETS: Final = attrgetter("pod_sets")
_PICKED_WITH_PODS: Final = frozenset({"startable", "claiming", "repelling", "nominated"})
"""Those that hold no gang without pods that wait."""


def _pick_as_before(
    line: GangLine, before: GangLine, came: Sequence[Gang], gone: Sequence[Gang]
) -> None:
    """Enter in a line what was found of the one before, of which few gangs are others.

    Args:
        line: whose gangs are as the snapshot has them.
        before: the same of the last session.
        came: gangs that it has more.
        gone: gangs that are not there any more.
    """
    for name, picks in _PICKED.items():
        known: tuple[Gang, ...] | None = _found(before, name)
        if known is not None:
            left = _with_others(list(known), list(filter(picks, came)), gone)
            object.__setattr__(line, name, tuple(left))
    missing: int | None = _found(before, "missing")
    if missing is not None:
        missing += _count_missing(came) - _count_missing(gone)
        object.__setattr__(line, "missing", missing)
    tally: Tally | None = _found(before, "startable_tally")
    if tally is not None:
        tally = _tallied(tally, filter(is_startable, gone), sign=-1)
        object.__setattr__(line, "startable_tally", _tallied(tally, filter(is_startable, came)))


def _found(line: GangLine, name: str) -> Any:
    """What was found of a line; None where nobody asked."""
    try:
        return object.__getattribute__(line, name)
    except AttributeError:
        return None
