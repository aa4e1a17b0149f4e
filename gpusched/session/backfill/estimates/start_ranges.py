"""Ranges of expected starts, learned from how long others waited beside what they were told.

Split conformal prediction (Papadopoulos, Proedrou, Vovk and Gammerman, "Inductive Confidence
Machines for Regression", ECML 2002; Lei, G'Sell, Rinaldo, Tibshirani and Wasserman,
"Distribution-Free Predictive Inference for Regression", JASA 2018): of n waits that were compared
before, the next one lies between the order statistics of ranks floor(0.1 (n + 1)) and
ceil(0.9 (n + 1)) with a probability of at least 0.8, whatever their distribution, as long as their
order tells nothing. The score is the ratio of the wait to what was told for it, so that one summary serves
short and long waits. Gangs of one queue whose estimates rest on the same are the group; where it
has fewer than forty starts, those of the queue count, and where that has fewer than ten, those of all queues.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from gpusched.api.queue.start_errors import RATIO_EDGES, StartErrors, StartTally, merge_tallies

RANGE_TAILS: Final = 10
"""One start of so many comes before a range, and one after it."""
STARTS_MIN: Final = 10
"""Starts that a group must have; so many are needed for both ranks to be among them."""
KIND_STARTS_MIN: Final = 40
"""The same of a group that one kind of estimate is alone: with fewer, what happened to come last weighs more
than the kind."""
_GRID_S: Final = 60
_GRID_PARTS: Final = 32
_BIND_S: Final = 2
"""A gang starts that long after its room is free: bindings are accepted one after the other."""


def range_factors(
    errors: Mapping[str, StartErrors], path: Sequence[str], known_by: str
) -> tuple[float, float] | None:
    """Between which parts of the time told four of five starts come; None where too few are known.

    Args:
        errors: of all queues, by name.
        path: the gang's queue and those above it.
        known_by: what its estimate rests on.
    """
    own = errors.get(path[0], StartErrors()) if path else StartErrors()
    everything = (each for name in sorted(errors) for each in errors[name].tallies)
    groups = (
        ((own.tally(known_by),), KIND_STARTS_MIN),
        (own.tallies, STARTS_MIN),
        (everything, STARTS_MIN),
    )
    for group, least in groups:
        tally = merge_tallies(group)
        if tally.starts >= least:
            return tally_quantiles(tally)
    return None


def tally_quantiles(tally: StartTally) -> tuple[float, float]:
    """Ratios between which the next one lies with a probability of 0.8; see the module.

    Within its class a ratio counts as evenly spread, as the starts are known by classes alone.
    """
    count = tally.starts
    low = (count + 1) // RANGE_TAILS
    high = count + 1 - low
    return ratio_of_rank(tally, max(1, low)), ratio_of_rank(tally, min(count, high))


def ratio_of_rank(tally: StartTally, rank: int) -> float:
    """The ratio of the start of a rank, from 1 for the shortest."""
    seen = 0
    for edge, count in tally.ratios:
        if seen + count >= rank:
            number = RATIO_EDGES.index(edge)
            low = RATIO_EDGES[number - 1] if number else 0
            return (low + (edge - low) * (rank - seen) / (count + 1)) / 100
        seen += count
    raise ValueError(f"rank {rank} of {seen} starts")


def start_range(now: float, start: float, factors: tuple[float, float]) -> tuple[float, float]:
    """The earliest and latest start, whole steps of a grid apart, so that they stay while time passes.

    Args:
        now: seconds since the epoch.
        start: expected.
        factors: as ``range_factors`` tells them.
    """
    ahead = max(1.0, start - now)
    step = _grid_step(ahead)
    earliest = max(now, now + factors[0] * ahead)
    latest = now + factors[1] * ahead + _BIND_S
    return float(earliest // step * step), float(-(-latest // step) * step)


def range_stays_until(now: int, start: float, factors: tuple[float, float]) -> float:
    """A moment before which ``start_range`` tells the same; one or two seconds early, as floats are not exact.

    Args:
        now: whole seconds since the epoch.
        start: expected.
        factors: as ``range_factors`` tells them.
    """
    ahead = max(1.0, start - now)
    step = _grid_step(ahead)
    low, high = factors
    moments = [start - 1.0, start - step * _GRID_PARTS if step > _GRID_S else start]
    for bound, factor in ((now + low * ahead, low), (now + high * ahead + _BIND_S, high)):
        speed = 1.0 - factor  # of the bound, in seconds a second
        if speed:
            edge = bound // step * step
            edges = (edge, edge + step) if bound > edge else (edge - step, edge, edge + step)
            moments += [now + (each - bound) / speed for each in edges]
    return max(now + 1.0, min(each for each in moments if each > now - 1) // 1 - 1)


def _grid_step(ahead: float) -> int:
    """Seconds of the grid for a start that far ahead."""
    step = _GRID_S
    while step * 2 <= ahead / _GRID_PARTS:
        step *= 2
    return step
