"""``gpusched simulate``: a recorded cluster or a trace under one or several configurations."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from gpusched.api.meta.gpu_resources import GpuResources, gpu_resources_in_force
from gpusched.base.errors import UsageError
from gpusched.cli.command import Subparsers, add_output, named_path, print_json
from gpusched.cli.lab.simulate.inputs import SimulationInput, input_notes, read_input
from gpusched.cli.lab.simulate.openb_fill import run_fill
from gpusched.cli.lab.simulate.settings import (
    SimulationSetting,
    check_changes,
    print_shards_note,
    settings,
)
from gpusched.cli.lab.simulate.simulation_report import comparison_json, comparison_lines
from gpusched.cli.lab.sweep.command import add_sweep, check_options, run_sweep
from gpusched.engine.run_record import RunRecord
from gpusched.engine.simulation import SimulationCase, run_simulation
from gpusched.io.observe.process_limits import collect_garbage_rarely
from gpusched.lab.report.run_report import RunReport
from gpusched.lab.report.write_report import write_compared, write_report
from gpusched.lab.scenario.judge.messages import duration_text
from gpusched.lab.simulate.variations import changeable_names, vary_arrivals, vary_objects


def register(subparsers: Subparsers) -> None:
    """Add the command to the parser."""
    parser = subparsers.add_parser(
        "simulate",
        description="Simulate a recorded cluster or a trace with the daemon's own decisions, and "
        "compare configurations side by side (docs/simulate.md).",
        epilog="gpusched simulate --snapshot cluster.gz --set doubled:queue.team-a.deserved=32",
    )
    _add_inputs(parser)
    add_sweep(parser)
    parser.add_argument(
        "--config",
        action="append",
        default=[],
        metavar="NAME=FILE",
        help="a configuration; may be repeated; the first is what others are compared with",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME:KEY=VALUE",
        dest="sets",
        help="what is different under a configuration, such as greedy:placement.solver=greedy, "
        "more:queue.team-a.weight=2, near:topology.required=rack, fifo:fifo=true; may be repeated",
    )
    parser.add_argument("--top", type=int, default=10, metavar="N", help="jobs that are told (10)")
    parser.add_argument(
        "--report", type=named_path, metavar="DIR", help="write a page and CSV there"
    )
    add_output(parser)
    parser.set_defaults(run=run, half=None)


def _add_inputs(parser: argparse.ArgumentParser) -> None:
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--snapshot", metavar="FILE", help="a cluster that gpusched snapshot recorded"
    )
    what.add_argument(
        "--openb", nargs=2, metavar=("NODES", "PODS"), help="files of the openb trace"
    )
    what.add_argument("--philly", metavar="FILE", help="cluster_job_log of the Philly trace")
    what.add_argument(
        "--csv", metavar="FILE", help="jobs: submit_s,duration_s,gpus,queue and user, name"
    )
    what.add_argument(
        "--generate",
        choices=["philly", "m6"],
        metavar="SHAPE",
        help="jobs of a published shape: philly, or as experiment M6 plays them: m6",
    )
    what.add_argument(
        "--sweep",
        metavar="FILE",
        help="a grid or search over configurations, seeds and inputs; needs --out",
    )
    parser.add_argument(
        "--fill",
        action="store_true",
        help="with --openb: the published experiment, pods without times that never leave",
    )
    parser.add_argument("--jobs", type=int, default=2000, metavar="N", help="to generate (2000)")
    parser.add_argument("--days", type=float, default=7.0, metavar="D", help="to generate (7)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of what is drawn (1)")
    parser.add_argument(
        "--nodes", metavar="COUNTxGPUS[/RACK]", help="instead of the cluster of the trace"
    )
    parser.add_argument("--first", type=int, default=0, metavar="N", help="only the first N jobs")
    parser.add_argument(
        "--suspend", action="store_true", help="Jobs wait suspended until they have room"
    )
    parser.add_argument(
        "--strict", action="store_true", help="rows that cannot be used are an error"
    )
    _add_pace(parser)


def _add_pace(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how long things take, and how often is decided."""
    parser.add_argument(
        "--for",
        dest="span",
        metavar="DURATION",
        help="simulate so long (a snapshot: 6h; a trace: until all is over)",
    )
    parser.add_argument(
        "--assume-duration",
        metavar="DURATION",
        help="of Jobs and groups of a snapshot that do not tell theirs (default: no end)",
    )
    parser.add_argument(
        "--grace", metavar="DURATION", help="from an eviction to the end, in a snapshot (30s)"
    )
    parser.add_argument(
        "--start-delay", default="1s", metavar="DURATION", help="from binding to running (1s)"
    )
    parser.add_argument(
        "--step",
        metavar="DURATION",
        help="gather changes for so long before deciding (0s: as the daemon does): faster, and starts come up to so much later",
    )


def run(arguments: argparse.Namespace) -> int:
    """Simulate; 0 when it was done, 1 when an invariant did not hold.

    Raises:
        UsageError: options that cannot be understood.
        ConfigError: a file or a configuration cannot be used.
    """
    check_options(arguments)
    collect_garbage_rarely(plays=True)  # what happened in the plays stays
    if arguments.sweep is not None:
        return run_sweep(arguments)
    if arguments.top < 0 or arguments.first < 0:
        raise UsageError("--top and --first take numbers from 0 on")
    if arguments.seed != 1 and arguments.generate is None and not arguments.fill:
        raise UsageError(
            "--seed goes with --generate or --fill: what is read from a file is the same with any seed"
        )
    if arguments.fill:
        return run_fill(arguments)
    chosen = settings(arguments.config, arguments.sets)
    gpus = _gpu_resources(chosen)
    with gpu_resources_in_force(gpus):
        given = read_input(arguments)
    check_changes(chosen, changeable_names(given.objects))
    for line in input_notes(given):
        print(line, file=sys.stderr)
    print_shards_note(chosen, given.objects)
    records = _play_all(given, chosen)
    if arguments.report is not None:
        reported = [RunReport(record=each, config=each.name) for each in records]
        if len(reported) > 1:
            index = write_compared(arguments.report, reported, title=given.source)
        else:
            index = write_report(arguments.report, reported)
        print(f"report: {index}", file=sys.stderr)
    if arguments.output == "json":
        print_json(comparison_json(given, records, top=arguments.top))
    else:
        for line in comparison_lines(given, records, top=arguments.top):
            print(line)
    return int(any(record.broken or record.unfinished for record in records))


def _gpu_resources(chosen: list[SimulationSetting]) -> GpuResources:
    """The GPU resources of nodes and jobs that a trace does not name.

    Raises:
        UsageError: configurations name different ones first.
    """
    first = chosen[0]
    for each in chosen[1:]:
        named, other = first.config.gpu_resources.main.name, each.config.gpu_resources.main.name
        if named != other:
            raise UsageError(
                f"configuration {first.name} begins gpuResources with {named}, {each.name} with "
                f"{other}: they cannot be compared on the same jobs"
            )
    return first.config.gpu_resources


def _play_all(given: SimulationInput, chosen: list[SimulationSetting]) -> list[RunRecord]:
    console = Console(stderr=True, highlight=False)
    bars = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[at]}"),
        console=console,
        transient=True,
        auto_refresh=False,
        disable=not console.is_terminal,
    )
    records = []
    with bars:
        for setting in chosen:
            task = bars.add_task(setting.name, total=given.until or given.jobs or None, at="")

            def show_progress(seconds: float, jobs: int, task: int = task) -> None:
                done = seconds if given.until else jobs
                at = f"{duration_text(round(seconds))} simulated"
                bars.update(task, completed=done, at=at)  # type: ignore[arg-type]
                bars.refresh()

            with gpu_resources_in_force(setting.config.gpu_resources):
                records.append(_play(given, setting, show_progress))
            bars.update(task, visible=False)
    return records


def _play(
    given: SimulationInput, setting: SimulationSetting, on_progress: Callable[[float, int], None]
) -> RunRecord:
    case = SimulationCase(
        name=setting.name,
        config=setting.config,
        plays_shards=True,
        objects=vary_objects(given.objects, setting.changes),
        arrivals=vary_arrivals(given.arrivals(), setting.changes),
        until=given.until,
        step_s=given.step_s,
        pace=given.pace,
        epoch=given.epoch,
        seed=given.seed,
        told=on_progress,
    )
    return run_simulation(case)
