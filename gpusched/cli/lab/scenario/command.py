"""``gpusched scenario``: play scenarios, check their files, list what they teach."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.console import Console

from gpusched.base.errors import ConfigError, UsageError
from gpusched.base.limits import SCENARIO_SEED_MAX
from gpusched.cli.command import (
    Subparsers,
    add_output,
    check_output_file,
    named_path,
    print_json,
    table,
)
from gpusched.cli.lab.scenario.junit import write_junit
from gpusched.cli.lab.scenario.scenario_report import (
    ScenarioReporter,
    report_json,
    reported,
    status_of,
    total_line,
)
from gpusched.cli.lab.scenario.worker_processes import PlayRequest, play_all
from gpusched.config.yaml_tree import did_you_mean, quoted
from gpusched.lab.report.write_report import write_report
from gpusched.lab.scenario.file.read import read_paths
from gpusched.lab.scenario.model.scenario import Scenario
from gpusched.lab.scenario.play.run import ScenarioRun
from gpusched.lab.virtual_time.cluster_run import rare_garbage_collection

RESULTS: Final = "results.json"
JUNIT: Final = "junit.xml"
LOGS: Final = "logs"
_JOBS_MAX: Final = 64


def register(subparsers: Subparsers) -> None:
    """Add the command to the parser."""
    parser = subparsers.add_parser(
        "scenario",
        description="Play scenarios (docs/scenarios.md): a cluster, a timeline and what is "
        "expected of it, by the whole daemon, on an embedded cluster in virtual time.",
    )
    kinds = parser.add_subparsers(title="what to do", metavar="WHAT", dest="what", required=True)
    play = kinds.add_parser(
        "run",
        help="play scenarios and judge what is expected of them",
        description="Play the scenarios of files and folders. Exit status 0 when everything is "
        "as expected, 1 when something is not, 69 when the cluster is lost, 78 when a file is "
        "wrong.",
    )
    _add_paths(play)
    play.add_argument(
        "--kubeconfig",
        metavar="FILE",
        help="play on this cluster, with KWOK and in real time (default: embedded clusters)",
    )
    play.add_argument("--config", type=Path, metavar="FILE", help="configuration of the daemons")
    play.add_argument(
        "--report", type=named_path, metavar="DIR", help=f"write results there, {JUNIT} among them"
    )
    play.add_argument("--seed", type=int, metavar="N", help="instead of the scenarios' own seeds")
    play.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="play this one; may be repeated"
    )
    play.add_argument(
        "--jobs", type=int, metavar="N", help="play so many at a time (default: one a core)"
    )
    play.add_argument("--junit", type=named_path, metavar="FILE", help="write JUnit XML there")
    add_output(play)
    play.set_defaults(run=run)
    check = kinds.add_parser(
        "check", help="read files strictly and play nothing",
        description="Read scenarios and tell everything that is wrong, with file and line.",
    )  # fmt: skip
    _add_paths(check)
    check.add_argument("--config", type=Path, metavar="FILE", help="configuration of the daemons")
    check.set_defaults(run=run_check)
    shown = kinds.add_parser(
        "list", help="names and what they teach", description="List scenarios and what they teach."
    )
    _add_paths(shown)
    add_output(shown)
    shown.set_defaults(run=run_list)


def _add_paths(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths", nargs="+", type=Path, metavar="PATH", help="a file, or a folder with scenarios"
    )


def run_check(arguments: argparse.Namespace) -> int:
    """Read scenarios; 0 when all are right.

    Raises:
        ConfigError: what is wrong, all of it.
    """
    found = read_paths(arguments.paths, config=arguments.config)
    print(f"{len(found)} scenario{'s are' if len(found) != 1 else ' is'} right")
    return 0


def run_list(arguments: argparse.Namespace) -> int:
    """Names and what they teach.

    Raises:
        ConfigError: a file is wrong.
    """
    found = read_paths(arguments.paths)
    if arguments.output == "json":
        print_json([{"name": each.name, "teaches": each.teaches} for each in found])
    else:
        print(table([(each.name, each.teaches) for each in found]))
    return 0


def run(arguments: argparse.Namespace) -> int:
    """Play scenarios; the exit status says what came of them.

    Raises:
        ConfigError: a file is wrong.
        UsageError: there is no scenario of a name, or an option makes no sense.
    """
    if arguments.seed is not None and not 0 <= arguments.seed <= SCENARIO_SEED_MAX:
        raise UsageError(f"--seed takes a number from 0 to {SCENARIO_SEED_MAX}")
    scenarios = chosen(read_paths(arguments.paths, config=arguments.config), arguments.only)
    jobs = _jobs(arguments)
    _make_folders(arguments.report, arguments.junit)
    order = PlayRequest(
        paths=tuple(arguments.paths),
        config=arguments.config,
        seed=arguments.seed,
        logs=arguments.report / LOGS if arguments.report is not None else None,
        kubeconfig=arguments.kubeconfig or "",
    )
    console = Console(highlight=False, soft_wrap=True, stderr=arguments.output == "json")
    teller = ScenarioReporter(console, quiet=arguments.output == "json", count=len(scenarios))
    runs: list[ScenarioRun] = []
    with teller, _garbage_left_behind_one(scenarios):
        for each in play_all(scenarios, order, jobs=jobs, tell=teller.progress, note=teller.note):
            runs.append(each)
            teller.done(each)
    _write(runs, arguments.report, arguments.junit)
    if arguments.output == "json":
        print_json(report_json(runs))
    else:
        console.print(total_line(runs, of=len(scenarios)))
    sys.stdout.flush()
    return status_of(runs)


def _garbage_left_behind_one(
    scenarios: Sequence[Scenario],
) -> contextlib.AbstractContextManager[None]:
    """Inside, the only scenario leaves its garbage where it is: the process ends behind it."""
    return rare_garbage_collection() if len(scenarios) == 1 else contextlib.nullcontext()


def _jobs(arguments: argparse.Namespace) -> int:
    """How many are played at a time: on a real cluster one after another.

    Raises:
        UsageError: a number that makes no sense.
    """
    jobs: int | None = arguments.jobs
    if jobs is not None and not 1 <= jobs <= _JOBS_MAX:
        raise UsageError(f"--jobs takes a number from 1 to {_JOBS_MAX}")
    if arguments.kubeconfig:
        if jobs not in {None, 1}:
            raise UsageError("--jobs: on one cluster scenarios are played one after another")
        return 1
    return jobs if jobs is not None else os.cpu_count() or 1


def chosen(scenarios: Sequence[Scenario], only: Sequence[str]) -> list[Scenario]:
    """Those of some names; all where none are given.

    Raises:
        UsageError: nobody has such a name.
        ConfigError: there is no scenario at all.
    """
    if not scenarios:
        raise ConfigError("there is no scenario in what was given")
    known = [each.name for each in scenarios]
    for name in only:
        if name not in known:
            raise UsageError(
                f"there is no scenario {quoted(name)}: known are {', '.join(known)}"
                f"{did_you_mean(name, known).rstrip('?')}"
            )
    return [each for each in scenarios if not only or each.name in only]


def _make_folders(report: Path | None, junit: Path | None) -> None:
    """Folders for what is written at the end, so that a mistake is told before anything is played.

    Raises:
        UsageError: one cannot be made, or is not there.
    """
    try:
        if report is not None:
            (report / LOGS).mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise UsageError(f"--report: {report} is a file, or in one: name a folder") from None
    except OSError as error:
        raise UsageError(
            f"--report: the folder {report} cannot be made: {error.strerror}"
        ) from None
    check_output_file("--junit", junit)


def _write(runs: Sequence[ScenarioRun], report: Path | None, junit: Path | None) -> None:
    if junit is not None:
        write_junit(runs, junit)
    if report is not None:
        write_junit(runs, report / JUNIT)
        text = json.dumps(report_json(runs), indent=1)
        (report / RESULTS).write_text(text, encoding="utf-8")
        played = [reported(each) for each in runs if each.record is not None]
        if played:
            write_report(report, played)
