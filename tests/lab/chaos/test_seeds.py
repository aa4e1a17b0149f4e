"""Two hundred seeds, and those that found something: nothing crashes and every invariant holds."""

from __future__ import annotations

import logging

import pytest

from gpusched.lab.chaos.campaign import play_seed

SEEDS = range(200)


@pytest.fixture
def silent():
    """Daemons that are killed and starved log thousands of lines."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_seed(silent, seed):
    run = play_seed(seed)
    found = [str(each) for each in run.seen]
    assert run.ok, f"gpusched chaos --seeds {seed} --shrink shows why: {found}"


@pytest.mark.parametrize("seed", [8032, 8394])
def test_two_gangs_do_not_take_turns_with_each_others_room(silent, seed):
    """A promise that was taken back stood in the API for a second, and counted in each session."""
    run = play_seed(seed)
    assert run.ok, [str(each) for each in run.seen]
