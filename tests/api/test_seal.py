"""A seal fits what it was made for, with the key it was made with, and nothing else."""

from __future__ import annotations

import msgspec
import pytest

from gpusched.api.gang.move_record import MoveRecord, MoveTarget, format_move, parse_move
from gpusched.api.meta.identity import UID
from gpusched.api.meta.resources import Resources
from gpusched.api.serializer.seal import (
    KEY_BYTES,
    NO_SEAL,
    UNKNOWN_SEAL,
    Seal,
    is_seal_key,
    parse_seal,
)
from gpusched.testing import entities

OURS = Seal(b"k" * KEY_BYTES)
OTHER = Seal(b"x" * KEY_BYTES)
BOUND = {"node": "n1", "slots": 0b11, "plan": "p", "fence": "f/1"}
MOVE = MoveRecord(1_700_000_000.0, (MoveTarget("n1", 2, Resources.of({"nvidia.com/gpu": 8000})),))


def sealed(**changes):
    """A bound pod with our seal, changed afterwards."""
    pod = entities.pod("a", entities.pod_class(gpus=2))
    seal = OURS.of_binding(pod.uid, **BOUND)
    return msgspec.structs.replace(pod, **{**BOUND, "seal": seal, **changes})


def test_our_binding_is_known_again():
    """By the key, and without one by nobody; where only we write, all is believed."""
    assert OURS.fits_binding(sealed())
    assert not OTHER.fits_binding(sealed())
    assert not UNKNOWN_SEAL.fits_binding(sealed())
    assert NO_SEAL.fits_binding(sealed(seal=""))


@pytest.mark.parametrize(
    "change",
    [
        {"slots": 0b110},
        {"slots": 0},
        {"node": "n2"},
        {"plan": "q"},
        {"fence": "f/2"},
        {"uid": UID("of another")},
        {"seal": ""},
        {"seal": "ß"},
        {"plan": "", "fence": "p\0f/1"},
    ],
)
def test_whatever_was_changed_is_noticed(change):
    """A tenant can write all of it, but the UID and the node."""
    assert not OURS.fits_binding(sealed(**change))


def test_no_key_makes_no_seal():
    """An empty seal fits nothing, not even when there is no key."""
    assert UNKNOWN_SEAL.of_binding(UID("u"), **BOUND) == ""
    assert not UNKNOWN_SEAL.fits_binding(sealed(seal=""))
    assert not UNKNOWN_SEAL.fits_move(UID("u"), MOVE)


def test_the_record_of_a_move_fits_its_object_alone():
    """Read back from its text; another object, time or place does not fit."""
    text = format_move(MOVE, seal=OURS.of_move(UID("u"), MOVE))
    read = parse_move(text)
    assert read is not None
    assert OURS.fits_move(UID("u"), read)
    assert not OURS.fits_move(UID("v"), read)
    assert not OTHER.fits_move(UID("u"), read)
    for forged in (
        text.replace("8000", "4000"),
        text.replace("n1", "n2"),
        text.replace(":20Z", ":21Z"),
    ):
        changed = parse_move(forged)
        assert changed is not None
        assert changed != MOVE
        assert not OURS.fits_move(UID("u"), changed)


def test_a_binding_is_no_move():
    """Seals of the two kinds cannot stand for each other."""
    assert OURS.of_binding(UID("u"), node="n", slots=0, plan="", fence="") != OURS.of_move(
        UID("u"), MoveRecord(0.0, ())
    )


@pytest.mark.parametrize("text", ["", "0" * 63, "0" * 65, "g" * 64, "A" * 64, 7, None])
def test_what_is_no_key_is_not_used_as_one(text):
    """Somebody wrote into the Lease: a new key is made instead."""
    assert not is_seal_key(text)
    if isinstance(text, str):
        assert parse_seal(text) == UNKNOWN_SEAL


def test_the_key_is_not_shown():
    """Neither in logs nor in dumps of a fault."""
    assert "k" * 8 not in repr(OURS)
