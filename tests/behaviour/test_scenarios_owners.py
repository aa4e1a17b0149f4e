"""Scenarios 14, 20 and 70: what owners of pods do while we schedule them, with real controllers."""

from __future__ import annotations

from collections import Counter

from tests.lab.simulate.job_lives import GPU, done, get, job, node, played, priority_class, running

INDEX = "batch.kubernetes.io/job-completion-index"
JOB = "batch.kubernetes.io/job-name"


def deployment(revision):
    """Two replicas that need each other; a rolling update adds one before it takes one away."""
    container = {"name": "c", "image": "i", "resources": {"limits": {GPU: "1", "cpu": "1"}}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "web"}},
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0},
            },
            "template": {
                "metadata": {
                    "labels": {"app": "web", "revision": revision},
                    "annotations": {"scheduling.volcano.sh/group-min-member": "2"},
                },
                "spec": {"schedulerName": "gpusched", "containers": [container]},
            },
        },
    }


def revisions(world):
    """How many pods of each revision hold a node."""
    return Counter(
        pod["metadata"]["labels"]["revision"]
        for pod in world.client.list("pods", "default", "app=web")
        if pod["spec"].get("nodeName") and not pod["metadata"].get("deletionTimestamp")
    )


def test_s14_a_rolling_update_goes_through():
    """The pod that comes first of the new revision is bound, though it is alone in its ReplicaSet."""

    async def story(world):
        node(world, "n0", 3)
        world.client.create("deployments.apps", deployment("a"))
        await world.until(lambda: revisions(world) == {"a": 2}, within_s=60)
        template = deployment("b")["spec"]["template"]
        world.client.patch("deployments.apps", "default", "web", {"spec": {"template": template}})
        least = 2
        for _ in range(120):
            await world.clock.sleep(1)
            least = min(least, revisions(world).total())
            if revisions(world) == {"b": 2}:
                break
        return least, dict(revisions(world))

    assert played(story) == (2, {"b": 2})


def test_s20_an_elastic_job_gets_its_wish_back_when_it_is_queued_again():
    """Eight wished for, five free: it starts with five; preempted, it waits for eight again."""

    async def story(world):
        node(world, "n0", 5)
        priority_class(world, "high", 9)
        notes = {"kueue.x-k8s.io/job-min-parallelism": "3"}
        job(world, "elastic", 8, gpus=1, run_for="1h", annotations=notes)
        await world.until(lambda: running(world, "elastic") == 5, within_s=60)
        started = get(world, "elastic")["spec"]["parallelism"]
        job(world, "high", 1, gpus=5, run_for="1h", priority="high")
        await world.until(lambda: running(world, "high") == 1, within_s=120)
        spec = get(world, "elastic")["spec"]
        return started, spec["suspend"], spec["parallelism"], spec["completions"]

    assert played(story) == (5, True, 8, 8)


def test_s70_a_preempted_job_is_paused_and_resumes_where_it_was():
    """Two of four indexes are done when it is preempted: it is suspended, and they never rerun."""

    async def story(world):
        node(world, "n0", 2)
        priority_class(world, "high", 9)
        job(world, "low", 2, gpus=1, run_for="60s", completions=4)
        await world.until(
            lambda: get(world, "low").get("status", {}).get("succeeded") == 2, within_s=200
        )
        await world.until(lambda: running(world, "low") == 2, within_s=60)
        job(world, "high", 2, gpus=1, run_for="60s", priority="high")
        await world.until(lambda: running(world, "high") == 2, within_s=60)
        paused = get(world, "low")["spec"]["suspend"]
        await world.until(lambda: done(world, "low"), within_s=600)
        ended = Counter(
            pod["metadata"]["annotations"][INDEX]
            for pod in world.client.list("pods", "default", f"{JOB}=low")
            if pod["status"].get("phase") == "Succeeded"
        )
        return paused, done(world, "high"), dict(ended)

    assert played(story) == (True, True, {"0": 1, "1": 1, "2": 1, "3": 1})
