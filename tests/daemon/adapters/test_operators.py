"""JobSet, LeaderWorkerSet, TrainJob and KubeRay as they are: gangs by their labels and by native groups.

Their controllers are played, on their own CRDs where these are at hand: staged starts, restarts,
failure of a member, suspended and resumed.
"""

from __future__ import annotations

import pytest

from gpusched.devcluster.registry.gangs.features import all_gates, read_features
from tests.daemon.adapters.native_gang_player import GROUPS, Player
from tests.daemon.adapters.played_operators import (
    JOBSETS,
    LWS,
    RAY,
    TRAIN_JOBS,
    PlayedJobSet,
    PlayedLeaderWorkerSet,
    PlayedRayCluster,
    fail,
    held,
    make,
    roles_held,
    start_with,
)

ROLE = "jobset.sigs.k8s.io/replicatedjob-name"
ATTEMPT = "jobset.sigs.k8s.io/restart-attempt"
WITHOUT_JOBS = read_features("1.36", "WorkloadWithJob=false")
"""Native groups, and none that the Job controller makes."""


def native(name):
    """The part of a pod's spec that names a native group."""
    return {"schedulingGroup": {"podGroupName": name}}


# -- JobSet ---------------------------------------------------------------------------------
def test_a_job_set_starts_as_a_whole_and_again_after_a_member_failed(play):
    """Given three nodes for a driver and two workers, a failed worker brings all back together."""

    async def scenario(w):
        await start_with(w, JOBSETS, nodes=2)
        w.daemon()
        jobs = PlayedJobSet(w, "train", ("driver", 1, 1), ("worker", 1, 2))
        jobs.make_jobs()
        await w.until(lambda: len(w.pods()) == 3)
        await w.clock.sleep(10)
        assert held(w) == []
        w.node("late")
        await w.until(lambda: roles_held(w, ROLE) == {"driver": 1, "worker": 2})
        await w.until(lambda: len(w.running()) == 3)
        fail(w, next(name for name in held(w) if "worker" in name))
        await jobs.restart()
        await w.until(lambda: roles_held(w, ATTEMPT) == {"1": 3}, within=120)

    play(scenario)


def test_a_suspended_job_set_gives_its_nodes_and_resumes_as_a_whole(play):
    """Given another gang that took a node meanwhile, all pods wait until it is back."""

    async def scenario(w):
        await start_with(w, JOBSETS, nodes=3)
        w.daemon()
        jobs = PlayedJobSet(w, "train", ("driver", 1, 1), ("worker", 1, 2))
        jobs.make_jobs()
        await w.until(lambda: len(held(w)) == 3)
        jobs.suspend(True)
        await w.until(lambda: held(w) == [], within=120)
        w.pod("other", annotations={"gpusched.io/run-for": "10h"})
        await w.until(lambda: held(w) == ["other"])
        jobs.suspend(False)
        await w.until(lambda: len(w.pods()) == 4)
        await w.clock.sleep(20)
        assert held(w) == ["other"]
        w.client.delete("pods", "default", "other")
        await w.until(lambda: roles_held(w, ROLE) == {"driver": 1, "worker": 2}, within=120)

    play(scenario)


@pytest.mark.parametrize("status", ["Ready", "Complete"])
def test_jobs_that_others_depend_on_start_before_them(play, status):
    """Given dependsOn, each part starts as a whole when its pods appear."""

    async def scenario(w):
        await start_with(w, JOBSETS, nodes=2)
        w.daemon()
        depends = {"worker": ("prepare", status)}
        jobs = PlayedJobSet(w, "train", ("prepare", 1, 1), ("worker", 1, 2), depends=depends)
        jobs.make_jobs("prepare")
        await w.until(lambda: roles_held(w, ROLE) == {"prepare": 1})
        if status == "Complete":
            await w.until(lambda: len(w.running()) == 1)
            fail(w, held(w)[0], phase="Succeeded")
            jobs.tell_succeeded(prepare=1)
        jobs.make_jobs("worker")
        if status == "Ready":
            await w.clock.sleep(20)
            assert roles_held(w, ROLE) == {"prepare": 1}
            w.node("late")
        await w.until(lambda: roles_held(w, ROLE).get("worker") == 2)

    play(scenario)


def test_a_job_set_in_one_native_group_restarts_in_it(play):
    """Given a template with schedulingGroup, the group's minCount counts, and stays one gang."""

    async def scenario(w):
        await start_with(w, JOBSETS, gangs=WITHOUT_JOBS, nodes=2)
        w.daemon()
        player = Player(w)
        player.group("train", 3)
        jobs = PlayedJobSet(
            w, "train", ("driver", 1, 1), ("worker", 1, 2), template=native("train")
        )
        jobs.make_jobs()
        await w.until(
            lambda: "they need 24 nvidia.com/gpu, and 16 are" in player.group_says("train")
        )
        assert held(w) == []
        w.node("late")
        await w.until(lambda: len(held(w)) == 3)
        await w.until(lambda: player.condition("train").get("status") == "True")
        await w.until(lambda: len(w.running()) == 3)
        fail(w, next(name for name in held(w) if "driver" in name))
        await jobs.restart()
        await w.until(lambda: roles_held(w, ATTEMPT) == {"1": 3}, within=120)

    play(scenario)


def test_a_job_set_by_label_is_one_gang_of_ours(play):
    """Given the label of a PodGroup of ours with two of three, two start."""

    async def scenario(w):
        await start_with(w, JOBSETS, nodes=2)
        w.daemon()
        w.group("ours", minMember=2)
        labels = {"gpusched.io/pod-group": "ours"}
        PlayedJobSet(w, "train", ("driver", 1, 1), ("worker", 1, 2), labels=labels).make_jobs()
        await w.until(lambda: len(held(w)) == 2)
        await w.until(lambda: w.condition("ours").get("status") == "True")

    play(scenario)


def test_groups_that_the_job_controller_makes_are_a_gang_each(play):
    """Given WorkloadWithJob, a Job of two of a JobSet starts alone: native groups come first."""

    async def scenario(w):
        await start_with(w, JOBSETS, gangs=all_gates("1.36"), nodes=2)
        w.daemon()
        PlayedJobSet(w, "train", ("a", 1, 2), ("b", 1, 2)).make_jobs()
        await w.until(lambda: len(w.client.list(GROUPS, "default")) == 2)
        await w.until(lambda: len(held(w)) == 2)
        assert len(roles_held(w, ROLE)) == 1
        w.node("late-0")
        await w.clock.sleep(20)
        assert len(held(w)) == 2
        w.node("late-1")
        await w.until(lambda: roles_held(w, ROLE) == {"a": 2, "b": 2})

    play(scenario)


def test_a_job_that_says_its_scheduling_starts_so(play):
    """Given spec.scheduling of 1.37 with two of three, two start and the third waits for room."""

    async def scenario(w):
        await start_with(w, gangs=all_gates("1.37"), nodes=2)
        w.daemon()
        scheduling = {"schedulingPolicy": {"gang": {"minCount": 2}}}
        w.job("j", 3, completionMode="Indexed", scheduling=scheduling)
        await w.until(lambda: len(held(w)) == 2)
        w.node("late")
        await w.until(lambda: len(held(w)) == 3)

    play(scenario)


# -- LeaderWorkerSet ------------------------------------------------------------------------
def test_a_group_of_a_leader_worker_set_is_recreated_as_a_whole(play):
    """Given two groups of two, the one that restarts starts again whole, the other runs on."""

    async def scenario(w):
        await start_with(w, LWS, nodes=4)
        w.daemon()
        lws = PlayedLeaderWorkerSet(w, "serve", replicas=2, size=2)
        lws.make_group(0)
        lws.make_group(1)
        everybody = ["serve-0", "serve-0-1", "serve-1", "serve-1-1"]
        await w.until(lambda: held(w) == everybody)
        before = {p["metadata"]["name"]: p["metadata"]["uid"] for p in w.bound()}
        await lws.recreate(1)
        await w.until(lambda: held(w) == everybody, within=120)
        after = {p["metadata"]["name"]: p["metadata"]["uid"] for p in w.bound()}
        assert {name for name in after if after[name] == before[name]} == {"serve-0", "serve-0-1"}

    play(scenario)


def test_workers_that_wait_for_their_leader_start_when_it_is_ready(play):
    """Given LeaderReady and room for a leader alone, the workers wait together."""

    async def scenario(w):
        await start_with(w, LWS, nodes=2)
        w.daemon()
        lws = PlayedLeaderWorkerSet(w, "serve", replicas=1, size=3, startupPolicy="LeaderReady")
        lws.make_pod(0, 0)
        await w.until(lambda: held(w) == ["serve-0"])
        lws.make_pod(0, 1)
        lws.make_pod(0, 2)
        await w.until(lambda: w.told("serve-0-1").get("message"))
        await w.clock.sleep(20)
        assert held(w) == ["serve-0"]
        w.node("late")
        await w.until(lambda: held(w) == ["serve-0", "serve-0-1", "serve-0-2"])

    play(scenario)


def test_a_leader_worker_set_in_a_native_group_starts_as_one(play):
    """Given schedulingGroup in its template, all groups are one gang, as that group says."""

    async def scenario(w):
        await start_with(w, LWS, gangs=WITHOUT_JOBS, nodes=3)
        w.daemon()
        player = Player(w)
        player.group("all", 4)
        lws = PlayedLeaderWorkerSet(w, "serve", replicas=2, size=2, template=native("all"))
        lws.make_group(0)
        lws.make_group(1)
        await w.until(lambda: "they need 32 nvidia.com/gpu, and 24 are" in player.group_says("all"))
        await w.clock.sleep(10)
        assert held(w) == []
        w.node("late")
        await w.until(lambda: len(held(w)) == 4)

    play(scenario)


# -- TrainJob -------------------------------------------------------------------------------
def train_job(w, *, group=""):
    """A TrainJob of an initializer and two nodes, and the JobSet that the trainer makes for it."""
    made = make(
        w, TRAIN_JOBS, "tune", {"runtimeRef": {"name": "torch"}, "trainer": {"numNodes": 2}}
    )
    return PlayedJobSet(
        w,
        "tune",
        ("dataset-initializer", 1, 1),
        ("node", 1, 2),
        owned_by=made,
        depends={"node": ("dataset-initializer", "Complete")},
        labels={"scheduling.x-k8s.io/pod-group": group} if group else None,
    )


def test_a_train_job_starts_its_initializer_and_then_its_nodes_together(play):
    """Given one node, the initializer runs; its nodes wait for two."""

    async def scenario(w):
        await start_with(w, TRAIN_JOBS, JOBSETS, nodes=1)
        w.daemon()
        jobs = train_job(w)
        jobs.make_jobs("dataset-initializer")
        await w.until(lambda: len(w.running()) == 1)
        fail(w, held(w)[0], phase="Succeeded")
        jobs.tell_succeeded(**{"dataset-initializer": 1})
        jobs.make_jobs("node")
        await w.until(lambda: len(w.pods()) == 3)
        await w.clock.sleep(20)
        assert held(w) == []
        w.node("late")
        await w.until(lambda: roles_held(w, ROLE) == {"node": 2})

    play(scenario)


def test_a_suspended_train_job_resumes_as_a_whole(play):
    """The trainer passes suspend on to its JobSet, and that to its Jobs."""

    async def scenario(w):
        await start_with(w, TRAIN_JOBS, JOBSETS, nodes=2)
        w.daemon()
        jobs = train_job(w)
        jobs.tell_succeeded(**{"dataset-initializer": 1})
        jobs.make_jobs("node")
        await w.until(lambda: roles_held(w, ROLE) == {"node": 2})
        jobs.suspend(True)
        await w.until(lambda: held(w) == [], within=120)
        jobs.suspend(False)
        await w.until(lambda: roles_held(w, ROLE) == {"node": 2}, within=120)

    play(scenario)


# -- KubeRay --------------------------------------------------------------------------------
def test_a_ray_cluster_is_made_whole_again_after_a_worker_failed(play):
    """Given a head and two workers that it needs, the worker made anew gets its node."""

    async def scenario(w):
        await start_with(w, RAY, nodes=3)
        w.daemon()
        ray = PlayedRayCluster(w, "r", groups={"gpu": (2, 2, 1)})
        ray.make_pods()
        await w.until(lambda: roles_held(w, "ray.io/node-type") == {"head": 1, "worker": 2})
        lost = next(name for name in held(w) if "worker" in name)
        w.pod("waits", annotations={"gpusched.io/run-for": "10h"})
        await w.clock.sleep(3)
        w.client.delete("pods", "default", lost)
        await w.until(lambda: w.client.get("pods", "default", lost) is None)
        again = ray.make_pod("worker", "gpu", replica=2)
        await w.until(lambda: again in held(w), within=120)
        assert "waits" not in held(w)

    play(scenario)


def test_a_suspended_ray_cluster_resumes_as_a_whole(play):
    """Given a node less when it resumes, nobody of it starts."""

    async def scenario(w):
        await start_with(w, RAY, nodes=3)
        w.daemon()
        ray = PlayedRayCluster(w, "r", groups={"gpu": (2, 2, 1)})
        ray.make_pods()
        await w.until(lambda: len(held(w)) == 3)
        await ray.suspend()
        w.pod("other", annotations={"gpusched.io/run-for": "10h"})
        await w.until(lambda: held(w) == ["other"])
        ray.resume()
        await w.clock.sleep(20)
        assert held(w) == ["other"]
        w.node("late")
        await w.until(lambda: roles_held(w, "ray.io/node-type").get("worker") == 2)

    play(scenario)


def test_hosts_of_a_replica_count_and_more_workers_grow_later(play):
    """Given replicas of two hosts, at least one, the cluster starts with three pods and grows."""

    async def scenario(w):
        await start_with(w, RAY, nodes=2)
        w.daemon()
        PlayedRayCluster(w, "r", groups={"tpu": (2, 1, 2)}).make_pods()
        await w.clock.sleep(10)
        assert held(w) == []
        w.node("late-0")
        await w.until(lambda: roles_held(w, "ray.io/node-type") == {"head": 1, "worker": 2})
        w.node("late-1")
        w.node("late-2")
        await w.until(lambda: roles_held(w, "ray.io/node-type") == {"head": 1, "worker": 4})

    play(scenario)


def test_a_ray_cluster_in_a_native_group(play):
    """Given schedulingGroup in head and workers, minCount 2 of 3 starts two."""

    async def scenario(w):
        await start_with(w, RAY, gangs=WITHOUT_JOBS, nodes=2)
        w.daemon()
        player = Player(w)
        player.group("ray", 2)
        PlayedRayCluster(w, "r", groups={"gpu": (2, 2, 1)}, template=native("ray")).make_pods()
        await w.until(lambda: len(held(w)) == 2)
        await w.until(lambda: player.condition("ray").get("status") == "True")

    play(scenario)
