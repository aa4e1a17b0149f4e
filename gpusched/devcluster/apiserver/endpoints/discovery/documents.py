"""Discovery: what is served, in the plain and in the aggregated form."""

from __future__ import annotations

import base64
import hashlib
from typing import Any, Final

from gpusched.devcluster.registry.kinds import Registry, Resource

Obj = dict[str, Any]

VERSION: Final[Obj] = {
    "major": "1",
    "minor": "36",
    "emulationMajor": "1",
    "emulationMinor": "36",
    "minCompatibilityMajor": "1",
    "minCompatibilityMinor": "35",
    "gitVersion": "v1.36.2+gpusched-devcluster",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "gc",
    "platform": "linux/amd64",
}
"""The version whose behaviour is served; the suffix says that this is not it."""

AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


def wants_aggregated(accept: str) -> bool:
    """Tell whether an Accept header asks for the aggregated form of version v2."""
    for part in accept.replace(" ", "").split(","):
        wanted = set(part.split(";"))
        if {"as=APIGroupDiscoveryList", "v=v2", "g=apidiscovery.k8s.io"} <= wanted:
            return True
    return False


def api_versions(address: str) -> Obj:
    """Return the body of ``/api``."""
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    }


def _versions(registry: Registry) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for resource in registry.resources():
        versions = found.setdefault(resource.group, [])
        if resource.version not in versions:
            versions.append(resource.version)
    return found


def _group(name: str, versions: list[str]) -> Obj:
    entries = [{"groupVersion": f"{name}/{v}", "version": v} for v in versions]
    return {"name": name, "versions": entries, "preferredVersion": entries[0]}


def group_list(registry: Registry) -> Obj:
    """Return the body of ``/apis``."""
    groups = [_group(g, v) for g, v in _versions(registry).items() if g]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def one_group(registry: Registry, group: str) -> Obj | None:
    """Return the body of ``/apis/GROUP``, or None when the group is unknown."""
    versions = _versions(registry).get(group)
    if not versions or not group:
        return None
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(group, versions)}


def resource_list(registry: Registry, group: str, version: str) -> Obj:
    """Return the body of ``/api/v1`` or ``/apis/GROUP/VERSION``."""
    entries: list[Obj] = []
    for resource in registry.resources():
        if resource.group == group and resource.version == version:
            entries += _plain_entries(resource)
    body: Obj = {"kind": "APIResourceList"}
    if group:
        body["apiVersion"] = "v1"
    body["groupVersion"] = f"{group}/{version}" if group else version
    body["resources"] = entries
    return body


def _plain_entries(resource: Resource) -> list[Obj]:
    entry: Obj = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    if "watch" in resource.verbs:
        entry["storageVersionHash"] = _hash(resource)
    entries = [entry]
    for sub in resource.subresources:
        kind = sub["responseKind"]
        item: Obj = {
            "name": f"{resource.plural}/{sub['subresource']}",
            "singularName": "",
            "namespaced": resource.namespaced,
        }
        if kind.get("group") and kind["group"] != resource.group:
            item["group"] = kind["group"]
            item["version"] = kind["version"]
        item["kind"] = kind["kind"]
        item["verbs"] = sub["verbs"]
        entries.append(item)
    return entries


def _hash(resource: Resource) -> str:
    text = f"{resource.group}/{resource.version}/{resource.kind}"
    return base64.b64encode(hashlib.sha256(text.encode()).digest()[:8]).decode()


def aggregated(registry: Registry, *, core: bool) -> Obj:
    """Return the aggregated form of ``/api`` (core) or ``/apis``."""
    items = []
    for group, versions in _versions(registry).items():
        if bool(group) == core:
            continue
        item: Obj = {"metadata": {"name": group} if group else {}, "versions": []}
        for version in versions:
            entries = [
                _aggregated_entry(r)
                for r in registry.resources()
                if r.group == group and r.version == version
            ]
            item["versions"].append(
                {"version": version, "resources": entries, "freshness": "Current"}
            )
        items.append(item)
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    }


def _aggregated_entry(resource: Resource) -> Obj:
    custom = resource.custom is not None
    entry: Obj = {
        "resource": resource.plural,
        "responseKind": {
            "group": resource.group if custom else "",
            "version": resource.version if custom else "",
            "kind": resource.kind,
        },
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    if resource.subresources:
        entry["subresources"] = list(resource.subresources)
    return entry
