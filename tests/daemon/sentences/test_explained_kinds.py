"""``explain`` takes every kind that the daemon makes gangs of, and counts them as the daemon does."""

from __future__ import annotations

import pytest

from gpusched.base.errors import UsageError
from gpusched.cli.inspect.listing.api_objects import read_objects
from gpusched.cli.inspect.listing.view_of_api import gang_frames
from gpusched.io.client.api_client import ApiClient
from tests.behaviour.fuzz.foreign_kinds import install, make
from tests.daemon.adapters.test_adapters_owners import (
    JOBSETS,
    LWS,
    RAY,
    job_set,
    job_set_pod,
    lws_pod,
    ray_pod,
)
from tests.daemon.conftest import pod_spec
from tests.daemon.sentences.explained import explained, facts

MEMBER_OF = "jobset.sigs.k8s.io/"


def controller(w, kind, name, replicas, **notes):
    """A Deployment or StatefulSet of pods with eight GPUs."""
    labels = {"app": name}
    template = {
        "metadata": {"labels": labels, "annotations": notes},
        "spec": {**pod_spec(8), "restartPolicy": "Always"},
    }
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    if kind == "StatefulSet":
        spec |= {"serviceName": name, "podManagementPolicy": "Parallel"}
    w.client.create(
        f"{kind.lower()}s.apps",
        {
            "apiVersion": "apps/v1",
            "kind": kind,
            "metadata": {"name": name, "namespace": "default"},
            "spec": spec,
        },
    )


async def job_set_with_jobs(w):
    """A JobSet of a driver and three workers, with Jobs as its controller makes them."""
    await install(w, JOBSETS)
    made = make(w, JOBSETS, "js", job_set(("driver", 1, 1), ("worker", 1, 3)))
    owner = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "js", "controller": True,
        "uid": made["metadata"]["uid"],
    }  # fmt: skip
    for role, count in (("driver", 1), ("worker", 3)):
        labels = {
            f"{MEMBER_OF}jobset-name": "js",
            f"{MEMBER_OF}replicatedjob-name": role,
            f"{MEMBER_OF}replicatedjob-replicas": "1",
            f"{MEMBER_OF}job-index": "0",
        }
        w.client.create(
            "jobs.batch",
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {
                    "name": f"js-{role}-0",
                    "namespace": "default",
                    "labels": labels,
                    "ownerReferences": [owner],
                },
                "spec": {
                    "parallelism": count,
                    "completions": count,
                    "template": {"metadata": {"labels": labels}, "spec": pod_spec(8)},
                },
            },
        )


@pytest.mark.parametrize(
    ("word", "name"), [("jobset", "js"), ("job", "js-worker-0"), ("pod", ""), ("podgroup", "")]
)
def test_a_job_set_its_jobs_and_its_pods_are_one_story(play, word, name):
    """Given four pods of two Jobs for two nodes, whichever is asked about, four are needed."""

    async def scenario(w):
        await w.start(nodes=2)
        w.daemon()
        await job_set_with_jobs(w)
        await w.until(lambda: len(w.pods()) == 4)
        pods = sorted(pod["metadata"]["name"] for pod in w.pods())
        await w.until(lambda: "32 nvidia.com/gpu" in w.told(pods[0]).get("message", ""))
        lines = await explained(w, word, name or pods[0])
        assert lines[0] == "JobSet default/js: Pending in queue default"
        assert facts(lines, "needs")[0] == "4 pods that start together"
        assert facts(lines, "has") == ["4 pods: 4 pending"]
        said = w.told(pods[0])["message"]
        assert facts(lines, "why") == [f"Unschedulable: {said}"]
        assert "\n".join(lines).count(said) == 1

    play(scenario)


@pytest.mark.parametrize(
    ("kind", "notes", "needs"),
    [
        ("Deployment", {}, "3 pods, each of which starts by itself"),
        ("Deployment", {"gpusched.io/min-member": "3"}, "3 pods that start together"),
        ("StatefulSet", {}, "3 pods, each of which starts by itself"),
        ("StatefulSet", {"gpusched.io/min-member": "3"}, "3 pods that start together"),
    ],
)
def test_pods_of_controllers_are_told_as_the_daemon_gangs_them(play, kind, notes, needs):
    """Given three replicas and two nodes, those that say so wait for each other, others do not."""

    async def scenario(w):
        await w.start(nodes=2)
        w.daemon()
        controller(w, kind, "serve", 3, **notes)
        await w.until(lambda: len(w.pods()) == 3)
        await w.clock.sleep(5)
        lines = await explained(w, kind.lower(), "serve")
        assert lines[0] == f"{kind} default/serve: Pending in queue default"
        assert facts(lines, "needs")[0] == needs
        waiting = [pod for pod in w.pods() if not pod["spec"].get("nodeName")]
        (waits,) = {w.told(pod["metadata"]["name"])["message"] for pod in waiting}
        assert facts(lines, "why") == [f"Unschedulable: {waits}"]

    play(scenario)


def test_groups_of_a_leader_worker_set_are_counted(play):
    """Given two groups of two pods and no room, then both are told as gangs of their own."""

    async def scenario(w):
        await w.start(nodes=1)
        await install(w, LWS)
        make(w, LWS, "serve", {"replicas": 2, "leaderWorkerTemplate": {"size": 2}})
        w.daemon()
        for group in range(2):
            for index in range(2):
                lws_pod(w, group, index)
        await w.clock.sleep(5)
        for word, name in (("lws", "serve"), ("pod", "serve-1-1")):
            lines = await explained(w, word, name)
            assert lines[0] == "LeaderWorkerSet default/serve: Pending in queue default"
            assert facts(lines, "needs")[0] == "2 gangs, each of 2 pods that start together"
            assert "together they need 16 nvidia.com/gpu, and 8 are free" in facts(lines, "why")[0]

    play(scenario)


def test_a_ray_cluster_says_what_it_lacks(play):
    """Given workers without their head, the cluster is told to wait for it."""

    async def scenario(w):
        await w.start(nodes=2)
        await install(w, RAY)
        workers = {"groupName": "gpu", "replicas": 2, "minReplicas": 1, "maxReplicas": 5}
        make(w, RAY, "r", {"enableInTreeAutoscaling": True, "workerGroupSpecs": [workers]})
        w.daemon()
        ray_pod(w, "w0", "gpu")
        await w.clock.sleep(5)
        for word, name in (("raycluster", "r"), ("pod", "w0")):
            lines = await explained(w, word, name)
            assert lines[0] == "RayCluster default/r: Pending in queue default"
            assert facts(lines, "needs")[0] == "2 pods that start together"
            assert facts(lines, "why") == ["NotEnoughMembers: " + w.told("w0")["message"]]

    play(scenario)


def test_pods_that_only_annotations_hold_together_are_one_gang(play):
    """Given two pods of a Kueue group, either is told as the group, which has no object."""

    async def scenario(w):
        await w.start(nodes=1)
        w.daemon()
        for number in range(2):
            w.pod(
                f"k-{number}",
                labels={"kueue.x-k8s.io/pod-group-name": "k"},
                annotations={"kueue.x-k8s.io/pod-group-total-count": "2"},
            )
        await w.clock.sleep(5)
        lines = await explained(w, "pod", "k-1")
        assert lines[0] == "KueuePodGroup default/k: Pending in queue default"
        assert facts(lines, "needs")[0] == "2 pods that start together"
        assert facts(lines, "has") == ["2 pods: 2 pending"]

    play(scenario)


def test_a_kind_that_the_cluster_does_not_have_is_said(play):
    """Given no JobSets here, then that is the answer, and not that this one is missing."""

    async def scenario(w):
        await w.start(nodes=0)
        with pytest.raises(UsageError, match=r"no kind JobSet \(jobsets.jobset.x-k8s.io\)"):
            await explained(w, "jobset", "js")
        assert await explained(w, "deployment", "nobody") == []

    play(scenario)


async def listed_jobs(w):
    """What ``get jobs`` lists of the namespace."""
    api = await ApiClient.connect(str(w.kubeconfig), clock=w.clock)
    try:
        scope = "/namespaces/default"
        found = await read_objects(api, scope, schedulers=["gpusched"], now=w.clock.now())
        return [frame.view for frame in gang_frames(found)]
    finally:
        await api.close()


def test_whatever_get_jobs_lists_explain_tells_alike(play):
    """Given gangs of seven kinds that wait, then each is explained by the kind and name of its row."""

    async def scenario(w):
        await w.start(nodes=0)
        await install(w, JOBSETS, LWS)
        make(w, JOBSETS, "js", job_set(("driver", 1, 1), ("worker", 1, 3)))
        make(w, LWS, "serve", {"replicas": 1, "leaderWorkerTemplate": {"size": 2}})
        w.daemon()
        job_set_pod(w, "worker", 0, 0)
        lws_pod(w, 0, 0)
        w.gang("group", 2)
        w.job("job", 3)
        w.pod("pod")
        w.pod(
            "k-0",
            labels={"kueue.x-k8s.io/pod-group-name": "kueue"},
            annotations={"kueue.x-k8s.io/pod-group-total-count": "4"},
        )
        controller(w, "StatefulSet", "set", 2, **{"gpusched.io/min-member": "2"})
        await w.clock.sleep(10)
        rows = await listed_jobs(w)
        assert {(row.gang_kind, row.metadata.name, row.min_member) for row in rows} == {
            ("JobSet", "js", 4),
            ("LeaderWorkerSet", "serve-0", 2),
            ("PodGroup", "group", 2),
            ("Job", "job", 3),
            ("Pod", "pod", 1),
            ("KueuePodGroup", "kueue", 4),
            ("StatefulSet", "set", 2),
        }
        for row in rows:
            for word in (row.gang_kind.lower(), "gang"):
                lines = await explained(w, word, row.metadata.name)
                assert lines, (word, row.metadata.name)
                needs = facts(lines, "needs")[0]
                assert needs == (
                    f"{row.min_member} pods that start together"
                    if row.min_member > 1
                    else "1 pod, which starts by itself"
                )
                assert lines[0].split(", ")[0].endswith(f"in queue {row.queue}")
                assert row.message in "\n".join(facts(lines, "why"))

    play(scenario)


def test_a_gate_is_named_by_both(play):
    """Given a pod behind a gate, then get jobs and explain name it."""

    async def scenario(w):
        await w.start(nodes=1)
        w.daemon()
        w.pod("early", spec={"schedulingGates": [{"name": "example.com/quota"}]})
        await w.clock.sleep(5)
        (row,) = await listed_jobs(w)
        assert row.message == "1 pod of 1 needed is held by gate example.com/quota"
        (why,) = facts(await explained(w, "gang", "early"), "why")
        assert "held by gate example.com/quota" in why

    play(scenario)
