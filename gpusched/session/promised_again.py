"""A promise of an earlier session, held again on the bench of this one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from gpusched.cache.gangs import Gang
from gpusched.session.statement import Place, Statement

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


def promise_holds(session: Session, gang: Gang) -> bool:
    """Whether the room promised to a gang will be free for it when those who leave are gone.

    A promise for fewer members than it needs, as a crash may leave one, is none.
    """
    if len(session.promises.get(gang.key, ())) < gang.at_once:
        return False
    statement = session.statement()
    with session.looking_later():
        # Each is lifted and placed again, so that none is in the way of itself.
        session.lift(statement, gang)
        left = list(session.promises.get(gang.key, ()))
        found = True
        while left and found:
            # Members may wait for each other: whoever can go first does.
            rest = [place for place in left if not _still(session, statement, place)]
            found, left = len(rest) < len(left), rest
        statement.discard()
    return not left


def _still(session: Session, statement: Statement, place: Place) -> bool:
    seat = session.seat_of(place.pod)
    if not seat.board.fits[place.row]:
        return False
    statement.place(place.pod, place.row, seat.ask)
    return True
