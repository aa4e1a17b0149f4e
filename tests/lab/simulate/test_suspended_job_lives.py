"""Suspended Jobs on a whole cluster: started in their turn, with what there is, paused and resumed."""

from __future__ import annotations

from gpusched.lab.virtual_time.cluster_run import ClusterRun
from tests.lab.simulate.job_lives import Obj, done, get, job, node, played, running


def test_jobs_are_started_one_after_another_as_their_pods_fit():
    """Three Jobs of two whole nodes each on two nodes: one runs at a time, and all complete."""

    async def story(world: ClusterRun) -> list[int]:
        for name in ("n0", "n1"):
            node(world, name)
        names = ["first", "second", "third"]
        for name in names:
            job(world, name, 2)
        seen = []
        for _ in range(300):
            await world.clock.sleep(1)
            seen.append(
                sum(
                    not get(world, name)["spec"].get("suspend") and not done(world, name)
                    for name in names
                )
            )
            if all(done(world, name) for name in names):
                break
        assert all(done(world, name) for name in names)
        return seen

    seen = played(story)
    assert max(seen) == 1


def test_a_job_starts_with_less_and_keeps_what_its_author_asked_for():
    """Eight wished for, three needed, five GPUs free: five run, and the wish is kept."""

    async def story(world: ClusterRun) -> tuple[int, Obj]:
        node(world, "n0", 5)
        notes = {"kueue.x-k8s.io/job-min-parallelism": "3"}
        job(world, "elastic", 8, gpus=1, run_for="1h", annotations=notes)
        await world.until(lambda: running(world, "elastic") == 5, within_s=60)
        await world.clock.sleep(60)
        return running(world, "elastic"), get(world, "elastic")

    count, made = played(story)
    assert count == 5
    assert made["spec"]["parallelism"] == 5
    assert made["metadata"]["annotations"]["gpusched.io/parallelism"] == "8"


def test_a_pools_labels_are_given_to_the_pods():
    """The queue's first pool is full: the Job is started in the second, and its pods say so."""

    async def story(world: ClusterRun) -> list[str]:
        node(world, "h", 8, gpu="h100")
        node(world, "a", 8, gpu="a100")
        pools = [{"name": each, "nodeSelector": {"gpu": each}} for each in ("h100", "a100")]
        world.client.create(
            "queues.scheduling.gpusched.io",
            {
                "apiVersion": "scheduling.gpusched.io/v1alpha1", "kind": "Queue",
                "metadata": {"name": "team"}, "spec": {"nodePools": pools},
            },
        )  # fmt: skip
        job(world, "one", 1, run_for="1h", queue="team")
        await world.until(lambda: running(world, "one") == 1, within_s=60)
        job(world, "two", 1, run_for="1h", queue="team")
        await world.until(lambda: running(world, "two") == 1, within_s=60)
        return [
            get(world, name)["spec"]["template"]["spec"]["nodeSelector"]["gpu"]
            for name in ("one", "two")
        ]

    assert played(story) == ["h100", "a100"]


def test_who_never_preempts_takes_no_room_as_a_suspended_job_either():
    """A Job's template names its class alone: preemptionPolicy Never is read from the class."""

    async def story(world: ClusterRun) -> list[bool]:
        node(world, "n0")
        for name, value, policy in (("low", 1, None), ("polite", 5, "Never"), ("high", 9, None)):
            preempting = {"preemptionPolicy": policy} if policy else {}
            world.client.create(
                "priorityclasses.scheduling.k8s.io",
                {
                    "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
                    "metadata": {"name": name}, "value": value, **preempting,
                },
            )  # fmt: skip
        seen = []
        for name in ("low", "polite", "high"):
            job(world, name, 1, run_for="10h", priority=name)
            await world.clock.sleep(60)
            seen.append(running(world, "low") == 1)
        await world.until(lambda: running(world, "high") == 1, within_s=60)
        return seen

    assert played(story) == [True, True, False]


def test_starts_and_pauses_are_told_on_the_job():
    """That it was started, that it was preempted and why it waits are three events, none lost."""

    async def story(world: ClusterRun) -> set[tuple[str, str]]:
        node(world, "n0")
        world.client.create(
            "priorityclasses.scheduling.k8s.io",
            {
                "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
                "metadata": {"name": "high"}, "value": 9,
            },
        )  # fmt: skip
        job(world, "low", 1, run_for="10h")
        await world.until(lambda: running(world, "low") == 1, within_s=60)
        job(world, "high", 1, run_for="10h", priority="high")
        await world.until(lambda: running(world, "high") == 1, within_s=60)
        await world.clock.sleep(90)
        return {
            (event["reason"], event["message"])
            for event in world.client.list("events", "default")
            if event["involvedObject"]["kind"] == "Job" and event["involvedObject"]["name"] == "low"
        }

    told = played(story)
    assert ("Scheduled", "queue default has room for 1 pod of 1: the Job is started") in told
    assert {"Preempted", "FailedScheduling"} <= {reason for reason, _ in told}


def test_a_job_of_another_controller_is_not_paused():
    """We would never start it again: its pod is evicted, and the Job makes another."""

    async def story(world: ClusterRun) -> tuple[object, int]:
        node(world, "n0")
        world.client.create(
            "priorityclasses.scheduling.k8s.io",
            {
                "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
                "metadata": {"name": "high"}, "value": 9,
            },
        )  # fmt: skip
        job(world, "low", 1, run_for="10h")
        owner = {
            "apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "name": "w", "uid": "u-1",
            "controller": True,
        }  # fmt: skip
        world.client.patch(
            "jobs.batch", "default", "low",
            {"metadata": {"ownerReferences": [owner]}, "spec": {"suspend": False}},
        )  # fmt: skip
        await world.until(lambda: running(world, "low") == 1, within_s=60)
        job(world, "high", 1, run_for="5m", priority="high")
        await world.until(lambda: running(world, "high") == 1, within_s=60)
        paused = get(world, "low")["spec"].get("suspend")
        await world.until(lambda: running(world, "low") == 1, within_s=900)
        return paused, running(world, "low")

    assert played(story) == (False, 1)
