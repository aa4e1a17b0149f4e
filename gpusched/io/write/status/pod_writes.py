"""What is written on pods: why one waits, and that the gang of a bound one lacks members."""

from __future__ import annotations

from typing import Final

from gpusched.api.meta.identity import UID
from gpusched.api.pod.pod import GANG_WHOLE, Pod
from gpusched.api.serializer import patches, requests
from gpusched.api.serializer.requests import clip_text
from gpusched.base.classes import frozen
from gpusched.io.client.api_client import STRATEGIC_MERGE_PATCH
from gpusched.io.write.bind_calls import pod_path
from gpusched.io.write.status.status_request import StatusRequest, WrittenStatus
from gpusched.io.write.status_cache import StatusCache
from gpusched.session.framework.reasons import Reason
from gpusched.session.state.plan import PendingReason

NODES_LACK: Final = frozenset(
    {Reason.INSUFFICIENT_RESOURCES, Reason.TOPOLOGY_UNSATISFIABLE, Reason.NO_FEASIBLE_NODE}
)
"""Reasons that more nodes could end: such pods are ``Unschedulable``, others never are."""


@frozen(slots=True)
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

    def shown_condition(self, pod: Pod, written: WrittenStatus | None) -> tuple[str, str]:
        """What the pod says at present."""
        if written is not None and written.seen == pod.resource_version:
            return written.reason_and_message
        return pod.unschedulable_reason, pod.unschedulable

    def needed(self, cache: StatusCache, written: WrittenStatus | None) -> Pod | None:
        """The pod, if it is to be told. None that is bound, gated or ending ever is."""
        pod = cache.find_pod(self.uid)
        if pod is None or pod.node or pod.deleting or pod.gated or pod.finished:
            return None
        same = self.shown_condition(pod, written) == self.reason_and_message
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
            since=None if self.shown_condition(pod, written)[0] else now,
            withdraw=self.clears_nomination(pod, written),
        )
        path = f"{pod_path(pod.key)}/status"
        return StatusRequest(path, STRATEGIC_MERGE_PATCH, body, pod.resource_version)


@frozen(slots=True)
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
        """The patch of the pod's condition; None when nothing changes."""
        pod = cache.find_pod(self.uid)
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
