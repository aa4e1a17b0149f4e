"""Fields of workloads in a scenario's files, and the texts and names that other parts share."""

from __future__ import annotations

from typing import Any, Final

from gpusched.base.limits import GANG_PODS_MAX
from gpusched.lab.scenario.expansion.workload_manifests import KINDS
from gpusched.lab.scenario.file.mappings import (
    DrawableType,
    ListType,
    MappingField,
    MappingType,
    MapType,
    UnionType,
)
from gpusched.lab.scenario.file.value_types import (
    AnyType,
    BooleanType,
    DurationType,
    EnumType,
    IntegerType,
    NumberTextType,
    NumberType,
    QuantityType,
    TextType,
    ValueType,
)

DNS: Final = r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?"
NAME: Final = TextType("a name such as train or team-a", DNS, 253)
_VALUE: Final = TextType("the value of a label", most=63)
LABELS: Final = MapType(_VALUE)
STRINGS: Final = MapType(TextType("a text", most=65_536), "keys of annotations")
_GPUS_MAX: Final = 1024
LEVEL: Final = TextType("a level of topology or a label of nodes", r"[-A-Za-z0-9._/]{1,317}", 317)
FRACTION: Final = NumberTextType("a share of a GPU such as 0.25", r"0?[.][0-9]{1,3}", 8)
MIG: Final = TextType("a slice such as 1g.5gb", r"[0-9]+g[.][0-9]+gb([.+][a-z0-9.]+)?", 32)


def _same(value: Any) -> float:
    return float(value)


def drawable_integer(low: int, high: int) -> ValueType:
    """A whole number that may be drawn."""
    return DrawableType(IntegerType(low, high), _same)


DURATION: Final = DrawableType(DurationType(0.001), _same)
WISH: Final = MappingType(
    "topology",
    (
        MappingField("required", LEVEL, "All pods in one domain of this level."),
        MappingField("preferred", LEVEL, "The narrowest level that works, at best this one."),
        MappingField("maxWait", DurationType(), "How long to hold out for the preferred level."),
    ),
)
ROLE: Final = MappingType(
    "a role",
    (
        MappingField("name", NAME, "Of the role.", required=True),
        MappingField("pods", IntegerType(1, GANG_PODS_MAX), "How many; 1 when left out."),
        MappingField("gpus", IntegerType(0, _GPUS_MAX), "Of each pod; 0 when left out."),
        MappingField("cpu", QuantityType(), "Of each pod; 1 when left out."),
        MappingField("memory", QuantityType(), "Of each pod; 1Gi when left out."),
        MappingField(
            "minMember", IntegerType(0, GANG_PODS_MAX), "Fewer are enough; all when left out."
        ),
        MappingField("subGroup", NAME, "Starts with its minimum or not at all."),
        MappingField("topology", WISH, "Of the sub-group."),
    ),
)
SUB_GROUP: Final = MappingType(
    "a sub-group",
    (
        MappingField(
            "name", NAME, "As in subGroup of roles, or of one that holds others.", required=True
        ),
        MappingField("parent", NAME, "The sub-group that it is in; none at the top."),
        MappingField(
            "minSubGroups",
            IntegerType(1, GANG_PODS_MAX),
            "So many in it are enough; all when left out.",
        ),
        MappingField("topology", WISH, "Of all its pods."),
    ),
)
_ATTEMPTS: Final = UnionType(
    (
        ((int,), IntegerType(1, 10_000)),
        ((str,), TextType("attempts such as 1,2", r"[0-9]+(,[0-9]+)*")),
    ),
    "a number or attempts such as 1,2",
)
NOTES: Final[dict[str, tuple[str, ValueType, str]]] = {
    "startAfter": ("start-after", DurationType(), "Time from the binding to Running."),
    "startJitter": ("start-jitter", DurationType(), "Up to so much more."),
    "pullFor": ("pull-for", DurationType(), "Images are pulled for so long."),
    "pullError": ("pull-error", TextType(), "Containers wait with this reason."),
    "runJitter": (
        "run-jitter",
        TextType("a share or a duration"),
        "Up to so much more of the run.",
    ),
    "failAfter": ("fail-after", DurationType(), "Time from the start to Failed."),
    "failChance": ("fail-chance", NumberType(0, 1), "Share of the pods that fail."),
    "failOnAttempt": ("fail-on-attempt", _ATTEMPTS, "Only these attempts fail."),
    "attempt": ("attempt", IntegerType(1, 10_000), "Which attempt the pods are."),
    "exitCode": ("exit-code", IntegerType(0, 255), "Exit code of a failure."),
    "exitReason": ("exit-reason", TextType(), "Reason of a failure."),
    "stopAfter": ("stop-after", DurationType(), "Time from the deletion to the end."),
}
"""Annotations of pods that kwok-scenarios/README.md tells of: field, key, value."""
WORKLOAD: Final = MappingType(
    "a workload",
    (
        MappingField(
            "name", NAME, "Its name; with {{ Index }} or a number behind it.", required=True
        ),
        MappingField("kind", EnumType(KINDS), "Job when left out."),
        MappingField("namespace", NAME, "default when left out; it is made if need be."),
        MappingField("pods", drawable_integer(1, GANG_PODS_MAX), "How many; 1 when left out."),
        MappingField("minMember", drawable_integer(1, GANG_PODS_MAX), "Fewer are enough to start."),
        MappingField(
            "minSubGroups", IntegerType(1, GANG_PODS_MAX), "So many sub-groups are enough."
        ),
        MappingField("gpus", drawable_integer(0, _GPUS_MAX), "GPUs of each pod; 0 when left out."),
        MappingField("cpu", DrawableType(QuantityType()), "CPUs of each pod; 1 when left out."),
        MappingField(
            "memory", DrawableType(QuantityType()), "Memory of each pod; 1Gi when left out."
        ),
        MappingField("fraction", DrawableType(FRACTION), "Share of one GPU, such as 0.25."),
        MappingField("gpuMemory", DrawableType(QuantityType()), "Of the memory of one GPU."),
        MappingField("mig", DrawableType(MIG), "A slice such as 1g.5gb."),
        MappingField(
            "slices", drawable_integer(1, _GPUS_MAX), "How many of them; 1 when left out."
        ),
        MappingField(
            "resources", MapType(QuantityType(), "names of resources"), "Other resources by name."
        ),
        MappingField("queue", DrawableType(NAME), "Its queue."),
        MappingField("priority", DrawableType(NAME), "Name of a PriorityClass."),
        MappingField("preemptible", BooleanType(), "Whether it may be preempted or reclaimed."),
        MappingField("minRuntime", DurationType(), "It is safe from preemption for so long."),
        MappingField("runFor", DURATION, "From its start; until it is deleted when left out."),
        MappingField(
            "expectedDuration",
            UnionType(
                (((bool,), BooleanType()), ((str, int, dict), DURATION)),
                "true or a duration",
            ),
            "What it tells the scheduler; true for its runFor.",
        ),
        MappingField("topology", WISH, "Where its pods must be together."),
        MappingField("deadline", DurationType(1), "Of the Job, from its start."),
        MappingField("backoffLimit", IntegerType(), "Of the Job."),
        MappingField(
            "suspend", BooleanType(), "Of the Job; true when it names a queue and this is left out."
        ),
        MappingField("class", DrawableType(_VALUE), "By which waits are told apart."),
        *(MappingField(name, shape, doc) for name, (_, shape, doc) in NOTES.items()),
        MappingField("labels", LABELS, "Of the pods."),
        MappingField("annotations", STRINGS, "Of the pods."),
        MappingField("nodeSelector", LABELS, "Of the pods."),
        MappingField("tolerations", ListType(AnyType("a mapping", (dict,))), "Of the pods."),
        MappingField("roles", ListType(ROLE, 1, 256), "A PodGroup of several roles."),
        MappingField(
            "subGroups",
            ListType(SUB_GROUP, 1, 256),
            "A tree of sub-groups; roles need not all start.",
        ),
    ),
    at_most_one=(
        ("gpus", "fraction", "gpuMemory", "mig"),
        ("pods", "roles"),
        ("minMember", "roles"),
        ("gpus", "roles"),
        ("cpu", "roles"),
        ("memory", "roles"),
    ),
    schema_id="workload",
)
