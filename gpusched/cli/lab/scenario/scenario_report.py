"""What is said of scenarios while and after they are played."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn
from rich.text import Text

from gpusched.cli.shell.start import INTERRUPTED
from gpusched.engine.run_record import RunRecord
from gpusched.lab.report.run_report import JudgedExpectation, RunReport
from gpusched.lab.report.statistics.named import statistic
from gpusched.lab.report.statistics.tables import fill_table, table_as_text
from gpusched.lab.scenario.judge.messages import duration_text, expectation_message
from gpusched.lab.scenario.model.scenario import Expectation
from gpusched.lab.scenario.play import run as play
from gpusched.lab.scenario.play.run import ScenarioRun

_BROKEN_SHOWN: Final = 10
_WRONG_FILE: Final = 78
_LOST: Final = 69
STATISTICS: Final = (
    "jobs", "completed", "failed", "makespan", "mean(wait)", "p95(wait)", "mean(completion)",
    "evictions", "lostGpuHours", "repeatedEvictions", "evictionCycles", "longestEvictionChain", "gpuUse", "gpuUseBusy", "fragmentation", "fairness",
    "partialGangSeconds",
)  # fmt: skip
"""Those that are printed as JSON for every run."""


def expectation_text(expectation: Expectation) -> str:
    """What is expected, in the scenario's own words or in made ones."""
    return expectation.sentence or expectation_message(expectation.subject, expectation.span)


class ScenarioReporter:
    """Tells of runs: on a terminal with a bar of what is being played, else a line each.

    Args:
        console: where to.
        quiet: say nothing of single runs.
        count: how many there are.
    """

    def __init__(self, console: Console, *, quiet: bool, count: int) -> None:
        self._console = console
        self._quiet = quiet
        self._bars = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[at]}"),
            console=console,
            transient=True,
            auto_refresh=False,
            disable=not console.is_terminal,
        )
        self._playing: dict[str, TaskID] = {}
        self._all = self._bars.add_task("scenarios", total=count, at=f"0 of {count}")
        self._count = count
        self._over = 0

    def __enter__(self) -> Self:
        """Show the progress bar."""
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, why: BaseException | None, at: TracebackType | None
    ) -> None:
        """Take the bar away."""
        self._bars.stop()

    def progress(self, at: play.RunProgress) -> None:
        """Where a run stands."""
        task = self._playing.get(at.name)
        if task is None:
            task = self._playing[at.name] = self._bars.add_task(at.name, total=None, at="")
        share = at.horizon if at.seconds < at.horizon else None
        self._bars.update(
            task, total=share, completed=at.seconds, at=duration_text(round(at.seconds))
        )
        self._bars.refresh()

    def note(self, sentence: str) -> None:
        """Something that was done in a real cluster, or is missing there."""
        if not self._quiet:
            self._console.print(Text(f"note: {sentence}", "dim"))

    def done(self, run: ScenarioRun) -> None:
        """What came of a run."""
        task = self._playing.pop(run.scenario.name, None)
        if task is not None:
            self._bars.remove_task(task)
        self._over += 1
        self._bars.update(self._all, completed=self._over, at=f"{self._over} of {self._count}")
        self._bars.refresh()
        if not self._quiet:
            said = report_lines(run, marks=self._console.is_terminal)
            self._console.print(Text("\n").join(said))


def report_lines(run: ScenarioRun, *, marks: bool) -> list[Text]:
    """A line for the run, one for each thing that was expected, and its tables.

    Args:
        run: what came of it.
        marks: ticks and crosses instead of words.
    """
    said = [_line(marks, None if run.skipped else run.ok, _headline(run))]
    if run.record is None:
        return said
    for verdict in run.verdicts:
        told = expectation_text(verdict.expectation)
        if not verdict.ok:
            told = f"{told}: {verdict.seen} ({verdict.expectation.place})"
        said.append(_line(marks, verdict.ok, told, indent=2))
    said += [_line(marks, False, each, indent=2) for each in failures(run)]
    if not run.record.broken:
        said.append(_line(marks, True, invariants(run), indent=2))
    for each in run.scenario.tables:
        said += [
            Text(),
            *(
                Text(f"  {line}")
                for line in table_as_text(fill_table(each, run.record)).split("\n")
            ),
        ]
    return said


def invariants(run: ScenarioRun) -> str:
    """That those that are always looked at held."""
    bound = sum(pod.bound is not None for pod in run.record.pods) if run.record else 0
    return f"invariants: no gang in part, no GPU twice, room and quota kept ({_many(bound, 'binding')})"


def failures(run: ScenarioRun) -> list[str]:
    """What went wrong beside expectations, a sentence each."""
    return [*broken(run), *failed_acts(run)]


def broken(run: ScenarioRun) -> list[str]:
    """Invariants that did not hold; of many the first."""
    if run.record is None:
        return []
    said = [
        f"invariant {each.invariant} at {duration_text(each.at)}: {each.sentence}"
        for each in run.record.broken
    ]
    more = len(said) - _BROKEN_SHOWN
    if more > 0:
        return [*said[:_BROKEN_SHOWN], f"and {more} more times an invariant did not hold"]
    return said


def failed_acts(run: ScenarioRun) -> list[str]:
    """Acts that could not be done, and why it did not come to its end."""
    if run.record is None:
        return [run.refused] if run.refused else []
    acts = [
        f"at {duration_text(each.at)}, {each.sentence}: {each.trouble}" for each in run.troubles
    ]
    return [*acts, *([run.record.unfinished] if run.record.unfinished else [])]


def _headline(run: ScenarioRun) -> str:
    name = run.scenario.name
    if run.skipped:
        return f"{name} was not played: {run.skipped}"
    if run.record is None:
        return f"{name}: {run.refused}"
    return f"{name}: {run.scenario.teaches} ({_lasted(run.record, run.real_s)})"


def _lasted(record: RunRecord, real_s: float) -> str:
    seconds = duration_text(round(record.seconds))
    return f"{seconds} simulated in {real_s:.1f} s" if record.digest else f"{seconds} in real time"


def _line(marks: bool, ok: bool | None, text: str, *, indent: int = 0) -> Text:
    word = {True: "ok  ", False: "FAIL", None: "skip"}[ok]
    tick = {True: "✓", False: "✗", None: "-"}[ok]
    style = {True: "green", False: "bold red", None: "yellow"}[ok]
    line = Text(" " * indent).append(tick if marks else word, style).append(" ")
    return line.append(text, "bold" if not indent and marks else "")


def total_line(runs: Sequence[ScenarioRun], *, of: int) -> str:
    """The last line; ``of`` so many that were to be played."""
    played = [run for run in runs if not run.skipped]
    judged = sum(len(run.verdicts) for run in played)
    wrong = [run.scenario.name for run in played if not run.ok]
    skipped = len(runs) - len(played)
    text = f"{_many(len(played), 'scenario')}, {_many(judged, 'expectation')}"
    text += f", {skipped} not played" if skipped else ""
    text += f", {of - len(runs)} not begun" if of > len(runs) else ""
    return f"{text}: {f'{len(wrong)} FAILED: ' + ', '.join(wrong) if wrong else 'all ok'}"


def _many(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def status_of(runs: Sequence[ScenarioRun]) -> int:
    """The exit status: interrupted, lost, a wrong file, something not as expected, or 0."""
    if any(run.interrupted for run in runs):
        return INTERRUPTED
    if any(run.lost for run in runs):
        return _LOST
    if any(run.refused for run in runs):
        return _WRONG_FILE
    return 0 if all(run.ok for run in runs) else 1


def report_json(runs: Sequence[ScenarioRun]) -> dict[str, Any]:
    """Verdicts, statistics and digests, for programs."""
    return {"ok": all(run.ok for run in runs), "scenarios": [_run_json(run) for run in runs]}


def reported(run: ScenarioRun) -> RunReport:
    """A run for its page; what went wrong beside expectations stands with these."""
    assert run.record is not None, "it was played"
    verdicts = [
        JudgedExpectation(sentence=expectation_text(each.expectation), ok=each.ok, seen=each.seen)
        for each in run.verdicts
    ]
    verdicts += [JudgedExpectation(sentence=each, ok=False) for each in failed_acts(run)]
    return RunReport(
        record=run.record,
        verdicts=tuple(verdicts),
        tables=tuple(fill_table(each, run.record) for each in run.scenario.tables),
        teaches=run.scenario.teaches,
    )


def _run_json(run: ScenarioRun) -> dict[str, Any]:
    record = run.record
    told: dict[str, Any] = {
        "name": run.scenario.name,
        "teaches": run.scenario.teaches,
        "ok": run.ok,
        "skipped": run.skipped,
        "failures": failures(run),
        "verdicts": [
            {
                "expected": expectation_text(each.expectation),
                "ok": each.ok,
                "at": each.at,
                "seen": each.seen,
                "place": str(each.expectation.place),
            }
            for each in run.verdicts
        ],
    }
    if record is not None:
        figures = {name: statistic(record, name).value for name in STATISTICS}
        told |= {
            "seed": record.seed,
            "seconds": record.seconds,
            "digest": record.digest,
            "counters": dict(record.counters),
            "statistics": figures,
            "tables": [
                [[cell.text for cell in row] for row in fill_table(each, record).rows]
                for each in run.scenario.tables
            ],
        }
    return told
