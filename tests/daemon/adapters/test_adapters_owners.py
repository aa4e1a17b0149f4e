"""Pods of JobSets, LeaderWorkerSets, training jobs and Ray clusters form the right gangs."""

from __future__ import annotations

from tests.behaviour.fuzz.foreign_kinds import install, make

JOBSETS = "jobsets.jobset.x-k8s.io"
LWS = "leaderworkersets.leaderworkerset.x-k8s.io"
PYTORCH = "pytorchjobs.kubeflow.org"
MPI = "mpijobs.kubeflow.org"
RAY = "rayclusters.ray.io"
KAI_QUEUES = "queues.scheduling.run.ai"
QUEUES = "queues.scheduling.gpusched.io"
MEMBER_OF = "jobset.sigs.k8s.io/"
TRAINING = "training.kubeflow.org/"


def held(w):
    """Names of pods with a node, sorted."""
    return sorted(pod["metadata"]["name"] for pod in w.bound())


def events(w):
    """All events that were told."""
    return w.client.list("events", "default")


def job_set(*jobs, **spec):
    """The spec of a JobSet of (name, replicas, pods each)."""
    return {
        "replicatedJobs": [
            {
                "name": name,
                "replicas": replicas,
                "template": {"spec": {"parallelism": pods, "completions": pods}},
            }
            for name, replicas, pods in jobs
        ],
        **spec,
    }


def job_set_pod(w, role, job, index, **more):
    """A pod as the Jobs of JobSet ``js`` make it."""
    w.pod(
        f"js-{role}-{job}-{index}",
        labels={
            f"{MEMBER_OF}jobset-name": "js",
            f"{MEMBER_OF}replicatedjob-name": role,
            f"{MEMBER_OF}replicatedjob-replicas": "1",
            f"{MEMBER_OF}job-index": str(job),
            "batch.kubernetes.io/job-completion-index": str(index),
        },
        **more,
    )


def test_all_jobs_of_a_job_set_are_one_gang(play):
    """Given two replicated jobs of 1x1 and 2x1 pods, nobody starts before there is room for 3."""

    async def scenario(w):
        await w.start(nodes=2)
        await install(w, JOBSETS)
        make(w, JOBSETS, "js", job_set(("driver", 1, 1), ("worker", 2, 1)))
        w.daemon()
        job_set_pod(w, "driver", 0, 0)
        await w.clock.sleep(10)
        job_set_pod(w, "worker", 0, 0)
        job_set_pod(w, "worker", 1, 0)
        await w.until(lambda: "needs 3 pods" in w.told("js-driver-0-0").get("message", ""))
        assert held(w) == []
        w.node("late")
        await w.until(lambda: len(held(w)) == 3)

    play(scenario)


def test_later_jobs_of_a_job_set_in_order_are_not_waited_for(play):
    """Given startup in order, the first job starts alone, and the second then as a whole."""

    async def scenario(w):
        await w.start(nodes=2)
        await install(w, JOBSETS)
        order = {"startupPolicy": {"startupPolicyOrder": "InOrder"}}
        make(w, JOBSETS, "js", job_set(("driver", 1, 1), ("worker", 1, 2), **order))
        w.daemon()
        job_set_pod(w, "driver", 0, 0)
        await w.until(lambda: held(w) == ["js-driver-0-0"])
        job_set_pod(w, "worker", 0, 0)
        job_set_pod(w, "worker", 0, 1)
        await w.until(lambda: w.told("js-worker-0-0").get("message"))
        await w.clock.sleep(200)
        assert held(w) == ["js-driver-0-0"]  # two nodes, one taken: half a job is no start
        w.node("late")
        await w.until(lambda: len(held(w)) == 3)

    play(scenario)


def test_finished_jobs_of_a_job_set_are_not_asked_for_again(play):
    """Given a job that succeeded and whose pod is gone, the rest is complete without it."""

    async def scenario(w):
        await w.start(nodes=1)
        await install(w, JOBSETS)
        make(w, JOBSETS, "js", job_set(("prepare", 1, 1), ("train", 1, 1)))
        done = {"replicatedJobsStatus": [{"name": "prepare", "succeeded": 1}]}
        w.client.patch(JOBSETS, "default", "js", {"status": done}, subresource="status")
        w.daemon()
        job_set_pod(w, "train", 0, 0)
        await w.until(lambda: held(w) == ["js-train-0-0"])

    play(scenario)


def test_the_queue_of_a_job_set_is_that_of_its_label(play):
    """Given Kueue's label on the JobSet, its pods are charged to the queue of that name."""

    async def scenario(w):
        await w.start(nodes=1)
        await install(w, JOBSETS)
        queue(w, "team", capability={"nvidia.com/gpu": "0"})
        labels = {"kueue.x-k8s.io/queue-name": "team"}
        make(w, JOBSETS, "js", job_set(("train", 1, 1)), labels=labels)
        w.daemon()
        job_set_pod(w, "train", 0, 0)
        await w.until(lambda: "queue team" in w.told("js-train-0-0").get("message", ""))
        assert held(w) == []

    play(scenario)


def queue(w, name, **spec):
    """One of our queues."""
    w.client.create(
        QUEUES,
        {
            "apiVersion": "scheduling.gpusched.io/v1alpha1",
            "kind": "Queue",
            "metadata": {"name": name},
            "spec": spec,
        },
    )


def lws_pod(w, group, index):
    """A pod of LeaderWorkerSet ``serve`` with groups of two."""
    w.pod(
        f"serve-{group}-{index}" if index else f"serve-{group}",
        labels={
            "leaderworkerset.sigs.k8s.io/name": "serve",
            "leaderworkerset.sigs.k8s.io/group-index": str(group),
            "leaderworkerset.sigs.k8s.io/worker-index": str(index),
        },
        annotations={"leaderworkerset.sigs.k8s.io/size": "2"},
    )


def test_each_group_of_a_leader_worker_set_is_a_gang(play):
    """Given two groups of two pods and three nodes, one group runs and the other waits whole."""

    async def scenario(w):
        await w.start(nodes=3)
        await install(w, LWS)
        make(w, LWS, "serve", {"replicas": 2, "leaderWorkerTemplate": {"size": 2}})
        w.daemon()
        for group in range(2):
            for index in range(2):
                lws_pod(w, group, index)
        await w.until(lambda: len(held(w)) == 2)
        await w.clock.sleep(10)
        assert held(w) in (["serve-0", "serve-0-1"], ["serve-1", "serve-1-1"])
        w.node("late")
        await w.until(lambda: len(held(w)) == 4)

    play(scenario)


def test_a_leader_that_workers_wait_for_starts_alone(play):
    """Given startupPolicy LeaderReady, the leader is not held back for workers yet unmade."""

    async def scenario(w):
        await w.start(nodes=2)
        await install(w, LWS)
        spec = {"leaderWorkerTemplate": {"size": 2}, "startupPolicy": "LeaderReady"}
        make(w, LWS, "serve", spec)
        w.daemon()
        lws_pod(w, 0, 0)
        await w.until(lambda: held(w) == ["serve-0"])
        lws_pod(w, 0, 1)
        await w.until(lambda: held(w) == ["serve-0", "serve-0-1"])

    play(scenario)


def test_without_their_object_the_annotation_tells_the_size_of_a_group(play):
    """Given a cluster that does not serve LeaderWorkerSets, a group of two still is one gang."""

    async def scenario(w):
        await w.start(nodes=2)
        w.daemon()
        lws_pod(w, 0, 0)
        await w.clock.sleep(30)
        assert held(w) == []
        lws_pod(w, 0, 1)
        await w.until(lambda: held(w) == ["serve-0", "serve-0-1"])

    play(scenario)


def training_pod(w, job, role, index, *, operator="pytorchjob-controller", **more):
    """A pod as the training operator makes it."""
    w.pod(
        f"{job}-{role}-{index}",
        labels={
            f"{TRAINING}job-name": job,
            f"{TRAINING}operator-name": operator,
            f"{TRAINING}replica-type": role,
            f"{TRAINING}replica-index": str(index),
        },
        **more,
    )


def test_master_and_workers_of_a_pytorch_job_are_one_gang(play):
    """Given a master and two workers, all three start in the queue that the job names."""

    async def scenario(w):
        await w.start(nodes=2)
        await install(w, PYTORCH)
        queue(w, "team")
        spec = {
            "pytorchReplicaSpecs": {"Master": {"replicas": 1}, "Worker": {"replicas": 2}},
            "runPolicy": {"schedulingPolicy": {"queue": "team"}},
        }
        make(w, PYTORCH, "bert", spec)
        daemon = w.daemon()
        training_pod(w, "bert", "master", 0)
        training_pod(w, "bert", "worker", 0)
        training_pod(w, "bert", "worker", 1)
        await w.until(lambda: "beside the gang" in w.told("bert-master-0").get("message", ""))
        assert held(w) == []
        w.node("late")
        await w.until(lambda: len(held(w)) == 3)
        await w.until(lambda: w.client.get(QUEUES, None, "team")["status"].get("running") == 1)
        assert daemon.app.cache.families.read == {"PyTorchJob"}

    play(scenario)


def test_min_available_and_the_elastic_minimum_are_enough_to_start(play):
    """Given two of four, and one elastic worker beside its master, two pods of each start."""

    async def scenario(w):
        await w.start(nodes=2)
        await install(w, PYTORCH)
        some = {"schedulingPolicy": {"minAvailable": 2}}
        make(
            w,
            PYTORCH,
            "some",
            {"pytorchReplicaSpecs": {"Worker": {"replicas": 4}}, "runPolicy": some},
        )
        elastic = {
            "pytorchReplicaSpecs": {"Master": {"replicas": 1}, "Worker": {"replicas": 3}},
            "elasticPolicy": {"minReplicas": 1, "maxReplicas": 3},
        }
        make(w, PYTORCH, "elastic", elastic)
        w.daemon()
        for number in range(4):
            training_pod(w, "some", "worker", number)
        await w.until(lambda: held(w) == ["some-worker-0", "some-worker-1"])
        w.node("n2")
        w.node("n3")
        for number in range(4):
            w.client.delete("pods", "default", f"some-worker-{number}")
        training_pod(w, "elastic", "worker", 0)
        await w.clock.sleep(10)
        assert held(w) == []
        training_pod(w, "elastic", "master", 0)
        await w.until(lambda: held(w) == ["elastic-master-0", "elastic-worker-0"])

    play(scenario)


def test_a_launcher_that_waits_for_workers_is_no_part_of_the_minimum(play):
    """Given WaitForWorkersReady, the workers of an MPIJob start before its launcher exists."""

    async def scenario(w):
        await w.start(nodes=2)
        await install(w, MPI)
        spec = {
            "mpiReplicaSpecs": {"Launcher": {"replicas": 1}, "Worker": {"replicas": 2}},
            "launcherCreationPolicy": "WaitForWorkersReady",
        }
        make(w, MPI, "m", spec)
        w.daemon()
        for number in range(2):
            training_pod(w, "m", "worker", number, operator="mpi-operator")
        await w.until(lambda: len(held(w)) == 2)
        training_pod(w, "m", "launcher", 0, operator="mpi-operator", gpus=0)
        await w.until(lambda: "m-launcher-0" in held(w))

    play(scenario)


def ray_pod(w, name, group, kind="worker"):
    """A pod of RayCluster ``r``."""
    labels = {"ray.io/cluster": "r", "ray.io/node-type": kind, "ray.io/group": group}
    w.pod(name, labels=labels)


def test_a_ray_cluster_starts_with_its_head_and_grows_later(play):
    """Given at least one of three workers, head and one worker start, more follow with room."""

    async def scenario(w):
        await w.start(nodes=2)
        await install(w, RAY)
        workers = {"groupName": "gpu", "replicas": 3, "minReplicas": 1, "maxReplicas": 5}
        make(w, RAY, "r", {"enableInTreeAutoscaling": True, "workerGroupSpecs": [workers]})
        w.daemon()
        for number in range(3):
            ray_pod(w, f"w{number}", "gpu")
        await w.clock.sleep(10)
        assert held(w) == []  # without the head nobody starts
        ray_pod(w, "head", "headgroup", "head")
        await w.until(lambda: held(w) == ["head", "w0"])
        w.node("late")
        await w.until(lambda: held(w) == ["head", "w0", "w1"])

    play(scenario)


def test_without_any_size_the_pods_that_exist_start_together(play):
    """Given pods of a training job whose kind is not served, they start at once or not at all."""

    async def scenario(w):
        await w.start(nodes=1)
        w.daemon()
        training_pod(w, "bert", "master", 0)
        training_pod(w, "bert", "worker", 0)
        await w.until(lambda: "beside the gang" in w.told("bert-master-0").get("message", ""))
        assert held(w) == []
        w.node("late")
        await w.until(lambda: len(held(w)) == 2)
        what = "the size of PyTorchJob default/bert is unknown (pytorchjobs.kubeflow.org cannot"
        await w.until(lambda: any(what in event["message"] for event in events(w)))
        about = [event["involvedObject"] for event in events(w) if what in event["message"]]
        assert (about[0]["kind"], about[0]["name"]) == ("PyTorchJob", "bert")
        assert about[0]["apiVersion"] == "kubeflow.org/v1"

    play(scenario)


def test_a_group_made_by_the_operator_wins_over_derivation(play):
    """Given a PodGroup of two that the pods of a job of three name, two are enough."""

    async def scenario(w):
        await w.start(nodes=2)
        await install(w, PYTORCH, "podgroups.scheduling.x-k8s.io")
        make(w, PYTORCH, "bert", {"pytorchReplicaSpecs": {"Worker": {"replicas": 3}}})
        make(w, "podgroups.scheduling.x-k8s.io", "bert", {"minMember": 2})
        w.daemon()
        for number in range(3):
            w.pod(
                f"bert-{number}",
                labels={
                    f"{TRAINING}job-name": "bert",
                    f"{TRAINING}operator-name": "pytorchjob-controller",
                    "scheduling.x-k8s.io/pod-group": "bert",
                },
            )
        await w.until(lambda: len(held(w)) == 2)

    play(scenario)


def test_groups_that_only_pods_tell_of(play):
    """Kueue's pod group has its count, Koordinator's gang its minimum, YuniKorn its task groups."""

    async def scenario(w):
        await w.start(nodes=5)
        w.daemon()
        kueue = {
            "labels": {"kueue.x-k8s.io/pod-group-name": "k"},
            "annotations": {"kueue.x-k8s.io/pod-group-total-count": "2"},
        }
        gang = "gang.scheduling.koordinator.sh/"
        koordinator = {"annotations": {f"{gang}name": "g", f"{gang}min-available": "2"}}
        yuni = "yunikorn.apache.org/"
        yunikorn = {
            "labels": {"applicationId": "app"},
            "annotations": {
                f"{yuni}task-group-name": "w",
                f"{yuni}task-groups": '[{"name": "w", "minMember": 2}]',
            },
        }
        kinds = {"kueue": kueue, "koordinator": koordinator, "yunikorn": yunikorn}
        for name, metadata in kinds.items():
            w.pod(f"{name}-0", **metadata)
        await w.clock.sleep(10)
        assert held(w) == []
        for name, metadata in kinds.items():
            w.pod(f"{name}-1", **metadata)
        await w.until(lambda: len(held(w)) == 4)
        await w.clock.sleep(10)
        assert len({name[:-2] for name in held(w)}) == 2  # of five nodes two gangs of two

    play(scenario)


def test_queue_labels_of_kueue_and_kai_name_our_queues(play):
    """Given a Job with Kueue's label and a pod with KAI's, each is held by its own queue."""

    async def scenario(w):
        await w.start(nodes=2)
        for name in ("kueue-team", "kai-team"):
            queue(w, name, capability={"nvidia.com/gpu": "0"})
        w.daemon()
        w.job("j", 1)
        w.client.delete("jobs.batch", "default", "j")
        w.pod("k", labels={"kueue.x-k8s.io/queue-name": "kueue-team"})
        w.pod("p", labels={"kai.scheduler/queue": "kai-team"})
        await w.until(lambda: "queue kueue-team" in w.told("k").get("message", ""))
        await w.until(lambda: "queue kai-team" in w.told("p").get("message", ""))

    play(scenario)


def test_a_queue_of_kai_has_its_limit(play):
    """Given KAI's queues, a limit of 8 GPUs lets one of two pods start, -1 and nothing all."""

    async def scenario(w):
        await w.start(nodes=4)
        await install(w, KAI_QUEUES)
        make(w, KAI_QUEUES, "dept", {"resources": {"gpu": {"quota": -1, "limit": -1}}})
        limited = {"quota": 4, "limit": 8, "overQuotaWeight": 1}
        make(w, KAI_QUEUES, "small", {"parentQueue": "dept", "resources": {"gpu": limited}})
        make(w, KAI_QUEUES, "free", {"parentQueue": "dept"})
        w.daemon()
        for name in ("small", "free"):
            for number in range(2):
                w.pod(f"{name}-{number}", labels={"kai.scheduler/queue": name})
        await w.until(lambda: held(w) == ["free-0", "free-1", "small-0"])
        await w.clock.sleep(10)
        assert len(held(w)) == 3

    play(scenario)


def test_a_rollout_of_a_deployment_stays_one_gang(play):
    """Given a gang of two by annotation, the new pod of a rollout joins those that run."""

    async def scenario(w):
        await w.start(nodes=3)
        w.client.create("deployments.apps", deployment("1"))
        w.daemon()
        await w.until(lambda: len(held(w)) == 2)
        before = held(w)
        w.client.patch("deployments.apps", "default", "d", deployment("2"))
        await w.until(lambda: len(held(w)) == 2 and not set(held(w)) & set(before), within=200)

    play(scenario)


def deployment(version):
    """Two replicas that start together, replaced one by one."""
    pods = {
        "schedulerName": "gpusched",
        "containers": [
            {"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
        ],
    }
    notes = {"scheduling.volcano.sh/group-min-member": "2", "version": version}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d", "namespace": "default"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "d"}},
            "strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": {
                "metadata": {"labels": {"app": "d"}, "annotations": notes},
                "spec": pods,
            },
        },
    }
