"""Records of turns: what is written is read back, and what was never written is none."""

from __future__ import annotations

import pytest

from gpusched.api.gang.turn_record import TurnRecord, format_turn, later_turn, parse_turn
from gpusched.api.meta.identity import TIME_MAX, UID
from gpusched.api.serializer.seal import Seal

TURN = TurnRecord(1_700_000_000.0, 600)


def test_what_was_written_is_read_back():
    """With its seal, which says nothing about what the turns were."""
    seal = Seal(b"k" * 32)
    text = format_turn(TURN, seal=seal.of_turn(UID("u"), TURN))
    read = parse_turn(text)
    assert read == TURN
    assert seal.fits_turn(UID("u"), read)
    assert not seal.fits_turn(UID("another"), read)
    assert not seal.fits_turn(UID("u"), TURN)


@pytest.mark.parametrize(
    "text",
    [
        None, "", "{}", "[]", "null", "{", "x" * 300, '{"ended": 7, "seconds": 1}',
        '{"ended": "soon", "seconds": 1}', '{"ended": "2026-01-01T00:00:00Z", "seconds": -1}',
        '{"ended": "2026-01-01T00:00:00Z", "seconds": 1e99}',
        '{"ended": "2026-01-01T00:00:00Z", "seconds": 99999999999999999999}',
    ],
)  # fmt: skip
def test_what_nobody_wrote_is_no_record(text):
    """Nothing raises, whatever a tenant put there."""
    assert parse_turn(text) is None


def test_of_two_records_the_later_one_counts():
    """An older one may have been put back by somebody."""
    later = TurnRecord(TURN.ended + 1, 10)
    assert later.ended < TIME_MAX
    for one, other, counts in (
        (None, None, None), (TURN, None, TURN), (None, TURN, TURN), (TURN, later, later),
        (later, TURN, later),
    ):  # fmt: skip
        assert later_turn(one, other) is counts
