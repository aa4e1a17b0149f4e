"""The openb trace: hosts, lists of single pods, and how a list becomes arrivals.

Columns as in the published files; nothing but their packing matters: a file may be compressed.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from gpusched.api.meta.duration import NANOSECONDS, format_duration
from gpusched.api.meta.gpu_resources import gpu_resources
from gpusched.base.classes import frozen
from gpusched.base.errors import ConfigError
from gpusched.engine.job_records import CLASS_LABEL
from gpusched.engine.objects import Obj
from gpusched.engine.simulation import Arrival
from gpusched.engine.world import RUN_FOR
from gpusched.lab.simulate.traces.model import SkippedRow
from gpusched.lab.simulate.traces.rows import (
    DURATION_MAX_S,
    RowReader,
    UnusableRow,
    check_span,
    dns_label,
    parse_integer,
    parse_seconds,
    read_csv,
)
from gpusched.lab.simulate.traces.workload import node_manifest

WHOLE: Final = 1000
ARRIVED: Final = 130
"""Requests arrive until they reach so many percent of the GPUs."""
TYPICAL: Final = 95
"""The most frequent shapes are typical until they make up so many percent of a list."""
PUBLISHED: Final = {
    "default": (87.5, 90.9, 91.9, 92.0, 93.1, 95.4),
    "cpu200": (83.8, 87.7, 89.9, 90.2, 92.4, 95.0),
    "gpushare100": (79.4, 82.4, 82.7, 82.6, 85.0, 86.9),
    "gpuspec33": (86.5, 89.1, 92.1, 93.2, 93.1, 94.6),
    "multigpu50": (90.3, 94.9, 95.8, 96.2, 95.7, 97.2),
}
"""Percent of the GPUs allocated once 130 % of them are asked for, by list: random, dot product,
clustering, packing, best fit and FGD ("Beware of Fragmentation", USENIX ATC 2023; 10 seeds)."""
MODEL: Final = "openb/model"
QUEUE: Final = "openb"
_AMOUNTS: Final = ("cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
_TIMES: Final = ("creation_time", "deletion_time", "scheduled_time")
_AMOUNT_MAX: Final = 2**40


@frozen
class TraceHost:
    """One node: thousandths of a CPU, MiB, GPUs and their model."""

    name: str
    cpu: int
    memory: int
    gpus: int
    model: str


@frozen(order=True)
class TracePod:
    """One pod: thousandths of a CPU, MiB, GPUs, thousandths of each, accepted models (all: none)."""

    cpu: int
    memory: int
    gpus: int
    part: int
    models: tuple[str, ...] = ()

    @property
    def demand(self) -> int:
        """Thousandths of GPUs in all."""
        return self.gpus * self.part

    @property
    def kind(self) -> int:
        """What clustering keeps together: the number of GPUs, 0 for any part of one."""
        return self.gpus if self.part == WHOLE else 0

    @property
    def shape(self) -> TracePod:
        """The same without memory: what popularity is counted by."""
        return attrs.evolve(self, memory=0)


@frozen(kw_only=True)
class TimedTracePod:
    """A pod with its times: seconds since the earliest one came.

    Attributes:
        qos: class of service as the trace has it.
    """

    name: str
    request: TracePod
    created: float
    duration_s: int
    qos: str


@frozen(kw_only=True)
class TimedTrace:
    """A list of pods with times; ``passed`` and ``counts`` as in a ``Trace``."""

    source: str
    pods: Sequence[TimedTracePod]
    passed: Sequence[SkippedRow]
    counts: dict[str, int]


# -- reading -----------------------------------------------------------------------------------
def read_hosts(path: Path, *, all_of_them: bool = False) -> list[TraceHost]:
    """The hosts that have GPUs, or all, sorted by name.

    Raises:
        ConfigError: the file cannot be read, or a row cannot be believed.
    """
    hosts = []
    needed = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
    for line, row in read_csv(path, needed=needed, known=()):
        try:
            hosts.append(
                TraceHost(
                    row["sn"],
                    parse_integer(row, "cpu_milli", most=_AMOUNT_MAX),
                    parse_integer(row, "memory_mib", most=_AMOUNT_MAX),
                    parse_integer(row, "gpu", most=64),
                    row["model"],
                )
            )
        except UnusableRow as why:
            raise ConfigError(f"{path}:{line}: {why}") from None
    found = sorted((host for host in hosts if host.gpus or all_of_them), key=lambda each: each.name)
    if not found:
        raise ConfigError(f"{path}: it holds no node with GPUs")
    return found


def read_requests(path: Path) -> list[TracePod]:
    """A list of pods in the order of its file, without times.

    Raises:
        ConfigError: the file cannot be read, or a row cannot be believed.
    """
    requests = []
    for line, row in read_csv(path, needed=("name", *_AMOUNTS), known=()):
        try:
            requests.append(_request(row))
        except UnusableRow as why:
            raise ConfigError(f"{path}:{line}: {why}") from None
    if not requests:
        raise ConfigError(f"{path}: it holds no pod")
    return requests


def read_timed(path: Path, *, strict: bool = False) -> TimedTrace:
    """A list of pods with their times.

    Args:
        path: of the list; ``multigpu50`` has no times.
        strict: rows that cannot be used are an error.

    Raises:
        ConfigError: it cannot be read, has no times, or has holes and none are allowed.
    """
    sieve, pods = RowReader(), []
    for line, row in read_csv(path, needed=("name", *_AMOUNTS, *_TIMES), known=()):
        try:
            pods.append(_timed(row, sieve))
        except UnusableRow as why:
            sieve.passed(f"{path}:{line}", why)
    check_span(path, [pod.created for pod in pods])
    first = min((pod.created for pod in pods), default=0.0)
    moved = [attrs.evolve(pod, created=pod.created - first) for pod in pods]
    moved.sort(key=lambda each: (each.created, each.name))
    told = sieve.skipped_rows(str(path), count=len(moved), strict=strict)
    return TimedTrace(source=str(path), pods=moved, passed=told[0], counts=told[1])


def _request(row: dict[str, str]) -> TracePod:
    gpus = parse_integer(row, "num_gpu", most=64)
    part = parse_integer(row, "gpu_milli", most=WHOLE)
    if gpus and not part:
        raise UnusableRow("no GPUs", "num_gpu is above 0 and gpu_milli is 0")
    return TracePod(
        parse_integer(row, "cpu_milli", most=_AMOUNT_MAX),
        parse_integer(row, "memory_mib", most=_AMOUNT_MAX),
        gpus,
        part,
        tuple(sorted(set(filter(None, (row.get("gpu_spec") or "").split("|"))))),
    )


def _timed(row: dict[str, str], sieve: RowReader) -> TimedTracePod:
    created = parse_seconds(row, "creation_time", most=_AMOUNT_MAX)
    deleted = parse_seconds(row, "deletion_time", most=_AMOUNT_MAX)
    # Pods that were never scheduled have no such time: they take as long as they were there.
    began = (
        parse_seconds(row, "scheduled_time", most=_AMOUNT_MAX) if row["scheduled_time"] else created
    )
    if deleted < began:
        raise UnusableRow("end before start", f"deletion_time {deleted} is before {began}")
    return TimedTracePod(
        name=sieve.name(row["name"] or "pod"),
        request=_request(row),
        created=created,
        duration_s=min(DURATION_MAX_S, max(1, deleted - began)),
        qos=dns_label(row.get("qos") or "unknown"),
    )


# -- the published experiment ------------------------------------------------------------------
def pod_arrivals(
    requests: Sequence[TracePod], *, capacity: int, rng: random.Random, percent: int = ARRIVED
) -> list[TracePod]:
    """A shuffled list, with random picks appended, or cut, where requests reach so much demand.

    Args:
        requests: the list.
        capacity: of all hosts, thousandths of GPUs.
        rng: seeded.
        percent: of the capacity.
    """
    shuffled = list(requests)
    rng.shuffle(shuffled)
    arriving: list[TracePod] = []
    demand = 0
    while demand * 100 < percent * capacity:
        at = len(arriving)
        request = shuffled[at] if at < len(shuffled) else rng.choice(requests)
        arriving.append(request)
        demand += request.demand
    return arriving


def typical_pods(
    requests: Sequence[TracePod], *, percent: int = TYPICAL
) -> list[tuple[TracePod, int]]:
    """The most frequent shapes with their numbers, until they make up so much of the list."""
    counts = Counter(request.shape for request in requests)
    chosen: list[tuple[TracePod, int]] = []
    seen = 0
    for shape, count in sorted(counts.items(), key=lambda each: (-each[1], each[0])):
        chosen.append((shape, count))
        seen += count
        if seen * 100 >= percent * len(requests):
            break
    return chosen


# -- manifests ---------------------------------------------------------------------------------
def hosts_as_nodes(hosts: Sequence[TraceHost]) -> Iterator[Obj]:
    """A node for each host."""
    for host in hosts:
        offer = {"cpu": f"{host.cpu}m", "memory": f"{host.memory}Mi", "pods": "10000"}
        labels = {"kubernetes.io/hostname": host.name}
        if host.gpus:
            offer[gpu_resources().main.name] = str(host.gpus)
            labels[MODEL] = host.model
        yield node_manifest(host.name, labels, offer)


def pod_manifest(name: str, request: TracePod) -> Obj:
    """A lone pod that asks for what the trace says."""
    amounts = {"cpu": f"{request.cpu}m", "memory": f"{request.memory}Mi"}
    notes: dict[str, str] = {}
    limits: dict[str, str] = {}
    if request.gpus and request.part == WHOLE:
        limits = {gpu_resources().main.name: str(request.gpus)}
    elif request.gpus:
        notes["gpusched.io/gpu-fraction"] = f"0.{request.part:03d}"
    container = {
        "name": "main",
        "image": "registry.example/openb:1",
        "resources": {"requests": amounts | limits, "limits": limits},
    }
    spec: dict[str, Any] = {"schedulerName": "gpusched", "containers": [container]}
    if request.models:
        term = {
            "matchExpressions": [{"key": MODEL, "operator": "In", "values": list(request.models)}]
        }
        spec["affinity"] = {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}
            }
        }
    metadata = {"name": name, "namespace": QUEUE, "annotations": notes}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def timed_pod_arrivals(pods: Sequence[TimedTracePod]) -> Iterator[Arrival]:
    """Each pod when it came, running as long as it did."""
    for pod in pods:
        made = pod_manifest(pod.name, pod.request)
        metadata = made["metadata"]
        metadata["labels"] = {CLASS_LABEL: pod.qos, "gpusched.io/queue": QUEUE}
        metadata["annotations"][RUN_FOR] = format_duration(pod.duration_s * NANOSECONDS)
        yield Arrival(pod.created, (made,))
