"""Some of the planted faults, found by their scripts; ``planted.py`` plays all of them."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from unittest.mock import patch

import pytest

from gpusched.lab.chaos.scripts.script import read_script
from tests.lab.chaos.planted import PLANTS, SCRIPTS, Plain, found_by


@pytest.fixture(autouse=True)
def silent():
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize(
    ("name", "invariant"),
    [
        ("plans_are_not_checked_again", "I1"),
        ("half_a_gang_stays", "I3"),
        ("evictions_name_no_uid", "I6"),
        ("the_lease_never_lapses", "I8"),
        ("the_lease_is_taken_at_once", "I8"),
        ("a_new_leader_does_not_look_again", "I1"),
        ("shares_are_half_as_large", "I2"),
        ("victims_go_before_the_promise", "I6"),
        ("who_leaves_holds_nothing", "I1"),
        ("assumed_slots_are_free", "I2"),
        ("room_is_held_for_ever", "I7"),
        ("preemptible_false_is_not_read", "I6"),
    ],
)
def test_a_script_tells_a_planted_fault_from_a_run_without_it(name, invariant):
    found = found_by(name, (), Plain())
    assert found is not None
    assert (found.by, found.seen.finding.invariant) == ("script", invariant)


def test_a_seed_tells_a_planted_fault_from_a_run_without_it():
    found = found_by("minimum_is_not_read", [0], Plain())
    assert found is not None
    assert (found.by, found.seen.finding.invariant) == (0, "I15")


class NothingHolds(Plain):
    """As if the same were found when every protection is there."""

    def holds(self, name, script):
        """Nothing does."""
        return False


def test_what_is_found_without_the_fault_too_does_not_count():
    assert found_by("shares_are_half_as_large", (), NothingHolds()) is None


@pytest.mark.parametrize("script", sorted(SCRIPTS.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_script_is_of_a_plant_and_can_be_read(script):
    assert script.stem in PLANTS
    assert read_script(script).steps


@pytest.mark.parametrize("name", sorted(PLANTS))
def test_every_plant_still_takes_something_away(name):
    """What it replaces is there, and is as it was afterwards."""
    before = [
        (owner, attribute, getattr(owner, attribute)) for owner, attribute, _ in PLANTS[name]()
    ]
    assert before
    with ExitStack() as stack:
        for owner, attribute, replacement in PLANTS[name]():
            stack.enter_context(patch.object(owner, attribute, replacement))
            assert getattr(owner, attribute) is not before[0][2]
    for owner, attribute, original in before:
        assert getattr(owner, attribute) == original
