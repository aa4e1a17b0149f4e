"""The slowest way to an earliest start: every moment is looked at, one after another.

What the product has instead is quicker in three ways; see docs/adr/0024.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpusched.session.backfill.availability_profile import Reservation, ReservationTable
from gpusched.session.backfill.earliest_start import EarlierResult, StartSearch


def first_moment_that_fits(
    search: StartSearch,
    reservations: Sequence[Reservation],
    *,
    until: int,
    before: EarlierResult | None = None,
) -> Reservation | None:
    """As ``StartSearch.find_earliest_start``; what was found for other gangs is not used."""
    width = search._profile.staying.shape[1]
    table = ReservationTable(reservations, width)
    for time in search._candidate_times(reservations, until):
        found = search._pack_at(time, reservations, table)
        if found is not None:
            return search._reservation_at(time, found)
    return None
