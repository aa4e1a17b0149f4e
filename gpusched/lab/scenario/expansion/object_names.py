"""Everything that a scenario makes in its life, by name, and what its objects refer to."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from typing import Any, Final, TypeAlias

import attrs

from gpusched.base.classes import define, frozen
from gpusched.devcluster.registry.kinds import discovery_data
from gpusched.lab.scenario.model.scenario import (
    CLASS_LABEL,
    DeleteAct,
    Manifest,
    Obj,
    SourceLocation,
    Target,
)
from gpusched.topology.levels import WELL_KNOWN

Key: TypeAlias = tuple[str, str, str]
"""Kind, namespace (empty where the object has none and its kind needs none), name."""
UNCHECKED: Final = "scenario.gpusched.io/unchecked"
"""Annotation of an object: what it names need not exist."""
CHILDLESS: Final = frozenset({"Job", "PodGroup", "Queue", "Topology", "Deployment", "Node",
    "Reservation", "PriorityClass", "Pod", "Namespace", "ConfigMap", "Secret", "Service", "ServiceAccount",
    "PodDisruptionBudget", "ResourceQuota", "LimitRange", "PersistentVolume", "StorageClass",
    "PersistentVolumeClaim", "ReplicaSet", "StatefulSet", "DaemonSet", "Event", "Lease",
    "CustomResourceDefinition", "ResourceSlice", "DeviceClass", "ResourceClaim", "Stage",
    "ResourceClaimTemplate", "RuntimeClass", "ClusterRole", "ClusterRoleBinding", "Role",
    "RoleBinding", "NodeResourceTopology", "NetworkPolicy"})  # fmt: skip
"""Kinds of which nothing makes further workloads."""
CLUSTER_SCOPED: Final = frozenset(
    {"Node", "Queue", "Topology", "Reservation", "PriorityClass", "Namespace"}
)
WRITTEN: Final = frozenset({"Job", "PodGroup", "Queue", "Topology", "Deployment", "Node",
    "Reservation", "PriorityClass"})  # fmt: skip
"""Kinds whose objects come out of the files alone, so that a name can be looked up there."""
WORKLOADS: Final = ("Job", "PodGroup", "Deployment", "Pod")
_OURS: Final = ("Queue", "PodGroup", "Topology", "Reservation", "Stage", "NodePool")
_BUILT_IN_QUEUES: Final = ("root", "default")
_BUILT_IN_CLASSES: Final = (
    "system-cluster-critical", "system-node-critical", "gpusched-scheduler",
)  # fmt: skip
_QUEUE_LABEL: Final = "gpusched.io/queue"
_TOPOLOGY: Final = ("gpusched.io/topology-required", "gpusched.io/topology-preferred")


@cache
def built_in_kinds() -> frozenset[str]:
    """Kinds of the Kubernetes API and of this project."""
    data = discovery_data()
    resources = (
        resource
        for part in data.values()
        for group in part["items"]
        for version in group["versions"]
        for resource in version["resources"]
    )
    return frozenset(each["responseKind"]["kind"] for each in resources) | frozenset(_OURS)


@frozen
class NameReference:
    """A name that an object mentions: of a ``queue``, a ``priority`` or a ``level``."""

    what: str
    name: str


@define
class ObjectNames:
    """What is made, from the beginning or later.

    Attributes:
        made: where each object was first made.
        prefixes: of ``generateName``, by kind.
        classes: values of the label by which waits are told apart.
        levels: names and labels of topology.
        open: whether a controller may make workloads that no file names.
    """

    made: dict[Key, SourceLocation] = attrs.field(factory=dict)
    prefixes: dict[str, set[str]] = attrs.field(factory=dict)
    classes: set[str] = attrs.field(factory=set)
    levels: set[str] = attrs.field(factory=lambda: {name for name, _ in WELL_KNOWN} | {"node"})
    node_labels: list[Mapping[str, str]] = attrs.field(factory=list)
    kinds: set[str] = attrs.field(factory=set)
    open: bool = False

    def add(self, manifest: Manifest) -> SourceLocation | None:
        """Note an object; the place of another of the same name that was there before."""
        obj = manifest.obj
        kind, metadata = obj["kind"], mapping_or_empty(obj.get("metadata"))
        self.kinds.add(kind)
        if kind == "CustomResourceDefinition":
            names = mapping_or_empty(mapping_or_empty(obj.get("spec")).get("names"))
            self.kinds.add(names.get("kind", ""))
        self.open = self.open or kind not in CHILDLESS
        self._note(kind, obj, metadata)
        name = metadata.get("name")
        if not name:
            self.prefixes.setdefault(kind, set()).add(metadata.get("generateName", ""))
            return None
        key = (kind, namespace_of(obj), str(name))
        first = self.made.get(key)
        self.made.setdefault(key, manifest.place)
        return first

    def _note(self, kind: str, obj: Obj, metadata: Mapping[str, Any]) -> None:
        labels = mapping_or_empty(metadata.get("labels"))
        if kind == "Node":
            self.node_labels.append(labels)
            self.levels.update(labels)
        elif kind == "Topology":
            for level in _mappings(mapping_or_empty(obj.get("spec")).get("levels")):
                self.levels.update((str(level.get("name")), str(level.get("nodeLabel"))))
        for each in (labels, mapping_or_empty(_template(obj).get("labels"))):
            if CLASS_LABEL in each:
                self.classes.add(each[CLASS_LABEL])

    def names(self, kind: str) -> list[str]:
        """Names of the objects of a kind, in order."""
        return sorted({name for made, _, name in self.made if made == kind})

    def queues(self) -> list[str]:
        """Names of queues that jobs may name."""
        return [*self.names("Queue"), *_BUILT_IN_QUEUES]

    def priorities(self) -> list[str]:
        """Names of priority classes."""
        return [*self.names("PriorityClass"), *_BUILT_IN_CLASSES]

    def has(self, target: Target, kinds: tuple[str, ...] = ()) -> bool:
        """Whether something of a target is ever made."""
        wanted = kinds or (target.kind,)
        if "*" not in target.name and target.name and "*" not in target.namespace:
            for kind in wanted:
                place = "" if kind in CLUSTER_SCOPED else target.namespace
                if (kind, place, target.name) in self.made:
                    return True
        found = any(
            kind in wanted and pattern_matches(target.name, name) and _near(target.namespace, place)
            for kind, place, name in self.made
        )
        return found or any(
            pattern_matches(target.name, prefix + "x")
            for kind in wanted
            for prefix in self.prefixes.get(kind, ())
        )


def namespace_of(obj: Obj) -> str:
    """Where an object goes; empty for kinds without namespaces."""
    if obj["kind"] in CLUSTER_SCOPED:
        return ""
    return str(mapping_or_empty(obj.get("metadata")).get("namespace") or "default")


def _near(wanted: str, place: str) -> bool:
    return not place or pattern_matches(wanted, place)


def pattern_matches(pattern: str, name: str) -> bool:
    """Whether a name is meant by a pattern; an empty one means all."""
    if not pattern or pattern == name:
        return True
    return "*" in pattern and _regex(pattern).fullmatch(name) is not None


@lru_cache(maxsize=1024)
def _regex(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, pattern.split("*"))))


def _template(obj: Obj) -> Mapping[str, Any]:
    return mapping_or_empty(
        mapping_or_empty(mapping_or_empty(obj.get("spec")).get("template")).get("metadata")
    )


def mapping_or_empty(value: Any) -> Mapping[str, Any]:
    """A mapping of a manifest, empty where something else stands: the server will refuse that."""
    return value if isinstance(value, dict) else {}


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


# -- what objects refer to ---------------------------------------------------------------------
def name_references(obj: Obj) -> Iterator[NameReference]:
    """Names of queues, priority classes and levels that an object mentions."""
    metadata, spec = mapping_or_empty(obj.get("metadata")), mapping_or_empty(obj.get("spec"))
    if mapping_or_empty(metadata.get("annotations")).get(UNCHECKED) == "true":
        return
    for each in (metadata, _template(obj)):
        if queue := mapping_or_empty(each.get("labels")).get(_QUEUE_LABEL):
            yield NameReference("queue", str(queue))
        for key in _TOPOLOGY:
            if level := mapping_or_empty(each.get("annotations")).get(key):
                yield NameReference("level", str(level))
    inner = (
        mapping_or_empty(mapping_or_empty(spec["template"]).get("spec"))
        if "template" in spec
        else spec
    )
    if name := inner.get("priorityClassName"):
        yield NameReference("priority", str(name))
    if obj["kind"] == "PodGroup":
        yield from _of_group(spec)
    elif obj["kind"] == "Queue" and spec.get("parent"):
        yield NameReference("queue", str(spec["parent"]))


def _of_group(spec: Mapping[str, Any]) -> Iterator[NameReference]:
    if queue := spec.get("queue"):
        yield NameReference("queue", str(queue))
    for holder in (spec, *_mappings(spec.get("subGroups"))):
        wish = mapping_or_empty(holder.get("topology"))
        for key in ("required", "preferred"):
            if level := wish.get(key):
                yield NameReference("level", str(level))


@define
class Deletions:
    """What was deleted up to now, so that its name is free again."""

    _targets: set[tuple[str, str, str]] = attrs.field(factory=set)
    _patterns: list[Target] = attrs.field(factory=list)

    def add(self, act: DeleteAct) -> None:
        """Note that an act deletes its target."""
        target = act.target
        if target.name and "*" not in target.name + target.namespace:
            self._targets.add((target.kind, target.namespace, target.name))
        elif target not in self._patterns:
            self._patterns.append(target)

    def cover(self, key: Key) -> bool:
        """Whether an object of this name may be gone."""
        kind, namespace, name = key
        return key in self._targets or any(
            target.kind == kind
            and pattern_matches(target.name, name)
            and _near(target.namespace, namespace)
            for target in self._patterns
        )
