"""Node pools against clusters that have one pool each: shares, caps and charges are the same."""

from __future__ import annotations

import random

import attrs
import pytest
from hypothesis import given as generated
from hypothesis import settings
from hypothesis import strategies as st

from gpusched.api.meta.pool_resources import dimension
from gpusched.api.meta.resources import NOTHING, Resources
from gpusched.api.meta.units import DEVICE
from gpusched.api.queue.queue import NodePool
from gpusched.session.state.session import Session
from gpusched.testing.entities import GPU
from gpusched.testing.given import Given
from tests.populations import examples, one_of

pytestmark = pytest.mark.long

POOLS = ("p0", "p1", "p2")
NAMES = ("a", "b", "aa", "ab", "ba", "bb")

amount = st.one_of(st.none(), st.integers(0, 12))
limits = st.fixed_dictionaries({"deserved": amount, "cap": amount})
queue = st.fixed_dictionaries(
    {
        "weight": st.integers(0, 3),
        "priority": st.integers(0, 1),
        "pools": st.fixed_dictionaries(dict.fromkeys(POOLS, limits)),
        "waits": st.fixed_dictionaries(dict.fromkeys(POOLS, st.integers(0, 9))),
    }
)


def gpus(number, *, at_least=0):
    """So many GPUs; no word about them for None."""
    return NOTHING if number is None else Resources.of({GPU: max(number, at_least) * DEVICE})


def cluster(tree, nodes, *, only=""):
    """Queues with pools, or a cluster of the nodes of one pool whose limits are those of the whole."""
    c = Given()
    for pool, count in nodes.items():
        for number in range(count if only in ("", pool) else 0):
            c.node(f"{pool}-{number}", gpus=4, labels={"pool": pool})
    for name, spec in tree.items():
        of = {
            pool: {
                "deserved": gpus(each["deserved"]),
                "capability": gpus(each["cap"], at_least=each["deserved"] or 0),
            }
            for pool, each in spec["pools"].items()
        }
        own = {"weight": spec["weight"], "priority": spec["priority"]}
        if only:
            own |= of[only]
        else:
            own["node_pools"] = tuple(
                NodePool(name=pool, node_selector=(("pool", pool),), **each)
                for pool, each in of.items()
            )
        c.queue(name, parent=name[:-1] or "root", **own)
        if len(name) == 2:
            for pool, count in spec["waits"].items():
                if count and only in ("", pool):
                    c.gang(
                        f"{name}-{pool}", pods=count, gpus=1, cpu=0, memory=0, queue=name,
                        node_selector={"pool": pool},
                    )  # fmt: skip
    return c


def opened(c):
    """A session in which nothing happened yet."""
    return Session(
        c.cache.take_snapshot(c.now),
        c.policy.plugins,
        c.policy.capabilities,
        guard=c.guard,
        session_cache=c.session_cache,
        placement=c.placement,
    )


@settings(max_examples=examples(10, whole=40), deadline=None)
@generated(
    st.fixed_dictionaries(dict.fromkeys(NAMES, queue)),
    st.fixed_dictionaries(dict.fromkeys(POOLS, st.integers(1, 4))),
)
def test_pools_are_divided_as_clusters_of_their_own(tree, nodes):
    """What a queue is due in a pool is what it would be due if there were no other nodes."""
    whole = opened(cluster(tree, nodes)).view
    for pool in POOLS:
        if all(each["pools"][pool]["deserved"] is None for each in tree.values()):
            continue  # nobody deserves anything there: the pool is not divided
        alone = opened(cluster(tree, nodes, only=pool)).view
        name = dimension(GPU, pool)
        found = {queue: whole.fair_share(queue).get(name) for queue in NAMES}
        assert found == {queue: alone.fair_share(queue).get(GPU) for queue in NAMES}


@pytest.mark.parametrize("seed", one_of(2, range(6)))
def test_charges_by_pool_add_up_whatever_happens(seed):
    """Placed, evicted, rolled back or promised: what queues hold by pool is what sits there.

    The accounts at the end of a session equal those with which the next one begins, and no
    queue ever holds more in a pool than it may.
    """
    chance = random.Random(seed)
    c = Given()
    for pool in POOLS:
        for number in range(2):
            c.node(f"{pool}-{number}", gpus=4, labels={"pool": pool})
    caps = {}
    for name in ("a", "b", "aa", "ab", "ba", "bb"):
        own = {pool: chance.choice((None, 2, 4, 6)) for pool in POOLS}
        caps |= {(name, pool): cap for pool, cap in own.items() if cap is not None}
        made = tuple(
            NodePool(
                name=pool, node_selector=(("pool", pool),), deserved=gpus(chance.choice((None, 1, 2))),
                capability=gpus(cap),
            )
            for pool, cap in own.items()
        )  # fmt: skip
        c.queue(name, parent=name[:-1] or "root", node_pools=made)
    for step in range(8):
        for number in range(3):
            pool = chance.choice(POOLS)
            pinned = {"node_selector": {"pool": pool}} if chance.random() < 0.5 else {}
            c.gang(
                f"g{step}-{number}", pods=chance.randint(1, 4), gpus=chance.randint(1, 2), cpu=10,
                min_member=1, queue=chance.choice(("aa", "ab", "ba", "bb")),
                priority=chance.randint(0, 2), **pinned,
            )  # fmt: skip
        c.when.carried_out()
        after = opened(c)
        for name in ("a", "b", "aa", "ab", "ba", "bb"):
            for pool in POOLS:
                held = after.view.allocated(name).get(dimension(GPU, pool))
                assert held == sits(c, after, name, pool) * DEVICE
                assert held <= caps.get((name, pool), held) * DEVICE


def sits(c, session, queue, pool):
    """GPUs held by pods of a queue's subtree on the nodes of a pool."""
    held = 0
    for gang in session.snapshot.placed_gangs.values():
        if not gang.queue.startswith(queue):
            continue
        for member in (*gang.placed, *gang.leaving_placed):
            if member.node.startswith(pool):
                held += member.pod.pod_class.gpus
    for gang, places in session.placements.by_gang_with_nominations():
        if gang.queue.startswith(queue):
            nodes = session.snapshot.nodes.nodes
            held += sum(
                place.pod.pod_class.gpus
                for place in places
                if nodes[place.row].name.startswith(pool)
            )
    return held


def test_moves_taken_back_leave_no_trace():
    """A statement that is discarded charges nobody, in any look."""
    limits = {pool: {"deserved": 1, "cap": 8} for pool in POOLS}
    spec = {"weight": 1, "priority": 0, "pools": limits, "waits": dict.fromkeys(POOLS, 2)}
    c = cluster({name: dict(spec) for name in NAMES}, dict.fromkeys(POOLS, 2))
    session = opened(c)
    name = dimension(GPU, "p0")
    gang = next(each for each in session.gangs if each.key.name == "aa-p0")
    seat = session.class_info(gang.pod_sets[0].pod_class)
    for later in (False, True):
        statement = session.statement()
        session._look_later(later=later)
        row = seat.class_fit.best_row()
        statement.assign(gang.pod_sets[0].pods[0], row, seat.request)
        assert [session.view.staying(each).get(name) for each in ("aa", "a", "b")] == [
            DEVICE,
            DEVICE,
            0,
        ]
        statement.discard()
        assert [session.view.allocated(each).get(name) for each in ("aa", "a", "b")] == [0, 0, 0]
        session._look_later(later=False)
    assert attrs.asdict(session.view.allocated("a"))["items"] == ((name, 0),)
