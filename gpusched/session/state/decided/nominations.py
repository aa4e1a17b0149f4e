"""Room that is held for gangs until the pods that are in the way have left it.

A nomination is the ``nominatedNodeName`` of each waiting pod, and the reason and time of its
``PodScheduled`` condition: nothing lives in memory, so a restart keeps it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import islice

import attrs

from gpusched.api.gang.turn_record import TurnRecord
from gpusched.api.meta.identity import UID, GangKey
from gpusched.arrays.columns import pod_class_vector
from gpusched.arrays.node_usage import NodeUsage
from gpusched.base.classes import frozen
from gpusched.cache.gangs.gang import Gang
from gpusched.cache.snapshot import Snapshot
from gpusched.session.framework.accounts.gang_lines import GangLines
from gpusched.session.framework.pod_counts import PodCounts
from gpusched.session.framework.reasons import Reason
from gpusched.session.state.decided.moved_gangs import assignments_held_for_move
from gpusched.session.state.decided.placement_effects import PlacementEffects
from gpusched.session.state.nodes.devices.device_room import DeviceRoom
from gpusched.session.state.statement import Assignment, EvictOperation, Statement


@frozen(slots=True, eq=False)
class MovedGangDraft:
    """A gang that is evicted for another one, and the places held for it meanwhile."""

    gang: Gang
    places: tuple[Assignment, ...]


@frozen(slots=True, eq=False)
class PreemptionDraft:
    """Nominations for one gang, with the evictions that free the room.

    Attributes:
        places: nominated, at least one; none for a gang that is moved for its own sake.
        evictions: of members that leave for them.
        action: that decided.
        reason, message: for the victims.
        moves: victims that have other places.
        turn: turns that the gang has had, where it is stopped as one is over.
    """

    gang: Gang
    places: tuple[Assignment, ...]
    evictions: tuple[EvictOperation, ...]
    action: str
    reason: str
    message: str
    moves: tuple[MovedGangDraft, ...] = ()
    turn: TurnRecord | None = None


class Nominations:
    """Nominated places of one session by gang, and the evictions that free them.

    Args:
        statement: makes an empty statement.
        effects: on queues and reservations.
    """

    def __init__(self, statement: Callable[[], Statement], effects: PlacementEffects) -> None:
        self._statement = statement
        self._effects = effects
        self._nominated: dict[GangKey, tuple[Assignment, ...]] = {}
        self._moved: dict[GangKey, tuple[Assignment, ...]] = {}
        self._plans: dict[GangKey, PreemptionDraft] = {}
        self._stops: dict[GangKey, PreemptionDraft] = {}
        self._evicted: set[UID] = set()
        self._evicted_gangs: set[GangKey] = set()
        self.ended = 0
        """How often nominations of a gang were dropped; else they only become more."""

    def __bool__(self) -> bool:
        """Whether any gang has a nomination."""
        return bool(self._nominated)

    # -- reading -----------------------------------------------------------------------------
    def has_nomination(self, gang: Gang) -> bool:
        """Whether room is nominated for the gang, by an earlier session or by this one."""
        return bool(self._nominated) and gang.key in self._nominated

    def holds_room_for(self, gang: Gang) -> bool:
        """Whether room is held for the gang, as it is nominated or moves."""
        return gang.key in self._nominated or gang.key in self._moved

    def nominated_places(self, gang: Gang) -> tuple[Assignment, ...]:
        """Places nominated for the gang's pods; none without a nomination."""
        return self._nominated.get(gang.key, ()) if self._nominated else ()

    def place_of(self, gang: Gang, uid: UID) -> Assignment | None:
        """The place nominated for one pod of the gang; None without a nomination."""
        return next((place for place in self.nominated_places(gang) if place.pod.uid == uid), None)

    def moved_places(self, gang: Gang) -> tuple[Assignment, ...]:
        """Places held for members of a moved gang until they are made again and placed."""
        return self._moved.get(gang.key, ()) if self._moved else ()

    def gang_keys(self) -> set[GangKey]:
        """Keys of all gangs for which room is held."""
        return {*self._nominated, *self._moved}

    def nominated_keys(self) -> AbstractSet[GangKey]:
        """Keys of gangs with a nomination."""
        return self._nominated.keys()

    def nominated_after(self, seen: int) -> list[GangKey]:
        """Keys of gangs with a nomination, in the order of their first one, without so many at the beginning."""
        # From the end: thousands of claims are made, and each asks for what came since the last.
        newest = list(islice(reversed(self._nominated), len(self._nominated) - seen))
        return newest[::-1]

    @property
    def plans(self) -> Mapping[GangKey, PreemptionDraft]:
        """Nominations made in this session, with the evictions that free them; and gangs that move."""
        return self._plans

    @property
    def stops(self) -> Mapping[GangKey, PreemptionDraft]:
        """Gangs that this session stops for their own sake; no room is nominated for them."""
        return self._stops

    @property
    def evicted(self) -> AbstractSet[UID]:
        """Pods that leave by what was decided in this session."""
        return self._evicted

    @property
    def evicted_gangs(self) -> AbstractSet[GangKey]:
        """Keys of the gangs of these pods."""
        return self._evicted_gangs

    # -- making ------------------------------------------------------------------------------
    def nominate(
        self, gang: Gang, statement: Statement, *, action: str, reason: str, message: str,
        moves: tuple[MovedGangDraft, ...] = (),
    ) -> None:  # fmt: skip
        """Nominate the statement's places; its victims are evicted for them.

        Args:
            gang: for which room is made or waited for.
            statement: made while pipelining; with at least one place.
            action: that decides: ``preempt``, ``reclaim``, ``allocate``.
            reason: of the evictions, one of the contract's.
            message: for the victims; it names the gang and the numbers.
            moves: victims that have other places, which the session holds for them.
        """
        self._effects.must_leave_reservations(gang, statement)
        evictions = statement.evictions
        taken_back, places = statement.unnominated, statement.commit()
        if taken_back:
            self._moved.pop(gang.key, None)
        self._plans[gang.key] = PreemptionDraft(
            gang, places, evictions, action, reason, message, moves
        )
        self._note_evicted(evictions)
        self._nominated[gang.key] = places
        self._effects.charge_nominated(gang, places)
        self._effects.announce_started(gang, places)

    def nominate_for_session(self, gang: Gang, statement: Statement) -> None:
        """Hold the statement's places, made while pipelining, until this session ends."""
        self._effects.must_leave_reservations(gang, statement)
        places = self._nominated[gang.key] = statement.commit()
        self._effects.charge_nominated(gang, places)

    def nominate_for_move(self, gang: Gang, statement: Statement) -> MovedGangDraft:
        """Hold the statement's places for a gang that leaves, until it is made again."""
        places = self._moved[gang.key] = statement.commit()
        self._effects.charge_nominated(gang, places)
        return MovedGangDraft(gang, places)

    def move(
        self, gang: Gang, statement: Statement, elsewhere: Statement, *, action: str, reason: str,
        message: str,
    ) -> None:  # fmt: skip
        """Evict all members of a gang for its own sake, and hold other places until it is made again.

        Args:
            gang: that is moved.
            statement: with its members as victims.
            elsewhere: with its other places, made while pipelining.
            action: that decides.
            reason: of the evictions, one of the contract's.
            message: for the members, with numbers.
        """
        moved = self.nominate_for_move(gang, elsewhere)
        evictions = statement.evictions
        statement.commit()
        self._plans[gang.key] = PreemptionDraft(
            gang, (), evictions, action, reason, message, (moved,)
        )
        self._note_evicted(evictions)

    def stop(
        self, gang: Gang, statement: Statement, *, action: str, reason: str, message: str,
        turn: TurnRecord | None = None,
    ) -> None:  # fmt: skip
        """Evict the statement's victims, members of this gang, for its own sake.

        Args:
            gang: that is stopped.
            statement: with its members as victims.
            action: that decides.
            reason: of the evictions, one of the contract's.
            message: for the members, with numbers.
            turn: turns that it has had, where one is over; None where it is stopped otherwise.
        """
        evictions = statement.evictions
        statement.commit()
        self._stops[gang.key] = PreemptionDraft(
            gang, (), evictions, action, reason, message, turn=turn
        )
        self._note_evicted(evictions)

    def _note_evicted(self, evictions: Iterable[EvictOperation]) -> None:
        for each in evictions:
            self._evicted.add(each.member.pod.uid)
            self._evicted_gangs.add(each.gang.key)

    # -- taking back -------------------------------------------------------------------------
    def take_back(self, gang: Gang, statement: Statement) -> None:
        """Let the statement use the room that is held for the gang; final when it is committed."""
        path = self._effects.queue_path(gang)
        for place in (*self.nominated_places(gang), *self.moved_places(gang)):
            statement.unnominate(place, path=path, lasting=gang.is_lasting)

    def cancel(self, gang: Gang) -> None:
        """Give up the room that is held for the gang."""
        statement = self._statement()
        self.take_back(gang, statement)
        if statement.unnominated:
            self.forget(gang)
        statement.commit()

    def forget(self, gang: Gang) -> None:
        """Drop the entries of a gang whose nominations a committed statement took back."""
        self.ended += self._nominated.pop(gang.key, None) is not None
        self._moved.pop(gang.key, None)

    # -- what earlier sessions nominated -----------------------------------------------------
    def restore_nominations(
        self,
        snapshot: Snapshot,
        lines: GangLines,
        usage: NodeUsage,
        pod_counts: PodCounts,
        devices: Callable[[], DeviceRoom],
    ) -> None:
        """Hold again what earlier sessions nominated, as the API has it.

        Args:
            snapshot: with the nominated nodes of pods and the records of moved gangs.
            lines: gangs of the session.
            usage: of nodes, on which the room is reserved.
            pod_counts: count the pods on the nodes where they will be.
            devices: of the session, held for pods with claims.
        """

        def hold(gang: Gang, places: Sequence[Assignment]) -> tuple[Assignment, ...]:
            held = tuple(restore_nomination(usage, place) for place in places)
            for place in held:
                pod_counts.count_nominated(place.pod, place.row)
                if place.pod.pod_class.claims:
                    devices().take_again(place.pod, place.row, nominated=True)
            self._effects.charge_nominated(gang, held)
            return held

        gangs, asked = lines.by_key, lines.gathered(lambda line: line.nominated)
        for key, places in read_nominations(snapshot, asked).items():
            self._nominated[key] = hold(gangs[key], places)
        for key, move in snapshot.move_records:
            gang = gangs.get(key) or snapshot.placed_gangs.get(key)
            if gang is not None:
                nominated = len(self.nominated_places(gang))
                left = assignments_held_for_move(snapshot, gang, move, nominated)
                self._moved[key] = hold(gang, left)


def read_nominations(
    snapshot: Snapshot, gangs: Iterable[Gang]
) -> dict[GangKey, tuple[Assignment, ...]]:
    """Nominations in force, by gang.

    The nomination of a gang ends as a whole: with its time, or with one of its nodes; that of a
    pod ends with the pod.

    Args:
        snapshot: of this moment.
        gangs: of the snapshot, those with nominated pods among them.
    """
    found: dict[GangKey, tuple[Assignment, ...]] = {}
    for gang in gangs:
        if gang.suspended or not gang.has_nominated_pods:
            continue  # its pods do not exist, or none of them was nominated
        places = _nominations_of_gang(gang, snapshot)
        if places:
            found[gang.key] = places
    return found


def _nominations_of_gang(gang: Gang, snapshot: Snapshot) -> tuple[Assignment, ...]:
    places: list[Assignment] = []
    nodes = snapshot.nodes
    for pod_set in gang.pod_sets:
        for pod in pod_set.pods:
            if not pod.nominated or pod.unschedulable_reason != Reason.PREEMPTION_IN_PROGRESS:
                continue
            row = nodes.row.get(pod.nominated)
            ends = pod.unschedulable_since + snapshot.limits.nomination_timeout_s
            if row is None or snapshot.is_after(ends):
                return ()
            request = pod_class_vector(pod_set.pod_class, nodes.columns)
            places.append(Assignment(pod, row, 0, request, is_nomination=True))
    return tuple(places)


def restore_nomination(usage: NodeUsage, place: Assignment) -> Assignment:
    """Hold the room of a nomination; a share takes the GPU that suits it as things stand."""
    gpu = 0
    if place.request.share is not None and place.request.gpu >= 0:
        usage.show_usage(later=True)
        fits = usage.shares_fit([place.row], place.request)[0]
        # Where it does not fit any more, it ends like others whose room is gone.
        found = usage.gpu_to_join(place.row, place.request) if fits else None
        gpu = usage.next_unnamed_gpu(place.row) if found is None else found
        usage.show_usage(later=False)
    usage.reserve_later(place.row, place.request, gpu=gpu)
    return attrs.evolve(place, gpu=gpu)
