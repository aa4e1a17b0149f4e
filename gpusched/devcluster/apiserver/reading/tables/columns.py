"""What a column of a table is, and the columns of the simple built-in kinds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from gpusched.base.classes import frozen
from gpusched.cel.schema_nodes import Doc, Json
from gpusched.devcluster.apiserver.reading.tables.ages import age_text, duration_text, seconds_of

Cell = Callable[[Doc, float], Json]
"""From an object and the time in epoch seconds to the value of a cell."""


@frozen
class Column:
    """One column; ``priority`` above 0 is shown by ``-o wide`` only."""

    name: str
    cell: Cell
    type: str = "string"
    format: str = ""
    priority: int = 0
    description: str = ""

    def header(self) -> Doc:
        """Its entry in ``columnDefinitions``."""
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": self.description,
            "priority": self.priority,
        }


Columns = tuple[Column, ...]


def nested_value(obj: Any, *path: str) -> Any:
    """A nested value, None when any part of the way is missing."""
    for key in path:
        obj = obj.get(key) if isinstance(obj, dict) else None
    return obj


def field_cell(*path: str, default: Json = "") -> Cell:
    """A cell that prints a nested field."""

    def cell(obj: Doc, _now: float) -> Json:
        value = nested_value(obj, *path)
        return default if value is None else value

    return cell


def count_cell(*path: str) -> Cell:
    """A cell with the number of entries of one or several collections."""

    def cell(obj: Doc, _now: float) -> Json:
        return sum(len(nested_value(obj, key) or ()) for key in path)

    return cell


def _age(obj: Doc, now: float) -> str:
    return age_text(nested_value(obj, "metadata", "creationTimestamp"), now)


NAME = Column(
    "Name", field_cell("metadata", "name"), format="name", description="Name of the object."
)
AGE = Column("Age", _age, description="Time since the object was created.")


def wide_only(column: Column) -> Column:
    """The same column for ``-o wide`` only."""
    return attrs.evolve(column, priority=1)


def selector_text(selector: Any) -> str:
    """A label selector as people write it; ``<none>`` when it selects all."""
    parts = [f"{k}={v}" for k, v in sorted((nested_value(selector, "matchLabels") or {}).items())]
    for e in nested_value(selector, "matchExpressions") or ():
        values = f" ({','.join(sorted(e.get('values', ())))})"
        parts.append(
            {
                "In": f"{e['key']} in{values}",
                "NotIn": f"{e['key']} notin{values}",
                "Exists": e["key"],
                "DoesNotExist": f"!{e['key']}",
            }.get(e.get("operator", ""), "<error>")
        )
    return ",".join(parts) or "<none>"


def _template(key: str) -> Cell:
    def cell(obj: Doc, _now: float) -> str:
        containers = nested_value(obj, "spec", "template", "spec", "containers") or ()
        return ",".join(c.get(key, "") for c in containers)

    return cell


TEMPLATE = (
    Column(
        "Containers",
        _template("name"),
        priority=1,
        description="Names of each container in the template.",
    ),
    Column(
        "Images",
        _template("image"),
        priority=1,
        description="Images referenced by each container in the template.",
    ),
    Column(
        "Selector",
        lambda obj, _: selector_text(nested_value(obj, "spec", "selector")),
        priority=1,
        description="Pods that belong to the object.",
    ),
)


def _quota(obj: Doc, *, limits: bool) -> str:
    hard, used = (
        nested_value(obj, "status", "hard") or {},
        nested_value(obj, "status", "used") or {},
    )
    return ", ".join(
        f"{name}: {used.get(name, '0')}/{hard[name]}"
        for name in sorted(hard)
        if name.startswith("limits") == limits
    )


def _ratio(obj: Doc, _now: float) -> str:
    return f"{nested_value(obj, 'status', 'readyReplicas') or 0}/{nested_value(obj, 'spec', 'replicas') or 0}"


def _event_age(obj: Doc, now: float, *, last: bool) -> str:
    first = obj.get("firstTimestamp") or obj.get("deprecatedFirstTimestamp")
    latest = nested_value(obj, "series", "lastObservedTime")
    latest = latest or obj.get("lastTimestamp") or obj.get("deprecatedLastTimestamp")
    wanted = latest if last else first
    return age_text(wanted or obj.get("eventTime"), now)


def _regarded_object(obj: Doc) -> Doc:
    about: Doc = obj.get("involvedObject") or obj.get("regarding") or {}
    return about


def _event_object(obj: Doc, _now: float) -> str:
    about = _regarded_object(obj)
    kind, name = about.get("kind", "").lower(), about.get("name", "")
    return f"{kind}/{name}" if name else kind


def _event_source(obj: Doc, _now: float) -> str:
    source = obj.get("source") or obj.get("deprecatedSource") or {}
    component = source.get("component") or obj.get("reportingComponent")
    component = component or obj.get("reportingController") or ""
    host = source.get("host") or obj.get("reportingInstance")
    return ", ".join(part for part in (component, host) if part)


def _event_count(obj: Doc, _now: float) -> int:
    number = nested_value(obj, "series", "count") or obj.get("count") or obj.get("deprecatedCount")
    return int(number or 1)


EVENTS: Columns = (
    Column(
        "Last Seen", lambda o, now: _event_age(o, now, last=True), description="When it last was."
    ),
    Column("Type", field_cell("type"), description="Normal or Warning."),
    Column("Reason", field_cell("reason"), description="Why, as one word."),
    Column("Object", _event_object, description="What it is about."),
    Column(
        "Subobject",
        lambda o, _: _regarded_object(o).get("fieldPath", ""),
        priority=1,
        description="Which part of it.",
    ),
    Column("Source", _event_source, priority=1, description="Who says so."),
    Column(
        "Message",
        lambda o, _: (o.get("message") or o.get("note") or "").strip(),
        description="Why, as a sentence.",
    ),
    Column(
        "First Seen",
        lambda o, now: _event_age(o, now, last=False),
        priority=1,
        description="When it first was.",
    ),
    Column("Count", _event_count, priority=1, description="How often it was."),
    attrs.evolve(NAME, priority=1),
)

SIMPLE: dict[tuple[str, str], Columns] = {
    ("", "ConfigMap"): (
        NAME,
        Column("Data", count_cell("data", "binaryData"), description="Number of entries."),
        AGE,
    ),
    ("", "Secret"): (
        NAME,
        Column("Type", field_cell("type"), description="What the secret is for."),
        Column("Data", count_cell("data"), description="Number of entries."),
        AGE,
    ),
    ("", "ServiceAccount"): (
        NAME,
        Column("Secrets", count_cell("secrets"), description="Number of secrets."),
        AGE,
    ),
    ("", "Namespace"): (
        NAME,
        Column("Status", field_cell("status", "phase"), description="Active or Terminating."),
        AGE,
    ),
    ("", "ResourceQuota"): (
        NAME,
        Column("Request", lambda o, _: _quota(o, limits=False), description="Used of requests."),
        Column("Limit", lambda o, _: _quota(o, limits=True), description="Used of limits."),
        AGE,
    ),
    ("coordination.k8s.io", "Lease"): (
        NAME,
        Column("Holder", field_cell("spec", "holderIdentity"), description="Who holds the lease."),
        AGE,
    ),
    ("scheduling.k8s.io", "PriorityClass"): (
        NAME,
        Column(
            "Value", field_cell("value", default=0), type="integer", description="The priority."
        ),
        Column(
            "Global-Default",
            field_cell("globalDefault", default=False),
            type="boolean",
            description="Whether pods without a class get it.",
        ),
        AGE,
        Column(
            "PreemptionPolicy",
            field_cell("preemptionPolicy"),
            description="Whether its pods preempt.",
        ),
    ),
    ("policy", "PodDisruptionBudget"): (
        NAME,
        Column(
            "Min Available",
            lambda o, _: str(_or_na(nested_value(o, "spec", "minAvailable"))),
            description="Pods that must stay.",
        ),
        Column(
            "Max Unavailable",
            lambda o, _: str(_or_na(nested_value(o, "spec", "maxUnavailable"))),
            description="Pods that may be missing.",
        ),
        Column(
            "Allowed Disruptions",
            field_cell("status", "disruptionsAllowed", default=0),
            type="integer",
            description="Pods that may be evicted now.",
        ),
        AGE,
    ),
    ("autoscaling", "Scale"): (
        NAME,
        Column(
            "Desired",
            field_cell("spec", "replicas", default=0),
            type="integer",
            description="Wanted.",
        ),
        Column(
            "Available",
            field_cell("status", "replicas", default=0),
            type="integer",
            description="There.",
        ),
        AGE,
    ),
    ("apps", "Deployment"): (
        NAME,
        Column("Ready", _ratio, description="Ready of wanted pods."),
        Column(
            "Up-to-date",
            field_cell("status", "updatedReplicas", default=0),
            description="Pods of the current template.",
        ),
        Column(
            "Available",
            field_cell("status", "availableReplicas", default=0),
            description="Pods that serve.",
        ),
        AGE,
        *TEMPLATE,
    ),
    ("apps", "StatefulSet"): (
        NAME,
        Column("Ready", _ratio, description="Number of the pod with ready state"),
        AGE,
        *TEMPLATE[:2],
    ),
    ("apps", "ReplicaSet"): (
        NAME,
        Column(
            "Desired",
            field_cell("spec", "replicas", default=0),
            type="integer",
            description="Wanted.",
        ),
        Column(
            "Current",
            field_cell("status", "replicas", default=0),
            type="integer",
            description="There.",
        ),
        Column(
            "Ready",
            field_cell("status", "readyReplicas", default=0),
            type="integer",
            description="Ready.",
        ),
        AGE,
        *TEMPLATE,
    ),
    ("apiextensions.k8s.io", "CustomResourceDefinition"): (
        NAME,
        Column(
            "Created At",
            field_cell("metadata", "creationTimestamp"),
            type="date",
            description="When the object was created.",
        ),
    ),
}
"""Columns by group and kind; events, pods, nodes and jobs stand elsewhere."""


def _or_na(value: Json) -> Json:
    return "N/A" if value is None else value


def duration_cell(start: Any, end: Any, now: float) -> str:
    """Time from one timestamp to another, or to now; empty when it did not start."""
    began = seconds_of(start)
    if began is None:
        return ""
    ended = seconds_of(end)
    return duration_text((now if ended is None else ended) - began)
