"""Gangs that grow: around members that run, beside other gangs, in order of their ranks."""

from __future__ import annotations

import random
from itertools import pairwise

import attrs
import pytest

from gpusched.api.gang.pod_group import SubGroup, TopologyRequest
from gpusched.api.pod.pod import PodPhase
from gpusched.testing.entities import NOW
from gpusched.testing.given import Given
from tests.placement.whole.clusters import cluster, elastic, judged, places_of, rules_of
from tests.placement.whole.oracle import Kind, Question, best
from tests.populations import one_of

CLUSTERS = 40


def racks(c: Given, blocks: list[list[int]], *, gpus: int = 8) -> Given:
    """Blocks of racks with so many free nodes each; node names tell block and rack."""
    for block, counts in enumerate(blocks):
        for rack, count in enumerate(counts):
            labels = {"gpusched.io/block": f"b{block}", "gpusched.io/rack": f"b{block}r{rack}"}
            c.nodes(count, prefix=f"b{block}-r{rack}", gpus=gpus, labels=labels)
    return c


def rack_of(node: str) -> str:
    """Block and rack of a node by its name."""
    return node.rsplit("-", 1)[0]


def proof(c: Given) -> str:
    """What the pods bound in the last session say."""
    (bind,) = c.then.plan.binds
    return bind.proof


def test_all_of_an_elastic_gang_go_to_the_rack_that_holds_them(given: Given) -> None:
    """The tightest rack for the minimum is left for the one that holds all."""
    c = racks(given, [[1], [2], [4]]).gang("g", pods=8, min_member=2, gpus=4)
    c.when.bound()
    assert {rack_of(node) for node in c.then.nodes().values()} == {"b2-r0"}
    assert proof(c) == "optimal"


def test_ranks_of_an_elastic_gang_are_contiguous(given: Given) -> None:
    """Neighbours share a rack: along the ranks it changes once for each further rack."""
    c = racks(given, [[2, 3, 2]]).gang("g", pods=7, min_member=2, gpus=8)
    c.when.bound()
    nodes = c.then.nodes()
    order = [rack_of(nodes[f"g-{rank}"]) for rank in range(7)]
    assert sum(a != b for a, b in pairwise(order)) == 2


def test_the_proof_says_of_how_many_it_speaks(given: Given) -> None:
    """Five of eight fit; those who come later say beside how many they are the best."""
    c = racks(given, [[5]]).gang("g", pods=8, min_member=2, gpus=8)
    c.when.bound()
    assert proof(c) == "optimal for 5 pods"
    racks(c, [[0], [1, 2]])
    c.when.bound()
    assert proof(c) == "optimal for 3 pods beside 5"
    c.when.one_session()
    assert c.then.why("g") == (
        "8 pods placed, 2 needed, no more compact place existed for 5 pods and 3 pods beside 5"
    )


def test_growth_prefers_the_domains_that_run_members(given: Given) -> None:
    """Two more go to the rack of the two that run, not to the tighter one in another block."""
    c = racks(given, [[4], [2]])
    c.group("g", queue="default", min_member=2, phase="Running")
    for number in range(2):
        c.pod(f"g-{number}", group="g", rank=number, gpus=8, node=f"b0-r0-{number}", slots=255,
              plan="p", phase=PodPhase.RUNNING, scheduled=NOW)  # fmt: skip
    for number in range(2, 4):
        c.pod(f"g-{number}", group="g", rank=number, gpus=8)
    c.when.bound()
    assert {rack_of(node) for node in c.then.nodes().values()} == {"b0-r0"}
    assert proof(c) == "optimal for 2 pods beside 2"


def test_a_replaced_member_claims_nothing_of_the_others(given: Given) -> None:
    """Two of three run in two racks: the third is the best beside them, and says so."""
    c = racks(given, [[2], [1]])
    c.group("g", queue="default", min_member=3, phase="Running")
    for number, node in enumerate(("b0-r0-0", "b1-r0-2")):
        c.pod(f"g-{number}", group="g", rank=number, gpus=8, node=node, slots=255,
              plan="p", phase=PodPhase.RUNNING, scheduled=NOW)  # fmt: skip
    c.pod("g-2", group="g", rank=2, gpus=8)
    c.when.bound()
    assert c.then.nodes() == {"g-2": "b0-r0-1"}
    assert proof(c) == "optimal for 1 pod beside 2"


def test_ranks_go_on_where_the_last_one_runs(given: Given) -> None:
    """Ranks 0 and 1 run in two racks: 2 goes beside 1, in whichever order racks are named."""
    c = racks(given, [[1, 0], [2, 0]])
    c.node("b0-r1-x", gpus=8, labels={"gpusched.io/block": "b0", "gpusched.io/rack": "b0r0"})
    c.group("g", queue="default", min_member=2, phase="Running")
    for number, node in enumerate(("b0-r0-0", "b1-r0-1")):
        c.pod(f"g-{number}", group="g", rank=number, gpus=8, node=node, slots=255,
              plan="p", phase=PodPhase.RUNNING, scheduled=NOW)  # fmt: skip
    for number in range(2, 4):
        c.pod(f"g-{number}", group="g", rank=number, gpus=8)
    c.when.bound()
    assert c.then.nodes() == {"g-2": "b1-r0-2", "g-3": "b0-r1-x"}


def test_quota_bounds_an_elastic_gang(given: Given) -> None:
    """Four may run: the most compact four, and why the others wait."""
    c = racks(given, [[1], [2], [4]])
    c.queue("small", limits={"capability": {"nvidia.com/gpu": 16}})
    c.gang("g", pods=8, min_member=2, gpus=4, queue="small")
    c.when.bound()
    assert len(c.then.nodes()) == 4
    assert {rack_of(node) for node in c.then.nodes().values()} == {"b1-r0"}
    assert proof(c) == "optimal for 4 pods"
    c.when.one_session()
    assert "queue small holds 16" in str(c.then.status("g").pending_reason)


def test_two_gangs_grow_in_turn_and_both_are_compact(given: Given) -> None:
    """Each gets half, and each half is in as few racks as there may be."""
    c = racks(given, [[4], [4]])
    for name in ("a", "b"):
        c.gang(name, pods=16, min_member=2, gpus=4)
    c.when.bound()
    for name in ("a", "b"):
        mine = [node for pod, node in c.then.nodes().items() if pod.startswith(name)]
        assert len(mine) == 8
        assert len({rack_of(node) for node in mine}) == 1


def test_elastic_sub_groups_keep_their_racks(given: Given) -> None:
    """Further members of a sub-group come to its required rack."""
    c = racks(given, [[2, 2, 4]])
    parts = (
        SubGroup("x", 1, TopologyRequest(required="rack")),
        SubGroup("y", 1, TopologyRequest(required="rack")),
    )
    c.group("g", queue="default", min_member=2, sub_groups=parts, min_sub_groups=2)
    for name in ("x", "y"):
        c.pods(name, 3, group="g", sub_group=name, gpus=8)
    c.when.bound()
    nodes = c.then.nodes()
    assert len(nodes) == 5
    for name in ("x", "y"):
        assert len({rack_of(node) for pod, node in nodes.items() if pod.startswith(name)}) == 1


@pytest.mark.long
def test_growth_around_running_members_is_the_best_there_is() -> None:
    """Random clusters: a gang starts, more pods come, and they go where the oracle puts them."""
    found = []
    for seed in one_of(3, range(CLUSTERS)):
        asked = elastic(random.Random(f"growth-{seed}"))
        first = attrs.evolve(asked.kinds[0], pods=asked.least)
        c = cluster(attrs.evolve(asked, kinds=(first,)))
        c.when.bound()
        before = places_of(asked, c)
        if not before:
            continue
        add_later(c, asked, more=4)
        c.when.bound()
        wrong = complaint(asked, before, c)
        if wrong:
            found.append(f"seed {seed}: {wrong}")
    assert found == []


def add_later(c: Given, asked: Question, *, more: int) -> None:
    """So many more pods of the gang."""
    kind = asked.kinds[0]
    rules = rules_of(asked, by_affinity=False)
    for number in range(kind.pods, kind.pods + more):
        c.pod(f"g-0-{number}", group="g", rank=number, role="role-0", gpus=kind.gpus,
              cpu=kind.cpu * 1000, memory=0, labels={"app": "gang"}, **rules)  # fmt: skip


def complaint(asked: Question, before: list, c: Given) -> str:
    """What is wrong with what joined the members of before."""
    kind = asked.kinds[0]
    running: dict[int, int] = {}
    left = list(asked.machines)
    for _, number in before:
        running[number] = running.get(number, 0) + 1
        machine = left[number]
        left[number] = attrs.evolve(
            machine, gpus=machine.gpus - kind.gpus, cpu=machine.cpu - kind.cpu
        )
    rest = attrs.evolve(
        asked, machines=tuple(left), running=running, least=0,
        kinds=(Kind(4, kind.gpus, kind.cpu),),
    )  # fmt: skip
    places = places_of(rest, c)
    possible = best(rest)
    if not places:
        return (
            "" if possible is None or possible[0] == 4 else f"nobody joined, {possible} is possible"
        )
    return judged(rest, places, possible, 6)


def test_an_elastic_gang_goes_to_the_type_that_holds_all(given: Given) -> None:
    """Both types are as good: the one with room for all eight, though the minimum fits both."""
    for number in range(6):
        product = "NVIDIA-H100" if number < 1 else "NVIDIA-A100"
        labels = {"nvidia.com/gpu.product": product, "gpusched.io/rack": f"r{number}"}
        given.node(f"n{number}", gpus=8, labels=labels)
    c = given.gang("g", pods=8, min_member=2, gpus=4)
    c.when.bound()
    assert len(c.then.nodes()) == 8
    assert "n0" not in c.then.nodes().values()
    assert proof(c) == "optimal"
