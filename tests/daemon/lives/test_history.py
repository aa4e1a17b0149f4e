"""The history on whole daemons: a day of starts, evictions, ends and restarts gives exactly these records."""

from __future__ import annotations

import sqlite3

import pytest

from gpusched.io.history.history_query import (
    HistoryQuery,
    query_history,
    sum_history,
)
from gpusched.io.history.history_writer import HistoryOptions
from gpusched.io.history.past_runs import run_as_json, run_state
from tests.daemon.conftest import pod_spec

GROUPS = "podgroups.scheduling.gpusched.io"


@pytest.fixture
def options(tmp_path):
    """A file that is not there yet."""
    return HistoryOptions(file=tmp_path / "kept" / "history.db", keep_s=86_400.0, rows_max=1_000)


def members(w, group, count, *, gpus=4, run_for="10h", priority_class=""):
    """A gang of pods that all must run."""
    spec = {"priorityClassName": priority_class} if priority_class else {}
    w.group(group, minMember=count, **spec)
    for number in range(count):
        w.pod(
            f"{group}-{number}", gpus=gpus, labels={"gpusched.io/pod-group": group},
            annotations={"gpusched.io/run-for": run_for},
        )  # fmt: skip


def delete(w, group, count):
    """The gang and its pods."""
    for number in range(count):
        w.client.delete("pods", "default", f"{group}-{number}")
    w.client.delete(GROUPS, "default", group)


def runs_of(options, name=""):
    """Records in the order in which they began, of one gang or of all."""
    found = query_history(options.file, HistoryQuery()).runs
    wanted = [run for run in found if name in ("", run.gang.name)]
    return sorted(wanted, key=lambda run: (run.since, run.gang))


def told(run):
    """What a test compares."""
    return (run.gang.name, run_state(run), run.evictions, run.ended_by)


def high_priority(w):
    w.client.create(
        "priorityclasses.scheduling.k8s.io", {"metadata": {"name": "high"}, "value": 1000}
    )


def test_a_gang_that_waits_runs_and_succeeds_is_one_record(play, options):
    """Given a node that is full for a minute, then the wait, the run and the GPU-hours are exact."""

    async def scenario(w):
        await w.start(nodes=1)
        w.node("other", 0, **{"nvidia.com/gpu.product": "none"})
        daemon = w.daemon(history=options)
        members(w, "first", 2, run_for="60s")
        await w.until(lambda: len(w.running("first")) == 2)
        members(w, "second", 2, run_for="120s")
        await w.clock.sleep(300)
        metrics = daemon.app.telemetry.render().decode()
        await daemon.stop()
        first, second = runs_of(options)
        assert told(first) == ("first", "Succeeded", 0, "")
        assert told(second) == ("second", "Succeeded", 0, "")
        assert first.started - first.since < 3
        assert 60 <= first.ended - first.started < 65
        assert 55 < second.started - second.since < 65
        assert 120 <= second.ended - second.started < 125
        assert second.total_gpu_seconds == pytest.approx(8 * 120, abs=8 * 5)
        assert second.members == 2
        assert second.gpus == 8_000
        assert second.queue == "default"
        assert second.user == ""
        assert 0 < second.admitted <= second.started
        assert 'gpusched_gang_wait_seconds_count{queue="default"} 2.0' in metrics
        assert 'gpusched_gang_run_seconds_count{outcome="Succeeded",queue="default"} 2.0' in metrics
        assert "gpusched_history_writable 1.0" in metrics

    play(scenario)


def test_who_left_for_whom_is_recorded_and_waits_again(play, options):
    """Given a gang of higher priority, then the victim's run ends by it and its next run begins."""

    async def scenario(w):
        await w.start(nodes=1)
        high_priority(w)
        daemon = w.daemon(history=options)
        w.gang("low", 2, gpus=4)
        await w.until(lambda: len(w.running("low")) == 2)
        await w.clock.sleep(90)
        members(w, "urgent", 2, run_for="60s", priority_class="high")
        await w.until(lambda: len(w.running("urgent")) == 2)
        await w.clock.sleep(200)
        metrics = daemon.app.telemetry.render().decode()
        await daemon.stop()
        evicted, again = runs_of(options, "low")
        assert told(evicted) == ("low", "Preempted", 2, "PodGroup default/urgent")
        assert "urgent" in evicted.reason
        assert 8 * 85 < evicted.lost_gpu_seconds < 8 * 120
        assert evicted.lost_gpu_seconds == pytest.approx(evicted.total_gpu_seconds, abs=8 * 10)
        assert told(again) == ("low", "Running", 0, "")
        assert again.since >= evicted.ended
        assert again.started - again.since > 30  # a Job makes new pods after a while
        (urgent,) = runs_of(options, "urgent")
        assert told(urgent)[1] == "Succeeded"
        (total,) = sum_history(options.file, HistoryQuery(), "queue", w.clock.now())
        assert (total.key, total.runs, total.started, total.evictions) == ("default", 3, 3, 2)
        assert 'gpusched_gang_evictions_total{queue="default"} 2.0' in metrics

    play(scenario)


def test_a_run_that_is_evicted_again_says_how_often_it_was_before(play, options):
    """Given two urgent gangs one after another, then the second run of the victim has one eviction before its own."""

    async def scenario(w):
        await w.start(nodes=1)
        high_priority(w)
        daemon = w.daemon(history=options)
        w.gang("low", 2, gpus=4)
        for name in ("urgent", "urgent-too"):
            await w.until(lambda: len(w.running("low")) == 2)
            await w.clock.sleep(30)
            members(w, name, 2, run_for="20s", priority_class="high")
            await w.until(lambda name=name: len(w.running(name)) == 2)
        await w.clock.sleep(200)
        await daemon.stop()
        assert [(*told(run)[1:3], run.repeated_evictions) for run in runs_of(options, "low")] == [
            ("Preempted", 2, 0), ("Preempted", 2, 1), ("Running", 0, 0),
        ]  # fmt: skip

    play(scenario)


def test_gangs_that_run_on_over_a_restart_are_counted_once(play, options):
    """Given a daemon that dies and another that begins, then each run stays one record."""

    async def scenario(w):
        await w.start(nodes=1)
        first = w.daemon(history=options)
        members(w, "runs", 2, gpus=2)
        members(w, "waits", 2, gpus=8)
        members(w, "goes", 1, gpus=1)
        members(w, "ends", 1, gpus=1, run_for="150s")
        await w.until(lambda: len(w.running()) == 4)
        await w.clock.sleep(120)
        first.kill()
        delete(w, "goes", 1)
        await w.clock.sleep(60)
        second = w.daemon(history=options)
        await w.until(lambda: second.leading)
        await w.clock.sleep(120)
        delete(w, "waits", 2)
        await w.clock.sleep(30)
        delete(w, "runs", 2)
        await w.clock.sleep(30)
        await second.stop()
        by_name = {run.gang.name: run for run in runs_of(options)}
        assert len(runs_of(options)) == 4
        assert {name: run_state(run) for name, run in by_name.items()} == {
            "runs": "Deleted", "waits": "Deleted", "goes": "Unknown", "ends": "Succeeded",
        }  # fmt: skip
        runs = by_name["runs"]
        assert runs.total_gpu_seconds == pytest.approx(4 * (runs.ended - runs.started), abs=8)
        assert runs.ended - runs.started > 330
        assert by_name["waits"].started == 0.0
        for name in ("goes", "ends"):  # nobody saw when: until they were seen last
            assert 60 <= by_name[name].ended - by_name[name].started <= 125

    play(scenario)


def test_a_file_that_cannot_be_used_stops_the_history_and_nothing_else(play, options, caplog):
    """Given a file of another program, then gangs start; once it is gone, all that runs is recorded."""
    options.file.parent.mkdir()
    with sqlite3.connect(options.file) as other:
        other.execute("CREATE TABLE theirs (x)")
    other.close()

    async def scenario(w):
        await w.start(nodes=1)
        daemon = w.daemon(history=options)
        members(w, "a", 2)
        await w.until(lambda: len(w.running("a")) == 2)
        await w.clock.sleep(100)
        said = [each for each in caplog.messages if "the history stops" in each]
        assert len(said) == 1
        assert "gpusched_history_writable 0.0" in daemon.app.telemetry.render().decode()
        options.file.unlink()
        await w.clock.sleep(60)
        await daemon.stop()
        (run,) = runs_of(options)
        assert told(run) == ("a", "Running", 0, "")
        assert run.total_gpu_seconds == pytest.approx(8 * 160, abs=8 * 15)

    play(scenario)


def test_json_of_a_run_is_what_the_contract_says(play, options):
    """Given a gang that runs, then its record has times, seconds and hours up to now."""

    async def scenario(w):
        await w.start(nodes=1)
        w.client.patch(
            "nodes", "", "node-0", {"metadata": {"labels": {"nvidia.com/gpu.product": "H100"}}}
        )
        daemon = w.daemon(history=options)
        members(w, "a", 2)
        await w.until(lambda: len(w.running("a")) == 2)
        await w.clock.sleep(900)
        await daemon.stop()
        (run,) = runs_of(options)
        shown = run_as_json(run, w.clock.now())
        assert shown["metadata"]["name"] == "a"
        assert (shown["state"], shown["gpus"], shown["gpuType"]) == ("Running", "8", "H100")
        assert shown["runSeconds"] == pytest.approx(900, abs=5)
        assert shown["gpuHoursByType"] == {"H100": pytest.approx(2.0, abs=0.1)}
        assert (shown["ended"], shown["endedBy"], shown["user"]) == ("", "", "")

    play(scenario)


def test_what_made_a_lone_pod_is_told(play, options):
    """Given a replica of a Deployment and a pod that nobody made, then the first has its ReplicaSet as owner."""

    async def scenario(w):
        await w.start(nodes=1)
        daemon = w.daemon(history=options)
        labels = {"app": "serve"}
        spec = {**pod_spec(1), "restartPolicy": "Always"}
        w.client.create(
            "deployments.apps",
            {
                "apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": {"name": "serve", "namespace": "default"},
                "spec": {
                    "replicas": 1, "selector": {"matchLabels": labels},
                    "template": {"metadata": {"labels": labels}, "spec": spec},
                },
            },
        )  # fmt: skip
        w.pod("alone", gpus=1)
        await w.until(lambda: len(w.bound()) == 2)
        await w.clock.sleep(30)
        await daemon.stop()
        owners = {run.gang.name: run.owner for run in runs_of(options)}
        assert owners.pop("alone") == ""
        ((name, owner),) = owners.items()
        assert owner == f"ReplicaSet {name.rpartition('-')[0]}"

    play(scenario)


def test_a_gang_whose_member_fails_has_failed_and_its_next_run_is_its_own(play, options):
    """Given a Job that makes a pod again, then one run that failed and one that succeeded."""

    async def scenario(w):
        await w.start(nodes=1)
        daemon = w.daemon(history=options)
        w.job("again", 1, gpus=1, run_for="60s", backoffLimit=3)
        await w.until(lambda: len(w.running()) == 1)
        (pod,) = w.pods()
        failed = {"status": {"phase": "Failed"}}
        name = pod["metadata"]["name"]
        w.client.patch("pods", "default", name, failed, subresource="status")
        await w.until(lambda: len(w.bound()) == 2, 120)
        await w.clock.sleep(100)
        await daemon.stop()
        assert sorted(run_state(run) for run in runs_of(options)) == ["Failed", "Succeeded"]

    play(scenario)


def test_another_term_of_the_same_process_goes_on_with_its_runs(play, options):
    """Given a leadership that is lost for a while, then a gang that runs on is one record."""

    async def scenario(w):
        await w.start(nodes=1)
        daemon = w.daemon(history=options)
        members(w, "a", 2)
        await w.until(lambda: len(w.running("a")) == 2)
        await w.clock.sleep(60)
        daemon.app._on_restored_store("a test says so")
        await w.until(lambda: daemon.leading)
        await w.clock.sleep(60)
        delete(w, "a", 2)
        await w.clock.sleep(60)
        held = daemon.app.telemetry.render().decode()
        await daemon.stop()
        (run,) = runs_of(options)
        assert run_state(run) == "Deleted"
        assert run.total_gpu_seconds == pytest.approx(8 * (run.ended - run.started), abs=8)
        (line,) = [each for each in held.splitlines() if each.startswith("gpusched_gang_gpu_sec")]
        assert float(line.rpartition(" ")[2]) == pytest.approx(run.total_gpu_seconds, abs=8)

    play(scenario)


def test_nothing_is_kept_of_gangs_that_are_gone(play, options):
    """Given a file and gangs that come and go, then no container of the history grows."""

    async def scenario(w):
        await w.start(nodes=2)
        daemon = w.daemon(history=options)

        async def come_and_go(start):
            for number in range(start, start + 3):
                members(w, f"runs-{number}", 2, gpus=1, run_for="5s" if number % 2 else "10h")
                members(w, f"waits-{number}", 2, gpus=8)
                await w.clock.sleep(10)
            for number in range(start, start + 3):
                delete(w, f"runs-{number}", 2)
                delete(w, f"waits-{number}", 2)
            await w.clock.sleep(120)
            lives = daemon.app._history._lives
            kept = [lives._families, lives._open, lives._written, lives._ended]
            return [len(each) for each in kept], len(daemon.app._history._writer._rows)

        for start in (0, 3):
            assert await come_and_go(start) == ([0, 0, 0, 0], 0)
        await daemon.stop()
        assert len({run.gang for run in runs_of(options)}) == 12

    play(scenario)
