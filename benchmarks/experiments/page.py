"""docs/experiments.md: what was measured, beside what is published and the bounds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import attrs

from benchmarks.experiments.pictures import Picture
from benchmarks.experiments.words import words_of
from gpusched.lab.report.plots.svg import duration_text, number_text
from gpusched.lab.report.run_report import JudgedExpectation, RunReport
from gpusched.lab.report.statistics.tables import FilledTable, table_as_markdown

PAGE: Final = "experiments.md"
FOLDER: Final = "experiments"
"""Of the pictures, beside the page."""
_HEAD: Final = """\
# Experiments

`make experiments` runs the experiments that the field is judged by and writes this page and its pictures:
every number below was put here by it. Rows called "published" are what others measured on their machines, the
other rows are this scheduler's.

Waits, lengths and use are **simulated time**: the whole daemon runs against an embedded cluster (or, in M6 and M7, its
sessions against a recorded or generated one) in virtual time. They are exact, and the same seed gives the same numbers on every
machine. **CPU seconds** are real and vary with the machine and from run to run; they stand in
[one table](#cost) at the end and nowhere else. A fake node starts a pod after a second; no container runs.
On a real cluster (`--kubeconfig`) times are real and vary too.
"""


@attrs.frozen(kw_only=True)
class Scene:
    """One run of an experiment.

    Attributes:
        name: what it is called, such as its scenario.
        command: that repeats it alone.
        real: the command on a real cluster; empty for none.
        told: what is simulated, with the seed.
    """

    name: str
    command: str
    told: str
    real: str = ""
    verdicts: tuple[JudgedExpectation, ...] = ()
    tables: tuple[FilledTable, ...] = ()


@attrs.frozen(kw_only=True)
class Part:
    """One experiment; ``missing`` says why it was not run, empty when it was."""

    experiment: str
    scenes: tuple[Scene, ...] = ()
    pictures: tuple[Picture, ...] = ()
    missing: str = ""

    @property
    def title(self) -> str:
        """``M1: no queueing below capacity``."""
        words = words_of(self.experiment)
        return f"{self.experiment}: {words.title}" if words.title else self.experiment


@attrs.frozen(kw_only=True)
class Cost:
    """CPU seconds and MiB of one run; ``limit_s`` is what it may take, None for any."""

    name: str
    cpu_s: float
    memory: int
    simulated_s: float | None = None
    limit_s: float | None = None
    limit_mib: int | None = None


def scene_of(run: RunReport, file: str) -> Scene:
    """Of a scenario that was played.

    Args:
        run: what came of it; broken invariants count as expectations that do not hold.
        file: of the scenario, as people name it.
    """
    record = run.record
    broken = tuple(
        JudgedExpectation(sentence=f"invariant {each.invariant} at {duration_text(each.at)}: {each.sentence}", ok=False)
        for each in record.broken[:10]
    )  # fmt: skip
    return Scene(
        name=record.name,
        command=f"gpusched scenario run {file}",
        real=f"gpusched scenario run {file} --kubeconfig FILE",
        told=f"{run.teaches} {duration_text(record.seconds)} simulated, seed {record.seed}.",
        verdicts=(*run.verdicts, *broken),
        tables=run.tables,
    )


def write(folder: Path, parts: Sequence[Part], costs: Sequence[Cost]) -> Path:
    """Write the page and its pictures to a folder; pictures of before that are no more are removed."""
    pictures = folder / FOLDER
    pictures.mkdir(parents=True, exist_ok=True)
    drawn = {each.name: each.svg for part in parts for each in part.pictures}
    for old in sorted(pictures.glob("*.svg")):
        if old.name not in drawn:
            old.unlink()
    for name, svg in drawn.items():
        (pictures / name).write_text(svg, encoding="utf-8")
    file = folder / PAGE
    file.write_text(page(parts, costs), encoding="utf-8")
    return file


def page(parts: Sequence[Part], costs: Sequence[Cost]) -> str:
    """The text of docs/experiments.md."""
    blocks = [_HEAD, _summary(parts, costs)]
    for part in parts:
        blocks += [f"## {part.title}", *words_of(part.experiment).paragraphs]
        if part.missing:
            blocks.append(f"**Not run: {part.missing}**")
        blocks += [f"![{each.alt}]({FOLDER}/{each.name})" for each in part.pictures]
        for scene in part.scenes:
            blocks += _scene(scene, alone=len(part.scenes) == 1)
    blocks += ["## Cost", *_costs(costs)]
    return "\n\n".join(block.strip("\n") for block in blocks) + "\n"


def missed(parts: Sequence[Part]) -> list[str]:
    """What did not hold, a sentence each."""
    return [
        f"{scene.name}: {verdict.sentence}" + (f": {verdict.seen}" if verdict.seen else "")
        for part in parts
        for scene in part.scenes
        for verdict in scene.verdicts
        if not verdict.ok
    ]


def _summary(parts: Sequence[Part], costs: Sequence[Cost]) -> str:
    lines = ["| experiment | runs | expectations | hold |", "| --- | ---: | ---: | ---: |"]
    for part in parts:
        verdicts = [each for scene in part.scenes for each in scene.verdicts]
        held = sum(each.ok for each in verdicts)
        lines.append(f"| {part.title} | {len(part.scenes)} | {len(verdicts)} | {held} |")
    wrong = [*missed(parts), *(f"{p.title}: not run, {p.missing}" for p in parts if p.missing)]
    said = "\n".join(f"- {each}" for each in wrong)
    if said:
        lines += ["", "**What misses its target:**", "", said]
    else:
        lines += ["", "Everything that is expected holds."]
    if any(_over(cost) for cost in costs):
        lines += ["", "Some runs cost more than they may: see [the table](#cost)."]
    return "\n".join(lines)


def _scene(scene: Scene, *, alone: bool) -> list[str]:
    commands = "\n".join(each for each in (scene.command, scene.real) if each)
    blocks = [] if alone else [f"### {scene.name}"]
    blocks += [scene.told, f"```\n{commands}\n```"]
    blocks += [table_as_markdown(each) for each in scene.tables]
    lines = []
    for each in scene.verdicts:
        seen = f" ({each.seen})" if each.seen else ""
        lines.append(f"- {'holds' if each.ok else '**does not hold**'}: {each.sentence}{seen}")
    return [*blocks, "\n".join(lines)] if lines else blocks


def _over(cost: Cost) -> bool:
    slow = cost.limit_s is not None and cost.cpu_s > cost.limit_s
    return slow or (cost.limit_mib is not None and cost.memory > cost.limit_mib)


def _costs(costs: Sequence[Cost]) -> list[str]:
    said = (
        "CPU seconds and most memory of the process of each run; reading its file is in it, starting Python is "
        "not. Two runs at a time, so that on two cores all of them take about half of the sum."
    )
    lines = [
        "| run | simulated | CPU | may take | memory | may take | |",
        "| --- | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for cost in costs:
        simulated = "" if cost.simulated_s is None else duration_text(cost.simulated_s)
        most = "" if cost.limit_s is None else f"{number_text(cost.limit_s)} s"
        room = "" if cost.limit_mib is None else f"{number_text(cost.limit_mib)} MiB"
        lines.append(
            f"| {cost.name} | {simulated} | {cost.cpu_s:,.1f} s | {most} | {cost.memory:,} MiB "
            f"| {room} | {'**missed**' if _over(cost) else ''} |"
        )
    lines.append(f"| all | | {sum(each.cpu_s for each in costs):,.1f} s | | | | |")
    return [said, "\n".join(lines)]
