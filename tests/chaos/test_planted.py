"""Some of the planted faults, each found by its first seed; ``planted.py`` has all of them."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from unittest.mock import patch

import pytest

from tests.chaos.planted import PLANTS, found_by


@pytest.fixture(autouse=True)
def silent():
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize(
    ("name", "invariant"),
    [
        ("bindings_name_no_uid", "I1"),
        ("minimum_is_not_read", "I15"),
        ("scheduled_is_said_early", "I15"),
    ],
)
def test_a_planted_fault_is_found(name, invariant):
    count, _, seen = found_by(name, range(1))
    assert (count, seen.finding.invariant) == (1, invariant)


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
