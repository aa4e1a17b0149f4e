"""Gangs that are admitted and wait: why their admission went back, and their way to another queue."""

from __future__ import annotations

import pytest

GROUPS = "podgroups.scheduling.gpusched.io"
QUEUES = "queues.scheduling.gpusched.io"


def queue(w, name, **spec):
    """A Queue."""
    head = {"apiVersion": "scheduling.gpusched.io/v1alpha1", "kind": "Queue"}
    w.client.create(QUEUES, {**head, "metadata": {"name": name}, "spec": spec})


def members(w, group, count, *, run_for="10h"):
    """Pods of a PodGroup that nobody makes again."""
    for number in range(count):
        w.pod(
            f"{group}-{number}",
            labels={"gpusched.io/pod-group": group},
            annotations={"gpusched.io/run-for": run_for},
        )


def group(w, name):
    """The PodGroup of that name."""
    return w.client.get(GROUPS, "default", name)


def queue_status(w, name):
    """Status of a Queue."""
    return w.client.get(QUEUES, None, name).get("status") or {}


def test_a_schedule_timeout_keeps_the_reason_that_was_true_before_it(play):
    """Given too few nodes, when the time is over, then condition and event still say what lacked."""

    async def scenario(w):
        await w.start(nodes=1)
        w.daemon()
        w.group("a", minMember=2, scheduleTimeout="30s")
        members(w, "a", 2)
        await w.until(lambda: w.condition("a").get("reason") == "InsufficientResources")
        await w.until(lambda: w.condition("a").get("reason") == "BackOff")
        for _ in range(3):
            for kind in ("Admitted", "Scheduled"):
                said = w.condition("a", kind)["message"]
                assert said.startswith("was admitted and did not start within 30 s")
                assert (
                    "InsufficientResources: needs 2 pods with 8 nvidia.com/gpu; 1 fits now" in said
                )
            await w.clock.sleep(15)
        await w.until(lambda: w.condition("a").get("reason") == "InsufficientResources")
        await w.until(lambda: w.condition("a").get("reason") == "BackOff")
        said = w.condition("a")["message"]
        assert said.count("InsufficientResources") == 1

    play(scenario)


def test_a_restart_keeps_that_reason_too(play):
    """Given another daemon while the gang pauses, then it says the same."""

    async def scenario(w):
        await w.start(nodes=1)
        first = w.daemon()
        w.group("a", minMember=2, scheduleTimeout="30s")
        members(w, "a", 2)
        await w.until(lambda: w.condition("a").get("reason") == "BackOff")
        said = w.condition("a")["message"]
        assert "InsufficientResources" in said
        await w.clock.sleep(5)
        await first.stop()
        second = w.daemon()
        await w.until(lambda: second.leading)
        await w.clock.sleep(15)
        assert w.condition("a")["message"] == said
        assert w.condition("a", "Admitted")["message"] == said

    play(scenario)


def test_an_admitted_gang_that_waits_may_change_its_queue(play):
    """Given a gang that holds its place in a queue, when it goes to another, then others take it.

    Its old queue has it no more, neither in its counts nor before others in its line.
    """

    async def scenario(w):
        await w.start(nodes=3)
        w.daemon()
        queue(w, "old", ordering="StrictFifo")
        queue(w, "new", capability={"nvidia.com/gpu": "24"})
        w.group("runs", queue="old", minMember=2)
        members(w, "runs", 2)
        await w.until(lambda: len(w.running()) == 2)
        w.group("a", queue="old", minMember=3)
        members(w, "a", 3)
        await w.until(lambda: w.condition("a", "Admitted").get("status") == "True")
        await w.clock.sleep(2)
        w.group("behind", queue="old", minMember=1)
        members(w, "behind", 1)
        await w.clock.sleep(10)
        assert not w.bound("behind")  # it may not pass the first of its line
        w.client.patch(GROUPS, "default", "a", {"spec": {"queue": "new"}})
        await w.until(lambda: len(w.running("behind")) == 1)
        await w.until(lambda: "queue new" in w.condition("a", "Admitted").get("message", ""))
        assert group(w, "a")["status"]["phase"] == "Inqueue"
        await w.until(lambda: queue_status(w, "new").get("inqueue") == 1)
        assert queue_status(w, "old")["inqueue"] == 0
        for name in ("runs-0", "runs-1", "behind-0"):
            w.client.delete("pods", "default", name, grace_s=0)
        await w.until(lambda: len(w.running("a")) == 3)
        await w.until(lambda: queue_status(w, "new").get("running") == 1)

    play(scenario)


def test_room_that_is_being_freed_in_the_old_queue_is_given_back(play):
    """Given victims that take long to end, when the gang leaves for a queue without quota for it.

    The room that they free is not held for it any more: the next one of the old queue starts there.
    """

    async def scenario(w):
        await w.start(nodes=2)
        w.daemon()
        queue(w, "old")
        queue(w, "new", capability={"nvidia.com/gpu": "0"})
        w.client.create(
            "priorityclasses.scheduling.k8s.io",
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": "high"},
                "value": 1000,
            },
        )
        w.group("low", queue="old", minMember=2)
        for number in range(2):
            w.pod(
                f"low-{number}",
                labels={"gpusched.io/pod-group": "low"},
                annotations={"gpusched.io/run-for": "10h", "gpusched.io/stop-after": "40s"},
            )
        await w.until(lambda: len(w.running("low")) == 2)
        w.group("a", queue="old", minMember=2, priorityClassName="high")
        members(w, "a", 2)
        await w.until(lambda: w.condition("a").get("reason") == "PreemptionInProgress")
        w.group("next", queue="old", minMember=2)
        members(w, "next", 2)
        await w.clock.sleep(5)
        w.client.patch(GROUPS, "default", "a", {"spec": {"queue": "new"}})
        await w.until(lambda: len(w.running("next")) == 2, within=90)
        assert w.bound("a") == []
        assert w.condition("a")["reason"] in {"QuotaExceeded", "WaitingForQuota"}

    play(scenario)


def test_a_gang_in_the_new_queue_obeys_what_holds_there(play):
    """Given a new queue that is held, then the gang waits and says so; back again it starts."""

    async def scenario(w):
        await w.start(nodes=1)
        w.daemon()
        queue(w, "old")
        queue(w, "new", stopPolicy="Hold")
        w.group("a", queue="old", minMember=2)
        members(w, "a", 2)
        await w.until(lambda: w.condition("a", "Admitted").get("status") == "True")
        w.client.patch(GROUPS, "default", "a", {"spec": {"queue": "new"}})
        await w.until(lambda: w.condition("a", "Admitted").get("reason") == "QueueStopped")
        w.node("late")
        await w.clock.sleep(20)
        assert w.bound("a") == []
        w.client.patch(GROUPS, "default", "a", {"spec": {"queue": "old"}})
        await w.until(lambda: len(w.running("a")) == 2)

    play(scenario)


@pytest.mark.parametrize("phase", ["Running", "Unknown", "Completed"])
def test_a_gang_that_has_started_keeps_its_queue(play, phase):
    """Given pods that are charged to a queue, then the server refuses to charge another for them."""

    async def scenario(w):
        await w.start(nodes=2)
        w.daemon()
        queue(w, "old")
        w.group("a", queue="old", minMember=2)
        members(w, "a", 2, run_for="20s" if phase == "Completed" else "10h")
        await w.until(lambda: group(w, "a").get("status", {}).get("phase") == "Running")
        if phase == "Unknown":
            w.client.delete("pods", "default", "a-0", grace_s=0)
        await w.until(lambda: group(w, "a")["status"]["phase"] == phase)
        with pytest.raises(Exception, match="queue cannot change once the pod group has started"):
            w.client.patch(GROUPS, "default", "a", {"spec": {"queue": "default"}})

    play(scenario)


def test_a_job_that_somebody_suspends_again_starts_in_its_turn(play):
    """Given a Job that its queue started: suspended by hand, it starts again at once, as it had started in time."""

    async def scenario(w):
        await w.start(nodes=2)
        w.daemon()
        w.job("train", 2, queue="default", suspend=True)
        for _ in range(2):
            await w.until(lambda: len(w.running()) == 2)
            w.client.patch("jobs.batch", "default", "train", {"spec": {"suspend": True}})
            await w.until(lambda: not w.running())
            await w.until(lambda: len(w.running()) == 2, within=20)

    play(scenario)
