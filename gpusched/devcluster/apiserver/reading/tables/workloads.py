"""Columns of pods, nodes and jobs: their status is a summary that people read every day."""

from __future__ import annotations

from typing import Any

import attrs

from gpusched.base.classes import define, frozen
from gpusched.cel.schema_nodes import Doc
from gpusched.devcluster.apiserver.reading.tables.ages import age_text
from gpusched.devcluster.apiserver.reading.tables.columns import (
    AGE,
    NAME,
    TEMPLATE,
    Column,
    Columns,
    duration_cell,
    nested_value,
)

NONE = "<none>"
UNKNOWN = "<unknown>"


@frozen
class PodSummary:
    """What a pod's row says of its containers."""

    reason: str
    ready: int
    total: int
    restarts: int
    last_restart: str


def condition_status(obj: Doc, kind: str) -> str:
    """Status of a condition, empty when it is not there."""
    for one in nested_value(obj, "status", "conditions") or ():
        if one.get("type") == kind:
            return str(one.get("status", ""))
    return ""


def _ended(terminated: Doc) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"


def _later(a: str, b: Any) -> str:
    return max(a, b) if isinstance(b, str) else a


@define
class _ContainerCounts:
    """Running sums while the statuses of a pod are read."""

    reason: str
    ready: int = 0
    restarts: int = 0
    sidecar_restarts: int = 0
    last_restart: str = ""
    last_sidecar_restart: str = ""
    initializing: bool = False

    def count_restarts(self, status: Doc) -> None:
        self.restarts += status.get("restartCount", 0)
        finished = nested_value(status, "lastState", "terminated", "finishedAt")
        self.last_restart = _later(self.last_restart, finished)


def _sidecars(pod: Doc) -> set[str]:
    inits = nested_value(pod, "spec", "initContainers") or ()
    return {c.get("name", "") for c in inits if c.get("restartPolicy") == "Always"}


def _read_inits(pod: Doc, tally: _ContainerCounts) -> None:
    sidecars = _sidecars(pod)
    for i, status in enumerate(nested_value(pod, "status", "initContainerStatuses") or ()):
        tally.count_restarts(status)
        sidecar = status.get("name") in sidecars
        if sidecar:
            tally.sidecar_restarts += status.get("restartCount", 0)
            tally.last_sidecar_restart = tally.last_restart
        terminated = nested_value(status, "state", "terminated")
        if terminated is not None and not terminated.get("exitCode", 0):
            continue
        if sidecar and status.get("started"):
            tally.ready += bool(status.get("ready"))
            continue
        tally.initializing = True
        waiting = nested_value(status, "state", "waiting", "reason")
        if terminated is not None:
            tally.reason = f"Init:{_ended(terminated)}"
        elif waiting and waiting != "PodInitializing":
            tally.reason = f"Init:{waiting}"
        else:
            tally.reason = f"Init:{i}/{len(nested_value(pod, 'spec', 'initContainers') or ())}"
        return


def _read_containers(pod: Doc, tally: _ContainerCounts) -> None:
    tally.restarts, tally.last_restart = tally.sidecar_restarts, tally.last_sidecar_restart
    running = False
    for status in reversed(nested_value(pod, "status", "containerStatuses") or ()):
        tally.count_restarts(status)
        terminated = nested_value(status, "state", "terminated")
        waiting = nested_value(status, "state", "waiting", "reason")
        if waiting:
            tally.reason = waiting
        elif terminated is not None:
            tally.reason = _ended(terminated)
        elif status.get("ready") and nested_value(status, "state", "running") is not None:
            running = True
            tally.ready += 1
    if tally.reason == "Completed" and running:
        tally.reason = "Running" if condition_status(pod, "Ready") == "True" else "NotReady"


def pod_summary(pod: Doc) -> PodSummary:
    """The words and numbers of a pod's row."""
    phase = nested_value(pod, "status", "phase") or ""
    tally = _ContainerCounts(reason=nested_value(pod, "status", "reason") or phase)
    for one in nested_value(pod, "status", "conditions") or ():
        if one.get("type") == "PodScheduled" and one.get("reason") == "SchedulingGated":
            tally.reason = "SchedulingGated"
    _read_inits(pod, tally)
    if not tally.initializing or condition_status(pod, "Initialized") == "True":
        _read_containers(pod, tally)
    if nested_value(pod, "metadata", "deletionTimestamp"):
        if nested_value(pod, "status", "reason") == "NodeLost":
            tally.reason = "Unknown"
        elif phase not in {"Succeeded", "Failed"}:
            tally.reason = "Terminating"
    total = len(nested_value(pod, "spec", "containers") or ()) + len(_sidecars(pod))
    return PodSummary(tally.reason, tally.ready, total, tally.restarts, tally.last_restart)


def _ready(pod: Doc, _now: float) -> str:
    summary = pod_summary(pod)
    return f"{summary.ready}/{summary.total}"


def _restarts(pod: Doc, now: float) -> str:
    summary = pod_summary(pod)
    if summary.restarts and summary.last_restart:
        return f"{summary.restarts} ({age_text(summary.last_restart, now)} ago)"
    return str(summary.restarts)


def _ip(pod: Doc, _now: float) -> str:
    addresses = nested_value(pod, "status", "podIPs") or (
        {"ip": nested_value(pod, "status", "podIP")},
    )
    return addresses[0].get("ip") or NONE


def _gates(pod: Doc, _now: float) -> str:
    gates = nested_value(pod, "spec", "readinessGates") or ()
    if not gates:
        return NONE
    passed = sum(condition_status(pod, gate.get("conditionType", "")) == "True" for gate in gates)
    return f"{passed}/{len(gates)}"


PODS: Columns = (
    NAME,
    Column("Ready", _ready, description="Containers that are ready, of all."),
    Column("Status", lambda pod, _: pod_summary(pod).reason, description="What the pod is doing."),
    Column("Restarts", _restarts, description="How often its containers were started again."),
    AGE,
    Column("IP", _ip, priority=1, description="Address of the pod."),
    Column(
        "Node",
        lambda pod, _: nested_value(pod, "spec", "nodeName") or NONE,
        priority=1,
        description="Node the pod is bound to.",
    ),
    Column(
        "Nominated Node",
        lambda pod, _: nested_value(pod, "status", "nominatedNodeName") or NONE,
        priority=1,
        description="Node on which room is being made.",
    ),
    Column("Readiness Gates", _gates, priority=1, description="Extra conditions that hold."),
)


def _node_status(node: Doc, _now: float) -> str:
    ready = condition_status(node, "Ready")
    words = ["Unknown" if not ready else "Ready" if ready == "True" else "NotReady"]
    if nested_value(node, "spec", "unschedulable"):
        words.append("SchedulingDisabled")
    return ",".join(words)


def _roles(node: Doc, _now: float) -> str:
    prefix = "node-role.kubernetes.io/"
    roles = {
        key.removeprefix(prefix) if key.startswith(prefix) else value
        for key, value in (nested_value(node, "metadata", "labels") or {}).items()
        if (key.startswith(prefix) and key != prefix) or (key == "kubernetes.io/role" and value)
    }
    return ",".join(sorted(roles)) or NONE


def _address(kind: str, node: Doc) -> str:
    for one in nested_value(node, "status", "addresses") or ():
        if one.get("type") == kind:
            return str(one.get("address", NONE))
    return NONE


def _info(name: str, key: str, text: str, *, empty: str) -> Column:
    return Column(
        name,
        lambda node, _: nested_value(node, "status", "nodeInfo", key) or empty,
        priority=1,
        description=text,
    )


NODES: Columns = (
    NAME,
    Column("Status", _node_status, description="Whether the node takes and runs pods."),
    Column("Roles", _roles, description="What the node is for."),
    AGE,
    attrs.evolve(
        _info("Version", "kubeletVersion", "Version of its kubelet.", empty=""), priority=0
    ),
    Column(
        "Internal-IP",
        lambda node, _: _address("InternalIP", node),
        priority=1,
        description="Address inside the cluster.",
    ),
    Column(
        "External-IP",
        lambda node, _: _address("ExternalIP", node),
        priority=1,
        description="Address outside the cluster.",
    ),
    _info("OS-Image", "osImage", "Its operating system.", empty=UNKNOWN),
    _info("Kernel-Version", "kernelVersion", "Its kernel.", empty=UNKNOWN),
    _info("Container-Runtime", "containerRuntimeVersion", "Its runtime.", empty=UNKNOWN),
)


def _job_status(job: Doc, _now: float) -> str:
    for kind in ("Complete", "Failed"):
        if condition_status(job, kind) == "True":
            return kind
    if nested_value(job, "metadata", "deletionTimestamp"):
        return "Terminating"
    for kind in ("Suspended", "FailureTarget", "SuccessCriteriaMet"):
        if condition_status(job, kind) == "True":
            return kind
    return "Running"


def _completions(job: Doc, _now: float) -> str:
    done = nested_value(job, "status", "succeeded") or 0
    wanted = nested_value(job, "spec", "completions")
    if wanted is not None:
        return f"{done}/{wanted}"
    parallel = nested_value(job, "spec", "parallelism") or 0
    return f"{done}/1 of {parallel}" if parallel > 1 else f"{done}/1"


JOBS: Columns = (
    NAME,
    Column("Status", _job_status, description="What the job is doing."),
    Column("Completions", _completions, description="Pods that succeeded, of those needed."),
    Column(
        "Duration",
        lambda job, now: duration_cell(
            nested_value(job, "status", "startTime"),
            nested_value(job, "status", "completionTime"),
            now,
        ),
        description="Time the job has taken.",
    ),
    AGE,
    *TEMPLATE,
)


def row_conditions(pod: Doc) -> list[Doc]:
    """What marks a row of a finished pod, so that clients can hide it."""
    phase = nested_value(pod, "status", "phase")
    sentence = {
        "Succeeded": "The pod has completed successfully.",
        "Failed": "The pod failed.",
    }.get(phase or "")
    if sentence is None:
        return []
    return [{"type": "Completed", "status": "True", "reason": phase, "message": sentence}]
