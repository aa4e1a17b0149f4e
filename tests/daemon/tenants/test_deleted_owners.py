"""Who is charged for pods whose Job, PodGroup or other owner is deleted while they go on."""

from __future__ import annotations

import pytest

from gpusched.io.history.history_query import HistoryQuery, query_history
from gpusched.io.history.history_writer import HistoryOptions
from tests.daemon.adapters.played_operators import JOBSETS, PlayedJobSet, start_with
from tests.daemon.conftest import pod_spec

GROUPS = "podgroups.scheduling.gpusched.io"


def a_queue(w, name, **limits):
    """A queue below the root."""
    w.client.create(
        "queues.scheduling.gpusched.io",
        {
            "apiVersion": "scheduling.gpusched.io/v1alpha1", "kind": "Queue",
            "metadata": {"name": name}, "spec": {"parent": "root", **limits},
        },
    )  # fmt: skip


def a_job(w, name, *, queue, parallelism=2, user="ann"):
    """A Job of four GPUs a pod, which alone names queue and user."""
    head = {
        "name": name, "namespace": "default", "labels": {"gpusched.io/queue": queue},
        "annotations": {"gpusched.io/user": user},
    }  # fmt: skip
    template = {"metadata": {"annotations": {"gpusched.io/run-for": "10h"}}, "spec": pod_spec(4)}
    spec = {"parallelism": parallelism, "completions": 2, "template": template}
    w.client.create(
        "jobs.batch", {"apiVersion": "batch/v1", "kind": "Job", "metadata": head, "spec": spec}
    )


def charged(daemon):
    """GPUs that gangs hold by queue and user, as the daemon counts."""
    found = {}
    for gang in daemon.app.cache.take_snapshot(0.0).placed_gangs.values():
        if gang.placed:
            who = (gang.queue, gang.creator.user)
            found[who] = found.get(who, 0) + sum(m.pod.pod_class.gpus for m in gang.placed)
    return found


@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_deleted_job_is_recorded_in_its_queue_and_as_its_users(play, tmp_path, parallelism):
    """Given pods that end after their Job, then the history has the run where it was."""
    options = HistoryOptions(file=tmp_path / "history.db", keep_s=86_400.0, rows_max=1_000)

    async def scenario(w):
        await w.start(nodes=1)
        a_queue(w, "team")
        daemon = w.daemon(history=options)
        a_job(w, "train", queue="team", parallelism=parallelism)
        await w.until(lambda: len(w.running()) == parallelism)
        await w.clock.sleep(60)
        w.client.delete("jobs.batch", "default", "train", propagation="Background")
        await w.until(lambda: not w.pods())
        await w.clock.sleep(60)
        await daemon.stop()
        runs = query_history(options.file, HistoryQuery()).runs
        (run,) = [each for each in runs if each.total_gpu_seconds]
        assert (run.queue, run.user) == ("team", "ann")
        assert run.total_gpu_seconds >= 4 * parallelism * 60

    play(scenario)


@pytest.mark.parametrize("restart", [False, True])
def test_a_queue_is_charged_for_pods_that_were_orphaned(play, restart):
    """Given a Job that is deleted and leaves its pods, then its full queue starts nobody else."""

    async def scenario(w):
        await w.start(nodes=2)
        a_queue(w, "team", capability={"nvidia.com/gpu": 8})
        daemon = w.daemon()
        a_job(w, "first", queue="team")
        await w.until(lambda: len(w.running()) == 2)
        w.client.delete("jobs.batch", "default", "first", propagation="Orphan")
        if restart:
            daemon.kill()
            daemon = w.daemon()
        a_job(w, "second", queue="team")
        await w.clock.sleep(120)
        assert len(w.running()) == 2
        assert charged(daemon) == {("team", "ann"): 8}

    play(scenario)


@pytest.mark.parametrize("restart", [False, True])
def test_a_queue_is_charged_for_pods_whose_group_was_deleted(play, restart):
    """Given a PodGroup that is deleted under its members, then its full queue starts nobody else."""

    async def scenario(w):
        await w.start(nodes=2)
        a_queue(w, "team", capability={"nvidia.com/gpu": 8})
        daemon = w.daemon()
        for name in ("first", "second"):
            w.group(name, minMember=1, queue="team")
            w.pod(f"{name}-0", gpus=8, labels={"gpusched.io/pod-group": name})
            await w.clock.sleep(60)
        w.client.delete(GROUPS, "default", "first")
        if restart:
            daemon.kill()
            daemon = w.daemon()
        await w.clock.sleep(120)
        assert len(w.running()) == 1
        assert charged(daemon) == {("team", ""): 8}

    play(scenario)


@pytest.mark.parametrize("restart", [False, True])
def test_a_queue_is_charged_for_pods_whose_job_set_was_deleted(play, restart):
    """Given a JobSet that is deleted and leaves its Jobs, then their pods stay in its queue."""

    async def scenario(w):
        await start_with(w, JOBSETS, nodes=2)
        a_queue(w, "team", capability={"nvidia.com/gpu": 16})
        daemon = w.daemon()
        jobs = PlayedJobSet(w, "train", ("worker", 2, 1))
        label = {"metadata": {"labels": {"gpusched.io/queue": "team"}}}
        w.client.patch(JOBSETS, "default", "train", label)
        jobs.make_jobs()
        await w.until(lambda: len(w.running()) == 2)
        assert charged(daemon) == {("team", ""): 16}
        w.client.delete(JOBSETS, "default", "train", propagation="Orphan")
        if restart:
            daemon.kill()
            daemon = w.daemon()
        await w.clock.sleep(60)
        assert len(w.running()) == 2
        assert charged(daemon) == {("team", ""): 16}

    play(scenario)


def test_a_charge_that_a_tenant_wrote_counts_for_nothing(play):
    """Given a running pod with the record of another pod, then its own queue is charged."""

    async def scenario(w):
        await w.start(nodes=2)
        a_queue(w, "team")
        a_queue(w, "rich")
        daemon = w.daemon()
        a_job(w, "theirs", queue="rich", parallelism=1)
        a_job(w, "own", queue="team", parallelism=1)
        await w.until(lambda: len(w.running()) == 2)
        theirs, own = sorted(w.running(), key=lambda pod: pod["metadata"]["name"], reverse=True)
        record = theirs["metadata"]["annotations"]["gpusched.io/charged"]
        assert "rich" in record
        w.client.patch(
            "pods", "default", own["metadata"]["name"],
            {"metadata": {"annotations": {"gpusched.io/charged": record}}},
        )  # fmt: skip
        w.client.delete("jobs.batch", "default", "own", propagation="Orphan")
        await w.clock.sleep(30)
        assert charged(daemon) == {("rich", "ann"): 4, ("default", ""): 4}

    play(scenario)


def test_who_names_its_queue_itself_carries_no_record(play):
    """Given a lone pod with a label, and one in a namespace's queue, then they change it freely."""

    async def scenario(w):
        await w.start(nodes=1)
        a_queue(w, "team")
        w.daemon()
        w.pod("lone", gpus=1, labels={"gpusched.io/queue": "team"})
        await w.until(lambda: len(w.running()) == 1)
        (pod,) = w.running()
        assert pod["metadata"]["annotations"]["gpusched.io/charged"] == ""

    play(scenario)
