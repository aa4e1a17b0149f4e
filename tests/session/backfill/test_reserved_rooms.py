"""Room beside what is reserved: where its amounts say that it is too little, no search finds a place there."""

from __future__ import annotations

import pytest

from gpusched.session.backfill import reservation_guard
from gpusched.session.backfill.reservation_guard import place_ignoring_reservations
from tests.session.state.kept_histories import KeptHistory
from tests.session.state.wide_histories import WideHistory

bound = reservation_guard._may_fit_beside
told = reservation_guard._refusal_by_held_room


def play(history):
    """Twelve random histories; no session of them has faults."""
    for seed in range(12):
        played = history(seed)
        for _ in range(3):
            decision = played.settle()
            played.pass_time(decision)
            assert not played.decide().faults
            played.change()


@pytest.mark.parametrize("history", [KeptHistory, WideHistory])
def test_no_gang_finds_a_place_for_which_the_room_is_said_not_to_suffice(monkeypatch, history):
    """Given random histories, whenever the bound rules a gang out, then placing it beside the reserved room fails."""
    said = {True: 0, False: 0}

    def checked(session, reservations, gang, statement):
        found = bound(session, reservations, gang, statement)
        said[found] += 1
        if not found:
            mark = statement.checkpoint()
            with reservations.exclude_reserved_room(gang, statement):
                assert place_ignoring_reservations(session, gang, statement) is not None
            statement.rollback(mark)
        return found

    monkeypatch.setattr(reservation_guard, "_may_fit_beside", checked)
    play(history)
    assert said[False]
    assert said[True]


def test_who_is_refused_for_held_room_without_a_search_has_a_place_that_breaks_a_reservation(
    monkeypatch,
):
    """Given random histories, whenever a gang is told so by counting, then a search finds room now, and some of it is held."""
    said = {True: 0, False: 0}

    def checked(session, reservations, gang, statement):
        refusal = told(session, reservations, gang, statement)
        said[refusal is not None] += 1
        if refusal is not None:
            mark = statement.checkpoint()
            assert place_ignoring_reservations(session, gang, statement) is None
            held = reservations.find_conflict(gang, statement)
            assert held is not None
            statement.rollback(mark)
        return refusal

    monkeypatch.setattr(reservation_guard, "_refusal_by_held_room", checked)
    play(KeptHistory)
    assert said[False]
    assert said[True]
