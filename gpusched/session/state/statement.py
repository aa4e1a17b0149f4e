"""A batch of moves that is committed or discarded as a whole.

Operations are data; a checkpoint is an index into their list, and rolling back undoes what
lies behind it, newest first. Plugins hear nothing of it: what they read follows the statement.

While the session is pipelining (``Session.pipelining``), a place is a nomination: room that is
held for a pod until the pods that leave are gone. It names no GPU slots yet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gpusched.api.pod.pod import Pod
from gpusched.arrays.columns import RequestVector
from gpusched.arrays.node_usage import NodeUsage
from gpusched.base.classes import former_names, frozen
from gpusched.base.errors import InvariantBroken
from gpusched.cache.gangs.gang import Gang, Placed
from gpusched.placement.model.problem import Term
from gpusched.session.framework.accounts.queue_accounts import QueueAccounts
from gpusched.session.framework.pod_counts import PodCounts
from gpusched.session.state.nodes.devices.device_room import DeviceRoom
from gpusched.session.state.nodes.numa_fit import numa_slot_masks
from gpusched.topology.slot_choice import choose_slots


@frozen(slots=True, eq=False)
class Assignment:
    """One pod on one node.

    Attributes:
        row: of the node.
        slots: bitmask of GPU slots; 0 for none, or while the room is not free yet.
        request: amounts that the pod requests.
        is_nomination: whether it is a nomination: the room is not free yet.
        gpu: number of the GPU on which a share is nominated, see ``NodeUsage.gpu_to_join``.
    """

    pod: Pod
    row: int
    slots: int
    request: RequestVector
    is_nomination: bool = False
    gpu: int = 0


@frozen(slots=True, eq=False)
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


@frozen(slots=True, eq=False)
class UnnominateOperation:
    """A nomination is taken back, to use its room or to give it up."""

    assignment: Assignment
    path: tuple[str, ...]
    not_preemptible: bool


@frozen(slots=True, eq=False)
class UnassignOperation:
    """A place given earlier in this session is freed, while another is tried."""

    assignment: Assignment


@frozen(slots=True, eq=False)
class WithdrawOperation:
    """A place given earlier in this session is taken back: nothing of it was sent yet."""

    gang: Gang
    assignment: Assignment
    path: tuple[str, ...]


Operation = (
    Assignment | EvictOperation | UnnominateOperation | UnassignOperation | WithdrawOperation
)


class Statement:
    """Moves tried on the nodes of a session.

    A statement ends with ``commit`` or with ``discard``; afterwards it takes no moves.

    Args:
        node_usage: usage of nodes, which follows each move.
        accounts: of the queues; places are charged when the statement is committed, evictions
            and nominations taken back at once, so that policies see them while victims are chosen.
        pod_counts: pods on each node, for rules between pods.
        devices: of the session; asked for only by pods with claims.
    """

    def __init__(
        self,
        node_usage: NodeUsage,
        accounts: QueueAccounts,
        pod_counts: PodCounts,
        devices: Callable[[], DeviceRoom],
    ) -> None:
        self._devices = devices
        self._node_usage = node_usage
        self._pod_counts = pod_counts
        self._accounts = accounts
        self.proof = ""
        """How good its places are proven to be; empty when nothing is known."""
        self.terms: tuple[Term, ...] = ()
        """Values and bounds of what its places were compared by; empty when nothing was."""
        self.in_reserved_room = False
        """Whether its places are those on which others count that were reserved room behind its gang."""
        self._moves: list[Operation] = []
        self._took_back = False
        """Whether a nomination was ever taken back."""
        self._open = True

    @property
    def assignments(self) -> tuple[Assignment, ...]:
        """Assignments so far, in the order in which they were made."""
        return tuple([move for move in self._moves if isinstance(move, Assignment)])

    @property
    def evictions(self) -> tuple[EvictOperation, ...]:
        """Evictions so far, in the order in which they were made."""
        return tuple(move for move in self._moves if isinstance(move, EvictOperation))

    @property
    def withdrawn(self) -> tuple[WithdrawOperation, ...]:
        """Places of this session taken back so far, in the order in which that was done."""
        return tuple(move for move in self._moves if isinstance(move, WithdrawOperation))

    @property
    def unnominated(self) -> tuple[Assignment, ...]:
        """Nominations taken back so far, in the order in which that was done."""
        if not self._took_back:
            return ()
        return tuple(
            move.assignment for move in self._moves if isinstance(move, UnnominateOperation)
        )

    def checkpoint(self) -> int:
        """A point to which ``rollback`` can return."""
        return len(self._moves)

    def assign(
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
        node_usage = self._node_usage
        if not node_usage.takes(row, request):
            raise InvariantBroken(f"pod {pod.key} does not fit {node_usage.nodes.nodes[row].name}")
        if pod.pod_class.claims:
            self._devices().take_devices(pod, row, nominated=node_usage.later)
        share = request.share is not None
        gpu = node_usage.gpu_to_join(row, request) if share else None
        if node_usage.later:
            node_usage.reserve_later(row, request, gpu=gpu or 0)
            self._pod_counts.count_nominated(pod, row)
            self._moves.append(Assignment(pod, row, 0, request, is_nomination=True, gpu=gpu or 0))
            return
        slots = 0 if gpu is None else 1 << gpu
        if share and not slots:
            slots = choose_slots(
                node_usage.openable_slots(row, request),
                1,
                node_usage.nodes.nodes[row].layout,
                slots=node_usage.slots_on(row),
                population=node_usage.population,
            )
        elif pod.pod_class.gpus:
            slots = choose_slots(
                node_usage.free_slots[row] & self._gpu_range(row, pod.pod_class.gpu),
                pod.pod_class.gpus,
                node_usage.nodes.nodes[row].layout,
                slots=node_usage.slots_on(row),
                then=then,
                population=node_usage.population,
                within=numa_slot_masks(node_usage, pod.pod_class, row)
                if row in node_usage.numa_rows
                else (),
            )
        node_usage.add(row, request, slots=slots)
        self._pod_counts.count_placed(pod, row)
        self._moves.append(Assignment(pod, row, slots, request))

    def try_assign(self, pod: Pod, row: int, request: RequestVector) -> bool:
        """The same where a search for devices may end early; False where it did, and nothing is given.

        From then on no pod of its class fits the row.
        """
        if pod.pod_class.claims and not self._devices().can_take(pod, row):
            return False
        self.assign(pod, row, request)
        return True

    def evict(
        self, gang: Gang, member: Placed, row: int, request: RequestVector, *, path: Sequence[str]
    ) -> None:
        """Evict a member; its room counts as free only while the session is pipelining.

        Use ``Session.evict``, which knows rows, demands and paths.
        """
        self._must_be_open()
        self._node_usage.release_later(row, request, slots=member.slots)
        if member.pod.pod_class.claims:
            self._devices().taken.note_leaving(member.pod)
        self._pod_counts.count_leaving(member.pod, row)
        self._accounts.release_amounts(path, member.pod.pod_class.charged)
        self._moves.append(EvictOperation(gang, member, row, request, tuple(path)))

    def unnominate(self, place: Assignment, *, path: Sequence[str], lasting: bool = False) -> None:
        """Take back a nomination, to use its room or to give it up.

        Args:
            place: that was nominated.
            path: of the queue, from the leaf up.
            lasting: whether it was nominated for a gang that is not preemptible.
        """
        self._must_be_open()
        self._node_usage.reserve_later(place.row, place.request, gpu=place.gpu, times=-1)
        if place.pod.pod_class.claims:
            self._devices().give_back(place.pod, nominated=True)
        self._pod_counts.count_nominated(place.pod, place.row, times=-1)
        self._accounts.charge_nominated(path, place.pod.pod_class.charged, times=-1)
        if lasting:
            self._accounts.charge_not_preemptible(path, place.pod.pod_class.charged, times=-1)
        self._took_back = True
        self._moves.append(UnnominateOperation(place, tuple(path), lasting))

    def unassign(self, place: Assignment) -> None:
        """Free a place that an earlier statement of this session gave; see ``Placements.replace``."""
        self._must_be_open()
        self._undo_move(place)
        self._moves.append(UnassignOperation(place))

    def withdraw(self, gang: Gang, place: Assignment, *, path: Sequence[str]) -> None:
        """Take back a place that the session gave a preemptible gang; see ``Placements.withdraw``."""
        self._must_be_open()
        self._undo_move(place)
        self._accounts.charge_placed(path, place.pod.pod_class.charged, times=-1)
        self._moves.append(WithdrawOperation(gang, place, tuple(path)))

    def rollback(self, checkpoint: int = 0) -> None:
        """Undo everything behind the checkpoint."""
        self._must_be_open()
        while len(self._moves) > checkpoint:
            self._undo_move(self._moves.pop())

    def _undo_move(self, move: Operation) -> None:
        self._undo_devices(move)
        node_usage = self._node_usage
        if isinstance(move, EvictOperation):
            node_usage.release_later(move.row, move.request, slots=move.member.slots, times=-1)
            if move.member.pod.pod_class.claims:
                self._devices().taken.note_leaving(move.member.pod, times=-1)
            self._pod_counts.count_leaving(move.member.pod, move.row, times=-1)
            self._accounts.release_amounts(move.path, move.member.pod.pod_class.charged, times=-1)
        elif isinstance(move, UnnominateOperation):
            node_usage.reserve_later(
                move.assignment.row, move.assignment.request, gpu=move.assignment.gpu
            )
            self._pod_counts.count_nominated(move.assignment.pod, move.assignment.row)
            self._accounts.charge_nominated(move.path, move.assignment.pod.pod_class.charged)
            if move.not_preemptible:
                self._accounts.charge_not_preemptible(
                    move.path, move.assignment.pod.pod_class.charged
                )
        elif isinstance(move, UnassignOperation | WithdrawOperation):
            place = move.assignment
            node_usage.add(place.row, place.request, slots=place.slots)
            self._pod_counts.count_placed(place.pod, place.row)
            if isinstance(move, WithdrawOperation):
                self._accounts.charge_placed(move.path, place.pod.pod_class.charged)
        elif move.is_nomination:
            node_usage.reserve_later(move.row, move.request, gpu=move.gpu, times=-1)
            self._pod_counts.count_nominated(move.pod, move.row, times=-1)
        else:
            node_usage.remove_pod(move.row, move.request, slots=move.slots)
            self._pod_counts.count_placed(move.pod, move.row, times=-1)

    def _undo_devices(self, move: Operation) -> None:
        """The devices of a pod with claims follow its place."""
        place = move if isinstance(move, Assignment) else getattr(move, "assignment", None)
        if place is None or not place.pod.pod_class.claims:
            return
        if isinstance(move, Assignment):
            self._devices().give_back(place.pod, nominated=place.is_nomination)
        else:
            self._devices().take_again(place.pod, place.row, nominated=place.is_nomination)

    def commit(self) -> tuple[Assignment, ...]:
        """Make the moves final; returns the places among them."""
        self._must_be_open()
        self._open = False
        return self.assignments

    def discard(self) -> None:
        """Undo all moves and end the statement."""
        self.rollback()
        self._open = False

    def _gpu_range(self, row: int, gpu: str) -> int:
        return self._node_usage.slot_range(row, gpu)

    def _must_be_open(self) -> None:
        if not self._open:
            raise InvariantBroken("a statement that was kept or discarded was used again")

    if not TYPE_CHECKING:  # a type checker is to find names that do not exist
        __getattr__ = former_names(
            "Statement",
            {
                "place": "assign",
                "places": "assignments",
            },
        )
