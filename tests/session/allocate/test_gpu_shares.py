"""Shares of GPUs in sessions: packed, charged, promised, and never more than a GPU holds."""

from __future__ import annotations

import random

import pytest

from gpusched.api.devices.gpu_share import GpuShare
from gpusched.api.gang.pod_group import TopologyRequest
from gpusched.api.pod.pod import GangAnnotations
from gpusched.session.state.session import Session
from gpusched.testing import entities
from gpusched.testing.api_objects import api_objects
from gpusched.testing.entities import GIB, GPU, NOW
from gpusched.testing.given import Given
from gpusched.testing.invariants import check
from tests.populations import one_of

pytestmark = pytest.mark.long

HALF, QUARTER = GpuShare(500), GpuShare(250)
MEMORY = "nvidia.com/gpu.memory"


def sound(c):
    """Nothing is wrong with rooms and slots as the API would show them; members may be gone."""
    return [each for each in check(api_objects(c.cache)) if not each.startswith("I3")] == []


def on(c, name, node, slot, share, **about):
    """A pod with a share that has its place."""
    about = {"plan": "p", "scheduled": NOW - 60, **about}
    return c.pod(name, node=node, slots=1 << slot, share=share, **about)


# -- packing -----------------------------------------------------------------------------------
def test_shares_are_packed_on_as_few_gpus_as_possible(given):
    """Five quarters are on two GPUs of one node, and the other node stays whole."""
    c = given.nodes(2, gpus=4)
    c.gang("a", pods=5, share=QUARTER, created=1.0).gang("w", pods=1, gpus=4, created=2.0)
    c.when.carried_out()
    assert c.then.started() == ["a", "w"]
    assert sorted(slots for name, slots in c.then.slots().items() if name != "w-0") == [
        (0,), (0,), (0,), (0,), (1,),
    ]  # fmt: skip
    assert len({node for name, node in c.then.nodes().items() if name != "w-0"}) == 1
    assert sound(c)


def test_a_share_joins_the_fullest_gpu_of_the_cluster(given):
    """A quarter goes where three are, and not to a fuller node with a GPU at one quarter."""
    c = given.nodes(3, gpus=2)
    on(c, "one", "node-0", 0, QUARTER)
    c.pod("whole", node="node-0", slots=2, gpus=1, plan="p")
    for number in range(3):
        on(c, f"three-{number}", "node-2", 1, QUARTER)
    c.gang("g", pods=1, share=QUARTER)
    c.when.carried_out()
    assert (c.then.nodes()["g-0"], c.then.slots()["g-0"]) == ("node-2", (1,))
    assert sound(c)


def test_a_share_in_one_rack_joins_a_gpu_of_a_node_without_a_free_one(given):
    """Both GPUs of the only node have pods; a quarter that requires one rack has room beside."""
    c = given.nodes(1, gpus=2, rack="r")
    on(c, "half", "node-0", 0, HALF)
    c.pod("whole", node="node-0", slots=2, gpus=1, plan="p")
    c.gang("g", pods=2, share=QUARTER, topology=TopologyRequest(required="rack"))
    c.when.carried_out()
    assert c.then.started() == ["g"]
    assert sorted(slots for name, slots in c.then.slots().items() if name[0] == "g") == [
        (0,), (0,),
    ]  # fmt: skip
    assert sound(c)


def test_a_share_joins_no_gpu_of_a_node_whose_gpus_are_overcommitted():
    """Another scheduler's pod took GPUs that ours hold: which GPUs it uses nobody can know."""
    c = Given().nodes(1, gpus=2)
    on(c, "half", "node-0", 0, HALF)
    c.pod("theirs", node="node-0", gpus=2, scheduler="default-scheduler")
    c.gang("g", pods=1, share=QUARTER)
    c.when.one_session()
    assert c.then.started() == []
    c.node("node-1", gpus=1)
    c.when.carried_out()
    assert c.then.nodes() == {"g-0": "node-1"}


def test_a_shared_gpu_is_not_free_for_whole_ones(given):
    """Two GPUs, a tenth of one is taken: no pod with two whole GPUs starts, one with one does."""
    c = given.nodes(1, gpus=2)
    on(c, "tenth", "node-0", 0, GpuShare(100))
    c.gang("two", pods=1, gpus=2, created=1.0).gang("one", pods=1, gpus=1, created=2.0)
    c.when.carried_out()
    assert c.then.started() == ["one"]
    assert c.then.slots() == {"one-0": (1,)}
    assert sound(c)


def test_a_new_gpu_is_the_one_that_breaks_least(given):
    """Of two islands the broken one gives the GPU that is to be shared."""
    c = given.node("n", gpus=8, layout=((0, 1, 2, 3), (4, 5, 6, 7)))
    c.pod("whole", node="n", slots=0b1110000, gpus=3, plan="p")
    c.gang("g", pods=1, share=HALF)
    c.when.one_session()
    assert c.then.slots() == {"g-0": (7,)}


def test_gangs_start_whole_or_not_at_all(given):
    """Four GPUs hold four shares of 0.6 and not five; the sentence says what is missing."""
    c = given.nodes(2, gpus=2).gang("g", pods=5, share=GpuShare(600))
    c.when.one_session()
    assert c.then.started() == []
    assert c.then.reason("g") == "InsufficientResources"
    assert "needs 5 pods with 0.6 nvidia.com/gpu" in c.then.why("g")
    assert "4" in c.then.why("g")
    c.gang("h", pods=4, share=GpuShare(600))
    c.when.carried_out()
    assert c.then.started() == ["h"]
    assert sound(c)


def test_members_with_shares_and_with_whole_gpus_start_together(given):
    """One gang: a leader with a half and two workers with a whole GPU each."""
    c = given.nodes(1, gpus=3).group("g", min_member=3)
    c.pod("leader", group="g", role="leader", share=HALF)
    c.pods("worker", 2, group="g", role="worker", gpus=1)
    c.when.carried_out()
    assert c.then.started() == ["g"]
    assert sound(c)
    assert len({slot for slots in c.then.slots().values() for slot in slots}) == 3


# -- memory --------------------------------------------------------------------------------------
def test_memory_is_a_part_of_the_gpu_of_its_node(given):
    """20 GiB are half of a GPU with 40 and a quarter of one with 80; without a label: nothing."""
    c = given.node("small", gpus=1, labels={MEMORY: str(40 * 1024)})
    c.node("large", gpus=1, labels={MEMORY: str(80 * 1024)}).node("mute", gpus=1)
    c.gang("g", pods=6, share=GpuShare(memory=20 * GIB))
    c.when.carried_out()
    assert c.then.started() == ["g"]
    assert sorted(c.then.nodes().values()) == ["large"] * 4 + ["small"] * 2
    assert sound(c)
    c.gang("h", pods=1, share=GpuShare(memory=20 * GIB))
    c.when.one_session()
    assert "1 does not tell of GPUs with so much memory" in c.then.why("h")
    assert "2 have no GPU with room for its share" in c.then.why("h")


def test_memory_is_charged_as_a_part_of_the_smallest_gpu(given):
    """20 GiB where the smallest GPU has 40 are half a GPU of quota, wherever the pod ends up."""
    c = given.node("large", gpus=2, labels={MEMORY: str(80 * 1024)}).queue("q")
    c.gang("g", pods=1, queue="q", share=GpuShare(memory=20 * GIB))
    c.when.carried_out()
    c.when.one_session()
    assert c.then.queue("q").allocated.get(GPU) == 250
    c.node("small", gpus=1, labels={MEMORY: str(40 * 1024)})
    c.when.one_session()
    assert c.then.queue("q").allocated.get(GPU) == 500
    c.cache.drop_node("small")
    c.when.one_session()
    assert c.then.queue("q").allocated.get(GPU) == 250


# -- queues ----------------------------------------------------------------------------------------
def test_shares_are_charged_to_queues(given):
    """A cap of one GPU holds four quarters, and the fifth is told so."""
    c = given.nodes(1, gpus=4).queue("q", limits={"capability": {GPU: 1}})
    c.gang("a", pods=4, share=QUARTER, queue="q", created=1.0)
    c.gang("b", pods=1, share=QUARTER, queue="q", created=2.0)
    c.when.carried_out()
    assert c.then.started() == ["a"]
    assert "queue q holds 1 of its capability of 1" in c.then.why("b")
    assert c.when.one_session() is not None
    assert c.then.queue("q").allocated.get(GPU) == 1000


# -- making room -----------------------------------------------------------------------------------
def test_an_evicted_share_frees_its_part_only(given):
    """Two halves on the only GPU, of low and of high priority: a half is made free, a GPU is not."""
    c = given.nodes(1, gpus=1)
    on(c, "low-0", "node-0", 0, HALF, group="low", priority=0)
    on(c, "high-0", "node-0", 0, HALF, group="high", priority=100)
    c.group("low", min_member=1).group("high", min_member=1)
    c.gang("whole", pods=1, gpus=1, priority=50)
    c.when.one_session()
    assert c.then.evicted() == []
    c.gang("half", pods=1, share=HALF, priority=50)
    c.when.one_session()
    assert c.then.evicted() == ["low-0"]


def test_shares_leave_together_for_a_whole_gpu(given):
    """Four quarters of low priority are all of one GPU: whoever needs it gets all four out."""
    c = given.nodes(1, gpus=2)
    for number in range(4):
        on(c, f"low-{number}", "node-0", 0, QUARTER, group=f"low-{number}", priority=0)
        c.group(f"low-{number}", min_member=1)
    c.pod("other", node="node-0", slots=2, gpus=1, plan="p", priority=1000)
    c.gang("whole", pods=1, gpus=1, priority=50)
    c.when.carried_out()
    assert sorted(c.then.evicted()) == [f"low-{number}" for number in range(4)]
    c.when.carried_out()
    assert c.then.slots() == {"whole-0": (0,)}
    assert sound(c)


# -- what the API shows -----------------------------------------------------------------------------
def test_a_share_of_another_scheduler_is_not_ours_to_count(given):
    """KAI holds the GPU with a pod of its own: its sharers take no GPU on top."""
    c = given.nodes(1, gpus=2)
    c.pod("holds", node="node-0", gpus=1, scheduler="kai-scheduler")
    c.pod("shares", node="node-0", share=HALF, scheduler="kai-scheduler")
    c.gang("g", pods=1, gpus=1)
    c.when.one_session()
    assert c.then.started() == ["g"]


def test_a_share_whose_slot_nobody_knows_has_a_gpu_for_itself(given):
    """It was bound by hand: nobody joins it."""
    c = given.nodes(1, gpus=2).pod("by-hand", node="node-0", share=QUARTER)
    c.gang("g", pods=1, share=QUARTER, created=1.0).gang("w", pods=1, gpus=1, created=2.0)
    c.when.one_session()
    assert c.then.started() == ["g"]
    assert c.then.slots() == {"g-0": (0,)}


@pytest.mark.parametrize("seed", one_of(3, range(12)))
def test_any_life_of_shares_is_sound(seed):
    """Shares and whole GPUs come, leave and are preempted: the witness finds nothing wrong."""
    chance = random.Random(seed)
    c = Given()
    for number in range(4):
        labels = {MEMORY: str(chance.choice((40, 80)) * 1024)} if chance.random() < 0.7 else {}
        c.node(f"n{number}", gpus=chance.choice((1, 2, 4)), labels=labels)
    alive = []
    for step in range(12):
        for number in range(chance.randint(1, 3)):
            name = f"g{step}-{number}"
            kind = chance.choice((
                {"gpus": 1}, {"gpus": 2}, {"share": GpuShare(chance.choice((100, 300, 500, 700)))},
                {"share": GpuShare(memory=chance.choice((8, 15, 30)) * GIB)},
            ))  # fmt: skip
            pods = chance.randint(1, 4)
            c.gang(name, pods=pods, priority=chance.randint(0, 2), **kind)
            alive += [f"{name}-{pod}" for pod in range(pods)]
        c.when.carried_out()
        assert sound(c), check(api_objects(c.cache))
        for name in [name for name in alive if chance.random() < 0.25]:
            alive.remove(name)
            c.gone(name)
        c.now += 60


# -- statements --------------------------------------------------------------------------------------
def everything(session):
    """All that a workbench shows and keeps of shares, in both looks."""
    node_usage, found = session.node_usage, []
    for later in (False, True):
        session._look_later(later=later)
        found.append((
            node_usage.used.tolist(), list(node_usage.free_slots),
            [node_usage.shared_on(row) for row in range(len(node_usage.nodes))],
            [session.class_info(entities.pod_class(share=each)).class_fit.fits.tolist() for each in ASKED],
        ))  # fmt: skip
    session._look_later(later=False)
    return found


ASKED = (HALF, GpuShare(300), GpuShare(memory=20 * GIB))


@pytest.mark.parametrize("seed", one_of(3, range(20)))
def test_statements_are_taken_back_exactly(seed):
    """Places, promises and evictions of shares and whole GPUs, in both looks: no trace is left."""
    chance = random.Random(seed)
    c = Given()
    for number in range(3):
        c.node(f"n{number}", gpus=2, labels={MEMORY: "40960"})
        for slot in range(2):
            for part in range(chance.randint(0, 3)):
                name = f"old-{number}-{slot}-{part}"
                leaves = chance.random() < 0.3
                on(c, name, f"n{number}", slot, GpuShare(300), group=name, deleting=leaves)
                c.group(name, min_member=1)
    for number in range(8):
        kind = chance.choice(({"gpus": 1}, *({"share": each} for each in ASKED)))
        c.gang(f"new-{number}", pods=1, **kind)
    session = Session(
        c.cache.take_snapshot(c.now),
        c.policy.plugins,
        c.policy.capabilities,
        guard=c.guard,
        session_cache=c.session_cache,
        placement=c.placement,
    )
    before = everything(session)
    news = [gang for gang in session.gangs if gang.key.name.startswith("new")]
    olds = [gang for gang in session.snapshot.placed_gangs.values() if gang.placed]
    session._look_later(later=chance.random() < 0.5)
    statement = session.statement()
    for gang in chance.sample(olds, min(len(olds), 3)):
        session.evict(statement, gang, gang.placed[0])
    point, middle = statement.checkpoint(), None
    for index, gang in enumerate(news):
        if index == 4:
            point, middle = statement.checkpoint(), session.node_usage.used.tolist()
        seat = session.class_info(gang.pod_sets[0].pod_class)
        row = seat.class_fit.best_row()
        assert (row < 0) == (seat.class_fit.count_fitting(most=9) == 0)
        if row >= 0:
            statement.assign(gang.pod_sets[0].pods[0], row, seat.request)
    statement.rollback(point)
    assert session.node_usage.used.tolist() == middle
    statement.discard()
    assert everything(session) == before


def test_a_suspended_job_of_shares_is_started_where_it_fits(given):
    """Its pods to come ask for what its template says, memory at the price of this cluster."""
    c = given.node("n", gpus=1, labels={MEMORY: "40960"}).queue("q")
    c.job("fits", parallelism=4, completions=4, suspended=True, queue="q", share=QUARTER)
    c.job(
        "large", parallelism=5, completions=5, suspended=True, queue="q",
        share=GpuShare(memory=10 * GIB), hints=GangAnnotations(min_member=5),
    )  # fmt: skip
    plan = c.when.one_session()
    assert [switch.key.name for switch in plan.job_changes] == ["fits"]
    job = next(job for key, job in c.cache.jobs.items.items() if key.name == "large")
    assert job.template.pod_class.requests.get(GPU) == 250
