"""The fields of a workload in short."""

from __future__ import annotations

from typing import Any, Final

from gpusched.limits import GANG_PODS_MAX
from gpusched.scenario.mappings import Either, Field, Listing, MapOf, Table
from gpusched.scenario.shapes import (
    Amount,
    Anything,
    Choice,
    Decimal,
    Duration,
    Flag,
    NumberText,
    Shape,
    Text,
    Whole,
)
from gpusched.scenario.shapes_drawn import MayBeDrawn
from gpusched.scenario.workloads import KINDS

DNS: Final = r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?"
NAME: Final = Text("a name such as train or team-a", DNS, 253)
_VALUE: Final = Text("the value of a label", most=63)
LABELS: Final = MapOf(_VALUE)
STRINGS: Final = MapOf(Text("a text", most=65_536), "keys of annotations")
_GPUS_MAX: Final = 1024
LEVEL: Final = Text("a level of topology or a label of nodes", r"[-A-Za-z0-9._/]{1,317}", 317)
FRACTION: Final = NumberText("a share of a GPU such as 0.25", r"0?[.][0-9]{1,3}", 8)
MIG: Final = Text("a slice such as 1g.5gb", r"[0-9]+g[.][0-9]+gb([.+][a-z0-9.]+)?", 32)


def _same(value: Any) -> float:
    return float(value)


def whole(low: int, high: int) -> Shape:
    """A whole number that may be drawn."""
    return MayBeDrawn(Whole(low, high), _same)


DURATION: Final = MayBeDrawn(Duration(0.001), _same)
WISH: Final = Table(
    "topology",
    (
        Field("required", LEVEL, "All pods in one domain of this level."),
        Field("preferred", LEVEL, "The narrowest level that works, at best this one."),
        Field("maxWait", Duration(), "How long to hold out for the preferred level."),
    ),
)
ROLE: Final = Table(
    "a role",
    (
        Field("name", NAME, "Of the role.", required=True),
        Field("pods", Whole(1, GANG_PODS_MAX), "How many; 1 when left out."),
        Field("gpus", Whole(0, _GPUS_MAX), "Of each pod; 0 when left out."),
        Field("cpu", Amount(), "Of each pod; 1 when left out."),
        Field("memory", Amount(), "Of each pod; 1Gi when left out."),
        Field("minMember", Whole(0, GANG_PODS_MAX), "Fewer are enough; all when left out."),
        Field("subGroup", NAME, "Starts with its minimum or not at all."),
        Field("topology", WISH, "Of the sub-group."),
    ),
)
_ATTEMPTS: Final = Either(
    (((int,), Whole(1, 10_000)), ((str,), Text("attempts such as 1,2", r"[0-9]+(,[0-9]+)*"))),
    "a number or attempts such as 1,2",
)
NOTES: Final[dict[str, tuple[str, Shape, str]]] = {
    "startAfter": ("start-after", Duration(), "Time from the binding to Running."),
    "startJitter": ("start-jitter", Duration(), "Up to so much more."),
    "pullFor": ("pull-for", Duration(), "Images are pulled for so long."),
    "pullError": ("pull-error", Text(), "Containers wait with this reason."),
    "runJitter": ("run-jitter", Text("a share or a duration"), "Up to so much more of the run."),
    "failAfter": ("fail-after", Duration(), "Time from the start to Failed."),
    "failChance": ("fail-chance", Decimal(0, 1), "Share of the pods that fail."),
    "failOnAttempt": ("fail-on-attempt", _ATTEMPTS, "Only these attempts fail."),
    "attempt": ("attempt", Whole(1, 10_000), "Which attempt the pods are."),
    "exitCode": ("exit-code", Whole(0, 255), "Exit code of a failure."),
    "exitReason": ("exit-reason", Text(), "Reason of a failure."),
    "stopAfter": ("stop-after", Duration(), "Time from the deletion to the end."),
}
"""Annotations of pods that kwok-scenarios/README.md tells of: field, key, value."""
WORKLOAD: Final = Table(
    "a workload",
    (
        Field("name", NAME, "Its name; with {{ Index }} or a number behind it.", required=True),
        Field("kind", Choice(KINDS), "Job when left out."),
        Field("namespace", NAME, "default when left out; it is made if need be."),
        Field("pods", whole(1, GANG_PODS_MAX), "How many; 1 when left out."),
        Field("minMember", whole(1, GANG_PODS_MAX), "Fewer are enough to start."),
        Field("minSubGroups", Whole(1, GANG_PODS_MAX), "So many sub-groups are enough."),
        Field("gpus", whole(0, _GPUS_MAX), "GPUs of each pod; 0 when left out."),
        Field("cpu", MayBeDrawn(Amount()), "CPUs of each pod; 1 when left out."),
        Field("memory", MayBeDrawn(Amount()), "Memory of each pod; 1Gi when left out."),
        Field("fraction", MayBeDrawn(FRACTION), "Share of one GPU, such as 0.25."),
        Field("gpuMemory", MayBeDrawn(Amount()), "Of the memory of one GPU."),
        Field("mig", MayBeDrawn(MIG), "A slice such as 1g.5gb."),
        Field("slices", whole(1, _GPUS_MAX), "How many of them; 1 when left out."),
        Field("resources", MapOf(Amount(), "names of resources"), "Other resources by name."),
        Field("queue", MayBeDrawn(NAME), "Its queue."),
        Field("priority", MayBeDrawn(NAME), "Name of a PriorityClass."),
        Field("preemptible", Flag(), "Whether it may be preempted or reclaimed."),
        Field("minRuntime", Duration(), "It is safe from preemption for so long."),
        Field("runFor", DURATION, "From its start; until it is deleted when left out."),
        Field(
            "expectedDuration",
            Either(
                (((bool,), Flag()), ((str, int, dict), DURATION)),
                "true or a duration",
            ),
            "What it tells the scheduler; true for its runFor.",
        ),
        Field("topology", WISH, "Where its pods must be together."),
        Field("deadline", Duration(1), "Of the Job, from its start."),
        Field("backoffLimit", Whole(), "Of the Job."),
        Field("suspend", Flag(), "Of the Job; true when it names a queue and this is left out."),
        Field("class", MayBeDrawn(_VALUE), "By which waits are told apart."),
        *(Field(name, shape, doc) for name, (_, shape, doc) in NOTES.items()),
        Field("labels", LABELS, "Of the pods."),
        Field("annotations", STRINGS, "Of the pods."),
        Field("nodeSelector", LABELS, "Of the pods."),
        Field("tolerations", Listing(Anything("a mapping", (dict,))), "Of the pods."),
        Field("roles", Listing(ROLE, 1, 256), "A PodGroup of several roles."),
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
