"""``gpusched tune``: search the policy's arguments on a trace, and check what is found on another."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from gpusched.base.classes import frozen
from gpusched.base.errors import ConfigError, UsageError
from gpusched.base.limits import SCENARIO_SEED_MAX
from gpusched.cli.command import Subparsers, add_output, named_path, print_json
from gpusched.cli.lab.simulate.inputs import check_generated
from gpusched.cli.lab.simulate.settings import SimulationSetting, print_shards_note
from gpusched.cli.lab.sweep.asked_choices import check_choices
from gpusched.cli.lab.sweep.command import (
    INTERRUPTED,
    LoadedInputs,
    add_workers,
    check_workers,
    choose_workers,
    json_bytes,
    play_points,
)
from gpusched.cli.lab.sweep.points import SweepPoint, play_point
from gpusched.cli.lab.sweep.ray_workers import load_ray
from gpusched.cli.lab.sweep.results import Result, ResultFolder, SweepRow, summarize_sweep
from gpusched.cli.lab.sweep.settings_drawn import Values, build_setting, input_points
from gpusched.cli.lab.sweep.sweep_file import BaseConfiguration
from gpusched.cli.lab.sweep.sweep_inputs import SweepInput
from gpusched.cli.lab.tune.search_space import SearchedArgument, search_space
from gpusched.cli.lab.tune.study import (
    choose_setting,
    compare_unseen,
    is_beaten,
    load_optuna,
    objective_means,
    search_settings,
)
from gpusched.cli.lab.tune.tune_report import (
    Tuned,
    render_tuned,
    settings_text,
    tuned_json,
    tuned_lines,
)
from gpusched.cli.lab.tune.tuned_files import SWEEP_FILE, sweep_text, write_configuration
from gpusched.io.observe.process_limits import collect_garbage_rarely
from gpusched.lab.report.run_report import RunReport
from gpusched.lab.report.statistics.asked import AskedStatistic, parse_asked
from gpusched.lab.report.statistics.named import UnknownStatistic
from gpusched.lab.report.write_report import write_compared

MADE: Final = ("m6", "philly")
_OF_MADE: Final[dict[str, Any]] = {
    "seeds": "1",
    "check_seeds": "101-103",
    "jobs": 2000,
    "days": 14.0,
}
"""Options of generated jobs, as they are where they are not given."""
SHIPPED: Final = "shipped"
_SEEDS: Final = re.compile(r"([0-9]{1,10})(?:-([0-9]{1,10}))?")
_SEEDS_MAX: Final = 100
_SETTINGS_MAX: Final = 10_000


def register(subparsers: Subparsers) -> None:
    """Add the command to the parser."""
    parser = subparsers.add_parser(
        "tune",
        description="Search arguments of the policy's plugins on a trace for what serves it best, and check "
        "what is found on a trace that was not seen (docs/tune.md).",
        epilog='gpusched tune --trace m6 --objective "p95(wait), gpu use" --out tuned',
    )
    parser.add_argument(
        "--trace", required=True, metavar="WHAT",
        help="a file of jobs (CSV, or .json: the log of the Philly trace), of which the second half is kept "
        "for the check; or m6, philly: generated jobs",
    )  # fmt: skip
    parser.add_argument(
        "--objective", required=True, metavar="TEXT",
        help='what is to be better, with commas: "p95(wait) of class 1-GPU, gpu use"',
    )  # fmt: skip
    parser.add_argument(
        "--out", type=named_path, required=True, metavar="DIR", help="what is found"
    )
    parser.add_argument(
        "--vary", action="append", default=[], metavar="PLUGIN.ARGUMENT[=LOW..HIGH]",
        help="what is varied (default: all arguments whose range plugins declare); may be repeated",
    )  # fmt: skip
    parser.add_argument("--config", metavar="FILE", help="to begin from (default: the shipped one)")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="sets",
        help="what is different in all that is tried, as in gpusched simulate; may be repeated",
    )  # fmt: skip
    parser.add_argument("--settings", type=int, default=60, metavar="N", help="that are tried (60)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the search (1)")
    parser.add_argument(
        "--seeds", default="1", metavar="A-B", help="of generated jobs to tune on (1)"
    )
    parser.add_argument(
        "--check-seeds", default="101-103", metavar="A-B", help="not seen while tuning (101-103)"
    )
    parser.add_argument("--check-trace", metavar="FILE", help="in place of the second half")
    parser.add_argument("--nodes", metavar="COUNTxGPUS[/RACK]", help="as in gpusched simulate")
    parser.add_argument("--jobs", type=int, default=2000, metavar="N", help="to generate (2000)")
    parser.add_argument("--days", type=float, default=14.0, metavar="D", help="to generate (14)")
    parser.add_argument("--step", metavar="DURATION", help="as in gpusched simulate")
    add_workers(parser)
    parser.add_argument("--resume", action="store_true", help="go on with results in DIR")
    add_output(parser)
    parser.set_defaults(run=run)


@frozen(kw_only=True)
class TuningInputs:
    """What is tuned on, and what it is checked on; names differ, so that tables tell them apart."""

    seen: SweepInput
    seeds: tuple[int, ...]
    unseen: SweepInput
    check_seeds: tuple[int, ...]


def run(arguments: argparse.Namespace) -> int:
    """Search; 0 when it was done, whatever was found, 1 when a point failed.

    Raises:
        UsageError: options that cannot be understood.
        ConfigError: a file cannot be used.
        NotInstalled: Optuna is missing.
    """
    load_optuna()
    if arguments.ray is not None:
        load_ray()
    check_workers(arguments.workers)
    collect_garbage_rarely(plays=True)  # what happened in the plays stays
    if not 1 <= arguments.settings <= _SETTINGS_MAX:
        raise UsageError(f"--settings takes 1 to {_SETTINGS_MAX:,}")
    if not 0 <= arguments.seed <= SCENARIO_SEED_MAX:
        raise UsageError(f"--seed takes a number from 0 to {SCENARIO_SEED_MAX}")
    objectives = parse_objectives(arguments.objective)
    inputs = _inputs(arguments)
    base = BaseConfiguration(name=SHIPPED, file=arguments.config, changes=_sets(arguments.sets))
    tuning = _Tuning(arguments, base, objectives, inputs)
    space = search_space(tuning.shipped.config, arguments.vary)
    if not space:
        raise UsageError("nothing can be varied: name it with --vary PLUGIN.ARGUMENT=LOW..HIGH")
    tuning.check_objectives()
    tuning.folder.begin(resume=arguments.resume)
    print(f"searching {', '.join(f'{each.path} ({each.span})' for each in space)}", file=sys.stderr)
    try:
        tuned = tuning.search(space)
    except KeyboardInterrupt:
        print("interrupted; --resume goes on", file=sys.stderr)
        return INTERRUPTED
    tuning.write(tuned)
    if arguments.output == "json":
        print_json(tuned_json(tuned))
    else:
        for line in tuned_lines(tuned):
            print(line)
    print(f"report: {arguments.out / 'index.html'}", file=sys.stderr)
    return int(bool(tuned.failed))


def parse_objectives(text: str) -> tuple[AskedStatistic, ...]:
    """Statistics with commas between.

    Raises:
        UsageError: one is not known, or which is better is not.
    """
    found = []
    for part in text.split(","):
        try:
            asked = parse_asked(part)
        except UnknownStatistic as error:
            raise UsageError(f"--objective {part.strip()!r}: {error}") from None
        if not asked.better:
            raise UsageError(
                f"--objective {asked.text}: whether more or less of it is better is not known"
            )
        found.append(asked)
    if len({each.text.casefold() for each in found}) < len(found):
        raise UsageError("--objective names a statistic twice")
    return tuple(found)


def _sets(texts: Sequence[str]) -> Values:
    pairs = [text.partition("=") for text in texts]
    for text, (key, _, value) in zip(texts, pairs, strict=True):
        if not key or not value:
            raise UsageError(f"--set takes KEY=VALUE, not {text!r}")
    return tuple((key, value) for key, _, value in pairs)


def _seeds(text: str, option: str) -> tuple[int, ...]:
    match = _SEEDS.fullmatch(text)
    first = int(match[1]) if match else 0
    last = int(match[2] or match[1]) if match else -1
    if not first <= last <= SCENARIO_SEED_MAX or last - first >= _SEEDS_MAX:
        raise UsageError(f"{option} takes A or A-B, at most {_SEEDS_MAX} seeds, not {text!r}")
    return tuple(range(first, last + 1))


def _inputs(arguments: argparse.Namespace) -> TuningInputs:
    seeds = _seeds(arguments.seeds, "--seeds")
    check = _seeds(arguments.check_seeds, "--check-seeds")
    given = {"nodes": arguments.nodes, "step": arguments.step}
    common = {key: value for key, value in given.items() if value}
    if arguments.trace in MADE:
        check_generated(arguments.jobs, arguments.days)
        if arguments.check_trace:
            raise UsageError("--check-trace goes with a file; generated jobs have --check-seeds")
        if set(seeds) & set(check):
            raise UsageError("--check-seeds are not seen while tuning: name others than --seeds")
        made = {
            "generate": arguments.trace,
            "jobs": arguments.jobs,
            "days": arguments.days,
            **common,
        }
        return TuningInputs(
            seen=SweepInput(name="tuned-on", options=made, place="--trace"), seeds=seeds,
            unseen=SweepInput(name="unseen", options=made, place="--trace"), check_seeds=check,
        )  # fmt: skip
    for name, plain in _OF_MADE.items():
        if getattr(arguments, name) != plain:
            option = f"--{name.replace('_', '-')}"
            raise UsageError(
                f"{option} goes with --trace {' or '.join(MADE)}, not with a file of jobs"
            )
    first: dict[str, Any] = {_kind(arguments.trace): arguments.trace, **common}
    if arguments.check_trace:
        second = {_kind(arguments.check_trace): arguments.check_trace, **common}
    else:
        first, second = {**first, "half": "first"}, {**first, "half": "second"}
    return TuningInputs(
        seen=SweepInput(name="tuned-on", options=first, place="--trace"), seeds=(0,),
        unseen=SweepInput(name="unseen", options=second, place="--check-trace"), check_seeds=(0,),
    )  # fmt: skip


def _kind(file: str) -> str:
    return "philly" if ".json" in Path(file).suffixes else "csv"


class _Tuning:
    """One search: its settings, their points, and what came of them."""

    def __init__(
        self,
        arguments: argparse.Namespace,
        base: BaseConfiguration,
        objectives: tuple[AskedStatistic, ...],
        inputs: TuningInputs,
    ) -> None:
        self.folder = ResultFolder(arguments.out)
        self.shipped = build_setting(base, (), "--set")
        print_shards_note([self.shipped])
        self._arguments, self._base = arguments, base
        self._objectives, self._inputs = objectives, inputs
        self._prints = {each.name: each.fingerprint() for each in (inputs.seen, inputs.unseen)}
        self._loaded = LoadedInputs()
        self._results: dict[str, Result] = {}
        self._failed: dict[str, str] = {}
        self._points: dict[Values, list[SweepPoint]] = {}
        self._now: Values = ()

    def check_objectives(self) -> None:
        """Look whether jobs that are tuned on, and those that are not seen, are of what is asked for.

        Raises:
            ConfigError: none is, or an input cannot be read.
        """
        given = self._inputs
        for where in ((given.seen, given.seeds), (given.unseen, given.check_seeds)):
            points = self._points_on(*where, self.shipped, ())
            place = f"--objective ({where[0].name})"
            check_choices(points, self._objectives, self._loaded.load, place)

    def search(self, space: Sequence[SearchedArgument]) -> Tuned:
        """Play the shipped configuration, then round after round, then the check."""
        self._now = tuple((each.path, each.now or "-") for each in space)
        shipped = self._points_on(self._inputs.seen, self._inputs.seeds, self.shipped, self._now)
        self._play(shipped)
        (first,) = self._rows(shipped)
        if objective_means(first, self._objectives) is None:
            said = next(iter(self._failed.values()), "")
            names = ", ".join(each.text for each in self._objectives)
            raise ConfigError(f"{said or f'no job tells {names} under the shipped configuration'}")
        search_settings(
            space, self._objectives, settings=self._arguments.settings,
            seed=self._arguments.seed, measure=self._measure,
        )  # fmt: skip
        every = [*shipped, *(point for points in self._points.values() for point in points)]
        rows = self._rows(every)
        chosen = choose_setting(rows[0], rows[1:], self._objectives)
        unseen: tuple[SweepRow, ...] = ()
        if chosen is not None:
            setting = self._setting("tuned", chosen.values)
            where = (self._inputs.unseen, self._inputs.check_seeds)
            check = [*self._points_on(*where, self.shipped, self._now),
                     *self._points_on(*where, setting, chosen.values)]  # fmt: skip
            print("checking on what was not seen", file=sys.stderr)
            self._play(check)
            unseen = self._rows(check)
        compared = compare_unseen(unseen[0], unseen[1], self._objectives) if unseen else None
        return Tuned(
            trace=self._arguments.trace,
            objectives=self._objectives,
            rows=rows,
            chosen=chosen,
            unseen_rows=unseen,
            unseen=compared or (),
            beaten=compared is not None and is_beaten(compared),
            failed=dict(self._failed),
            varied=tuple((each.path, each.span) for each in space),
        )

    def _measure(self, settings: Sequence[Values]) -> list[tuple[float, ...] | None]:
        fresh = [each for each in dict.fromkeys(settings) if each not in self._points]
        for values in fresh:
            self._points[values] = self._points_on(
                self._inputs.seen, self._inputs.seeds, self._setting("tried", values), values
            )
        self._play([point for values in fresh for point in self._points[values]])
        rows = {
            row.values: row for values in set(settings) for row in self._rows(self._points[values])
        }
        print(f"tried: {settings_text(len(self._points))}", file=sys.stderr)
        return [objective_means(rows[values], self._objectives) for values in settings]

    def _setting(self, name: str, values: Values) -> SimulationSetting:
        return build_setting(attrs.evolve(self._base, name=name), values, "--vary")

    def _points_on(
        self, given: SweepInput, seeds: Sequence[int], setting: SimulationSetting, values: Values
    ) -> list[SweepPoint]:
        points = input_points(
            given, self._prints[given.name], seeds, setting=setting, values=values,
            asked=self._objectives,
        )  # fmt: skip
        return list(points)

    def _play(self, points: Sequence[SweepPoint]) -> None:
        for point in points:
            if (found := self.folder.read(point.key)) is not None:
                self._results[point.key] = found
        play_points(
            points, self.folder, self._results, self._failed, inputs=self._loaded, quiet=True,
            make_workers=lambda missing: choose_workers(self._arguments, missing),
        )  # fmt: skip

    def _rows(self, points: Sequence[SweepPoint]) -> tuple[SweepRow, ...]:
        axes = [(each.text, each.better) for each in self._objectives]
        return summarize_sweep("", points, self._results, self._failed, axes=axes).rows

    def write(self, tuned: Tuned) -> None:
        """The page, the numbers and, where the shipped configuration is beaten, what beats it and why."""
        self.folder.write("index.html", render_tuned(tuned).encode())
        self.folder.write("results.json", json_bytes(tuned_json(tuned)))
        if not tuned.beaten or tuned.chosen is None:
            return
        setting = self._setting("tuned", tuned.chosen.values)
        changes = (*self._base.changes, *tuned.chosen.values)
        names = [each.text for each in self._objectives]
        write_configuration(
            self.folder, self._base.file, changes, tuned=setting.config,
            why=f"better in {', '.join(names)} on {tuned.trace}",
        )  # fmt: skip
        text = sweep_text(
            [self._inputs.unseen], self._inputs.check_seeds, base=self._base.file,
            changes=self._base.changes, objectives=names,
        )  # fmt: skip
        self.folder.write(SWEEP_FILE, text.encode())
        self._write_comparison(setting, tuned.chosen.values)

    def _write_comparison(self, setting: SimulationSetting, values: Values) -> None:
        """Waits, use and places of both on the first trace that was not seen, side by side."""
        where = (self._inputs.unseen, self._inputs.check_seeds[:1])
        pair = [*self._points_on(*where, self.shipped, self._now),
                *self._points_on(*where, setting, values)]  # fmt: skip
        runs = []
        for point in pair:
            record = play_point(point, self._loaded.load(point))
            runs.append(RunReport(record=record, config=record.name))
        title = f"{self._arguments.trace}, not seen while tuning"
        write_compared(self._arguments.out / "unseen", runs, title=title)
