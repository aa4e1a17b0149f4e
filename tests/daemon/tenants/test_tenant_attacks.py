"""A user with ``edit`` in one namespace writes what only gpusched should: nobody else is harmed.

Each test lets a tenant ``mallory`` try it over HTTP with the rights of the role ``edit``, and a
gang of somebody else must start.
"""

from __future__ import annotations

import json

import pytest

from gpusched.api.gang.eviction_record import GangEvictions, PastEviction, format_evictions
from gpusched.api.gang.move_record import format_move, parse_move
from gpusched.api.gang.turn_record import TurnRecord, format_turn
from gpusched.api.meta.identity import UID, format_time
from tests.daemon.tenants.tenants import tenant

SLOTS = "metadata.annotations[gpusched.io/slots]"


def record(gpus, nodes, *, at="2026-01-01T00:00:00Z", pods=1):
    """The annotation ``gpusched.io/moved`` as a tenant would write it."""
    kind = {"requests": {"nvidia.com/gpu": gpus, "pods": 1}, "nodes": dict.fromkeys(nodes, pods)}
    return json.dumps({"at": at, "pods": [kind]})


def events(w, namespace, reason=""):
    """Events of a namespace."""
    found = w.client.list("events", namespace)
    return [each for each in found if not reason or each["reason"] == reason]


def remove(w, namespace):
    """Delete all pods of a namespace, so that the invariants see the honest ones alone."""
    for pod in w.client.list("pods", namespace):
        w.client.delete("pods", namespace, pod["metadata"]["name"], grace_s=0)


# -- moves -----------------------------------------------------------------------------------
@pytest.mark.parametrize("gpus", [8, 8000, 10**15])
@pytest.mark.parametrize("ahead", [False, True])
def test_a_move_that_a_tenant_recorded_holds_nothing(play, gpus, ahead):
    """A suspended Job's own annotation neither stops the daemon nor keeps a node for it."""

    async def scenario(w):
        await w.start(nodes=2)
        mallory = await tenant(w, "mallory")
        daemon = w.daemon()
        await w.until(lambda: daemon.leading)
        now = "2099-01-01T00:00:00Z" if ahead else format_time(w.clock.now())
        text = record(gpus, ["node-0", "node-1"], at=now)
        await mallory.job("larger", 3, suspend=True, notes={"gpusched.io/moved": text})
        await w.clock.sleep(5)
        w.gang("honest", 2)
        await w.until(lambda: len(w.running("honest")) == 2, within=10)
        await daemon.stop()

    play(scenario)


def test_a_move_copied_from_another_job_holds_nothing(play):
    """A seal fits one Job: the record of a real move is worth nothing on another."""

    async def scenario(w):
        await w.start(nodes=2)
        mallory = await tenant(w, "mallory")
        daemon = w.daemon()
        await w.until(lambda: daemon.leading)
        move = parse_move(record(8000, ["node-0", "node-1"], at=format_time(w.clock.now())))
        text = format_move(move, seal=daemon.app.cache.seal.of_move(UID("of another"), move))
        await mallory.job("larger", 3, suspend=True, notes={"gpusched.io/moved": text})
        await w.clock.sleep(5)
        w.gang("honest", 2)
        await w.until(lambda: len(w.running("honest")) == 2, within=10)
        await daemon.stop()

    play(scenario)


# -- slots -----------------------------------------------------------------------------------
@pytest.mark.parametrize("copied", [False, True], ids=["plain", "copied"])
def test_slots_of_a_pod_without_gpus_are_nobodys(play, copied):
    """One pod a node that claims all GPUs and asks for none keeps nobody from them."""

    async def scenario(w):
        await w.start(nodes=3)
        mallory = await tenant(w, "mallory")
        daemon = w.daemon()
        notes = {}
        if copied:
            own = await mallory.pod("own", gpus=8, labels={"gpusched.io/queue": "default"})
            await w.until(lambda: "nodeName" in w.client.get("pods", "mallory", "own")["spec"])
            notes = w.client.get("pods", "mallory", "own")["metadata"]["annotations"]
            assert notes["gpusched.io/fence"]
            w.client.delete("pods", "mallory", own["metadata"]["name"], grace_s=0)
        for number in range(3):
            await mallory.pod(
                f"liar-{number}",
                spec={"nodeName": f"node-{number}"},
                annotations={**notes, "gpusched.io/slots": "0,1,2,3,4,5,6,7"},
            )
        w.gang("honest", 3)
        await w.until(lambda: len(w.running("honest")) == 3, within=10)
        await w.until(lambda: events(w, "mallory", "UntrustedSlots"), within=10)
        said = events(w, "mallory", "UntrustedSlots")[0]
        assert said["involvedObject"]["name"].startswith("liar-")
        assert "claims 8 GPUs" in said["message"]
        assert "asks for none" in said["message"]
        metrics = daemon.app.telemetry.render().decode()
        assert f'rejected_objects_total{{field="{SLOTS}",resource="pods"}}' in metrics
        remove(w, "mallory")
        await daemon.stop()

    play(scenario)


@pytest.mark.parametrize("restart", [False, True])
def test_slots_patched_on_an_own_pod_take_nobody_elses(play, restart):
    """A tenant widens, moves or drops what our binding wrote: others keep theirs and find room."""

    async def scenario(w):
        await w.start(nodes=1)
        mallory = await tenant(w, "mallory")
        daemon = w.daemon()
        await mallory.pod("own", gpus=2)
        await w.until(lambda: "nodeName" in w.client.get("pods", "mallory", "own")["spec"])
        w.gang("first", 1, gpus=2)
        await w.until(lambda: len(w.running("first")) == 1)
        theirs = w.bound("first")[0]["metadata"]["annotations"]["gpusched.io/slots"]
        for slots in ("0,1,2,3,4,5,6,7", theirs, "nonsense", "7,7", None):
            await mallory.note("pods", "own", slots=slots, plan="x", rank="99", fence="y/1")
            await w.clock.sleep(1)
        await mallory.note("pods", "own", slots=theirs)
        await w.clock.sleep(1)
        if restart:
            await daemon.stop()
            daemon = w.daemon()
            await w.until(lambda: daemon.leading)
        w.gang("second", 1, gpus=4)
        await w.until(lambda: len(w.running("second")) == 1, within=60)
        second = w.bound("second")[0]["metadata"]["annotations"]["gpusched.io/slots"]
        assert not set(second.split(",")) & set(theirs.split(","))
        w.gang("third", 1, gpus=1)
        await w.clock.sleep(20)
        assert not w.bound("third"), "the tenant's two GPUs are still its own"
        said = events(w, "mallory", "UntrustedSlots")
        assert any(each["involvedObject"]["name"] == "own" for each in said)
        remove(w, "mallory")
        await w.until(lambda: len(w.running("third")) == 1, within=60)
        await daemon.stop()

    play(scenario)


@pytest.mark.parametrize(
    ("key", "share"),
    [("gpu-fraction", "0.01"), ("gpu-fraction", "much"), ("gpu-memory", "1Mi")],
)
def test_tiny_shares_open_as_many_gpus_as_they_ask_for(play, key, share):
    """Eight pods that preset their node and ask for a hundredth of a GPU each block one or two."""

    async def scenario(w):
        await w.start(nodes=1)
        mallory = await tenant(w, "mallory")
        daemon = w.daemon()
        for number in range(8):
            notes = {f"gpusched.io/{key}": share, "gpusched.io/slots": str(number)}
            await mallory.pod(f"a-{number}", spec={"nodeName": "node-0"}, annotations=notes)
            del notes["gpusched.io/slots"]
            await mallory.pod(f"b-{number}", spec={"nodeName": "node-0"}, annotations=notes)
        w.gang("honest", 1, gpus=6)
        await w.until(lambda: len(w.running("honest")) == 1, within=10)
        remove(w, "mallory")
        await daemon.stop()

    play(scenario)


def test_a_share_that_is_made_unreadable_keeps_its_gpu(play):
    """The tenant changes what its own bound pod says: the GPU that we gave it stays taken."""

    async def scenario(w):
        await w.start(nodes=1)
        mallory = await tenant(w, "mallory")
        daemon = w.daemon()
        await mallory.pod("own", annotations={"gpusched.io/gpu-fraction": "0.5"})
        await w.until(lambda: "nodeName" in w.client.get("pods", "mallory", "own")["spec"])
        await mallory.note("pods", "own", **{"gpu-fraction": "much"})
        await w.clock.sleep(1)
        w.gang("eight", 1)
        w.gang("seven", 1, gpus=7)
        await w.until(lambda: len(w.running("seven")) == 1, within=10)
        await w.clock.sleep(10)
        assert not w.bound("eight")
        mine = w.client.get("pods", "mallory", "own")["metadata"]["annotations"]
        theirs = w.bound("seven")[0]["metadata"]["annotations"]["gpusched.io/slots"]
        assert mine["gpusched.io/slots"] not in theirs.split(",")
        remove(w, "mallory")
        await daemon.stop()

    play(scenario)


# -- other annotations -------------------------------------------------------------------------
def test_nothing_forged_survives_the_binding(play):
    """What only we write says after the binding what we wrote, or nothing."""
    keys = ("rank", "slots", "plan", "fence", "proof", "seal")

    async def scenario(w):
        await w.start(nodes=1)
        mallory = await tenant(w, "mallory")
        daemon = w.daemon()
        forged = {f"gpusched.io/{key}": f"forged-{key}" for key in keys}
        await mallory.pod("cpu", gpus=0, annotations=forged)
        await mallory.pod("gpu", gpus=1, annotations=forged)
        for name in ("cpu", "gpu"):
            await w.until(
                lambda name=name: w.client.get("pods", "mallory", name)["spec"].get("nodeName")
            )
            notes = w.client.get("pods", "mallory", name)["metadata"]["annotations"]
            assert not [key for key, value in notes.items() if value.startswith("forged")]
            assert not notes["gpusched.io/rank"]
        await daemon.stop()

    play(scenario)


def test_the_next_daemon_knows_what_this_one_bound(play):
    """The key lives in the Lease: after a restart our slots are sure, and a copy of them is not."""

    async def scenario(w):
        await w.start(nodes=1)
        mallory = await tenant(w, "mallory")
        first = w.daemon()
        w.gang("honest", 1, gpus=4)
        await w.until(lambda: len(w.running("honest")) == 1)
        notes = w.bound("honest")[0]["metadata"]["annotations"]
        lease = w.client.get("leases.coordination.k8s.io", "gpusched-system", "gpusched")
        assert len(lease["metadata"]["annotations"]["gpusched.io/seal-key"]) == 64
        await first.stop()
        copied = {key: value for key, value in notes.items() if key.startswith("gpusched.io/")}
        # "a" comes before any UID that the server gave in order, so order alone would favour it.
        await mallory.pod("a-copy", gpus=4, spec={"nodeName": "node-0"}, annotations=copied)
        second = w.daemon()
        await w.until(lambda: second.leading)
        await w.clock.sleep(2)
        ledger = second.app.cache.ledger
        held = {each.uid: ledger.slots_of(each) for each in ledger.holdings_on("node-0")}
        ours = w.bound("honest")[0]["metadata"]["uid"]
        copy = w.client.get("pods", "mallory", "a-copy")["metadata"]["uid"]
        assert held == {ours: 0b1111, copy: 0}
        await w.until(lambda: events(w, "mallory", "UntrustedSlots"), within=10)
        assert not events(w, "default", "UntrustedSlots")
        status, _ = await mallory.try_to(
            "GET", "/apis/coordination.k8s.io/v1/namespaces/gpusched-system/leases/gpusched"
        )
        assert status == 403, "whoever can read the key can forge"
        remove(w, "mallory")
        await second.stop()

    play(scenario)


# -- Jobs --------------------------------------------------------------------------------------
@pytest.mark.parametrize("at", ["now", "2099-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "soon"])
def test_a_start_that_a_tenant_wrote_holds_no_room(play, at):
    """A Job whose pods its quota refuses says that it was started: nobody waits for its pods."""

    async def scenario(w):
        await w.start(nodes=2)
        mallory = await tenant(w, "mallory")
        none = {"hard": {"pods": "0"}}
        head = {"apiVersion": "v1", "kind": "ResourceQuota"}
        meta = {"metadata": {"name": "none", "namespace": "mallory"}}
        w.client.create("resourcequotas", {**head, **meta, "spec": none})
        daemon = w.daemon()
        await w.until(lambda: daemon.leading)
        said = format_time(w.clock.now()) if at == "now" else at
        await mallory.job("j", 2, notes={"gpusched.io/admitted": said})
        await w.clock.sleep(2)
        w.gang("honest", 2)
        await w.until(lambda: len(w.running("honest")) == 2, within=10)
        await daemon.stop()

    play(scenario)


@pytest.mark.parametrize("whose", ["forged", "copied"])
def test_turns_that_a_tenant_wrote_change_no_order(play, whose):
    """A Job that says that it had a turn, or has another's record, stands where its age puts it."""

    async def scenario(w):
        await w.start(nodes=1)
        mallory = await tenant(w, "mallory")
        daemon = w.daemon()
        await w.until(lambda: daemon.leading)
        w.gang("runs", 1)
        await w.until(lambda: len(w.running("runs")) == 1)
        turn = TurnRecord(w.clock.now() + 3600, 60)
        seal = daemon.app.cache.seal.of_turn(UID("of another"), turn) if whose == "copied" else ""
        text = format_turn(turn, seal=seal)
        await mallory.job("older", 1, notes={"gpusched.io/turn": text})
        await w.clock.sleep(2)
        w.gang("younger", 1)
        await w.clock.sleep(5)
        w.client.delete("jobs.batch", "default", "runs", propagation="Background")
        await w.until(lambda: w.client.list("pods", "mallory")[0]["spec"].get("nodeName"))
        assert not w.bound("younger")
        remove(w, "mallory")
        await daemon.stop()

    play(scenario)


@pytest.mark.parametrize("whose", ["forged", "copied"])
def test_evictions_that_a_tenant_wrote_are_not_counted(play, whose):
    """A Job that says that it was evicted before, or has another's record, is evicted once, not again."""

    async def scenario(w):
        await w.start(nodes=1)
        mallory = await tenant(w, "mallory")
        daemon = w.daemon()
        await w.until(lambda: daemon.leading)
        past = PastEviction(at=float(int(w.clock.now())), action="preempt", reason="Preempted")
        record = GangEvictions((past,) * 3)
        uid = UID("of another")
        seal = daemon.app.cache.seal.of_evictions(uid, record) if whose == "copied" else ""
        text = format_evictions(record, seal=seal)
        await mallory.job("train", 1, notes={"gpusched.io/evictions": text})
        await w.until(lambda: w.client.list("pods", "mallory")[0]["spec"].get("nodeName"))
        head = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
        high = {**head, "metadata": {"name": "high"}, "value": 1000}
        w.client.create("priorityclasses.scheduling.k8s.io", high)
        w.group("urgent", minMember=1, priorityClassName="high")
        w.job("urgent", 1, group="urgent")
        await w.until(lambda: len(w.running("urgent")) == 1)
        job = w.client.get("jobs.batch", "mallory", "train")
        told = json.loads(job["metadata"]["annotations"]["gpusched.io/evictions"])
        assert [each["for"] for each in told["evictions"]] == ["PodGroup default/urgent"]
        assert events(w, "mallory", "EvictedAgain") == []
        await daemon.stop()

    play(scenario)


@pytest.mark.parametrize(
    "amounts",
    [{"example.com/thing": "1e30"}, {"example.com/thing": "9223372036854775808"}],
    ids=["exponent", "huge"],
)
def test_an_amount_that_cannot_be_believed_takes_that_resource_alone(play, amounts):
    """A pod with a preset node asks for an absurd amount of something that nobody else wants."""

    async def scenario(w):
        await w.start(nodes=1)
        mallory = await tenant(w, "mallory")
        daemon = w.daemon()
        container = {"name": "c", "image": "i", "resources": {"limits": amounts}}
        await mallory.pod("absurd", spec={"nodeName": "node-0", "containers": [container]})
        w.gang("honest", 1)
        await w.until(lambda: len(w.running("honest")) == 1, within=10)
        remove(w, "mallory")
        await daemon.stop()

    play(scenario)


def test_pods_that_an_older_version_bound_keep_their_slots(play):
    """They have no seal: nobody else claims their slots, so these count, and nobody is named."""

    async def scenario(w):
        await w.start(nodes=1)
        w.write_kubeconfig()
        first = w.daemon()
        w.gang("old", 2, gpus=2)
        await w.until(lambda: len(w.running("old")) == 2)
        await first.stop()
        bare = {"metadata": {"annotations": {"gpusched.io/seal": None}}}
        for pod in w.bound("old"):
            w.client.patch("pods", "default", pod["metadata"]["name"], bare)
        uids = {pod["metadata"]["uid"] for pod in w.bound("old")}
        second = w.daemon()
        await w.until(lambda: second.leading)
        w.gang("new", 1, gpus=4)
        await w.until(lambda: len(w.running("new")) == 1, within=10)
        new = w.bound("new")[0]["metadata"]["annotations"]["gpusched.io/slots"]
        old = [pod["metadata"]["annotations"]["gpusched.io/slots"] for pod in w.bound("old")]
        assert sorted(",".join([new, *old]).split(",")) == [str(slot) for slot in range(8)]
        assert {pod["metadata"]["uid"] for pod in w.running("old")} == uids
        assert not events(w, "default", "UntrustedSlots")
        await second.stop()

    play(scenario)
