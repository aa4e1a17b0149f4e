"""Time sharing among equals: who was stopped by maxRuntime stands behind those who waited."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

QUEUES = "queues.scheduling.gpusched.io"
GROUPS = "podgroups.scheduling.gpusched.io"
JOB_NAME = "batch.kubernetes.io/job-name"
LIMIT_S = 100
WORK_S = 240
"""What each job has to do; what it has done is not lost when it is stopped."""


def queue(w, name, **spec):
    """A Queue."""
    head = {"apiVersion": "scheduling.gpusched.io/v1alpha1", "kind": "Queue"}
    w.client.create(QUEUES, {**head, "metadata": {"name": name}, "spec": spec})


def job(w, name):
    """The Job of that name."""
    return w.client.get("jobs.batch", "default", name)


def done(w, name):
    """Whether a Job is complete."""
    return any(
        each["type"] == "Complete" and each["status"] == "True"
        for each in (job(w, name).get("status") or {}).get("conditions") or ()
    )


def running(w):
    """Names of the Jobs that have a pod which runs."""
    return {
        pod["metadata"]["labels"][JOB_NAME]
        for pod in w.bound()
        if not pod["metadata"].get("deletionTimestamp") and pod["status"].get("phase") == "Running"
    }


async def checkpoints(w, names):
    """What Jobs do that save their work: who is paused has so much less to do when it goes on."""
    ran = dict.fromkeys(names, 0)
    paused = set()
    while True:
        for name in names:
            stopped = bool(job(w, name)["spec"].get("suspend"))
            if name in running(w):
                ran[name] += 1
            elif stopped and name not in paused and ran[name]:
                left = {"gpusched.io/run-for": f"{max(1, WORK_S - ran[name])}s"}
                template = {"metadata": {"annotations": left}}
                with contextlib.suppress(Exception):  # its pods are still counted as started
                    w.client.patch("jobs.batch", "default", name, {"spec": {"template": template}})
                    paused.add(name)
            if not stopped:
                paused.discard(name)
        await w.clock.sleep(1)


async def turns_until(w, names, over, within=4000):
    """The Jobs in the order of their turns until all is over."""
    turns = []
    for _ in range(within):
        if over():
            return turns
        now = running(w) & set(names)
        assert len(now) < 2
        if now and turns[-1:] != [*now]:
            turns += now
        await w.clock.sleep(1)
    raise AssertionError(f"not over after {within} s: {turns}")


EQUAL_TURNS = """\
tiers:
- plugins: [{name: priority}, {name: gang}, {name: quota}, {name: sla}]
- plugins:
  - {name: predicates}
  - {name: fairshare}
  - {name: lifetime, arguments: {longestTurn: 1}}
  - {name: walltime}
  - {name: nodeorder}
"""


@pytest.fixture
def equal_turns(tmp_path):
    file = tmp_path / "gpusched.yaml"
    file.write_text(EQUAL_TURNS)
    return str(file)


def test_jobs_that_save_nothing_end_as_well(play):
    """Given three Jobs, one longer than the limit, that begin anew in each turn: its second is longer."""

    async def scenario(w):
        await w.start(nodes=2)
        w.daemon()
        queue(w, "short", maxRuntime=f"{LIMIT_S}s")
        lengths = {"a": WORK_S, "b": 120, "c": 40}
        for name, seconds in lengths.items():
            w.job(name, 2, queue="short", run_for=f"{seconds}s")
            await w.clock.sleep(2)
        began = w.clock.now()
        turns = await turns_until(w, [*lengths], lambda: all(done(w, name) for name in lengths))
        # 100 s of a, 100 of b, all of c; 200 of a, all of b, all of a
        assert turns == ["a", "b", "c", "a", "b", "a"]
        assert w.clock.now() - began < 100 + 100 + 40 + 200 + 120 + WORK_S + 200

    play(scenario, limit_s=6000)


@pytest.mark.parametrize("ordering", ["Priority", "Fifo", "StrictFifo", "FairShare"])
def test_jobs_of_four_minutes_under_a_limit_of_less_than_two_take_turns_and_end(
    play, equal_turns, ordering
):
    """Given three equal Jobs and room for one: each has three turns, in a round, and all end."""

    async def scenario(w):
        await w.start(nodes=2)
        w.daemon(config_file=equal_turns)
        queue(w, "short", maxRuntime=f"{LIMIT_S}s", ordering=ordering)
        names = ["a", "b", "c"]
        for name in names:
            w.job(name, 2, queue="short", run_for=f"{WORK_S}s")
            await w.clock.sleep(2)
        saving = asyncio.create_task(checkpoints(w, names))
        began = w.clock.now()
        turns = await turns_until(w, names, lambda: all(done(w, name) for name in names))
        saving.cancel()
        assert turns == names * 3
        assert w.clock.now() - began < 3 * WORK_S + 300
        had = job(w, "a")["metadata"]["annotations"]["gpusched.io/turn"]
        assert 200 <= int(had.partition('"seconds":')[2].partition(",")[0]) <= 230

    play(scenario, limit_s=6000)


@pytest.mark.parametrize("deleted", [False, True], ids=["kept", "taken away"])
def test_a_turn_outlasts_restarts_and_a_tenant_that_deletes_its_record(play, deleted):
    """Given a Job that had its turn: a new daemon, or a record that is gone, lets nobody pass twice."""

    async def scenario(w):
        w.check_journal = False
        await w.start(nodes=2)
        first = w.daemon()
        queue(w, "short", maxRuntime="60s")
        for name in ("a", "b"):
            w.job(name, 2, queue="short")
            await w.clock.sleep(2)
        await w.until(lambda: running(w) == {"a"})
        await w.until(lambda: running(w) == {"b"}, within=90)
        if deleted:
            patch = {"metadata": {"annotations": {"gpusched.io/turn": None}}}
            w.client.patch("jobs.batch", "default", "a", patch)
            w.job("c", 2, queue="short")
            await w.until(lambda: running(w) == {"a"}, within=90)
            await w.until(lambda: running(w) == {"c"}, within=150)
            return
        first.kill()
        second = w.daemon()
        await w.until(lambda: second.leading)
        w.client.delete("jobs.batch", "default", "b", propagation="Background")
        w.job("c", 2, queue="short")
        await w.until(lambda: running(w) == {"a"}, within=90)
        await w.until(lambda: running(w) == {"c"}, within=150)

    play(scenario)


@pytest.mark.parametrize("killed", [0, 1, 2, 3, 4])
def test_a_daemon_that_dies_while_a_turn_ends_lets_the_next_one_go_on(play, killed):
    """Given a death before each write around the end of the turn: the one that waited is next."""

    async def scenario(w):
        w.check_journal = False
        await w.start(nodes=2)
        first = w.daemon()
        queue(w, "short", maxRuntime="60s")
        for name in ("a", "b"):
            w.job(name, 2, queue="short")
            await w.clock.sleep(2)
        await w.until(lambda: running(w) == {"a"})
        await w.clock.sleep(45)
        first.kill_at = first.writes + 1 + killed
        w.daemon(identity="next")
        await w.until(lambda: running(w) == {"b"}, within=120)

    play(scenario)


def test_a_pod_group_that_is_evicted_after_its_turn_stands_behind_the_others(play, equal_turns):
    """Given PodGroups whose pods come again by a Job without a queue: the record is in their status."""

    async def scenario(w):
        await w.start(nodes=2)
        w.daemon(config_file=equal_turns)
        queue(w, "short", maxRuntime="60s")
        for name in ("a", "b", "c"):
            w.group(name, queue="short", minMember=2)
            w.job(name, 2, group=name, backoffLimit=1000)
            await w.clock.sleep(2)
        turns = await turns_until(w, ["a", "b", "c"], lambda: w.clock.monotonic() > 420)
        assert turns[:6] == ["a", "b", "c"] * 2
        status = w.client.get(GROUPS, "default", "a")["status"]
        assert 60 <= status["turn"]["seconds"] <= 400
        assert status["turn"]["ended"] > "2026-01-01T00:01"

    play(scenario)


def test_who_waited_longer_than_max_wait_is_counted_from_the_last_turn(play, equal_turns):
    """Given maxWait as well: a Job that ran is not overdue by its age, and the turns go round."""

    async def scenario(w):
        await w.start(nodes=2)
        w.daemon(config_file=equal_turns)
        queue(w, "short", maxRuntime="60s", maxWait="90s")
        for name in ("a", "b", "c"):
            w.job(name, 2, queue="short")
            await w.clock.sleep(2)
        turns = await turns_until(w, ["a", "b", "c"], lambda: w.clock.monotonic() > 600)
        assert turns[:8] == ["a", "b", "c", "a", "b", "c", "a", "b"]

    play(scenario)


def test_what_the_next_one_is_told_about_its_start_comes_true(play):
    """Given the first that waits: the time that it is told is when the turn before it is over."""

    async def scenario(w):
        await w.start(nodes=2)
        w.daemon()
        queue(w, "short", maxRuntime="300s")
        w.job("a", 2, queue="short")
        await w.until(lambda: running(w) == {"a"})
        began = w.clock.now()
        w.job("b", 2, queue="short", suspend=False)

        def told():
            return [
                message
                for pod in w.pods()
                if pod["metadata"]["labels"][JOB_NAME] == "b"
                for message in [w.told(pod["metadata"]["name"]).get("message", "")]
                if "held for it from" in message
            ]

        await w.until(told)
        await w.until(lambda: running(w) == {"b"}, within=400)
        assert 295 < w.clock.now() - began < 330

    play(scenario)
