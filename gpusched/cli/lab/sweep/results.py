"""The folder of a sweep: a file for each point that was played, by its key, and what they say together."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from operator import ge
from pathlib import Path
from typing import Any, Final, TypeAlias

import attrs

from gpusched.base.classes import frozen
from gpusched.base.errors import UsageError
from gpusched.cli.lab.sweep.points import SweepPoint

Result: TypeAlias = Mapping[str, Any]
Axes: TypeAlias = Sequence[tuple[str, int]]
_POINTS: Final = "points"
_SCRATCH: Final = ".part"


class ResultFolder:
    """Results on disk; each file is whole or is not there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def begin(self, *, resume: bool) -> None:
        """Look at what is there, and remove what a cut run left; nothing is made.

        Raises:
            UsageError: it cannot be used, or holds results that nobody asked to go on with.
        """
        points = self.folder / _POINTS
        try:
            if not points.exists():
                return
            there = [each for each in points.iterdir() if each.suffix == ".json"]
            for left in points.glob(f"*{_SCRATCH}"):
                left.unlink()  # a run was cut while it wrote
        except OSError as error:
            raise _unwritable(points, error) from error
        for each in there:
            if not each.is_file():
                raise UsageError(f"{each} is no file: a result belongs there")
        if there and not resume:
            raise UsageError(
                f"{self.folder} holds {len(there):,} results: go on with them by --resume, or name "
                "another folder"
            )

    def make(self) -> None:
        """Make it where it is not there.

        Raises:
            UsageError: it cannot be.
        """
        points = self.folder / _POINTS
        try:
            points.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _unwritable(points, error) from error

    def read(self, key: str) -> Result | None:
        """The result of a key; None where there is none that is whole."""
        try:
            found = json.loads((self.folder / _POINTS / f"{key}.json").read_bytes())
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) and found.get("key") == key else None

    def keep_result(self, key: str, result: bytes) -> None:
        """Write one result, whole or not at all.

        Raises:
            UsageError: it cannot be written.
        """
        self.write(f"{_POINTS}/{key}.json", result)

    def write(self, name: str, content: bytes) -> None:
        """Write a file below the folder, whole or not at all.

        Raises:
            UsageError: it cannot be written.
        """
        path = self.folder / name
        scratch = path.with_name(path.name + _SCRATCH)
        try:
            with scratch.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            scratch.replace(path)
        except OSError as error:
            with contextlib.suppress(OSError):
                scratch.unlink()  # where the disk is full, what is half written is in the way of what is tried next
            raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> UsageError:
    return UsageError(f"results cannot be written to {path}: {error.strerror or error}")


@frozen(kw_only=True)
class SweepRow:
    """One setting on one input, over its seeds.

    Attributes:
        values: what is varied, as text.
        results: of the points that were played.
        points: how many there are to play.
        front: no other row of the input is better: at least as good in all that is asked, and unlike.
    """

    input: str
    configuration: str
    values: tuple[tuple[str, str], ...]
    results: tuple[Result, ...]
    points: int
    front: bool = False

    @property
    def label(self) -> str:
        """The configuration and its values."""
        return ", ".join([self.configuration, *(f"{key}={value}" for key, value in self.values)])

    def mean(self, name: str) -> float | None:
        """Of a statistic over the seeds that were played; None where one does not have it."""
        found = [each["statistics"].get(name) for each in self.results]
        if not found or any(value is None for value in found):
            return None
        return math.fsum(found) / len(found)

    @property
    def never_started(self) -> int:
        """Jobs that never started, over all seeds."""
        return sum(each["neverStarted"] for each in self.results)


@frozen(kw_only=True)
class SweepSummary:
    """What is known of a sweep.

    Attributes:
        failed: sentence of each point that failed, by its label.
    """

    source: str
    rows: tuple[SweepRow, ...]
    points: int
    played: int
    failed: Mapping[str, str]
    broken: Mapping[str, str]

    @property
    def state(self) -> str:
        """How much of it there is."""
        if self.played == self.points:
            return f"all {self.points:,} points"
        left = self.points - self.played - len(self.failed)
        parts = [f"{len(self.failed):,} failed" if self.failed else "",
                 f"{left:,} not played" if left else ""]  # fmt: skip
        said = ", ".join(part for part in parts if part)
        return f"partial: {self.played:,} of {self.points:,} points ({said})"


def summarize_sweep(
    source: str,
    points: Sequence[SweepPoint],
    results: Mapping[str, Result],
    failed: Mapping[str, str],
    *,
    axes: Axes,
) -> SweepSummary:
    """Rows in the order of the points.

    Args:
        source: the file.
        points: of the sweep.
        results: by key, of those that were played.
        failed: sentences by label.
        axes: statistics by which rows are better, with 1 where more is and -1 where less is.
    """
    grouped: dict[tuple[str, str, tuple[tuple[str, str], ...]], list[SweepPoint]] = {}
    for point in points:
        grouped.setdefault((point.input.name, point.configuration, point.values), []).append(point)
    rows = [
        SweepRow(
            input=given,
            configuration=configuration,
            values=values,
            results=tuple(results[each.key] for each in mine if each.key in results),
            points=len(mine),
        )
        for (given, configuration, values), mine in grouped.items()
    ]
    broken = {
        point.label: (found["broken"] or [found["unfinished"]])[0]
        for point in points
        if (found := results.get(point.key)) is not None
        and (found["broken"] or found["unfinished"])
    }
    return SweepSummary(
        source=source,
        rows=_with_fronts(rows, axes),
        points=len(points),
        played=sum(point.key in results for point in points),
        failed=dict(failed),
        broken=broken,
    )


def untold_statistics(summary: SweepSummary, names: Sequence[str]) -> list[str]:
    """Those of these statistics that no point tells, where some were played."""
    told = [each["statistics"] for row in summary.rows for each in row.results]
    return [name for name in names if told and all(each.get(name) is None for each in told)]


def _with_fronts(rows: Sequence[SweepRow], axes: Axes) -> tuple[SweepRow, ...]:
    """Rows of which no other row of their input, over all its points as well, is better."""
    places = [_place(row, axes) for row in rows]
    fronts: dict[str, set[tuple[float, ...]]] = {}
    for given in {row.input for row in rows}:
        mine = {
            place for place, row in zip(places, rows, strict=True) if row.input == given and place
        }
        front: list[tuple[float, ...]] = []
        for place in sorted(mine, reverse=True):  # whatever is better comes before it
            if not any(all(map(ge, other, place)) for other in front):
                front.append(place)
        fronts[given] = set(front)
    return tuple(
        attrs.evolve(row, front=place in fronts[row.input])
        for row, place in zip(rows, places, strict=True)
    )


def _place(row: SweepRow, axes: Axes) -> tuple[float, ...] | None:
    """Its means, more of each being better; None where a point is missing."""
    means = [(row.mean(name), better) for name, better in axes]
    if len(row.results) < row.points or any(mean is None for mean, _ in means):
        return None
    return tuple(better * mean for mean, better in means if mean is not None)


# -- files -----------------------------------------------------------------------------------------
def results_csv(points: Iterable[SweepPoint], results: Mapping[str, Result]) -> bytes:
    """A line for each point that was played: its values, then its statistics."""
    played = [(point, results[point.key]) for point in points if point.key in results]
    keys = list(dict.fromkeys(key for point, _ in played for key, _ in point.values))
    names = list(dict.fromkeys(name for _, found in played for name in found["statistics"]))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        ["input", "configuration", *keys, "seed", "jobs", "never_started", *names, "key"]
    )
    for point, found in played:
        values, statistics = dict(point.values), found["statistics"]
        numbers = [statistics.get(name) for name in names]
        writer.writerow([
            point.input.name, point.configuration, *(values.get(key, "") for key in keys),
            point.seed, found["jobs"], found["neverStarted"],
            *("" if number is None else number for number in numbers), point.key,
        ])  # fmt: skip
    return out.getvalue().encode()


def summary_json(
    summary: SweepSummary, points: Iterable[SweepPoint], results: Mapping[str, Result]
) -> dict[str, Any]:
    """The same for programs; waits in seconds."""
    return {
        "source": summary.source,
        "complete": summary.played == summary.points,
        "points": summary.points,
        "played": summary.played,
        "failed": [{"point": label, "error": said} for label, said in summary.failed.items()],
        "broken": [{"point": label, "error": said} for label, said in summary.broken.items()],
        "rows": [
            {
                "input": row.input,
                "configuration": row.configuration,
                "values": dict(row.values),
                "played": len(row.results),
                "points": row.points,
                "front": row.front,
                "neverStarted": row.never_started,
                "means": {name: row.mean(name) for name in _names(row)},
            }
            for row in summary.rows
        ],
        "results": [results[point.key] for point in points if point.key in results],
    }


def _names(row: SweepRow) -> list[str]:
    return list(dict.fromkeys(name for each in row.results for name in each["statistics"]))
