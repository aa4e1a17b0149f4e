"""From YAML to Running: what a user sees of the daemon on a cluster."""

from __future__ import annotations

from gpusched.testing.invariants import Write


def test_a_gang_from_yaml_to_running(play):
    """PodGroup and Job become bound pods with slots, plan and fence, and then run."""

    async def scenario(w):
        await w.start(nodes=2)
        w.daemon()
        w.gang("train", 2)
        await w.until(lambda: len(w.running("train")) == 2)
        nodes = set()
        for pod in w.pods("train"):
            notes = pod["metadata"]["annotations"]
            nodes.add(pod["spec"]["nodeName"])
            assert notes["gpusched.io/slots"] == "0,1,2,3,4,5,6,7"
            assert notes["gpusched.io/fence"].startswith("d-0")
            assert len(notes["gpusched.io/plan"]) == 12
        assert nodes == {"node-0", "node-1"}
        await w.until(lambda: w.condition("train").get("status") == "True")
        assert w.condition("train")["reason"] == "Scheduled"
        assert (
            w.client.get("podgroups.scheduling.gpusched.io", "default", "train")["status"]["phase"]
            == "Running"
        )

    play(scenario)


def test_it_is_told_when_everything_was_listed(play):
    """Given a cluster of three nodes, a daemon that leads says once that it knows all of them."""

    async def scenario(w):
        await w.start(nodes=3)
        known = []
        daemon = w.daemon(on_listed=lambda: known.append(sorted(daemon.app.cache.rows.all_names())))
        w.gang("train", 2)
        await w.until(lambda: len(w.running("train")) == 2)
        assert known == [["node-0", "node-1", "node-2"]]

    play(scenario)


def test_a_gang_waits_with_a_reason_and_fits_when_a_node_appears(play):
    """The same sentence on the PodGroup and on each pod, with numbers; then it starts."""

    async def scenario(w):
        await w.start(nodes=1)
        w.daemon()
        w.gang("big", 2)
        await w.until(lambda: w.condition("big").get("status") == "False")
        said = w.condition("big")
        assert said["reason"] == "InsufficientResources"
        assert "needs 2 pods with 8 nvidia.com/gpu" in said["message"]
        names = [pod["metadata"]["name"] for pod in w.pods("big")]
        await w.until(lambda: all(w.told(name).get("message") for name in names))
        for name in names:
            assert w.told(name)["message"] == said["message"]
            assert w.told(name)["reason"] == "Unschedulable"
        assert w.bound() == []
        w.node("late")
        await w.until(lambda: len(w.running("big")) == 2)
        await w.until(lambda: w.condition("big").get("status") == "True")

    play(scenario)


def test_elastic_extras_come_when_there_is_room(play):
    """The minimum starts at once, the third pod with the next node."""

    async def scenario(w):
        await w.start(nodes=2)
        w.daemon()
        w.gang("elastic", 3, min_member=2)
        await w.until(lambda: len(w.running("elastic")) == 2)
        w.node("late")
        await w.until(lambda: len(w.running("elastic")) == 3)

    play(scenario)


def test_jobs_without_a_pod_group_are_gangs(play):
    """An Indexed Job is all or nothing; pods of a work queue Job start one by one."""

    async def scenario(w):
        await w.start(nodes=1)
        w.daemon()
        w.job("all", 2, completionMode="Indexed")
        w.job("some", 4, gpus=2, completions=None)
        await w.until(lambda: len(w.running()) == 4)
        await w.clock.sleep(5)
        owners = {p["metadata"]["ownerReferences"][0]["name"] for p in w.bound()}
        assert owners == {"some"}
        w.node("late-0")
        w.node("late-1")
        await w.until(lambda: len(w.running()) == 6)

    play(scenario)


def test_lone_pods_start_one_by_one(play):
    """A pod without anything around it is a gang of one."""

    async def scenario(w):
        await w.start(nodes=1)
        w.daemon()
        for number in range(3):
            w.pod(f"p{number}", gpus=4)
        await w.until(lambda: len(w.running()) == 2)
        await w.until(lambda: any(w.told(f"p{n}").get("message") for n in range(3)))
        assert len(w.bound()) == 2

    play(scenario)


def test_a_restart_without_changes_writes_nothing(play):
    """A new daemon finds everything said and done: running, waiting and misnamed gangs."""

    async def scenario(w):
        await w.start(nodes=2)
        first = w.daemon()
        w.gang("train", 1)
        w.gang("huge", 4)
        w.pod("lone", gpus=16)
        w.pod("lost", gpus=1, labels={"gpusched.io/pod-group": "nobody"})
        await w.until(lambda: len(w.running("train")) == 1)
        await w.until(lambda: w.condition("huge").get("status") == "False")
        await w.clock.sleep(30)
        await first.stop()
        before = len(w.journal)
        second = w.daemon()
        await w.until(lambda: second.leading and second.app.cycle.sessions > 2)
        await w.clock.sleep(30)
        assert w.journal[before:] == []

    play(scenario)


def test_a_quiet_cluster_is_not_written_to(play):
    """When all is said, sessions go on and writes end."""

    async def scenario(w):
        await w.start(nodes=2)
        daemon = w.daemon()
        w.gang("train", 1)
        w.gang("huge", 4)
        await w.until(lambda: w.condition("huge").get("status") == "False")
        await w.clock.sleep(150)  # an event of one reason is told once a minute
        before: list[Write] = list(w.journal)
        sessions = daemon.app.cycle.sessions
        await w.clock.sleep(120)
        assert daemon.app.cycle.sessions > sessions
        assert w.journal == before

    play(scenario)


def test_stopping_gives_the_lease_back(play):
    """The next daemon leads at once, without waiting for the lease to run out."""

    async def scenario(w):
        await w.start(nodes=1)
        first = w.daemon()
        await w.until(lambda: first.leading)
        await first.stop()
        second = w.daemon()
        begun = w.clock.monotonic()
        await w.until(lambda: second.leading)
        assert w.clock.monotonic() - begun < 5.0

    play(scenario)
