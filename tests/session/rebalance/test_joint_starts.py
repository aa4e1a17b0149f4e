"""A gang that is stranded by the places of others starts where all can sit; nothing else changes."""

from __future__ import annotations

import random

import pytest

from gpusched.api.affinity.pod_terms import PodTerm
from gpusched.api.affinity.selector import Requirement, Selector
from gpusched.api.gang.pod_group import NO_TOPOLOGY_REQUEST, SubGroup, TopologyRequest
from gpusched.config.model import PlacementConfig
from gpusched.testing import invariants
from gpusched.testing.given import Given
from gpusched.topology.levels import HOST
from tests.populations import one_of

pytestmark = pytest.mark.long

IN_ONE_RACK = TopologyRequest(required="rack")
APART = {
    "pod_anti_affinity": [PodTerm(HOST, Selector((Requirement("app", "In", ("work",)),)))],
    "labels": {"app": "work"},
}
SIZES = (5, 4, 3, 3, 3, 2)
"""Fill two racks of ten in one way only: tightest first puts the 4 beside the 5."""


def two_racks(c: Given, *sizes: int, queues: tuple[str, ...] = ("default",)) -> Given:
    """Two racks of ten GPUs, gangs of so many pods of one GPU that need a rack, oldest first."""
    for rack in ("r0", "r1"):
        c.nodes(10, gpus=1, rack=rack, prefix=rack)
    for number, pods in enumerate(sizes or SIZES):
        c.gang(
            f"g{number}",
            pods=pods,
            gpus=1,
            topology=IN_ONE_RACK,
            created=1_000.0 + number,
            queue=queues[number % len(queues)],
        )
    return c


def racks_of(c: Given) -> dict[str, set[str]]:
    """Racks of each gang that starts."""
    found: dict[str, set[str]] = {}
    for name, node in c.then.nodes().items():
        found.setdefault(name.split("-")[0], set()).add(node.split("-")[0])
    return found


def started(c: Given) -> set[str]:
    """Gangs that start, each in one rack."""
    racks = racks_of(c)
    assert all(len(each) == 1 for each in racks.values())
    return set(racks)


def test_gangs_that_start_together_make_way_for_the_last(given: Given) -> None:
    """One by one the gang of two would find no rack; all six start, each in one rack."""
    two_racks(given).when.one_session()
    assert started(given) == {f"g{number}" for number in range(6)}


def test_greedy_alone_leaves_it_out(given: Given) -> None:
    """With the solver switched off the gang of two waits, and is told why."""
    given.placement = PlacementConfig(solver="greedy")
    two_racks(given).when.one_session()
    assert started(given) == {f"g{number}" for number in range(5)}
    assert given.then.reason("g5") == "TopologyUnsatisfiable"


def test_the_session_says_that_it_searched(given: Given) -> None:
    """One record of a window, with how it ended."""
    two_racks(given).when.one_session()
    assert given.decision is not None
    assert [each.outcome for each in given.decision.searches if each.method == "window"] == [
        "optimal"
    ]


def test_nobody_starts_beyond_what_his_queue_may_have(given: Given) -> None:
    """The capability of its queue ends at 18 GPUs: the last gang waits for quota, nobody moves."""
    given.queue("capped", limits={"capability": {"nvidia.com/gpu": 18}})
    two_racks(given, queues=("capped",)).when.one_session()
    before = racks_of(given)
    assert set(before) == {f"g{number}" for number in range(5)}
    assert given.then.reason("g5") == "WaitingForQuota"
    given.placement = PlacementConfig(solver="greedy")
    given.when.one_session()
    assert racks_of(given) == before


def test_the_starts_of_another_queue_stay(given: Given) -> None:
    """Gangs of two queues take turns as without; all who started start, and the last one more."""
    for name in ("one", "two"):
        given.queue(name, limits={"deserved": {"nvidia.com/gpu": 10}})
    two_racks(given, queues=("one", "two"))
    given.placement = PlacementConfig(solver="greedy")
    given.when.one_session()
    alone = started(given)
    given.placement = PlacementConfig()
    given.when.one_session()
    assert alone < started(given)
    assert started(given) == {f"g{number}" for number in range(6)}


def test_hundreds_of_gangs_alike_ask_once(given: Given) -> None:
    """One window that finds room; one for the forty that cannot start, whoever moves."""
    two_racks(given, *SIZES, *[7] * 40).when.one_session()
    assert started(given) == {f"g{number}" for number in range(6)}
    assert given.decision is not None
    windows = [each for each in given.decision.searches if each.method == "window"]
    assert [str(each.outcome) for each in windows] == ["optimal", "infeasible"]


def test_a_gang_that_got_its_preferred_rack_keeps_one(given: Given) -> None:
    """A preference that was met is met elsewhere too, or the gang stays where it is."""
    for rack in ("r0", "r1"):
        given.nodes(10, gpus=1, rack=rack, prefix=rack)
    for number, pods in enumerate(SIZES):
        wish = IN_ONE_RACK if number in (1, 5) else TopologyRequest(preferred="rack")
        given.gang(f"g{number}", pods=pods, gpus=1, topology=wish, created=1_000.0 + number)
    given.when.one_session()
    assert started(given) == {f"g{number}" for number in range(6)}


def test_members_of_several_kinds_move_together(given: Given) -> None:
    """A driver without GPU goes where its workers go; all gangs start."""
    for rack in ("r0", "r1"):
        given.nodes(10, gpus=1, rack=rack, prefix=rack)
    for number, pods in enumerate(SIZES):
        name = f"g{number}"
        given.group(name, min_member=pods + 1, topology=IN_ONE_RACK, created=1_000.0 + number)
        given.pods(name, pods, group=name, gpus=1)
        given.pod(f"{name}-driver", group=name, cpu=1)
    given.when.one_session()
    assert started(given) == {f"g{number}" for number in range(6)}


def test_sub_groups_move_as_sub_groups(given: Given) -> None:
    """Each gang is one sub-group that needs a rack; none of them is torn."""
    for rack in ("r0", "r1"):
        given.nodes(10, gpus=1, rack=rack, prefix=rack)
    for number, pods in enumerate(SIZES):
        name = f"g{number}"
        given.group(
            name,
            min_member=pods,
            sub_groups=(SubGroup("all", pods, IN_ONE_RACK),),
            min_sub_groups=1,
            created=1_000.0 + number,
        )
        given.pods(name, pods, group=name, gpus=1, sub_group="all")
    given.when.one_session()
    assert started(given) == {f"g{number}" for number in range(6)}


def test_gangs_with_rules_between_their_pods_stay_where_they_are(given: Given) -> None:
    """Whoever keeps apart from itself is placed as ever, and the stranded gang waits."""
    for rack in ("r0", "r1"):
        given.nodes(10, gpus=1, rack=rack, prefix=rack)
    for number, pods in enumerate(SIZES):
        rules = APART if number != 5 else {}
        given.gang(
            f"g{number}",
            pods=pods,
            gpus=1,
            topology=IN_ONE_RACK,
            created=1_000.0 + number,
            **rules,
        )
    given.when.one_session()
    assert started(given) == {f"g{number}" for number in range(5)}


@pytest.mark.parametrize("seed", one_of(4, range(40)))
def test_in_the_order_of_turns_nobody_loses(seed: int) -> None:
    """The first gang whose start differs from that without joint starts is one that starts."""
    rng = random.Random(seed)
    c = Given()
    sizes = [rng.randint(1, 6) for _ in range(rng.randint(3, 8))]
    for rack in range(rng.randint(1, 3)):
        c.nodes(rng.randint(2, 5), gpus=rng.choice((1, 2, 4)), rack=f"r{rack}", prefix=f"r{rack}")
    for number, pods in enumerate(sizes):
        c.gang(
            f"g{number}",
            pods=pods,
            gpus=rng.choice((1, 1, 2)),
            topology=rng.choice(
                (IN_ONE_RACK, NO_TOPOLOGY_REQUEST, TopologyRequest(preferred="rack"))
            ),
            created=1_000.0 + number,
        )
    c.placement = PlacementConfig(solver="greedy")
    c.when.one_session()
    alone = [f"g{number}" in racks_of(c) for number in range(len(sizes))]
    c.placement = PlacementConfig()
    plan = c.when.one_session()
    together = [f"g{number}" in racks_of(c) for number in range(len(sizes))]
    assert together >= alone
    assert invariants.check(c.objects(), now=c.now) == []
    again = c.when.one_session()
    assert again.plan_id == plan.plan_id
