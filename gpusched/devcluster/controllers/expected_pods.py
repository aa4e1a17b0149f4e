"""How many pods there should be, by the scale of what controls them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import attrs

from gpusched.devcluster.controllers import pod_state
from gpusched.devcluster.controllers.pod_state import Obj
from gpusched.devcluster.scale import paths_of, scale_of
from gpusched.errors import GpuschedError

if TYPE_CHECKING:
    from gpusched.devcluster.local_client import LocalClient


class UnknownScale(GpuschedError):
    """Nobody can tell how many pods a controller wants."""


@attrs.frozen
class Expected:
    """How many pods the controllers of some pods want, and how many of these have none."""

    count: int
    unmanaged: int


def expected_pods(client: LocalClient, pods: Sequence[Obj]) -> Expected:
    """Add up the scales of all controllers of the pods.

    Raises:
        UnknownScale: a controller is missing or has no scale; the text tells which.
    """
    scales: dict[str, int] = {}
    unmanaged = 0
    for pod in pods:
        holder = pod_state.controller_of(pod)
        if holder is None:
            unmanaged += 1
            continue
        if holder.get("uid") in scales:
            continue
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        found = _deployment_of(client, holder, namespace) or _scale_of(client, holder, namespace)
        if found is None:
            raise UnknownScale(f'found no controllers for pod "{name}"')
        uid, count = found
        scales[uid] = count
    return Expected(sum(scales.values()), unmanaged)


def _deployment_of(client: LocalClient, holder: Obj, namespace: str) -> tuple[str, int] | None:
    """The scale of the Deployment above a replica set; None when it is not such a chain."""
    if (holder.get("kind"), _group(holder)) != ("ReplicaSet", "apps"):
        return None
    owner = client.get("replicasets.apps", namespace, holder.get("name", ""))
    if owner is None or owner["metadata"]["uid"] != holder.get("uid"):
        return None
    above = pod_state.controller_of(owner)
    if above is None or (above.get("kind"), _group(above)) != ("Deployment", "apps"):
        return None
    found = client.get("deployments.apps", namespace, above.get("name", ""))
    if found is None or found["metadata"]["uid"] != above.get("uid"):
        return None
    return found["metadata"]["uid"], int(found["spec"]["replicas"])


def _scale_of(client: LocalClient, holder: Obj, namespace: str) -> tuple[str, int] | None:
    version, kind = str(holder.get("apiVersion", "")), str(holder.get("kind", ""))
    resource = client.kind_of(version, kind)
    if resource is None:
        raise UnknownScale(f'no matches for kind "{kind}" in version "{version}"')
    if not resource.has("scale"):
        raise UnknownScale(f"{resource.qualified} does not implement the scale subresource")
    found = client.get(resource.qualified, namespace, holder.get("name", ""))
    if found is None or found["metadata"]["uid"] != holder.get("uid"):
        return None
    scale = scale_of(found, paths_of(resource))
    return found["metadata"]["uid"], int(scale["spec"].get("replicas", 0))


def _group(reference: Obj) -> str:
    return str(reference.get("apiVersion", "")).rpartition("/")[0]
