"""What a simulation begins with: a recorded cluster, a trace, or generated jobs."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import attrs

from gpusched.api.meta.duration import NANOSECONDS, parse_duration
from gpusched.api.meta.gpu_resources import gpu_resources
from gpusched.base.classes import frozen
from gpusched.base.clock import EPOCH
from gpusched.base.errors import UsageError
from gpusched.base.limits import GENERATED_JOBS_MAX, TRACE_DAYS_MAX
from gpusched.engine.from_snapshot import start_from_snapshot
from gpusched.engine.objects import Obj
from gpusched.engine.simulation import Arrival
from gpusched.engine.world import SimulatedDelays
from gpusched.io.recordings.snapshot_file import read_snapshot
from gpusched.lab.experiments.m6 import Months, months_objects, months_trace
from gpusched.lab.scenario.judge.messages import duration_text
from gpusched.lab.simulate.traces import openb
from gpusched.lab.simulate.traces.csv_jobs import read_csv_jobs, shift_to_zero
from gpusched.lab.simulate.traces.generator import GeneratorOptions, generate_jobs
from gpusched.lab.simulate.traces.model import SkippedRow, Trace, TraceJob
from gpusched.lab.simulate.traces.philly import read_philly
from gpusched.lab.simulate.traces.workload import (
    CPUS_PER_GPU,
    GIB_PER_GPU,
    JobShape,
    equal_nodes,
    gpu_shares,
    job_arrivals,
    node_manifest,
    nodes_for,
    queue_manifests,
)

_NODES: Final = re.compile(r"([1-9][0-9]{0,4})x([1-9][0-9]{0,2})(?:/([1-9][0-9]{0,3}))?")
LOAD: Final = 0.85
"""Share of the GPUs that generated jobs use on average, where the number of nodes is not given."""
_OF_INPUTS: Final[Mapping[str, tuple[Any, tuple[str, ...]]]] = MappingProxyType({
    "jobs": (2000, ("generate",)), "days": (7.0, ("generate",)),
    "grace": (None, ("snapshot",)), "assume_duration": (None, ("snapshot",)),
    "suspend": (False, ("csv", "philly", "generate")), "strict": (False, ("csv", "philly", "openb")),
})  # fmt: skip
"""Options of some inputs: what they are where they are not given, and the inputs that they say something of."""
_GRACE_S: Final = 30.0
STEP_MAX_S: Final = 3600.0
"""Longest time for which changes are gathered."""


@frozen(kw_only=True)
class SimulationInput:
    """What a simulation begins with.

    Attributes:
        source: what it is, for people.
        objects: there from the beginning.
        arrivals: makes what comes later, anew for each run.
        until: seconds after which a run ends; None when nothing is to come any more.
        step_s: seconds for which changes are gathered before a session decides about all of them; 0 for as the
            daemon does.
        passed: rows that were passed over, the first of each reason; ``counts`` has all.
        remarks: what a reader of the results should know.
        snapshot: it is a recorded cluster.
    """

    source: str
    objects: Sequence[Obj]
    arrivals: Callable[[], Iterable[Arrival]]
    pace: SimulatedDelays
    until: float | None = None
    step_s: float = 0.0
    epoch: float = EPOCH
    seed: int = 0
    passed: Sequence[SkippedRow] = ()
    counts: Mapping[str, int] = attrs.Factory(dict)
    remarks: Sequence[str] = ()
    jobs: int = 0
    snapshot: bool = False


def read_input(arguments: argparse.Namespace) -> SimulationInput:
    """Read what the command line names.

    Raises:
        UsageError: options that do not go together, or cannot be understood.
        ConfigError: a file cannot be used.
    """
    check_belonging(arguments)
    step_s = _step(arguments.step)
    given = _read_named(arguments)
    remarks = [*given.remarks, *_step_remarks(step_s)]
    return attrs.evolve(given, step_s=step_s, remarks=remarks)


def input_notes(given: SimulationInput) -> Iterator[str]:
    """One line for the first row of each reason that was passed over, and for each remark."""
    for each in given.passed:
        more = given.counts[each.reason] - 1
        also = f" (and {more:,} more: {each.reason})" if more else ""
        yield f"passed over: {each.place}: {each.sentence}{also}"
    for remark in given.remarks:
        yield f"note: {remark}"


def check_belonging(arguments: argparse.Namespace, *, fill: bool = False) -> None:
    """Whether options belong to the input that is named.

    Args:
        arguments: of the command line.
        fill: it is the published fill, to which none of them belongs.

    Raises:
        UsageError: one would do nothing.
    """
    for name, (plain, inputs) in _OF_INPUTS.items():
        here = not fill and any(getattr(arguments, each) is not None for each in inputs)
        if getattr(arguments, name) != plain and not here:
            option = f"--{name.replace('_', '-')}"
            if fill:
                raise UsageError(f"{option} does not go with --fill")
            raise UsageError(f"{option} goes with {' or '.join(f'--{each}' for each in inputs)}")


def check_generated(jobs: int, days: float) -> None:
    """Look at how much is to be generated before any of it is.

    Raises:
        UsageError: no job, no time, or more than can be simulated.
    """
    if not 1 <= jobs <= GENERATED_JOBS_MAX:
        raise UsageError(f"--jobs takes a number from 1 to {GENERATED_JOBS_MAX:,}, not {jobs}")
    if not 0 < days <= TRACE_DAYS_MAX:
        raise UsageError(f"--days takes a number above 0 and up to {TRACE_DAYS_MAX:,}, not {days}")


def _step(text: str | None) -> float:
    step_s = _seconds(text, "--step") or 0.0
    if step_s > STEP_MAX_S:
        raise UsageError(f"--step {text}: at most an hour; 0s decides as the daemon does")
    return step_s


def _step_remarks(step_s: float) -> list[str]:
    if not step_s:
        return []
    step = duration_text(round(step_s))
    return [
        f"what changes within {step} is decided about together: starts come up to {step} later than a daemon's"
    ]


def _read_named(arguments: argparse.Namespace) -> SimulationInput:
    until = _seconds(arguments.span, "--for")
    if until is not None and until > TRACE_DAYS_MAX * 86_400:
        raise UsageError(f"--for {arguments.span}: at most {TRACE_DAYS_MAX:,} days are simulated")
    pace = SimulatedDelays(start_s=_needed(arguments.start_delay, "--start-delay"))
    if arguments.snapshot is not None:
        return _snapshot(arguments, until)
    if arguments.openb is not None:
        return _openb(arguments, until, pace)
    if arguments.generate == "m6":
        return _months(arguments, until, pace)
    trace, cluster = _trace(arguments)
    jobs = trace.jobs[: arguments.first] if arguments.first else trace.jobs
    jobs = _half(jobs, arguments.half)
    trace = attrs.evolve(trace, jobs=jobs)
    made = cluster(trace)
    gpus = sum(
        int(each["status"]["allocatable"].get(gpu_resources().main.name, "0")) for each in made
    )
    most = max(
        int(each["status"]["allocatable"].get(gpu_resources().main.name, "0")) for each in made
    )
    shape = JobShape(node_gpus=most, suspend=arguments.suspend)
    return SimulationInput(
        source=f"{trace.source}: {len(jobs):,} jobs on {len(made):,} nodes with {gpus:,} GPUs",
        objects=[*made, *queue_manifests(gpu_shares(trace.jobs, gpus))],
        arrivals=partial(job_arrivals, jobs, shape),
        pace=pace,
        until=until,
        seed=arguments.seed,
        passed=trace.passed,
        counts=trace.counts,
        remarks=trace.remarks,
        jobs=len(jobs),
    )


def _half(jobs: Sequence[TraceJob], half: str | None) -> Sequence[TraceJob]:
    """All jobs, or by time the ``first`` half of them, or the ``second`` from its own beginning."""
    middle = len(jobs) // 2
    if half == "second":
        return shift_to_zero(jobs[middle:])
    return jobs[:middle] if half else jobs


def _months(
    arguments: argparse.Namespace, until: float | None, pace: SimulatedDelays
) -> SimulationInput:
    """Months of gang jobs as experiment M6 plays them: they tell their run times."""
    if arguments.nodes:
        raise UsageError("--nodes does not go with --generate m6, which makes nodes for its load")
    check_generated(arguments.jobs, arguments.days)
    months = Months(jobs=arguments.jobs, days=arguments.days, seed=arguments.seed)
    trace = months_trace(months)
    made = months_objects(months, trace)
    jobs = trace.jobs[: arguments.first] if arguments.first else trace.jobs
    return SimulationInput(
        source=f"{trace.source}: {len(jobs):,} jobs of experiment M6",
        objects=made,
        arrivals=partial(job_arrivals, jobs, JobShape(told="truth", suspend=arguments.suspend)),
        pace=pace,
        until=until,
        seed=arguments.seed,
        jobs=len(jobs),
    )


def _snapshot(arguments: argparse.Namespace, until: float | None) -> SimulationInput:
    if arguments.nodes or arguments.first:
        raise UsageError("--nodes and --first belong to traces; a snapshot has nodes of its own")
    found = start_from_snapshot(
        read_snapshot(arguments.snapshot), deadlines=not arguments.assume_duration
    )
    pace = SimulatedDelays(
        start_s=_needed(arguments.start_delay, "--start-delay"),
        stop_s=_seconds(arguments.grace, "--grace") or _GRACE_S,
        assume_s=_seconds(arguments.assume_duration, "--assume-duration"),
    )
    return SimulationInput(
        source=f"snapshot {arguments.snapshot}",
        objects=found.objects,
        arrivals=tuple,
        pace=pace,
        until=6 * 3600.0 if until is None else until,
        epoch=found.epoch,
        remarks=found.remarks,
        snapshot=True,
    )


def _openb(
    arguments: argparse.Namespace, until: float | None, pace: SimulatedDelays
) -> SimulationInput:
    if arguments.nodes:
        raise UsageError("--nodes does not go with --openb, which has nodes of its own")
    hosts = openb.read_hosts(Path(arguments.openb[0]), all_of_them=True)
    timed = openb.read_timed(Path(arguments.openb[1]), strict=arguments.strict)
    pods = timed.pods[: arguments.first] if arguments.first else timed.pods
    gpus = sum(host.gpus for host in hosts)
    return SimulationInput(
        source=f"{timed.source}: {len(pods):,} pods on {len(hosts):,} nodes with {gpus:,} GPUs",
        objects=[*openb.hosts_as_nodes(hosts), *queue_manifests({openb.QUEUE: 0})],
        arrivals=partial(openb.timed_pod_arrivals, pods),
        pace=pace,
        until=until,
        passed=timed.passed,
        counts=timed.counts,
        jobs=len(pods),
    )


def _trace(arguments: argparse.Namespace) -> tuple[Trace, Callable[[Trace], list[Obj]]]:
    """The jobs, and how their cluster is made."""
    size = _size(arguments.nodes)
    if arguments.philly is not None:
        log = read_philly(Path(arguments.philly), strict=arguments.strict)
        return log.trace, lambda _: size() if size else _machines(log.nodes)
    if arguments.csv is not None:
        if size is None:
            raise UsageError("--csv needs --nodes, such as --nodes 50x8: the file tells no nodes")
        return read_csv_jobs(Path(arguments.csv), strict=arguments.strict), lambda _: size()
    check_generated(arguments.jobs, arguments.days)
    made = generate_jobs(
        GeneratorOptions(jobs=arguments.jobs, days=arguments.days, seed=arguments.seed)
    )
    return (
        made,
        lambda trace: size() if size else list(equal_nodes(_count(trace, arguments.days), 8)),
    )


def _count(trace: Trace, days: float) -> int:
    return nodes_for(trace.jobs, days=days, node_gpus=8, load=LOAD)


def _machines(found: Mapping[str, int]) -> list[Obj]:
    made = []
    for name, gpus in sorted(found.items()):
        offer = {
            "cpu": str(CPUS_PER_GPU * gpus + 8), "memory": f"{GIB_PER_GPU * gpus + 64}Gi",
            "pods": "256", gpu_resources().main.name: str(gpus),
        }  # fmt: skip
        made.append(node_manifest(name, {"kubernetes.io/hostname": name}, offer))
    return made


def _size(text: str | None) -> Callable[[], list[Obj]] | None:
    if text is None:
        return None
    match = _NODES.fullmatch(text)
    if match is None:
        raise UsageError(
            f"--nodes takes COUNTxGPUS, or COUNTxGPUS/NODES-A-RACK, such as 50x8/10, not {text!r}"
        )
    count, gpus, rack = int(match[1]), int(match[2]), int(match[3] or 0)
    return lambda: list(equal_nodes(count, gpus, per_rack=rack))


def _seconds(text: str | None, option: str) -> float | None:
    if text is None:
        return None
    try:
        return parse_duration(text) / NANOSECONDS
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None


def _needed(text: str, option: str) -> float:
    found = _seconds(text, option)
    return 0.0 if found is None else found
