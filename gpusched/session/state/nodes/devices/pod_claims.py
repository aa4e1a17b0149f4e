"""Claims of classes of pods, and what pods and shared claims were given in one session.

A claim that several pods name is given its devices once, for all of them: it is kept like a pod of its own
until the last of its users gives back its place.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from gpusched.api.affinity.selector import NodeTerm
from gpusched.api.devices.dynamic.catalog import DeviceCatalog
from gpusched.api.devices.dynamic.claims import (
    ClaimAllocation,
    ExtendedRequest,
    PodClaim,
    ResourceClaim,
)
from gpusched.api.meta.identity import UID, ObjectKey
from gpusched.api.pod.pod import Pod, PodClass
from gpusched.arrays.columns import Bools
from gpusched.base.classes import frozen
from gpusched.devices.extended_resources import extended_claim_spec, extended_claim_title
from gpusched.devices.fit import AskedClaims
from gpusched.devices.inventory import DeviceId
from gpusched.devices.readiness import never_ready
from gpusched.devices.requests import DeviceHold, ReadyClaim, make_ready
from gpusched.devices.usage import DeviceUsage
from gpusched.session.state.plan import ClaimBind


@frozen(slots=True, eq=False)
class SharedClaim:
    """A claim that pods name and that has no devices yet: they are chosen once for all its users.

    Attributes:
        uid: under which its devices are kept.
        asked: the claim, to be asked about.
    """

    key: ObjectKey
    uid: UID
    asked: AskedClaims

    @property
    def ready(self) -> ReadyClaim:
        """The claim, to be allocated."""
        return self.asked.claims[0]


@frozen(slots=True, eq=False)
class ClassClaims:
    """Claims of the pods of one class.

    Attributes:
        own: that each pod gets allocated for itself, in the order of the spec.
        asked: the same, to be asked about; None where there are none.
        shared: that are allocated once for all pods that name them.
        nodes: for each claim that has an allocation and limits the nodes, its terms.
        fault: why no pod of the class can be placed, empty where they can.
        extended: what the last of its own claims asks for, where that is for extended resources.
    """

    own: tuple[ReadyClaim, ...] = ()
    nodes: tuple[tuple[NodeTerm, ...], ...] = ()
    fault: str = ""
    asked: AskedClaims | None = None
    shared: tuple[SharedClaim, ...] = ()
    extended: tuple[ExtendedRequest, ...] = ()

    @property
    def without_devices(self) -> tuple[ReadyClaim, ...]:
        """Claims that need devices: the shared ones, then its own."""
        return (*(each.ready for each in self.shared), *self.own)


@frozen(slots=True, eq=False)
class GivenClaims:
    """What one pod, or one shared claim, was given in this session.

    Attributes:
        row: of the node on which the devices were chosen.
        claims: the pod's, or the shared one as the only one.
        nodes: of a shared claim: rows that may use its devices, shape (nodes,); None for its row alone.
    """

    row: int
    claims: ClassClaims
    allocations: tuple[ClaimAllocation, ...]
    nodes: Bools | None = None

    def reaches_row(self, row: int) -> bool:
        """Whether a pod on a row can use the devices."""
        return row == self.row if self.nodes is None else bool(self.nodes[row])


class GivenPods:
    """Pods and shared claims that a session gave devices."""

    def __init__(self) -> None:
        self.by_uid: dict[UID, GivenClaims] = {}
        self._by_row: dict[int, dict[UID, GivenClaims]] = {}
        self._users: dict[UID, set[UID]] = {}
        """Pods with places that use a shared claim, by the claim's UID."""

    def enter_pod(self, uid: UID, given: GivenClaims) -> None:
        """A pod was given these, instead of others where it had some."""
        self.pop_pod(uid)
        self.by_uid[uid] = given
        if given.allocations and given.nodes is None:
            self._by_row.setdefault(given.row, {})[uid] = given

    def pop_pod(self, uid: UID) -> GivenClaims | None:
        """Drop a pod, and return what it was given."""
        given = self.by_uid.pop(uid, None)
        if given is not None:
            self._by_row.get(given.row, {}).pop(uid, None)
        return given

    def use_claims(self, pod: UID, claims: ClassClaims) -> None:
        """A pod uses its shared claims."""
        for each in claims.shared:
            self._users.setdefault(each.uid, set()).add(pod)

    def unused_without(self, pod: UID, claims: ClassClaims) -> list[UID]:
        """Shared claims that no pod uses any more when this one has given back its place."""
        unused = []
        for each in claims.shared:
            users = self._users.get(each.uid, set())
            users.discard(pod)
            if not users and each.uid in self.by_uid:
                self._users.pop(each.uid, None)
                unused.append(each.uid)
        return unused

    def on_row(self, row: int) -> Mapping[UID, GivenClaims]:
        """Pods on a row that have devices of their own, and shared claims given there for it alone."""
        return self._by_row.get(row, _NOTHING_GIVEN)


_NOTHING_GIVEN: Final[Mapping[UID, GivenClaims]] = MappingProxyType({})


def read_class_claims(
    pod_class: PodClass,
    catalog: DeviceCatalog,
    make_asked: Callable[[tuple[ReadyClaim, ...]], AskedClaims],
    hold: DeviceHold | None,
    published: Collection[str] = (),
) -> ClassClaims:
    """Claims of a class, made ready for allocation.

    Args:
        pod_class: with claims.
        catalog: of the snapshot.
        make_asked: gives claims the number that equal ones share.
        hold: what devices are held to, None for nothing.
        published: extended resources that a node has itself, which its devices need not serve.
    """
    if not catalog.served:
        return ClassClaims(
            fault="uses resource claims, and this API server serves no resource.k8s.io"
        )
    own: list[ReadyClaim] = []
    shared: list[SharedClaim] = []
    nodes: list[tuple[NodeTerm, ...]] = []
    extended: tuple[ExtendedRequest, ...] = ()
    for each in pod_class.claims:
        if each.extended:
            extended = tuple(asked for asked in each.extended if asked.resource not in published)
            if extended:
                spec = extended_claim_spec(extended)
                own.append(make_ready(extended_claim_title(extended), spec, catalog.classes, hold))
            continue
        key = ObjectKey(pod_class.namespace, each.claim or each.template)
        if each.template:
            template = catalog.templates.get(key)
            if template is None:
                return ClassClaims(
                    fault=f"names ResourceClaimTemplate {key.name}, which is not there"
                )
            own.append(make_ready(each.name, template.spec, catalog.classes, hold))
            continue
        claim = catalog.claims.get(key)
        if claim is None or claim.deleting:
            how = "is being deleted" if claim is not None else "is not there"
            return ClassClaims(fault=f"names ResourceClaim {key.name}, which {how}")
        if claim.allocation is None:
            ready = make_ready(each.name, claim.spec, catalog.classes, hold)
            asked = make_asked((ready,))
            shared.append(SharedClaim(key, claim.uid, asked))
        elif claim.allocation.nodes is not None:
            nodes.append(claim.allocation.nodes)
    every = (*(each.ready for each in shared), *own)
    fault = next((each.fault for each in every if each.fault), "")
    return ClassClaims(
        tuple(own),
        tuple(nodes),
        fault and f"cannot be given devices: {fault}",
        make_asked(tuple(own)) if own else None,
        tuple({each.uid: each for each in shared}.values()),
        extended,
    )


class PodClaims:
    """The claims that pods mean, as the API has them.

    Args:
        catalog: of the snapshot.
    """

    def __init__(self, catalog: DeviceCatalog) -> None:
        self._catalog = catalog
        self._claims_of: dict[UID, tuple[ResourceClaim | None, ...]] = {}
        self._extended: dict[tuple[str, UID], ResourceClaim] | None = None
        """Claims for extended resources by namespace and UID of their pods; None until asked for."""

    def claims_of(self, pod: Pod) -> tuple[ResourceClaim | None, ...]:
        """The claims that a pod means, in the order of its spec; None for one that is not there yet."""
        known = self._claims_of.get(pod.uid)
        if known is None:
            known = self._claims_of[pod.uid] = tuple(
                [self._claim_of(pod, each) for each in pod.pod_class.claims]
            )
        return known

    def _claim_of(self, pod: Pod, named: PodClaim) -> ResourceClaim | None:
        if named.extended:
            return self._extended_claim(pod)
        name = named.claim
        if not name and named.group is None:
            name = _generated_name(pod, named.name)
        return self._catalog.claims.get(ObjectKey(pod.namespace, name)) if name else None

    def _extended_claim(self, pod: Pod) -> ResourceClaim | None:
        if self._extended is None:
            every = self._catalog.claims.values()
            self._extended = {(each.namespace, each.owner): each for each in every if each.extended}
        return self._extended.get((pod.namespace, pod.uid))

    def are_ready(self, pod: Pod) -> bool:
        """Whether all claims of a pod are there, as far as they are made before, and none of them has devices yet."""
        for each, claim in zip(pod.pod_class.claims, self.claims_of(pod), strict=True):
            if each.extended:
                if claim is not None:
                    return False
            elif claim is None or claim.allocation is not None:
                return False
        return True

    def missing_claim(self, pod: Pod) -> str:
        """The name that a pod has for a claim which is not made yet; empty where all are there."""
        for each, claim in zip(pod.pod_class.claims, self.claims_of(pod), strict=True):
            if claim is None and not each.extended and each.name not in _unneeded_names(pod):
                return each.name
        return ""

    def held_claim(self, pod: Pod, now: float) -> str:
        """The name of a claim of a pod whose devices are not used: of an earlier attempt, or never ready; else empty."""
        for each, claim in zip(pod.pod_class.claims, self.claims_of(pod), strict=True):
            if claim is not None and each.extended:
                return claim.name
            if claim is None or claim.allocation is None:
                continue
            if each.template or never_ready(claim, now):
                return claim.name
        return ""

    def allocation_of(self, bind: ClaimBind) -> ClaimAllocation | None:
        """What a claim of the plan gets, or has already."""
        claim = self._catalog.claims.get(bind.key)
        return bind.allocation or (claim.allocation if claim is not None else None)

    def twice_given(self, pod: Pod, usage: DeviceUsage) -> tuple[str, str, str] | None:
        """A claim of a pod, its device that another claim has as well, and that claim; None for none."""
        for claim in self.claims_of(pod):
            held = () if claim is None or claim.allocation is None else claim.allocation.devices
            for device in held:
                key = DeviceId(device.driver, device.pool, device.device)
                taken = usage.find_holding(key)
                if claim is not None and taken is not None and taken.whole > 1 and not device.admin:
                    other = min(self._holder_keys(key) - {claim.key}, default=claim.key)
                    return claim.name, device.device, str(other)
        return None

    def _holder_keys(self, device: DeviceId) -> set[ObjectKey]:
        return {
            claim.key
            for claim in self._catalog.claims.values()
            if claim.allocation is not None and device in held_devices(claim.allocation)
        }

    def users_of(self, key: ObjectKey) -> set[UID]:
        """Pods that a claim is reserved for already."""
        claim = self._catalog.claims.get(key)
        return set() if claim is None else {each.uid for each in claim.reserved_for}


def held_devices(allocation: ClaimAllocation) -> Iterator[DeviceId]:
    """Devices of which an allocation takes something; those for administration are not taken."""
    for each in allocation.devices:
        if not each.admin:
            yield DeviceId(each.driver, each.pool, each.device)


def _generated_name(pod: Pod, named: str) -> str:
    """Name of the claim that was made of a template for a pod; empty where none is."""
    for own, made in pod.generated_claims:
        if own == named:
            return made
    return ""


def _unneeded_names(pod: Pod) -> frozenset[str]:
    """Names of claims that the API says the pod does not need."""
    return frozenset(name for name, claim in pod.generated_claims if not claim)
