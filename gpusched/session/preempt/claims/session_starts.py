"""Gangs that were given places in this session, as gangs that run.

Nothing of them was sent yet, so they lose no work by leaving: a start is taken back at once where
the next session would evict it. What is lent is lent for longer than a moment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

import attrs
import msgspec

from gpusched.api.meta.identity import GangKey
from gpusched.api.meta.resources import total
from gpusched.cache.gangs.counting.placed_gangs import changed_keys
from gpusched.cache.gangs.gang import Gang, Placed
from gpusched.session.framework.reasons import Reason, pods_text, truncate_message
from gpusched.session.preempt.claims.victim_kinds import QueueKinds
from gpusched.session.state.session import Session
from gpusched.session.state.statement import Assignment, WithdrawOperation

_KINDS_A_SESSION: Final = 256
"""Gangs whose kind a session finds though nobody asks: so no single one does it for all that run."""

_KINDS_AT_REST: Final = 8192
"""The same where nobody came, went or changed since the last session: nothing waits for what it decides."""


class StartingGang(NamedTuple):
    """A gang with places that are not bound yet; as a gang that runs it is made when it is looked at."""

    gang: Gang
    places: tuple[Assignment, ...]


class PlacedGangs:
    """Gangs of the snapshot that run and may lose members, kept between sessions.

    Attributes:
        lowest: the lowest priority among them, by queue, sorted.
    """

    def __init__(self) -> None:
        self._placed: Mapping[GangKey, Gang] = {}
        self._by_queue: dict[str, dict[GangKey, Gang]] = {}
        self._unsorted: set[str] = set()
        """Queues whose gangs are not sorted by key: few sessions ask for them."""
        self._priorities: dict[str, Counter[int]] = {}
        self._kinds: dict[str, QueueKinds] = {}
        self._of_unknown_kind: dict[GangKey, Gang] = {}
        self.lowest: dict[str, int] = {}

    def of_queue(self, queue: str) -> Mapping[GangKey, Gang]:
        """Those of a queue, by key, sorted."""
        gangs = self._by_queue.get(queue, {})
        if queue in self._unsorted:
            gangs = self._by_queue[queue] = dict(sorted(gangs.items()))
            self._unsorted.discard(queue)
        return gangs

    def kinds_of_queue(self, queue: str) -> QueueKinds:
        """Those of a queue, by kind; not to be changed."""
        self._find_kinds(len(self._of_unknown_kind))
        return self._kinds.get(queue) or QueueKinds.unlike(())

    @property
    def of_unknown_kind(self) -> int:
        """How many of them were not put to those of their kind yet."""
        return len(self._of_unknown_kind)

    def includes_gang(self, gang: Gang) -> bool:
        """Whether a gang is one of them."""
        return gang.key in self._by_queue.get(gang.queue, ())

    def follow(self, placed: Mapping[GangKey, Gang]) -> None:
        """Take in what changed since the last session."""
        if placed is self._placed:
            self._find_kinds(_KINDS_AT_REST)
            return
        queues = set()
        for key in sorted(changed_keys(self._placed, placed)):
            known, gang = self._placed.get(key), placed.get(key)
            now = gang if gang is not None and _may_lose_members(gang) else None
            if known is not None and _may_lose_members(known):
                self._priorities[known.queue][known.priority] -= 1
                if self._of_unknown_kind.pop(key, None) is None:
                    self._kinds[known.queue].remove(known)
                queues.add(known.queue)
                if now is None or now.queue != known.queue:
                    del self._by_queue[known.queue][key]
            if now is not None:
                self._follow_gang(now)
                queues.add(now.queue)
        self._placed = placed
        self._find_kinds(_KINDS_A_SESSION)
        for queue in queues:
            self.lowest.pop(queue, None)
            left = self._priorities[queue] = +self._priorities[queue]
            if left:
                self.lowest[queue] = min(left)
            else:
                del self._by_queue[queue], self._priorities[queue]
                self._kinds.pop(queue, None)
                self._unsorted.discard(queue)
        if queues:
            self.lowest = dict(sorted(self.lowest.items()))

    def _follow_gang(self, gang: Gang) -> None:
        """Take in a gang, or what became of it: a queue stays sorted where it comes last or was there."""
        gangs = self._by_queue.setdefault(gang.queue, {})
        if gang.key not in gangs and gangs and gang.key < next(reversed(gangs)):
            self._unsorted.add(gang.queue)
        gangs[gang.key] = gang
        self._of_unknown_kind[gang.key] = gang
        priorities = self._priorities.get(gang.queue)
        if priorities is None:
            priorities = self._priorities[gang.queue] = Counter()
        priorities[gang.priority] += 1

    def _find_kinds(self, count: int) -> None:
        """Put so many gangs to those of their kinds."""
        by_queue: dict[str, list[Gang]] = {}
        for key in list(islice(self._of_unknown_kind, count)):
            gang = self._of_unknown_kind.pop(key)
            by_queue.setdefault(gang.queue, []).append(gang)
        for queue, gangs in by_queue.items():
            kinds = self._kinds.get(queue)
            if kinds is None:
                kinds = self._kinds[queue] = QueueKinds.unlike(())
            kinds.add(gangs)


def _may_lose_members(gang: Gang) -> bool:
    return bool((gang.terms.preemptible or gang.gives_extras) and gang.placed)


def note_priority(lowest: dict[str, int], gang: Gang) -> None:
    """Lower the lowest priority of the gang's queue to that of the gang, if it is lower."""
    known = lowest.get(gang.queue)
    if known is None or gang.priority < known:
        lowest[gang.queue] = gang.priority


def session_placed_gangs(session: Session) -> PlacedGangs:
    """The gangs of a session that run and may lose members; they follow its snapshot once."""

    def followed() -> PlacedGangs:
        gangs = session.cache.kept.get_or_make(PlacedGangs, PlacedGangs)
        gangs.follow(session.snapshot.placed_gangs)
        return gangs

    return session.cycle_state.get_or_make(PlacedGangs, followed)


def started_places(session: Session) -> list[StartingGang]:
    """Preemptible gangs that were given places in this session, by key, with these."""
    return [
        StartingGang(gang, tuple(places))
        for gang, places in session.placements.by_gang()
        if gang.terms.preemptible
    ]


def nominated_places(session: Session) -> list[StartingGang]:
    """Preemptible gangs with a nomination, by key, with all places that they will have."""
    return [
        StartingGang(gang, tuple(places))
        for gang, places in session.placements.by_gang_with_nominations()
        if gang.terms.preemptible and session.nominations.has_nomination(gang)
    ]


def started_gangs(session: Session) -> dict[GangKey, Gang]:
    """Preemptible gangs that were given places in this session, with these as their members."""
    return {each.gang.key: as_started(session, each) for each in started_places(session)}


class _StartedGangs:
    """Gangs with the places that a session gives them, each made once: several actions look at them."""

    def __init__(self) -> None:
        self.known: dict[GangKey, tuple[StartingGang, Gang]] = {}


def as_started(session: Session, starting: StartingGang) -> Gang:
    """As ``gang_with_starts``; the same object while the places are the same."""
    of = session.cycle_state.get_or_make(_StartedGangs, _StartedGangs).known
    known = of.get(starting.gang.key)
    if known is None or known[0] != starting:
        known = of[starting.gang.key] = (starting, gang_with_starts(session, *starting))
    return known[1]


class LowestPriorities:
    """The lowest priority by queue of gangs that run, start or are nominated and may lose members.

    Claims are taken in one by one: thousands are made in a session, and each asks.

    Args:
        session: whose claims are followed.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._lowest: dict[str, int] = {}
        self._claims = -1
        self._rebuilt_at = (-1, -1)
        self._seen = 0

    def refresh(self) -> None:
        """Take in what came since the last claim that was looked at."""
        session, nominations = self._session, self._session.nominations
        if self._claims == len(nominations.plans):
            return
        self._claims = len(nominations.plans)
        at = (session.placements.changes, nominations.ended)
        if self._rebuilt_at != at:
            self._rebuilt_at = at
            self._seen = 0
            placed = session_placed_gangs(session)
            self._lowest = dict(placed.lowest)
            starts = session.hooks.stable.starts
            for each in started_places(session):
                if starts or placed.includes_gang(each.gang):
                    note_priority(self._lowest, each.gang)
        for gang in session.placements.nominated_after(self._seen):
            self._seen += 1
            if gang.terms.preemptible:
                note_priority(self._lowest, gang)

    @property
    def queues(self) -> Collection[str]:
        """Queues in which such a gang is."""
        return self._lowest.keys()

    def lowest(self, queue: str) -> int | None:
        """The lowest priority of such a gang of a queue; None where there is none."""
        return self._lowest.get(queue)


def gang_with_starts(session: Session, gang: Gang, places: Sequence[Assignment]) -> Gang:
    """The gang as it is once these places are bound."""
    nodes = session.snapshot.nodes.nodes
    taken = {place.pod.uid for place in places}
    started = [
        Placed(
            msgspec.structs.replace(place.pod, scheduled=session.snapshot.now),
            nodes[place.row].name,
            confirmed=False,
            slots=place.slots,
        )
        for place in places
    ]
    waiting = (
        attrs.evolve(each, pods=tuple(pod for pod in each.pods if pod.uid not in taken))
        for each in gang.pod_sets
    )
    requests = total(place.pod.pod_class.charged for place in places)
    return attrs.evolve(
        gang,
        placed=(*gang.placed, *started),
        pod_sets=tuple(each for each in waiting if each.pods),
        ready_roles=_add_names(gang.ready_roles, [place.pod.role for place in places])
        if gang.min_roles
        else (),
        ready_sub_groups=_add_names(
            gang.ready_sub_groups, [place.pod.sub_group for place in places]
        )
        if gang.sub_groups
        else (),
        allocated=gang.allocated.plus(requests),
    )


def _add_names(
    counts: Iterable[tuple[str, int]], more: Sequence[str]
) -> tuple[tuple[str, int], ...]:
    """Counts by name, each more by how often the name is among those that are added."""
    found = Counter(dict(counts))
    found.update(more)
    return tuple(sorted(found.items()))


def withdraw_starts(session: Session, gang: Gang, withdrawn: Sequence[WithdrawOperation]) -> None:
    """Take back starts of gangs that would be evicted for another gang at once.

    Args:
        session: that gave them places.
        gang: that claims the room.
        withdrawn: by a statement that was committed.
    """
    of: dict[GangKey, list[WithdrawOperation]] = {}
    for each in withdrawn:
        of.setdefault(each.gang.key, []).append(each)
    for _, operations in sorted(of.items()):
        loser = operations[0].gang
        session.placements.withdraw(loser, [each.assignment for each in operations])
        session.outcomes.refuse(
            loser,
            Reason.RESERVED,
            truncate_message(
                f"fits now, but {pods_text(len(operations))} would be evicted at once for "
                f"{gang.key}, which needs room for {pods_text(gang.members_at_start)}"
            ),
        )
