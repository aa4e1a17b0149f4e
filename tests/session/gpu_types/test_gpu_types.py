"""Which types of GPUs gangs get, and what they are told where there is none."""

from __future__ import annotations

import attrs
import pytest

from gpusched.api.devices.gpu_types import GpuTypeRequest
from gpusched.api.pod.pod import PodPhase
from gpusched.config.model import DEFAULT, Config, PluginChoice, PluginTier
from gpusched.testing.entities import NOW
from gpusched.testing.given import Given

A100 = "NVIDIA-A100-SXM4-80GB"
H100 = "NVIDIA-H100-80GB-HBM3"
PRODUCT = "nvidia.com/gpu.product"
ONE_TYPE = GpuTypeRequest(same_type=True)


def speeds(**by_type: int) -> GpuTypeRequest:
    """A request with these speeds, in thousandths."""
    return GpuTypeRequest(speeds=tuple(sorted(by_type.items())))


def with_topology(**arguments: str) -> Config:
    """The shipped configuration, the plugin ``topology`` with other arguments."""
    tiers = tuple(
        PluginTier(
            tuple(
                PluginChoice("topology", arguments) if each.name == "topology" else each
                for each in tier.plugins
            )
        )
        for tier in DEFAULT.tiers
    )
    return attrs.evolve(DEFAULT, tiers=tiers)


def two_types(a100: int, h100: int, *, config: Config = DEFAULT) -> Given:
    """So many nodes of eight GPUs of each type, in one rack, so that compactness does not tell them apart."""
    c = Given(config=config)
    c.nodes(a100, prefix="a", rack="r", gpus=8, labels={PRODUCT: A100})
    return c.nodes(h100, prefix="h", rack="r", gpus=8, labels={PRODUCT: H100})


def gang(c: Given, name: str, pods: int, request: GpuTypeRequest | None = None, **spec) -> Given:
    """A gang of whole-node pods with a request about types, the later the younger."""
    wish = {} if request is None else {"gpu_types": request}
    least = spec.pop("min_member", pods)
    c.group(name, min_member=least, created=1_000.0 + len(c.cache.groups.items), **wish)
    return c.pods(name, pods, group=name, gpus=spec.pop("gpus", 8), **spec)


def kinds(c: Given, name: str) -> set[str]:
    """First letters of the nodes that a gang's pods got: its types."""
    return {node[0] for pod, node in c.then.nodes().items() if pod.startswith(f"{name}-")}


# -- without a word ------------------------------------------------------------------------------
def test_a_gang_without_a_word_is_not_mixed_by_chance():
    """Three of each type: two racks' worth of best fit would take some of both."""
    c = gang(two_types(3, 3), "g", 3)
    c.node("a-9", gpus=8, labels={PRODUCT: A100}).pod("x", gpus=8, node="a-0", queue="default")
    c.when.one_session()
    assert len(kinds(c, "g")) == 1


def test_it_is_mixed_where_no_type_has_room():
    c = gang(two_types(2, 2), "g", 3)
    c.when.one_session()
    assert kinds(c, "g") == {"a", "h"}


def test_fewer_types_come_before_fewer_racks():
    """One rack holds it on two types, two racks on one."""
    c = Given()
    for name, kind, rack in (("a1", A100, "r1"), ("h1", H100, "r1"), ("h2", H100, "r2")):
        c.node(name, gpus=8, labels={PRODUCT: kind, "gpusched.io/rack": rack})
    gang(c, "g", 2).when.one_session()
    assert set(c.then.nodes().values()) == {"h1", "h2"}


def test_mixing_freely_is_an_argument():
    c = Given(config=with_topology(mixGpuTypes="freely"))
    for name, kind, rack in (("a1", A100, "r1"), ("h1", H100, "r1"), ("h2", H100, "r2")):
        c.node(name, gpus=8, labels={PRODUCT: kind, "gpusched.io/rack": rack})
    gang(c, "g", 2).when.one_session()
    assert set(c.then.nodes().values()) == {"a1", "h1"}


def test_a_gang_may_say_that_types_are_all_the_same_to_it():
    c = Given()
    for name, kind, rack in (("a1", A100, "r1"), ("h1", H100, "r1"), ("h2", H100, "r2")):
        c.node(name, gpus=8, labels={PRODUCT: kind, "gpusched.io/rack": rack})
    gang(c, "g", 2, GpuTypeRequest(same_type=False)).when.one_session()
    assert set(c.then.nodes().values()) == {"a1", "h1"}


def test_pods_without_gpus_may_be_anywhere():
    """The launcher sits on a node of the other type, the only one with CPUs left."""
    c = Given()
    c.node("a1", gpus=8, cpu=9_000, labels={PRODUCT: A100})
    c.node("h1", gpus=8, cpu=64_000, labels={PRODUCT: H100})
    c.group("g", min_member=2, gpu_types=speeds(a100=1_000))
    c.pod("g-0", group="g", gpus=8, cpu=8_000).pod("g-1", group="g", cpu=4_000)
    c.when.one_session()
    assert c.then.nodes() == {"g-0": "a1", "g-1": "h1"}


# -- sameType -----------------------------------------------------------------------------------
def test_a_gang_that_must_be_of_one_type_waits_and_says_what_each_has():
    c = gang(two_types(2, 2), "g", 3, ONE_TYPE)
    c.when.one_session()
    assert not c.then.nodes()
    assert "gpuTypes.sameType" in c.then.why("g")
    assert A100 in c.then.why("g")
    assert H100 in c.then.why("g")


def test_node_selectors_that_forbid_one_type_are_told_as_such():
    """Half of the members select H100, the other half A100; nobody else is held up."""
    c = two_types(3, 3)
    c.group("g", min_member=2, gpu_types=ONE_TYPE)
    c.pod("g-0", group="g", gpus=8, role="actor", node_selector={PRODUCT: A100})
    c.pod("g-1", group="g", gpus=8, role="learner", node_selector={PRODUCT: H100})
    gang(c, "other", 2).when.one_session()
    assert c.then.reason("g") == "InvalidSpec"
    assert "node selectors admit no GPU type to all 2 pods" in c.then.why("g")
    assert "role actor may run on NVIDIA-A100" in c.then.why("g")
    assert c.then.started() == ["other"]


def test_a_lost_member_is_replaced_on_the_type_of_the_others():
    c = gang(two_types(3, 3), "g", 3, ONE_TYPE)
    c.when.bound()
    first = kinds(c, "g")
    for pod, node in c.then.nodes().items():
        c.pod(pod, group="g", gpus=8, node=node, phase=PodPhase.RUNNING, scheduled=NOW - 5.0)
    c.gone("g-2").pod("g-3", group="g", gpus=8)
    c.when.one_session()
    assert {node[0] for node in c.then.nodes().values()} == first


def test_extras_join_on_the_type_of_the_members():
    """Two of each type are free; the gang of four needs two, and the others wait."""
    c = gang(two_types(2, 3), "g", 5, min_member=2)
    c.when.bound()
    assert len(kinds(c, "g")) == 1


# -- speeds ---------------------------------------------------------------------------------------
def test_the_fastest_type_with_room_is_taken():
    c = gang(two_types(2, 2), "g", 2, speeds(h100=1_000, a100=450))
    c.when.one_session()
    assert kinds(c, "g") == {"h"}
    full = gang(two_types(2, 1), "g", 2, speeds(h100=1_000, a100=450))
    full.when.one_session()
    assert kinds(full, "g") == {"a"}


def test_types_that_are_not_named_are_not_taken():
    c = gang(two_types(4, 1), "g", 2, speeds(h100=1_000))
    c.when.one_session()
    assert not c.then.nodes()
    assert "GPUs of another type" in c.then.why("g")


def test_who_gains_little_leaves_the_fast_type_to_who_gains_much():
    """The first gang is 10 % slower on A100, the second less than half as fast."""
    c = two_types(2, 2)
    gang(c, "little", 2, speeds(h100=1_000, a100=900))
    gang(c, "much", 2, speeds(h100=1_000, a100=400))
    c.when.one_session()
    assert (kinds(c, "little"), kinds(c, "much")) == ({"a"}, {"h"})


def test_gangs_that_run_count_as_well():
    """Two gangs that gain much would fill the H100s: the next one that gains little takes A100s."""
    c = two_types(4, 4)
    fast = speeds(h100=1_000, a100=400)
    running(c, "much", ["h-4", "h-5"], gpu_types=fast)
    running(c, "late", ["a-0", "a-1"], gpu_types=fast)
    gang(c, "little", 2, speeds(h100=1_000, a100=900))
    c.when.one_session()
    assert kinds(c, "little") == {"a"}


def test_first_come_takes_its_fastest_where_that_is_asked_for():
    c = two_types(2, 2, config=with_topology(fastGpus="firstCome"))
    gang(c, "little", 2, speeds(h100=1_000, a100=900))
    gang(c, "much", 2, speeds(h100=1_000, a100=400))
    c.when.one_session()
    assert (kinds(c, "little"), kinds(c, "much")) == ({"h"}, {"a"})


def test_alone_it_takes_the_fast_type_however_little_it_gains():
    c = gang(two_types(2, 2), "little", 2, speeds(h100=1_000, a100=990))
    c.when.one_session()
    assert kinds(c, "little") == {"h"}


def test_a_gang_that_selects_the_fast_type_gets_it_left():
    c = two_types(2, 2)
    gang(c, "any", 2)
    gang(c, "picky", 2, node_selector={PRODUCT: H100})
    c.when.one_session()
    assert (kinds(c, "any"), kinds(c, "picky")) == ({"a"}, {"h"})


def test_nobody_loses_a_start_for_the_speed_of_others():
    """Only H100 are free: the first takes them, though the second would gain more by them."""
    c = two_types(0, 2)
    gang(c, "little", 2, speeds(h100=1_000, a100=900))
    gang(c, "much", 2, speeds(h100=1_000, a100=400))
    c.when.one_session()
    assert c.then.started() == ["little"]


def test_the_status_tells_the_type_where_there_are_several():
    c = gang(two_types(2, 2), "g", 2, speeds(h100=1_000))
    c.when.bound()
    c.when.one_session()
    assert dict(c.then.status("g").placement)["gpuType"] == H100
    alone = gang(two_types(0, 2), "g", 2)
    alone.when.bound()
    alone.when.one_session()
    assert "gpuType" not in dict(alone.then.status("g").placement)


# -- bad input ------------------------------------------------------------------------------------
def test_speeds_of_types_that_no_node_has_are_told():
    c = two_types(3, 3)
    gang(c, "g", 2, speeds(b200=1_000))
    gang(c, "other", 2)
    c.when.one_session()
    assert c.then.reason("g") == "NoFeasibleNode"
    assert "no node has a GPU type that gpuTypes.speeds names (b200)" in c.then.why("g")
    assert A100 in c.then.why("g")
    assert c.then.started() == ["other"]


def test_one_unknown_type_among_known_ones_is_a_warning():
    c = gang(two_types(3, 3), "g", 2, speeds(b200=2_000, h100=1_000))
    c.when.one_session()
    assert kinds(c, "g") == {"h"}
    c.when.bound()
    c.when.one_session()
    assert "gpuTypes.speeds names b200, which no node has" in c.then.status("g").admitted.message


def test_selectors_that_admit_none_of_the_named_types_are_told():
    c = two_types(3, 3)
    gang(c, "g", 2, speeds(h100=1_000), node_selector={PRODUCT: A100})
    c.when.one_session()
    assert c.then.reason("g") == "InvalidSpec"
    assert "node selectors admit no GPU type that it takes (h100)" in c.then.why("g")


@pytest.mark.parametrize("request_", [ONE_TYPE, speeds(h100=1_000)])
def test_a_cluster_without_gpus_says_so(request_: GpuTypeRequest):
    c = Given().nodes(2, gpus=0)
    gang(c, "g", 2, request_).when.one_session()
    assert not c.then.nodes()
    assert c.then.reason("g") in {"NoFeasibleNode", "InsufficientResources"}


# -- what stays as it was -------------------------------------------------------------------------
def test_one_type_costs_nothing_more():
    """Where all GPUs are of one type, a gang without a word is searched for once, as before."""
    c = gang(two_types(0, 4), "g", 3)
    c.when.one_session()
    assert c.decision is not None
    assert len(c.decision.searches) == 1
    (bind,) = c.then.plan.binds
    assert bind.proof == "optimal"


# -- how long it takes, and room that is still to be freed ------------------------------------------
def running(c: Given, name: str, nodes: list[str], *, priority: int = 0, **group) -> Given:
    """A gang of whole-node pods that runs on these nodes since the beginning."""
    c.group(name, min_member=len(nodes), created=900.0, **group)
    for number, node in enumerate(nodes):
        c.pod(
            f"{name}-{number}", group=name, gpus=8, node=node, priority=priority,
            phase=PodPhase.RUNNING, scheduled=NOW - 60.0,
        )  # fmt: skip
    return c


@pytest.mark.parametrize(("kind", "seconds"), [("a", 2_000), ("h", 1_000)])
def test_a_gang_on_a_slower_type_is_expected_to_take_longer(kind: str, seconds: int):
    """The next one is told to start when it ends: the time at speed 1, divided by its speed."""
    c = two_types(*((1, 0) if kind == "a" else (0, 1)))
    request = speeds(h100=1_000, a100=500)
    running(c, "old", [f"{kind}-0"], gpu_types=request, expected_duration_ns=1_000 * 10**9)
    gang(c, "new", 1)
    c.when.one_session()
    assert c.then.status("new").estimated_start == NOW - 60.0 + seconds


def test_room_is_made_on_one_type_for_a_gang_that_must_be_of_one():
    """The cheapest two victims are of both types; those that leave are of one."""
    c = two_types(2, 2)
    for number, (node, priority) in enumerate((("a-0", 1), ("a-1", 2), ("h-2", 1), ("h-3", 3))):
        running(c, f"old{number}", [node], priority=priority)
    c.priority_class("high", 10)
    c.group("g", min_member=2, created=1_000.0, gpu_types=ONE_TYPE)
    c.pods("g", 2, group="g", gpus=8, priority=10)
    c.when.one_session()
    assert c.then.evicted() in (["old0-0", "old1-0"], ["old2-0", "old3-0"])


def test_nobody_leaves_a_type_that_the_gang_does_not_take():
    c = two_types(1, 1)
    running(c, "a100s", ["a-0"])
    running(c, "h100s", ["h-1"], priority=5)
    c.group("g", min_member=1, created=1_000.0, gpu_types=speeds(h100=1_000))
    c.pods("g", 1, group="g", gpus=8, priority=10)
    c.when.one_session()
    assert c.then.evicted() == ["h100s-0"]


def test_a_gang_with_speeds_waits_for_one_type_rather_than_to_be_mixed():
    """Two nodes of each are free, three would hold it when they are: of both it would be as slow as on A100."""
    c = two_types(2, 3)
    running(c, "x", ["h-2"])
    gang(c, "g", 3, speeds(h100=1_000, a100=500))
    c.when.one_session()
    assert not c.then.nodes()
    assert "gpuTypes.speeds, no one type has room for it" in c.then.why("g")


def test_it_is_mixed_where_no_type_has_as_many_gpus():
    c = gang(two_types(2, 2), "g", 3, speeds(h100=1_000, a100=500))
    c.when.one_session()
    assert kinds(c, "g") == {"a", "h"}
