"""What is written on objects that cannot be believed: what is wrong with them."""

from __future__ import annotations

from collections import Counter
from typing import Final
from urllib.parse import quote

import msgspec

from gpusched import API_VERSION
from gpusched.api.foreign.kinds import COMPOSITES, POD_GROUPS
from gpusched.api.meta import wire
from gpusched.api.meta.identity import UID, GangKey, Rejected
from gpusched.api.pod.pod import PodPhase
from gpusched.api.serializer import foreign_status, requests
from gpusched.api.serializer.requests import clip_text
from gpusched.base.classes import frozen
from gpusched.cache.gangs.foreign.group_specs import GROUP_KINDS
from gpusched.io.client.api_client import STRATEGIC_MERGE_PATCH
from gpusched.io.write.bind_calls import pod_path
from gpusched.io.write.status.status_request import (
    StatusRequest,
    WrittenStatus,
    condition_update,
    last_status,
    merge_request,
)
from gpusched.io.write.status_cache import StatusCache
from gpusched.session.framework.reasons import Reason
from gpusched.session.state.plan import PendingReason

_WRITTEN_GROUPS: Final = {
    each.group: each.source for each in (*POD_GROUPS.values(), *COMPOSITES.values()) if each.writes
}
"""Projects to whose groups we write, by the API group of their kind."""
_PLURALS: Final = {
    "PodGroup": "podgroups",
    "Queue": "queues",
    "Topology": "topologies",
    "Reservation": "reservations",
}
"""Kinds of ours that have conditions."""
_INVALID_RESERVATION: Final[dict[str, object]] = {
    "phase": "Invalid", "from": None, "to": None, "nodes": [], "nodeCount": 0, "gangsInTheWay": 0,
}  # fmt: skip
"""What its status says beside the condition: it keeps nothing."""


@frozen(slots=True)
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
        shown, version = last_status(written, rejected.resource_version, rejected.status)
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
        return merge_request(path, body, version=version, seen=rejected.resource_version)

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
            condition_update(kind, ask, holds=False, generation=rejected.generation)
            for kind in kinds
        ]
        fields = _INVALID_RESERVATION if rejected.kind == "Reservation" else {}
        return requests.status_patch(rejected.uid, shown, fields, says=says, now=now)

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


@frozen(slots=True)
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
        if cache.find_pod(rejected.uid) is not None:
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
