"""Long random histories: what was evicted comes back, and still evictions end where nothing changes."""

from __future__ import annotations

import random

import attrs
import pytest
from hypothesis import given as forall
from hypothesis import settings
from hypothesis import strategies as st

from gpusched.session.state.plan import Plan
from gpusched.testing import entities, invariants
from gpusched.testing.given import Given
from tests.populations import examples

pytestmark = pytest.mark.long

ROUNDS = 6
"""Times that something changes from outside."""
QUIET = 30
"""Sessions in which a history without changes must come to rest."""


@attrs.define
class History:
    """A cluster whose owners make every evicted pod anew, as controllers do."""

    rng: random.Random
    c: Given = attrs.Factory(Given)
    made: int = 0
    classes: dict[str, dict[str, int]] = attrs.Factory(dict)
    """GPUs and priority of each gang's pods."""

    def start(self) -> None:
        """Nodes, queues of two levels, and the first gangs."""
        for number in range(self.rng.randint(1, 3)):
            self.c.node(f"n{number}", gpus=self.rng.choice((2, 4, 8)))
        leaves = []
        for parent in ("x", "y"):
            limits = {"deserved": {entities.GPU: self.rng.randint(0, 8)}}
            self.c.queue(parent, limits=limits if self.rng.random() < 0.5 else None)
            for leaf in range(self.rng.randint(1, 2)):
                name = f"{parent}{leaf}"
                self.c.queue(
                    name,
                    parent=parent,
                    weight=self.rng.randint(0, 3),
                    priority=self.rng.choice((0, 0, 5)),
                    limits={"deserved": {entities.GPU: self.rng.randint(0, 6)}},
                )
                leaves.append(name)
        self.leaves = leaves
        for _ in range(self.rng.randint(2, 6)):
            self.submit()

    leaves: list[str] = attrs.Factory(list)

    def submit(self) -> None:
        """A gang more."""
        name = f"g{self.made}"
        self.made += 1
        pods = self.rng.randint(1, 4)
        about = {
            "gpus": self.rng.choice((1, 1, 2, 4)),
            "priority": self.rng.choice((0, 0, 10, 100)),
        }
        self.classes[name] = about
        self.c.group(
            name,
            queue=self.rng.choice(self.leaves),
            min_member=self.rng.randint(1, pods),
            created=self.c.now,
            preemptible=self.rng.random() < 0.9,
            disruption=self.rng.choice(("Pod", "Pod", "Group")),
        )
        self.c.pods(name, pods, group=name, created=self.c.now, **about)

    def finish(self) -> None:
        """A gang ends, whether it ran or not."""
        if not self.classes:
            return
        name = self.rng.choice(sorted(self.classes))
        del self.classes[name]
        for pod in [p for p in self.c.cache.pods.values() if p.group == name]:
            self.c.gone(pod.name)
        self.c.cache.drop_group(next(k for k in self.c.cache.groups.items if k.name == name))

    def step(self) -> tuple[Plan, list[tuple[str, str]]]:
        """A session, carried out; and who was evicted for whom, by gang."""
        self.c.now += 2.0
        plan = self.c.when.carried_out()
        pairs = [
            (claim.gang.name, stop.gang.name)
            for claim in plan.preemptions
            for stop in claim.stops
            for _ in stop.evictions
        ]
        for claim in plan.preemptions:
            for stop in claim.stops:
                for _ in stop.evictions:
                    self.again(stop.gang.name)
        assert invariants.check(self.c.objects(), now=self.c.now) == []
        return plan, pairs

    def again(self, gang: str) -> None:
        """Its owner replaces a member."""
        self.made += 1
        self.c.pod(
            f"{gang}-again-{self.made}", group=gang, rank=self.made, created=self.c.now,
            **self.classes[gang],
        )  # fmt: skip


@settings(max_examples=examples(10, whole=40), deadline=None, derandomize=True, database=None)
@forall(st.integers(0, 10**6))
def test_evictions_end_where_nothing_changes(seed):
    """No gang evicts another and is evicted for it in turn; a quiet cluster stays quiet."""
    history = History(random.Random(seed))
    history.start()
    for _ in range(ROUNDS):
        seen: dict[tuple[str, str], int] = {}
        for _ in range(QUIET):
            plan, pairs = history.step()
            for pair in set(pairs):
                seen[pair] = seen.get(pair, 0) + 1
                one, other = pair
                assert (other, one) not in seen, f"{one} and {other} evict each other"
            if not plan.preemptions and not plan.binds:
                break
        else:
            pytest.fail(f"not quiet after {QUIET} sessions: {sorted(seen.items())}")
        assert max(seen.values(), default=0) <= 2, sorted(seen.items())
        history.rng.choice((history.submit, history.submit, history.finish))()


@settings(max_examples=examples(5, whole=20), deadline=None, derandomize=True, database=None)
@forall(st.integers(0, 10**6))
def test_nobody_leaves_for_a_gang_that_does_not_start(seed):
    """Every claimant for whom somebody was evicted starts with its whole minimum."""
    history = History(random.Random(seed))
    history.start()
    waiting: set[str] = set()
    for _ in range(QUIET):
        plan, pairs = history.step()
        waiting -= {bind.gang.name for bind in plan.binds}
        if not plan.preemptions and not plan.binds:
            break
        waiting |= {one for one, _ in pairs}
    assert waiting == set()
