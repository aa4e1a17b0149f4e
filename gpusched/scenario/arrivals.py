"""When the repeats of one entry come: fixed, Poisson or even gaps, and the rhythm of a day."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from itertools import accumulate, repeat
from typing import Final

from gpusched.scenario.model import Process, When

HOUR_S: Final = 3600.0
DAY_S: Final = 24 * HOUR_S
_DIGITS: Final = 3
"""Moments are whole milliseconds."""


def arrivals(when: When, chance: random.Random) -> Iterator[float]:
    """The moments of an entry in seconds, in order, the first at ``at_s``.

    Args:
        when: ends by its ``count`` or its ``until_s``.
        chance: seeded for this entry alone.
    """
    if not when.every_s:
        return iter((when.at_s,) * (when.count or 1))
    return _repeats(when, chance)


def _repeats(when: When, chance: random.Random) -> Iterator[float]:
    busy = _Day(when.day) if when.day else None
    start = busy.work(when.at_s) if busy else when.at_s
    gone = 0.0
    gaps = _gaps(when, chance)
    number = 0
    while when.count is None or number < when.count:
        at = when.at_s
        if number:
            gone += next(gaps)
            at = busy.moment(start + gone) if busy else start + gone
        at = round(at, _DIGITS)
        if when.until_s is not None and at > when.until_s:
            return
        yield at
        number += 1


def _gaps(when: When, chance: random.Random) -> Iterator[float]:
    mean = when.every_s
    match when.process:
        case Process.FIXED:
            yield from repeat(mean)
        case Process.POISSON:
            while True:
                yield chance.expovariate(1 / mean)
        case Process.UNIFORM:
            while True:
                yield chance.uniform(0, 2 * mean)


class _Day:
    """Turns time into work done at the day's pace, and back; both grow together."""

    def __init__(self, hours: Sequence[float]) -> None:
        mean = math.fsum(hours) / len(hours)
        self._rates = [hour / mean for hour in hours]
        self._before = [0.0, *accumulate(rate * HOUR_S for rate in self._rates)]

    def work(self, at: float) -> float:
        """Work that is done at a moment: as many seconds as in an even day, over whole days."""
        days, rest = divmod(at, DAY_S)
        hour = int(rest // HOUR_S)
        return days * DAY_S + self._before[hour] + self._rates[hour] * (rest - hour * HOUR_S)

    def moment(self, work: float) -> float:
        """The first moment at which so much work is done."""
        days, rest = divmod(work, DAY_S)
        for hour, rate in enumerate(self._rates):
            if rate and rest <= self._before[hour + 1]:
                return days * DAY_S + hour * HOUR_S + (rest - self._before[hour]) / rate
        return (days + 1) * DAY_S
