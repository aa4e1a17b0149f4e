"""Reservations over time, against plain truth: they stand, whoever starts around them."""

from __future__ import annotations

import json
import random
import re

import numpy as np
import pytest

from gpusched.api.meta.identity import GangKey, format_time, parse_time
from gpusched.arrays.columns import request_vector
from gpusched.session.backfill.availability_profile import (
    AvailabilityProfile,
    EqualMembers,
    Reservation,
    pack_first_rows,
)
from gpusched.session.backfill.running.release_order import FOREVER, Release, ReleaseOrder
from gpusched.testing import entities
from gpusched.testing.given import Given
from tests.populations import one_of

pytestmark = pytest.mark.long

NOW = int(entities.NOW)
S = 10**9
_HELD = re.compile(r"held for it from (\S+) on")


class History:
    """Jobs of one queue that run exactly as long as they say, on a small cluster."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.c = Given().nodes(self.rng.randint(2, 5), gpus=8)
        self.length: dict[str, int] = {}
        self.size: dict[str, int] = {}
        self.born: dict[str, int] = {}
        self.ends: dict[str, int] = {}
        self.told: dict[str, int] = {}
        self.started: dict[str, int] = {}
        self.jobs = 0

    def submit(self) -> None:
        """A gang of a size, width and length by chance."""
        rng, name = self.rng, f"j{self.jobs:03}"
        self.jobs += 1
        self.size[name] = rng.choice([1, 1, 1, 2, 3, 4])
        # Without a length nobody can promise that those behind it ever start.
        self.length[name] = 0 if rng.random() < 0.1 else rng.randint(1, 30) * 10
        self.born[name] = int(self.c.now)
        self.write(name)
        self.c.pods(
            name, self.size[name], group=name, gpus=rng.choice([1, 2, 4, 8, 8]),
            created=float(self.born[name]),
        )  # fmt: skip

    def write(self, name: str) -> None:
        """Its PodGroup, with the start that it was told."""
        told = self.told.get(name)
        status = {"estimatedStartTime": format_time(told)} if told else {}
        created = self.born[name] + int(name[1:]) / 1e3
        self.c.group(
            name, min_member=self.size[name], created=created,
            expected_duration_ns=self.length[name] * S, status=json.dumps(status).encode(),
        )  # fmt: skip

    def session(self) -> None:
        """Decide, bind, and hold what is told against what was told."""
        plan = self.c.when.bound()
        now = int(self.c.now)
        for gang in plan.binds:
            name = gang.gang.name
            self.started[name] = now
            assert now <= self.told.get(name, FOREVER), f"{name} was told {self.told[name]}"
            self.told.pop(name, None)
            if self.length[name]:
                self.ends[name] = now + self.length[name]
        for status in plan.gangs:
            name = status.gang.name
            found = _HELD.search(status.scheduled.message)
            if found:
                start = int(parse_time(found[1]))
                assert start <= self.told.get(name, FOREVER), f"{name} moved to {start}"
                self.told[name] = start
                self.write(name)
            else:
                assert name not in self.told, f"{name} lost its reservation at {now}"

    def next_end(self) -> None:
        """Go on to the moment when the next job ends."""
        if not self.ends:
            return
        at = min(self.ends.values())
        self.c.now = float(at)
        for name in [name for name, end in self.ends.items() if end == at]:
            del self.ends[name]
            for number in range(self.size[name]):
                self.c.gone(f"{name}-{number}")


@pytest.mark.parametrize("seed", one_of(3, range(12)))
def test_nobody_starts_later_than_was_told(seed):
    """Where walltimes are exact every holder starts when it was told, or earlier, whoever comes."""
    history = played(seed, rounds=25, most=3, ends=0.6)
    assert len(history.started) > 3


@pytest.mark.parametrize(
    ("seed", "most", "ends"),
    [(1, 4, 0.6), (101, 5, 0.9), (102, 3, 0.6), (113, 3, 0.6), (119, 5, 0.9)],
)
def test_nobody_starts_later_than_was_told_in_a_crowd(seed, most, ends):
    """Given more jobs at a time, then every holder starts when it was told, or earlier, too."""
    played(seed, rounds=30, most=most, ends=ends)


def played(seed: int, *, rounds: int, most: int, ends: float) -> History:
    """A history of so many rounds.

    Args:
        seed: from which everything follows.
        rounds: each with a session.
        most: jobs that come in a round.
        ends: how often a round goes on to the next end.
    """
    history = History(seed)
    for _ in range(rounds):
        for _ in range(history.rng.randint(0, most)):
            history.submit()
        history.session()
        if history.rng.random() < ends:
            history.next_end()
    return history


# -- the arithmetic alone --------------------------------------------------------------------


def free_by_hand(profile: AvailabilityProfile, holds: list[Reservation], time: int):
    """One moment, one thing after another."""
    free = profile.allocatable - profile.staying
    for each in profile.releases:
        if each.time <= time:
            for row, amounts in zip(each.rows, each.amounts, strict=True):
                free[row] += amounts
    for hold in holds:
        if hold.start <= time < hold.end:
            for row, amounts in zip(hold.rows, hold.amounts, strict=True):
                free[row] -= amounts
    return free


@pytest.mark.parametrize("seed", range(30))
def test_the_least_that_is_free_in_a_span_is_the_least_of_every_second(seed):
    """Against a walk through every second."""
    rng = random.Random(seed)
    rows = rng.randint(1, 4)
    allocatable = np.full((rows, 2), 8, dtype=np.int64)
    key = GangKey("Pod", "n", "x")

    def part():
        chosen = np.array(sorted(rng.sample(range(rows), rng.randint(1, rows))), dtype=np.int64)
        return chosen, np.array([[rng.randint(0, 3), rng.randint(0, 3)] for _ in chosen])

    releases = [Release(rng.randint(1, 40), *part(), key) for _ in range(rng.randint(0, 5))]
    staying = np.full((rows, 2), 6, dtype=np.int64)
    profile = AvailabilityProfile(allocatable, staying, now=0, order=ReleaseOrder(releases))
    holds = []
    for _ in range(rng.randint(0, 4)):
        start = rng.randint(0, 40)
        holds.append(
            Reservation(key, start, rng.choice([start + rng.randint(1, 20), FOREVER]), *part())
        )
    start = rng.randint(1, 40)
    end = start + rng.randint(1, 15)
    seconds = [free_by_hand(profile, holds, time) for time in range(start, end)]
    least = np.minimum.reduce(seconds)
    assert np.array_equal(profile.free_between(start, end, profile.reservation_table(holds)), least)


@pytest.mark.parametrize("seed", range(30))
def test_what_a_hold_does_not_need_does_not_change_it(seed):
    """Taking away any room beside the chosen places leaves the choice as it is."""
    rng = random.Random(seed)
    rows = rng.randint(1, 6)
    free = np.array([[rng.randint(0, 8)] for _ in range(rows)], dtype=np.int64)
    parts = [
        EqualMembers(
            request_vector(entities.resources({"g": rng.randint(1, 4)}), {"g": 0}),
            np.array([rng.random() < 0.8 for _ in range(rows)]),
            rng.randint(1, 3),
        )
        for _ in range(rng.randint(1, 2))
    ]
    chosen = pack_first_rows(free, parts)
    if chosen is None:
        less = free - np.array([[rng.randint(0, int(each[0]))] for each in free])
        assert pack_first_rows(less, parts) is None or len(parts) > 1
        return
    spare = free.copy()
    spare[chosen[0]] -= chosen[1]
    less = free - np.array([[rng.randint(0, int(each[0]))] for each in spare])
    again = pack_first_rows(less, parts)
    assert again is not None
    assert np.array_equal(chosen[0], again[0])
    assert np.array_equal(chosen[1], again[1])
