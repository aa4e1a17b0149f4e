"""Room for a gang whose turn it is, or that has waited too long, while no end of others is known.

No start can be reserved. So the nodes that come closest to fitting the gang are reserved from now on:
pods on them run on, and no new pod gets what the gang will need. The nodes only become freer, and
the same ones are chosen in each session until they suffice.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpusched.arrays.columns import Bools, Ints, how_many_fit
from gpusched.base.classes import frozen
from gpusched.session.backfill.availability_profile import EqualMembers

_PROGRESS_OF_ONE = 1000
"""Progress of a row on which one more member fits; parts of it count in between."""


@frozen(slots=True, eq=False)
class _NearestRows:
    progress: int
    rows: Ints
    amounts: Ints


def nearest_rows(
    free: Ints, at_most: Ints, parts: Sequence[EqualMembers], areas: Sequence[Bools | None]
) -> tuple[Ints, Ints] | None:
    """Rows that come closest to fitting all members, in the area that comes closest.

    Args:
        free: now, int64, shape (rows, resources); may be negative.
        at_most: what will be free when everything that can end has ended, same shape.
        parts: the members.
        areas: rows in one of which all members must sit; None for all rows.

    Returns:
        Rows, ascending, and what is to be reserved on each; None when no area could ever fit them.
    """
    best: _NearestRows | None = None
    for within in areas:
        choice = _nearest_within(free, at_most, parts, within)
        if choice is not None and (best is None or choice.progress > best.progress):
            best = choice
    return (best.rows, best.amounts) if best else None


def _nearest_within(
    free: Ints, at_most: Ints, parts: Sequence[EqualMembers], within: Bools | None
) -> _NearestRows | None:
    taken = np.zeros_like(free)
    total = 0
    for part in parts:
        ask = part.request
        if ask.missing:
            return None
        allowed = part.allowed if within is None else part.allowed & within
        room = at_most[:, ask.columns] - taken[:, ask.columns]
        most = np.where(allowed, np.minimum(how_many_fit(room, ask.amounts), part.count), 0)
        left = np.maximum(free[:, ask.columns] - taken[:, ask.columns], 0)
        progress = np.minimum(
            (left * _PROGRESS_OF_ONE // ask.amounts).min(axis=1), most * _PROGRESS_OF_ONE
        )
        # Rows that are closest first; of equals the lower row, whatever else happens.
        order = np.lexsort((np.arange(len(most)), -progress))
        fits = most[order]
        before = np.cumsum(fits) - fits
        take = np.minimum(fits, np.maximum(part.count - before, 0))
        if int(take.sum()) < part.count:
            return None
        total += int(np.minimum(progress[order], take * _PROGRESS_OF_ONE).sum())
        counts = np.zeros_like(most)
        counts[order] = take
        taken[:, ask.columns] += counts[:, np.newaxis] * ask.amounts
    rows = np.flatnonzero(taken.any(axis=1))
    return _NearestRows(total, rows, taken[rows])
