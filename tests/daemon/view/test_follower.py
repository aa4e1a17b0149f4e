"""The view that is made of changes is the one that is made at once, whatever happens in between."""

from __future__ import annotations

import json

import msgspec
import pytest

from gpusched.api.meta.identity import parse_time
from gpusched.devcluster.registry.gangs.features import all_gates
from gpusched.view.access import EVERYTHING
from gpusched.view.follower import ViewFollower
from gpusched.view.frames import decode_frame, encode_frame
from gpusched.view.over_time.future import future_spans
from gpusched.view.store import ViewStore
from tests.daemon.view.followed import leader

GROUPS = "podgroups.scheduling.gpusched.io"
QUEUES = "queues.scheduling.gpusched.io"


def shown(store: ViewStore) -> dict[str, object]:
    """All that a store holds."""
    return {
        "gangs": store.gangs,
        "members": {key: store.members(key) for key in store.gangs},
        "nodes": store.nodes,
        "queues": store.queues,
        "order": [store.order(gang, EVERYTHING) for gang in store.waiting_gangs(EVERYTHING)],
    }


def test_changes_add_up_to_the_whole(play):
    """Given starts, waits, ends, evictions, lost nodes and queues: each change is told, and nothing else stays."""

    async def scenario(w):
        await w.start(nodes=3)
        store, last = await leader(w)

        async def same(what):
            await w.clock.sleep(2)
            again = ViewStore()
            for frame in ViewFollower().changes(last[0]):
                if frame is not None:
                    again.take(frame)
            assert shown(store)["nodes"] == shown(again)["nodes"], what
            assert shown(store)["members"] == shown(again)["members"], what
            assert shown(store)["order"] == shown(again)["order"], what
            assert shown(store)["queues"] == shown(again)["queues"], what
            assert store.gangs.keys() == again.gangs.keys(), what

        w.gang("a", 2)
        w.pod("lone", gpus=4)
        await w.until(lambda: len(w.running()) == 3)
        await same("started")
        assert store.gangs["default/PodGroup/a"].state == "Running"
        (lone,) = store.gangs["default/Pod/lone"].nodes

        w.gang("b", 2)
        await same("waits")
        waiting = store.gangs["default/PodGroup/b"]
        (told,) = [
            each for each in w.groups()[1]["status"]["conditions"] if each["type"] == "Scheduled"
        ]
        assert (waiting.state, waiting.reason, waiting.message) == (
            "Waiting", told["reason"], told["message"],
        )  # fmt: skip

        w.client.create(
            QUEUES,
            {
                "apiVersion": "scheduling.gpusched.io/v1alpha1",
                "kind": "Queue",
                "metadata": {"name": "team"},
                "spec": {"deserved": {"nvidia.com/gpu": "8"}},
            },
        )
        await same("a queue")
        assert store.queues["team"].gpus.deserved == "8"
        w.client.delete(QUEUES, None, "team")
        w.client.delete("jobs.batch", "default", "a")
        for pod in w.pods("a"):
            w.client.delete("pods", "default", pod["metadata"]["name"])
        w.client.delete(GROUPS, "default", "a")
        await w.until(lambda: store.gangs["default/PodGroup/b"].state == "Running")
        await same("ended")
        assert "team" not in store.queues
        assert "default/PodGroup/a" not in store.gangs

        w.client.delete("nodes", None, lone)
        await same("a lost node")
        assert lone not in store.nodes

    play(scenario, limit_s=3000)


def test_holders_of_gpus_are_named_by_slot(play):
    """Given a pod with four of eight GPUs: its slots name it, the others are free."""

    async def scenario(w):
        await w.start(nodes=1)
        store, _ = await leader(w)
        w.pod("half", gpus=4)
        await w.until(lambda: len(w.running()) == 1)
        await w.clock.sleep(2)
        node = store.nodes["node-0"]
        held = {slot.index: slot for slot in node.slots if slot.holders}
        (pod,) = w.pods()
        slots = pod["metadata"]["annotations"]["gpusched.io/slots"]
        assert ",".join(map(str, sorted(held))) == slots
        assert {each.name for slot in held.values() for each in slot.holders} == {"half"}
        assert {slot.free for slot in held.values()} == {"0"}
        assert (node.gpus, node.free_gpus, node.pods) == ("8", "4", 1)
        assert [(each.level, each.name) for each in node.domains] == [("rack", "r0")]

    play(scenario, limit_s=3000)


def test_room_that_is_kept_is_shown_until_it_is_taken(play):
    """Given a gang that waits for the known end of another: its room is in the future, then it runs."""

    async def scenario(w):
        await w.start(nodes=2)
        store, _ = await leader(w)
        w.group("first", minMember=1, expectedDuration="10m")
        w.job("first", 1, group="first", run_for="10m")
        await w.until(lambda: len(w.running()) == 1)
        w.group("both", minMember=2, expectedDuration="1h")
        w.job("both", 2, group="both")
        await w.until(lambda: store.room("default/PodGroup/both") is not None)
        await w.clock.sleep(2)
        spans = {each.name: each for each in future_spans(store.gangs.values(), store.room)}
        first, both = spans["first"], spans["both"]
        assert (first.what, both.what, both.nodes) == ("running", "reserved", ("node-0", "node-1"))
        assert both.begins == first.ends
        assert parse_time(both.ends) - parse_time(both.begins) == 3600
        await w.until(lambda: store.gangs["default/PodGroup/both"].state == "Running", within=900)
        await w.clock.sleep(2)
        spans = {each.name: each for each in future_spans(store.gangs.values(), store.room)}
        assert (spans["both"].what, store.room("default/PodGroup/both")) == ("running", None)

    play(scenario, limit_s=3000)


def test_what_ended_between_two_looks_is_gone(play):
    """Given a gang that completes while nobody looks, and whose pods stay: it holds no GPU in the view."""

    async def scenario(w):
        await w.start(nodes=1)
        looks = [True]
        store, _ = await leader(w, lambda: looks[0])
        w.job("a", 2, gpus=4, run_for="20s")
        await w.until(lambda: "default/Job/a" in store.gangs and len(w.running()) == 2)
        looks[0] = False
        await w.until(lambda: {p["status"]["phase"] for p in w.pods()} == {"Succeeded"})
        await w.clock.sleep(30)
        looks[0] = True
        w.pod("next", gpus=1)
        await w.until(lambda: "default/Pod/next" in store.gangs)
        await w.clock.sleep(2)
        assert list(store.gangs) == ["default/Pod/next"]
        held = [each.name for slot in store.nodes["node-0"].slots for each in slot.holders]
        assert held == ["next"]

    play(scenario, limit_s=3000)


def test_a_job_whose_pods_are_a_native_gang_is_told_once(play):
    """Given a Job that its controller makes a PodGroup for: the group is told, and no Job without pods."""

    async def scenario(w):
        await w.start(nodes=1, gangs=all_gates("1.36"))
        store, _ = await leader(w)
        w.job("fit", 2, completionMode="Indexed")
        await w.until(lambda: len(w.pods()) == 2)
        await w.clock.sleep(5)
        assert [view.gang_kind for view in store.gangs.values()] == ["PodGroup"]

    play(scenario)


def test_a_started_job_without_pods_says_so(play):
    """Given a Job that was held, then started, whose controller makes no pods: it is not told as held any more."""

    async def scenario(w):
        await w.start(nodes=1)
        store, _ = await leader(w)
        quota = {
            "metadata": {"name": "none", "namespace": "default"},
            "spec": {"hard": {"pods": "0"}},
        }
        w.client.create("resourcequotas", {"apiVersion": "v1", "kind": "ResourceQuota", **quota})
        w.job("train", 2, gpus=1, queue="default", suspend=True)
        hold = {"metadata": {"annotations": {"gpusched.io/hold": "later"}}}
        w.client.patch("jobs.batch", "default", "train", hold)
        train = "default/Job/train"
        await w.until(lambda: train in store.gangs and store.gangs[train].reason == "Held")
        hold["metadata"]["annotations"]["gpusched.io/hold"] = None
        w.client.patch("jobs.batch", "default", "train", hold)
        await w.until(lambda: not w.client.get("jobs.batch", "default", "train")["spec"]["suspend"])
        await w.clock.sleep(5)
        told = store.gangs[train]
        assert (told.state, told.reason, told.message) == (
            "Waiting",
            "NoPodsYet",
            "its Job is started and its room is held; its controller has yet to make 2 pods of it",
        )

    play(scenario)


def test_a_pod_that_cannot_be_read_waits_with_its_reason(play):
    """Given an annotation that makes no sense: it is in the view, with the sentence of the event."""

    async def scenario(w):
        await w.start(nodes=1)
        store, _ = await leader(w)
        w.pod("bad", annotations={"gpusched.io/min-member": "many"})
        await w.until(lambda: "default/Pod/bad" in store.gangs)
        bad = store.gangs["default/Pod/bad"]
        assert (bad.state, bad.reason) == ("Waiting", "InvalidSpec")
        assert "min-member" in bad.message
        w.client.delete("pods", "default", "bad")
        await w.until(lambda: "default/Pod/bad" not in store.gangs)

    play(scenario, limit_s=3000)


@pytest.mark.parametrize("text", ["", "{}", '{"type":"gang"}', "[1]", "nonsense"])
def test_a_line_that_is_no_frame_is_refused(text):
    """Given another line: one exception, and nothing of it is taken."""
    with pytest.raises(msgspec.DecodeError):
        decode_frame(text.encode())


def test_frames_are_written_in_camel_case():
    """The names are those of the API."""
    line = encode_frame(decode_frame(b'{"type":"head","version":"1","daemon":"d","leading":true}'))
    assert json.loads(line)["schedulerNames"] == []
