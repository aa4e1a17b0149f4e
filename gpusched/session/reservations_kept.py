"""The one way to places for a gang's minimum: none that breaks a reservation of another gang."""

from __future__ import annotations

from gpusched.cache.gangs import Gang
from gpusched.session.areas import Refusal
from gpusched.session.placing import place_minimum
from gpusched.session.reasons import Reason
from gpusched.session.reservations_told import held_for
from gpusched.session.session import Session
from gpusched.session.statement import Statement


def place_clear(session: Session, gang: Gang, statement: Statement) -> Refusal | None:
    """As ``place_minimum``, around what is held for gangs whose turn came before.

    A gang that takes back a promise made to it may have any room: nobody's hold counts on it.
    """
    before = statement.checkpoint()
    reservations = session.reservations
    if reservations is None or statement.lifted:
        return place_minimum(session, gang, statement)
    with reservations.own_room(gang) as has_own:
        refusal = place_minimum(session, gang, statement) if has_own else None
    if not has_own or refusal is not None:
        refusal = place_minimum(session, gang, statement)
    if refusal is not None:
        return refusal
    holder = reservations.conflict(gang, statement)
    if holder is None:
        return None
    statement.rollback(before)
    with reservations.around(gang, statement):
        elsewhere = place_minimum(session, gang, statement)
    if elsewhere is None and reservations.conflict(gang, statement) is None:
        return None
    statement.rollback(before)
    return Refusal(Reason.RESERVED, held_for(reservations, gang, holder))
