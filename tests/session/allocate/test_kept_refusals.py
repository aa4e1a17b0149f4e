"""Refusals that are kept from session to session are those that another attempt would come to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gpusched.api.meta.resources import NOTHING
from gpusched.api.queue.queue import NodePool
from gpusched.session.allocate.refusals import kept_refusals
from gpusched.session.allocate.refusals.kept_refusals import KeptRefusals
from gpusched.testing import entities
from gpusched.testing.given import Given
from tests.populations import one_of
from tests.session.state.kept_histories import QUEUES, KeptHistory

HISTORIES = 12
CHANGES = 6


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each attempt whether it was saved."""
    saved: list[bool] = []
    find = KeptRefusals.find

    def noted(self: KeptRefusals, *args: Any) -> Any:
        answer = find(self, *args)
        saved.append(answer is not None)
        return answer

    monkeypatch.setattr(KeptRefusals, "find", noted)
    return saved


class JobHistory(KeptHistory):
    """As ``KeptHistory``, where half of those that wait are suspended Jobs, some of queues with node pools.

    Args:
        seed: from which everything follows.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        if self.rng.random() < 0.3:
            pools = tuple(
                NodePool(
                    name=rack,
                    node_selector=(("topology.gpusched.io/rack", rack),),
                    deserved=NOTHING,
                    capability=NOTHING,
                )
                for rack in ("r1", "r0")
            )
            self.c.queue("a", node_pools=pools)

    def waits(self) -> None:
        """A gang that waits, or a Job that does."""
        rng, name = self.rng, f"j{self.made}"
        if rng.random() < 0.5:
            super().waits()
            return
        self.made += 1
        pods = rng.choice([1, 1, 2, 3])
        self.c.job(
            name, parallelism=pods, completions=pods, suspended=True, queue=rng.choice(QUEUES),
            gpus=rng.choice([1, 1, 2, 4, 8]), cpu=rng.choice([100, 200]), priority=rng.choice([0, 3]),
        )  # fmt: skip


def histories_that_differ(seeds: range, kind: type[KeptHistory] = KeptHistory) -> list[int]:
    """Seeds of histories in which what is kept changes a decision."""
    wrong = []
    for seed in seeds:
        history = kind(seed)
        for number in range(CHANGES):
            decision = history.decide()
            if history.differences(decision):
                wrong.append(seed)
                break
            if number % 2:
                history.carry_out(decision)
            history.change()
    return wrong


@pytest.mark.long
@pytest.mark.parametrize("kind", [KeptHistory, JobHistory])
@pytest.mark.parametrize("shard", one_of(2, range(2)))
def test_kept_refusals_change_no_decision(
    shard: int, kind: type[KeptHistory], found: list[bool]
) -> None:
    """Given random histories, with suspended Jobs or without, of which every other plan comes to nothing, then decisions are those made anew."""
    seeds = range(1000 + shard * HISTORIES, 1000 + (shard + 1) * HISTORIES)
    assert histories_that_differ(seeds, kind) == []
    assert sum(found) > HISTORIES, "hardly anything was kept, so nothing was compared"


def _nothing(*_args: object) -> None:
    """What a part does that was forgotten."""


@pytest.mark.long
@pytest.mark.parametrize(
    ("owner", "name", "planted", "seed"),
    [
        (KeptRefusals, "_note_touched", _nothing, 1040),
        (kept_refusals, "_rows_used_otherwise", lambda _one, _other: [], 1000),
        (kept_refusals, "_same_nodes", lambda _one, _other: True, 1000),
        (KeptRefusals, "_holds", lambda *_args: True, 1000),
        (KeptRefusals, "_is_told_anew", lambda *_args: True, 1000),
    ],
)
def test_planted_errors_are_found(
    owner: Any, name: str, planted: Callable[..., Any], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given that something on which refusals rest is not looked at, then such histories tell."""
    monkeypatch.setattr(owner, name, planted)
    assert histories_that_differ(range(seed, seed + 6))


def test_a_gang_is_not_tried_again_where_nothing_changed_for_it(
    given: Given, found: list[bool]
) -> None:
    """Given gangs that find no room, when a pod ends that leaves too little, then one answer is given again."""
    given.nodes(2, gpus=8)
    for number in range(16):
        node, slot = divmod(number, 8)
        given.pod(f"r{number}", node=f"node-{node}", gpus=1, slots=1 << slot, plan="p")
    given.gang("large", pods=2, gpus=8).gang("small", pods=1, gpus=1)
    given.when.one_session()
    assert found.count(True) == 0
    given.gone("r0")
    plan = given.when.one_session()
    assert [each.gang.name for each in plan.binds] == ["small"]
    assert "needs 2 pods with 8 nvidia.com/gpu" in given.then.why("large")
    assert found.count(True) > 0
    found.clear()
    given.node("node-1", gpus=16)
    given.when.one_session()
    assert found[:1] == [False], "a node is another, so that nothing is kept"


def test_what_is_told_follows_the_nodes(given: Given, found: list[bool]) -> None:
    """Given a gang that is told what each node lacks, when a node lacks something else, then it is told that without an attempt."""
    given.nodes(1, gpus=8, cpu=4000)
    given.pod("a", node="node-0", gpus=4, slots=0b1111, cpu=100, plan="p")
    given.pod("b", node="node-0", cpu=3000, plan="p")
    given.gang("waits", pods=1, gpus=8, cpu=2000)
    given.when.one_session()
    assert f"1 lacks free {entities.GPU} and cpu;" in given.then.why("waits")
    given.gone("b")
    found.clear()
    given.when.one_session()
    assert f"1 lacks free {entities.GPU};" in given.then.why("waits")
    assert found
    assert all(found)


def test_a_suspended_job_is_not_tried_again_where_nothing_changed_for_it(
    given: Given, found: list[bool]
) -> None:
    """Given suspended Jobs that find no room, when too little becomes free for one, then only the other is tried and started."""
    given.nodes(2, gpus=8)
    for number in range(16):
        node, slot = divmod(number, 8)
        given.pod(f"r{number}", node=f"node-{node}", gpus=1, slots=1 << slot, plan="p")
    for name, pods, gpus in (("large", 2, 8), ("small", 1, 1)):
        given.job(
            name, parallelism=pods, completions=pods, suspended=True, queue="default", gpus=gpus
        )
    given.when.one_session()
    assert found.count(True) == 0
    given.gone("r0")
    plan = given.when.one_session()
    assert [each.key.name for each in plan.job_changes] == ["small"]
    assert "needs 2 pods with 8 nvidia.com/gpu" in given.then.why("large")
    assert found.count(True) > 0
    given.gone("r1")
    given.gone("r2")
    found.clear()
    given.node("node-1", gpus=16)
    given.when.one_session()
    assert found[:1] == [False], "a node is another, so that nothing is kept"
