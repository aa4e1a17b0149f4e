"""Gangs on GPUs that can be partitioned: started exactly where trying everything finds a way."""

from __future__ import annotations

import pytest

from gpusched.lab.experiments.random_partitions import is_feasible, play_random


def test_a_gang_starts_where_a_way_exists_and_first_fit_misses_some():
    found = [play_random(seed) for seed in range(8)]
    assert [each.joint for each in found] == [each.feasible for each in found]
    assert any(each.feasible and each.first_fit < len(each.pods) for each in found)
    assert any(not each.feasible for each in found)


def test_trying_everything_knows_what_fits_one_gpu():
    assert is_feasible(("half", "seventh", "seventh", "seventh", "seventh"), 1)
    assert not is_feasible(("half", "half", "seventh"), 1)
    assert is_feasible(("whole-or-half", "whole-or-half"), 1)
    assert not is_feasible(("seventh",) * 8, 1)


@pytest.mark.parametrize("seed", [13, 111])
def test_pods_that_are_hard_to_serve_may_come_last(seed):
    """Equal sevenths placed first lay in the way of halves, in every order, until the search gave up."""
    found = play_random(seed)
    assert (found.joint, found.feasible, found.fault) == (True, True, "")
