"""Reading traces strictly: what cannot be used is counted by reason, and the first of each is told."""

from __future__ import annotations

import csv
import gzip
import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from gpusched.api.queue.queue import ROOT_QUEUE
from gpusched.base.errors import ConfigError
from gpusched.base.limits import TRACE_BYTES_MAX, TRACE_DAYS_MAX
from gpusched.config.yaml_tree import quoted
from gpusched.lab.simulate.traces.model import SkippedRow, Trace, TraceJob

GPUS_MAX: Final = 10_000
DURATION_MAX_S: Final = 10 * 365 * 86_400
_YEAR_S: Final = 365.25 * 86_400
_NAME_MAX: Final = 50
_RENAMED_SHOWN: Final = 3
_ODD: Final = re.compile(r"[^a-z0-9]+")
_GZIP: Final = b"\x1f\x8b"


class UnusableRow(ValueError):
    """A row cannot be used.

    Args:
        reason: in few words, for counting.
        sentence: what is wrong with this row.
    """

    def __init__(self, reason: str, sentence: str) -> None:
        super().__init__(sentence)
        self.reason = reason


class RowReader:
    """Takes rows and keeps what is wrong with some."""

    def __init__(self) -> None:
        self._first: dict[str, SkippedRow] = {}
        self._counts: dict[str, int] = {}
        self._labels: dict[tuple[str, str], str] = {}
        self._taken = {("queue", ROOT_QUEUE)}
        self._turns: dict[tuple[str, str], int] = {}
        """The number that is tried first with the next one of a name."""
        self._renamed: list[str] = []

    def passed(self, place: str, why: UnusableRow) -> None:
        """A row was passed over."""
        self._counts[why.reason] = self._counts.get(why.reason, 0) + 1
        self._first.setdefault(why.reason, SkippedRow(place, why.reason, str(why)))

    def name(self, text: str) -> str:
        """A DNS label for a job, unique in this trace."""
        return self._unique("job", dns_label(text))

    def label(self, what: str, text: str, *, prefix: str = "") -> str:
        """A DNS label for a queue or user: the same text has the same one, and no other text has it.

        Args:
            what: ``queue`` or ``user``.
            text: as the trace has it.
            prefix: what its label begins with.
        """
        found = self._labels.get((what, text))
        if found is not None:
            return found
        plain = prefix + dns_label(text)
        unique = self._labels[what, text] = self._unique(what, plain)
        if unique != plain:
            self._renamed.append(f"{what} {quoted(text)} is {unique}")
        return unique

    def _unique(self, what: str, plain: str) -> str:
        """The name, with the first number behind it that makes it one that nothing of its kind has yet."""
        unique, turn = plain, self._turns.get((what, plain), 2)
        while (what, unique) in self._taken:
            unique, turn = f"{plain}-{turn}", turn + 1
        self._taken.add((what, unique))
        self._turns[what, plain] = turn
        return unique

    def _remarks(self) -> tuple[str, ...]:
        if not self._renamed:
            return ()
        more = len(self._renamed) - _RENAMED_SHOWN
        also = f", and {more:,} more" if more > 0 else ""
        said = ", ".join(self._renamed[:_RENAMED_SHOWN])
        return (
            f"renamed, as an earlier name makes the same DNS label or it is reserved: {said}{also}",
        )

    def skipped_rows(
        self, source: str, *, count: int, strict: bool
    ) -> tuple[tuple[SkippedRow, ...], dict[str, int]]:
        """The first of each reason, and how many there are of each.

        Args:
            source: name of the file.
            count: rows that can be used.
            strict: no hole is allowed.

        Raises:
            ConfigError: no row can be used, or there are holes and none are allowed.
        """
        if strict and self._first:
            raise ConfigError(*(f"{each.place}: {each.sentence}" for each in self._first.values()))
        if not count:
            rows = sum(self._counts.values())
            what = f"none of its {rows} rows can be used" if rows else "it holds no job"
            first = next(iter(self._first.values()), None)
            more = f"; {first.place}: {first.sentence}" if first is not None else ""
            raise ConfigError(f"{source}: {what}{more}")
        return tuple(self._first.values()), dict(sorted(self._counts.items()))

    def trace(self, source: str, jobs: list[TraceJob], *, strict: bool) -> Trace:
        """What was read.

        Raises:
            ConfigError: there is no job, or there are holes and none are allowed.
        """
        passed, counts = self.skipped_rows(source, count=len(jobs), strict=strict)
        ordered = tuple(sorted(jobs, key=lambda each: (each.submit_s, each.name)))
        return Trace(
            source=source, jobs=ordered, passed=passed, counts=counts, remarks=self._remarks()
        )


def dns_label(text: str) -> str:
    """A DNS label made of any text."""
    plain = _ODD.sub("-", text.lower()).strip("-")[:_NAME_MAX].rstrip("-")
    return plain or "x"


def check_trace_size(path: Path) -> None:
    """Look at the size of a file before a byte of it is read; one that is not there is for its reader.

    Raises:
        ConfigError: it is larger than a trace may be.
    """
    try:
        size = path.stat().st_size
    except OSError:
        return
    if size > TRACE_BYTES_MAX:
        raise _too_large(path, f"{size / 2**20:,.0f} MiB")


def _too_large(path: Path, size: str) -> ConfigError:
    return ConfigError(
        f"{path}: a trace may have {TRACE_BYTES_MAX // 2**20} MiB, this one has {size}: cut it by "
        "time or by queue, and simulate the parts"
    )


def check_span(path: Path, submitted: Sequence[float]) -> None:
    """Look at how far apart the rows of a trace are.

    Args:
        path: of the trace, for the sentence.
        submitted: seconds at which its rows came.

    Raises:
        ConfigError: they are further apart than can be simulated.
    """
    first, last = min(submitted, default=0.0), max(submitted, default=0.0)
    if last - first > TRACE_DAYS_MAX * 86_400:
        raise ConfigError(
            f"{path}: its rows come over {(last - first) / _YEAR_S:,.0f} years, from second {first:.0f} to second "
            f"{last:.0f}, and {TRACE_DAYS_MAX:,} days can be simulated: correct the earliest or the latest of them"
        )


def read_text(path: Path) -> str:
    """The text of a file, unpacked where it is compressed with gzip.

    Raises:
        ConfigError: it cannot be read, or is larger than a trace may be.
    """
    check_trace_size(path)
    try:
        with path.open("rb") as file:
            raw = file.read(TRACE_BYTES_MAX + 1)
        if raw[:2] == _GZIP:
            with gzip.GzipFile(fileobj=io.BytesIO(raw)) as packed:
                raw = packed.read(TRACE_BYTES_MAX + 1)
        if len(raw) > TRACE_BYTES_MAX:
            raise _too_large(path, "more than that")
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not UTF-8 text") from None
    except EOFError:
        raise ConfigError(f"{path}: its compressed content ends early") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from error


def read_csv(
    path: Path, *, needed: Sequence[str], known: Sequence[str]
) -> Iterator[tuple[int, dict[str, str]]]:
    """Line number and cells of each row.

    Args:
        path: of a CSV file with a header, perhaps compressed.
        needed: columns that must be there.
        known: all columns that may be there; empty for any.

    Raises:
        ConfigError: it cannot be read, or its header is another.
    """
    reader = csv.DictReader(io.StringIO(read_text(path)), restval="")
    columns = [each.strip() for each in reader.fieldnames or ()]
    missing = [each for each in needed if each not in columns]
    if missing:
        raise ConfigError(
            f"{path}:1: the header has no column {missing[0]}; needed are {', '.join(needed)}"
        )
    odd = [each for each in columns if known and each not in known]
    if odd:
        raise ConfigError(
            f"{path}:1: the header has an unknown column {odd[0]!r}; known are {', '.join(known)}"
        )
    reader.fieldnames = columns
    for row in reader:
        yield reader.line_num, {name: (text or "").strip() for name, text in row.items() if name}


def parse_seconds(row: dict[str, str], column: str, *, most: int, least: int = 0) -> int:
    """A time of a row; what is less than a second is cut off.

    Raises:
        UnusableRow: it is missing, no number, or out of bounds.
    """
    return int(_number(row, column, most=most, least=least))


def parse_integer(row: dict[str, str], column: str, *, most: int) -> int:
    """An amount of a row.

    Raises:
        UnusableRow: it is missing, no whole number, or out of bounds.
    """
    value = _number(row, column, most=most, least=0)
    if not value.is_integer():
        raise UnusableRow(
            f"{column} is no whole number", f"{column} is {row[column][:40]}, no whole number"
        )
    return int(value)


def _number(row: dict[str, str], column: str, *, most: int, least: int) -> float:
    text = row.get(column, "")
    if not text:
        raise UnusableRow(f"no {column}", f"{column} is missing")
    try:
        value = float(text)
        int(value)  # no number is infinite
    except (ValueError, OverflowError):
        raise UnusableRow(
            f"{column} is no number", f"{column} is {text[:40]!r}, no number"
        ) from None
    if value < 0:
        raise UnusableRow(f"{column} is negative", f"{column} is {text}, below zero")
    if not least <= value <= most:
        raise UnusableRow(
            f"{column} out of bounds", f"{column} is {text}; it must be from {least} to {most}"
        )
    return value
