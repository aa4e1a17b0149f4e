"""``gpusched simulate --sweep FILE``: a grid or a search over configurations, seeds and inputs."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, Final, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from gpusched.base.errors import UsageError
from gpusched.base.limits import SWEEP_POINTS_MAX
from gpusched.cli.command import named_path, print_json
from gpusched.cli.lab.simulate.inputs import SimulationInput, input_notes
from gpusched.cli.lab.simulate.settings import print_shards_note
from gpusched.cli.lab.sweep.asked_choices import check_choices
from gpusched.cli.lab.sweep.points import SweepPoint, check_point, pack_point
from gpusched.cli.lab.sweep.ray_workers import ClusterLost, RayWorkers, load_ray
from gpusched.cli.lab.sweep.results import (
    Result,
    ResultFolder,
    results_csv,
    summarize_sweep,
    summary_json,
    untold_statistics,
)
from gpusched.cli.lab.sweep.settings_drawn import plan_points
from gpusched.cli.lab.sweep.sweep_file import SweepPlan, check_points, read_sweep
from gpusched.cli.lab.sweep.sweep_inputs import Playable
from gpusched.cli.lab.sweep.sweep_report import AXES, render_sweep, sweep_lines
from gpusched.cli.lab.sweep.workers import InThisProcess, LocalProcesses, PointWorkers, run_points
from gpusched.lab.simulate.variations import ChangeableNames, changeable_names

WORKERS_MAX: Final = 256
INTERRUPTED: Final = 130
_LOADED_MAX: Final = 8
"""Inputs that are kept in memory once they were read; points come in their order."""
_CHECKED_SILENTLY: Final = 500
"""Settings that are checked within a second or two."""
_OWN: Final = {"out": None, "workers": None, "ray": None, "resume": False, "points_max": None}
"""Options that belong to a sweep, with what they are when they are not given."""
_OTHERS: Final[dict[str, Any]] = {
    "config": [], "sets": [], "report": None, "jobs": 2000, "days": 7.0, "seed": 1, "nodes": None,
    "first": 0, "suspend": False, "strict": False, "span": None, "assume_duration": None,
    "grace": None, "start_delay": "1s", "step": None, "fill": False,
}  # fmt: skip
"""Options that the file of a sweep says instead."""


def add_sweep(parser: argparse.ArgumentParser) -> None:
    """Add the options of a sweep."""
    group = parser.add_argument_group("a sweep", "with --sweep (docs/sweep.md)")
    group.add_argument("--out", type=named_path, metavar="DIR", help="results, tables and the page")
    group.add_argument(
        "--resume", action="store_true", help="go on with the results that DIR has already"
    )
    add_workers(group)
    group.add_argument(
        "--points-max", type=int, metavar="N", help=f"points at most ({SWEEP_POINTS_MAX:,})"
    )


def add_workers(parser: argparse._ActionsContainer) -> None:
    """Add the options that say who plays points."""
    parser.add_argument(
        "--workers", type=int, metavar="N", help="points at a time (default: processors)"
    )
    parser.add_argument(
        "--ray",
        metavar="ADDRESS",
        help="play points on a Ray cluster (auto, HOST:PORT, ray://HOST:PORT); local starts one here",
    )


def check_options(arguments: argparse.Namespace) -> None:
    """Whether options go together.

    Raises:
        UsageError: they do not.
    """
    if arguments.sweep is None:
        given = [name for name, plain in _OWN.items() if getattr(arguments, name) != plain]
        if given:
            raise UsageError(f"{_spoken(given[0])} goes with --sweep FILE")
        return
    given = [name for name, plain in _OTHERS.items() if getattr(arguments, name) != plain]
    if given == ["jobs"]:
        raise UsageError(
            "--jobs is how many jobs are generated, which the file of a sweep says for each input; "
            "processes are --workers"
        )
    if given:
        raise UsageError(f"{_spoken(given[0])} does not go with --sweep: its file says that")
    if arguments.out is None:
        raise UsageError("--sweep needs --out DIR for its results")
    check_workers(arguments.workers)
    if arguments.points_max is not None and arguments.points_max < 1:
        raise UsageError("--points-max takes numbers above 0")


def check_workers(workers: int | None) -> None:
    """Whether there can be so many.

    Raises:
        UsageError: no.
    """
    if workers is not None and not 1 <= workers <= WORKERS_MAX:
        raise UsageError(f"--workers takes 1 to {WORKERS_MAX}")


def _spoken(name: str) -> str:
    return {"sets": "--set", "span": "--for"}.get(name, f"--{name.replace('_', '-')}")


def run_sweep(arguments: argparse.Namespace) -> int:
    """Play what is not played yet; 0 when all is there, 1 when a point failed or did not hold.

    Raises:
        UsageError: the folder cannot be used.
        ConfigError: the file, an input or a configuration cannot be used; nothing has run then.
        ClusterLost: the Ray cluster went away; what has ended is in the folder.
    """
    if arguments.ray is not None:
        load_ray()
    plan = read_sweep(Path(arguments.sweep))
    check_points(plan, arguments.points_max or SWEEP_POINTS_MAX)
    points = _plan_with_progress(plan)
    print_shards_note({each.configuration: each.setting for each in points}.values())
    inputs = LoadedInputs()
    check_choices(points, plan.asked, inputs.load, plan.source)
    folder = ResultFolder(arguments.out)
    folder.begin(resume=arguments.resume)
    results = {key: found for key in {each.key for each in points} if (found := folder.read(key))}
    if arguments.resume:
        there = sum(point.key in results for point in points)
        print(f"resumed: {there:,} of {len(points):,} points are there", file=sys.stderr)
    failed: dict[str, str] = {}
    interrupted = False
    lost: ClusterLost | None = None
    try:
        play_points(
            points, folder, results, failed, inputs=inputs,
            make_workers=lambda missing: choose_workers(arguments, missing),
        )  # fmt: skip
    except KeyboardInterrupt:
        interrupted = True
    except ClusterLost as error:
        lost = error
    asked = [each.text for each in plan.asked]
    summary = summarize_sweep(plan.source, points, results, failed, axes=AXES)
    folder.write("results.csv", results_csv(points, results))
    folder.write("index.html", render_sweep(summary, asked).encode())
    told = summary_json(summary, points, results)
    folder.write("results.json", json_bytes(told))
    if arguments.output == "json":
        print_json(told)
    else:
        for line in sweep_lines(summary, asked):
            print(line)
    for text in untold_statistics(summary, asked):
        print(f"no job tells {text}", file=sys.stderr)
    print(f"report: {arguments.out / 'index.html'}", file=sys.stderr)
    if lost is not None:
        raise lost
    if interrupted:
        print(f"interrupted; --resume goes on: {summary.state}", file=sys.stderr)
        return INTERRUPTED
    return int(bool(failed or summary.broken))


def _plan_with_progress(plan: SweepPlan) -> list[SweepPoint]:
    """The points; that configurations are checked is told where there are many."""
    with _SweepProgress(
        plan.points, told_as="points checked", quiet=plan.settings <= _CHECKED_SILENTLY
    ) as progress:
        return plan_points(plan, progress.count_to)


def json_bytes(value: object) -> bytes:
    """Indented JSON with keys in order."""
    return (json.dumps(value, indent=1, sort_keys=True) + "\n").encode()


def choose_workers(arguments: argparse.Namespace, missing: int) -> PointWorkers:
    """A Ray cluster where one is named; else processes of this machine, no more than there are points.

    Where one point is played at a time that is done here.

    Raises:
        NotInstalled: Ray is missing.
        ClusterUnreachable: the Ray cluster does not answer.
    """
    if arguments.ray is not None:
        return RayWorkers(arguments.ray, arguments.workers)
    size = min(arguments.workers or len(os.sched_getaffinity(0)), max(1, missing))
    return LocalProcesses(size) if size > 1 else InThisProcess()


def play_points(
    points: Sequence[SweepPoint],
    folder: ResultFolder,
    results: dict[str, Result],
    failed: dict[str, str],
    *,
    make_workers: Callable[[int], PointWorkers],
    inputs: LoadedInputs | None = None,
    quiet: bool = False,
) -> None:
    """Play points without a result, keep each result as it ends, and fill in what came of them.

    Args:
        points: all of them; those of one key are played once.
        folder: takes results.
        results: by key; those that are there are not played.
        failed: takes sentences by label.
        make_workers: for so many points.
        inputs: that were read before; None for none.
        quiet: only what goes wrong is told.

    Raises:
        ConfigError: an input cannot be read; nothing has run then.
    """
    missing = {each.key: each for each in reversed(points) if each.key not in results}
    todo = list(reversed(missing.values()))
    if not todo:
        return
    inputs = inputs or LoadedInputs()
    for point in todo:
        inputs.check(point)
    folder.make()
    workers = make_workers(len(todo))
    # Ray prints what it has to say of its nodes to standard output, which is the command's.
    with redirect_stdout(sys.stderr), _SweepProgress(len(todo), quiet=quiet) as progress:
        try:
            ends = run_points(
                range(len(todo)), lambda number: inputs.pack(todo[number]), workers,
                note=progress.note,
            )  # fmt: skip
            for end in ends:
                point = todo[end.number]
                if end.result is None:
                    failed[point.label] = end.error
                    progress.note(f"{point.label}: {end.error}")
                else:
                    folder.keep_result(point.key, end.result)
                    results[point.key] = json.loads(end.result)
                progress.count_end(failed=end.result is None)
        finally:
            workers.close()


class LoadedInputs:
    """Inputs, each read once for its seed."""

    def __init__(self) -> None:
        self._loaded: dict[tuple[str, int, str], Playable] = {}
        self._told: set[str] = set()
        self._names: dict[str, ChangeableNames | None] = {}

    def check(self, point: SweepPoint) -> None:
        """Read an input before anything runs, so that what is wrong with it or the point is told then.

        Raises:
            ConfigError: it cannot be used, or what the point changes is not in it.
        """
        if point.input.name not in self._names:
            given = self.load(point)
            self._names[point.input.name] = None
            if isinstance(given, SimulationInput):
                self._names[point.input.name] = changeable_names(given.objects)
                self._tell(input_notes(given))
        check_point(point, self._names[point.input.name])

    def _tell(self, notes: Iterable[str]) -> None:
        """Each note once: halves of one file have the same."""
        for note in notes:
            if note not in self._told:
                self._told.add(note)
                print(note, file=sys.stderr)

    def pack(self, point: SweepPoint) -> bytes:
        """The point with its input, for a worker."""
        return pack_point(point, self.load(point))

    def load(self, point: SweepPoint) -> Playable:
        """The input of a point.

        Raises:
            ConfigError: it cannot be used.
        """
        # A trace becomes nodes and jobs with the GPU resource that the configuration names first.
        gpus = point.setting.config.gpu_resources
        key = (point.input.name, point.seed, gpus.main.name)
        if key not in self._loaded:
            while len(self._loaded) >= _LOADED_MAX:
                self._loaded.pop(next(iter(self._loaded)))
            self._loaded[key] = point.input.load(point.seed, point.setting.config)
        return self._loaded[key]


class _SweepProgress:
    """A line on stderr: a bar on a terminal, else a line at each tenth.

    Args:
        points: how many there are.
        told_as: what is counted.
        quiet: only what goes wrong is told.
    """

    def __init__(self, points: int, *, told_as: str = "points", quiet: bool) -> None:
        self._points, self._ended, self._failed = points, 0, 0
        self._told_as = told_as
        self._quiet = quiet
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._bar = Progress(
            TextColumn(told_as), BarColumn(bar_width=24), TextColumn("{task.fields[at]}"),
            console=self._console, transient=True, auto_refresh=False,
            disable=quiet or not self._console.is_terminal,
        )  # fmt: skip
        self._task = self._bar.add_task(told_as, total=points, at="")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def note(self, sentence: str) -> None:
        """Say something between."""
        self._console.print(sentence, markup=False)

    def count_end(self, *, failed: bool) -> None:
        """One more ended."""
        self._failed += failed
        self.count_to(self._ended + 1)

    def count_to(self, ended: int) -> None:
        """So many ended so far."""
        before, self._ended = 10 * self._ended // self._points, ended
        at = f"{ended:,} of {self._points:,}" + (
            f", {self._failed:,} failed" if self._failed else ""
        )
        if self._quiet:
            return
        if self._console.is_terminal:
            self._bar.update(self._task, completed=ended, at=at)
            self._bar.refresh()
        elif 10 * ended // self._points > before:
            print(f"{self._told_as}: {at}", file=sys.stderr)
