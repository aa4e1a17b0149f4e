"""What arrives while a cluster is played: jobs of the past again and again, more of one tenant's, as Jobs."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import attrs

from gpusched.api.meta.duration import NANOSECONDS, format_duration
from gpusched.api.meta.gpu_resources import gpu_resources
from gpusched.base.classes import frozen
from gpusched.base.errors import UsageError
from gpusched.config.yaml_tree import did_you_mean, list_names, quoted
from gpusched.engine.job_records import CLASS_LABEL
from gpusched.engine.objects import Obj
from gpusched.engine.simulation import Arrival
from gpusched.engine.world import RUN_FOR
from gpusched.lab.simulate.traces.model import TraceJob
from gpusched.lab.simulate.traces.workload import NAMESPACE, TTL_S, pods_of

FACTOR_MAX: Final = 100.0
ARRIVALS_MAX: Final = 500_000
"""Jobs of one play: more take longer than anyone waits."""
_FACTOR: Final = re.compile(r"(.+?)\s*[*x]\s*([0-9]{1,12}(?:[.][0-9]{1,12})?)")
_NAME_MAX: Final = 40


@frozen(kw_only=True)
class LoadJob:
    """One job that arrives.

    Attributes:
        name: not unique in what was read, unique in what is played.
        at: seconds since the beginning of the load.
        run_s: seconds that it runs.
        pods: that start together.
        pod_gpus: thousandths of GPUs of each.
        priority: as a number.
    """

    name: str
    namespace: str
    queue: str
    at: float
    run_s: int
    pods: int
    pod_gpus: int
    priority: int = 0


def jobs_of_trace(jobs: Iterable[TraceJob], *, node_gpus: int) -> tuple[LoadJob, ...]:
    """Jobs of a trace; one with more GPUs than a node has several pods."""
    found = []
    for job in jobs:
        pods, gpus = pods_of(job.gpus, node_gpus)
        found.append(
            LoadJob(name=job.name, namespace=NAMESPACE, queue=job.queue, at=job.submit_s,
                    run_s=job.duration_s, pods=pods, pod_gpus=gpus * 1000)
        )  # fmt: skip
    return tuple(found)


def repeat_load(
    jobs: Sequence[LoadJob], *, window_s: float | None, until: float
) -> tuple[LoadJob, ...]:
    """The load of a window again and again until so many seconds have passed, each job with a name of its own.

    Args:
        jobs: by time.
        window_s: after so many seconds it begins anew; None to play it once.
        until: seconds.

    Raises:
        UsageError: that would be absurdly many.
    """
    rounds = 1 if window_s is None or not jobs else math.ceil(until / window_s)
    if rounds * len(jobs) > ARRIVALS_MAX:
        raise UsageError(
            f"{len(jobs):,} jobs {rounds:,} times are more than the {ARRIVALS_MAX:,} that are "
            "played; ask about less time"
        )
    seen: dict[tuple[str, str], int] = {}
    made = []
    for turn in range(rounds):
        for job in jobs:
            at = turn * (window_s or 0.0) + job.at
            if at < until:
                stem = job.name[:_NAME_MAX].rstrip("-.")
                number = seen[job.namespace, stem] = seen.get((job.namespace, stem), 0) + 1
                made.append(attrs.evolve(job, at=at, name=f"{stem}-r{number}"))
    return tuple(made)


# -- more of it --------------------------------------------------------------------------------
@frozen(kw_only=True)
class LoadFactor:
    """How much more of a tenant's jobs arrives.

    Attributes:
        kind: ``queue`` or ``namespace``.
        names: of it, with the queues below it.
    """

    kind: str
    names: frozenset[str]
    factor: float
    message: str


def read_load_factor(text: str, objects: Sequence[Obj], jobs: Sequence[LoadJob]) -> LoadFactor:
    """What ``--load`` says.

    Args:
        text: ``queue/NAME*FACTOR`` or ``namespace/NAME*FACTOR``.
        objects: of the cluster, whose queues have queues below them.
        jobs: that arrive.

    Raises:
        UsageError: it cannot be understood, or nothing of that tenant arrives.
    """
    match = _FACTOR.fullmatch(text.strip())
    kind, is_named, name = match[1].partition("/") if match else ("", "", "")
    kind = {"namespace": "namespace", "ns": "namespace", "queue": "queue"}.get(kind.lower(), "")
    if match is None or not is_named or not kind or not name:
        raise UsageError(
            f"--load takes queue/NAME*FACTOR or namespace/NAME*FACTOR, such as queue/research*2, "
            f"not {text[:80]!r}"
        )
    factor = float(match[2])
    if factor > FACTOR_MAX:
        raise UsageError(f"--load {text}: at most {FACTOR_MAX:g} times the load is played")
    names = _with_queues_below(name, objects) if kind == "queue" else frozenset({name})
    count = sum(getattr(job, kind) in names for job in jobs)
    if not count:
        if not jobs:
            raise UsageError(
                f"--load {text}: no job arrives that could come more often: the history of this time, or the "
                "file of arrivals, holds none"
            )
        there = sorted({getattr(job, kind) for job in jobs})
        near = did_you_mean(name, there).rstrip("?")
        raise UsageError(
            f"--load {text}: nothing of {kind} {quoted(name)} arrives; jobs arrive of "
            f"{list_names(there[:8])}{near}"
        )
    return LoadFactor(
        kind=kind, names=names, factor=factor,
        message=f"{factor:g} times the load of {kind} {name} ({count:,} jobs become {round(count * factor):,})",
    )  # fmt: skip


def refuse_factors_twice(factors: Sequence[LoadFactor]) -> None:
    """Raises where two say how much of the same tenant's jobs arrives."""
    for turn, one in enumerate(factors):
        for other in factors[:turn]:
            both = sorted(one.names & other.names)
            if one.kind == other.kind and both:
                raise UsageError(f"--load says twice how much of {one.kind} {both[0]} arrives")


def _with_queues_below(name: str, objects: Sequence[Obj]) -> frozenset[str]:
    below: dict[str, list[str]] = defaultdict(list)
    for obj in objects:
        if obj.get("kind") == "Queue":
            below[(obj.get("spec") or {}).get("parent") or "root"].append(obj["metadata"]["name"])
    found, open_names = {name}, [name]
    while open_names:
        more = [each for each in below.get(open_names.pop(), ()) if each not in found]
        found |= {*more}
        open_names += more
    return frozenset(found)


def apply_load_factors(
    jobs: Sequence[LoadJob], factors: Sequence[LoadFactor]
) -> tuple[LoadJob, ...]:
    """The load with more, or less, of some tenants' jobs.

    Copies of a job are spread evenly over the time until the next job of the tenant, so that the rhythm
    of day and week stays; of fractions, every so many jobs have one copy more or are left out.
    """
    for factor in factors:
        jobs = _scaled(jobs, factor)
    return tuple(jobs)


def _scaled(jobs: Sequence[LoadJob], factor: LoadFactor) -> list[LoadJob]:
    mine = [job for job in jobs if getattr(job, factor.kind) in factor.names]
    made = [job for job in jobs if getattr(job, factor.kind) not in factor.names]
    owed = 0.0
    for turn, job in enumerate(mine):
        owed += factor.factor
        copies = math.floor(owed + 1e-9)
        owed -= copies
        gap = mine[turn + 1].at - job.at if turn + 1 < len(mine) else 0.0
        made += [
            job if copy == 0
            else attrs.evolve(job, name=f"{job.name}-more{copy}", at=job.at + gap * copy / copies)
            for copy in range(copies)
        ]  # fmt: skip
    return sorted(made, key=lambda job: job.at)


# -- manifests ---------------------------------------------------------------------------------
def load_arrivals(jobs: Sequence[LoadJob], *, scheduler: str) -> Iterator[Arrival]:
    """One Job for each, by time."""
    for job in jobs:
        yield Arrival(job.at, (_job_manifest(job, scheduler),))


def _job_manifest(job: LoadJob, scheduler: str) -> Obj:
    """An Indexed Job whose pods start together. It asks for GPUs alone: no more is known of it."""
    whole, part = divmod(job.pod_gpus, 1000)
    notes = {RUN_FOR: format_duration(job.run_s * NANOSECONDS)}
    limits: dict[str, str] = {}
    if whole:
        limits = {gpu_resources().main.name: str(whole + (part > 0))}
    elif part:
        notes["gpusched.io/gpu-fraction"] = f"0.{part:03d}"
    container = {"name": "main", "image": "registry.example/load:1",
                 "resources": {"requests": limits, "limits": limits}}  # fmt: skip
    spec: dict[str, Any] = {
        "schedulerName": scheduler, "restartPolicy": "Never", "containers": [container],
    }  # fmt: skip
    if job.priority:
        spec["priority"] = job.priority
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": job.name, "namespace": job.namespace,
            "labels": {"gpusched.io/queue": job.queue, CLASS_LABEL: _class_label(job)},
        },
        "spec": {
            "parallelism": job.pods, "completions": job.pods, "completionMode": "Indexed",
            "ttlSecondsAfterFinished": TTL_S,
            "template": {"metadata": {"annotations": notes}, "spec": spec},
        },
    }  # fmt: skip


def _class_label(job: LoadJob) -> str:
    gpus = -(-job.pods * job.pod_gpus // 1000)
    trace = TraceJob(name="", submit_s=0, duration_s=1, gpus=gpus, queue="")
    return trace.klass.replace(" ", "-")
