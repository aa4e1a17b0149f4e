"""What a status write would look like now: the request, or nothing when all is said already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol, TypeVar
from urllib.parse import quote

import attrs
import msgspec

from gpusched import API_VERSION
from gpusched.io.api import MERGE_PATCH, STRATEGIC_MERGE_PATCH
from gpusched.io.bind_calls import pod_path
from gpusched.io.foreign import ServedKinds
from gpusched.io.logs import Log
from gpusched.objects import encode, encode_foreign, wire
from gpusched.objects.adapters.kinds import VOLCANO
from gpusched.objects.encode import Say, clip
from gpusched.objects.group import PodGroup, Queue, Topology, Usage
from gpusched.objects.meta import UID, ObjectKey, Rejected, ResourceVersion, format_time
from gpusched.objects.pod import Pod
from gpusched.session.plan import Ask, GangStatus, PoolStatus, QueueStatus, TopologyStatus
from gpusched.session.reasons import Reason

E_co = TypeVar("E_co", covariant=True)
_log = Log(__name__)

NODES_LACK: Final = frozenset(
    {Reason.INSUFFICIENT_RESOURCES, Reason.TOPOLOGY_UNSATISFIABLE, Reason.NO_FEASIBLE_NODE}
)
"""Reasons that more nodes could end: such pods are ``Unschedulable``, others never are."""


_PLURALS: Final = {"PodGroup": "podgroups", "Queue": "queues", "Topology": "topologies"}
"""Kinds of ours that have conditions."""


class Shelf(Protocol[E_co]):
    """Entities of one kind."""

    @property
    def items(self) -> Mapping[ObjectKey, E_co]:
        """By key."""


class StatusCache(Protocol):
    """What the API showed last."""

    @property
    def groups(self) -> Shelf[PodGroup]:
        """All PodGroups."""

    @property
    def queues(self) -> Shelf[Queue]:
        """All Queues."""

    @property
    def topologies(self) -> Shelf[Topology]:
        """All Topologies."""

    @property
    def foreign(self) -> ServedKinds:
        """Where groups and queues of other projects are."""

    def pod(self, uid: UID) -> Pod | None:
        """The pod of that UID."""


@attrs.frozen(slots=True)
class Request:
    """A PATCH.

    Attributes:
        seen: version of the object that it was made for.
    """

    path: str
    content_type: str
    body: bytes
    seen: ResourceVersion


@attrs.frozen(slots=True)
class Written:
    """Our own last write, until the watch shows a newer version than ``seen``.

    Attributes:
        version: that it left.
    """

    seen: ResourceVersion
    status: bytes = b"{}"
    told: tuple[str, str] = ("", "")
    version: str = ""


def _base(
    written: Written | None, shown: ResourceVersion, status: bytes
) -> tuple[bytes, ResourceVersion]:
    """The status that a patch begins with, and its version: as shown, or as we left it."""
    if written is not None and written.seen == shown:
        return written.status, ResourceVersion(written.version or shown)
    return status, shown


class _Patch(msgspec.Struct):
    metadata: dict[str, str]
    status: msgspec.Raw


_PATCH: Final = msgspec.json.Decoder(_Patch)


def _on(body: bytes, version: ResourceVersion) -> bytes:
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
) -> Request | None:
    """In the words of the project whose kind it is, where we write to it at all."""
    served = cache.foreign.served.get(("PodGroup", group.source))
    if served is None:
        return None
    state = encode_foreign.GroupState(
        phase=status.phase,
        is_scheduled=status.is_scheduled,
        reason=status.scheduled.reason,
        sentence=status.scheduled.sentence,
        counts=status.counts,
        min_member=group.min_member,
    )
    body = encode_foreign.group_status(group.source, status.uid, shown, state, now=now)
    if body is None:
        return None
    path = served.status_path(quote(group.namespace), quote(group.name))
    return Request(path, MERGE_PATCH, _on(body, version), group.resource_version)


def _foreign_queue(
    cache: StatusCache,
    queue: Queue,
    status: QueueStatus,
    shown: bytes,
    *,
    version: ResourceVersion,
) -> Request | None:
    served = cache.foreign.served.get(("Queue", queue.source))
    if served is None or queue.source != VOLCANO:
        return None
    body = encode_foreign.queue_status(
        status.uid,
        shown,
        allocated=status.allocated.quantities(),
        counts=(status.pending, status.inqueue, status.running),
    )
    if body is None:
        return None
    path = served.status_path("", quote(queue.name))
    return Request(path, MERGE_PATCH, _on(body, version), queue.resource_version)


@attrs.frozen(slots=True)
class GroupWrite:
    """The status of a PodGroup."""

    status: GangStatus

    @property
    def gang(self) -> UID:
        """Whose submission is to be repeated when this fails."""
        return self.status.uid

    @property
    def namespace(self) -> str:
        """Whose write it is."""
        return self.status.gang.namespace

    def request(self, cache: StatusCache, written: Written | None, now: float) -> Request | None:
        """See the module."""
        status = self.status
        group = cache.groups.items.get(ObjectKey(status.gang.namespace, status.gang.name))
        if group is None or group.uid != status.uid:
            return None
        shown, version = _base(written, group.resource_version, group.status)
        if group.source:
            return _foreign_group(cache, group, status, shown, version=version, now=now)
        scheduled, running, succeeded, failed = status.counts
        body = encode.status_patch(
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
            says=_says(status),
            now=now,
        )
        if body is None:
            return None
        namespace, name = quote(status.gang.namespace), quote(status.gang.name)
        path = f"/apis/{API_VERSION}/namespaces/{namespace}/podgroups/{name}/status"
        return Request(path, MERGE_PATCH, _on(body, version), group.resource_version)


@attrs.frozen(slots=True)
class QueueWrite:
    """The status of a Queue."""

    status: QueueStatus

    @property
    def gang(self) -> UID:
        """See ``GroupWrite.gang``."""
        return self.status.uid

    @property
    def namespace(self) -> str:
        """Queues belong to nobody."""
        return ""

    def request(self, cache: StatusCache, written: Written | None, now: float) -> Request | None:
        """See the module."""
        status = self.status
        queue = cache.queues.items.get(ObjectKey("", status.name))
        if queue is None or queue.uid != status.uid:
            return None
        shown, version = _base(written, queue.resource_version, queue.status)
        if queue.source:
            return _foreign_queue(cache, queue, status, shown, version=version)
        body = encode.status_patch(
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
            says=(_say("Ready", status.ready, status.is_ready, status.generation),),
            now=now,
        )
        if body is None:
            return None
        path = f"/apis/{API_VERSION}/queues/{quote(status.name)}/status"
        return Request(path, MERGE_PATCH, _on(body, version), queue.resource_version)


@attrs.frozen(slots=True)
class TopologyWrite:
    """The status of a Topology."""

    status: TopologyStatus

    @property
    def gang(self) -> UID:
        """See ``GroupWrite.gang``."""
        return self.status.uid

    @property
    def namespace(self) -> str:
        """Topologies belong to nobody."""
        return ""

    def request(self, cache: StatusCache, written: Written | None, now: float) -> Request | None:
        """See the module."""
        status = self.status
        topology = cache.topologies.items.get(ObjectKey("", status.name))
        if topology is None or topology.uid != status.uid:
            return None
        ours = written is not None and written.seen == topology.resource_version
        body = encode.status_patch(
            status.uid,
            written.status if written is not None and ours else topology.status,
            {},
            says=(_say("Ready", status.ready, status.is_ready, status.generation),),
            now=now,
        )
        if body is None:
            return None
        path = f"/apis/{API_VERSION}/topologies/{quote(status.name)}/status"
        return Request(path, MERGE_PATCH, body, topology.resource_version)


@attrs.frozen(slots=True)
class PodWrite:
    """Why a pod waits, on the pod itself, for kubectl and for autoscalers."""

    uid: UID
    namespace: str
    gang: UID
    ask: Ask
    promised: bool = False
    """Whether the room that it was promised, if any, is still promised to it."""

    @property
    def told(self) -> tuple[str, str]:
        """Reason and message as the pod will show them."""
        lacks = self.ask.reason in NODES_LACK
        return encode.UNSCHEDULABLE if lacks else self.ask.reason, clip(self.ask.sentence)

    def shown(self, pod: Pod, written: Written | None) -> tuple[str, str]:
        """What the pod says at present."""
        if written is not None and written.seen == pod.resource_version:
            return written.told
        return pod.unschedulable_reason, pod.unschedulable

    def needed(self, cache: StatusCache, written: Written | None) -> Pod | None:
        """The pod, if it is to be told. None that is bound, gated or ending ever is."""
        pod = cache.pod(self.uid)
        if pod is None or pod.node or pod.deleting or pod.gated or pod.finished:
            return None
        told = self.shown(pod, written) == self.told
        return None if told and not self.withdraws(pod, written) else pod

    def withdraws(self, pod: Pod, written: Written | None) -> bool:
        """Whether a promise of ours is still on the pod and must go."""
        if self.promised or not pod.nominated:
            return False
        return written is None or written.seen != pod.resource_version

    def request(self, cache: StatusCache, written: Written | None, now: float) -> Request | None:
        """See the module."""
        pod = self.needed(cache, written)
        if pod is None:
            return None
        reason, message = self.told
        body = encode.pod_unscheduled(
            pod.uid,
            pod.resource_version,
            reason=reason,
            sentence=message,
            since=None if self.shown(pod, written)[0] else now,
            withdraw=self.withdraws(pod, written),
        )
        path = f"{pod_path(pod.key)}/status"
        return Request(path, STRATEGIC_MERGE_PATCH, body, pod.resource_version)


@attrs.frozen(slots=True)
class RejectedWrite:
    """That a PodGroup, Queue or Topology of ours cannot be believed, on the object itself."""

    rejected: Rejected

    @property
    def gang(self) -> UID:
        """See ``GroupWrite.gang``."""
        return self.rejected.uid

    @property
    def namespace(self) -> str:
        """See ``GroupWrite.namespace``."""
        return self.rejected.key.namespace

    def request(self, _cache: StatusCache, written: Written | None, now: float) -> Request | None:
        """See the module."""
        rejected = self.rejected
        shown, version = _base(written, rejected.resource_version, rejected.status)
        ask = Ask(reason=Reason.INVALID_SPEC, sentence=f"{rejected.field}: {rejected.why}")
        group = rejected.kind == "PodGroup"
        says = [
            _say(kind, ask, holds=False, generation=rejected.generation)
            for kind in (("Admitted", "Scheduled") if group else ("Ready",))
        ]
        try:
            body = encode.status_patch(rejected.uid, shown, {}, says=says, now=now)
        except (msgspec.MsgspecError, AttributeError, TypeError):
            # The status is what cannot be believed: it is written anew.
            body = encode.status_patch(rejected.uid, b"{}", {}, says=says, now=now)
        if body is None:
            return None
        path = _PLURALS[rejected.kind]
        if group:
            path = f"namespaces/{quote(rejected.key.namespace)}/{path}"
        path = f"/apis/{API_VERSION}/{path}/{quote(rejected.key.name)}/status"
        return Request(path, MERGE_PATCH, _on(body, version), rejected.resource_version)


@attrs.frozen(slots=True)
class RejectedPodWrite:
    """Why a pod that cannot be believed waits, on the pod itself."""

    rejected: Rejected

    @property
    def gang(self) -> UID:
        """See ``GroupWrite.gang``."""
        return self.rejected.uid

    @property
    def namespace(self) -> str:
        """See ``GroupWrite.namespace``."""
        return self.rejected.key.namespace

    @property
    def told(self) -> tuple[str, str]:
        """Reason and message as the pod will show them."""
        rejected = self.rejected
        return Reason.INVALID_SPEC, clip(f"{rejected.field}: {rejected.why}")

    def request(self, cache: StatusCache, written: Written | None, now: float) -> Request | None:
        """See the module."""
        rejected = self.rejected
        if cache.pod(rejected.uid) is not None:
            return None  # it can be believed by now
        ours = written is not None and written.seen == rejected.resource_version
        shown = written.told if written is not None and ours else _told_before(rejected.status)
        reason, message = self.told
        if shown == (reason, message):
            return None
        body = encode.pod_unscheduled(
            rejected.uid,
            rejected.resource_version,
            reason=reason,
            sentence=message,
            since=None if shown[0] else now,
        )
        path = f"{pod_path(rejected.key)}/status"
        return Request(path, STRATEGIC_MERGE_PATCH, body, rejected.resource_version)


class _PodStatus(msgspec.Struct):
    conditions: list[wire.Condition] = []


_POD_STATUS: Final = msgspec.json.Decoder(_PodStatus)


def _told_before(status: bytes) -> tuple[str, str]:
    """Reason and message of the condition of a pod that waits; empty where there is none."""
    try:
        found = _POD_STATUS.decode(status).conditions
    except (msgspec.MsgspecError, RecursionError):
        return "", ""
    said = next((each for each in found if each.type == "PodScheduled"), None)
    return (said.reason or "", said.message or "") if said is not None else ("", "")


def told_on(rejected: Rejected) -> bool:
    """Whether it is said on the object: it is of a kind of ours that has conditions."""
    return rejected.kind in _PLURALS and not rejected.api_version


Write = GroupWrite | QueueWrite | TopologyWrite | PodWrite | RejectedWrite | RejectedPodWrite


def _says(status: GangStatus) -> tuple[Say, ...]:
    admitted = _say("Admitted", status.admitted, status.is_admitted, status.generation)
    scheduled = _say("Scheduled", status.scheduled, status.is_scheduled, status.generation)
    if status.preempted is None:
        return (admitted, scheduled)
    preempted = _say("Preempted", status.preempted, status.is_preempted, status.generation)
    return (admitted, scheduled, preempted)


def _time(seconds: float) -> str | None:
    return format_time(seconds) if seconds else None


def _say(kind: str, ask: Ask, holds: bool, generation: int) -> Say:
    return Say(
        type=kind, holds=holds, reason=ask.reason, message=ask.sentence, generation=generation
    )


class _Version(msgspec.Struct):
    resourceVersion: str = ""  # noqa: N815 - as the API spells it


class _Answer(msgspec.Struct):
    metadata: _Version = msgspec.field(default_factory=_Version)
    status: msgspec.Raw = msgspec.Raw(b"{}")


_ANSWER: Final = msgspec.json.Decoder(_Answer)


def written_by(request: Request, want: Write, body: bytes) -> Written | None:
    """What the object says now; None when the answer cannot be read: the watch will tell."""
    if isinstance(want, PodWrite | RejectedPodWrite):
        return Written(request.seen, told=want.told)
    try:
        answer = _ANSWER.decode(body)
        version = answer.metadata.resourceVersion
        return Written(request.seen, status=bytes(answer.status), version=version)
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


def _usage(usage: Usage | None) -> dict[str, object] | None:
    if usage is None or not usage.as_of:
        return None
    return {
        "asOf": format_time(usage.as_of),
        "average": dict(usage.average),
        "share": dict(usage.share),
    }
