"""Lone pods that are started by the short way get what the long way would have given them."""

from __future__ import annotations

import random
from collections import Counter
from functools import cache
from typing import Any, ClassVar

import attrs
import pytest

from gpusched.api.pod.pod import GangAnnotations
from gpusched.config.model import DEFAULT
from gpusched.placement.model.class_fit import ClassFit
from gpusched.plugin import ALLOW, Reason, wait
from gpusched.pluginhost.registry import load_policy
from gpusched.session.start.lone_pods import LonePods
from gpusched.session.state.nodes.class_scores import ClassScores
from gpusched.session.state.order.order_keys import OrderKeys
from gpusched.testing.authors import cluster_under
from gpusched.testing.given import Given

GPU = "nvidia.com/gpu"
ROUNDS = 3


def cluster(rng: random.Random) -> Given:
    """Nodes of three kinds with pods that run, and queues of which some have limits."""
    c = Given(config=DEFAULT, policy=load_policy(DEFAULT))
    for number in range(12):
        labels = {"gpusched.io/rack": f"rack-{number // 4}", "kind": rng.choice(("a", "b"))}
        c.node(f"node-{number}", gpus=rng.choice((0, 4, 8)), cpu=16_000, labels=labels)
    c.queue("a").queue("b", parent="a").queue("c", parent="a")
    c.queue("d", limits={"capability": {GPU: rng.choice((2, 6))}})
    for number in range(rng.randrange(12)):
        c.pod(f"runs-{number}", cpu=1000, node=f"node-{rng.randrange(12)}", queue="b")
    return c


def more_pods(c: Given, rng: random.Random, begins: int) -> None:
    """Lone pods, of which some wish for something, and a gang of several now and then."""
    queues = rng.choice((("b",), ("b", "c"), ("b", "c", "d", "nowhere")))
    alike = rng.random() < 0.4
    for number in range(begins, begins + rng.randrange(4, 24)):
        if rng.random() < 0.1:
            c.gang(f"gang-{number:03d}", pods=3, gpus=1, queue=rng.choice(queues))
            continue
        c.pod(
            f"pod-{number:03d}",
            gpus=1 if alike else rng.choice((0, 1, 1, 2, 4)),
            cpu=1000 if alike else 500 + 10 * number,
            queue=rng.choice(queues),
            priority=rng.choice((0, 0, 5)),
            node_selector={} if alike else rng.choice(({}, {}, {"kind": "a"})),
            hints=rng.choice((*[GangAnnotations()] * 5, GangAnnotations(topology_required="rack"))),
            labels={"app": rng.choice("xy")},
        )


def decided(seed: int) -> list[str]:
    """What sessions decide that follow each other, all that is told included."""
    rng, told = random.Random(seed), []
    c = cluster(rng)
    for number in range(ROUNDS):
        more_pods(c, rng, 100 * number)
        told.append(repr(c.when.one_session()))
        assert c.then.faults() == ()
        c.when.bound()
    return told


@cache
def usually_decided(seed: int) -> list[str]:
    """The same once for all tests; for use before anything is planted."""
    return decided(seed)


@pytest.mark.parametrize("seed", range(16))
def test_plans_are_those_of_the_long_way(seed, monkeypatch):
    """Given lone pods beside others in sessions that follow each other, then the short way decides the same."""
    went: Counter[bool] = Counter()
    start = LonePods.start

    def counted(self: LonePods, gang: Any) -> bool:
        went[found := start(self, gang)] += 1
        return found

    monkeypatch.setattr(LonePods, "start", counted)
    quick = decided(seed)
    assert went[True]
    monkeypatch.setattr(LonePods, "start", lambda *_about: False)
    assert decided(seed) == quick


@pytest.mark.parametrize("seed", range(8))
def test_plans_are_those_with_all_keys_of_queues(seed, monkeypatch):
    """Given queues that wait alone or not, then keys that are not asked for would have told the same."""
    quick = usually_decided(seed)
    monkeypatch.setattr(OrderKeys, "queues_are_alike", False)
    assert decided(seed) == quick


@pytest.mark.parametrize("seed", range(8))
def test_plans_are_those_with_all_keys_of_gangs(seed, monkeypatch):
    """Given unlike pods, then a key that is asked of one of them is that of each for which no member counts."""
    quick = usually_decided(seed)

    def each(self: OrderKeys, gangs: Any) -> list[Any]:
        return [self.gang_key(gang) for gang in gangs]

    monkeypatch.setattr(OrderKeys, "gang_keys", each)
    assert decided(seed) == quick


@pytest.mark.parametrize("seed", range(8))
def test_plans_are_those_of_nodes_rated_anew(seed, monkeypatch):
    """Given equal pods, then what is kept of a node's rating, and what is counted in plain ints, is exact."""
    quick = usually_decided(seed)

    def rated(self: ClassScores, row: int) -> Any:
        self._by_amounts.clear()
        return of_row(self, row)

    def refreshed(self: ClassFit, fits: Any, row: int) -> None:
        refresh_row(self, fits, row)
        assert fits[row] == self._count_rows([row], self.allowed[[row]])[0]

    of_row, refresh_row = ClassScores._of_row, ClassFit._refresh_row
    monkeypatch.setattr(ClassScores, "_of_row", rated)
    monkeypatch.setattr(ClassFit, "_refresh_row", refreshed)
    assert decided(seed) == quick


def asked_of(asked: Counter[str]) -> Any:
    """A policy that refuses what is called large, and counts of whom it is asked."""

    @attrs.frozen
    class Asked:
        name: ClassVar[str] = "asked"
        api: ClassVar[int] = 1

        def open(self, hooks, _view):
            def check(gang):
                asked[gang.key.name] += 1
                large = gang.key.name.startswith("large")
                return wait(Reason.WAITING_FOR_QUOTA, "is large") if large else ALLOW

            hooks.quota_check(check)

    return Asked()


def test_a_quota_that_refuses_is_asked_as_often_as_on_the_long_way(monkeypatch):
    """Given lone pods of which quotas refuse one, then a check that fails there fails no oftener."""

    def counted() -> Counter[str]:
        asked: Counter[str] = Counter()
        c = cluster_under(asked_of(asked)).nodes(2, gpus=8).queue("q")
        for number, name in enumerate(("large-a", "large-b", "small")):
            c.pod(name, gpus=1, cpu=1000 + number, queue="q")
        c.when.one_session()
        assert [*c.then.nodes()] == ["small"]
        return asked

    quick = counted()
    monkeypatch.setattr(LonePods, "start", lambda *_about: False)
    assert counted() == quick
