"""One codec for each kind that is followed, by its plural name."""

from __future__ import annotations

from typing import Any, Final, Protocol

from gpusched.api.gang import decode as decode_group
from gpusched.api.jobs import decode as decode_job
from gpusched.api.meta.codec import ObjectPage, WatchEvent
from gpusched.api.node import decode as decode_node
from gpusched.api.pod import decode as decode_pod
from gpusched.api.policy import decode as decode_policy
from gpusched.api.policy.reservation_decode import RESERVATIONS
from gpusched.api.queue import decode as decode_queue
from gpusched.api.volumes import decode as decode_volume

__all__ = ["CODECS", "ObjectCodec", "ObjectPage", "WatchEvent"]


class ObjectCodec(Protocol):
    """Bytes to entities; what cannot be believed comes as ``meta.identity.Rejected``."""

    def decode_page(self, body: bytes) -> ObjectPage[Any]:
        """The body of a list; raises ``errors.Undecodable`` when the whole is unusable."""

    def decode_event(self, line: bytes) -> WatchEvent[Any]:
        """One line of a watch; raises ``errors.Undecodable`` when it is no event."""


CODECS: Final[dict[str, ObjectCodec]] = {
    "pods": decode_pod.PODS,
    "nodes": decode_node.NODES,
    "namespaces": decode_policy.NAMESPACES,
    "podgroups": decode_group.POD_GROUPS,
    "queues": decode_queue.QUEUES,
    "topologies": decode_policy.TOPOLOGIES,
    "reservations": RESERVATIONS,
    "priorityclasses": decode_policy.PRIORITY_CLASSES,
    "poddisruptionbudgets": decode_policy.DISRUPTION_BUDGETS,
    "resourcequotas": decode_policy.RESOURCE_QUOTAS,
    "jobs": decode_job.JOBS,
    "persistentvolumeclaims": decode_volume.CLAIMS,
    "persistentvolumes": decode_volume.VOLUMES,
    "storageclasses": decode_volume.STORAGE_CLASSES,
}
