"""Gangs are moved so that one that waits fits: nobody ends for good, and room is held before anybody leaves."""

from __future__ import annotations

import random

import attrs
import pytest

from gpusched.api.gang.move_record import MoveRecord, MoveTarget, format_move, parse_move
from gpusched.api.gang.pod_group import TopologyRequest
from gpusched.api.meta.identity import UID, GangKey, Owner
from gpusched.api.meta.resources import Resources
from gpusched.api.pod.pod import PodPhase
from gpusched.base import limits
from gpusched.config.model import DEFAULT, PluginChoice
from gpusched.testing import entities
from gpusched.testing.given import Given
from tests.populations import one_of
from tests.session.running import budget, runs

ACTIONS = ("enqueue", "allocate", "consolidate")
OWNER = Owner("ReplicaSet", "r", UID("r"))
RECENT = entities.NOW - 30.0


def moving(**config):
    return Given(config=attrs.evolve(DEFAULT, actions=ACTIONS, **config))


def owned(c, name, nodes, **fields):
    """A gang that somebody makes again, and that has lost little when it is moved."""
    return runs(c, name, nodes, **{"owner": OWNER, "since": RECENT, **fields})


def halves(c, **fields):
    """Two nodes of two GPUs, each half full; a pod of two GPUs waits."""
    c.node("n0", gpus=2).node("n1", gpus=2)
    owned(c, "a", "n0", **fields)
    owned(c, "b", "n1", **fields)
    return c.gang("wide", pods=1, gpus=2)


def test_one_moves_and_its_room_is_recorded_before_anybody_leaves():
    """The claim says who leaves, where it finds room again, and what was promised to whom."""
    c = halves(moving())
    plan = c.when.one_session()
    (claim,) = plan.preemptions
    (order,) = claim.moves
    (leaving,) = c.then.evicted()
    assert order.gang == GangKey("PodGroup", "default", leaving.removesuffix("-0"))
    here, there = ("n0", "n1") if leaving == "a-0" else ("n1", "n0")
    assert [(place.node, place.pods) for place in order.move.places] == [(there, 1)]
    assert [node for _, _, node in claim.nominations] == [here]
    assert c.then.reason("wide") == "PreemptionInProgress"
    assert c.then.why("wide").endswith(
        "by moving 1 pod of 1 gang to other nodes and is held for it"
    )
    assert "moved for default/wide" in claim.stops[0].evictions[0].message


def test_it_is_off_unless_asked_for():
    """The shipped configuration moves nobody."""
    c = halves(Given())
    c.when.one_session()
    assert c.then.evicted() == []


def test_who_lost_least_moves():
    """Work since the last checkpoint decides."""
    c = moving()
    c.node("n0", gpus=2).node("n1", gpus=2)
    owned(c, "a", "n0", since=entities.NOW - 300.0)
    owned(c, "b", "n1", since=entities.NOW - 301.0, group={"checkpoint_ns": 100 * 10**9})
    c.gang("wide", pods=1, gpus=2)
    c.when.one_session()
    assert c.then.evicted() == ["b-0"]


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"owner": None}, "nobody makes its pods again"),
        ({"group": {"preemptible": False}}, "its author said so"),
        ({"since": entities.NOW - 3600.0}, "more is lost than the other does in ten minutes"),
        ({"group": {"min_runtime_ns": 3600 * 10**9}}, "its minimum runtime is not over"),
    ],
)
def test_who_may_not_be_moved_stays(fields, why):
    """Each reason for itself keeps both where they are."""
    c = halves(moving(), **fields)
    c.when.one_session()
    assert c.then.evicted() == [], why


def test_a_disruption_budget_keeps_everybody_in_place():
    """Scenario 68, its second half."""
    c = halves(moving())
    budget(c, "guard", allowed=0)
    c.when.one_session()
    assert c.then.evicted() == []


def test_a_pod_without_group_or_job_has_no_place_for_its_record():
    """It is not moved, as a restart would not know where its room is held."""
    c = moving()
    c.node("n0", gpus=2).node("n1", gpus=2)
    for number in range(2):
        c.pod(
            f"p{number}", gpus=1, node=f"n{number}", slots=1, plan="p", scheduled=RECENT,
            phase="Running", owner=OWNER,
        )  # fmt: skip
    c.gang("wide", pods=1, gpus=2)
    c.when.one_session()
    assert c.then.evicted() == []


def test_nobody_leaves_who_would_not_fit_elsewhere():
    """The whole cluster is too full for all of them."""
    c = moving()
    c.node("n0", gpus=2).node("n1", gpus=2)
    owned(c, "a", "n0")
    owned(c, "b", "n1 n1")
    c.gang("wide", pods=1, gpus=2)
    c.when.one_session()
    assert c.then.evicted() == []


def test_a_gang_moves_within_its_own_rules_or_not_at_all():
    """Its rack is required: two nodes of two racks hold its pods, but no single rack does."""
    c = moving()
    for name, rack in (("a1", "a"), ("b1", "b"), ("b2", "b"), ("c1", "c")):
        c.node(name, gpus=4, labels={"gpusched.io/rack": rack})
    owned(c, "pair", "a1 a1", group={"topology": TopologyRequest(required="rack")})
    for node in ("b1", "b2", "c1"):
        owned(c, f"f{node}", " ".join([node] * 3), group={"preemptible": False})
    c.gang("wide", pods=1, gpus=4)
    plan = c.when.one_session()
    assert c.then.evicted() == ["pair-0", "pair-1"]
    (order,) = plan.preemptions[0].moves
    assert [place.node for place in order.move.places] == ["b1", "b2"]


def away(c):
    """After the move: the pods are gone and not made again yet; where they are to go."""
    plan = c.when.carried_out()
    (order,) = plan.preemptions[0].moves
    return order.gang.name, order.move.places[0].node


def test_held_room_is_given_to_nobody_else():
    """Not even to a gang of higher priority, while the pods are not made again."""
    c = halves(moving())
    name, _ = away(c)
    c.now += 5.0
    c.gang("thief", pods=1, gpus=1, priority=9)
    c.when.bound()
    assert c.then.started() == ["wide"]
    c.now += 5.0
    c.pod(f"{name}-9", group=name, gpus=1, owner=OWNER, created=c.now)
    c.when.bound()
    assert c.then.started() == [name]


def test_pods_that_came_end_the_hold():
    """Once all are placed nothing is held any more, whatever the record says."""
    c = moving()
    c.node("n0", gpus=3).node("n1", gpus=4)
    owned(c, "a", "n0")
    owned(c, "b", "n1 n1", group={"preemptible": False})
    c.gang("wide", pods=1, gpus=3)
    c.when.carried_out()
    c.now += 5.0
    c.pod("a-9", group="a", gpus=1, owner=OWNER, created=c.now)
    c.when.bound()
    assert c.then.started() == ["a", "wide"]
    c.gang("next", pods=1, gpus=1)
    c.when.bound()
    assert c.then.started() == ["next"]


def test_what_is_held_is_given_back_in_time():
    """Pods that are never made again hold no room for ever."""
    c = halves(moving())
    away(c)
    c.gang("late", pods=1, gpus=1)
    c.now += limits.NOMINATION_MAX_S - 1
    c.when.bound()
    assert "late" not in c.then.started()
    c.now += 2
    c.when.bound()
    assert "late" in c.then.started()


def test_a_gang_that_was_moved_is_left_alone_for_an_hour():
    """Moves are no game of musical chairs."""
    c = halves(moving())
    name, _ = away(c)
    c.now += 5.0
    c.pod(f"{name}-9", group=name, gpus=1, owner=OWNER, created=c.now)
    c.when.bound()
    gone = next(pod for pod in list(c.cache.pods.values()) if pod.name == "wide-0")
    c.gone(gone.name)
    other = "b" if name == "a" else "a"
    c.gone(f"{other}-0")
    c.node("n2", gpus=2)
    owned(c, "x", "n2", group={"preemptible": False})
    c.gang("again", pods=1, gpus=2).gang("again2", pods=1, gpus=2)
    c.now += 60.0
    c.when.one_session()
    assert c.then.evicted() == []


def test_a_record_is_read_as_it_was_written():
    """And what we never wrote is none."""
    move = MoveRecord(1_700_000_000.0, (MoveTarget("n1", 2, Resources.of({"cpu": 1000})),))
    read = parse_move(format_move(move, seal="s"))
    assert (read, read.seal) == (move, "s")
    early = '{"at": "0001-01-01T00:00:00Z", "pods": []}'
    part = (
        '{"at": "2026-01-01T00:00:00Z", "pods": [{"requests": {"nvidia.com/gpu": 8}, "nodes": {}}]}'
    )
    long = format_move(move, seal="s" * 2**18)
    for text in ("", None, "{", "[]", '{"at": "x", "pods": []}', '{"at": 1}', early, part, long):
        assert parse_move(text) is None


@pytest.mark.parametrize("solver", ["cpsat", "greedy"])
def test_without_a_solver_single_gangs_are_tried(solver):
    """The cheapest that does alone moves."""
    c = halves(moving(placement=attrs.evolve(DEFAULT.placement, solver=solver)))
    c.when.one_session()
    assert len(c.then.evicted()) == 1


def test_several_move_at_the_least_loss_together():
    """Four of one GPU each, of which two on one node have lost less than the two on the other."""
    c = moving()
    c.node("n0", gpus=4).node("n1", gpus=4)
    for number, (node, ran) in enumerate((("n0", 50), ("n0", 60), ("n1", 100), ("n1", 5))):
        owned(c, f"g{number}", node, since=entities.NOW - ran)
    c.gang("wide", pods=1, gpus=4)
    c.when.one_session()
    assert c.then.evicted() == ["g2-0", "g3-0"] or c.then.evicted() == ["g0-0", "g1-0"]
    lost = {"g0": 50, "g1": 60, "g2": 100, "g3": 5}
    assert sum(lost[name.removesuffix("-0")] for name in c.then.evicted()) == 105


@pytest.mark.parametrize("seed", one_of(3, range(25)))
def test_random_clusters_come_to_rest_and_nobody_is_lost(seed):
    """Owners make pods again: in the end all that ran run, and moves end where nothing changes."""
    rng = random.Random(seed)
    c = moving()
    free = {}
    for number in range(rng.randint(2, 5)):
        name = f"n{number}"
        free[name] = rng.choice((2, 4, 8))
        c.node(name, gpus=free[name], labels={"gpusched.io/rack": f"r{number % 2}"})
    size, ran = {}, []
    for number in range(rng.randint(2, 8)):
        gpus, at = rng.choice((1, 1, 2)), []
        for _ in range(rng.randint(1, 3)):
            able = [name for name, left in free.items() if left >= gpus]
            if able:
                at.append(rng.choice(able))
                free[at[-1]] -= gpus
        if at:
            name = f"g{number}"
            size[name] = gpus
            ran.append(name)
            owned(c, name, " ".join(at), gpus=gpus, since=entities.NOW - rng.choice((5, 100)))
    members = {name: sum(p.group == name for p in c.cache.pods.values()) for name in ran}
    for number in range(rng.randint(1, 3)):
        wish = TopologyRequest(required=rng.choice(("", "rack")))
        c.gang(f"w{number}", pods=rng.randint(1, 2), gpus=rng.choice((2, 4)), topology=wish)
    moves = made = 0
    for _ in range(40):
        plan = c.when.carried_out()
        assert c.then.faults() == ()
        moves += sum(len(claim.moves) for claim in plan.preemptions)
        c.now += 2.0
        for name in ran:
            have = sum(pod.group == name for pod in c.cache.pods.values())
            for _ in range(members[name] - have):
                made += 1
                c.pod(
                    f"{name}-again-{made}", group=name, gpus=size[name], owner=OWNER,
                    created=c.now,
                )  # fmt: skip
        if not (plan.binds or plan.preemptions):
            break
    else:
        pytest.fail("it never comes to rest")
    for name in ran:
        placed = [p for p in c.cache.pods.values() if p.group == name and p.node]
        assert len(placed) == members[name], f"{name} was moved and did not come back"
    assert moves <= len(ran)


def with_bounds(**arguments):
    """The shipped plugins, and bounds of moves."""
    first, *rest = DEFAULT.tiers
    named = PluginChoice(name="consolidation", arguments=arguments)
    tier = attrs.evolve(first, plugins=(*first.plugins, named))
    return moving(tiers=(tier, *rest))


@pytest.mark.parametrize(
    ("arguments", "moved"),
    [
        ({}, 1),
        ({"maxGangs": 0}, 0),
        ({"maxLostSeconds": 14}, 0),  # the gang that waits has two GPUs, 30 s of one are lost
        ({"maxLostSeconds": 15}, 1),
    ],
)
def test_what_may_be_lost_is_bounded_by_a_plugin(arguments, moved):
    """At most so many gangs, and as much work as the other does in so many seconds."""
    c = halves(with_bounds(**arguments))
    c.when.one_session()
    assert len(c.then.evicted()) == moved


def test_a_queue_above_its_share_moves_only_its_own():
    """The gang that waits would bring its queue above what it is due: others are left in peace."""
    for queue, moved in (("mine", 1), ("theirs", 0)):
        c = moving()
        c.queue("mine", limits={"deserved": {entities.GPU: 1}})
        c.queue("theirs", limits={"deserved": {entities.GPU: 3}})
        c.node("n0", gpus=2).node("n1", gpus=2)
        owned(c, "a", "n0", queue=queue)
        owned(c, "b", "n1", queue=queue)
        c.gang("more", pods=2, gpus=2, queue="theirs")
        c.gang("wide", pods=1, gpus=2, queue="mine")
        c.when.one_session()
        assert len(c.then.evicted()) == moved, queue


def test_a_job_with_a_queue_is_paused_and_started_again_in_its_room():
    """No pod of it fails: it is suspended, its room is held, and it resumes there."""
    c = moving()
    c.node("n0", gpus=2).node("n1", gpus=2)
    owned(c, "b", "n1", group={"preemptible": False})
    c.job(
        "j", parallelism=1, completions=1, indexed=True, queue="default", gpus=1, node="n0",
        slots=1, plan="p", phase=PodPhase.RUNNING, scheduled=RECENT,
        started={"admitted": RECENT},
    )  # fmt: skip
    c.gang("wide", pods=1, gpus=2)
    plan = c.when.carried_out()
    (claim,) = plan.preemptions
    assert claim.stops[0].pause is not None
    assert claim.moves[0].gang == GangKey("Job", "default", "j")
    c.now += 5.0
    c.gang("thief", pods=1, gpus=1, priority=9)
    plan = c.when.carried_out()
    assert c.then.started() == ["wide"]
    assert [(switch.key.name, switch.suspend) for switch in plan.job_changes] == [("j", False)]
    c.now += 5.0
    c.pod(
        "j-again", owner=Owner("Job", "j", entities.uid("Job", "j", "default")), gpus=1,
        created=c.now, rank=0,
    )  # fmt: skip
    c.when.bound()
    assert c.then.nodes() == {"j-again": "n1"}


@pytest.mark.parametrize(("ignores", "moved"), [(True, ["a"]), (False, [])])
def test_a_gang_whose_job_would_count_it_as_a_failure_stays(ignores, moved):
    """Without a queue label its pods are evicted: it moves if its failure policy ignores that."""
    c = moving()
    c.node("n0", gpus=2).node("n1", gpus=2)
    owned(c, "b", "n1", group={"preemptible": False})
    c.job(
        "j",
        parallelism=1,
        completions=1,
        pods=0,
        gpus=1,
        started={"ignores_evictions": ignores, "backoff_limit": 0},
    )
    owned(c, "a", "n0", owner=Owner("Job", "j", entities.uid("Job", "j", "default")))
    c.gang("wide", pods=1, gpus=2)
    plan = c.when.one_session()
    assert [order.gang.name for each in plan.preemptions for order in each.moves] == moved


def test_a_gang_is_not_moved_into_room_that_is_reserved():
    """M could move to the idle node, where it would still run when H can start there."""
    c = Given(config=attrs.evolve(DEFAULT, actions=(*ACTIONS, "backfill")))
    c.node("n0", gpus=2, labels={"zone": "a"}).node("n1", gpus=2).node("n2", gpus=2)
    owned(c, "m", "n0")
    runs(
        c, "r", "n1", gpus=2, since=RECENT, priority=9,
        group={"expected_duration_ns": 100 * 10**9, "preemptible": False},
    )  # fmt: skip
    c.gang("h", pods=2, gpus=2, created=entities.NOW - 20)
    c.group("wide", min_member=1, created=entities.NOW - 10, expected_duration_ns=10 * 10**9)
    c.pods("wide", 1, group="wide", gpus=2, created=entities.NOW - 10, node_selector={"zone": "a"})
    c.when.one_session()
    assert "held for it from" in c.then.why("h")
    assert c.then.evicted() == []


def test_a_gang_is_moved_where_nothing_is_reserved():
    """The same without H: M moves, so that the reservation alone kept it before."""
    c = Given(config=attrs.evolve(DEFAULT, actions=(*ACTIONS, "backfill")))
    c.node("n0", gpus=2, labels={"zone": "a"}).node("n2", gpus=2)
    owned(c, "m", "n0")
    c.gang("wide", pods=1, gpus=2, node_selector={"zone": "a"})
    c.when.one_session()
    assert c.then.evicted() == ["m-0"]
