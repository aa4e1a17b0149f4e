"""Of sessions that follow each other fast the first works out when gangs should start, and the others leave what it told."""

from __future__ import annotations

import attrs
import numpy as np
import pytest

from gpusched.api.meta.identity import GangKey
from gpusched.api.pod.pod import GangAnnotations, PodPhase
from gpusched.arrays.columns import RequestVector
from gpusched.base.limits import ESTIMATES_AFTER_CHANGE_S, ESTIMATES_EVERY_S
from gpusched.cache.snapshot import TenantRound
from gpusched.session.backfill.running.release_order import Release, ReleaseOrder, RowReleases
from gpusched.testing.given import Given

SECOND_NS = 10**9


@pytest.fixture
def c():
    """Two nodes run a gang for an hour and one for two; two gangs wait for a node."""
    c = Given(now=1000.0).nodes(2, gpus=4).queue("q")
    for node, hours in enumerate((1, 2)):
        c.pod(
            f"runs-{node}", queue="q", node=f"node-{node}", slots=0b1111, gpus=4,
            phase=PodPhase.RUNNING, plan="p", scheduled=940.0,
            hints=GangAnnotations(expected_duration_ns=hours * 3600 * SECOND_NS),
        )  # fmt: skip
    for number in range(2):
        c.gang(f"waits-{number}", pods=1, gpus=4, queue="q", created=950.0 + number)
    return c


def told(c, after_s):
    """What is told a while after the last session, as a daemon passes it on to the next one."""
    c.now += after_s
    c.when.one_session()
    c.cache.expected_starts = c.decision.expected_starts
    return {key.name: each.start for key, each in c.decision.expected_starts.estimates.items()}


def test_what_was_told_is_left_for_a_while_and_worked_out_again_after_it(c):
    first = told(c, 0)
    assert first == {"waits-0": 940.0 + 3600, "waits-1": 940.0 + 7200}
    c.gone("runs-1")  # waits-0 starts, and waits-1 comes an hour earlier
    assert told(c, ESTIMATES_EVERY_S / 2) == {"waits-1": first["waits-1"]}
    c.when.carry_out(c.decision.plan)
    assert told(c, ESTIMATES_EVERY_S / 4) == {"waits-1": first["waits-1"]}
    assert told(c, ESTIMATES_EVERY_S / 2) == {"waits-1": first["waits-0"]}


def test_a_session_that_left_what_was_told_answers_for_none_after_that_time(c):
    first = told(c, 0)
    c.gone("runs-1")
    told(c, ESTIMATES_EVERY_S / 2)
    c.when.carry_out(c.decision.plan)
    for _ in range(3):
        told(c, 0)
    assert c.decision.kept
    assert told(c, ESTIMATES_EVERY_S / 2) == {"waits-1": first["waits-0"]}
    assert not c.decision.kept
    told(c, ESTIMATES_EVERY_S * 5)
    assert c.decision.kept, "what it worked out itself it answers for"


def test_in_rounds_a_session_that_comes_for_a_change_leaves_starts_to_the_next_one(c):
    first = told(c, 0)
    c.gone("runs-1")
    c.cache.rounds = (TenantRound("q", "default", changed=True),)
    assert told(c, ESTIMATES_EVERY_S * 1.5) == {"waits-1": first["waits-1"]}
    c.when.carry_out(c.decision.plan)
    c.cache.rounds = (TenantRound("q", "default"),)
    assert told(c, 0) == {"waits-1": first["waits-0"]}


def test_in_rounds_that_changes_begin_again_and_again_starts_are_told_in_time(c):
    first = told(c, 0)
    c.gone("runs-1")
    for _ in range(2):
        c.cache.rounds = (TenantRound("q", "default", changed=True),)
        now = told(c, ESTIMATES_AFTER_CHANGE_S / 2)
        c.when.carry_out(c.decision.plan)
    assert now == {"waits-1": first["waits-0"]}


def test_that_starts_are_to_be_told_anew_has_nobody_looked_at_again(c):
    told(c, 0)
    c.gone("runs-1")
    told(c, ESTIMATES_EVERY_S / 2)
    c.when.carry_out(c.decision.plan)
    told(c, 0)
    assert c.decision.expected_starts.at < c.now
    assert c.decision.stays_until > c.now + ESTIMATES_EVERY_S


def test_a_start_that_should_have_come_is_told_no_more(c):
    told(c, 0)
    c.now = 940.0 + 3600 - ESTIMATES_EVERY_S / 4
    told(c, 0)
    assert "waits-0" not in told(c, ESTIMATES_EVERY_S / 2)


def test_a_clock_that_was_set_back_has_starts_worked_out(c):
    told(c, 0)
    c.gone("runs-1")
    c.now -= 100.0
    told(c, 0)
    assert c.decision.expected_starts.at == c.now


@pytest.mark.parametrize("first", [0, 3, 2000])
def test_what_fits_beside_releases_is_the_same_however_many_are_asked_about_first(first):
    rng = np.random.default_rng(first)
    releases = [
        Release(
            int(rng.integers(0, 900)), rng.integers(0, 40, 2), rng.integers(0, 9, (2, 3)),
            GangKey("PodGroup", "n", f"g-{number}"),
        )
        for number in range(1500)
    ]  # fmt: skip
    free = rng.integers(0, 99, (40, 3))
    flat = ReleaseOrder(releases).arrays(3)
    by_row = RowReleases(free, flat)
    by_row.free_after(first)
    here = free.copy()
    request = RequestVector(np.array([0, 2]), np.array([3, 5]), "")
    asked = by_row.fits_of(request)
    assert asked is by_row.fits_of(attrs.evolve(request))
    asked.beside_releases(first // 2)
    before_each, after_each = asked.beside_releases(3000)

    def fits(row):
        return max(0, min(row[0] // 3, row[2] // 5))

    for time_row, amounts, before, after in zip(
        flat[1], flat[2], before_each, after_each, strict=True
    ):
        assert before == fits(here[time_row])
        here[time_row] += amounts
        assert after == fits(here[time_row])
