"""A daemon in real time whose solver is lost: it decides, leads and tells, and ends in order."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import signal

import pytest

from gpusched.app import App, AppOptions
from gpusched.base import limits
from gpusched.base.clock import SystemClock
from gpusched.config.load import load_config
from gpusched.devcluster import cluster as devcluster
from tests.placement.solver.conftest import COLD

ACTION = """
import os
import threading

import attrs

from acme_jobs.it import Exits, Hangs, Sum
from gpusched.base.errors import SolverFault

asked, begun = [], []
job = [Exits()]


@attrs.frozen
class Asks:
    name = "asks"

    def run(self, session):
        if session.snapshot.gangs:
            begun.append(True)
            try:
                asked.append(session.search(job[0]))
            except SolverFault as fault:
                asked.append(str(fault))
"""


def node(number):
    """Two racks of two nodes; the first node of each has 5 GPUs, the second 6."""
    amounts = {"cpu": "64", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": str(5 + number % 2)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": f"n{number}",
            "annotations": {"kwok.x-k8s.io/node": "fake"},
            "labels": {"gpusched.io/rack": f"r{number // 2}"},
        },
        "status": {"capacity": amounts, "allocatable": amounts},
    }


def gang(client, name, sizes):
    """A gang that prefers one rack, with pods of so many GPUs."""
    client.create(
        "podgroups.scheduling.gpusched.io",
        {
            "apiVersion": "scheduling.gpusched.io/v1alpha1",
            "kind": "PodGroup",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"minMember": len(sizes), "topology": {"preferred": "rack"}},
        },
    )
    for number, gpus in enumerate(sizes):
        amounts = {"nvidia.com/gpu": str(gpus), "cpu": "1"}
        container = {"name": "c", "image": "i", "resources": {"limits": amounts}}
        client.create(
            "pods",
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": f"{name}-{number}",
                    "namespace": "default",
                    "labels": {"gpusched.io/pod-group": name},
                    "annotations": {"gpusched.io/run-for": "10h"},
                },
                "spec": {"schedulerName": "gpusched", "containers": [container]},
            },
        )


POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "namespace": "default"},
    "spec": {"schedulerName": "gpusched", "containers": [{"name": "c", "image": "i"}]},
}


@pytest.fixture
def asks(jobs, packages, monkeypatch):
    """An action that asks the solver in every session in which there is a gang."""
    monkeypatch.setattr("gpusched.io.solver.pipe._START", COLD)
    packages.install("acme_asks", actions="asks = acme_asks.it:Asks", it=ACTION)
    import acme_asks.it as module  # noqa: PLC0415 - it was made just now

    return module


def _until_ended(pid):
    with contextlib.suppress(ProcessLookupError):
        while True:
            os.kill(pid, 0)


async def until(true, app):
    """Wait; a daemon that broke fails the test."""
    while not true():
        assert not app.done(), app.exception()
        await asyncio.sleep(0.02)


ASKING = (
    "actions: [enqueue, allocate, asks]\ncycle: {maxPeriod: 100ms}\n"
    "placement: {timeBudget: 100ms}\nleaderElection: {retryPeriod: 200ms}\n"
)


def run_daemon(tmp_path, scenario, text=ASKING):
    config = load_config(text, source="f.yaml")

    async def main():
        cluster = await devcluster.start(devcluster.ClusterOptions(clock=SystemClock(), token="t"))
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(cluster.kubeconfig_text)
        app = App(
            AppOptions(
                config=config,
                clock=SystemClock(),
                rng=random.Random(1),
                kubeconfig=str(kubeconfig),
            )
        )
        running = asyncio.create_task(app.run())
        cluster.client.create("pods", POD)
        try:
            await scenario(app, running, cluster.client)
        finally:
            app.stop()
            await running
            await cluster.close()

    asyncio.run(main())


def test_crash_after_crash_is_told_once_and_ends_well(asks, tmp_path, monkeypatch, caplog):
    """Readiness says what is wrong until the solver answers again; there is one event for each."""
    monkeypatch.setattr(limits, "SOLVER_LOSSES_OF_JOB_MAX", 100)
    monkeypatch.setattr(limits, "SOLVER_PAUSE_MIN_S", 0.2)
    monkeypatch.setattr(limits, "SOLVER_PAUSE_MAX_S", 0.2)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    async def scenario(app, running, client):
        def events(reason):
            return [each for each in client.list("events") if each["reason"] == reason]

        await until(lambda: "set aside" in str(asks.asked), running)
        await until(lambda: events("SolverDegraded"), running)
        assert "3 times in a row" in events("SolverDegraded")[0]["message"]
        assert "degraded: the solver ended with status 3" in app.readiness()[1]
        asks.job[0] = asks.Sum((20, 22))
        await until(lambda: 42 in asks.asked, running)
        await until(lambda: events("SolverRecovered"), running)
        assert "degraded" not in app.readiness()[1]
        assert len(events("SolverDegraded")) == 1

    with caplog.at_level(logging.ERROR, logger="gpusched"):
        run_daemon(tmp_path, scenario)
    assert len([r for r in caplog.records if r.message == "the solver does not work"]) == 1


def test_the_event_loop_goes_on_while_the_solver_hangs(asks, tmp_path, monkeypatch):
    """The lease is renewed in the middle of a search, and an end that is asked for comes at once."""
    monkeypatch.setattr(limits, "SOLVER_HARD_S", 600.0)
    asks.job[0] = asks.Hangs()
    pids = []

    async def scenario(app, running, client):
        def renewed():
            found = client.get("leases.coordination.k8s.io", "gpusched-system", "gpusched")
            return found and found["spec"]["renewTime"]

        await until(lambda: asks.begun, running)
        await until(lambda: app.cycle._solver.pid, running)
        pids.append(app.cycle._solver.pid)
        before = renewed()
        assert before
        await until(lambda: renewed() != before, running)
        assert asks.asked == []

    run_daemon(tmp_path, scenario)
    assert asks.asked in ([], ["the solver was ended with the daemon"])
    _until_ended(pids[0])


def metric(app, start):
    """The value of the first line of the metrics that starts so, 0 when there is none."""
    lines = app.telemetry.render().decode().splitlines()
    return next((float(line.split()[-1]) for line in lines if line.startswith(start)), 0.0)


def test_a_gang_is_placed_by_the_process_and_without_it(tmp_path, monkeypatch, caplog):
    """Metrics tell the one from the other; what is bound is right either way."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    seconds = "gpusched_solver_duration_seconds_count"

    async def scenario(app, running, client):
        def racks(name):
            pods = client.list("pods", "default", f"gpusched.io/pod-group={name}")
            names = [pod["spec"].get("nodeName") for pod in pods]
            return [int(each[1]) // 2 for each in names] if all(names) else []

        for number in range(4):
            client.create("nodes", node(number))
        gang(client, "first", (4, 3, 2, 2))
        await until(lambda: racks("first"), running)
        assert len(set(racks("first"))) == 1
        assert metric(app, f'{seconds}{{result="optimal"}}') >= 1
        assert metric(app, f'{seconds}{{result="fault"}}') == 0
        assert metric(app, "gpusched_solver_gap_ratio") == 0.0
        monkeypatch.setattr("gpusched.io.solver.pipe._START", "import sys; sys.exit(7)")
        os.kill(app.cycle._solver.pid, signal.SIGKILL)
        gang(client, "second", (4, 3, 2, 1))
        await until(lambda: racks("second"), running)
        assert metric(app, f'{seconds}{{result="fault"}}') >= 1
        assert metric(app, f'{seconds}{{result="invalid"}}') == 0

        def cannot_start():
            """A session that wants the process warm meets that; where nothing changes any more none follows."""
            app.cycle.wake()
            return "could not be started" in caplog.text

        await until(cannot_start, running)

    with caplog.at_level(logging.ERROR, logger="gpusched"):
        run_daemon(tmp_path, scenario, "cycle: {maxPeriod: 100ms}\nplacement: {timeBudget: 10s}\n")
    assert "could not be started: it ended with status 7" in caplog.text


def test_the_process_is_started_when_no_pod_is_bound(tmp_path):
    """What loading it takes of the processors is left to the API server while a burst is bound."""
    seen = []

    async def scenario(app, running, client):
        app.on_plan.append(lambda plan: seen.append((bool(plan.binds), app.cycle._solver.pid)))
        client.create("nodes", node(0))
        await until(lambda: app.cycle is not None and app.cycle._solver.pid, running)

    run_daemon(tmp_path, scenario, "cycle: {maxPeriod: 100ms}\n")
    assert [pid for binds, pid in seen if binds] == [0]
