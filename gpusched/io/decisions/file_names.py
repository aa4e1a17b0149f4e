"""What classes and fields are called in files, whatever they are called in the code.

A file that was written once is read for years, while classes get better names and move between
modules. So files never hold a Python name: a class stands there as its tag of ``TAGS``, a field as
its name of ``FIELDS``. Both are part of the format of files. A class may be renamed or moved at
will; its tag stays. ``tests/shipped/old_files`` holds files of each version that must go on being read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final, NamedTuple

import attrs
import msgspec

from gpusched.api.affinity.pod_terms import HostPort, PodTerm, SpreadTerm
from gpusched.api.affinity.selector import NodeTerm, Requirement, Selector, Taint, Toleration
from gpusched.api.devices.device_match import DeviceMatchRequest
from gpusched.api.devices.dynamic.catalog import DeviceCatalog
from gpusched.api.devices.dynamic.claims import (
    AllocatedConfig,
    AllocatedDevice,
    AllocationMode,
    ClaimAllocation,
    ClaimConsumer,
    ClaimGroup,
    DeviceClaimSpec,
    DeviceClass,
    DeviceCondition,
    DeviceConstraint,
    DeviceRequest,
    DeviceToleration,
    ExtendedRequest,
    OpaqueConfig,
    PodClaim,
    RequestAlternatives,
    ResourceClaim,
    ResourceClaimTemplate,
)
from gpusched.api.devices.dynamic.slices import (
    CapacityPolicy,
    CounterSet,
    Device,
    DeviceCapacity,
    DeviceTaint,
    DeviceTaintRule,
    NodeReach,
    ResourceSlice,
    Version,
)
from gpusched.api.devices.gpu_layout import GpuLayout, GpuLayoutCatalog
from gpusched.api.devices.gpu_share import GpuShare
from gpusched.api.devices.gpu_types import GpuTypeRequest
from gpusched.api.devices.numa import NumaNode, NumaTopology
from gpusched.api.gang.charge_record import ChargeRecord
from gpusched.api.gang.eviction_record import GangEvictions, PastEviction
from gpusched.api.gang.move_record import MoveRecord, MoveTarget
from gpusched.api.gang.native_terms import NativeTerms
from gpusched.api.gang.pod_group import GangTerms, PodGroup, SubGroup, TopologyRequest
from gpusched.api.gang.turn_record import TurnRecord
from gpusched.api.jobs.job import Job, JobTemplate
from gpusched.api.jobs.job_failures import EvictionWarning
from gpusched.api.meta.gpu_resources import DeviceQuota, GpuResource, GpuResources
from gpusched.api.meta.identity import Creator, GangKey, ObjectKey, Owner
from gpusched.api.meta.resources import Resources
from gpusched.api.meta.status import Condition
from gpusched.api.node.node import Node
from gpusched.api.pod.pod import (
    GangAnnotations,
    GangMembership,
    KubeletRefusal,
    Pod,
    PodClass,
    PodPhase,
)
from gpusched.api.policy.kinds import DisruptionBudget, Namespace, Topology
from gpusched.api.policy.reservation import AdvanceReservation, ReservationWindow
from gpusched.api.queue.budget import Budget, BudgetRecord, GpuHold
from gpusched.api.queue.queue import NodePool, Queue, QueueShardRow, QueueUsage
from gpusched.api.queue.start_errors import StartErrors, StartKnownBy, StartTally
from gpusched.api.queue.user_limits import UserLimit, UserLimits
from gpusched.api.volumes.volume import (
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeCatalog,
)
from gpusched.arrays.columns import NodeColumns
from gpusched.cache.gangs.counting.waiting_elsewhere import WaitingElsewhere
from gpusched.cache.gangs.gang import Gang, Placed, PodSet
from gpusched.cache.nodes.pods_by_node import NodePods
from gpusched.cache.queues.tree import QueueNode, QueueTree
from gpusched.cache.snapshot import ExpectedStarts, Snapshot, StartEstimate, TenantRound
from gpusched.config.model import (
    ClientConnectionConfig,
    Config,
    CycleConfig,
    HistoryConfig,
    LeaderElectionConfig,
    LimitsConfig,
    PlacementConfig,
    PluginChoice,
    PluginTier,
    ShardConfig,
)
from gpusched.placement.admission.solver_model import AdmissionJob, PoolSearchResult
from gpusched.placement.cpsat.gang_search import GangSearchJob
from gpusched.placement.cpsat.gang_search import GangSearchResult as SeveralAnswer
from gpusched.placement.model.problem import Certificate, SearchOutcome
from gpusched.placement.victims.solver_model import VictimModel
from gpusched.placement.victims.solver_model import VictimModelResult as VictimAnswer
from gpusched.session.framework.reasons import Reason
from gpusched.session.state.plan import (
    Eviction,
    GangBind,
    GangStatus,
    GangStop,
    JobSuspendChange,
    PendingReason,
    Plan,
    PodBind,
    PreemptionPlan,
    QueueStatus,
    Undo,
)

TAGS: Final[dict[type[Any], str]] = {
    # the cluster
    Snapshot: "snapshot",
    NodeColumns: "node-columns",
    TenantRound: "round",
    ExpectedStarts: "expected-starts",
    StartEstimate: "start-estimate",
    StartKnownBy: "start-known-by",
    NodePods: "residents",
    Gang: "gang",
    PodSet: "task",
    Placed: "placed",
    GangTerms: "terms",
    QueueTree: "queue-tree",
    QueueNode: "queue-node",
    # objects
    Namespace: "namespace",
    Node: "node",
    Taint: "taint",
    GpuLayout: "layout",
    NumaTopology: "numa",
    NumaNode: "cell",
    Topology: "topology",
    AdvanceReservation: "advance-reservation",
    ReservationWindow: "reservation-window",
    Queue: "queue",
    NodePool: "node-pool",
    QueueUsage: "usage",
    QueueShardRow: "queue-shard-row",
    UserLimits: "user-limits",
    UserLimit: "user-limit",
    Budget: "budget",
    BudgetRecord: "budget-record",
    GpuHold: "gpu-hold",
    WaitingElsewhere: "waiting-elsewhere",
    StartErrors: "start-errors",
    StartTally: "start-tally",
    PodGroup: "pod-group",
    SubGroup: "sub-group",
    NativeTerms: "native-terms",
    TopologyRequest: "topology-wish",
    Condition: "condition",
    ChargeRecord: "charge",
    MoveRecord: "move",
    MoveTarget: "moved-to",
    TurnRecord: "turn",
    GangEvictions: "gang-evictions",
    PastEviction: "past-eviction",
    Job: "job",
    JobTemplate: "job-template",
    EvictionWarning: "eviction-warning",
    DisruptionBudget: "disruption-budget",
    Pod: "pod",
    PodPhase: "pod-phase",
    PodClass: "pod-class",
    GangAnnotations: "gang-hints",
    GangMembership: "family",
    KubeletRefusal: "refusal",
    HostPort: "host-port",
    PodTerm: "pod-term",
    SpreadTerm: "spread-term",
    NodeTerm: "node-term",
    Selector: "selector",
    Requirement: "requirement",
    Toleration: "toleration",
    GpuShare: "share",
    DeviceMatchRequest: "device-match-request",
    GpuTypeRequest: "gpu-type-request",
    VolumeCatalog: "storage",
    StorageClass: "storage-class",
    PersistentVolume: "volume",
    PersistentVolumeClaim: "claim",
    # devices
    DeviceCatalog: "devices",
    ResourceSlice: "resource-slice",
    Device: "device",
    Version: "device-version",
    CapacityPolicy: "capacity-policy",
    DeviceCapacity: "device-capacity",
    CounterSet: "counter-set",
    DeviceTaint: "device-taint",
    NodeReach: "node-reach",
    DeviceTaintRule: "device-taint-rule",
    DeviceClass: "device-class",
    OpaqueConfig: "opaque-config",
    DeviceToleration: "device-toleration",
    DeviceRequest: "device-request",
    AllocationMode: "allocation-mode",
    RequestAlternatives: "device-request-alternatives",
    DeviceConstraint: "device-constraint",
    DeviceClaimSpec: "device-claim-spec",
    AllocatedDevice: "allocated-device",
    AllocatedConfig: "allocated-config",
    ClaimAllocation: "claim-allocation",
    ClaimConsumer: "claim-consumer",
    DeviceCondition: "device-condition",
    ResourceClaim: "resource-claim",
    ResourceClaimTemplate: "resource-claim-template",
    PodClaim: "pod-claim",
    ExtendedRequest: "extended-request",
    ClaimGroup: "claim-group",
    # what objects are made of
    GangKey: "gang-key",
    ObjectKey: "object-key",
    Owner: "owner",
    Creator: "creator",
    Resources: "resources",
    Reason: "reason",
    # the configuration
    Config: "config",
    CycleConfig: "cycle",
    LeaderElectionConfig: "leader-election",
    PlacementConfig: "placement",
    LimitsConfig: "limits",
    ClientConnectionConfig: "client-connection",
    HistoryConfig: "history",
    ShardConfig: "shard",
    GpuResources: "gpu-resources",
    GpuResource: "gpu-resource",
    DeviceQuota: "device-quota",
    PluginChoice: "plugin-choice",
    PluginTier: "tier",
    GpuLayoutCatalog: "catalogue",
    # searches and their answers
    AdmissionJob: "admission-job",
    PoolSearchResult: "pooled",
    GangSearchJob: "several-job",
    SeveralAnswer: "several-answer",
    VictimModel: "victim-model",
    VictimAnswer: "victim-answer",
    Certificate: "certificate",
    SearchOutcome: "outcome",
}
"""The name of each class in files: chosen once, used by no other, never changed."""

CLASSES: Final = {tag: cls for cls, tag in TAGS.items()}
"""The class of each tag."""
FIELDS: Final[dict[type[Any], Mapping[str, str]]] = {
    Gang: {
        "pod_sets": "tasks",
        "pending_requests": "asked",
        "allocated": "held",
        "leaving_allocated": "leaving_held",
        "succeeded_counted": "credit",
        "error": "trouble",
        "warning": "remark",
        "expected_count": "unborn",
    },
    QueueNode: {"error": "trouble", "warning": "remark"},
    PodGroup: {"warning": "remark"},
    Snapshot: {
        "placed_gangs": "active",
        "running_gangs": "running",
        "idle_gangs": "idle",
        "job_runtimes": "runs",
        "pods_by_node": "residents",
        "nominated_foreign_pods": "awaited",
        "volumes": "storage",
        "move_records": "moves",
        "tenant_rounds": "rounds",
    },
    VictimModel: {"requests": "asks"},
    Plan: {"preemptions": "claims", "job_changes": "switches"},
    GangStatus: {"pending_reason": "waiting_ask", "waiting_pods": "waiting"},
    PendingReason: {"message": "sentence"},
    Undo: {"message": "sentence"},
    Eviction: {"message": "sentence"},
    JobSuspendChange: {"message": "sentence"},
    PreemptionPlan: {"message": "sentence"},
    Node: {"layout_error": "layout_trouble", "gpus_installed": "gpus_built_in"},
    Pod: {"slots_error": "slots_doubt"},
    PodClass: {
        "pod_affinity": "near",
        "pod_anti_affinity": "apart",
        "preferred_pod_affinity": "liked",
        "preferred_pod_anti_affinity": "disliked",
    },
}
"""Names of fields in files that are others in the code: by class, then by the name in the code."""

WITHIN: Final[dict[type[Any], Mapping[str, tuple[str, ...]]]] = {
    PodGroup: {
        "terms": (
            "preemptible",
            "expected_duration_ns",
            "min_runtime_ns",
            "schedule_timeout_ns",
            "disruption",
            "checkpoint_ns",
        )
    }
}
"""Fields that files of 0.1.0 have in the class itself and the code in an object that it holds: by
class, then by the field with that object, whose default says of which class it is."""

LATER: Final[dict[type[Any], frozenset[str]]] = {
    GangBind: frozenset({"left_waiting", "grows"}),
    PodBind: frozenset({"claims", "device_slots", "numa", "charge"}),
    GangStop: frozenset({"turn", "keeps_minimum", "count"}),
    Plan: frozenset({"reservations"}),
    GangStatus: frozenset(
        {
            "told_members",
            "lost_members",
            "eviction_warning",
            "key_warning",
            "start_estimate",
            "estimate_change",
        }
    ),
    QueueStatus: frozenset(
        {"budget", "start_errors", "shards", "other_shards", "told_elsewhere", "start_rows"}
    ),
}
"""Fields of plans that came after 0.1.0, by class: a plan leaves one out while it has its default,
so that its bytes are those of before."""

BEFORE: Final[dict[type[Any], dict[str, Any]]] = {
    LimitsConfig: {"eviction_window_s": 0.0},
    Snapshot: {"limits": LimitsConfig(eviction_window_s=0.0)},
}
"""What a field was before there was one, by class, where that is not its default: a decision of then is
repeated as it was made."""

_TWICE: Final = {
    "cpsat-several.answer": "several-answer",
    "cpsat-victims.answer": "victim-answer",
}
"""Tags of classes whose names stood in two modules when files held names."""
_KEPT_HASH: Final = "_attrs_cached_hash"
"""Where attrs keeps the hash of an object whose class says ``cache_hash``; None until it is asked for."""
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
    in lower case and joined by hyphens, are the tag: ``gpusched.api.pod.pod.PodClass`` is
    ``pod-class``. A tag stands for itself.
    """
    module, _, last = name.rpartition(".")
    words = _WORD.sub("-", last).lower()
    where = module.rpartition(".")[2].replace("_", "-")
    return _TWICE.get(f"{where}.{words}", words)


def fields_of(cls: type[Any]) -> tuple[Field, ...] | None:
    """Fields of a class that holds nothing but data, in its order; None for any other.

    What a class works out from its other fields is not written.
    """
    if issubclass(cls, BaseException):
        return None
    found: dict[str, Callable[[], Any] | None]
    if attrs.has(cls):
        found = {each.name: _default(each.default) for each in attrs.fields(cls) if each.init}
    elif issubclass(cls, msgspec.Struct):
        found = {each.name: _struct_default(each) for each in msgspec.structs.fields(cls)}
    elif issubclass(cls, tuple) and hasattr(cls, "_fields"):
        defaults: Mapping[str, Any] = vars(cls)["_field_defaults"]
        found = {name: _default(defaults.get(name, attrs.NOTHING)) for name in cls._fields}
    else:
        return () if issubclass(cls, Enum) else None
    found.update({name: _default(value) for name, value in BEFORE.get(cls, {}).items()})
    written = FIELDS.get(cls, {})
    return tuple(Field(name, written.get(name, name), default) for name, default in found.items())


def worked_out_fields(cls: type[Any]) -> tuple[tuple[str, Callable[[Any], Any]], ...]:
    """What an object has beside the fields that are written, by name, each with what works it out of the object."""
    if not attrs.has(cls):
        return ()
    derived = [
        (each.name, each.default.factory)
        for each in attrs.fields(cls)
        if not each.init and isinstance(each.default, attrs.Factory)  # type: ignore[arg-type]
    ]
    if hasattr(cls, _KEPT_HASH):
        derived.append((_KEPT_HASH, lambda _made: None))
    return tuple(derived)


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
