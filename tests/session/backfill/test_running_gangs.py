"""What gangs that run will leave is worked out when they change, not in each session."""

from __future__ import annotations

import random

import numpy as np
import pytest

from gpusched.api.devices.gpu_types import GpuTypeRequest
from gpusched.api.meta.identity import GangKey
from gpusched.api.meta.units import DEVICE
from gpusched.api.pod.pod import GangAnnotations, PodPhase
from gpusched.base.clock import SystemClock
from gpusched.plugin import DependsOn
from gpusched.pluginhost.guard import PluginGuard
from gpusched.session.backfill.running.release_order import Release, ReleaseOrder
from gpusched.session.backfill.running.releases import ReleaseForecast
from gpusched.session.backfill.running.running_gangs import RunningGangs
from gpusched.testing.authors import cluster_under
from gpusched.testing.entities import GPU
from gpusched.testing.given import Given

NODES = 4
OTHER_GPU = "example.com/accelerator"
PRODUCT = "nvidia.com/gpu.product"
HOUR = 3600
HOUR_NS = HOUR * 10**9


def full_of_gangs(c: Given) -> Given:
    """Each GPU runs a gang of its own, and one gang waits for a node."""
    c.nodes(NODES, gpus=4).queue("q")
    for node in range(NODES):
        for slot in range(4):
            c.pod(
                f"runs-{node}-{slot}", queue="q", node=f"node-{node}", slots=1 << slot, gpus=1,
                phase=PodPhase.RUNNING, plan="p", scheduled=c.now - 60,
                hints=GangAnnotations(expected_duration_ns=HOUR_NS),
            )  # fmt: skip
    return c.gang("waits", pods=1, gpus=4, queue="q")


def start_of_the_one_that_waits(c: Given) -> float:
    """Seconds since the epoch."""
    return c.decision.expected_starts.estimates[GangKey("PodGroup", "default", "waits")].start


@pytest.fixture
def looked_at(monkeypatch):
    """Names of gangs that were looked at since the list was cleared."""
    names = []
    original = ReleaseForecast._look_at

    def look_at(forecast, gang):
        names.append(gang.key.name)
        return original(forecast, gang)

    monkeypatch.setattr(ReleaseForecast, "_look_at", look_at)
    return names


def test_gangs_with_gpus_that_run_on_are_not_looked_at_again(looked_at):
    """Whole GPUs were once taken for shared ones, and everything was worked out in every session."""
    c = full_of_gangs(Given())
    c.when.one_session()
    assert len(looked_at) == NODES * 4
    looked_at.clear()
    c.when.one_session()
    assert looked_at == []


def test_only_what_changed_is_looked_at(looked_at):
    """A pod that ended is no more, one that began is new."""
    c = full_of_gangs(Given())
    c.when.one_session()
    looked_at.clear()
    c.gone("runs-1-2")
    c.pod(
        "new", queue="q", node="node-1", slots=1 << 2, gpus=1, phase=PodPhase.RUNNING, plan="p",
        scheduled=c.now,
    )  # fmt: skip
    c.when.one_session()
    assert looked_at == ["new"]


def test_a_queue_whose_limit_changed_has_its_gangs_looked_at(looked_at):
    """A shorter ``maxRuntime`` ends what runs earlier; what its status says does not."""
    c = full_of_gangs(Given())
    c.when.one_session()
    before = start_of_the_one_that_waits(c)
    looked_at.clear()
    c.queue("q", max_runtime_ns=HOUR_NS // 2)
    c.when.one_session()
    assert len(looked_at) == NODES * 4
    assert start_of_the_one_that_waits(c) == before - 1800


def test_who_runs_on_is_asked_once_when_it_should_have_ended(monkeypatch):
    """Twice its time is over: no end of it is believed until it changes, or a clock is set back."""
    late = []
    original = ReleaseForecast._release_of_late

    def release_of_late(forecast, known):
        late.append(known.gang.name)
        return original(forecast, known)

    monkeypatch.setattr(ReleaseForecast, "_release_of_late", release_of_late)
    c = full_of_gangs(Given())
    begin = c.now
    c.when.one_session()
    first = start_of_the_one_that_waits(c)
    c.now = begin + 3 * HOUR
    c.when.one_session()
    assert len(late) == NODES * 4
    late.clear()
    c.now += 5
    c.when.one_session()
    assert late == []
    c.now = begin + 5
    c.when.one_session()
    assert start_of_the_one_that_waits(c) == first


def test_nodes_that_come_and_go_have_only_their_own_gangs_looked_at(looked_at):
    """An autoscaler adds nodes all day, and each took all that runs to be looked at anew."""
    c = full_of_gangs(Given())
    c.when.one_session()
    looked_at.clear()
    c.node("before-all-others", gpus=2).node("node-1-b", gpus=2)
    c.when.one_session()
    assert looked_at == []
    c.cache.drop_node("node-2")
    c.when.one_session()
    assert sorted(looked_at) == [f"runs-2-{slot}" for slot in range(4)]


def test_all_is_looked_at_where_amounts_are_of_other_resources(looked_at):
    """Given as many resources as before, one of which is another, when gangs are looked at, then none keeps its columns."""
    c = full_of_gangs(Given()).node("last", gpus=1, gpu="z.example.com/accelerator")
    c.when.one_session()
    looked_at.clear()
    c.cache.drop_node("last")
    c.node("last-too", gpus=1, gpu="a.example.com/accelerator").when.one_session()
    assert len(looked_at) == NODES * 4


def test_a_queue_that_comes_or_changes_leaves_gangs_of_others_alone(looked_at):
    """Whoever makes a queue had all that runs looked at anew."""
    c = (
        full_of_gangs(Given())
        .queue("above")
        .queue("q", parent="above")
        .queue("other", parent="above")
    )
    c.when.one_session()
    assert len(looked_at) == NODES * 4
    looked_at.clear()
    c.queue("new").queue("other", parent="above", max_runtime_ns=HOUR_NS)
    c.when.one_session()
    assert looked_at == []


@pytest.mark.parametrize("seed", range(12))
def test_kept_releases_are_those_made_anew(seed, monkeypatch):
    """Given nodes, queues and gangs that come, change and go, when room over time is asked for, then kept ones are right."""
    rng, compared = random.Random(seed), []
    original = ReleaseForecast.build_profile

    def told(profile):
        return [
            (e.time, e.gang, e.path, e.requests, e.rows.tolist(), e.amounts.tolist())
            for e in profile.releases
        ]

    def build(forecast):
        kept = original(forecast)
        fresh = ReleaseForecast(forecast._session, forecast._walltimes)
        fresh._running = RunningGangs()
        anew = original(fresh)
        assert told(kept) == told(anew)
        for mine, theirs in zip(kept.flatten_releases(), anew.flatten_releases(), strict=True):
            assert np.array_equal(mine, theirs)
        compared.append(len(kept.releases))
        return kept

    def any_node():
        return rng.choice(
            [f"{rng.choice('amz')}-{rng.randrange(4)}", f"node-{rng.randrange(NODES)}"]
        )

    monkeypatch.setattr(ReleaseForecast, "build_profile", build)
    c = full_of_gangs(Given()).queue("above").queue("r", parent="above").queue("s")
    c.gang("waits-long", pods=8, gpus=4, queue="s")
    for step in range(60):
        match rng.randrange(7):
            case 0 | 1:
                product, gpu = rng.choice(["", "A", "B"]), rng.choice([GPU, GPU, OTHER_GPU])
                labels = {PRODUCT: product} if product else {}
                c.node(any_node(), gpus=rng.choice([0, 2, 4]), gpu=gpu, labels=labels)
            case 2:
                c.cache.drop_node(any_node())
            case 3:
                length = rng.choice([0, HOUR_NS // 3])
                above = rng.choice(["", "above"])
                c.queue(rng.choice("qrs"), parent=above, max_runtime_ns=length)
            case 4 | 5:
                name, speeds = f"g{step}", rng.choice([(), (("A", 1000), ("B", 500))])
                for member in range(2):
                    c.pod(
                        f"{name}-{member}", group=name, gpus=0, cpu=100, node=any_node(), plan="p",
                        phase=PodPhase.RUNNING, scheduled=c.now - 30,
                    )  # fmt: skip
                c.group(
                    name, min_member=2, queue=rng.choice("qrs"), expected_duration_ns=HOUR_NS,
                    gpu_types=GpuTypeRequest(speeds=speeds),
                )  # fmt: skip
            case _:
                c.gone(f"runs-{rng.randrange(NODES)}-{rng.randrange(4)}")
        c.now += 1
        if rng.random() < 0.5:
            c.when.one_session()
    assert compared


def test_what_is_known_of_gangs_stays_the_same_objects_where_nodes_come(monkeypatch):
    """Given gangs that run, when nodes come before and between theirs one after the other, then rows alone are changed."""
    known = []
    original = RunningGangs.refresh

    def refresh(running, *arguments):
        original(running, *arguments)
        known.append(
            (dict(running.known), {key: k.room.rows.tolist() for key, k in running.known.items()})
        )

    monkeypatch.setattr(RunningGangs, "refresh", refresh)
    c = full_of_gangs(Given())
    c.when.one_session()
    for name in ("a", "node-00", "b"):
        c.node(name, gpus=0)
        c.when.one_session()
    (_, first), (one, _), (_, _), (last, rows) = known
    assert len(last) == NODES * 4
    assert all(last[key] is each for key, each in one.items())
    assert all(now != first[key] for key, now in rows.items())


@pytest.mark.parametrize("depends_on", [None, DependsOn.VIEW, DependsOn.GANG | DependsOn.VIEW])
def test_hooks_that_may_answer_by_anything_are_asked_in_every_session(depends_on):
    """A plugin of others may answer by what nobody knows of, or by all that its view shows."""
    asked = []

    class Lengths:
        name, api = "lengths", 1

        def open(self, hooks, view):
            hooks.walltime(lambda gang: asked.append(gang.key.name) or 1800, depends_on=depends_on)

    c = full_of_gangs(cluster_under(Lengths()))
    c.when.one_session()
    asked.clear()
    c.when.one_session()
    assert len(set(asked)) >= NODES * 4


@pytest.mark.parametrize("seed", range(40))
def test_a_changed_order_is_the_order_made_anew(seed):
    """Objects and arrays, whatever comes and goes, also with equal times."""
    rng = random.Random(seed)

    def release(number):
        rows = np.array(rng.choices(range(5), k=rng.randint(1, 3)), dtype=np.int64)
        amounts = np.array([[rng.randint(0, 8) * DEVICE, 1] for _ in rows], dtype=np.int64)
        return Release(rng.randint(1, 12), rows, amounts, GangKey("Pod", "n", f"g{number}"))

    alive = [release(number) for number in range(rng.randint(0, 60))]
    order = ReleaseOrder(alive)
    if rng.random() < 0.8:
        order.arrays(2)
    for step in range(4):
        gone = rng.sample(alive, min(len(alive), rng.randint(0, 4)))
        more = [release(1000 * step + number) for number in range(rng.randint(100, 104) - 100)]
        alive = [each for each in alive if each not in gone] + more
        order = order.with_changes(gone, more)
        anew = ReleaseOrder(alive)
        assert [id(each) for each in order.releases] == [id(each) for each in anew.releases]
        for mine, theirs in zip(order.arrays(2), anew.arrays(2), strict=True):
            assert np.array_equal(mine, theirs)
        assert order.ended_by(6) == [each for each in anew.releases if each.time <= 6]


def test_nothing_is_kept_of_columns_that_are_gone_while_nothing_runs(given):
    """Given the head of a strict queue and no gang that runs, when a resource is gone with its node, then it waits on."""
    given.queue("q", ordering="StrictFifo")
    given.nodes(1, gpus=2).node("other", gpus=1, gpu="example.com/accelerator")
    given.gang("waits", pods=4, gpus=1, queue="q")
    given.when.one_session()
    given.cache.drop_node("other")
    given.when.one_session()
    assert given.decision.contained == ()
    assert given.then.reason("waits") == "InsufficientResources"


@pytest.mark.parametrize("seed", range(20))
def test_times_of_a_changed_order_are_those_of_one_made_anew(seed):
    """Given releases that come and go, several at one time, then the times at which something ends are known as before."""
    rng = random.Random(seed)

    def release(number):
        return Release(
            rng.randint(0, 20),
            np.array([0]),
            np.array([[1]]),
            GangKey("PodGroup", "n", f"g{number}"),
        )

    order = ReleaseOrder([release(number) for number in range(40)])
    assert order.times == sorted({each.time for each in order.releases})
    for step in range(4):
        gone = rng.sample(order.releases, 2)
        order = order.with_changes(gone, [release(100 + step)])
        assert order.times == sorted({each.time for each in order.releases})


@pytest.mark.parametrize("seed", range(30))
def test_what_ends_first_may_change_as_a_whole_and_what_is_behind_stays(seed):
    """Given ends that are late and are put off, many at once, then objects, arrays and times are those of an order made anew."""
    rng = random.Random(seed)

    def release(number, last):
        rows = np.array(rng.choices(range(5), k=rng.randint(1, 3)), dtype=np.int64)
        amounts = np.array([[rng.randint(0, 8), 1] for _ in rows], dtype=np.int64)
        return Release(rng.randint(0, last), rows, amounts, GangKey("Pod", "n", f"g{number}"))

    order = ReleaseOrder([release(number, 60) for number in range(80)])
    if rng.random() < 0.8:
        order.arrays(2)
    if rng.random() < 0.8:
        assert order.times
    for step in range(4):
        gone = order.ended_by(rng.choice((0, 5, 20)))
        more = [release(100 * step + 100 + number, 30) for number in range(len(gone))]
        alive = [each for each in order.releases if each not in gone] + more
        order, anew = order.with_changes(gone, more), ReleaseOrder(alive)
        assert [id(each) for each in order.releases] == [id(each) for each in anew.releases]
        assert order.times == anew.times
        for mine, theirs in zip(order.arrays(2), anew.arrays(2), strict=True):
            assert np.array_equal(mine, theirs)
        assert order._counts.tolist() == anew._counts.tolist()


def pods_that_run(c: Given) -> Given:
    """Sixteen pods of two queues and deadlines, each a gang of its own, and a gang that waits for room of many."""
    c.nodes(2, gpus=8).queue("a").queue("b")
    for number in range(16):
        c.pod(
            f"runs-{number:02d}", queue="ab"[number % 2], gpus=1, node=f"node-{number // 8}",
            slots=1 << number % 8, plan="p", scheduled=c.now - 60 * number,
            deadline_s=HOUR * (1 + number % 4 // 2),
        )  # fmt: skip
    return c.group("waits", min_member=2, queue="a").pods("waits", 2, group="waits", gpus=8)


def test_hooks_that_are_alike_are_asked_once_for_equal_pods():
    """Given a hook that says so, then those of one queue and deadline share its answer; given one that does not, each is asked."""
    asked, plans = [], []

    class Lengths:
        name, api = "lengths", 1

        def __init__(self, *, alike):
            self.alike = alike

        def open(self, hooks, view):
            hooks.walltime(
                lambda gang: asked.append(gang.key.name) or 3 * HOUR,
                depends_on=DependsOn.GANG, alike=self.alike,
            )  # fmt: skip

    for alike in (True, False):
        asked.clear()
        c = pods_that_run(cluster_under(Lengths(alike=alike)))
        c.guard = PluginGuard(SystemClock())
        plans.append(c.when.one_session())
        each = {name for name in asked if name.startswith("runs")}
        assert len(each) == (4 if alike else 16)
    assert plans[0] == plans[1]


def test_a_hook_that_tells_equal_pods_apart_is_found():
    """Given a hook that reads names and says that it is alike, then authors are told."""

    class Lengths:
        name, api = "lengths", 1

        def open(self, hooks, view):
            hooks.walltime(
                lambda gang: HOUR - int(gang.key.name == "runs-08"),
                depends_on=DependsOn.GANG, alike=True,
            )  # fmt: skip

    c = pods_that_run(cluster_under(Lengths()))
    c.when.one_session()
    assert any("runs-08" in fault and "alike" in fault for fault in c.then.faults())
