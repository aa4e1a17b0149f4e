"""Jobs whose pods are evicted for others: they survive it, or their authors are told before."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
GROUPS = "podgroups.scheduling.gpusched.io"
QUEUES = "queues.scheduling.gpusched.io"
POLICY = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}


def priority(w, name, value):
    """A PriorityClass."""
    w.client.create(
        "priorityclasses.scheduling.k8s.io",
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
        },
    )


def queue(w, name, **spec):
    """A Queue."""
    head = {"apiVersion": "scheduling.gpusched.io/v1alpha1", "kind": "Queue"}
    w.client.create(QUEUES, {**head, "metadata": {"name": name}, "spec": spec})


def job(w, name):
    """The Job of that name."""
    return w.client.get("jobs.batch", "default", name)


def conditions(w, name):
    """Types of the Job's conditions that hold."""
    found = (job(w, name).get("status") or {}).get("conditions") or ()
    return {each["type"] for each in found if each["status"] == "True"}


def events(w, reason):
    """Kind of object and note of each event of a reason."""
    return {
        (each["involvedObject"]["kind"], each["message"])
        for each in w.client.list("events")
        if each["reason"] == reason
    }


def readme_gang():
    """The objects of the first YAML block of the README."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    block = re.findall(r"^```yaml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)[0]
    return list(yaml.safe_load_all(block))


def example(name):
    """The PodGroup and the Job of a shipped example."""
    text = (ROOT / "manifests" / "examples" / f"{name}.yaml").read_text(encoding="utf-8")
    return list(yaml.safe_load_all(text))


@pytest.mark.parametrize("objects", [readme_gang(), example("gang")], ids=["README", "gang.yaml"])
def test_a_documented_gang_is_evicted_resumed_and_finished(play, objects):
    """Given README's gang, when a higher one takes its nodes and ends, then it runs again and ends."""
    group, work = objects
    name, pods = group["metadata"]["name"], work["spec"]["completions"]

    async def scenario(w):
        await w.start(nodes=pods)
        w.daemon()
        priority(w, "high", 1000)
        queue(w, "team-a")
        w.client.create(GROUPS, group)
        w.client.create("jobs.batch", work)
        await w.until(lambda: len(w.running(name)) == pods)
        queue_name = group["spec"].get("queue", "default")
        w.group("urgent", queue=queue_name, minMember=pods, priorityClassName="high")
        w.job("urgent", pods, group="urgent", run_for="2m")
        await w.until(lambda: len(w.running("urgent")) == pods)
        assert conditions(w, name) == set()
        await w.until(lambda: w.condition(name).get("status") == "False")
        await w.until(lambda: len(w.running(name)) == pods, within=300)
        await w.until(lambda: "Complete" in conditions(w, name), within=2400)
        assert job(w, name)["status"]["succeeded"] == pods
        assert not any(f"default/{name}," in note for _, note in events(w, "FailsIfEvicted"))

    play(scenario, limit_s=4000)


def test_a_gang_whose_job_would_fail_by_an_eviction_is_told_before_it_starts(play):
    """Given a Job without a queue and without a policy, then condition and event say what to do."""

    async def scenario(w):
        await w.start(nodes=1)
        w.daemon()
        w.gang("a", 2)
        await w.until(
            lambda: "backoffLimit is 6" in w.condition("a", "Admitted").get("message", "")
        )
        said = w.condition("a", "Admitted")["message"]
        assert "Job default/a" in said
        assert "podFailurePolicy ignore the condition DisruptionTarget" in said
        assert "gpusched.io/queue" in said
        assert w.bound() == []
        await w.until(lambda: events(w, "FailsIfEvicted"))
        assert {kind for kind, _ in events(w, "FailsIfEvicted")} == {"PodGroup"}

    play(scenario)


@pytest.mark.parametrize(
    ("how", "warned"),
    [
        ({}, True),
        ({"podFailurePolicy": POLICY}, False),
        ({"queue": "team"}, False),
        ({"queue": "team", "parallelism": 3, "completions": 3}, True),
    ],
)
def test_a_job_by_itself_is_told_too(play, how, warned):
    """Given a Job without a PodGroup: by an event on the Job, where nothing lets it survive."""

    async def scenario(w):
        await w.start(nodes=1)
        w.daemon()
        queue(w, "team")
        made = w.client.create
        if how.get("parallelism"):  # an elastic one: single pods of it may be evicted

            def elastic(resource, body):
                body["metadata"]["annotations"] = {"gpusched.io/min-member": "2"}
                return made(resource, body)

            w.cluster.client.create = elastic
        w.job("a", 2, **how)
        w.cluster.client.create = made
        await w.clock.sleep(20)
        assert {kind for kind, _ in events(w, "FailsIfEvicted")} == ({"Job"} if warned else set())

    play(scenario)


def test_a_pod_group_whose_job_has_failed_says_that(play):
    """Given no policy, when all pods are evicted, then the PodGroup tells what became of its Job."""

    async def scenario(w):
        await w.start(nodes=8)
        w.daemon()
        priority(w, "high", 1000)
        w.gang("a", 8)
        await w.until(lambda: len(w.running("a")) == 8)
        w.group("urgent", minMember=8, priorityClassName="high")
        w.job("urgent", 8, group="urgent")
        await w.until(lambda: len(w.running("urgent")) == 8)
        await w.until(lambda: "Failed" in conditions(w, "a"))
        await w.until(lambda: "Job default/a has failed" in w.condition("a").get("message", ""))
        said = w.condition("a")["message"]
        assert "BackoffLimitExceeded" in said
        assert "delete it and create it again" in said
        w.client.delete("jobs.batch", "default", "a", propagation="Background")
        await w.until(lambda: "has failed" not in w.condition("a").get("message", ""))

    play(scenario)
