"""Extras of one queue take back what extras of another hold above what that queue deserves."""

from __future__ import annotations

from tests.daemon.places.test_elastic_gangs import make_pods

QUEUES = "queues.scheduling.gpusched.io"


def queue(w, name, **spec):
    """A Queue."""
    head = {"apiVersion": "scheduling.gpusched.io/v1alpha1", "kind": "Queue"}
    w.client.create(QUEUES, {**head, "metadata": {"name": name}, "spec": spec})


def events(w, reason):
    """Sentences of the events with a reason, by the name of what they are about."""
    found = w.client.list("events")
    return {
        each["involvedObject"]["name"]: each["message"]
        for each in found
        if each["reason"] == reason
    }


async def lent(w):
    """The guest's gang of six holds what the owner's gang leaves; then the owner's wants two more."""
    await w.start(nodes=1)
    queue(w, "owner", deserved={"nvidia.com/gpu": 4})
    queue(w, "guest", deserved={"nvidia.com/gpu": 2})
    w.daemon()
    w.group("own", queue="owner", minMember=1)
    make_pods(w, "own", 0, 2, gpus=1)
    await w.until(lambda: len(w.running("own")) == 2)
    w.group("lent", queue="guest", minMember=1)
    make_pods(w, "lent", 0, 6, gpus=1)
    await w.until(lambda: len(w.running("lent")) == 6)
    make_pods(w, "own", 2, 3, gpus=1)


def test_two_extras_get_their_room_and_keep_it(play):
    """Two of the guest's leave, are made again and wait; the third extra is told why it waits."""

    async def scenario(w):
        await lent(w)
        await w.until(lambda: len(w.running("own")) == 4)
        gave = {f"lent-{n}" for n in range(6)} - {
            pod["metadata"]["name"] for pod in w.running("lent")
        }
        assert len(gave) == 2
        make_pods(w, "lent", 6, 2, gpus=1)
        await w.clock.sleep(120)
        assert (len(w.running("own")), len(w.running("lent"))) == (4, 4)
        told = events(w, "Reclaimed")
        assert {name for name in told if name.startswith("lent-")} <= gave
        assert any("reclaimed for default/own" in note for note in told.values()), told
        why = next(
            each["message"]
            for pod in w.pods("own")
            for each in pod["status"].get("conditions", ())
            if each["type"] == "PodScheduled" and each["status"] == "False"
        )
        assert "within what queue 'owner' deserves: it holds 4 of 4 nvidia.com/gpu" in why

    play(scenario)


def test_a_daemon_that_dies_after_its_promise_goes_on_with_it(play):
    """The room that was being made is used by the next daemon, and nothing more is taken."""

    async def scenario(w):
        await lent(w)
        await w.until(lambda: any(p["metadata"].get("deletionTimestamp") for p in w.pods("lent")))
        w.daemons[0].kill()
        assert len(w.bound("own")) == 2
        await w.clock.sleep(30)
        w.daemon()
        await w.until(lambda: len(w.running("own")) == 4, 120)
        assert len(w.running("lent")) == 4

    play(scenario)
