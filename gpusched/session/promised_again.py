"""A promise of an earlier session, held again on the bench of this one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from gpusched.session.statement import Place

if TYPE_CHECKING:  # it works with sessions
    from gpusched.session.session import Session


def again(session: Session, place: Place) -> Place:
    """Hold the room of a promise; a share takes the GPU that suits it as things stand."""
    bench, gpu = session.bench, 0
    if place.ask.share is not None and place.ask.gpu >= 0:
        with session.looking_later():
            fits = bench.shares_fit([place.row], place.ask)[0]
            # Where it does not fit any more, it is let go like others whose room is gone.
            found = bench.gpu_for(place.row, place.ask) if fits else None
            gpu = bench.unnamed_on(place.row) if found is None else found
    bench.reserve(place.row, place.ask, gpu=gpu)
    return attrs.evolve(place, gpu=gpu)
