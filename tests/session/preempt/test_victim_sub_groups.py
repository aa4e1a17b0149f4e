"""Gangs in parts that give room: members above a part's minimum, then parts that are not needed."""

from __future__ import annotations

import pytest

from gpusched.api.devices.gpu_share import GpuShare
from gpusched.api.gang.pod_group import SubGroup, TopologyRequest
from gpusched.api.pod.pod import PodPhase


@pytest.fixture
def running(given):
    """Fills a node of ten GPUs with a gang of parts, one GPU a member."""

    def fill(parts, *, least, minima=2, min_member=1, **more):
        given.node("n1", gpus=10)
        given.group(
            "v",
            min_member=min_member,
            phase="Running",
            sub_groups=tuple(SubGroup(part, minima, TopologyRequest()) for part in sorted(parts)),
            min_sub_groups=least,
            **more,
        )
        slot = 0
        for part, count in sorted(parts.items()):
            for number in range(count):
                given.pod(
                    f"v-{part}-{number}", group="v", sub_group=part, gpus=1, node="n1", plan="p",
                    slots=1 << slot, rank=slot, phase=PodPhase.RUNNING,
                )  # fmt: skip
                slot += 1
        if slot < 10:
            given.group("rest", min_member=1, preemptible=False, phase="Running")
            given.pod(
                "rest-0", group="rest", gpus=10 - slot, node="n1", plan="p",
                slots=((1 << (10 - slot)) - 1) << slot, phase=PodPhase.RUNNING,
            )  # fmt: skip
        return given

    return fill


def gone(c, pods, **claimant):
    """Names of the members that leave for so many pods, without the gang's name."""
    c.gang(
        "p", pods=pods, priority=9, **({"gpus": 1} if "share" not in claimant else {}), **claimant
    )
    c.when.one_session()
    return [name.removeprefix("v-") for name in c.then.evicted()]


def test_members_above_a_parts_minimum_go_first(running):
    """One of the part of three goes, no part breaks."""
    assert gone(running({"a": 2, "b": 3}, least=2), 1) == ["b-2"]


def test_a_part_that_is_not_needed_goes_as_a_whole(running):
    """Scenario 19: two members of one part, not one of each."""
    assert gone(running({"a": 2, "b": 2}, least=1), 2) in (["a-0", "a-1"], ["b-0", "b-1"])


def test_one_pod_costs_a_whole_part_where_nobody_is_spare(running):
    """Half a part is of no use to anybody: at least its evicted half is not alone."""
    assert gone(running({"a": 2, "b": 2}, least=1), 1) in (["a-0", "a-1"], ["b-0", "b-1"])


def test_only_so_many_parts_go_as_others_stand_in_for(running):
    """Of three parts two must stay: the claim for four ends the gang, the claim for two does not."""
    assert len(gone(running({"a": 2, "b": 2, "c": 2}, least=2), 2)) == 2


def test_a_claim_for_more_ends_the_gang(running):
    """Where the spare parts do not suffice, everybody goes."""
    assert len(gone(running({"a": 2, "b": 2, "c": 2}, least=2), 3)) == 6


def test_the_gangs_own_minimum_holds_too(running):
    """A part may be spare and the members still be needed: then the gang ends as a whole."""
    assert len(gone(running({"a": 2, "b": 2}, least=1, min_member=3), 2)) == 4


def test_a_part_that_is_incomplete_anyway_goes_first(running):
    """One member of a part of two runs: it is of no use, and the other parts suffice."""
    assert gone(running({"a": 2, "b": 1, "c": 2}, least=2), 1) == ["b-0"]


def test_two_kinds_of_pods_find_the_same_victims(running):
    """Found by trial as well: spare members, then one whole part."""
    c = running({"a": 2, "b": 3}, least=1)
    c.group("p", min_member=3)
    c.pods("p-small", 1, group="p", gpus=1, priority=9)
    c.pods("p-large", 1, group="p", gpus=2, priority=9)
    c.group("p", min_member=2)
    c.when.one_session()
    left = {name[2] for name in c.then.evicted()}
    assert len(c.then.evicted()) == 3
    assert "b" in left


def test_the_gangs_own_minimum_holds_for_shares_of_gpus_too(running):
    """Found by trial: a part of two is more than the one member that the gang can spare."""
    share = GpuShare(600)
    assert len(gone(running({"a": 2, "b": 2}, least=1, min_member=3), 2, share=share)) == 4


def test_a_group_that_leaves_as_a_whole_has_no_spare_parts(running):
    """``disruption: Group``: all of it, whatever its parts."""
    assert len(gone(running({"a": 2, "b": 2}, least=1, disruption="Group"), 1)) == 4


def slices(c, count, *, least, priority=0):
    """A running gang of slices of two leaves of one pod each on ten GPUs."""
    parts = []
    for n in range(count):
        parts.append(SubGroup(f"s{n}", 0, TopologyRequest(), min_sub_groups=2))
        parts += [SubGroup(f"s{n}{part}", 1, TopologyRequest(), f"s{n}") for part in "ab"]
    c.node("n1", gpus=2 * count)
    c.group("v", min_member=1, phase="Running", sub_groups=tuple(parts), min_sub_groups=least)
    for slot, part in enumerate(f"s{n}{part}" for n in range(count) for part in "ab"):
        c.pod(
            f"v-{part}", group="v", sub_group=part, gpus=1, node="n1", plan="p",
            slots=1 << slot, rank=slot, phase=PodPhase.RUNNING,
        )  # fmt: skip
    return c


def test_a_slice_of_sub_groups_that_is_not_needed_goes_as_a_whole(given):
    """Two of three slices are needed: for one GPU both leaves of one slice leave."""
    assert sorted(gone(slices(given, 3, least=2), 1)) == ["s2a", "s2b"]


def test_where_all_slices_are_needed_the_gang_ends_as_a_whole(given):
    """Nothing of it can be spared."""
    assert len(gone(slices(given, 3, least=3), 1)) == 6


def test_a_gang_with_sub_groups_in_sub_groups_gets_its_room(given):
    """Its slices need a rack each in one zone: pods leave there, and only there."""
    for zone, racks in (("z0", ("a", "b")), ("z1", ("c",))):
        for rack in racks:
            labels = {"topology.kubernetes.io/zone": zone, "gpusched.io/rack": rack}
            given.node(rack, gpus=2, labels=labels)
    for rack in "abc":
        for slot in range(2):
            given.group(f"v{rack}{slot}", min_member=1, phase="Running")
            given.pod(
                f"v{rack}{slot}", group=f"v{rack}{slot}", gpus=1, node=rack, plan="p",
                slots=1 << slot, phase=PodPhase.RUNNING,
            )  # fmt: skip
    given.priority_class("high", 9)
    parts = [SubGroup("all", 0, TopologyRequest("zone"), min_sub_groups=2)]
    parts += [SubGroup(f"s{n}", 2, TopologyRequest("rack"), "all") for n in range(2)]
    given.group("g", min_member=4, sub_groups=tuple(parts), min_sub_groups=1, priority_class="high")
    for n in range(2):
        given.pods(f"g-s{n}", 2, group="g", sub_group=f"s{n}", gpus=1)
    given.when.one_session()
    assert sorted(given.then.evicted()) == ["va0", "va1", "vb0", "vb1"]
