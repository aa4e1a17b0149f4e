"""Long random histories with node pools: claims on pools and on the whole come to rest."""

from __future__ import annotations

import random

import attrs
import pytest
from hypothesis import given as forall
from hypothesis import settings
from hypothesis import strategies as st

from gpusched.api.meta.resources import NOTHING, Resources
from gpusched.api.meta.units import DEVICE
from gpusched.api.queue.queue import NodePool
from gpusched.testing import entities
from tests.populations import examples
from tests.session.preempt.test_no_ping_pong import QUIET, ROUNDS, History

pytestmark = pytest.mark.long

KINDS = ("h100", "a100", "")


@attrs.define
class PoolHistory(History):
    """Nodes of two pools and of none; queues that limit them; gangs of one pool or of any."""

    caps: dict[tuple[str, str], int] = attrs.Factory(dict)

    def start(self) -> None:
        """See ``History.start``."""
        rng = self.rng
        for number in range(rng.randint(2, 4)):
            kind = rng.choice(KINDS)
            labels = {"gpu": kind} if kind else {}
            self.c.node(f"n{number}", gpus=rng.choice((2, 4, 8)), labels=labels)
        leaves = []
        for parent in ("x", "y"):
            self.queue(parent, "root")
            for leaf in range(rng.randint(1, 2)):
                self.queue(f"{parent}{leaf}", parent)
                leaves.append(f"{parent}{leaf}")
        self.leaves = leaves
        for _ in range(rng.randint(3, 7)):
            self.submit()

    def queue(self, name: str, parent: str) -> None:
        """One with limits here and there."""
        rng = self.rng
        pools = []
        for kind in KINDS[:2] if rng.random() < 0.7 else ():
            deserved = rng.choice((None, 0, 2, 4))
            cap = rng.choice((None, None, 4, 6))
            if cap is not None:
                self.caps[name, kind] = cap
            pools.append(
                NodePool(
                    name=kind,
                    node_selector=(("gpu", kind),),
                    deserved=amount(deserved),
                    capability=amount(cap),
                )
            )
        limits = {"deserved": {entities.GPU: rng.randint(0, 8)}} if rng.random() < 0.5 else None
        self.c.queue(
            name,
            parent=parent,
            weight=rng.randint(0, 3),
            priority=rng.choice((0, 0, 5)),
            limits=limits,
            node_pools=tuple(pools),
        )

    def submit(self) -> None:
        """A gang more, often of one pool."""
        rng, name = self.rng, f"g{self.made}"
        self.made += 1
        pods = rng.randint(1, 4)
        about = {"gpus": rng.choice((1, 1, 2, 4)), "priority": rng.choice((0, 0, 10, 100))}
        kind = rng.choice(KINDS)
        if kind:
            about["node_selector"] = {"gpu": kind}
        self.classes[name] = about
        self.c.group(
            name,
            queue=rng.choice(self.leaves),
            min_member=rng.randint(1, pods),
            created=self.c.now,
            preemptible=rng.random() < 0.9,
            disruption=rng.choice(("Pod", "Pod", "Group")),
        )
        self.c.pods(name, pods, group=name, created=self.c.now, **about)

    def over(self) -> list[str]:
        """Queues that hold more in a pool than they may."""
        snapshot = self.c.cache.take_snapshot(self.c.now)
        held: dict[tuple[str, str], int] = {}
        for gang in snapshot.placed_gangs.values():
            for member in (*gang.placed, *gang.leaving_placed):
                kind = snapshot.nodes.nodes[snapshot.nodes.row[member.node]].labels.get("gpu", "")
                for name in snapshot.queues.queues[gang.queue].path:
                    known = held.get((name, kind), 0)
                    held[name, kind] = known + member.pod.pod_class.gpus
        return [
            f"{name} holds {amount} of {self.caps[name, kind]} in {kind}"
            for (name, kind), amount in sorted(held.items())
            if amount > self.caps.get((name, kind), amount)
        ]


def amount(gpus: int | None) -> Resources:
    """So many GPUs, or no word about them."""
    return NOTHING if gpus is None else Resources.of({entities.GPU: gpus * DEVICE})


@settings(max_examples=examples(10, whole=40), deadline=None, derandomize=True, database=None)
@forall(st.integers(0, 10**6))
def test_claims_on_pools_and_on_the_whole_come_to_rest(seed):
    """No two gangs evict each other, a quiet cluster stays quiet, and no cap is ever exceeded."""
    history = PoolHistory(random.Random(seed))
    history.start()
    for _ in range(ROUNDS):
        seen: dict[tuple[str, str], int] = {}
        for _ in range(QUIET):
            plan, pairs = history.step()
            assert history.over() == []
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
