"""Histograms of the daemon: an observation costs a microsecond, a scrape adds them up.

Each session observes every hook of every plugin; an OpenTelemetry histogram takes ten
microseconds for one, which was a twentieth of a small session.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Final

from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector

OVERFLOW: Final = "other"
"""Label value of the row that takes what comes after the last row that a histogram may have."""


class Histogram:
    """Observations of one quantity, counted in buckets.

    Args:
        name: of the metric, unit included.
        description: of the metric, for people.
        bounds: upper bounds of the buckets, ascending, each inclusive; one without bound follows.
        labels: names of its labels.
        rows_max: combinations of label values that are kept apart.
    """

    def __init__(
        self, name: str, description: str, bounds: Sequence[float], labels: tuple[str, ...] = (),
        *, rows_max: int,
    ) -> None:  # fmt: skip
        self._name = name
        self._description = description
        self._bounds = tuple(bounds)
        self._labels = labels
        self._rows_max = rows_max
        self._lock = threading.Lock()
        self._counts: dict[tuple[str, ...], list[int]] = {}
        self._sums: dict[tuple[str, ...], float] = {}

    def observe(self, value: float, *row: str) -> None:
        """Count one observation of zero or more; ``row`` holds the label values in their order."""
        bucket = bisect_left(self._bounds, value)
        with self._lock:
            counts = self._counts.get(row)
            if counts is None:
                if len(self._counts) >= self._rows_max:
                    row = (OVERFLOW,) * len(self._labels)
                counts = self._counts.setdefault(row, [0] * (len(self._bounds) + 1))
                self._sums.setdefault(row, 0.0)
            counts[bucket] += 1
            self._sums[row] += value

    def family(self) -> HistogramMetricFamily:
        """All rows of this moment, as the text format wants them."""
        family = HistogramMetricFamily(self._name, self._description, labels=self._labels)
        ends = [*map(str, self._bounds), "+Inf"]
        with self._lock:
            for row, counts in self._counts.items():
                buckets = [(end, float(n)) for end, n in zip(ends, accumulate(counts), strict=True)]
                family.add_metric(row, buckets, sum_value=self._sums[row])
        return family

    @property
    def empty(self) -> bool:
        """Whether nothing was observed yet."""
        return not self._counts


class HistogramCollector(Collector):
    """Shows histograms in a registry; one without observations is left out.

    Args:
        histograms: in the order in which they are shown.
    """

    def __init__(self, histograms: Sequence[Histogram]) -> None:
        self._histograms = histograms

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """Yield a family for each histogram."""
        return (each.family() for each in self._histograms if not each.empty)

    def describe(self) -> Iterator[HistogramMetricFamily]:
        """Yield nothing: the names are known before the histograms are."""
        return iter(())
