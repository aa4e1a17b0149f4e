"""What queues held, were due, borrowed and requested over the last day: one sample a minute.

Samples are of bounded number and kept in columns of numbers, so that a day of a thousand queues
takes some 25 MB. They are kept where they are served and end with that process.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Self

from gpusched.api.meta.identity import format_time
from gpusched.api.meta.quantity import QuantityError, parse_quantity
from gpusched.base.classes import define
from gpusched.view.model import QueueGpus, QueueView, ViewPart

SAMPLE_PERIOD_S: Final = 60
SAMPLES_KEPT: Final = 24 * 60
QUEUES_KEPT: Final = 1000
"""Queues beyond so many have no past."""
_UNKNOWN: Final = -1
_AMOUNT_MAX: Final = 2**31 - 1


class QueueSeriesView(ViewPart, frozen=True, kw_only=True):
    """GPUs of one queue at the times of its list, as numbers; null where it was not known or not there.

    Attributes:
        due: its fair share, else what it deserves.
    """

    name: str
    allocated: tuple[float | int | None, ...]
    due: tuple[float | int | None, ...]
    borrowed: tuple[float | int | None, ...]
    requested: tuple[float | int | None, ...]


@define(eq=False)
class _Columns:
    """Thousandths of GPUs of one queue, as many of each sort as there are samples."""

    allocated: array[int]
    due: array[int]
    borrowed: array[int]
    requested: array[int]
    seen_at: float = 0.0

    @classmethod
    def unknown(cls, samples: int) -> Self:
        """Of a queue of which so many samples know nothing."""
        empty = [_UNKNOWN] * samples
        return cls(array("i", empty), array("i", empty), array("i", empty), array("i", empty))

    def all_of_them(self) -> tuple[array[int], ...]:
        return (self.allocated, self.due, self.borrowed, self.requested)


class QueueSeries:
    """Takes samples; ``since`` tells them.

    Args:
        period_s: between two samples.
        kept: samples that are kept.
    """

    def __init__(self, *, period_s: int = SAMPLE_PERIOD_S, kept: int = SAMPLES_KEPT) -> None:
        self.period_s = period_s
        self._kept = kept
        self._times: list[float] = []
        self._columns: dict[str, _Columns] = {}

    def take(self, now: float, queues: Mapping[str, QueueView]) -> None:
        """Take a sample where the next one is due.

        Args:
            now: seconds since the epoch.
            queues: by name, as they are.
        """
        if not queues and not self._columns:
            return  # nothing was told yet: there is always the default queue
        last = self._times[-1] if self._times else now - self.period_s
        if last <= now < last + self.period_s:
            return
        if now < last:  # a clock that was put back: what is known has no place on its axis
            self._times.clear()
            self._columns.clear()
        if len(self._times) >= self._kept:
            self._drop_oldest()
        before = len(self._times)
        self._times.append(now)
        for name in sorted(queues):
            columns = self._columns.get(name)
            if columns is None:
                if len(self._columns) >= QUEUES_KEPT:
                    continue
                columns = self._columns[name] = _Columns.unknown(before)
            columns.seen_at = now
            told = _thousandths(queues[name].gpus)
            for column, value in zip(columns.all_of_them(), told, strict=True):
                column.append(value)
        for name, columns in self._columns.items():
            if name not in queues:
                for column in columns.all_of_them():
                    column.append(_UNKNOWN)

    def names(self) -> list[str]:
        """Queues of which anything is known, sorted."""
        return sorted(self._columns)

    def times(self) -> list[str]:
        """When samples were taken, oldest first."""
        return [format_time(at) for at in self._times]

    def series(self, names: Iterable[str]) -> Iterator[QueueSeriesView]:
        """Those of some queues, in this order; of one that was never seen there is none."""
        for name in names:
            columns = self._columns.get(name)
            if columns is not None:
                allocated, due, borrowed, requested = map(_gpus, columns.all_of_them())
                yield QueueSeriesView(
                    name=name, allocated=allocated, due=due, borrowed=borrowed, requested=requested
                )

    def _drop_oldest(self) -> None:
        del self._times[0]
        for columns in self._columns.values():
            for column in columns.all_of_them():
                del column[0]
        oldest = self._times[0] if self._times else 0.0
        for name in [n for n, each in self._columns.items() if each.seen_at < oldest]:
            del self._columns[name]


def _thousandths(gpus: QueueGpus) -> tuple[int, int, int, int]:
    told = (gpus.allocated, gpus.fair_share or gpus.deserved, gpus.borrowed, gpus.requested)
    allocated, due, borrowed, requested = map(_amount, told)
    return allocated, due, borrowed, requested


def _amount(text: str) -> int:
    try:
        return min(parse_quantity(text, power=3), _AMOUNT_MAX) if text else _UNKNOWN
    except QuantityError:
        return _UNKNOWN


def _gpus(column: array[int]) -> tuple[float | int | None, ...]:
    return tuple(
        None if value == _UNKNOWN else value // 1000 if value % 1000 == 0 else value / 1000
        for value in column
    )
