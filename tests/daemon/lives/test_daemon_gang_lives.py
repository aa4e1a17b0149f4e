"""Gangs over their life on a whole cluster: members are lost, queues drain, time runs out."""

from __future__ import annotations

import json

GROUPS = "podgroups.scheduling.gpusched.io"
QUEUES = "queues.scheduling.gpusched.io"
BUDGETS = "poddisruptionbudgets.policy"


def members(w, group, count, *, first=0, gpus=8):
    """Pods of a PodGroup that nobody makes again."""
    for number in range(first, first + count):
        notes = {"gpusched.io/run-for": "10h"}
        w.pod(
            f"{group}-{number}",
            gpus=gpus,
            labels={"gpusched.io/pod-group": group},
            annotations=notes,
        )


def queue(w, name, **spec):
    """A Queue."""
    w.client.create(
        QUEUES,
        {
            "apiVersion": "scheduling.gpusched.io/v1alpha1",
            "kind": "Queue",
            "metadata": {"name": name},
            "spec": spec,
        },
    )


def gone(w, name):
    """A pod is lost at once, as with its node."""
    w.client.delete("pods", "default", name, grace_s=0)


def told(w, reason):
    """Kinds of objects that events of a reason are about."""
    events = w.client.list("events")
    return {each["involvedObject"]["kind"] for each in events if each["reason"] == reason}


def evictions(w):
    """Pods whose eviction was accepted."""
    return sorted(x.path.split("/")[-2] for x in w.journal if x.path.endswith("/eviction"))


def is_lease(write):
    """Whether it renews the leadership."""
    return "/leases/" in write.path


def nodes_of(w, group):
    """Where its pods are."""
    return {p["metadata"]["name"]: p["spec"]["nodeName"] for p in w.bound(group)}


def test_the_slot_of_a_lost_member_waits_for_its_replacement(play):
    """A lone pod of equal priority has waited longer, and gets it only when another is free."""

    async def scenario(w):
        await w.start(nodes=4)
        w.daemon()
        w.gang("a", 4)
        await w.until(lambda: len(w.running("a")) == 4)
        w.pod("single", annotations={"gpusched.io/run-for": "10h"})
        await w.until(lambda: w.told("single").get("status") == "False")
        gone(w, w.pods("a")[0]["metadata"]["name"])
        await w.until(lambda: len(w.running("a")) == 4)
        assert w.told("single")["status"] == "False"
        w.node("late")
        await w.until(lambda: len(w.running()) == 5)

    play(scenario)


def test_nobody_takes_the_slot_before_the_replacement_is_made(play):
    """Whoever makes the pods takes his time: the room is held all the while."""

    async def scenario(w):
        await w.start(nodes=2)
        w.daemon()
        w.group("a", minMember=2)
        members(w, "a", 2)
        await w.until(lambda: len(w.running("a")) == 2)
        w.pod("single", annotations={"gpusched.io/run-for": "10h"})
        await w.clock.sleep(5)
        gone(w, "a-1")
        await w.until(lambda: w.client.get(GROUPS, "default", "a")["status"]["phase"] == "Unknown")
        await w.clock.sleep(30)
        assert not w.client.get("pods", "default", "single")["spec"].get("nodeName")
        members(w, "a", 1, first=2)
        await w.until(lambda: len(w.running("a")) == 2)
        await w.until(lambda: w.client.get(GROUPS, "default", "a")["status"]["phase"] == "Running")
        await w.clock.sleep(60)
        assert evictions(w) == []

    play(scenario)


def test_a_gang_that_stays_broken_is_stopped_and_a_restart_gives_it_no_more_time(play):
    """Three of four for a minute, half of it under another daemon; then all go, with a reason."""

    async def scenario(w):
        w.check_journal = False
        await w.start(nodes=4)
        first = w.daemon()
        w.group("a", minMember=4)
        members(w, "a", 4)
        await w.until(lambda: len(w.running("a")) == 4)
        await w.until(lambda: w.condition("a").get("status") == "True")
        gone(w, "a-3")
        lost = w.clock.now()
        await w.until(lambda: w.condition("a").get("status") == "False")
        await w.clock.sleep(30)
        first.kill()
        second = w.daemon()
        await w.until(lambda: second.leading)
        await w.clock.sleep(max(0.0, lost + 57 - w.clock.now()))
        assert evictions(w) == []
        await w.until(lambda: not w.bound("a"), within=30)
        assert w.clock.now() - lost < 75
        assert evictions(w) == ["a-0", "a-1", "a-2"]
        await w.until(lambda: w.condition("a", "Preempted").get("status") == "True")
        said = w.condition("a", "Preempted")
        assert said["reason"] == "StaleGang"
        assert "had 3 of 4 pods" in said["message"]
        assert told(w, "StaleGang") == {"Pod", "PodGroup"}
        await w.until(lambda: w.client.get(GROUPS, "default", "a")["status"]["phase"] == "Inqueue")

    play(scenario)


def test_a_broken_gang_that_a_budget_protects_is_left_in_peace(play):
    """It cannot be stopped: nobody is told that it is, until the budget lets its pods go."""

    async def scenario(w):
        await w.start(nodes=2)
        w.daemon()
        w.group("a", minMember=2)
        members(w, "a", 2)
        budget = {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "keep", "namespace": "default"},
            "spec": {
                "minAvailable": 2,
                "selector": {"matchLabels": {"gpusched.io/pod-group": "a"}},
            },
        }
        w.client.create(BUDGETS, budget)
        await w.until(lambda: len(w.running("a")) == 2)
        gone(w, "a-1")
        await w.until(lambda: w.condition("a").get("status") == "False")
        await w.clock.sleep(20)
        begun = len(w.journal)
        await w.clock.sleep(300)
        assert [x.path for x in w.journal[begun:] if x.method != "GET" and not is_lease(x)] == []
        assert w.condition("a")["reason"] == "NotEnoughMembers"
        w.client.delete(BUDGETS, "default", "keep")
        await w.until(lambda: not w.bound("a"), within=120)

    play(scenario)


def test_a_gang_that_is_repaired_in_time_is_left_alone(play):
    """The replacement comes at 50 s: nobody is evicted, then or later."""

    async def scenario(w):
        await w.start(nodes=4)
        w.daemon()
        w.group("a", minMember=4)
        members(w, "a", 4)
        await w.until(lambda: len(w.running("a")) == 4)
        await w.clock.sleep(5)
        gone(w, "a-3")
        await w.clock.sleep(50)
        members(w, "a", 1, first=4)
        await w.until(lambda: len(w.running("a")) == 4)
        await w.clock.sleep(90)
        assert evictions(w) == []
        assert w.condition("a")["status"] == "True"

    play(scenario)


def test_a_replacement_returns_to_the_rack_of_the_others(play):
    """Another rack is empty; with its own full it waits with a reason until a node is back."""

    async def scenario(w):
        await w.start(nodes=2)
        w.daemon()
        levels = [{"name": "rack", "nodeLabel": "gpusched.io/rack"}]
        w.client.create(
            "topologies.scheduling.gpusched.io",
            {
                "apiVersion": "scheduling.gpusched.io/v1alpha1",
                "kind": "Topology",
                "metadata": {"name": "default"},
                "spec": {"levels": levels},
            },
        )
        w.group("a", minMember=2, topology={"required": "rack"})
        w.job("a", 2, group="a")
        await w.until(lambda: len(w.running("a")) == 2)
        for number in range(3):
            w.node(f"other-{number}", **{"gpusched.io/rack": "r1"})
        name, node = min(nodes_of(w, "a").items())
        w.client.patch("nodes", None, node, {"spec": {"unschedulable": True}})
        gone(w, name)
        await w.until(lambda: w.condition("a").get("reason") == "TopologyUnsatisfiable")
        assert len(w.bound("a")) == 1
        w.client.patch("nodes", None, node, {"spec": {"unschedulable": False}})
        await w.until(lambda: len(w.running("a")) == 2)
        assert set(nodes_of(w, "a").values()) == {"node-0", "node-1"}

    play(scenario)


def test_a_queue_drains_and_is_closed_when_it_is_empty(play):
    """Gangs below it are evicted, Jobs paused, budgets respected; then it is Closed."""

    async def scenario(w):
        await w.start(nodes=4)
        w.daemon()
        queue(w, "org")
        queue(w, "team", parent="org")
        w.group("a", queue="team", minMember=2)
        members(w, "a", 2)
        w.job("j", 2, queue="team")
        await w.until(lambda: len(w.running()) == 4)
        w.client.create(
            "poddisruptionbudgets.policy",
            {
                "apiVersion": "policy/v1",
                "kind": "PodDisruptionBudget",
                "metadata": {"name": "keep", "namespace": "default"},
                "spec": {
                    "minAvailable": 2,
                    "selector": {"matchLabels": {"gpusched.io/pod-group": "a"}},
                },
            },
        )
        await w.clock.sleep(5)
        w.client.patch(QUEUES, None, "org", {"spec": {"stopPolicy": "HoldAndDrain"}})
        await w.until(lambda: w.client.get("jobs.batch", "default", "j")["spec"].get("suspend"))
        await w.clock.sleep(60)
        assert len(w.running("a")) == 2
        assert w.client.get(QUEUES, None, "org")["status"]["state"] == "Draining"
        w.client.delete("poddisruptionbudgets.policy", "default", "keep")
        await w.until(lambda: not w.pods("a"), within=120)
        await w.until(lambda: w.client.get(QUEUES, None, "org")["status"]["state"] == "Closed")
        assert w.client.get("jobs.batch", "default", "j")["spec"]["suspend"] is True
        assert evictions(w) == ["a-0", "a-1"]

    play(scenario)


def test_a_job_is_not_paused_against_a_budget(play):
    """Suspending asks no budget, so we do: the Job goes on until the budget lets all of it end."""

    async def scenario(w):
        await w.start(nodes=2)
        w.daemon()
        queue(w, "team")
        w.job("j", 2, queue="team")
        await w.until(lambda: len(w.running()) == 2)
        w.client.create(
            "poddisruptionbudgets.policy",
            {
                "apiVersion": "policy/v1",
                "kind": "PodDisruptionBudget",
                "metadata": {"name": "keep", "namespace": "default"},
                "spec": {
                    "minAvailable": 1,
                    "selector": {"matchLabels": {"batch.kubernetes.io/job-name": "j"}},
                },
            },
        )
        await w.clock.sleep(5)
        w.client.patch(QUEUES, None, "team", {"spec": {"stopPolicy": "HoldAndDrain"}})
        await w.clock.sleep(60)
        assert len(w.running()) == 2
        w.client.delete("poddisruptionbudgets.policy", "default", "keep")
        await w.until(lambda: w.client.get("jobs.batch", "default", "j")["spec"].get("suspend"))

    play(scenario)


def test_a_gang_runs_no_longer_than_its_queue_allows(play):
    """After a minute it is evicted, with the numbers; the other queue's runs on."""

    async def scenario(w):
        await w.start(nodes=4)
        w.daemon()
        queue(w, "short", maxRuntime="60s")
        queue(w, "long")
        for name in ("short", "long"):
            w.group(name, queue=name, minMember=2)
            members(w, name, 2)
        await w.until(lambda: len(w.running()) == 4)
        began = w.clock.now()
        await w.clock.sleep(50)
        assert evictions(w) == []
        await w.until(lambda: not w.bound("short"), within=40)
        assert w.clock.now() - began < 80
        assert evictions(w) == ["short-0", "short-1"]
        await w.until(lambda: w.condition("short", "Preempted").get("status") == "True")
        assert "queue short lets jobs run for 60 s" in w.condition("short", "Preempted")["message"]
        await w.clock.sleep(60)
        assert len(w.running("long")) == 2

    play(scenario)


def test_a_preempted_job_goes_on_where_it_was(play):
    """It is suspended, resumed when there is room, and finished indexes do not run again."""

    async def scenario(w):
        await w.start(nodes=2)
        w.daemon()
        queue(w, "q")
        w.client.create(
            "priorityclasses.scheduling.k8s.io",
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": "high"},
                "value": 1000,
            },
        )
        w.job("j", 2, completions=4, completionMode="Indexed", run_for="60s", queue="q")

        def job():
            return w.client.get("jobs.batch", "default", "j")

        await w.until(lambda: (job().get("status") or {}).get("succeeded") == 2, within=200)
        await w.until(lambda: len(w.running()) == 4)
        w.group("high", queue="q", minMember=2, priorityClassName="high")
        members(w, "high", 2)
        await w.until(lambda: len(w.running("high")) == 2)
        assert job()["spec"]["suspend"] is True
        assert job()["status"]["completedIndexes"] == "0,1"
        assert evictions(w) == []
        for number in range(2):
            gone(w, f"high-{number}")
        w.client.delete(GROUPS, "default", "high")
        await w.until(lambda: (job().get("status") or {}).get("succeeded") == 4, within=300)
        runs = json.dumps([p["metadata"]["annotations"] for p in w.pods()])
        assert runs.count('"batch.kubernetes.io/job-completion-index": "0"') == 1

    play(scenario)
