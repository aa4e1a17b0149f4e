"""``gpusched advise mig``: layouts of MIG partitions for idle nodes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from gpusched.api.meta.duration import NANOSECONDS, parse_duration
from gpusched.api.meta.gpu_resources import GpuResource, gpu_resources_in_force
from gpusched.base.classes import frozen
from gpusched.base.errors import UsageError
from gpusched.cli.command import (
    print_json,
)
from gpusched.cli.command import table as as_table
from gpusched.cli.inspect.ask.recorded_cluster import read_file
from gpusched.config.load import configuration_path, load_file
from gpusched.config.model import DEFAULT, Config
from gpusched.engine.from_snapshot import SimulationStart, start_from_snapshot
from gpusched.engine.world import SimulatedDelays
from gpusched.lab.scenario.judge.messages import duration_text
from gpusched.lab.simulate.mig.choice import LayoutChoice, choose_layouts
from gpusched.lab.simulate.mig.demand import CONFIG, MigDemand, read_demand, resource_of
from gpusched.lab.simulate.mig.layouts import SEVENTHS, read_layouts
from gpusched.lab.simulate.mig.trial import TrialFigures, try_layouts, with_layouts
from gpusched.view.over_time.advice_view import SHARDS_LEFT_OUT

_LEFT_OUT_SHOWN: Final = 5
_ASSUMED: Final = (
    "the MIG manager carries a layout out at once, and pods find their node by profile alone",
    "what runs now is what comes again; gangs are served whole, whatever their queue may use",
)


@frozen
class _Advice:
    """What is told.

    Attributes:
        now, then: figures of the simulated span with today's layouts, and with the proposed ones.
        today: what today's layouts serve.
    """

    demand: MigDemand
    today: LayoutChoice
    choice: LayoutChoice
    now: TrialFigures
    then: TrialFigures


def advise_mig(arguments: argparse.Namespace) -> int:
    """Advise; 0 also when nothing is to be changed.

    Raises:
        UsageError: options that cannot be understood.
        ConfigError: a file cannot be used.
        ClusterUnreachable: no cluster.
    """
    span_s = _seconds(arguments.span, "--for")
    assume_s = _seconds(arguments.assume_duration, "--assume-duration")
    path = configuration_path(arguments.config)
    config = load_file(path) if path else DEFAULT
    layouts = read_layouts(Path(arguments.layouts)) if arguments.layouts else ()
    gpu = config.gpu_resources.main
    if not gpu.slice_prefix:
        raise UsageError(
            f"gpuResources of the configuration gives {gpu.name} no slicePrefix: nothing tells "
            "which resources are its partitions"
        )
    read = read_file(arguments)
    cluster = read.file
    with gpu_resources_in_force(config.gpu_resources):
        start = start_from_snapshot(cluster)
        demand = read_demand(start.objects, layouts, gpu, config.scheduler_names)
        advice = _advise(start, demand, config, gpu, span_s=span_s, assume_s=assume_s)
    if arguments.output == "json":
        print_json(_as_json(advice, gpu))
    else:
        for line in _lines(advice, gpu, span_s):
            print(line)
    for remark in (*((SHARDS_LEFT_OUT,) if read.in_shards else ()), *start.remarks):
        print(f"note: {remark}", file=sys.stderr)
    return 0


def _advise(
    start: SimulationStart,
    demand: MigDemand,
    config: Config,
    gpu: GpuResource,
    *,
    span_s: float,
    assume_s: float,
) -> _Advice:
    today = choose_layouts(demand, may_change=False)
    choice = choose_layouts(demand)
    pace = SimulatedDelays(assume_s=assume_s)
    now = try_layouts(start, start.objects, config=config, until_s=span_s, pace=pace)
    then = now
    if choice.changes:
        changed = with_layouts(start.objects, choice.changes, gpu)
        then = try_layouts(start, changed, config=config, until_s=span_s, pace=pace)
    return _Advice(demand, today, choice, now, then)


def _lines(advice: _Advice, gpu: GpuResource, span_s: float) -> Iterator[str]:
    """The answer for people."""
    demand, choice = advice.demand, advice.choice
    if not demand.nodes:
        yield "no node has GPUs that can be partitioned (label nvidia.com/mig.capable)"
        return
    yield from _left_out(demand)
    asked = len(demand.waiting)
    yield (
        f"{_counted(asked, 'gang')} wait{'s' * (asked == 1)} for GPUs or partitions: today's layouts "
        f"have room for {len(advice.today.served)}, the best ones for {len(choice.served)}"
    )
    if not choice.changes:
        yield "no layout would serve more: nothing to change"
        return
    if not choice.proven:
        yield "the search was ended early: better layouts may exist"
    rows = [["NODE", "GPUS", "NOW", "PROPOSED", "PROVIDES"]]
    for each in choice.changes:
        node = each.node
        provides = _pieces(each.provides, gpu)
        rows.append(
            [node.name, f"{node.gpus} {node.product}", node.config, each.layout.name, provides]
        )
    yield ""
    yield as_table(rows)
    yield ""
    yield as_table(
        [
            [f"simulated for {duration_text(round(span_s))}", "today", "proposed"],
            ["gangs started", str(advice.now.started), str(advice.then.started)],
            ["still waiting", str(advice.now.waiting), str(advice.then.waiting)],
            ["mean wait", advice.now.mean_wait, advice.then.mean_wait],
            ["room for what usually runs", *map(_gpus, (advice.today, choice))],
        ]
    )
    for sentence in (*advice.now.broken, *advice.then.broken):
        yield sentence
    yield ""
    for each in choice.changes:
        yield f"kubectl label node {each.node.name} {CONFIG}={each.layout.name} --overwrite"
    yield ""
    for sentence in _ASSUMED:
        yield f"assumed: {sentence}"


def _left_out(demand: MigDemand) -> Iterator[str]:
    kept = [each for each in demand.nodes if each.keeps]
    for each in kept[:_LEFT_OUT_SHOWN]:
        yield f"node {each.name} keeps its layout: it {each.keeps}"
    if len(kept) > _LEFT_OUT_SHOWN:
        yield f"and {len(kept) - _LEFT_OUT_SHOWN} more nodes keep theirs"


def _pieces(provides: Mapping[str, int], gpu: GpuResource) -> str:
    return ", ".join(
        f"{n} {resource_of(profile, gpu)}" for profile, n in sorted(provides.items()) if n
    )


def _gpus(choice: LayoutChoice) -> str:
    return f"{choice.usual_size / SEVENTHS:.1f} GPUs"


def _counted(number: int, word: str) -> str:
    return f"{number} {word}{'s' * (number != 1)}"


def _as_json(advice: _Advice, gpu: GpuResource) -> dict[str, Any]:
    choice = advice.choice
    return {
        "proven": choice.proven,
        "changes": [
            {
                "node": each.node.name,
                "product": each.node.product,
                "gpus": each.node.gpus,
                "now": each.node.config,
                "proposed": each.layout.name,
                "provides": {resource_of(name, gpu): n for name, n in each.provides.items()},
            }
            for each in choice.changes
        ],
        "kept": [
            {"node": each.name, "why": each.keeps} for each in advice.demand.nodes if each.keeps
        ],
        "waiting": [each.name for each in advice.demand.waiting],
        "served": {"today": list(advice.today.served), "proposed": list(choice.served)},
        "simulated": {"today": _figures(advice.now), "proposed": _figures(advice.then)},
        "assumed": list(_ASSUMED),
    }


def _figures(figures: TrialFigures) -> dict[str, Any]:
    return {
        "started": figures.started,
        "waiting": figures.waiting,
        "meanWait": figures.mean_wait,
        "broken": list(figures.broken),
    }


def _seconds(text: str, option: str) -> float:
    try:
        seconds = parse_duration(text) / NANOSECONDS
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from error
    if seconds <= 0:
        raise UsageError(f"{option} takes a duration above 0, such as 6h")
    return seconds
