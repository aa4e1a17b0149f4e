"""``python -m benchmarks.real``: library and contract suite on the cluster KUBECONFIG names.

Every scenario is played in virtual time first; on the cluster the same must be seen, but for what
its slack allows. Exit status as of ``gpusched scenario run``: 0 all the same and as expected, 1
something differs or fails, 2 wrong usage, 69 the cluster is lost, 78 it must not or cannot be
played on, 130 interrupted.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import attrs
from rich.console import Console

from benchmarks.real import contract, ground
from benchmarks.real.compared import Compared, compared, rows
from gpusched.base.errors import ConfigError, UsageError
from gpusched.cli.command import table
from gpusched.cli.lab.scenario.scenario_report import ScenarioReporter, status_of
from gpusched.cli.lab.scenario.worker_processes import PlayRequest, play_all, play_one
from gpusched.cli.main import report
from gpusched.cli.shell.start import INTERRUPTED
from gpusched.lab.scenario.file.read import read_paths
from gpusched.lab.scenario.judge.messages import duration_text
from gpusched.lab.scenario.model.scenario import Scenario
from gpusched.lab.scenario.play.run import ScenarioRun

ROOT: Final = contract.ROOT
PATHS: Final = ("kwok-scenarios/first.yaml", "kwok-scenarios/library")
_UNITS: Final = {"s": 1, "m": 60, "h": 3600}
_AROUND_S: Final = 5.0
"""A scenario needs so much beside its own time: daemon, nodes, tidying up."""


def main(argv: Sequence[str] | None = None) -> int:
    """Look, play, compare, tidy up; the exit status."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        return _played(_arguments(argv))
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the last line: every exception becomes a status
        return report(error)


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make real", description=__doc__)
    parser.add_argument("paths", nargs="*", default=None, metavar="PATH", help="scenarios")
    parser.add_argument("--only", action="append", default=[], metavar="NAME")
    parser.add_argument("--longest", default="10m", metavar="DURATION", help="of a scenario (10m)")
    parser.add_argument("--others", action="store_true", help="although others use the cluster")
    parser.add_argument("--no-contract", action="store_true", help="scenarios alone")
    parser.add_argument("--report", type=Path, metavar="DIR", help="logs of the daemons")
    return parser.parse_args(argv)


def _longest(text: str) -> float:
    if text[:-1].isdigit() and text[-1:] in _UNITS:
        return float(text[:-1]) * _UNITS[text[-1]]
    raise UsageError(f"LONGEST={text} is no duration such as 90s, 10m or 1h")


def _played(arguments: argparse.Namespace) -> int:
    longest_s = _longest(arguments.longest)
    kubeconfig = os.environ.get("KUBECONFIG", "")
    if not kubeconfig:
        raise UsageError(
            "make real plays on the cluster that KUBECONFIG names, and it names none: "
            "export KUBECONFIG=FILE (docs/real-cluster.md tells how to get a cluster)"
        )
    console = Console(highlight=False, soft_wrap=True)
    cluster = asyncio.run(ground.look(kubeconfig))
    console.print(f"{cluster.host} serves Kubernetes {cluster.version}")
    if cluster.taken and not arguments.others:
        raise ConfigError(
            f"{cluster.host} has {cluster.taken}: this looks like somebody's cluster; "
            "name another one in KUBECONFIG, or say OTHERS=yes to play there all the same, "
            "on nodes and with labels of its own"
        )
    try:
        return _all_played(arguments, console, cluster, kubeconfig, longest_s)
    finally:
        left = asyncio.run(ground.tidy(kubeconfig, cluster))
        said = f"left behind: {', '.join(left)}" if left else "nothing is left behind"
        console.print(said)


def _all_played(
    arguments: argparse.Namespace,
    console: Console,
    cluster: ground.Cluster,
    kubeconfig: str,
    longest_s: float,
) -> int:
    """Both parts, and the summary."""
    why = asyncio.run(ground.without_kwok(kubeconfig))
    cluster = attrs.evolve(cluster, kwok=why)
    cases = contract.Contract(0, ())
    if not arguments.no_contract:
        with console.status("contract suite") as status:
            cases = contract.play(kubeconfig, tell=lambda at: status.update(f"contract: {at}"))
    runs: list[ScenarioRun] = []
    found: list[Compared] = []
    if why:
        console.print(f"no scenario is played: {why}; docs/real-cluster.md tells how to start KWOK")
    else:
        runs, found = _scenarios(arguments, console, kubeconfig, longest_s)
        console.print(table(rows(found)))
    for each in found:
        for line in each.needed_slack:
            console.print(f"within slack, {each.name}: {line}")
        for line in each.differs:
            console.print(f"DIFFERS, {each.name}: {line}")
    if not arguments.no_contract:
        wrong = f", {len(cases.failed)} FAILED: {', '.join(cases.failed)}" if cases.failed else ""
        console.print(f"contract: {cases.passed} cases hold{wrong}")
    bad = any(each.differs for each in found) or bool(cases.failed)
    return status_of(runs) or int(bad)


def _scenarios(
    arguments: argparse.Namespace, console: Console, kubeconfig: str, longest_s: float
) -> tuple[list[ScenarioRun], list[Compared]]:
    """Every scenario in virtual time, then those that are short enough on the cluster."""
    paths = tuple(Path(each) for each in (arguments.paths or [ROOT / each for each in PATHS]))
    scenarios = [
        each
        for each in read_paths(list(paths))
        if not arguments.only or each.name in arguments.only
    ]
    if not scenarios:
        raise UsageError("there is no such scenario")
    order = PlayRequest(paths=paths)
    virtual: dict[str, ScenarioRun] = {}
    with ScenarioReporter(console, quiet=True, count=len(scenarios)) as teller:
        for run in play_all(scenarios, order, jobs=1, tell=teller.progress, note=_unheard):
            virtual[run.scenario.name] = run
            teller.done(run)
            if run.interrupted:
                raise KeyboardInterrupt
    fit, skipped = _chosen(scenarios, virtual, longest_s)
    total = sum(_length(virtual[each.name]) + _AROUND_S for each in fit)
    console.print(f"{len(fit)} scenarios take about {duration_text(round(total))} on the cluster")
    for run in skipped:
        console.print(f"skip {run.scenario.name}: {run.skipped}")
    runs = []
    logs = _logs(arguments.report)
    real = PlayRequest(paths=paths, kubeconfig=kubeconfig, logs=logs)
    with ScenarioReporter(console, quiet=False, count=len(fit)) as teller:
        for scenario in fit:
            run = play_one(scenario, real, tell=teller.progress, note=_unheard)
            runs.append(run)
            teller.done(run)
            if run.interrupted or run.lost:
                break
    both = {run.scenario.name: run for run in (*runs, *skipped)}
    return runs, [
        compared(virtual[each.name], both[each.name]) for each in scenarios if each.name in both
    ]


def _chosen(
    scenarios: Sequence[Scenario], virtual: dict[str, ScenarioRun], longest_s: float
) -> tuple[list[Scenario], list[ScenarioRun]]:
    """Those to be played, shortest first, and the others with the reason."""
    fit, skipped = [], []
    for each in scenarios:
        length = _length(virtual[each.name])
        why = each.embedded_only
        if not why and length > longest_s:
            why = f"it takes {duration_text(round(length))}: LONGEST={round(length // 60) + 1}m plays it"
        if why:
            skipped.append(ScenarioRun(scenario=each, skipped=why))
        else:
            fit.append(each)
    return sorted(fit, key=lambda each: _length(virtual[each.name])), skipped


def _length(run: ScenarioRun) -> float:
    return run.record.seconds if run.record else 0.0


def _logs(folder: Path | None) -> Path | None:
    if folder is None:
        return None
    logs = folder / "logs"
    with contextlib.suppress(FileExistsError):
        logs.mkdir(parents=True)
    return logs


def _unheard(_: str) -> None: ...


if __name__ == "__main__":
    sys.exit(main())
