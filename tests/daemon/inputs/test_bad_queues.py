"""Queues as they should not be: each is told on its own object with numbers, the others go on."""

from __future__ import annotations

import pytest

GPU = "nvidia.com/gpu"
QUEUES = "queues.scheduling.gpusched.io"
GROUPS = "podgroups.scheduling.gpusched.io"
QUIET_S = 60
SESSIONS = 'gpusched_cycle_duration_seconds_count{action="session"}'


def queue(w, name, **spec):
    """Make a queue."""
    w.client.create(
        QUEUES,
        {
            "apiVersion": "scheduling.gpusched.io/v1alpha1", "kind": "Queue",
            "metadata": {"name": name}, "spec": spec,
        },
    )  # fmt: skip


def change(w, name, **spec):
    """Change some fields of a queue's spec."""
    found = w.client.get(QUEUES, None, name)
    w.client.update(QUEUES, {**found, "spec": {**found["spec"], **spec}})


def ready(w, name):
    """The condition Ready of a queue, empty when nothing was said yet."""
    found = w.client.get(QUEUES, None, name).get("status", {}).get("conditions", ())
    return next((each for each in found if each["type"] == "Ready"), {})


def said(w, name):
    """Reason and message of what a gang waits for."""
    condition = w.condition(name)
    return condition.get("reason"), condition.get("message", "")


def gang(w, name, count, *, queue, gpus=8, **spec):
    """A PodGroup and a Job whose pods belong to it."""
    w.group(name, queue=queue, minMember=count, **spec)
    w.job(name, count, gpus=gpus, group=name)


def sessions(w):
    """How many times the living daemons have decided."""
    lines = [
        line
        for daemon in w.daemons
        for line in daemon.app.telemetry.render().decode().splitlines()
        if line.startswith(SESSIONS)
    ]
    return sum(float(line.split()[-1]) for line in lines)


async def comes_to_rest(w):
    """Nothing is written while nothing changes, and nothing is decided more often than it must."""
    await w.clock.sleep(20)
    writes, decided = len(w.journal), sessions(w)
    assert decided > 0
    await w.clock.sleep(QUIET_S)
    assert w.journal[writes:] == []
    assert sessions(w) - decided <= QUIET_S / 10 + 2


def test_each_bad_queue_says_so_and_the_others_go_on(play):
    """A cycle, a missing parent, nine levels, a guarantee above the cluster, a wrong limit."""
    words = {
        "ring-a": "queues form a cycle: ring-a -> ring-b -> ring-a",
        "ring-b": "queues form a cycle: ring-b -> ring-a -> ring-b",
        "below-ring": "queues form a cycle: ring-a -> ring-b -> ring-a",
        "orphan": "parent queue 'nobody' of 'orphan' does not exist",
        "deep-9": "queue 'deep-9' is deeper than 8 levels",
        "small": "parent 'tight' deserves 4, of which 0 are guaranteed to older children",
    }

    async def scenario(w):
        await w.start(nodes=3)
        w.daemon()
        queue(w, "ring-a", parent="ring-b")
        queue(w, "ring-b", parent="ring-a")
        queue(w, "below-ring", parent="ring-a")
        queue(w, "orphan", parent="nobody")
        queue(w, "tight", deserved={GPU: "4"})
        queue(w, "small", parent="tight", guarantee={"resource": {GPU: "6"}})
        queue(w, "beside", parent="tight")
        for level in range(1, 10):
            queue(w, f"deep-{level}", parent=f"deep-{level - 1}" if level > 1 else "root")
        for name in words:
            gang(w, f"in-{name}", 1, queue=name, gpus=1)
        gang(w, "good", 1, queue="default")
        gang(w, "in-beside", 1, queue="beside", gpus=1)
        await w.until(lambda: len(w.running("good")) == 1 and len(w.running("in-beside")) == 1)
        await w.until(lambda: all(ready(w, name).get("status") == "False" for name in words))
        for name, sentence in words.items():
            assert sentence in ready(w, name)["message"], name
            reason, message = said(w, f"in-{name}")
            assert reason in {"QueueStopped", "QueueNotLeaf", "QueueNotFound"}, (name, message)
            assert sentence in message, name
        assert ready(w, "deep-1")["status"] == "True"
        await comes_to_rest(w)
        assert len(w.bound()) == 2
        change(w, "ring-b", parent="root")
        change(w, "orphan", parent="root")
        change(w, "deep-9", parent="deep-1")
        change(w, "small", guarantee={"resource": {GPU: "3"}})
        waiting = ("in-below-ring", "in-orphan", "in-deep-9", "in-small")
        await w.until(lambda: all(len(w.running(name)) == 1 for name in waiting))
        await w.until(lambda: ready(w, "ring-a").get("status") == "True")
        await w.until(lambda: said(w, "in-ring-a")[0] == "QueueNotLeaf")

    play(scenario)


def test_a_guarantee_above_the_cluster_is_void_and_told(play):
    """It keeps nothing free, its owner goes on, and the sentence has both numbers."""

    async def scenario(w):
        await w.start(nodes=2)
        w.daemon()
        queue(w, "greedy", guarantee={"resource": {GPU: "1000"}})
        gang(w, "other", 1, queue="default")
        gang(w, "own", 1, queue="greedy")
        await w.until(lambda: len(w.running("other")) == 1 and len(w.running("own")) == 1)
        await w.until(lambda: "cannot be kept" in ready(w, "greedy").get("message", ""))
        assert "guarantee of 1000 nvidia.com/gpu" in ready(w, "greedy")["message"]
        assert "the cluster has 16" in ready(w, "greedy")["message"]
        await comes_to_rest(w)

    play(scenario)


def test_weights_of_zero_everywhere(play):
    """Nobody has a share of what is idle, which is told; it is used all the same, and comes back."""

    async def scenario(w):
        await w.start(nodes=3)
        w.daemon()
        queue(w, "org")
        for name in ("a", "b"):
            deserved = {GPU: "16" if name == "b" else "8"}
            queue(w, name, parent="org", weight=0, deserved=deserved)
        for name in ("first", "second"):
            gang(w, name, 1, queue="a")
            await w.until(lambda name=name: len(w.running(name)) == 1)
        gang(w, "third", 1, queue="b")
        await w.until(lambda: len(w.running("third")) == 1)
        await w.until(lambda: "have weight 0" in ready(w, "a").get("message", ""))
        assert w.client.get(QUEUES, None, "a")["status"]["fairShare"][GPU] == "8"
        await comes_to_rest(w)
        gang(w, "fourth", 1, queue="b")
        await w.until(lambda: len(w.running("fourth")) == 1)
        await comes_to_rest(w)
        assert len(w.running("first")) + len(w.running("second")) == 1

    play(scenario)


def test_a_quota_cut_below_what_is_used(play):
    """What runs goes on; the queue says what it holds and may hold; what asks for GPUs waits."""

    async def scenario(w):
        await w.start(nodes=3)
        w.daemon()
        queue(w, "team", capability={GPU: "24"})
        gang(w, "old", 2, queue="team")
        await w.until(lambda: len(w.running("old")) == 2)
        change(w, "team", capability={GPU: "8"})
        gang(w, "new", 1, queue="team")
        gang(w, "cpu-only", 1, queue="team", gpus=0)
        await w.until(lambda: len(w.running("cpu-only")) == 1)
        await w.until(lambda: "holds 16 nvidia.com/gpu" in ready(w, "team").get("message", ""))
        assert (
            "above its limit of 8: nothing that asks for it starts" in (ready(w, "team")["message"])
        )
        await w.until(lambda: said(w, "new")[0] == "WaitingForQuota")
        assert said(w, "new")[1] == (
            "needs 8 nvidia.com/gpu; queue team holds 16 of its capability of 8"
        )
        await comes_to_rest(w)
        assert len(w.running("old")) == 2
        w.client.delete("jobs.batch", "default", "old", propagation="Background")
        await w.until(lambda: len(w.running("new")) == 1)

    play(scenario)


def test_a_queue_is_deleted_with_its_jobs_and_made_again(play):
    """Who runs goes on and is counted again later; who waits is told which queue is missing."""

    async def scenario(w):
        await w.start(nodes=2)
        w.daemon()
        queue(w, "team", capability={GPU: "8"})
        gang(w, "old", 1, queue="team")
        await w.until(lambda: len(w.running("old")) == 1)
        gang(w, "new", 1, queue="team")
        w.client.delete(QUEUES, None, "team")
        await w.until(lambda: said(w, "new")[0] == "QueueNotFound")
        assert "queue 'team' does not exist" in said(w, "new")[1]
        await comes_to_rest(w)
        assert len(w.running("old")) == 1
        queue(w, "team", capability={GPU: "8"})
        await w.until(lambda: said(w, "new")[0] == "WaitingForQuota")
        change(w, "team", capability={GPU: "16"})
        await w.until(lambda: len(w.running("new")) == 1)
        await w.until(
            lambda: w.client.get(QUEUES, None, "team")["status"]["allocated"].get(GPU) == "16"
        )

    play(scenario)


def test_a_leaf_becomes_a_parent_while_its_job_runs(play):
    """What runs in it goes on; what comes is sent to leaves, and starts there."""

    async def scenario(w):
        await w.start(nodes=2)
        w.daemon()
        queue(w, "org")
        gang(w, "old", 1, queue="org")
        await w.until(lambda: len(w.running("old")) == 1)
        queue(w, "team", parent="org")
        gang(w, "lost", 1, queue="org")
        gang(w, "new", 1, queue="team")
        await w.until(lambda: len(w.running("new")) == 1)
        await w.until(lambda: said(w, "lost")[0] == "QueueNotLeaf")
        assert said(w, "lost")[1] == "queue 'org' has child queues; jobs go to leaves only: team"
        await comes_to_rest(w)
        assert len(w.running("old")) == 1
        held = w.client.get(QUEUES, None, "org")["status"]["allocated"]
        assert held[GPU] == "16"

    play(scenario)


def test_a_selector_that_matches_no_namespace(play):
    """Every gang of the queue is told that its namespace is not allowed; the label lets it in."""

    async def scenario(w):
        await w.start(nodes=1)
        w.daemon()
        queue(w, "closed", namespaceSelector={"matchLabels": {"team": "nobody"}})
        gang(w, "out", 1, queue="closed")
        await w.until(lambda: said(w, "out")[0] == "NamespaceNotAllowed")
        assert "namespace 'default'" in said(w, "out")[1]
        await comes_to_rest(w)
        labels = {"metadata": {"labels": {"team": "nobody"}}}
        w.client.patch("namespaces", None, "default", labels)
        await w.until(lambda: len(w.running("out")) == 1)

    play(scenario)


def test_more_members_than_the_cluster_could_ever_hold(play):
    """Pods that exist and never fit, and members that never come: both told, others start."""

    async def scenario(w):
        await w.start(nodes=1)
        w.daemon()
        gang(w, "huge", 30, queue="default", gpus=8)
        w.group("empty", minMember=10_000)
        w.job("empty", 3, gpus=1, group="empty")
        gang(w, "good", 1, queue="default")
        await w.until(lambda: len(w.running("good")) == 1)
        await w.until(lambda: said(w, "empty")[0] == "NotEnoughMembers")
        assert "10000 pods together; 3 pods" in said(w, "empty")[1]
        await w.until(lambda: said(w, "huge")[0] == "InsufficientResources")
        assert "needs 30 pods with 8 nvidia.com/gpu" in said(w, "huge")[1]
        await comes_to_rest(w)

    play(scenario)


@pytest.mark.parametrize("weight", [0, 1])
def test_hundreds_of_queues(play, weight):
    """Every queue says that it takes jobs, the one with a job runs it, and then all is quiet."""

    async def scenario(w):
        await w.start(nodes=1)
        for number in range(200):
            queue(w, f"q-{number:03}", weight=weight, deserved={GPU: "8"})
        w.daemon()
        gang(w, "job", 1, queue="q-199")
        await w.until(lambda: len(w.running("job")) == 1)
        names = w.names(QUEUES)
        await w.until(lambda: all(ready(w, name).get("status") == "True" for name in names))
        await comes_to_rest(w)

    play(scenario)
