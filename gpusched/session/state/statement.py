"""A batch of moves that is committed or discarded as a whole.

Operations are data; a checkpoint is an index into their list, and rolling back undoes what
lies behind it, newest first. Plugins hear nothing of it: what they read follows the statement.

While the session is pipelining (``Session.pipelining``), a place is a nomination: room that is
held for a pod until the pods that leave are gone. It names no GPU slots yet.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from gpusched.api.pod.pod import Pod
from gpusched.arrays.columns import RequestVector
from gpusched.arrays.node_usage import NodeUsage
from gpusched.base.errors import InvariantBroken
from gpusched.cache.gangs.gang import Gang, Placed
from gpusched.session.framework.pod_counts import PodCounts
from gpusched.session.framework.queue_accounts import QueueAccounts
from gpusched.session.state.nodes.numa_fit import numa_slot_masks
from gpusched.topology.slot_choice import choose_slots


@attrs.frozen(slots=True, eq=False)
class Assignment:
    """One pod on one node.

    Attributes:
        row: of the node.
        slots: bitmask of GPU slots; 0 for none, or while the room is not free yet.
        request: amounts that the pod requests.
        promised: whether it is a nomination: the room is not free yet.
        gpu: number of the GPU on which a share is nominated, see ``NodeUsage.gpu_to_join``.
    """

    pod: Pod
    row: int
    slots: int
    request: RequestVector
    promised: bool = False
    gpu: int = 0


@attrs.frozen(slots=True, eq=False)
class EvictOperation:
    """A member of a gang is evicted.

    Attributes:
        gang: to which it belongs.
        row: of its node.
        path: of its queue, from the leaf up.
    """

    gang: Gang
    member: Placed
    row: int
    request: RequestVector
    path: tuple[str, ...]


@attrs.frozen(slots=True, eq=False)
class UnnominateOperation:
    """A nomination is taken back, to use its room or to give it up."""

    place: Assignment
    path: tuple[str, ...]
    lasting: bool


@attrs.frozen(slots=True, eq=False)
class UnassignOperation:
    """A place given earlier in this session is freed, while another is tried."""

    place: Assignment


class Statement:
    """Moves tried on the nodes of a session.

    A statement ends with ``commit`` or with ``discard``; afterwards it takes no moves.

    Args:
        bench: usage of nodes, which follows each move.
        accounts: of the queues; places are charged when the statement is committed, evictions
            and nominations taken back at once, so that policies see them while victims are chosen.
        pod_counts: pods on each node, for rules between pods.
    """

    def __init__(self, bench: NodeUsage, accounts: QueueAccounts, pod_counts: PodCounts) -> None:
        self._bench = bench
        self._pod_counts = pod_counts
        self._accounts = accounts
        self.proof = ""
        """How good its places are proven to be; empty when nothing is known."""
        self._moves: list[
            Assignment | EvictOperation | UnnominateOperation | UnassignOperation
        ] = []
        self._open = True

    @property
    def places(self) -> tuple[Assignment, ...]:
        """Assignments so far, in the order in which they were made."""
        return tuple(move for move in self._moves if isinstance(move, Assignment))

    @property
    def evictions(self) -> tuple[EvictOperation, ...]:
        """Evictions so far, in the order in which they were made."""
        return tuple(move for move in self._moves if isinstance(move, EvictOperation))

    @property
    def unnominated(self) -> tuple[Assignment, ...]:
        """Nominations taken back so far, in the order in which that was done."""
        return tuple(move.place for move in self._moves if isinstance(move, UnnominateOperation))

    def checkpoint(self) -> int:
        """A point to which ``rollback`` can return."""
        return len(self._moves)

    def place(
        self, pod: Pod, row: int, request: RequestVector, *, then: tuple[int, ...] = ()
    ) -> None:
        """Put a pod on a row where it fits.

        Args:
            pod: that gets the place, and slots if it requests any.
            row: of the node.
            request: amounts that it requests.
            then: sizes of pods that will take slots of this row next, largest first, so that
                together they get the slots that are best for all.

        Raises:
            InvariantBroken: it does not fit; the caller read another class fit.
        """
        self._must_be_open()
        bench = self._bench
        free = bench.free_on(row, request.columns)
        if (free < request.amounts).any():
            raise InvariantBroken(f"pod {pod.key} does not fit {bench.nodes.nodes[row].name}")
        share = request.share is not None
        gpu = bench.gpu_to_join(row, request) if share else None
        if bench.later:
            bench.reserve(row, request, gpu=gpu or 0)
            self._pod_counts.nominate(pod, row)
            self._moves.append(Assignment(pod, row, 0, request, promised=True, gpu=gpu or 0))
            return
        slots = 0 if gpu is None else 1 << gpu
        if share and not slots:
            slots = choose_slots(
                bench.openable_slots(row, request),
                1,
                bench.nodes.nodes[row].layout,
                slots=bench.slots_on(row),
                population=bench.population,
            )
        elif pod.pod_class.gpus:
            slots = choose_slots(
                bench.free_slots[row] & self._range(row, pod.pod_class.gpu),
                pod.pod_class.gpus,
                bench.nodes.nodes[row].layout,
                slots=bench.slots_on(row),
                then=then,
                population=bench.population,
                within=numa_slot_masks(bench, pod.pod_class, row) if row in bench.zoned else (),
            )
        bench.add(row, request, slots=slots)
        self._pod_counts.place(pod, row)
        self._moves.append(Assignment(pod, row, slots, request))

    def evict(
        self, gang: Gang, member: Placed, row: int, request: RequestVector, *, path: Sequence[str]
    ) -> None:
        """Evict a member; its room counts as free only while the session is pipelining.

        Use ``Session.evict``, which knows rows, demands and paths.
        """
        self._must_be_open()
        self._bench.release(row, request, slots=member.slots)
        self._pod_counts.leave(member.pod, row)
        self._accounts.release(path, member.pod.pod_class.requests)
        self._moves.append(EvictOperation(gang, member, row, request, tuple(path)))

    def unnominate(self, place: Assignment, *, path: Sequence[str], lasting: bool = False) -> None:
        """Take back a nomination, to use its room or to give it up.

        Args:
            place: that was nominated.
            path: of the queue, from the leaf up.
            lasting: whether it was nominated for a gang that is not preemptible.
        """
        self._must_be_open()
        self._bench.reserve(place.row, place.request, gpu=place.gpu, times=-1)
        self._pod_counts.nominate(place.pod, place.row, times=-1)
        self._accounts.nominate(path, place.pod.pod_class.requests, times=-1)
        if lasting:
            self._accounts.charge_not_preemptible(path, place.pod.pod_class.requests, times=-1)
        self._moves.append(UnnominateOperation(place, tuple(path), lasting))

    def unassign(self, place: Assignment) -> None:
        """Free a place that an earlier statement of this session gave; see ``Placements.replace``."""
        self._must_be_open()
        self._undo(place)
        self._moves.append(UnassignOperation(place))

    def rollback(self, checkpoint: int = 0) -> None:
        """Undo everything behind the checkpoint."""
        self._must_be_open()
        while len(self._moves) > checkpoint:
            self._undo(self._moves.pop())

    def _undo(
        self, move: Assignment | EvictOperation | UnnominateOperation | UnassignOperation
    ) -> None:
        bench = self._bench
        if isinstance(move, EvictOperation):
            bench.release(move.row, move.request, slots=move.member.slots, times=-1)
            self._pod_counts.leave(move.member.pod, move.row, times=-1)
            self._accounts.release(move.path, move.member.pod.pod_class.requests, times=-1)
        elif isinstance(move, UnnominateOperation):
            bench.reserve(move.place.row, move.place.request, gpu=move.place.gpu)
            self._pod_counts.nominate(move.place.pod, move.place.row)
            self._accounts.nominate(move.path, move.place.pod.pod_class.requests)
            if move.lasting:
                self._accounts.charge_not_preemptible(move.path, move.place.pod.pod_class.requests)
        elif isinstance(move, UnassignOperation):
            place = move.place
            bench.add(place.row, place.request, slots=place.slots)
            self._pod_counts.place(place.pod, place.row)
        elif move.promised:
            bench.reserve(move.row, move.request, gpu=move.gpu, times=-1)
            self._pod_counts.nominate(move.pod, move.row, times=-1)
        else:
            bench.remove(move.row, move.request, slots=move.slots)
            self._pod_counts.place(move.pod, move.row, times=-1)

    def commit(self) -> tuple[Assignment, ...]:
        """Make the moves final; returns the places among them."""
        self._must_be_open()
        self._open = False
        return self.places

    def discard(self) -> None:
        """Undo all moves and end the statement."""
        self.rollback()
        self._open = False

    def _range(self, row: int, gpu: str) -> int:
        return self._bench.slot_range(row, gpu)

    def _must_be_open(self) -> None:
        if not self._open:
            raise InvariantBroken("a statement that was kept or discarded was used again")
