"""One codec for each kind that is followed, by its plural name."""

from __future__ import annotations

from typing import Any, Final, Protocol

from gpusched.objects import decode_group, decode_node, decode_others, decode_pod, decode_volumes
from gpusched.objects.codec import Page, WatchEvent

__all__ = ["CODECS", "Codec", "Page", "WatchEvent"]


class Codec(Protocol):
    """Bytes to entities; what cannot be believed comes as ``meta.Rejected``."""

    def decode_page(self, body: bytes) -> Page[Any]:
        """The body of a list; raises ``errors.Undecodable`` when the whole is unusable."""

    def decode_event(self, line: bytes) -> WatchEvent[Any]:
        """One line of a watch; raises ``errors.Undecodable`` when it is no event."""


CODECS: Final[dict[str, Codec]] = {
    "pods": decode_pod.PODS,
    "nodes": decode_node.NODES,
    "namespaces": decode_others.NAMESPACES,
    "podgroups": decode_group.POD_GROUPS,
    "queues": decode_group.QUEUES,
    "topologies": decode_group.TOPOLOGIES,
    "priorityclasses": decode_others.PRIORITY_CLASSES,
    "poddisruptionbudgets": decode_others.DISRUPTION_BUDGETS,
    "resourcequotas": decode_others.RESOURCE_QUOTAS,
    "jobs": decode_others.JOBS,
    "persistentvolumeclaims": decode_volumes.CLAIMS,
    "persistentvolumes": decode_volumes.VOLUMES,
    "storageclasses": decode_volumes.STORAGE_CLASSES,
}
