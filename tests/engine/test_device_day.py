"""A day of partitions: small, under each way to give devices; and what fragmentation means."""

from __future__ import annotations

import pytest

from gpusched.lab.experiments.device_day import (
    SCHEDULERS,
    SHAPES,
    DeviceDay,
    day_gangs,
    fragmentation,
    play_day,
)

SMALL = DeviceDay(nodes=2, gpus=3, gangs=14, load=0.5)


@pytest.mark.parametrize("name", SCHEDULERS)
def test_a_day_is_played_to_its_end(name):
    """Nothing is given twice (the play would raise), nobody waits less than not at all."""
    result = play_day(name, SMALL)
    assert set(result.waits) == {each.name for each in day_gangs(SMALL)}
    assert all(wait >= 0 for wait in result.waits.values())
    assert 0 < result.mean("useful") <= result.mean("held") <= 1
    assert result.moments == play_day(name, SMALL).moments


def test_gangs_that_are_whole_or_not_there_hold_nothing_for_nothing():
    for name in ("first fit, whole gangs", "gpusched"):
        assert all(each.held == each.useful for each in play_day(name, SMALL).moments)


def test_the_load_is_that_which_was_asked_for():
    sizes = {"whole": 8, "half": 4, "seventh": 1, "whole-or-half": 4}
    work = sum(each.run_s * sum(sizes[pod] for pod in each.shape.pods) for each in day_gangs(SMALL))
    assert work / (SMALL.nodes * SMALL.gpus * 8 * 86_400) == pytest.approx(0.5, rel=0.02)
    assert {pod for shape in SHAPES for pod in shape.pods} == set(sizes)


@pytest.mark.parametrize(
    ("free", "useless"),
    [
        ([range(8)], 0.0),
        ([range(4)], 0.5),
        ([range(4), range(4, 8)], 0.5),
        ([range(2, 6)], 1.0),
        ([], 0.0),
    ],
)
def test_fragmentation_is_what_no_asked_device_fits(free, useless):
    slices = {("n", f"gpu-{number}"): frozenset(each) for number, each in enumerate(free)}
    assert fragmentation(slices, {"whole": 0.5, "half": 0.5}) == pytest.approx(useless)
