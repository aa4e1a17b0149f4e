"""Pods that all differ get the places that they get where policies are asked about each."""

from __future__ import annotations

import random
from collections import Counter
from functools import cache
from typing import Any, ClassVar

import attrs
import numpy as np
import pytest

from gpusched.arrays.columns import RequestVector
from gpusched.arrays.node_usage import NodeUsage
from gpusched.config.model import DEFAULT
from gpusched.plugin import Fullness
from gpusched.pluginhost.registry import load_policy
from gpusched.session.state.nodes import open_nodes
from gpusched.session.state.nodes.open_nodes import AmountChoices, OpenNodes
from gpusched.testing import entities
from gpusched.testing.authors import cluster_under
from gpusched.testing.given import Given

GPU = "nvidia.com/gpu"
NODES = 32


@attrs.frozen
class Rates:
    """A policy that likes nodes with much memory left, by itself alone or as data, too."""

    name: ClassVar[str] = "rates"
    api: ClassVar[int] = 1
    fullness: Any = None
    alike: bool = True
    asked: list[int] = attrs.field(factory=list)

    def open(self, hooks, _view):
        """Register the score."""

        def score(pod, rows):
            self.asked.append(len(rows))
            offered = np.maximum(rows.allocatable("memory"), 1)
            used = np.minimum(rows.used("memory") + pod.requests.get("memory"), offered)
            return 100 * used // offered * -2

        hooks.node_score(score, weight=300, alike=self.alike, fullness=self.fullness)


def memory_use(resources: tuple[str, ...], _gpu: str) -> Fullness | None:
    return Fullness((("memory", -2),), full=100, divisor=1) if "memory" in resources else None


def cluster(seed: int, *more: Any, strategy: str = "binpack") -> Given:
    """Nodes of three kinds, some of them in use, and queues of which one has little quota."""
    rng = random.Random(seed)
    plugins = {each.name: each for tier in load_policy(DEFAULT).tiers for each in tier}
    args = attrs.evolve(plugins["nodeorder"].args, strategy=strategy)
    plugins["nodeorder"] = attrs.evolve(plugins["nodeorder"], args=args)
    c = Given(config=DEFAULT, policy=load_policy(DEFAULT))
    c.policy = attrs.evolve(c.policy, tiers=(tuple(more), tuple(plugins.values())))
    for number in range(NODES):
        kind = rng.choice(("a", "a", "b"))
        c.node(
            f"node-{number:02d}", gpus=4 if kind == "b" else 8, cpu=64_000,
            memory=256 * entities.GIB, labels={"kind": kind},
        )  # fmt: skip
    c.queue("a").queue("b", parent="a").queue("c", parent="a")
    c.queue("d", limits={"capability": {GPU: 9}})
    return c


def more_pods(c: Given, rng: random.Random, begins: int) -> None:
    """Lone pods of which no two are alike, some of which wish for something, and a few gangs."""
    shrinks = rng.random() < 0.5
    for number in range(begins, begins + 40):
        queue = rng.choice(("b", "c", "d"))
        if rng.random() < 0.03:
            c.gang(f"gang-{number:03d}", pods=2, gpus=1, queue=queue)
            continue
        part = 200 - number if shrinks else 1 + number
        spec = entities.pod_class(
            gpus=rng.choice((0, 1, 1, 1, 2, 4)),
            cpu=rng.choice((0, 100 + 40 * part)),
            memory=part * entities.GIB // 8 + number,
            node_selector={} if rng.random() < 0.8 else {"kind": rng.choice(("a", "b", "none"))},
        )
        c.pod(f"pod-{number:03d}", spec=spec, queue=queue, priority=rng.choice((0, 0, 5)))


def decided(seed: int, *more: Any, strategy: str = "binpack") -> list[str]:
    """What sessions decide that follow each other, all that is told included."""
    c, rng, told = cluster(seed, *more, strategy=strategy), random.Random(seed + 1), []
    for number in range(2):
        more_pods(c, rng, 40 * number)
        told.append(repr(c.when.one_session()))
        assert c.then.faults() == ()
        c.when.bound()
    return told


@cache
def usually_decided(seed: int) -> list[str]:
    """The same once for all tests; for use before anything is planted."""
    return decided(seed)


def count_choices(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often a place was found by amounts alone, from now on, and how often not."""
    went: Counter[str] = Counter()
    best_row = AmountChoices.best_row

    def counted(self: AmountChoices, *about: Any) -> Any:
        found = best_row(self, *about)
        went["asked" if found is None else "found" if found[0] >= 0 else "nowhere"] += 1
        return found

    monkeypatch.setattr(AmountChoices, "best_row", counted)
    return went


@pytest.mark.parametrize("strategy", ["binpack", "spread"])
@pytest.mark.parametrize("seed", range(5))
def test_plans_are_those_of_nodes_that_policies_rate(seed, strategy, monkeypatch):
    """Given unlike pods of several queues, one of which runs out of quota, then the same is decided and told."""
    went = count_choices(monkeypatch)
    quick = decided(seed, strategy=strategy)
    assert went["found"] > 10
    monkeypatch.setattr(AmountChoices, "best_row", lambda *_about: None)
    assert decided(seed, strategy=strategy) == quick


@pytest.mark.parametrize("kinds", [1, 3, 30])
@pytest.mark.parametrize("seed", range(2))
def test_plans_are_the_same_however_many_kinds_are_kept(seed, kinds, monkeypatch):
    """Given bounds under which nodes are looked at again, or given up, at other times, then nothing differs."""
    quick = usually_decided(seed)
    monkeypatch.setattr(open_nodes, "_KINDS_MAX", kinds)
    monkeypatch.setattr(open_nodes, "_FOLLOWED_MAX", kinds % 7)
    monkeypatch.setattr(open_nodes, "_REST_MOVES", kinds)
    monkeypatch.setattr(open_nodes, "_NEAR", kinds % 7)
    assert decided(seed) == quick


@pytest.mark.parametrize("fullness", [memory_use, None])
@pytest.mark.parametrize("seed", range(2))
def test_policies_of_others_count(seed, fullness, monkeypatch):
    """Given another score of nodes, with such a form and without, then plans are those in which it is asked."""
    without = usually_decided(seed)
    went = count_choices(monkeypatch)
    quick = decided(seed, Rates(fullness))
    assert bool(went["found"]) == bool(fullness)
    monkeypatch.setattr(AmountChoices, "best_row", lambda *_about: None)
    assert decided(seed, Rates()) == quick
    assert without != quick


def test_a_score_that_is_told_is_not_asked():
    """Given one pod that only such scores rate, then none of them is called."""
    rates = Rates(memory_use)
    c = cluster(1, rates).pod("p", gpus=1, memory=entities.GIB, queue="b")
    assert c.when.one_session().binds
    assert rates.asked == []


@pytest.mark.parametrize(
    ("fullness", "told"),
    [
        (memory_use, ""),
        (
            lambda *_about: Fullness((("memory", 1),), 100, 1),
            "fullness: 5 points of node-00, by itself -10",
        ),
        (lambda *_about: Fullness((("memory", 2),), 100, 0), "fullness: answered Fullness("),
        (lambda *_about: Fullness((("memory", 2),), 10**6, 1), "fullness: answered Fullness("),
        (lambda *_about: 5, "fullness: answered 5"),
        (lambda *_about: 1 // 0, "ZeroDivisionError"),
    ],
)
def test_a_form_that_says_something_else_is_found_in_trials(fullness, told):
    """Given a form as data that is none, or differs from its score, then authors' trials say so."""
    c = cluster_under(Rates(fullness)).queue("q")
    for number in range(4):
        c.node(f"node-{number:02d}", gpus=8, memory=10 * entities.GIB)
    c.pod("p", gpus=1, memory=entities.GIB // 2 + 99, queue="q")
    c.pod("r", gpus=1, memory=entities.GIB * 2, queue="q")
    c.when.one_session()
    assert told in " ".join(c.then.faults())
    assert bool(told) == bool(c.then.faults())


def test_a_form_that_fails_leaves_its_score():
    """Given a form as data that fails in a cluster, then nodes are rated by the score, and that is told once."""
    rates = Rates(lambda *_about: 1 // 0)
    c = cluster(1, rates)
    for number in range(3):
        c.pod(f"p-{number}", gpus=1, memory=entities.GIB + number, queue="b")
    assert len(c.when.one_session().binds) == 3
    assert rates.asked
    assert len(c.then.faults()) == 1


@pytest.mark.parametrize("seed", range(20))
def test_rows_are_those_of_all_nodes_rated(seed):
    """Given random moves, then the row is the first of those with the most points, of all that take the pod."""
    rng = random.Random(seed)
    c = Given()
    for number in range(NODES):
        c.node(f"node-{number:02d}", gpus=rng.choice((4, 8)), cpu=64_000, memory=2**38)
    usage = NodeUsage(c.cache.take_snapshot(0.0).nodes)
    columns = np.array([usage.nodes.columns[name] for name in ("cpu", "memory", GPU)])
    sign, found = rng.choice((1, -1)), OpenNodes(usage, columns.tolist())
    weights = tuple((n, int(columns[n]), sign * (1, 1, 8)[n]) for n in range(3))
    terms = ((rng.choice((1, 5)), 1000, 10, weights),)
    masks = [np.array([rng.random() < part for _ in range(NODES)]) for part in (0.8, 0.1)]
    there: list[tuple[int, RequestVector]] = []
    known = 0
    for _ in range(300):
        amounts = [rng.randrange(1, 9_000), rng.randrange(1, 2**34), 1000 * rng.randrange(1, 4)]
        allowed = rng.choice(masks)
        row = found.best_row(amounts, terms, allowed)
        if row is None:
            row = expected(usage, columns, amounts, terms, allowed)
        else:
            known += 1
            assert row == expected(usage, columns, amounts, terms, allowed)
        if row >= 0:
            there.append((row, RequestVector(columns, np.array(amounts), "")))
            usage.add(*there[-1], slots=0)
        if there and (row < 0 or rng.random() < 0.1):
            usage.remove_pod(*there.pop(rng.randrange(len(there))), slots=0)
    assert known


def expected(usage: NodeUsage, columns: Any, amounts: list[int], terms: Any, allowed: Any) -> int:
    """The same by looking at each node."""
    points = {}
    for row in range(NODES):
        offered, used = usage.nodes.allocatable[row, columns], usage.used[row, columns]
        after = (used + amounts).tolist()
        if not allowed[row] or (after > offered).any():
            continue
        ((times, full, divisor, weights),) = terms
        parts = [weight * (after[n] * full // int(offered[n])) for n, _, weight in weights]
        points[row] = times * (sum(parts) // divisor)
    return min((row for row in points if points[row] == max(points.values())), default=-1)
