"""Victims that are a pod each are kept in columns by queue: tables of them are as those made gang by gang."""

from __future__ import annotations

import random

import attrs
import pytest

from benchmarks.shared_cluster import one_reclaims
from gpusched.api.pod.pod import PodPhase
from gpusched.session.preempt.pools.allowed_blocks import BlockSearch
from gpusched.session.preempt.pools.pod_blocks import PodBlocks
from gpusched.session.preempt.victim_pool import VictimTable
from gpusched.session.preempt.victim_selection import VictimSelector
from gpusched.testing import entities
from tests.populations import one_of
from tests.session.crowds import Crowd

STEPS = 6


@attrs.define
class LonePods(Crowd):
    """A crowd of lone pods of few kinds, from which lone pods and gangs of several pods take."""

    def submit(self, queue=""):
        """Three more lone pods, and seldom a gang of some."""
        if self.rng.random() < 0.2:
            super().submit(queue)
        for _ in range(3):
            name = f"g{self.made}"
            self.made += 1
            self.about[name] = {
                "gpus": self.rng.choice((1, 1, 2)),
                "priority": self.rng.choice((0, 0, 10)),
            }
            self.least[name] = 1
            self.c.group(name, queue=queue or self.rng.choice(self.leaves), min_member=1)
            self._pod(name, 0)


def history(seed):
    """What each session of such a crowd decides and tells."""
    crowd = LonePods(random.Random(seed))
    crowd.start()
    told = []
    for _ in range(STEPS):
        for _ in range(3):
            crowd.submit(crowd.rng.choice(crowd.leaves[2:] or crowd.leaves))
        crowd.c.now += crowd.rng.choice((0.3, 5, 60))
        told.append(crowd.step()[0])
        assert crowd.c.decision.faults == ()
    return told


def contents(table):
    """All that a search reads of a table, and the places of bundles among equals."""
    bundles = table.index.bundles
    index = table.index
    places = sorted(range(len(bundles)), key=index.orders.__getitem__)
    return (
        list(table.members),
        [bundle._replace(order=0) for bundle in bundles],
        places,
        [gang.key for gang in table.gangs],
        [gang.key for gang in table.parts],
        list(table.seats),
        table.number,
        table.groups,
        table.limits,
        {queue: numbers for queue, numbers in table.of_queue.items() if numbers},
        {source: gang.key for source, gang in table._first.items()},
        table.of_one_kind,
        [list(index.of_group.get(number, ())) for number in table.groups.values()],
        [list(index.of_member.get(number, ())) for number in range(len(table.members))],
        {row: sorted(numbers) for row, numbers in index.of_row.items()},
        (index.rows_of, index.costs, index.draws, index.losses),
        (index.only_pods, index.kinds, list(index.wholes)),
        [index.costs[number] for number in index.dearest_first],
        (
            list(index.firsts),
            index.orders == [each.order for each in bundles],
            index.ranks,
            index.sources,
            index.amounts_lost,
        ),
    )


def test_tables_of_blocks_are_those_of_gangs(monkeypatch):
    """Whoever left before, and whatever policies say of those of a queue."""
    made, blocks, wrong = VictimSelector._find_victims, [], []

    def compared(self, *about):
        by_columns = made(self, *about)
        with monkeypatch.context() as patch:
            patch.setattr(VictimSelector, "_blocks_of_queues", lambda *_about, **_how: None)
            by_gangs = made(self, *about)
        blocks.append(by_columns.standing is not None)
        pairs = [
            *zip(contents(by_columns.table), contents(by_gangs.table), strict=True),
            (by_columns.every, by_gangs.every),
            (by_columns.size, by_gangs.size),
            (by_columns.work, by_gangs.work),
        ]
        wrong.extend((one, other) for one, other in pairs if one != other)
        return by_columns

    monkeypatch.setattr(VictimSelector, "_find_victims", compared)
    for seed in one_of(14, range(40)):
        history(seed)
    assert not wrong
    assert sum(blocks) > 10  # others would prove nothing


@pytest.mark.parametrize("seed", one_of(7, range(20)))
def test_plans_are_those_of_tables_made_gang_by_gang(seed, monkeypatch):
    """A block follows who leaves."""
    told = history(seed)
    monkeypatch.setattr(PodBlocks, "of_queue", lambda *_about: None)
    assert told == history(seed)


def test_queues_with_larger_gangs_are_looked_at_by_kinds_as_gang_by_gang(monkeypatch):
    """Given queues of lone pods and larger gangs, then the same blocks are found, from as many queues and for as much work."""
    find, larger = BlockSearch.find, []

    def both(search, *args, **settings):
        found = find(search, *args, **settings)
        one_by_one = find(attrs.evolve(search, kinds_of_queue=None), *args, **settings)
        assert search.kinds_of_queue is not None
        assert (found is None) is (one_by_one is None)
        if found is not None:
            assert found.blocks == one_by_one.blocks
            assert (found.taken_in, found.work) == (one_by_one.taken_in, one_by_one.work)
        larger.extend(queue for queue in args[2] if search.blocks.of_queue(queue) is None)
        return found

    monkeypatch.setattr(BlockSearch, "find", both)
    for seed in range(40, 46):
        history(seed)
    assert larger


@pytest.fixture
def entered(monkeypatch):
    """How many gangs were entered into tables one by one, each time."""
    found = []
    monkeypatch.setattr(
        VictimTable, "_enter_gangs", lambda _self, _victims, gangs: found.append(len(gangs))
    )
    return found


def test_no_table_is_made_gang_by_gang_where_all_are_lone_pods(entered):
    """Else the columns would be for nothing."""
    c = one_reclaims(nodes=10)
    c.when.one_session()
    assert c.then.plan.preemptions
    assert not any(entered)


def test_a_queue_that_may_lose_nothing_is_passed_over_whatever_gangs_it_has(entered):
    """Its gang of two pods is asked about, and no reason to look at all others one by one."""
    c = one_reclaims(nodes=10)
    c.queue("keeps", limits={"deserved": {entities.GPU: 2}})
    c.node("another", gpus=2, cpu=16_000, memory=64 * entities.GIB)
    c.group("pair", queue="keeps", min_member=2)
    for slot in range(2):
        c.pod(
            f"pair-{slot}", spec=entities.pod_class(gpus=1, cpu=4000), group="pair", node="another",
            slots=1 << slot, plan="p", phase=PodPhase.RUNNING, scheduled=c.now - 600,
        )  # fmt: skip
    c.when.one_session()
    assert c.then.plan.preemptions
    assert not any(entered)
