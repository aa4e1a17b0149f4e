"""Which kinds this server serves: built-ins from the shipped discovery data, customs at run time.

A built-in kind is in one of three places. ``SERVED``: it can be written, with all that a write
stands for. ``UNSERVED``: its group version is unknown to clients and answers 501. Every other one
is only read: it stands in discovery and its lists are empty, which is true, since creating one
answers 501. So clients that watch many kinds work, and nothing is accepted without its effect.
"""

from __future__ import annotations

import functools
import gzip
from collections.abc import Callable, Mapping
from importlib import resources
from types import MappingProxyType
from typing import Any, Final

import msgspec

from gpusched.base.classes import frozen
from gpusched.devcluster.apimachinery.selectors import field_reader
from gpusched.devcluster.apimachinery.status import qualified
from gpusched.devcluster.registry.custom.kind import CustomKind
from gpusched.devcluster.registry.gangs.features import GangFeatures
from gpusched.devcluster.registry.gangs.kinds import GROUP, gang_kinds
from gpusched.devcluster.registry.strategy import Strategy

Obj = dict[str, Any]

_DEVICES: Final = frozenset(
    {"deviceclasses", "resourceclaims", "resourceclaimtemplates", "resourceslices"}
)
SERVED: Final[Mapping[str, frozenset[str]]] = {
    "v1": frozenset(
        {
            "bindings",
            "configmaps",
            "endpoints",
            "events",
            "limitranges",
            "namespaces",
            "nodes",
            "persistentvolumeclaims",
            "persistentvolumes",
            "pods",
            "podtemplates",
            "resourcequotas",
            "secrets",
            "serviceaccounts",
            "services",
        }
    ),
    "admissionregistration.k8s.io/v1": frozenset(
        {
            "mutatingadmissionpolicies",
            "mutatingadmissionpolicybindings",
            "validatingadmissionpolicies",
            "validatingadmissionpolicybindings",
        }
    ),
    "apiextensions.k8s.io/v1": frozenset({"customresourcedefinitions"}),
    "apps/v1": frozenset({"controllerrevisions", "deployments", "replicasets", "statefulsets"}),
    "authentication.k8s.io/v1": frozenset({"selfsubjectreviews", "tokenreviews"}),
    "authorization.k8s.io/v1": frozenset(
        {
            "localsubjectaccessreviews",
            "selfsubjectaccessreviews",
            "selfsubjectrulesreviews",
            "subjectaccessreviews",
        }
    ),
    "batch/v1": frozenset({"jobs"}),
    "coordination.k8s.io/v1": frozenset({"leases"}),
    "events.k8s.io/v1": frozenset({"events"}),
    "networking.k8s.io/v1": frozenset({"networkpolicies"}),
    "policy/v1": frozenset({"poddisruptionbudgets"}),
    "rbac.authorization.k8s.io/v1": frozenset(
        {"clusterrolebindings", "clusterroles", "rolebindings", "roles"}
    ),
    **{f"resource.k8s.io/{version}": _DEVICES for version in ("v1", "v1beta2", "v1beta1")},
    "scheduling.k8s.io/v1": frozenset({"priorityclasses"}),
    "storage.k8s.io/v1": frozenset(
        {
            "csidrivers",
            "csinodes",
            "csistoragecapacities",
            "storageclasses",
            "volumeattributesclasses",
        }
    ),
}
"""Group versions and the plurals that can be written; customs apart."""

UNSERVED: Final[Mapping[str, frozenset[str] | None]] = {"storage.k8s.io/v1beta1": None}
"""Older forms of kinds that are served in their newest: all (None) or some of a group version.

They would have to show the same objects, and no schema of them is at hand.
"""

SUBRESOURCES: Final[Mapping[str, frozenset[str]]] = {
    "pods": frozenset({"binding", "eviction", "log", "status"}),
    "nodes": frozenset({"status"}),
    "namespaces": frozenset({"finalize", "status"}),
    "resourcequotas": frozenset({"status"}),
    "serviceaccounts": frozenset({"token"}),
    "jobs": frozenset({"status"}),
    "deployments": frozenset({"scale", "status"}),
    "replicasets": frozenset({"scale", "status"}),
    "statefulsets": frozenset({"scale", "status"}),
    "poddisruptionbudgets": frozenset({"status"}),
    "customresourcedefinitions": frozenset({"status"}),
    "persistentvolumeclaims": frozenset({"status"}),
    "persistentvolumes": frozenset({"status"}),
    "resourceclaims": frozenset({"status"}),
    "services": frozenset({"status"}),
    "validatingadmissionpolicies": frozenset({"status"}),
}

_NAME_AND_NAMESPACE: Final = ("metadata.name", "metadata.namespace")
_EVENT_FIELDS: Final = (
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "type",
)
_SELECTABLE: Final[Mapping[str, tuple[str, ...]]] = {
    "pods": (
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ),
    "nodes": ("spec.unschedulable",),
    "namespaces": ("status.phase",),
    "secrets": ("type",),
    "jobs": ("status.successful",),
    "events": _EVENT_FIELDS,
    "services": ("spec.clusterIP", "spec.type"),
    "resourceslices": ("spec.driver", "spec.nodeName"),
}
_DEFAULT_READ: Final = {"spec.unschedulable": "false", "status.successful": "0"}


@frozen(slots=True, eq=False)
class Resource:
    """One served resource of one group version.

    Attributes:
        storage: name of the collection; two versions of one kind share it.
        fields: readers of the fields that a field selector may name.
        custom: what its CustomResourceDefinition says; None for built-ins.
        only_read: whether writing one answers 501; but for API services there are none then.
        effective: subresources that do what their name says; the others answer 501.
        edition: the release whose schema is served; empty for the one that all others are of.
    """

    group: str
    version: str
    plural: str
    singular: str
    kind: str
    namespaced: bool
    verbs: tuple[str, ...]
    storage: str
    strategy: Strategy
    fields: Mapping[str, Callable[[Obj], str]]
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[Obj, ...] = ()
    custom: CustomKind | None = None
    list_kind: str = ""
    only_read: bool = False
    effective: frozenset[str] | None = None
    edition: str = ""

    @property
    def api_version(self) -> str:
        """Return group and version, such as ``v1`` or ``batch/v1``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """Return plural and group, such as ``pods`` or ``jobs.batch``."""
        return qualified(self.plural, self.group)

    @property
    def error_group(self) -> str:
        """Group that field errors name: events have one kind for both of their groups."""
        return "" if self.storage == "events" else self.group

    def has(self, subresource: str) -> bool:
        """Tell whether a subresource is served."""
        return self.offers(subresource) and (
            self.effective is None or subresource in self.effective
        )

    def offers(self, subresource: str) -> bool:
        """Tell whether discovery names a subresource, served or not."""
        return any(s["subresource"] == subresource for s in self.subresources)

    def key(self, namespace: str, name: str) -> str:
        """Return the storage key of an object."""
        return f"{namespace}/{name}" if self.namespaced else name


@functools.cache
def selectable(plural: str, *, namespaced: bool) -> Mapping[str, Callable[[Obj], str]]:
    """Return the readers of a built-in's selectable fields."""
    paths = _NAME_AND_NAMESPACE if namespaced else ("metadata.name",)
    readers = {path: field_reader(path) for path in (*paths, *_SELECTABLE.get(plural, ()))}
    for path, fallback in _DEFAULT_READ.items():
        if path in readers:
            readers[path] = _or_else(readers[path], fallback)
    if plural == "jobs":
        readers["status.successful"] = _or_else(field_reader("status.succeeded"), "0")
    return MappingProxyType(readers)


def _or_else(read: Callable[[Obj], str], fallback: str) -> Callable[[Obj], str]:
    return lambda obj: read(obj) or fallback


@functools.cache
def discovery_data() -> Mapping[str, Any]:
    """Return the recorded aggregated discovery, not to be changed: ``core`` and ``groups``."""
    packed = resources.files("gpusched.devcluster").joinpath("data/discovery.json.gz").read_bytes()
    data: Obj = msgspec.json.decode(gzip.decompress(packed))
    return data


class Registry:
    """The served resources, by path and by qualified plural; customs come and go."""

    def __init__(self) -> None:
        self._by_path: dict[tuple[str, str, str], Resource] = {}
        self._by_name: dict[str, Resource] = {}
        self.unsupported: dict[tuple[str, str, str], str] = {}
        self.generation = 0

    def add(self, resource: Resource) -> None:
        """Serve a resource; of a built-in's versions the first is the one that names it."""
        self._by_path[resource.group, resource.version, resource.plural] = resource
        if resource.custom is not None or resource.qualified not in self._by_name:
            self._by_name[resource.qualified] = resource
        self.generation += 1

    def remove(self, group: str, plural: str) -> None:
        """Stop serving every version of a resource."""
        for path in [p for p in self._by_path if p[0] == group and p[2] == plural]:
            del self._by_path[path]
        self._by_name.pop(qualified(plural, group), None)
        self.generation += 1

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        """Return the resource at a path."""
        return self._by_path.get((group, version, plural))

    def named(self, name: str) -> Resource:
        """Return a resource by qualified plural; KeyError when it is not served."""
        return self._by_name[name]

    def by_kind(self, api_version: str, kind: str) -> Resource | None:
        """Return the resource of a kind."""
        for resource in self._by_path.values():
            if resource.kind == kind and resource.api_version == api_version:
                return resource
        return None

    def has_version(self, group: str, version: str) -> bool:
        """Tell whether anything of a group version is served."""
        return any(p[0] == group and p[1] == version for p in self._by_path)

    def resources(self) -> list[Resource]:
        """Return all served resources in order of registration."""
        return list(self._by_path.values())


def load_builtins(
    registry: Registry,
    strategy_of: Callable[[str], Strategy],
    *,
    editions: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Fill a registry from the shipped discovery data.

    Args:
        registry: gets the kinds.
        strategy_of: gives the strategy of a plural.
        editions: the release whose schemas count, by group version.
    """
    data = discovery_data()
    for item in [*data["core"]["items"], *data["groups"]["items"]]:
        group = item["metadata"].get("name", "")
        for version in item["versions"]:
            _load_version(registry, group, version, strategy_of=strategy_of, editions=editions)


def _load_version(
    registry: Registry,
    group: str,
    version: Obj,
    *,
    strategy_of: Callable[[str], Strategy],
    editions: Mapping[str, str],
) -> None:
    api_version = f"{group}/{version['version']}" if group else version["version"]
    written = SERVED.get(api_version, frozenset())
    unserved = UNSERVED.get(api_version, frozenset())
    for entry in version["resources"]:
        plural = entry["resource"]
        if unserved is None or plural in unserved:
            registry.unsupported[group, version["version"], plural] = qualified(plural, group)
            continue
        namespaced = entry["scope"] == "Namespaced"
        registry.add(
            Resource(
                group=group,
                version=version["version"],
                plural=plural,
                singular=entry["singularResource"],
                kind=entry["responseKind"]["kind"],
                namespaced=namespaced,
                verbs=tuple(entry["verbs"]),
                storage="events" if plural == "events" else qualified(plural, group),
                strategy=strategy_of(
                    # The two groups of events share a store but not their rules.
                    qualified(plural, group) if plural == "events" else plural
                ),
                fields=selectable(plural, namespaced=namespaced),
                short_names=tuple(entry.get("shortNames", ())),
                categories=tuple(entry.get("categories", ())),
                subresources=tuple(entry.get("subresources", ())),
                list_kind=entry["responseKind"]["kind"] + "List",
                only_read=plural not in written,
                effective=SUBRESOURCES.get(plural, frozenset()),
                edition=editions.get(api_version, ""),
            )
        )


def load_gangs(registry: Registry, features: GangFeatures) -> None:
    """Add Kubernetes' own gangs to a registry, as far as their gates are open."""
    for served in gang_kinds(features):
        registry.add(
            Resource(
                group=GROUP,
                version=served.version,
                plural=served.plural,
                singular=served.kind.lower(),
                kind=served.kind,
                namespaced=True,
                verbs=served.verbs,
                storage=qualified(served.plural, GROUP),
                strategy=served.strategy,
                fields=selectable(served.plural, namespaced=True),
                subresources=served.subresources,
                list_kind=f"{served.kind}List",
                effective=frozenset({"status"} if served.has_status else ()),
            )
        )
