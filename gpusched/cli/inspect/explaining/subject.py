"""What is explained: the object of a name, or the larger gang that it belongs to, with its pods."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import attrs

from gpusched.api.gang.native_terms import COMPOSITE
from gpusched.api.meta.identity import GangKey
from gpusched.api.pod.gang_membership import WITHOUT_OBJECT
from gpusched.base.classes import frozen
from gpusched.base.errors import Denied, NotFound, UsageError
from gpusched.cli.inspect import cluster_reader
from gpusched.cli.inspect.cluster_reader import list_objects, value_at
from gpusched.cli.inspect.explaining.owners import (
    OWNER_WORDS,
    find_owner,
    gang_key_of_pod,
    list_gang,
    list_members,
    owner_of_gang,
)
from gpusched.cli.inspect.pod_groups import JOB_LABEL, find_group, group_of_pod
from gpusched.io.client.api_client import ApiClient

_GROUP_LABELS: Final = ("gpusched.io/pod-group", "scheduling.x-k8s.io/pod-group")
_MEMBER_LABELS: Final = {"PodGroup": _GROUP_LABELS, "Job": (JOB_LABEL,)}
GROUP_KINDS: Final = frozenset({"PodGroup", COMPOSITE})
_PATHS: Final = {
    "Job": "/apis/batch/v1/namespaces/{namespace}/jobs/{name}",
    "Pod": "/api/v1/namespaces/{namespace}/pods/{name}",
}


@frozen(kw_only=True)
class Subject:
    """One object that gangs are made of, and its pods.

    Attributes:
        owner: the object of that kind; metadata alone where there is none, or none that may be read.
        pods: members by name; none for a CompositePodGroup, whose pods are found with its tree.
    """

    kind: str
    namespace: str
    name: str
    owner: dict[str, Any]
    pods: tuple[dict[str, Any], ...]

    def with_pod(self, asked: dict[str, Any] | None) -> Subject:
        """With a pod that names its gang in another way than the others do."""
        known = {value_at(pod, "metadata", "uid") for pod in self.pods}
        if asked is None or value_at(asked, "metadata", "uid") in known:
            return self
        return attrs.evolve(self, pods=(asked, *self.pods))


async def find_subject(
    api: ApiClient, *, namespace: str, name: str, kinds: Sequence[str]
) -> tuple[Subject | None, dict[str, Any] | None]:
    """What is explained, and the pod that was asked about where it was one.

    What belongs to a PodGroup, JobSet or other owner of one gang is explained as that: it starts
    when its gang does.

    Args:
        api: of the cluster.
        namespace: of the object that is asked about.
        name: of the same.
        kinds: that it may be of; the first that has the name counts.
    """
    found = await _find(api, namespace, name, kinds=kinds) or await _find_gang(
        api, namespace, name, kinds=kinds
    )
    if found is None:
        return None, None
    kind, owner = found
    name = str(value_at(owner, "metadata", "name") or name)
    asked = owner if kind == "Pod" else None
    pods = await _members(api, owner, kind=kind, namespace=namespace)
    groups = _groups_named(kind, owner, pods)
    if len(groups) == 1 and (kind, group := groups.pop()) != ("Job", name):
        above = await _find(api, namespace, group, kinds=("PodGroup", "Job"))
        if above is not None:
            name = group
            kind, owner = above
            pods = await _members(api, owner, kind=kind, namespace=namespace)
    if kind not in GROUP_KINDS:
        kind, name, owner, pods = await _whole_gang(
            api, kind, name, owner, pods, namespace=namespace
        )
    subject = Subject(kind=kind, namespace=namespace, name=name, owner=owner, pods=tuple(pods))
    return subject, asked


async def _whole_gang(
    api: ApiClient,
    kind: str,
    name: str,
    owner: dict[str, Any],
    pods: list[dict[str, Any]],
    *,
    namespace: str,
) -> tuple[str, str, dict[str, Any], list[dict[str, Any]]]:
    """What is to be explained for some pods: the object of their gang, with all its members.

    They themselves where they are of several gangs, or of one that nothing else stands for.
    """
    keys = {gang_key_of_pod(pod) for pod in pods}
    key = keys.pop() if len(keys) == 1 else None
    if key is None or key.kind in {"Job", "Pod", kind}:
        return kind, name, owner, pods
    if key.kind == "PodGroup":
        group = await find_group(api, namespace, key.name, kinds=("PodGroup",))
        if group is None:
            return kind, name, owner, pods
        members = await _members(api, group[1], kind="PodGroup", namespace=namespace)
        return group[0], key.name, group[1], members
    above, owner = await _object_behind(api, key, pods)
    called = str(value_at(owner, "metadata", "name"))
    return above, called, owner, await _members(api, owner, kind=above, namespace=namespace)


async def _object_behind(
    api: ApiClient, key: GangKey, pods: Iterable[dict[str, Any]]
) -> tuple[str, dict[str, Any]]:
    """Kind and object behind a gang; a name alone where there is none, or none that may be read."""
    above, called = owner_of_gang(key, pods)
    if above in OWNER_WORDS.values():
        try:
            owner = await find_owner(api, above, key.namespace, called)
        except (Denied, UsageError):
            owner = None
        if owner is not None:
            return above, owner
    return key.kind, {"metadata": {"namespace": key.namespace, "name": key.name}}


async def _find_gang(
    api: ApiClient, namespace: str, name: str, *, kinds: Sequence[str]
) -> tuple[str, dict[str, Any]] | None:
    """The object behind the gang of a name, as ``get jobs`` lists gangs: of these kinds, or of any."""
    if not ({"PodGroup"} | WITHOUT_OBJECT | set(OWNER_WORDS.values())) & set(kinds):
        return None
    try:
        pods = await list_objects(api, f"/api/v1/namespaces/{namespace}/pods", what="pods")
    except (Denied, NotFound):
        return None
    for pod in pods:
        key = gang_key_of_pod(pod)
        if key is None or key.name != name or key.kind in {"PodGroup", "Job", "Pod"}:
            continue
        if "PodGroup" in kinds or key.kind in kinds:
            return await _object_behind(api, key, [pod])
    return None


async def _find(
    api: ApiClient, namespace: str, name: str, *, kinds: Sequence[str]
) -> tuple[str, dict[str, Any]] | None:
    """The first of the kinds that has an object of the name, with the object."""
    if not cluster_reader.is_name(name):
        return None
    group = await find_group(api, namespace, name, kinds=kinds)
    if group is not None:
        return group
    for kind in kinds:
        if kind in OWNER_WORDS.values():
            owner = await find_owner(api, kind, namespace, name)
            if owner is not None:
                return kind, owner
        if kind not in _PATHS:
            continue
        path = _PATHS[kind].format(namespace=namespace, name=name)
        owner = await cluster_reader.get_object(api, path, what=f"{kind} {namespace}/{name}")
        if owner is not None:
            return kind, owner
    return None


async def _members(
    api: ApiClient, owner: dict[str, Any], *, kind: str, namespace: str
) -> list[dict[str, Any]]:
    """Pods that belong to the object, by name; those of a tree are found with the tree."""
    if kind == "Pod":
        return [owner]
    if kind == COMPOSITE:
        return []
    name = str(value_at(owner, "metadata", "name"))
    if kind in OWNER_WORDS.values() and value_at(owner, "metadata", "uid"):
        return _by_name(await list_members(api, kind, owner, namespace))
    if kind not in _MEMBER_LABELS:
        return _by_name(await list_gang(api, GangKey(kind, namespace, name)))
    path = f"/api/v1/namespaces/{namespace}/pods"
    found: list[dict[str, Any]] = []
    for label in _MEMBER_LABELS[kind]:
        query = {"labelSelector": f"{label}={name}"}
        found += await list_objects(api, path, what="pods", query=query)
    if kind == "PodGroup" and not found:
        # Annotations and the field of native groups cannot be selected on: look at every pod.
        every = await list_objects(api, path, what="pods")
        found = [pod for pod in every if group_of_pod(pod) == name]
    return _by_name(found)


def _groups_named(kind: str, owner: dict[str, Any], pods: Iterable[dict[str, Any]]) -> set[str]:
    """PodGroups that some pods name, or that those of a Job would name; empty for other kinds."""
    if kind not in {"Job", "Pod"}:
        return set()
    groups = {group_of_pod(pod) for pod in pods}
    if kind == "Job" and not groups:
        labels = value_at(owner, "spec", "template", "metadata", "labels")
        groups = {str(labels.get(label) or "") for label in _GROUP_LABELS} if labels else set()
    return groups - {""}


def _by_name(pods: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each pod once, in the order of their names."""
    by_name = {str(value_at(pod, "metadata", "name")): pod for pod in pods}
    return [by_name[member] for member in sorted(by_name)]
