"""What a status write would look like now: the request, or nothing when all is said already."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol, TypeVar
from urllib.parse import quote

import attrs
import msgspec

from gpusched import API_VERSION
from gpusched.api.foreign.kinds import COMPOSITES, POD_GROUPS, VOLCANO
from gpusched.api.gang.native_terms import COMPOSITE
from gpusched.api.gang.pod_group import PodGroup
from gpusched.api.meta import wire
from gpusched.api.meta.identity import (
    UID,
    GangKey,
    ObjectKey,
    Rejected,
    ResourceVersion,
    format_time,
)
from gpusched.api.pod.pod import GANG_WHOLE, Pod, PodPhase
from gpusched.api.policy.kinds import Topology
from gpusched.api.queue.queue import Queue, QueueUsage
from gpusched.api.serializer import foreign_status, patches, requests
from gpusched.api.serializer.requests import ConditionUpdate, clip_text
from gpusched.io.client.api_client import MERGE_PATCH, STRATEGIC_MERGE_PATCH
from gpusched.io.observe.logs import Logger
from gpusched.io.write.bind_calls import ServedForeignKinds, pod_path
from gpusched.session.framework.reasons import Reason
from gpusched.session.state.plan import (
    GangStatus,
    PendingReason,
    PoolStatus,
    QueueStatus,
    TopologyStatus,
)

E_co = TypeVar("E_co", covariant=True)
_log = Logger(__name__)

NODES_LACK: Final = frozenset(
    {Reason.INSUFFICIENT_RESOURCES, Reason.TOPOLOGY_UNSATISFIABLE, Reason.NO_FEASIBLE_NODE}
)
"""Reasons that more nodes could end: such pods are ``Unschedulable``, others never are."""


GROUP_KINDS: Final = frozenset({"PodGroup", COMPOSITE})
"""Kinds of gangs with an object of their own that carries a status."""
MEMBERS_LACK: Final = frozenset({Reason.NOT_ENOUGH_MEMBERS, Reason.GATED})
"""Reasons for which nothing was tried: pods are still to come."""
_WRITTEN_GROUPS: Final = {
    each.group: each.source for each in (*POD_GROUPS.values(), *COMPOSITES.values()) if each.writes
}
"""Projects to whose groups we write, by the API group of their kind."""
_PLURALS: Final = {"PodGroup": "podgroups", "Queue": "queues", "Topology": "topologies"}
"""Kinds of ours that have conditions."""


class EntityStore(Protocol[E_co]):
    """Entities of one kind."""

    @property
    def items(self) -> Mapping[ObjectKey, E_co]:
        """Entities of the kind by key."""


class StatusCache(Protocol):
    """What the API showed last."""

    @property
    def groups(self) -> EntityStore[PodGroup]:
        """Store of all PodGroups."""

    @property
    def composites(self) -> EntityStore[PodGroup]:
        """Store of all CompositePodGroups."""

    @property
    def queues(self) -> EntityStore[Queue]:
        """Store of all Queues."""

    @property
    def topologies(self) -> EntityStore[Topology]:
        """Store of all Topologies."""

    @property
    def foreign(self) -> ServedForeignKinds:
        """Where groups and queues of other projects are."""

    def pod(self, uid: UID) -> Pod | None:
        """The pod of that UID."""

    def member_pods(self, gang: GangKey) -> Iterable[Pod]:
        """All pods that belong to a gang."""

    def withdraw_nomination(self, uid: UID, reason: str) -> None:
        """A promise of a waiting pod holds no more, though the API shows it yet."""


def find_group(cache: StatusCache, gang: GangKey) -> PodGroup | None:
    """The object that describes a gang, where it is a PodGroup or CompositePodGroup."""
    if gang.kind not in GROUP_KINDS:
        return None
    groups = cache.composites if gang.kind == COMPOSITE else cache.groups
    return groups.items.get(ObjectKey(gang.namespace, gang.name))


@attrs.frozen(slots=True)
class StatusRequest:
    """A PATCH.

    Attributes:
        seen: version of the object that it was made for.
    """

    path: str
    content_type: str
    body: bytes
    seen: ResourceVersion


@attrs.frozen(slots=True)
class WrittenStatus:
    """Our own last write, until the watch shows a newer version than ``seen``.

    Attributes:
        version: that it left.
    """

    seen: ResourceVersion
    status: bytes = b"{}"
    reason_and_message: tuple[str, str] = ("", "")
    version: str = ""


def _base(
    written: WrittenStatus | None, shown: ResourceVersion, status: bytes
) -> tuple[bytes, ResourceVersion]:
    """The status that a patch begins with, and its version: as shown, or as we left it."""
    if written is not None and written.seen == shown:
        return written.status, ResourceVersion(written.version or shown)
    return status, shown


class _WireStatusPatch(msgspec.Struct):
    metadata: dict[str, str]
    status: msgspec.Raw


_PATCH: Final = msgspec.json.Decoder(_WireStatusPatch)


def _patch_for_version(body: bytes, version: ResourceVersion) -> bytes:
    """The patch for this version alone.

    What a leader sent that was paused in the middle must not write over what its successor says,
    nor over a condition that somebody else wrote meanwhile.
    """
    patch = _PATCH.decode(body)
    patch.metadata["resourceVersion"] = version
    return msgspec.json.encode(patch)


def _foreign_group(
    cache: StatusCache,
    group: PodGroup,
    status: GangStatus,
    shown: bytes,
    *,
    version: ResourceVersion,
    now: float,
) -> StatusRequest | None:
    """In the words of the project whose kind it is, where we write to it at all."""
    served = cache.foreign.served.get((group.kind, group.source))
    if served is None:
        return None
    state = foreign_status.GroupState(
        phase=status.phase,
        is_scheduled=status.is_scheduled,
        reason=status.scheduled.reason,
        message=status.scheduled.message,
        counts=status.counts,
        min_member=group.min_member,
        api_version=served.api_version,
        kind=group.kind,
        generation=group.generation,
        admitted=(status.is_admitted, status.admitted.reason, status.admitted.message),
        preempted=None
        if status.preempted is None
        else (status.is_preempted, status.preempted.reason, status.preempted.message),
        has_members=status.scheduled.reason not in MEMBERS_LACK,
    )
    body = foreign_status.foreign_group_status_patch(
        group.source, status.uid, shown, state, now=now
    )
    if body is None:
        return None
    path = served.status_path(quote(group.namespace), quote(group.name))
    return StatusRequest(
        path, MERGE_PATCH, _patch_for_version(body, version), group.resource_version
    )


def _foreign_queue(
    cache: StatusCache,
    queue: Queue,
    status: QueueStatus,
    shown: bytes,
    *,
    version: ResourceVersion,
) -> StatusRequest | None:
    served = cache.foreign.served.get(("Queue", queue.source))
    if served is None or queue.source != VOLCANO:
        return None
    body = foreign_status.foreign_queue_status_patch(
        status.uid,
        shown,
        allocated=status.allocated.quantities(),
        counts=(status.pending, status.inqueue, status.running),
    )
    if body is None:
        return None
    path = served.status_path("", quote(queue.name))
    return StatusRequest(
        path, MERGE_PATCH, _patch_for_version(body, version), queue.resource_version
    )


@attrs.frozen(slots=True)
class GroupWrite:
    """The status of a PodGroup."""

    status: GangStatus

    @property
    def gang(self) -> UID:
        """The gang whose status is submitted again when this write fails."""
        return self.status.uid

    @property
    def namespace(self) -> str:
        """The namespace by which writes are served in turn."""
        return self.status.gang.namespace

    def request(
        self, cache: StatusCache, written: WrittenStatus | None, now: float
    ) -> StatusRequest | None:
        """The patch of the PodGroup's status; None when nothing changes."""
        status = self.status
        group = find_group(cache, status.gang)
        if group is None or group.uid != status.uid:
            return None
        shown, version = _base(written, group.resource_version, group.status)
        if group.source:
            return _foreign_group(cache, group, status, shown, version=version, now=now)
        scheduled, running, succeeded, failed = status.counts
        body = requests.status_patch(
            status.uid,
            shown,
            {
                "phase": status.phase,
                "scheduled": scheduled,
                "running": running,
                "succeeded": succeeded,
                "failed": failed,
                "queuePosition": status.queue_position or None,
                "estimatedStartTime": _time(status.estimated_start),
                "placement": dict(status.placement) or None,
            },
            says=_condition_says(status),
            now=now,
        )
        if body is None:
            return None
        namespace, name = quote(status.gang.namespace), quote(status.gang.name)
        path = f"/apis/{API_VERSION}/namespaces/{namespace}/podgroups/{name}/status"
        return StatusRequest(
            path, MERGE_PATCH, _patch_for_version(body, version), group.resource_version
        )


@attrs.frozen(slots=True)
class QueueWrite:
    """The status of a Queue."""

    status: QueueStatus

    @property
    def gang(self) -> UID:
        """Empty: a queue belongs to no gang."""
        return self.status.uid

    @property
    def namespace(self) -> str:
        """No gang: a queue belongs to none."""
        return ""

    def request(
        self, cache: StatusCache, written: WrittenStatus | None, now: float
    ) -> StatusRequest | None:
        """The patch of the Queue's status; None when nothing changes."""
        status = self.status
        queue = cache.queues.items.get(ObjectKey("", status.name))
        if queue is None or queue.uid != status.uid:
            return None
        shown, version = _base(written, queue.resource_version, queue.status)
        if queue.source:
            return _foreign_queue(cache, queue, status, shown, version=version)
        body = requests.status_patch(
            status.uid,
            shown,
            {
                "state": status.state,
                "allocated": status.allocated.quantities(),
                "requested": status.requested.quantities(),
                "borrowed": status.borrowed.quantities(),
                "fairShare": status.fair_share.quantities(),
                "usage": _usage(status.usage),
                "nodePools": _pools(status.node_pools),
                "pending": status.pending,
                "inqueue": status.inqueue,
                "running": status.running,
            },
            says=(_condition("Ready", status.ready, status.is_ready, status.generation),),
            now=now,
        )
        if body is None:
            return None
        path = f"/apis/{API_VERSION}/queues/{quote(status.name)}/status"
        return StatusRequest(
            path, MERGE_PATCH, _patch_for_version(body, version), queue.resource_version
        )


@attrs.frozen(slots=True)
class TopologyWrite:
    """The status of a Topology."""

    status: TopologyStatus

    @property
    def gang(self) -> UID:
        """Empty: a topology belongs to no gang."""
        return self.status.uid

    @property
    def namespace(self) -> str:
        """No gang: a topology belongs to none."""
        return ""

    def request(
        self, cache: StatusCache, written: WrittenStatus | None, now: float
    ) -> StatusRequest | None:
        """The patch of the Topology's status; None when nothing changes."""
        status = self.status
        topology = cache.topologies.items.get(ObjectKey("", status.name))
        if topology is None or topology.uid != status.uid:
            return None
        ours = written is not None and written.seen == topology.resource_version
        body = requests.status_patch(
            status.uid,
            written.status if written is not None and ours else topology.status,
            {},
            says=(_condition("Ready", status.ready, status.is_ready, status.generation),),
            now=now,
        )
        if body is None:
            return None
        path = f"/apis/{API_VERSION}/topologies/{quote(status.name)}/status"
        return StatusRequest(path, MERGE_PATCH, body, topology.resource_version)


@attrs.frozen(slots=True)
class PodWrite:
    """Why a pod waits, on the pod itself, for kubectl and for autoscalers."""

    uid: UID
    namespace: str
    gang: UID
    pending_reason: PendingReason
    keeps_nomination: bool = False
    """Whether the room that it was promised, if any, is still promised to it."""

    @property
    def reason_and_message(self) -> tuple[str, str]:
        """Reason and message as the pod will show them."""
        lacks = self.pending_reason.reason in NODES_LACK
        return requests.UNSCHEDULABLE if lacks else self.pending_reason.reason, clip_text(
            self.pending_reason.message
        )

    def shown(self, pod: Pod, written: WrittenStatus | None) -> tuple[str, str]:
        """What the pod says at present."""
        if written is not None and written.seen == pod.resource_version:
            return written.reason_and_message
        return pod.unschedulable_reason, pod.unschedulable

    def needed(self, cache: StatusCache, written: WrittenStatus | None) -> Pod | None:
        """The pod, if it is to be told. None that is bound, gated or ending ever is."""
        pod = cache.pod(self.uid)
        if pod is None or pod.node or pod.deleting or pod.gated or pod.finished:
            return None
        same = self.shown(pod, written) == self.reason_and_message
        return None if same and not self.clears_nomination(pod, written) else pod

    def clears_nomination(self, pod: Pod, written: WrittenStatus | None) -> bool:
        """Whether a promise of ours is still on the pod and must go."""
        if self.keeps_nomination or not pod.nominated:
            return False
        return written is None or written.seen != pod.resource_version

    def request(
        self, cache: StatusCache, written: WrittenStatus | None, now: float
    ) -> StatusRequest | None:
        """The patch of the pod's conditions; None when nothing changes."""
        pod = self.needed(cache, written)
        if pod is None:
            return None
        reason, message = self.reason_and_message
        body = requests.pod_unscheduled_patch(
            pod.uid,
            pod.resource_version,
            reason=reason,
            message=message,
            since=None if self.shown(pod, written)[0] else now,
            withdraw=self.clears_nomination(pod, written),
        )
        path = f"{pod_path(pod.key)}/status"
        return StatusRequest(path, STRATEGIC_MERGE_PATCH, body, pod.resource_version)


@attrs.frozen(slots=True)
class MemberWrite:
    """Whether the gang of a bound pod lacks members, and since when, on the pod itself.

    Attributes:
        lost: what it lacks; empty when it is whole again.
    """

    uid: UID
    namespace: str
    gang: UID
    lost: str

    @property
    def reason_and_message(self) -> tuple[str, str]:
        """What the condition says, as far as it is compared: the time stays while that does."""
        return GANG_WHOLE, "False" if self.lost else "True"

    def request(
        self, cache: StatusCache, written: WrittenStatus | None, now: float
    ) -> StatusRequest | None:
        """See the module."""
        pod = cache.pod(self.uid)
        if pod is None or not pod.holds or pod.deleting:
            return None
        shown = (GANG_WHOLE, "False" if pod.broken_since else "True")
        if written is not None and written.seen == pod.resource_version:
            shown = written.reason_and_message
        if shown == self.reason_and_message:
            return None
        body = patches.gang_whole_patch(
            pod.uid, pod.resource_version, lost=self.lost, reason=Reason.NOT_ENOUGH_MEMBERS, now=now
        )
        path = f"{pod_path(pod.key)}/status"
        return StatusRequest(path, STRATEGIC_MERGE_PATCH, body, pod.resource_version)


@attrs.frozen(slots=True)
class RejectedWrite:
    """That an object of ours or a native group cannot be believed, on the object itself."""

    rejected: Rejected

    @property
    def gang(self) -> UID:
        """Empty: a rejected object belongs to no gang."""
        return self.rejected.uid

    @property
    def namespace(self) -> str:
        """Namespace of the rejected object."""
        return self.rejected.key.namespace

    def request(
        self, cache: StatusCache, written: WrittenStatus | None, now: float
    ) -> StatusRequest | None:
        """The patch that says what is wrong with the object; None when it is said."""
        rejected = self.rejected
        shown, version = _base(written, rejected.resource_version, rejected.status)
        ask = PendingReason(reason=Reason.INVALID_SPEC, message=f"{rejected.field}: {rejected.why}")
        try:
            body = self._patch(cache, shown, ask, now)
        except (msgspec.MsgspecError, AttributeError, TypeError, ValueError):
            # The status is what cannot be believed: it is written anew.
            body = self._patch(cache, b"{}", ask, now)
        if body is None:
            return None
        path = self._path(cache)
        if not path:
            return None
        return StatusRequest(
            path, MERGE_PATCH, _patch_for_version(body, version), rejected.resource_version
        )

    def _patch(
        self, cache: StatusCache, shown: bytes, ask: PendingReason, now: float
    ) -> bytes | None:
        """What its author is told, in the words of the project whose kind it is."""
        rejected, source = self.rejected, _foreign_source(self.rejected)
        if source:
            return foreign_status.foreign_group_status_patch(
                source, rejected.uid, shown, _rejected_state(cache, rejected, ask), now=now
            )
        kinds = ("Admitted", "Scheduled") if rejected.kind in GROUP_KINDS else ("Ready",)
        says = [
            _condition(kind, ask, holds=False, generation=rejected.generation) for kind in kinds
        ]
        return requests.status_patch(rejected.uid, shown, {}, says=says, now=now)

    def _path(self, cache: StatusCache) -> str:
        """Of the object's status; empty where its kind is not served any more."""
        rejected = self.rejected
        namespace, name = quote(rejected.key.namespace), quote(rejected.key.name)
        source = _foreign_source(rejected)
        if source:
            served = cache.foreign.served.get((rejected.kind, source))
            return served.status_path(namespace, name) if served is not None else ""
        path = _PLURALS[rejected.kind]
        if rejected.kind == "PodGroup":
            path = f"namespaces/{namespace}/{path}"
        return f"/apis/{API_VERSION}/{path}/{name}/status"


@attrs.frozen(slots=True)
class RejectedPodWrite:
    """Why a pod that cannot be believed waits, on the pod itself."""

    rejected: Rejected

    @property
    def gang(self) -> UID:
        """Empty: a rejected pod belongs to no gang."""
        return self.rejected.uid

    @property
    def namespace(self) -> str:
        """Namespace of the rejected pod."""
        return self.rejected.key.namespace

    @property
    def reason_and_message(self) -> tuple[str, str]:
        """Reason and message as the pod will show them."""
        rejected = self.rejected
        return Reason.INVALID_SPEC, clip_text(f"{rejected.field}: {rejected.why}")

    def request(
        self, cache: StatusCache, written: WrittenStatus | None, now: float
    ) -> StatusRequest | None:
        """The patch that says what is wrong with the pod; None when it is said."""
        rejected = self.rejected
        if cache.pod(rejected.uid) is not None:
            return None  # it can be believed by now
        ours = written is not None and written.seen == rejected.resource_version
        shown = (
            written.reason_and_message
            if written is not None and ours
            else _written_condition(rejected.status)
        )
        reason, message = self.reason_and_message
        if shown == (reason, message):
            return None
        body = requests.pod_unscheduled_patch(
            rejected.uid,
            rejected.resource_version,
            reason=reason,
            message=message,
            since=None if shown[0] else now,
        )
        path = f"{pod_path(rejected.key)}/status"
        return StatusRequest(path, STRATEGIC_MERGE_PATCH, body, rejected.resource_version)


class _WirePodStatus(msgspec.Struct):
    conditions: list[wire.WireCondition] = []


_POD_STATUS: Final = msgspec.json.Decoder(_WirePodStatus)


def _written_condition(status: bytes) -> tuple[str, str]:
    """Reason and message of the condition of a pod that waits; empty where there is none."""
    try:
        found = _POD_STATUS.decode(status).conditions
    except (msgspec.MsgspecError, RecursionError):
        return "", ""
    said = next((each for each in found if each.type == "PodScheduled"), None)
    return (said.reason or "", said.message or "") if said is not None else ("", "")


def has_conditions(rejected: Rejected) -> bool:
    """Whether it is said on the object: a kind of ours that has conditions, or a group we write to."""
    return (rejected.kind in _PLURALS and not rejected.api_version) or bool(
        _foreign_source(rejected)
    )


def _foreign_source(rejected: Rejected) -> str:
    """The project of a group whose status we write; empty for all other objects."""
    if rejected.kind not in GROUP_KINDS or not rejected.api_version:
        return ""
    return _WRITTEN_GROUPS.get(rejected.api_version.partition("/")[0], "")


def _rejected_state(
    cache: StatusCache, rejected: Rejected, ask: PendingReason
) -> foreign_status.GroupState:
    """Where a group of another project stands that cannot be believed: its pods are what they are."""
    key = GangKey(rejected.kind, rejected.key.namespace, rejected.key.name)
    pods = list(cache.member_pods(key))
    phases = Counter(pod.phase for pod in pods)
    placed = sum(pod.holds for pod in pods)
    served = cache.foreign.served.get((rejected.kind, _foreign_source(rejected)))
    why = (False, str(ask.reason), ask.message)
    return foreign_status.GroupState(
        phase="Running" if placed else "Pending",
        is_scheduled=False,
        reason=ask.reason,
        message=ask.message,
        counts=(
            placed,
            phases[PodPhase.RUNNING],
            phases[PodPhase.SUCCEEDED],
            phases[PodPhase.FAILED],
        ),
        min_member=0,
        kind=rejected.kind,
        api_version=served.api_version if served is not None else rejected.api_version,
        generation=rejected.generation,
        admitted=why,
        has_members=False,
        never_started=not placed and not phases[PodPhase.SUCCEEDED],
    )


Write = (
    GroupWrite
    | QueueWrite
    | TopologyWrite
    | PodWrite
    | MemberWrite
    | RejectedWrite
    | RejectedPodWrite
)


def _condition_says(status: GangStatus) -> tuple[ConditionUpdate, ...]:
    admitted = _condition("Admitted", status.admitted, status.is_admitted, status.generation)
    scheduled = _condition("Scheduled", status.scheduled, status.is_scheduled, status.generation)
    if status.preempted is None:
        return (admitted, scheduled)
    preempted = _condition("Preempted", status.preempted, status.is_preempted, status.generation)
    return (admitted, scheduled, preempted)


def _time(seconds: float) -> str | None:
    return format_time(seconds) if seconds else None


def _condition(kind: str, ask: PendingReason, holds: bool, generation: int) -> ConditionUpdate:
    return ConditionUpdate(
        type=kind, holds=holds, reason=ask.reason, message=ask.message, generation=generation
    )


class _WireVersion(msgspec.Struct):
    resourceVersion: str = ""  # noqa: N815 - as the API spells it


class _WireStatusAnswer(msgspec.Struct):
    metadata: _WireVersion = msgspec.field(default_factory=_WireVersion)
    status: msgspec.Raw = msgspec.Raw(b"{}")


_ANSWER: Final = msgspec.json.Decoder(_WireStatusAnswer)


def parse_written_status(request: StatusRequest, want: Write, body: bytes) -> WrittenStatus | None:
    """What the object says now; None when the answer cannot be read: the watch will tell."""
    if isinstance(want, PodWrite | MemberWrite | RejectedPodWrite):
        return WrittenStatus(request.seen, reason_and_message=want.reason_and_message)
    try:
        answer = _ANSWER.decode(body)
        version = answer.metadata.resourceVersion
        return WrittenStatus(request.seen, status=bytes(answer.status), version=version)
    except msgspec.MsgspecError as error:
        _log.warning("an answer is no object", path=request.path, why=error)
        return None


def _pools(pools: Sequence[PoolStatus]) -> list[dict[str, object]] | None:
    return [
        {
            "name": pool.name,
            "allocated": pool.allocated.quantities(),
            "fairShare": pool.fair_share.quantities(),
        }
        for pool in pools
    ] or None


def _usage(usage: QueueUsage | None) -> dict[str, object] | None:
    if usage is None or not usage.as_of:
        return None
    return {
        "asOf": format_time(usage.as_of),
        "average": dict(usage.average),
        "share": dict(usage.share),
    }
