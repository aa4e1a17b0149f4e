"""Rules between pods on random clusters, against an evaluator that is slow and plain."""

from __future__ import annotations

import random
from typing import Any

import pytest

from gpusched.api.affinity.pod_terms import HostPort, PodTerm, SpreadTerm
from gpusched.api.affinity.selector import Requirement, Selector, Taint
from gpusched.api.meta.identity import ObjectKey
from gpusched.api.pod.pod import Pod
from gpusched.session.state.session import Session
from gpusched.testing.given import Given
from tests.populations import one_of
from tests.session import pod_rules

pytestmark = pytest.mark.long

HOST, ZONE = "kubernetes.io/hostname", "zone"
SPACES = {"default": {"team": "a"}, "other": {"team": "b"}, "bare": {}}
SEEDS = one_of(3, range(12))
CASES = 25


def selector(rng: random.Random) -> Selector | None:
    """Over the labels app and rev."""
    key = rng.choice(("app", "rev"))
    values = tuple(sorted(rng.sample(("1", "2", "3"), rng.randint(1, 2))))
    return rng.choice(
        (
            None,
            Selector(),
            Selector((Requirement(key, "Exists"),)),
            *(Selector((Requirement(key, op, values),)) for op in ("In", "In", "In", "NotIn")),
        )
    )


def term(rng: random.Random) -> PodTerm:
    """With any of its parts."""
    spaces = rng.choice(((), (), (), ("other",), ("default", "bare")))
    chosen = rng.choice((None, None, None, Selector(), Selector((Requirement("team", "Exists"),))))
    picked = selector(rng)
    keys = ("rev",) if rng.random() < 0.2 and "rev" not in pod_keys(picked) else ()
    return PodTerm(rng.choice((HOST, ZONE)), picked, spaces, chosen, keys)


def pod_keys(picked: Selector | None) -> set[str]:
    """Labels that a selector names."""
    return {each.key for each in picked.requirements} if picked else set()


def spread(rng: random.Random) -> SpreadTerm:
    """With any of its parts."""
    return SpreadTerm(
        rng.choice((HOST, ZONE)),
        rng.randint(1, 2),
        selector(rng),
        min_domains=rng.choice((1, 1, 3)),
        by_affinity=rng.random() < 0.5,
        by_taints=rng.random() < 0.5,
    )


def rules(rng: random.Random, share: float) -> dict[str, Any]:
    """Each kind of rule with some likelihood."""
    made: dict[str, Any] = {}
    if rng.random() < share:
        made["pod_affinity"] = {term(rng): None for _ in range(rng.randint(1, 2))}
    if rng.random() < share:
        made["pod_anti_affinity"] = {term(rng): None for _ in range(rng.randint(1, 2))}
    if rng.random() < share:
        made["spread"] = {each.topology_key: each for each in (spread(rng), spread(rng))}.values()
    if rng.random() < share / 2:
        address = rng.choice(("0.0.0.0", "10.0.0.1"))
        made["ports"] = (HostPort(address, "TCP", rng.choice((80, 81))),)
    if rng.random() < share / 2:
        made["node_selector"] = {"disk": "ssd"}
    return made


def labels(rng: random.Random) -> dict[str, str]:
    """Of a pod."""
    return {key: rng.choice(("1", "2", "3")) for key in ("app", "rev") if rng.random() < 0.8}


def cluster(rng: random.Random, nodes: int, residents: int) -> Given:
    """Some nodes in zones, some pods of others on them."""
    c = Given()
    for name, own in SPACES.items():
        c.namespace(name, labels=own)
    for number in range(nodes):
        own = {HOST: f"n{number}", "disk": rng.choice(("ssd", "hdd"))}
        if rng.random() < 0.85:
            own[ZONE] = rng.choice(("z1", "z2", "z3"))
        taints = [Taint("k", "v", "NoSchedule")] if rng.random() < 0.15 else []
        c.node(f"n{number}", labels=own, taints=taints, cpu=4000)
    for number in range(residents):
        c.pod(
            f"r{number}",
            namespace=rng.choice(("default", "default", "other", "bare")),
            scheduler="theirs",
            labels=labels(rng),
            node=f"n{rng.randrange(nodes)}",
            deleting=rng.random() < 0.15,
            cpu=0,
            pod_anti_affinity={term(rng): None} if rng.random() < 0.25 else (),
        )
    return c


def as_plain(c: Given) -> pod_rules.Cluster:
    """The same cluster for the plain evaluator."""
    snapshot = c.cache.take_snapshot(c.now)
    return pod_rules.Cluster(
        {node.name: node for node in snapshot.nodes.nodes},
        tuple((pod, pod.node) for _, pod in sorted(c.cache.pods.items()) if pod.node),
        SPACES,
    )


def session(c: Given) -> Session:
    """On the cluster as it is."""
    c.guard.begin_session()
    return Session(
        c.cache.take_snapshot(c.now),
        c.policy.plugins,
        c.policy.capabilities,
        guard=c.guard,
        session_cache=c.session_cache,
        placement=c.placement,
    )


def open_nodes(s: Session, pod: Pod) -> set[str]:
    """Where the session would put it."""
    board = s.pod_info(pod).class_fit
    return {node.name for row, node in enumerate(s.snapshot.nodes.nodes) if board.fits[row]}


def plainly_open(pod: Pod, plain: pod_rules.Cluster) -> set[str]:
    """The same by the plain evaluator; these nodes have room for all."""
    return {name for name, node in plain.nodes.items() if pod_rules.fits(pod, node, plain)}


@pytest.mark.parametrize("seed", SEEDS)
def test_every_pod_may_go_exactly_where_it_may(seed):
    """With affinity, anti-affinity of both sides, spread and ports, on every node."""
    rng = random.Random(seed)
    for _ in range(CASES):
        c = cluster(rng, rng.randint(1, 6), rng.randint(0, 10))
        c.pod("probe", labels=labels(rng), **rules(rng, 0.5))
        probe = c.cache.pods[ObjectKey("default", "probe")]
        assert open_nodes(session(c), probe) == plainly_open(probe, as_plain(c))


@pytest.mark.parametrize("seed", SEEDS)
def test_moves_are_followed_and_taken_back(seed):
    """After places and a rollback the answers are those of the cluster as it then is."""
    rng = random.Random(1000 + seed)
    for _ in range(CASES // 2):
        c = cluster(rng, rng.randint(2, 5), rng.randint(0, 6))
        for number in range(4):
            c.pod(f"m{number}", labels=labels(rng), cpu=1000, **rules(rng, 0.4))
        pods = [c.cache.pods[ObjectKey("default", f"m{number}")] for number in range(4)]
        s, plain = session(c), as_plain(c)
        statement, now = s.statement(), plain
        for pod in pods[:3]:
            mark = statement.checkpoint()
            room = sorted(open_nodes(s, pod))
            if not room:
                continue
            node = rng.choice(room)
            statement.assign(pod, s.snapshot.nodes.row[node], s.pod_info(pod).request)
            assert open_nodes(s, pods[3]) == plainly_open(pods[3], now.plus(pod, node))
            if rng.random() < 0.4:
                statement.rollback(mark)
            else:
                now = now.plus(pod, node)
            assert open_nodes(s, pods[3]) == plainly_open(pods[3], now)
        statement.discard()
        assert open_nodes(s, pods[3]) == plainly_open(pods[3], plain)


@pytest.mark.parametrize("seed", SEEDS)
def test_columns_kept_between_sessions_follow_the_cluster(seed):
    """A session after pods came, went and were relabelled says what a fresh one says."""
    rng = random.Random(2000 + seed)
    c = cluster(rng, 4, 5)
    c.pod("probe", labels=labels(rng), **rules(rng, 0.8))
    probe = c.cache.pods[ObjectKey("default", "probe")]
    for number in range(CASES):
        victim = f"r{rng.randrange(5)}"
        c.gone(victim)
        if rng.random() < 0.7:
            where = f"n{rng.randrange(4)}"
            c.pod(
                victim,
                scheduler="theirs",
                labels=labels(rng),
                node=where,
                cpu=0,
                own_uid=f"{victim}-{rng.choice(('same', number))}",
                pod_anti_affinity={term(rng): None} if rng.random() < 0.25 else (),
            )
        assert open_nodes(session(c), probe) == plainly_open(probe, as_plain(c))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_gang_starts_when_there_is_any_way(seed):
    """Small gangs of pods with rules are placed if and only if trying everything finds a way."""
    rng = random.Random(3000 + seed)
    for _ in range(8):
        c = cluster(rng, rng.randint(2, 4), rng.randint(0, 4))
        size = rng.randint(2, 4)
        c.group("g", min_member=size)
        kinds = [rules(rng, 0.45) for _ in range(rng.randint(1, 2))]
        marks = [labels(rng) for _ in kinds]
        for number in range(size):
            kind = number % len(kinds)
            c.pod(f"g-{number}", group="g", labels=marks[kind], cpu=2000, **kinds[kind])
        pods = [c.cache.pods[ObjectKey("default", f"g-{number}")] for number in range(size)]
        plain = as_plain(c)
        possible = pod_rules.placeable(pods, plain, dict.fromkeys(plain.nodes, 2))
        plan = c.when.one_session()
        assert bool(plan.binds) == possible, c.then.why("g") if not plan.binds else plan.binds
