"""Columns of Kubernetes' own gangs, in the forms of all releases."""

from __future__ import annotations

from gpusched.cel.schema_nodes import Doc
from gpusched.devcluster.apiserver.reading.tables.columns import (
    AGE,
    NAME,
    Column,
    Columns,
    nested_value,
)

_SCHEDULED = ("PodGroupScheduled", "PodGroupInitiallyScheduled")
_DISRUPTED = "DisruptionTarget"


def _policy(obj: Doc, _now: float) -> str:
    gang = nested_value(obj, "spec", "schedulingPolicy", "gang")
    return "Basic" if gang is None else "Gang"


def _workload(obj: Doc, _now: float) -> str:
    older = nested_value(obj, "spec", "podGroupTemplateRef", "workload", "workloadName")
    newer = nested_value(obj, "spec", "workloadRef", "workloadName")
    return older or newer or "<none>"


def _state(obj: Doc, _now: float) -> str:
    """Pending until a scheduler has looked; the reason of a disruption comes first."""
    shown = "Pending"
    for condition in nested_value(obj, "status", "conditions") or ():
        if condition.get("type") == _DISRUPTED:
            return str(condition.get("reason", ""))
        if condition.get("type") in _SCHEDULED:
            shown = "Scheduled" if condition.get("status") == "True" else "Unschedulable"
    return shown


_POLICY = Column(
    "Policy",
    _policy,
    description="SchedulingPolicy defines the scheduling policy for this instance of the PodGroup. "
    "Controllers are expected to fill this field by copying it from a PodGroupTemplate. This field "
    "is immutable.",
)
_WORKLOAD = Column("Workload", _workload, description="Name of the referenced Workload object")

GANGS: dict[tuple[str, str], Columns] = {
    ("scheduling.k8s.io", "PodGroup"): (
        NAME,
        _POLICY,
        _WORKLOAD,
        Column("Status", _state, description="Status of the PodGroup"),
        AGE,
    ),
    ("scheduling.k8s.io", "CompositePodGroup"): (NAME, _POLICY, _WORKLOAD, AGE),
    ("scheduling.k8s.io", "Workload"): (NAME, AGE),
}
"""Columns by group and kind."""
