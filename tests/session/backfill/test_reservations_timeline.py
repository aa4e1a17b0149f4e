"""A search that asks all moments at once finds what one finds that looks at them one by one."""

from __future__ import annotations

import random

import attrs
import pytest

from gpusched.api.gang.pod_group import TopologyRequest
from gpusched.base.clock import SystemClock
from gpusched.cache.snapshot import Snapshot
from gpusched.pluginhost.guard import PluginGuard
from gpusched.session.backfill import (
    availability_profile,
    reservations,
    start_sweep,
)
from gpusched.session.backfill.earliest_start import StartSearch
from gpusched.session.backfill.estimates import start_estimates
from gpusched.session.decide import decide
from gpusched.session.state.plan import Plan
from gpusched.session.state.policy import Policy
from gpusched.session.state.session_cache import SessionCache
from gpusched.testing import entities
from gpusched.testing.given import Given
from tests.populations import one_of
from tests.session.earliest_start_oracle import first_moment_that_fits

pytestmark = pytest.mark.long

S = 10**9
SESSIONS = 3


def decided(snapshot: Snapshot, policy: Policy) -> Plan:
    """What a session without memory decides."""
    return decide(
        snapshot, policy, guard=PluginGuard(SystemClock()), session_cache=SessionCache()
    ).plan


def stripped(plan: Plan) -> tuple[object, ...]:
    """All that is decided, held and told."""
    return (
        plan.binds, plan.preemptions, plan.stops, plan.job_changes,
        tuple(attrs.astuple(each, recurse=False) for each in plan.gangs),
    )  # fmt: skip


class Unlike:
    """Gangs of all sorts with walltimes, more than there is room for."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.c = Given()
        for rack in range(rng.randint(1, 3)):
            labels = {"topology.gpusched.io/rack": f"r{rack}"}
            for number in range(rng.randint(1, 3)):
                self.c.node(f"n{rack}{number}", gpus=rng.choice([4, 8]), labels=labels)
        self.queues = ["a", "b"][: rng.randint(1, 2)]
        for name in self.queues:
            limits = {}
            if rng.random() < 0.5:
                limits["capability"] = {entities.GPU: rng.choice([6, 9, 14])}
            if rng.random() < 0.4:
                limits["guarantee"] = {entities.GPU: rng.choice([2, 4])}
            self.c.queue(name, limits=limits)
        self.made = 0

    def arrive(self) -> None:
        """One gang more, like no other."""
        rng, name = self.rng, f"g{self.made:03}"
        self.made += 1
        created = self.c.now - rng.randint(0, 50) - self.made / 1000
        parts = rng.choice([1, 1, 1, 2])
        wish = TopologyRequest()
        if rng.random() < 0.2:
            wish = TopologyRequest(required="rack")
        elif rng.random() < 0.2:
            wish = TopologyRequest(preferred="rack", max_wait_ns=rng.choice([0, 20, 500]) * S)
        sizes = [rng.randint(1, 3) for _ in range(parts)]
        self.c.group(
            name, queue=rng.choice(self.queues), min_member=sum(sizes), created=created,
            expected_duration_ns=rng.choice([0, 30, 60, 90, 200, 450]) * S, topology=wish,
        )  # fmt: skip
        priority = rng.choice([0, 0, 0, 5])
        for part, size in enumerate(sizes):
            self.c.pods(
                f"{name}-{part}", size, group=name, created=created, priority=priority,
                gpus=rng.choice([1, 2, 3, 4, 8]),
            )  # fmt: skip

    def arrive_alike(self) -> None:
        """One of many that are alike in all that placing reads."""
        name, created = f"h{self.made:03}", self.c.now - self.made / 1000
        self.made += 1
        self.c.group(
            name, queue=self.queues[0], min_member=2, created=created, expected_duration_ns=60 * S
        )
        self.c.pods(name, 2, group=name, created=created, gpus=2)

    def go_on(self) -> None:
        """Time passes: some end, some come."""
        self.c.now += self.rng.choice([0, 1, 30, 100])
        for pod in sorted(self.c.cache.pods.values(), key=lambda pod: pod.key):
            if pod.node and self.rng.random() < 0.2:
                self.c.gone(pod.name)
        for _ in range(self.rng.randint(0, 4)):
            self.arrive()


@pytest.mark.parametrize("seed", one_of(5, range(20)))
def test_all_moments_at_once_give_what_each_gives(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plans, holds and expected starts are the same on histories by chance."""
    crowd = Unlike(seed)
    for _ in range(crowd.rng.randint(6, 25)):
        crowd.arrive()
    for _ in range(SESSIONS):
        plan = crowd.c.when.one_session()
        with monkeypatch.context() as patched:
            patched.setattr(availability_profile, "TIMELINE_NUMBERS_MAX", 0)
            one_by_one = decided(crowd.c.snapshot, crowd.c.policy)
        assert stripped(plan) == stripped(one_by_one)
        crowd.c.when.carried_out()
        crowd.go_on()


@pytest.mark.parametrize(
    ("timeline", "sweep"), [(2**18, 256), (0, 256), (2**18, -1), (0, -1)],
    ids=["as it is", "without a timeline", "without a sweep", "the search alone"],
)  # fmt: skip
@pytest.mark.parametrize("seed", one_of(3, range(20, 26)))
def test_each_way_finds_the_first_moment_that_fits(
    seed: int, timeline: int, sweep: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plans, reservations and expected starts are those of looking at every moment in turn."""
    monkeypatch.setattr(reservations, "RESERVATION_WORK_MAX", 10**9)
    monkeypatch.setattr(start_estimates, "ESTIMATE_WORK_MAX", 10**9)
    monkeypatch.setattr(availability_profile, "TIMELINE_NUMBERS_MAX", timeline)
    monkeypatch.setattr(start_sweep, "SWEEP_MOMENTS_MAX", sweep)
    crowd = Unlike(seed)
    for _ in range(crowd.rng.randint(6, 25)):
        crowd.arrive()
        if crowd.rng.random() < 0.5:
            crowd.arrive_alike()
    told = 0
    for _ in range(SESSIONS):
        plan = crowd.c.when.one_session()
        with monkeypatch.context() as patched:
            patched.setattr(StartSearch, "find_earliest_start", first_moment_that_fits)
            exhaustive = decided(crowd.c.snapshot, crowd.c.policy)
        assert stripped(plan) == stripped(exhaustive)
        told += sum(bool(gang.estimated_start) for gang in plan.gangs)
        crowd.c.when.carried_out()
        crowd.go_on()
    assert told, "no start was told, so nothing was compared"


def test_a_queue_at_its_cap_is_told_of_the_end_that_frees_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Room is there all the time, quota is not: the search halves and does not walk."""
    looks: list[int] = []
    least = availability_profile.AvailabilityTimeline.least_free

    def counted(self: availability_profile.AvailabilityTimeline, index: int, end: int) -> object:
        looks.append(index)
        return least(self, index, end)

    monkeypatch.setattr(availability_profile.AvailabilityTimeline, "least_free", counted)
    c = Given().nodes(20, gpus=8).queue("a").queue("b", limits={"capability": {entities.GPU: 8}})
    for number in range(40):
        c.group(f"a{number}", queue="a", min_member=1, expected_duration_ns=(number + 10) * S)
        c.pods(f"a{number}", 1, group=f"a{number}", gpus=1)
    c.group("b", queue="b", min_member=1, expected_duration_ns=500 * S)
    c.pods("b", 1, group="b", gpus=8)
    c.when.bound()
    c.group("next", queue="b", min_member=1, expected_duration_ns=60 * S)
    c.pods("next", 1, group="next", gpus=4)
    c.when.one_session()
    assert c.then.status("next").estimated_start == c.now + 500
    assert len(looks) < 8
