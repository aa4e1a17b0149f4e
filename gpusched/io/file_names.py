"""What classes and fields are called in files, whatever they are called in the code.

A file that was written once is read for years, while classes get better names and move between
modules. So files never hold a Python name: a class stands there as its tag of ``TAGS``, a field as
its name of ``FIELDS``. Both are part of the format of files. A class may be renamed or moved at
will; its tag stays. ``tests/old_files`` holds files of each version that must go on being read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final, NamedTuple

import attrs
import msgspec

from gpusched.arrays.columns import NodeColumns
from gpusched.cache.gangs import Gang, Placed, Task, Terms
from gpusched.cache.queues import QueueNode, QueueTree
from gpusched.cache.residents import Residents
from gpusched.cache.snapshot import Round, Snapshot
from gpusched.config.model import Config, Cycle, LeaderElection, Placement, PluginChoice, Tier
from gpusched.objects.group import (
    Condition,
    NodePool,
    PodGroup,
    Queue,
    SubGroup,
    Topology,
    TopologyWish,
    Usage,
)
from gpusched.objects.layout import Catalogue, Layout
from gpusched.objects.meta import GangKey, ObjectKey, Owner
from gpusched.objects.move import Move, MovedTo
from gpusched.objects.node import Node
from gpusched.objects.numa import Cell, Numa
from gpusched.objects.others import DisruptionBudget, Job, JobTemplate, Namespace
from gpusched.objects.pod import Family, GangHints, Pod, PodClass, PodPhase, Refusal
from gpusched.objects.pod_terms import HostPort, PodTerm, SpreadTerm
from gpusched.objects.resources import Resources
from gpusched.objects.selector import NodeTerm, Requirement, Selector, Taint, Toleration
from gpusched.objects.share import Share
from gpusched.objects.volumes import Claim, Storage, StorageClass, Volume
from gpusched.placement.cpsat_admission import AdmissionJob, Pooled
from gpusched.placement.cpsat_several import Answer as SeveralAnswer
from gpusched.placement.cpsat_several import SeveralJob
from gpusched.placement.cpsat_victims import Answer as VictimAnswer
from gpusched.placement.cpsat_victims import VictimModel
from gpusched.placement.problem import Certificate, Outcome
from gpusched.session.reasons import Reason

TAGS: Final[dict[type[Any], str]] = {
    # the cluster
    Snapshot: "snapshot",
    NodeColumns: "node-columns",
    Round: "round",
    Residents: "residents",
    Gang: "gang",
    Task: "task",
    Placed: "placed",
    Terms: "terms",
    QueueTree: "queue-tree",
    QueueNode: "queue-node",
    # objects
    Namespace: "namespace",
    Node: "node",
    Taint: "taint",
    Layout: "layout",
    Numa: "numa",
    Cell: "cell",
    Topology: "topology",
    Queue: "queue",
    NodePool: "node-pool",
    Usage: "usage",
    PodGroup: "pod-group",
    SubGroup: "sub-group",
    TopologyWish: "topology-wish",
    Condition: "condition",
    Move: "move",
    MovedTo: "moved-to",
    Job: "job",
    JobTemplate: "job-template",
    DisruptionBudget: "disruption-budget",
    Pod: "pod",
    PodPhase: "pod-phase",
    PodClass: "pod-class",
    GangHints: "gang-hints",
    Family: "family",
    Refusal: "refusal",
    HostPort: "host-port",
    PodTerm: "pod-term",
    SpreadTerm: "spread-term",
    NodeTerm: "node-term",
    Selector: "selector",
    Requirement: "requirement",
    Toleration: "toleration",
    Share: "share",
    Storage: "storage",
    StorageClass: "storage-class",
    Volume: "volume",
    Claim: "claim",
    # what objects are made of
    GangKey: "gang-key",
    ObjectKey: "object-key",
    Owner: "owner",
    Resources: "resources",
    Reason: "reason",
    # the configuration
    Config: "config",
    Cycle: "cycle",
    LeaderElection: "leader-election",
    Placement: "placement",
    PluginChoice: "plugin-choice",
    Tier: "tier",
    Catalogue: "catalogue",
    # searches and their answers
    AdmissionJob: "admission-job",
    Pooled: "pooled",
    SeveralJob: "several-job",
    SeveralAnswer: "several-answer",
    VictimModel: "victim-model",
    VictimAnswer: "victim-answer",
    Certificate: "certificate",
    Outcome: "outcome",
}
"""The name of each class in files: chosen once, used by no other, never changed."""

CLASSES: Final = {tag: cls for cls, tag in TAGS.items()}
"""The class of each tag."""
FIELDS: Final[dict[type[Any], Mapping[str, str]]] = {}
"""Names of fields in files that are others in the code: by class, then by the name in the code."""

LATER: Final[dict[type[Any], frozenset[str]]] = {}
"""Fields of plans that came after 0.1.0, by class: a plan leaves one out while it has its default,
so that its bytes are those of before."""

_TWICE: Final = {
    "cpsat-several.answer": "several-answer",
    "cpsat-victims.answer": "victim-answer",
}
"""Tags of classes whose names stood in two modules when files held names."""
_WORD: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class Field(NamedTuple):
    """One field of a class.

    Attributes:
        name: in the code.
        written: in files.
        default: makes what it is where a file lacks it; None where a file must have it.
    """

    name: str
    written: str
    default: Callable[[], Any] | None = None


def tag_of(cls: type[Any]) -> str:
    """The tag of a class; of one that has none, such as a test's, what ``tag_in`` makes of it."""
    return TAGS.get(cls) or tag_in(cls.__qualname__)


def tag_in(name: str) -> str:
    """The tag that a name in a file stands for.

    Files of 0.1.0 held the class's name then, with or without its module before it; its words,
    in lower case and joined by hyphens, are the tag: ``gpusched.objects.pod.PodClass`` is
    ``pod-class``. A tag stands for itself.
    """
    module, _, last = name.rpartition(".")
    words = _WORD.sub("-", last).lower()
    where = module.rpartition(".")[2].replace("_", "-")
    return _TWICE.get(f"{where}.{words}", words)


def fields_of(cls: type[Any]) -> tuple[Field, ...] | None:
    """Fields of a class that holds nothing but data, in its order; None for any other."""
    if issubclass(cls, BaseException):
        return None
    found: dict[str, Callable[[], Any] | None]
    if attrs.has(cls):
        found = {each.name: _default(each.default) for each in attrs.fields(cls)}
    elif issubclass(cls, msgspec.Struct):
        found = {each.name: _struct_default(each) for each in msgspec.structs.fields(cls)}
    elif issubclass(cls, tuple) and hasattr(cls, "_fields"):
        defaults: Mapping[str, Any] = vars(cls)["_field_defaults"]
        found = {name: _default(defaults.get(name, attrs.NOTHING)) for name in cls._fields}
    else:
        return () if issubclass(cls, Enum) else None
    written = FIELDS.get(cls, {})
    return tuple(Field(name, written.get(name, name), default) for name, default in found.items())


def _default(value: Any) -> Callable[[], Any] | None:
    if value is attrs.NOTHING:
        return None
    if isinstance(value, attrs.Factory):  # type: ignore[arg-type]
        made: Callable[[], Any] = value.factory
        return None if value.takes_self else made
    return lambda: value


def _struct_default(field: msgspec.structs.FieldInfo) -> Callable[[], Any] | None:
    if field.default_factory is not msgspec.NODEFAULT:
        made: Callable[[], Any] = field.default_factory
        return made
    return _default(attrs.NOTHING if field.default is msgspec.NODEFAULT else field.default)
