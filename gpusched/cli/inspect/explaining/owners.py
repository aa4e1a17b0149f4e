"""What makes gangs beside PodGroups: objects of these kinds, their pods, and the gangs as the daemon counts them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gpusched.api.foreign.kinds import WORKLOADS
from gpusched.api.meta.identity import GangKey, Rejected
from gpusched.api.pod.gang_membership import gang_key_of
from gpusched.api.pod.pod import Pod
from gpusched.base.errors import Denied, UsageError
from gpusched.cli.inspect.cluster_reader import (
    Json,
    get_object,
    items_at,
    list_objects,
    read_entity,
    served_versions,
    value_at,
)
from gpusched.io.client.api_client import ApiClient

_APPS: Final = {
    "Deployment": ("deployments", "deploy"),
    "StatefulSet": ("statefulsets", "sts"),
    "ReplicaSet": ("replicasets", "rs"),
}
OWNER_WORDS: Final = {
    **{word: kind for kind, words in _APPS.items() for word in (kind.lower(), *words)},
    **{word: each.kind for each in WORKLOADS.values() for word in (each.kind.lower(), each.plural)},
    "lws": "LeaderWorkerSet",
}
"""Kinds of owners by what a user calls them."""
_BETWEEN: Final = {
    "ReplicaSet": "/apis/apps/v1/namespaces/{namespace}/replicasets",
    "Job": "/apis/batch/v1/namespaces/{namespace}/jobs",
}
"""Kinds that stand between an owner and its pods."""


async def find_owner(api: ApiClient, kind: str, namespace: str, name: str) -> Json | None:
    """The object of a kind of ``OWNER_WORDS``; None when there is none of that name.

    Raises:
        UsageError: the cluster does not have the kind.
    """
    what = f"{kind} {namespace}/{name}"
    if kind in _APPS:
        path = f"/apis/apps/v1/namespaces/{namespace}/{_APPS[kind][0]}/{name}"
        return await get_object(api, path, what=what)
    served = await served_versions(api, [WORKLOADS[kind]])
    if not served:
        raise UsageError(f"the cluster has no kind {kind} ({WORKLOADS[kind].name})")
    path = f"/apis/{served[WORKLOADS[kind]]}/namespaces/{namespace}/{WORKLOADS[kind].plural}/{name}"
    return await get_object(api, path, what=what)


async def list_members(api: ApiClient, kind: str, owner: Json, namespace: str) -> list[Json]:
    """Pods that belong to an owner: by its labels, or made by it or by what it made."""
    pods = await list_objects(api, f"/api/v1/namespaces/{namespace}/pods", what="pods")
    name = str(value_at(owner, "metadata", "name"))
    made = {(kind, name)}
    for between, path in _BETWEEN.items():
        if between != kind:
            try:
                found = await list_objects(api, path.format(namespace=namespace), what=between)
            except Denied:
                continue
            made |= {
                (between, str(value_at(each, "metadata", "name")))
                for each in found
                if _controllers(each) & made
            }
    return [pod for pod in pods if _controllers(pod) & made or _named_owner(pod) == (kind, name)]


def makers_of(pods: Iterable[Json]) -> set[tuple[str, str]]:
    """Kind and name of what made some pods."""
    return {maker for pod in pods for maker in _controllers(pod)}


def _controllers(item: Json) -> set[tuple[str, str]]:
    """Kind and name of what made an object."""
    return {
        (str(each.get("kind")), str(each.get("name")))
        for each in items_at(item, "metadata", "ownerReferences")
        if each.get("controller")
    }


def _named_owner(pod: Json) -> tuple[str, str]:
    """Kind and name of the owner that a pod's labels name."""
    key = gang_key_of_pod(pod)
    return owner_of_gang(key, [pod]) if key is not None else ("", "")


def gang_key_of_pod(pod: Json) -> GangKey | None:
    """The gang that the daemon takes a pod for; None for a pod that it cannot believe."""
    entity = read_entity("pods", pod)
    return None if isinstance(entity, Rejected) else gang_key_of(entity)


def owner_of_gang(key: GangKey, pods: Iterable[Json]) -> tuple[str, str]:
    """Kind and name of the object behind a gang: one LeaderWorkerSet makes several."""
    for pod in pods:
        entity = read_entity("pods", pod)
        if isinstance(entity, Pod) and gang_key_of(entity) == key and entity.family is not None:
            return key.kind, entity.family.owner or key.name
    return key.kind, key.name


async def list_gang(api: ApiClient, key: GangKey) -> list[Json]:
    """All pods of a gang."""
    pods = await list_objects(api, f"/api/v1/namespaces/{key.namespace}/pods", what="pods")
    return [pod for pod in pods if gang_key_of_pod(pod) == key]
