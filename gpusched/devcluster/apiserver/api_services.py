"""The list of served group versions as APIService objects, as ``kubectl get apiservices`` shows it.

All of them are local: this server aggregates no others, so the objects can only be read.
"""

from __future__ import annotations

from typing import Any, Final

from gpusched.devcluster.apiserver.server_state import ServerState
from gpusched.devcluster.apiserver.writing import verbs
from gpusched.devcluster.apiserver.writing.verbs import WriteOptions

Obj = dict[str, Any]

RESOURCE: Final = "apiservices.apiregistration.k8s.io"
_MANAGED: Final = "kube-aggregator.kubernetes.io/automanaged"
_PRIORITIES: Final = {
    "": 18000,
    "apps": 17800,
    "events.k8s.io": 17750,
    "authentication.k8s.io": 17700,
    "authorization.k8s.io": 17600,
    "autoscaling": 17500,
    "batch": 17400,
    "networking.k8s.io": 17200,
    "policy": 17100,
    "rbac.authorization.k8s.io": 17000,
    "storage.k8s.io": 16800,
    "apiextensions.k8s.io": 16700,
    "admissionregistration.k8s.io": 16700,
    "scheduling.k8s.io": 16600,
    "coordination.k8s.io": 16500,
    "discovery.k8s.io": 16200,
    "resource.k8s.io": 15900,
}
"""Order of the built-in groups among each other; custom ones come after all of them."""
_CUSTOM_PRIORITY: Final = 1000
_VERSIONS: Final = {"v2": 30, "v1": 15}
_GANG_VERSIONS: Final = {"v1alpha2": 2, "v1alpha3": 3}
"""Priorities of the versions in which gangs are served, beside ``_OTHER_VERSION``."""
_OTHER_VERSION: Final = 9
_CUSTOM_VERSION: Final = 100
_REGISTRATION: Final = "apiregistration.k8s.io"
"""The group of these objects has no such object itself."""


def sync_api_services(core: ServerState) -> None:
    """Create and remove stored objects until they name what is served now."""
    wanted: dict[str, Obj] = {}
    for resource in core.registry.resources():
        if resource.group != _REGISTRATION:
            name = f"{resource.version}.{resource.group}"
            custom = resource.custom is not None
            wanted.setdefault(name, _spec(resource.group, resource.version, custom=custom))
    collection = core.store.collection(RESOURCE)
    for name, _ in list(collection.scan()):
        if name not in wanted:
            collection.remove(name)
    for name, spec in wanted.items():
        if collection.get(name) is None:
            _create(core, name, spec)


def _spec(group: str, version: str, *, custom: bool) -> Obj:
    spec: Obj = {"group": group} if group else {}
    spec["version"] = version
    spec["groupPriorityMinimum"] = _CUSTOM_PRIORITY if custom else _PRIORITIES[group]
    if custom:
        return {**spec, "versionPriority": _CUSTOM_VERSION}
    priority = _VERSIONS.get(version, _OTHER_VERSION)
    if group == "scheduling.k8s.io":
        priority = _GANG_VERSIONS.get(version, priority)
    return {**spec, "versionPriority": priority if group else 1}


def _create(core: ServerState, name: str, spec: Obj) -> None:
    managed = "true" if spec["groupPriorityMinimum"] == _CUSTOM_PRIORITY else "onstart"
    available = {
        "type": "Available",
        "status": "True",
        "lastTransitionTime": core.time_text(),
        "reason": "Local",
        "message": "Local APIServices are always available",
    }
    obj = {
        "kind": "APIService",
        "apiVersion": f"{_REGISTRATION}/v1",
        "metadata": {"name": name, "labels": {_MANAGED: managed}},
        "spec": spec,
        "status": {"conditions": [available]},
    }
    verbs.create_object(
        core, core.registry.named(RESOURCE), namespace="", obj=obj, options=WriteOptions()
    )
