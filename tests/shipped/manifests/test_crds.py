"""The CRDs say exactly what the published contract says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from gpusched.base.installed_files import path

QUANTITIES = "quantities"
DURATION = "duration"
ANY = "any"
MAX_ITEMS = 10_000
READ_BY_US = {"spec.gpuTypes.speeds.*"}
"""Numbers and texts with numbers: no schema can say both, so the daemon reads them and says what is wrong."""

# field: type, default (None = none), allowed values
QUEUE = {
    "spec.parent": ("string", "root", None),
    "spec.weight": ("integer", 1, None),
    "spec.priority": ("integer", 0, None),
    "spec.guarantee.resource": (QUANTITIES, None, None),
    "spec.deserved": (QUANTITIES, None, None),
    "spec.capability": (QUANTITIES, None, None),
    "spec.reclaimable": ("boolean", True, None),
    "spec.ordering": ("string", "Priority", ["Priority", "Fifo", "StrictFifo", "FairShare"]),
    "spec.stopPolicy": ("string", "None", ["None", "Hold", "HoldAndDrain"]),
    "spec.minRuntime": (DURATION, "0s", None),
    "spec.maxRuntime": (DURATION, None, None),
    "spec.maxWait": (DURATION, None, None),
    "spec.namespaceSelector.matchLabels.*": ("string", None, None),
    "spec.namespaceSelector.matchExpressions[].key": ("string", None, None),
    "spec.namespaceSelector.matchExpressions[].operator": (
        "string",
        None,
        ["In", "NotIn", "Exists", "DoesNotExist"],
    ),
    "spec.namespaceSelector.matchExpressions[].values[]": ("string", None, None),
    "spec.nodePools[].name": ("string", None, None),
    "spec.nodePools[].nodeSelector.*": ("string", None, None),
    "spec.nodePools[].deserved": (QUANTITIES, None, None),
    "spec.nodePools[].capability": (QUANTITIES, None, None),
    "spec.userLimits.perUser.resources": (QUANTITIES, None, None),
    "spec.userLimits.perUser.maxRunning": ("integer", None, None),
    "spec.userLimits.perUser.maxPending": ("integer", None, None),
    "spec.userLimits.users[].name": ("string", None, None),
    "spec.userLimits.users[].resources": (QUANTITIES, None, None),
    "spec.userLimits.users[].maxRunning": ("integer", None, None),
    "spec.userLimits.users[].maxPending": ("integer", None, None),
    "spec.userLimits.groups[].name": ("string", None, None),
    "spec.userLimits.groups[].resources": (QUANTITIES, None, None),
    "spec.userLimits.groups[].maxRunning": ("integer", None, None),
    "spec.userLimits.groups[].maxPending": ("integer", None, None),
    "spec.budget.period": ("string", "Month", None),
    "spec.budget.rolloverPercent": ("integer", 0, None),
    "spec.budget.warnPercent": ("integer", 80, None),
    "spec.budget.onExhausted": ("string", "Hold", ["Hold", "HoldAndDrain"]),
    "status.budget.asOf": ("string", None, None),
    "status.budget.periodStart": ("string", None, None),
    "status.budget.nextPeriod": ("string", None, None),
    "status.budget.gpuSeconds": ("string", None, None),
    "status.budget.rolledOverGpuSeconds": ("string", None, None),
    "status.budget.usedGpuHours": ("string", None, None),
    "status.budget.availableGpuHours": ("string", None, None),
    "status.budget.users[].name": ("string", None, None),
    "status.budget.users[].gpuSeconds": ("string", None, None),
    "status.state": ("string", None, ["Open", "Closed", "Draining"]),
    "status.allocated": (QUANTITIES, None, None),
    "status.requested": (QUANTITIES, None, None),
    "status.borrowed": (QUANTITIES, None, None),
    "status.fairShare": (QUANTITIES, None, None),
    "status.usage.asOf": ("string", None, None),
    "status.usage.average.*": ("integer", None, None),
    "status.usage.share.*": ("integer", None, None),
    "status.startEstimates[].knownBy": ("string", None, None),
    "status.startEstimates[].startsByPercent.*": ("integer", None, None),
    "status.startEstimates[].ranged": ("integer", None, None),
    "status.startEstimates[].held": ("integer", None, None),
    "status.nodePools[].name": ("string", None, None),
    "status.nodePools[].allocated": (QUANTITIES, None, None),
    "status.nodePools[].fairShare": (QUANTITIES, None, None),
    "status.shards[].name": ("string", None, None),
    "status.shards[].allocated": (QUANTITIES, None, None),
    "status.shards[].requested": (QUANTITIES, None, None),
    "status.shards[].fairShare": (QUANTITIES, None, None),
    "status.shards[].nodePools[].name": ("string", None, None),
    "status.shards[].nodePools[].allocated": (QUANTITIES, None, None),
    "status.shards[].nodePools[].fairShare": (QUANTITIES, None, None),
    "status.shards[].pending": ("integer", None, None),
    "status.shards[].inqueue": ("integer", None, None),
    "status.shards[].running": ("integer", None, None),
    "status.shards[].startEstimates[].knownBy": ("string", None, None),
    "status.shards[].startEstimates[].startsByPercent.*": ("integer", None, None),
    "status.shards[].startEstimates[].ranged": ("integer", None, None),
    "status.shards[].startEstimates[].held": ("integer", None, None),
    "status.pending": ("integer", None, None),
    "status.inqueue": ("integer", None, None),
    "status.running": ("integer", None, None),
}
# minMember has no default in the schema although absent means 1: with one, a gang that only
# sets minTaskMember could not be told from one whose sum is too large.
PODGROUP = {
    "spec.queue": ("string", "default", None),
    "spec.minMember": ("integer", None, None),
    "spec.minTaskMember.*": ("integer", None, None),
    "spec.minResources": (QUANTITIES, None, None),
    "spec.priorityClassName": ("string", None, None),
    "spec.preemptible": ("boolean", None, None),
    "spec.subGroups[].name": ("string", None, None),
    "spec.subGroups[].minMember": ("integer", 1, None),
    "spec.subGroups[].parent": ("string", None, None),
    "spec.subGroups[].minSubGroups": ("integer", None, None),
    "spec.subGroups[].topology.required": ("string", None, None),
    "spec.subGroups[].topology.preferred": ("string", None, None),
    "spec.subGroups[].topology.maxWait": (DURATION, None, None),
    "spec.minSubGroups": ("integer", None, None),
    "spec.topology.required": ("string", None, None),
    "spec.topology.preferred": ("string", None, None),
    "spec.topology.maxWait": (DURATION, None, None),
    "spec.expectedDuration": (DURATION, None, None),
    "spec.minRuntime": (DURATION, None, None),
    "spec.disruption.mode": ("string", None, ["Group", "Pod", "Extras"]),
    "spec.disruption.checkpointInterval": (DURATION, None, None),
    "spec.scheduleTimeout": (DURATION, None, None),
    "spec.gpuTypes.sameType": ("boolean", None, None),
    "spec.devices.matchAttribute": ("string", None, None),
    "spec.devices.requests[]": ("string", None, None),
    "spec.devices.sameType": ("boolean", None, None),
    "spec.gpuTypes.speeds.*": (ANY, None, None),
    "status.phase": ("string", None, ["Pending", "Inqueue", "Running", "Completed", "Unknown"]),
    "status.scheduled": ("integer", None, None),
    "status.running": ("integer", None, None),
    "status.succeeded": ("integer", None, None),
    "status.failed": ("integer", None, None),
    "status.queuePosition": ("integer", None, None),
    "status.estimatedStartTime": ("string", None, None),
    "status.estimatedStartRange.earliest": ("string", None, None),
    "status.estimatedStartRange.latest": ("string", None, None),
    "status.estimatedStartRange.knownBy": ("string", None, None),
    "status.moved": ("string", None, None),
    "status.turn.ended": ("string", None, None),
    "status.turn.seconds": ("integer", None, None),
    "status.evictions[].time": ("string", None, None),
    "status.evictions[].action": ("string", None, None),
    "status.evictions[].reason": ("string", None, None),
    "status.evictions[].for": ("string", None, None),
    "status.evictions[].forUID": ("string", None, None),
    "status.evictions[].gpuSeconds": ("integer", None, None),
    "status.placement.*": ("string", None, None),
}
TOPOLOGY = {
    "spec.levels[].name": ("string", None, None),
    "spec.levels[].nodeLabel": ("string", None, None),
}
RESERVATION = {
    "spec.purpose": ("string", "Reserved", ["Reserved", "Maintenance"]),
    "spec.from": ("string", None, None),
    "spec.to": ("string", None, None),
    "spec.duration": (DURATION, None, None),
    "spec.recurring.every": (DURATION, None, None),
    "spec.recurring.weekdays[]": (
        "string",
        None,
        ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"],
    ),
    "spec.recurring.timeZone": ("string", None, None),
    "spec.recurring.until": ("string", None, None),
    "spec.queues[]": ("string", None, None),
    "spec.namespaces[]": ("string", None, None),
    "spec.nodeNames[]": ("string", None, None),
    "spec.nodeSelector.*": ("string", None, None),
    "spec.nodes": ("integer", None, None),
    "spec.resources": (QUANTITIES, None, None),
    "spec.atStart": ("string", "Evict", ["Evict", "Leave"]),
    "spec.moveBefore": (DURATION, None, None),
    "status.phase": ("string", None, ["Announced", "Active", "Ended", "Invalid"]),
    "status.from": ("string", None, None),
    "status.to": ("string", None, None),
    "status.nodes[]": ("string", None, None),
    "status.nodeCount": ("integer", None, None),
    "status.gangsInTheWay": ("integer", None, None),
}
CONDITIONS = {
    "status.conditions[].type": ("string", None, None),
    "status.conditions[].status": ("string", None, ["True", "False", "Unknown"]),
    "status.conditions[].observedGeneration": ("integer", None, None),
    "status.conditions[].lastTransitionTime": ("string", None, None),
    "status.conditions[].reason": ("string", None, None),
    "status.conditions[].message": ("string", None, None),
}
FIELDS = {
    "queues": QUEUE | CONDITIONS,
    "podgroups": PODGROUP | CONDITIONS,
    "topologies": TOPOLOGY | CONDITIONS,
    "reservations": RESERVATION | CONDITIONS,
}
NAMES = {
    "queues": ("Queue", "queue", "gq", "Cluster", True),
    "podgroups": ("PodGroup", "podgroup", "gpg", "Namespaced", True),
    "topologies": ("Topology", "topology", "gtopo", "Cluster", True),
    "reservations": ("Reservation", "reservation", "gres", "Cluster", True),
}
PLURALS = pytest.mark.parametrize("plural", sorted(FIELDS))


def crd(plural: str) -> dict[str, Any]:
    return yaml.safe_load((path("manifests/crds") / f"{plural}.yaml").read_text())


def version(plural: str) -> dict[str, Any]:
    (only,) = crd(plural)["spec"]["versions"]
    return only


def schema(plural: str) -> dict[str, Any]:
    return version(plural)["schema"]["openAPIV3Schema"]


def nodes(node: dict[str, Any], at: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema node with its path, in the notation of the tables above."""
    yield at, node
    for name, child in node.get("properties", {}).items():
        yield from nodes(child, f"{at}.{name}" if at else name)
    if "additionalProperties" in node:
        yield from nodes(node["additionalProperties"], f"{at}.*")
    if "items" in node:
        yield from nodes(node["items"], f"{at}[]")


def kind_of(node: dict[str, Any]) -> str:
    """The type as the tables above name it."""
    if node.get("additionalProperties", {}).get("x-kubernetes-int-or-string"):
        return QUANTITIES
    rules = node.get("x-kubernetes-validations", ())
    if any("duration(self)" in rule["rule"] for rule in rules):
        return DURATION
    return ANY if node.get("x-kubernetes-preserve-unknown-fields") else str(node["type"])


@PLURALS
def test_names_are_the_published_ones(plural):
    """Group, version, kind, scope, short name and status subresource are those of the contract."""
    kind, singular, short, scope, has_status = NAMES[plural]
    found = crd(plural)
    names = found["spec"]["names"]
    assert found["metadata"]["name"] == f"{plural}.scheduling.gpusched.io"
    assert (found["spec"]["group"], found["spec"]["scope"]) == ("scheduling.gpusched.io", scope)
    assert (names["kind"], names["singular"], names["plural"]) == (kind, singular, plural)
    assert names["shortNames"] == [short]
    assert version(plural)["name"] == "v1alpha1"
    assert ("status" in version(plural).get("subresources", {})) is has_status


@PLURALS
def test_fields_are_the_published_ones(plural):
    """Every field of the contract is there with type, default and values, and no other is."""
    skipped = ("", "apiVersion", "kind", "metadata")
    found = {
        at: (kind_of(node), node.get("default"), node.get("enum"))
        for at, node in nodes(schema(plural))
        if at not in skipped and not node.get("x-kubernetes-int-or-string")
    }
    inner = {at for at, (kind, *_) in found.items() if kind in {"object", "array"}}
    assert {at: facts for at, facts in found.items() if at not in inner} == FIELDS[plural]


@PLURALS
def test_schema_is_structural_and_explained(plural):
    """Each node has a type; each field one sentence, for that is what `kubectl explain` shows."""
    for at, node in nodes(schema(plural)):
        if at not in READ_BY_US:
            assert "type" in node or node.get("x-kubernetes-int-or-string"), at
        assert not {"$ref", "oneOf", "allOf", "not", "nullable"} & set(node), at
        assert not ("properties" in node and "additionalProperties" in node), at
        if at not in {"", "metadata"} and not at.endswith((".*", "[]")):
            text = node["description"]
            assert text[0].isupper(), at
            assert text.endswith("."), at
            assert len(text) < 160, at


@PLURALS
def test_everything_that_users_write_is_bounded(plural):
    """Lists, maps and strings of a spec have an upper bound, so that rules stay cheap."""
    for at, node in nodes(schema(plural)):
        if not at.startswith("spec") or "enum" in node or at in READ_BY_US:
            continue
        if node.get("x-kubernetes-int-or-string") or node["type"] == "string":
            assert node["maxLength"] <= 317, at
        elif node["type"] == "array":
            assert node["maxItems"] <= MAX_ITEMS, at
        elif "additionalProperties" in node:
            assert node["maxProperties"] <= MAX_ITEMS, at


@PLURALS
def test_printer_columns_show_fields_that_exist(plural):
    """Each column's path leads to a field of the schema."""
    known = {at for at, _ in nodes(schema(plural))} | {"metadata.creationTimestamp"}
    columns = version(plural)["additionalPrinterColumns"]
    assert len({column["name"] for column in columns}) == len(columns)
    for column in columns:
        plain = re.sub(r"\[[^]]*\]", "[]", column["jsonPath"].removeprefix("."))
        plain = re.sub(r"[^.]*\\\..*$", "*", plain)  # a resource name is a key of a map
        assert plain in known, column["jsonPath"]


@PLURALS
def test_selectable_fields_exist(plural):
    """Field selectors name single fields of the schema."""
    known = {at for at, node in nodes(schema(plural)) if node.get("type") == "string"}
    for field in version(plural).get("selectableFields", ()):
        assert field["jsonPath"].removeprefix(".") in known


@PLURALS
def test_every_rule_says_what_is_wrong(plural):
    """A rule without its own message would show its code to the user."""
    rules = [r for _, n in nodes(schema(plural)) for r in n.get("x-kubernetes-validations", ())]
    assert rules
    for rule in rules:
        assert "\n" not in rule["message"]
        assert 10 < len(rule["message"]) < 120
