"""Pods and what makes two of them interchangeable."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

from gpusched.api.affinity.pod_terms import HostPort, PodTerm, SpreadTerm
from gpusched.api.affinity.selector import NodeTerm, Toleration
from gpusched.api.devices.device_match import NO_DEVICE_MATCH, DeviceMatchRequest
from gpusched.api.devices.dynamic.claims import ExtendedRequest, PodClaim
from gpusched.api.devices.gpu_share import GpuShare
from gpusched.api.devices.gpu_types import NO_GPU_TYPE_REQUEST, GpuTypeRequest
from gpusched.api.gang.charge_record import ChargeRecord
from gpusched.api.meta.gpu_resources import gpu_resources
from gpusched.api.meta.identity import NO_CREATOR, UID, Creator, ObjectKey, Owner, ResourceVersion
from gpusched.api.meta.resources import Resources
from gpusched.api.meta.units import DEVICE
from gpusched.base.classes import frozen

NOMINATED = "PreemptionInProgress"
"""The reason of a pod's condition PodScheduled while room is promised to it."""
GANG_WHOLE = "gpusched.io/GangWhole"
"""The condition of members whose gang has lost others: False since then, True when it is whole again."""


class PodPhase(StrEnum):
    """As the API names them."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"


# Members of an enumeration are slow to look up before Python 3.12, and these are asked for at each turn.
PENDING: Final = PodPhase.PENDING
RUNNING: Final = PodPhase.RUNNING
SUCCEEDED: Final = PodPhase.SUCCEEDED
FAILED: Final = PodPhase.FAILED
ENDED: Final = (SUCCEEDED, FAILED)


@frozen(slots=True, kw_only=True, eq=False)
class PodClass:
    """Everything that placement reads of a pod. Interned: equal pods share one object.

    Attributes:
        digest: of the content; the same in every process, so it may order and name things.
        requests: including init containers, sidecars, overhead and one piece of ``pods``; with
            a share, what queues are charged for it.
        gpu: name of the resource that its slots are of, empty for none.
        gpus: pieces of it, the number of whole slots one pod takes.
        affinity: required node affinity, ORed terms; None when there is none.
        preferred: weights and terms of preferred node affinity.
        pod_affinity, pod_anti_affinity: required inter-pod affinity and anti-affinity, ANDed.
        preferred_pod_affinity, preferred_pod_anti_affinity: weights and terms.
        spread, soft_spread: topology spread constraints that forbid, and that only prefer.
        ports: wanted on the host.
        uses_claims: whether its pods use claims of volumes; which ones is each pod's own affair.
        aligned: what a topology manager keeps inside NUMA nodes, by container, see
            ``api.devices.numa``.
        unsupported: a rule in the spec that this version cannot honour, empty for none.
        share: the part of one GPU that it asks for, None for none; ``gpus`` is 0 then.
        claims: of devices, as its pods name them, in the order of the spec.
        namespace: in which the claims are; empty for pods without any.
        charge: amounts that its queue is charged with, where devices of its claims count beside
            ``requests``; None for ``requests`` alone.
    """

    digest: str
    requests: Resources
    gpu: str
    gpus: int
    node_selector: tuple[tuple[str, str], ...]
    affinity: tuple[NodeTerm, ...] | None
    preferred: tuple[tuple[int, NodeTerm], ...]
    tolerations: tuple[Toleration, ...]
    unsupported: str
    pod_affinity: tuple[PodTerm, ...] = ()
    pod_anti_affinity: tuple[PodTerm, ...] = ()
    preferred_pod_affinity: tuple[tuple[int, PodTerm], ...] = ()
    preferred_pod_anti_affinity: tuple[tuple[int, PodTerm], ...] = ()
    spread: tuple[SpreadTerm, ...] = ()
    soft_spread: tuple[SpreadTerm, ...] = ()
    ports: tuple[HostPort, ...] = ()
    uses_claims: bool = False
    aligned: tuple[Resources, ...] = ()
    share: GpuShare | None = None
    claims: tuple[PodClaim, ...] = ()
    namespace: str = ""
    charge: Resources | None = None

    @property
    def charged(self) -> Resources:
        """Amounts that its queue is charged with: its requests, and what its devices count as."""
        return self.requests if self.charge is None else self.charge

    @property
    def gpu_thousandths(self) -> int:
        """Of all its GPUs and parts of them; a slice that the hardware makes counts as a GPU."""
        own = self.requests.get(self.gpu) if self.share else self.gpus * DEVICE
        if self.charge is None:
            return own
        whole = gpu_resources().whole
        return own + sum(
            amount - self.requests.get(name) for name, amount in self.charge.items if name in whole
        )


@frozen(slots=True)
class GangAnnotations:
    """Annotations on a pod or Job that stand in for a PodGroup. Zero or empty: not said."""

    min_member: int = 0
    topology_required: str = ""
    topology_preferred: str = ""
    expected_duration_ns: int = 0
    preemptible: bool | None = None
    min_runtime_ns: int = 0
    gpu_types: GpuTypeRequest = NO_GPU_TYPE_REQUEST
    devices: DeviceMatchRequest = NO_DEVICE_MATCH


NO_GANG_ANNOTATIONS = GangAnnotations()


@frozen(slots=True)
class KubeletRefusal:
    """A kubelet did not take a pod that was bound to its node; it never ran.

    Attributes:
        reason: as the kubelet says, such as ``UnexpectedAdmissionError``.
        at: seconds since the epoch.
    """

    reason: str
    at: float


@frozen(slots=True)
class GangMembership:
    """The gang that a pod names by the labels of the controller that made it.

    Attributes:
        kind: of the controller, or of the convention where there is no object.
        name: of the gang: the controller's, or of one of its groups.
        owner: name of the object that says how large the gang is; empty for none.
        size: members of the whole gang as the pod itself tells; 0 when it does not.
        part: members of the pod's own role as it tells, at least; 0 when it does not.
    """

    kind: str
    name: str
    owner: str = ""
    size: int = 0
    part: int = 0


class Pod(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A pod as the scheduler sees it.

    A struct where the other entities are attrs classes: there are a hundred times as many
    pods, and it is made in a third of the time and never visited by the garbage collector.

    Attributes:
        created, scheduled: seconds since the epoch; 0.0 when not (yet) so. A bound pod of which
            one without a record of its binding counts from its start, or its creation.
        node: empty until bound.
        slots: bitmask read from a bound pod's annotation; 0 when it holds none or names none.
        plan, fence: written with our binding, empty on pods that others bound.
        proof: how good the places of its gang were, written with our binding; empty for none.
        family: the gang by its controller's labels, where neither label nor annotation names a
            group; None for none.
        block: ranks of a lower block come first: leaders, then the jobs of a JobSet in order.
        rank: index inside its controller, -1 for none.
        gates: names of its scheduling gates.
        strange_keys: what is said of its labels and annotations under our prefix that mean nothing.
        unschedulable: message of PodScheduled=False, to write only what changed.
        unschedulable_reason: its reason.
        unschedulable_since: when that condition last changed, seconds since the epoch.
        nominated: the node that is promised to it and not free yet, empty for none.
        claims: names of the persistent volume claims that its volumes are, sorted.
        own_claims: those of them that are made for this pod alone (ephemeral volumes).
        refusal: of the kubelet, where that is why it failed.
        ended: when it came to its end, as its status tells, seconds since the epoch; 0.0 where it has not, or
            nothing tells.
        deadline_s: it is ended so many seconds after it started; 0 when it is not.
        slots: bitmask, as many as it asks for; 0 when they are not known or do not count.
        seal: as read; whether it fits is found out in the cache.
        slots_error: why what it says about its slots does not count; empty when it does.
        may_preempt: whether room may be made for it by evicting others (preemptionPolicy).
        generated_claims: names of claims for devices that were made for it from templates, empty where
            none is needed, by the name that the pod has for each; sorted.
        broken_since: since when its condition ``GANG_WHOLE`` is False, seconds since the epoch; 0.0
            where it is not.
        extended: what its containers request of extended resources, without classes.
        charge: who pays for it where only its owner says so, as read with our binding.
        extended_told: JSON of what its status says of the claim for these, empty for nothing.
    """

    namespace: str
    name: str
    uid: UID
    resource_version: ResourceVersion
    created: float
    labels: Mapping[str, str]
    owner: Owner | None
    scheduler: str
    pod_class: PodClass
    priority: int
    priority_class: str
    group: str
    queue: str
    hints: GangAnnotations
    role: str = ""
    sub_group: str = ""
    rank: int = -1
    node: str = ""
    phase: PodPhase = PodPhase.PENDING
    deleting: bool = False
    gated: bool = False
    gates: tuple[str, ...] = ()
    strange_keys: tuple[str, ...] = ()
    scheduled: float = 0.0
    slots: int = 0
    plan: str = ""
    fence: str = ""
    unschedulable_reason: str = ""
    unschedulable: str = ""
    unschedulable_since: float = 0.0
    nominated: str = ""
    may_preempt: bool = True
    family: GangMembership | None = None
    block: int = 0
    claims: tuple[str, ...] = ()
    own_claims: tuple[str, ...] = ()
    deadline_s: int = 0
    refusal: KubeletRefusal | None = None
    proof: str = ""
    seal: str = ""
    slots_error: str = ""
    broken_since: float = 0.0
    generated_claims: tuple[tuple[str, str], ...] = ()
    extended: tuple[ExtendedRequest, ...] = ()
    extended_told: str = ""
    hold: str = ""
    creator: Creator = NO_CREATOR
    charge: ChargeRecord | None = None
    ended: float = 0.0

    @property
    def key(self) -> ObjectKey:
        """Namespace and name of the pod."""
        return ObjectKey(self.namespace, self.name)

    @property
    def finished(self) -> bool:
        """Whether it will never run again and holds nothing."""
        return self.phase in ENDED

    @property
    def holds(self) -> bool:
        """Whether it takes room on its node."""
        return bool(self.node) and self.phase not in ENDED
