"""PodGroups of every project that the daemon reads, in the words of our own PodGroup."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any, Final
from urllib.parse import quote

import msgspec

from gpusched import API_VERSION
from gpusched.api.foreign import kinds as foreign_kinds
from gpusched.api.foreign import pod_groups
from gpusched.api.foreign.kinds import ForeignKind
from gpusched.api.gang.native_terms import COMPOSITE, TOLD_AS
from gpusched.api.gang.pod_group import PodGroup
from gpusched.api.meta.codec import KindCodec
from gpusched.api.pod import wire as pod_wire
from gpusched.api.pod.gang_annotations import read_group_name
from gpusched.base.classes import frozen
from gpusched.base.errors import Denied, NotFound
from gpusched.cli.inspect import cluster_reader
from gpusched.cli.inspect.cluster_reader import Json, items_at, list_objects, value_at
from gpusched.io.client.api_client import ApiClient

API: Final = "api"
"""Key under which a group in our words names the group and version that serve it."""
JOB_LABEL: Final = "batch.kubernetes.io/job-name"
_OWN_TYPES: Final = {told: own for own, told in TOLD_AS.items()}
_FOREIGN: Final[tuple[tuple[ForeignKind, KindCodec[Any, PodGroup]], ...]] = (
    *((kind, pod_groups.CODECS[source]) for source, kind in foreign_kinds.POD_GROUPS.items()),
    (foreign_kinds.COMPOSITES[foreign_kinds.NATIVE], pod_groups.COMPOSITES),
)
"""Kinds of groups, the first of which counts where several have an object of one name."""


@frozen(kw_only=True)
class ListedGroups:
    """PodGroups of a scope.

    Attributes:
        raw: as the server has them.
        told: the same in our words, by namespace and name.
        refused: names of kinds of other projects that this user may not read.
        foreign: kind, object and group of those of other projects that can be read.
    """

    raw: tuple[Json, ...]
    told: tuple[Json, ...]
    refused: tuple[str, ...]
    foreign: tuple[tuple[str, Json, PodGroup], ...] = ()


async def list_groups(api: ApiClient, scope: str, *, selector: str = "") -> ListedGroups:
    """Every group of a scope.

    Args:
        api: of the cluster.
        scope: ``/namespaces/NAME``, or empty for all of them.
        selector: of the groups' labels, empty for all.

    Raises:
        NotFound: the cluster serves no kind of PodGroup at all.
        Denied: our own kind may not be read.
    """
    missing: NotFound | None = None
    query = {"labelSelector": selector} if selector else None
    try:
        own = await list_objects(
            api, f"{cluster_reader.GROUP_PATH}{scope}/podgroups", what="podgroups", query=query
        )
    except NotFound as error:
        missing, own = error, []
    raw = list(own)
    told = [{**item, API: API_VERSION} for item in own]
    refused = []
    foreign: list[tuple[str, Json, PodGroup]] = []
    served = await served_kinds(api)
    if missing is not None and not served:
        raise missing
    for kind, codec, api_version in served:
        path = f"/apis/{api_version}{scope}/{kind.plural}"
        try:
            items = await list_objects(api, path, what=kind.name, query=query)
        except NotFound:
            continue
        except Denied:
            refused.append(kind.name)
            continue
        raw += items
        for item in items:
            group = _read_group(item, codec)
            told.append(_in_our_words(item, group, api_version))
            if group is not None:
                foreign.append((kind.kind, item, group))
    return ListedGroups(
        raw=tuple(raw),
        told=tuple(sorted(told, key=_place)),
        refused=tuple(refused),
        foreign=tuple(foreign),
    )


async def find_group(
    api: ApiClient, namespace: str, name: str, *, kinds: Collection[str]
) -> tuple[str, Json] | None:
    """The kind and the object, in our words, of the group that counts under a name.

    Args:
        api: of the cluster.
        namespace: of the group.
        name: of the group.
        kinds: that are asked for; others than PodGroup and CompositePodGroup are left out.
    """
    if "PodGroup" in kinds:
        path = f"{cluster_reader.GROUP_PATH}/namespaces/{namespace}/podgroups/{quote(name)}"
        own = await cluster_reader.get_object(api, path, what=f"PodGroup {namespace}/{name}")
        if own is not None:
            return "PodGroup", own
    if not {"PodGroup", COMPOSITE} & set(kinds):
        return None
    for kind, codec, api_version in await served_kinds(api):
        if kind.kind not in kinds:
            continue
        path = f"/apis/{api_version}/namespaces/{namespace}/{kind.plural}/{quote(name)}"
        try:
            found = await cluster_reader.get_object(api, path, what=f"{kind.kind} {name}")
        except Denied:
            continue
        if found is not None:
            return kind.kind, _in_our_words(found, _read_group(found, codec), api_version)
    return None


async def served_kinds(
    api: ApiClient,
) -> list[tuple[ForeignKind, KindCodec[Any, PodGroup], str]]:
    """Kinds of other projects that the server has, each with its best group and version."""
    served = await cluster_reader.served_versions(api, [kind for kind, _ in _FOREIGN])
    return [(kind, codec, served[kind]) for kind, codec in _FOREIGN if kind in served]


def _read_group(item: Json, codec: KindCodec[Any, PodGroup]) -> PodGroup | None:
    """A group of another project; None for one that cannot be read, whatever is wrong with it."""
    try:
        return codec.entity_of(json.dumps(item).encode())
    except Exception:  # noqa: BLE001 - its conditions say it
        return None


def _in_our_words(item: Json, group: PodGroup | None, api_version: str) -> Json:
    """A group of another project with the fields and conditions that our own PodGroup has.

    One that cannot be read keeps its metadata and conditions: these say what is wrong.
    """
    status = value_at(item, "status")
    told: Json = dict(status) if isinstance(status, dict) else {}
    conditions = [
        {**each, "type": _OWN_TYPES.get(str(each.get("type")), each.get("type"))}
        for each in items_at(item, "status", "conditions")
    ]
    seen: Json = {
        "metadata": value_at(item, "metadata"),
        "spec": {},
        "status": {**told, "conditions": conditions},
        API: api_version,
    }
    if group is None:
        return seen
    seen["spec"] = {"queue": group.queue or None, "minMember": group.min_member}
    if group.native is not None and group.native.composite:
        seen["spec"] = {"queue": group.queue or None, "minGroups": group.native.min_groups}
    seen["status"]["phase"] = group.phase
    return seen


def _place(item: Json) -> tuple[str, str]:
    return str(value_at(item, "metadata", "namespace")), str(value_at(item, "metadata", "name"))


def group_of_pod(pod: Json) -> str:
    """The name of the PodGroup or Job that a pod belongs to, empty when it stands alone."""
    labels = value_at(pod, "metadata", "labels") or {}
    return pod_group_of_pod(pod) or str(labels.get(JOB_LABEL, ""))


def pod_group_of_pod(pod: Json) -> str:
    """The name of the PodGroup that a pod, or a template of pods, names; empty for none."""
    labels = value_at(pod, "metadata", "labels") or {}
    try:
        notes = msgspec.convert(
            value_at(pod, "metadata", "annotations") or {}, pod_wire.PodAnnotations
        )
    except msgspec.ValidationError:
        notes = None
    native = value_at(pod, "spec", "schedulingGroup", "podGroupName")
    return read_group_name(labels, notes, str(native or ""))


def gang_of_pod(pod: Json) -> str:
    """The gang of a pod as the daemon names it: its group's name, else its own."""
    return group_of_pod(pod) or str(value_at(pod, "metadata", "name"))
