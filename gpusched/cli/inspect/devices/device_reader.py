"""What the API shows of devices, for commands that print: claims of some pods, and what keeps devices from them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from gpusched.api.devices.dynamic.catalog import DeviceCatalog
from gpusched.api.devices.dynamic.decode import CODECS
from gpusched.api.foreign.kinds import DYNAMIC_DEVICE_KINDS
from gpusched.api.meta.identity import ObjectKey
from gpusched.base.classes import frozen
from gpusched.base.errors import Denied, NotFound
from gpusched.cli.inspect.cluster_reader import (
    Json,
    items_at,
    list_objects,
    served_versions,
    value_at,
)
from gpusched.io.client.api_client import ApiClient

_NAMESPACES_MAX: Final = 8
"""Namespaces whose pods are read for the names of gangs; holders in others are named by their pods."""


@frozen(kw_only=True)
class DeviceObjects:
    """Devices of a cluster.

    Attributes:
        catalog: what could be read.
        labels: of each node that takes pods, by name; empty where nodes may not be read.
        pods: of the namespaces that hold most devices.
        refused: kinds that this user may not read.
        unreadable: objects that are not understood, as ``kind name``.
    """

    catalog: DeviceCatalog
    labels: Mapping[str, Mapping[str, str]]
    pods: tuple[Json, ...] = ()
    refused: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()


def has_claims(pod: Mapping[str, Any]) -> bool:
    """Whether a pod has claims for devices, those for extended resources included."""
    return bool(
        items_at(pod, "spec", "resourceClaims")
        or value_at(pod, "status", "extendedResourceClaimStatus")
    )


async def read_devices(api: ApiClient, namespace: str = "") -> DeviceObjects:
    """Everything about devices that this user may read.

    Args:
        api: of the cluster.
        namespace: whose claims are read where those of all namespaces may not be.
    """
    served = await served_versions(api, DYNAMIC_DEVICE_KINDS.values())
    found: dict[str, list[Any]] = {}
    refused: list[str] = []
    unreadable: list[str] = []
    for kind, foreign in DYNAMIC_DEVICE_KINDS.items():
        found[kind] = []
        if foreign not in served:
            continue
        root = f"/apis/{served[foreign]}"
        items = await _list(api, f"{root}/{foreign.plural}", kind, refused)
        if items is None and foreign.namespaced and namespace:
            path = f"{root}/namespaces/{namespace}/{foreign.plural}"
            items = await _list(api, path, kind, refused)
        for item in items or ():
            try:
                found[kind].append(CODECS[kind].entity_of(json.dumps(item).encode()))
            except Exception:  # noqa: BLE001 - the daemon tells in an event what is wrong with it
                unreadable.append(f"{kind} {value_at(item, 'metadata', 'name')}")
    nodes = await _list(api, "/api/v1/nodes", "Node", refused)
    catalog = DeviceCatalog(
        slices=tuple(sorted(found["ResourceSlice"], key=lambda each: str(each.name))),
        classes={each.name: each for each in found["DeviceClass"]},
        claims={each.key: each for each in found["ResourceClaim"]},
        templates={each.key: each for each in found["ResourceClaimTemplate"]},
        taint_rules=tuple(sorted(found["DeviceTaintRule"], key=lambda each: str(each.name))),
        served=bool(served),
    )
    return DeviceObjects(
        catalog=catalog,
        labels=_labels(nodes, catalog),
        pods=tuple(await _holding_pods(api, catalog, namespace)),
        refused=tuple(dict.fromkeys(refused)),
        unreadable=tuple(unreadable),
    )


async def _list(api: ApiClient, path: str, kind: str, refused: list[str]) -> list[Json] | None:
    """Objects of a path; None, noted, where this user may not read them."""
    try:
        return await list_objects(api, path, what=kind)
    except NotFound:
        return []
    except Denied:
        refused.append(kind)
        return None


def _labels(nodes: Sequence[Json] | None, catalog: DeviceCatalog) -> dict[str, dict[str, str]]:
    """Labels of nodes that take pods; where nodes may not be read, those that slices name, without any."""
    if nodes is None:
        names = {each.reach.node for each in catalog.slices if each.reach and each.reach.node}
        return {name: {} for name in sorted(names)}
    return {
        str(value_at(node, "metadata", "name")): dict(value_at(node, "metadata", "labels") or {})
        for node in nodes
        if value_at(node, "spec", "unschedulable") is not True
    }


async def _holding_pods(api: ApiClient, catalog: DeviceCatalog, namespace: str) -> Iterable[Json]:
    """Pods of the namespaces whose claims hold most devices."""
    held = Counter({namespace: 0} if namespace else {})
    for claim in catalog.claims.values():
        if claim.allocation is not None:
            held[claim.namespace] += len(claim.allocation.devices)
    pods: list[Json] = []
    for name, _ in sorted(held.items(), key=lambda each: (-each[1], each[0]))[:_NAMESPACES_MAX]:
        pods += await _list(api, f"/api/v1/namespaces/{name}/pods", "Pod", []) or []
    return [pod for pod in pods if has_claims(pod)]


def claim_keys(pod: Mapping[str, Any]) -> dict[str, ObjectKey | None]:
    """Claims of a pod by its names for them; None for those that are not made yet."""
    namespace = str(value_at(pod, "metadata", "namespace") or "")
    generated = {
        str(each.get("name")): each.get("resourceClaimName")
        for each in items_at(pod, "status", "resourceClaimStatuses")
    }
    found: dict[str, ObjectKey | None] = {}
    for each in items_at(pod, "spec", "resourceClaims"):
        name = str(each.get("name"))
        if each.get("resourceClaimName"):
            found[name] = ObjectKey(namespace, str(each["resourceClaimName"]))
        elif name not in generated:
            found[name] = None
        elif generated[name]:
            found[name] = ObjectKey(namespace, str(generated[name]))
    extended = value_at(pod, "status", "extendedResourceClaimStatus", "resourceClaimName")
    if extended:
        found["(extended)"] = ObjectKey(namespace, str(extended))
    return found
