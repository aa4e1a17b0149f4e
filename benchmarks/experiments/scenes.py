"""The scenarios of kwok-scenarios/experiments: which there are, how they are played and told."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs
from rich.console import Console

from benchmarks.experiments.page import Cost, Part, scene_of
from benchmarks.experiments.pictures import pictures
from benchmarks.experiments.pool import Done, Task, Tell
from gpusched.cli.lab.scenario.scenario_report import report_lines, reported
from gpusched.cli.lab.scenario.worker_processes import PlayRequest, packed, play_one, unpacked
from gpusched.lab.scenario.file.read import read_path
from gpusched.lab.scenario.judge.messages import duration_text
from gpusched.lab.scenario.model.scenario import Scenario
from gpusched.lab.scenario.play.run import RunProgress, ScenarioRun

ROOT: Final = Path(__file__).resolve().parents[2]
SCENARIOS: Final = Path("kwok-scenarios") / "experiments"
_NAME: Final = re.compile(r"(m[0-9]+)-.*", re.IGNORECASE)
LIMITS: Final[Mapping[str, tuple[float, int]]] = {"m4-thousand-jobs": (120.0, 1536)}
"""Seconds and MiB that a scenario may take."""
_LONGEST_FIRST: Final = ("M4", "M5")


def experiment_of(name: str) -> str:
    """``M3`` of ``m3-gangs-2x4``; the name itself where it has no number."""
    match = _NAME.fullmatch(name)
    return match[1].upper() if match else name


def scenarios() -> dict[Path, Scenario]:
    """The scenarios by their files, in the order of their names."""
    files = sorted((ROOT / SCENARIOS).glob("*.yaml"))
    return {file: scenario for file in files for scenario in read_path(file)}


def tasks_of(files: Mapping[Path, Scenario]) -> list[Task]:
    """Those that take longest first."""
    tasks = [Task(name=s.name, work=play, arguments=(str(file),)) for file, s in files.items()]
    return sorted(tasks, key=lambda task: experiment_of(task.name) not in _LONGEST_FIRST)


def play(tell: Tell, file: str) -> dict[str, Any]:
    """Play a scenario, in a process of its own."""
    (scenario,) = read_path(Path(file))

    def told(at: RunProgress) -> None:
        tell(f"{duration_text(round(at.seconds))} simulated")

    return packed(play_one(scenario, PlayRequest(paths=(Path(file),)), tell=told, note=tell))


def parts_of(
    files: Mapping[Path, Scenario], done: Mapping[str, Done]
) -> tuple[list[Part], list[Cost]]:
    """The experiments, told on the screen too."""
    console = Console(highlight=False, soft_wrap=True)
    found: dict[str, list[tuple[Path, ScenarioRun]]] = {}
    costs = []
    for file, scenario in files.items():
        spent = done[scenario.name]
        run = unpacked(scenario, spent.result)
        for line in report_lines(attrs.evolve(run, real_s=spent.cpu_s), marks=console.is_terminal):
            console.print(line)
        found.setdefault(experiment_of(scenario.name), []).append((file, run))
        costs.append(_cost(run, spent))
    return [_part(experiment, runs) for experiment, runs in found.items()], costs


def _cost(run: ScenarioRun, spent: Done) -> Cost:
    limit_s, limit_mib = LIMITS.get(run.scenario.name, (None, None))
    return Cost(
        name=run.scenario.name,
        cpu_s=spent.cpu_s,
        memory=spent.memory,
        simulated_s=run.record.seconds if run.record is not None else None,
        limit_s=limit_s,
        limit_mib=limit_mib,
    )


def _part(experiment: str, runs: Sequence[tuple[Path, ScenarioRun]]) -> Part:
    played = [(file, reported(run)) for file, run in runs if run.record is not None]
    refused = "; ".join(run.refused for _, run in runs if run.record is None)
    return Part(
        experiment=experiment,
        scenes=tuple(scene_of(run, (SCENARIOS / file.name).as_posix()) for file, run in played),
        pictures=tuple(pictures(experiment, [run for _, run in played])) if played else (),
        missing=refused,
    )
