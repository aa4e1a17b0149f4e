"""What this server refuses to pretend: fields answered 501, fields kept without any effect.

Whole resources stand in ``kinds``: ``UNSERVED``, or absent from ``SERVED``. One list drives the answers, the
features endpoint and its test.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from gpusched.devcluster.apimachinery import status
from gpusched.devcluster.registry.kinds import Registry

Obj = dict[str, Any]

FIELDS: Final[Mapping[str, Mapping[str, str]]] = {
    "pods": {
        "spec.ephemeralContainers": "ephemeral containers",
    },
    "customresourcedefinitions.apiextensions.k8s.io": {
        "spec.conversion.webhook": "conversion webhooks",
    },
}
"""By storage name: fields whose presence is refused, and the feature they ask for."""

INERT: Final[tuple[str, ...]] = (
    "pods: volumes, probes, lifecycle hooks, images, environment, security contexts, DNS",
    "pods/log: always empty",
    "secrets: stored, and used by nobody",
    "services: addresses and node ports are given out; no traffic, load balancers or endpoints",
    "endpoints: stored as written; nobody keeps them",
    "networkpolicies: stored; there is no traffic",
    (
        "persistentvolumes and their claims: stay Pending until a client writes their status; they "
        "carry no protecting finalizers, and pods do not wait for them"
    ),
    (
        "storageclasses, csidrivers, csinodes, csistoragecapacities, volumeattributesclasses: stored; "
        "no volumes are made (the default class is filled into new claims)"
    ),
    "podtemplates and controllerrevisions: stored as written",
    (
        "deviceclasses and resourceslices: stored, for the scheduler to read; no driver prepares "
        "devices"
    ),
)
"""What is accepted and stored, but has no effect."""


def refuse_unsupported(storage: str, obj: Obj, old: Obj | None = None) -> None:
    """Raise StatusError 501 for the first unsupported field that a write brings in."""
    for path, feature in FIELDS.get(storage, {}).items():
        keys = path.split(".")
        value = _value_at_keys(obj, keys)
        if value is not None and (old is None or _value_at_keys(old, keys) != value):
            raise status.not_implemented(feature, field=path)


def _value_at_keys(value: Any, keys: list[str]) -> Any:
    for key in keys:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value


def unsupported_features(registry: Registry) -> Obj:
    """Return what is refused and what is inert, for people and for tests.

    ``onlyRead`` are resources that can be listed and watched but not written,
    ``refusedResources`` those of which not even discovery tells.
    """
    builtin = [r for r in registry.resources() if r.custom is None]
    return {
        "onlyRead": sorted(
            _versioned(r.group, r.version, r.plural) for r in builtin if r.only_read
        ),
        "refusedResources": sorted(_versioned(*path) for path in registry.unsupported),
        "refusedSubresources": sorted(
            f"{_versioned(r.group, r.version, r.plural)}/{s['subresource']}"
            for r in builtin
            for s in r.subresources
            if not r.only_read and not r.has(s["subresource"])
        ),
        "refusedFields": list(_fields()),
        "inert": list(INERT),
    }


def _versioned(group: str, version: str, plural: str) -> str:
    return f"{plural}.{group}/{version}" if group else plural


def _fields() -> Iterator[Obj]:
    for storage, fields in FIELDS.items():
        for path, feature in fields.items():
            yield {"resource": storage, "field": path, "feature": feature}
