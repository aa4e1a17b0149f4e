"""Jobs of a trace as manifests: batch Jobs that wait in queues, nodes and queues to play them on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

from gpusched import API_VERSION
from gpusched.api.meta.duration import NANOSECONDS, format_duration
from gpusched.api.meta.gpu_resources import gpu_resources
from gpusched.base.classes import frozen
from gpusched.engine.job_records import CLASS_LABEL
from gpusched.engine.objects import Obj
from gpusched.engine.simulation import Arrival
from gpusched.engine.world import RUN_FOR
from gpusched.lab.simulate.traces.model import TraceJob

NAMESPACE: Final = "trace"
USER_LABEL: Final = "simulate.gpusched.io/user"
CPUS_PER_GPU: Final = 4
GIB_PER_GPU: Final = 16
TTL_S: Final = 86_400
"""Finished Jobs are removed after a day; until then what they took is learned from."""
MessageSink = Literal["nothing", "truth"]


@frozen(kw_only=True)
class JobShape:
    """How jobs of a trace become Jobs.

    Attributes:
        node_gpus: GPUs of a node: a job with more has several pods.
        told: what jobs tell the scheduler about their length.
        topology: level that every job of several pods requires; empty for none.
        priority: class of all Jobs; empty for none.
        suspend: Jobs wait suspended and are started when they have room, instead of having pods
            from the beginning: the same decisions, in two steps.
    """

    node_gpus: int = 8
    told: MessageSink = "nothing"
    topology: str = ""
    priority: str = ""
    suspend: bool = False


def pods_of(gpus: int, node_gpus: int) -> tuple[int, int]:
    """Number of pods, and GPUs of each: as few equal pods as fit nodes."""
    if gpus <= 0:
        return 1, 0
    most = next(size for size in range(min(gpus, node_gpus), 0, -1) if gpus % size == 0)
    return gpus // most, most


def job_arrivals(jobs: Iterable[TraceJob], shape: JobShape) -> Iterator[Arrival]:
    """One Job for each, in their order."""
    for job in jobs:
        yield Arrival(job.submit_s, (job_manifest(job, shape),))


def job_manifest(job: TraceJob, shape: JobShape) -> Obj:
    """An Indexed Job whose pods start together."""
    pods, gpus = pods_of(job.gpus, shape.node_gpus)
    notes = {}
    if shape.told == "truth":
        notes["gpusched.io/expected-duration"] = _text(job.duration_s)
    if shape.topology and pods > 1:
        notes["gpusched.io/topology-required"] = shape.topology
    labels = {"gpusched.io/queue": job.queue, CLASS_LABEL: _label(job.klass)}
    if job.user:
        labels[USER_LABEL] = job.user
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": job.name, "namespace": NAMESPACE, "labels": labels, "annotations": notes,
        },
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "completionMode": "Indexed",
            "suspend": shape.suspend,
            "ttlSecondsAfterFinished": TTL_S,
            "template": {
                "metadata": {"annotations": {RUN_FOR: _text(job.duration_s)}},
                "spec": _pod_spec(gpus, shape),
            },
        },
    }  # fmt: skip


def _pod_spec(gpus: int, shape: JobShape) -> dict[str, Any]:
    asks = {"cpu": str(max(1, CPUS_PER_GPU * gpus)), "memory": f"{max(1, GIB_PER_GPU * gpus)}Gi"}
    limits = {gpu_resources().main.name: str(gpus)} if gpus else {}
    container = {
        "name": "main",
        "image": "registry.example/train:1",
        "resources": {"requests": asks | limits, "limits": limits},
    }
    spec: dict[str, Any] = {
        "schedulerName": "gpusched", "restartPolicy": "Never", "containers": [container],
    }  # fmt: skip
    if shape.priority:
        spec["priorityClassName"] = shape.priority
    return spec


def _text(seconds: int) -> str:
    return format_duration(seconds * NANOSECONDS)


def _label(klass: str) -> str:
    return klass.replace(" ", "-")


# -- the cluster -------------------------------------------------------------------------------
def equal_nodes(count: int, gpus: int, *, per_rack: int = 0) -> Iterator[Obj]:
    """Equal nodes, so large that GPUs alone are short; ``per_rack`` of them in each rack."""
    width = len(str(max(0, count - 1)))
    offer = {
        "cpu": str(CPUS_PER_GPU * gpus + 8),
        "memory": f"{GIB_PER_GPU * gpus + 64}Gi",
        "pods": "256",
        gpu_resources().main.name: str(gpus),
    }
    for number in range(count):
        name = f"node-{number:0{width}d}"
        labels = {"kubernetes.io/hostname": name}
        if per_rack:
            labels["gpusched.io/rack"] = f"rack-{number // per_rack:03d}"
        yield node_manifest(name, labels, offer)


def node_manifest(name: str, labels: Mapping[str, str], offer: Mapping[str, str]) -> Obj:
    """A node that is ready."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": dict(labels)},
        "status": {
            "capacity": dict(offer),
            "allocatable": dict(offer),
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def queue_manifests(deserved: Mapping[str, int], *, ordering: str = "Priority") -> Iterator[Obj]:
    """A queue for each name, with the GPUs that it deserves; 0 leaves that to its weight."""
    for name, gpus in sorted(deserved.items()):
        spec: dict[str, Any] = {"ordering": ordering}
        if gpus:
            spec["deserved"] = {gpu_resources().main.name: str(gpus)}
        yield {
            "apiVersion": API_VERSION, "kind": "Queue", "metadata": {"name": name}, "spec": spec,
        }  # fmt: skip


def gpu_shares(jobs: Sequence[TraceJob], gpus: int) -> dict[str, int]:
    """GPUs for each queue in proportion to the GPU time that its jobs used; they sum up to all.

    Largest remainders get what rounding leaves; no queue gets less than one GPU.
    """
    used: dict[str, int] = {}
    for job in jobs:
        used[job.queue] = used.get(job.queue, 0) + job.gpus * job.duration_s
    whole = sum(used.values()) or 1
    spare = max(0, gpus - len(used))
    parts = {name: 1 + spare * amount // whole for name, amount in used.items()}
    rest = sorted(used, key=lambda name: (-(spare * used[name] % whole), name))
    for name in rest[: max(0, gpus - sum(parts.values()))]:
        parts[name] += 1
    return parts


def nodes_for(jobs: Sequence[TraceJob], *, days: float, node_gpus: int, load: float) -> int:
    """Nodes on which the jobs use so large a share of the GPUs in those days, if no job waits.

    What the longest do after the last job came does not count: it would make clusters too large.
    """
    span_s = days * 86_400
    used = sum(job.gpus * max(0.0, min(job.duration_s, span_s - job.submit_s)) for job in jobs)
    largest = max(job.gpus for job in jobs)
    return max(-(-largest // node_gpus), round(used / (span_s * node_gpus * load)))
