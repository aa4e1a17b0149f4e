"""How full nodes are is rated alike whether a few or many are asked about."""

from __future__ import annotations

import random

import numpy as np
import pytest
from gpusched_plugins.nodes.nodeorder import FEW, NodeOrder, NodeOrderArgs

from gpusched.testing import entities
from gpusched.testing.authors import cluster_under


@pytest.mark.parametrize("strategy", ["binpack", "spread"])
def test_few_nodes_are_rated_as_among_many(strategy: str) -> None:
    """Given nodes with pods of many sizes, then each is rated the same alone and among all."""
    rng = random.Random(3)
    seen: list[tuple[list[int], list[int]]] = []

    class Rates(NodeOrder):
        def open(self, hooks, view):
            def compared(pod, rows):
                every = score[0](pod, rows)
                alone = [int(score[0](pod, _Few(rows, row))[0]) for row in range(len(rows))]
                seen.append(([int(each) for each in every], alone))
                return every

            score = []
            NodeOrder.open(self, _Taken(hooks, score), view)
            hooks.node_score(compared)

    c = cluster_under(Rates(NodeOrderArgs(strategy=strategy)))
    nodes = 3 * FEW
    c.nodes(nodes, gpus=8, cpu=64_000, memory=512 * entities.GIB)
    for node in range(nodes):
        for slot in range(rng.randrange(7)):
            spec = entities.pod_class(gpus=1, cpu=rng.randrange(8_000), memory=rng.randrange(2**36))
            c.pod(f"runs-{node}-{slot}", spec=spec, node=f"node-{node}", slots=1 << slot, plan="p")
    for number in range(4):
        c.gang(f"g{number}", pods=1, gpus=1 + number % 2, cpu=1_000 * number)
    c.when.one_session()
    assert c.then.faults() == ()
    assert any(len(every) > FEW and len(set(every)) > 3 for every, _ in seen)
    for every, alone in seen:
        assert every == alone


class _Taken:
    """Hooks that keep the first score of nodes to themselves."""

    def __init__(self, hooks, score):
        self._hooks, self._score = hooks, score

    def node_score(self, score, **_how):
        self._score.append(score)


class _Few:
    """One of some rows."""

    def __init__(self, rows, row):
        self._rows, self._row = rows, row

    def __len__(self):
        return 1

    def allocatable(self, resource):
        return np.array([self._rows.allocatable(resource)[self._row]])

    def used(self, resource):
        return np.array([self._rows.used(resource)[self._row]])
