"""Which devices a pod gets on a row, with what this session gave to others there, and claims that pods share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Final

from gpusched.api.devices.dynamic.claims import ClaimAllocation
from gpusched.api.meta.identity import UID
from gpusched.api.pod.pod import Pod
from gpusched.arrays.columns import Bools
from gpusched.devices.allocator import Allocation, AllocationOutcome
from gpusched.devices.fit import AskedClaims, DeviceAnswers, allocate_on_node, allocate_together
from gpusched.devices.requests import ReadyClaim
from gpusched.session.state.nodes.devices.claims_by_class import ClaimsByClass
from gpusched.session.state.nodes.devices.device_reaches import DeviceReaches
from gpusched.session.state.nodes.devices.device_rows import DeviceRows
from gpusched.session.state.nodes.devices.pod_claims import ClassClaims, GivenClaims, SharedClaim
from gpusched.session.state.nodes.devices.taken_devices import TakenDevices

_NOTHING_CHOSEN: Final[Mapping[UID, Bools]] = MappingProxyType({})
JOINT_PODS_MAX: Final = 32
"""Pods on nodes that share devices whose devices are chosen anew together."""


class DeviceSearch:
    """See the module.

    Args:
        rows: of the nodes.
        claims: of classes.
        taken: what is taken.
        reaches: of devices that several nodes reach.
        answers: about nodes that are alike.
    """

    def __init__(
        self,
        rows: DeviceRows,
        claims: ClaimsByClass,
        taken: TakenDevices,
        reaches: DeviceReaches,
        answers: DeviceAnswers,
    ) -> None:
        self._rows = rows
        self._claims = claims
        self._taken = taken
        self._reaches = reaches
        self._answers = answers
        self._chosen: Mapping[UID, Bools] = _NOTHING_CHOSEN
        """Rows of nodes that are to reach the devices of shared claims, by UID."""
        self._wide: tuple[object, object, list[ClaimAllocation] | None] = (None, None, None)
        """The last answer of ``_allocate_wide``, with what was asked and which nodes were chosen."""

    def ask_for(self, claims: Sequence[ReadyClaim]) -> AskedClaims:
        """Claims of one pod, ready to be asked about."""
        return self._answers.make_asked(tuple(claims))

    def find_devices(self, pod: Pod, row: int, *, nominated: bool) -> dict[UID, GivenClaims] | None:
        """Devices for the pod alone, else for all that this session placed on the row with it."""
        claims = self._claims.claims_to_give(pod, row)
        unserved = self.unserved_claims(claims, row)
        if unserved is None:
            return None
        wide = self.find_wide(claims, row, nominated=nominated)
        if wide is None:
            return None
        for each in wide.values():
            self._taken.shift_devices(each.allocations, nominated=nominated, times=1)
        found = self._find_local(pod, claims, unserved, row, nominated=nominated)
        for each in wide.values():
            self._taken.shift_devices(each.allocations, nominated=nominated, times=-1)
        return None if found is None else {**wide, **found}

    def _find_local(
        self,
        pod: Pod,
        claims: ClassClaims,
        unserved: Sequence[SharedClaim],
        row: int,
        *,
        nominated: bool,
    ) -> dict[UID, GivenClaims] | None:
        """The same for the pod's own claims, and those shared ones that are served on this node."""
        asked = claims.asked
        if unserved:
            asked = self.ask_for([*(each.ready for each in unserved), *claims.own])
        if asked is None:
            return {pod.uid: GivenClaims(row, claims, ())}
        devices = self._rows.node_devices(row)
        usage = self._taken.usage_of_place(nominated=nominated)
        new = {each.uid: GivenClaims(row, _as_only_claim(each), ()) for each in unserved}
        new[pod.uid] = GivenClaims(row, claims, ())
        alone = self._answers.allocate(self._rows.inventory, usage, devices, asked)
        if alone.outcome is AllocationOutcome.ALLOCATED:
            return self._with_allocations(new, alone.claims)
        everyone = dict(self._taken.given_pods(nominated=nominated).on_row(row))
        if not everyone:
            return self._find_jointly(new, row, nominated=nominated)
        for each in everyone.values():
            self._taken.shift_devices(each.allocations, nominated=nominated, times=-1)
        places = (*everyone.values(), *new.values())
        found = allocate_on_node(
            self._rows.inventory, usage, devices, [each.claims.own for each in places]
        )
        for each in everyone.values():
            self._taken.shift_devices(each.allocations, nominated=nominated, times=1)
        if found.outcome is not AllocationOutcome.ALLOCATED:
            return self._find_jointly(new, row, nominated=nominated)
        return self._with_allocations({**everyone, **new}, found.claims)

    def _find_jointly(
        self, new: Mapping[UID, GivenClaims], row: int, *, nominated: bool
    ) -> dict[UID, GivenClaims] | None:
        """Devices for what is new on a row and for all that this session gave on nodes that share devices."""
        if not self._rows.shares_pools(row):
            return None
        given = self.sharing_pods(nominated=nominated)
        if len(given) >= JOINT_PODS_MAX or all(each.row == row for each in given.values()):
            return None
        everyone = {**given, **new}
        found = self.allocate_jointly(list(everyone.values()), given, nominated=nominated)
        if found.outcome is not AllocationOutcome.ALLOCATED:
            return None
        return self._with_allocations(everyone, found.claims)

    def sharing_pods(self, *, nominated: bool) -> dict[UID, GivenClaims]:
        """What this session gave on nodes that share pools with others, and may change."""
        given = self._taken.given_pods(nominated=nominated)
        return {
            uid: each
            for uid, each in given.by_uid.items()
            if each.allocations and each.nodes is None and self._rows.shares_pools(each.row)
        }

    def allocate_jointly(
        self, pods: Sequence[GivenClaims], given: Mapping[UID, GivenClaims], *, nominated: bool
    ) -> Allocation:
        """Devices for pods on several nodes, as if some of them had none yet."""
        for each in given.values():
            self._taken.shift_devices(each.allocations, nominated=nominated, times=-1)
        usage = self._taken.usage_of_place(nominated=nominated)
        found = allocate_together(
            self._rows.inventory,
            usage,
            [(self._rows.node_devices(each.row), each.claims.own) for each in pods],
        )
        for each in given.values():
            self._taken.shift_devices(each.allocations, nominated=nominated, times=1)
        return found

    def _with_allocations(
        self, places: Mapping[UID, GivenClaims], allocations: Sequence[ClaimAllocation]
    ) -> dict[UID, GivenClaims]:
        """The same places, each with as many allocations as it has claims of its own."""
        left = iter(allocations)
        return {
            uid: GivenClaims(
                each.row, each.claims, tuple([next(left) for _ in each.claims.own]), each.nodes
            )
            for uid, each in places.items()
        }

    # -- claims that pods share --------------------------------------------------------------
    @contextmanager
    def choose_for_nodes(self, nodes: Mapping[UID, Bools]) -> Iterator[None]:
        """Let shared claims without devices, by UID, get such as all of some nodes reach, shape (nodes,).

        Users of the claims are placed on these nodes alone.
        """
        before = self._chosen
        self._chosen = {**before, **nodes}
        self._taken.touch_rows(0, all_rows=True)
        try:
            yield
        finally:
            self._chosen = before
            self._taken.touch_rows(0, all_rows=True)

    def given_claim(self, uid: UID) -> GivenClaims | None:
        """What a shared claim was given in this session, now or later as it looks at it."""
        found = self._taken.given.by_uid.get(uid)
        if found is None and self._taken.looks_later:
            found = self._taken.nominated.by_uid.get(uid)
        return found

    def unserved_claims(self, claims: ClassClaims, row: int) -> list[SharedClaim] | None:
        """Shared claims that a pod on a row needs served there; None where it cannot use one."""
        unserved = []
        for each in claims.shared:
            given = self.given_claim(each.uid)
            chosen = self._chosen.get(each.uid)
            if given is not None:
                if not given.reaches_row(row):
                    return None
            elif chosen is None or not chosen[row]:
                if chosen is not None:
                    return None
                unserved.append(each)
            elif int(chosen.sum()) == 1:
                unserved.append(each)
        return unserved

    def find_wide(
        self, claims: ClassClaims, row: int, *, nominated: bool
    ) -> dict[UID, GivenClaims] | None:
        """Devices that all chosen nodes reach, for shared claims for which several were chosen."""
        wanted = [
            each
            for each in claims.shared
            if each.uid in self._chosen
            and self.given_claim(each.uid) is None
            and int(self._chosen[each.uid].sum()) > 1
        ]
        if not wanted:
            return {}
        question = (
            tuple(each.uid for each in wanted),
            nominated,
            self._taken.moves,
            self._claims.hold,
        )
        if self._wide[0] != question or self._wide[1] is not self._chosen:
            found = self._allocate_wide(wanted, nominated=nominated)
            self._wide = (question, self._chosen, found)
        allocations = self._wide[2]
        if allocations is None:
            return None
        return {
            each.uid: GivenClaims(
                row, _as_only_claim(each), (allocation,), self._reaches.rows_of(allocation)
            )
            for each, allocation in zip(wanted, allocations, strict=True)
        }

    def _allocate_wide(
        self, claims: Sequence[SharedClaim], *, nominated: bool
    ) -> list[ClaimAllocation] | None:
        usage = self._taken.usage_of_place(nominated=nominated).copy()
        found = []
        for each in claims:
            allocation = self._reaches.allocate_in_common(usage, each.ready, self._chosen[each.uid])
            if allocation is None:
                return None
            usage.add(allocation.devices)
            found.append(allocation)
        return found

    def allocate_wide(self, claim: SharedClaim, rows: Bools) -> ClaimAllocation | None:
        """Devices for a shared claim that all of some rows reach; None where there are none."""
        return self._reaches.allocate_in_common(self._taken.usage, claim.ready, rows)


def _as_only_claim(claim: SharedClaim) -> ClassClaims:
    """A shared claim as if it were the only one of a pod."""
    return ClassClaims(own=(claim.ready,), asked=claim.asked)
