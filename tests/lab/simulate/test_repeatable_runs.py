"""The same seed gives the same history, byte for byte; real time gives the same outcome."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpusched.app import App, AppOptions
from gpusched.base.clock import SystemClock
from gpusched.config.model import DEFAULT
from gpusched.devcluster.cluster import ClusterOptions, start
from gpusched.devcluster.control.adjustable_clock import AdjustableClock
from gpusched.lab.virtual_time.cluster_run import ClusterRun, SimulationOptions, simulate_cluster
from tests.populations import one_of

PROGRAM = Path(__file__).with_name("gang_lives.py")
SPEED = 60.0


def _program() -> Any:
    spec = importlib.util.spec_from_file_location("gang_lives", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _begin(seed: int, hash_seed: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), str(seed)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
    )


def _half_an_hour(seed: int) -> Any:
    """The same in this process, whatever ran here before."""
    return json.loads(_program().half_an_hour_as_text(seed))


def test_half_an_hour_is_the_same_bytes_in_any_process_and_others_with_another_seed():
    """Daemon, cluster, jobs and stages: no hash seed, port or load enters the history."""
    running = [_begin(7, hashes) for hashes in one_of(3, ("0", "1", "4711"))]
    first, other = (_half_an_hour(seed) for seed in (7, 8))
    assert [json.loads(each.communicate()[0]) for each in running] == [first] * len(running)
    assert first["writes"] > 1000
    assert other["digest"] != first["digest"]
    assert sorted(first["complete"]) == ["blue", "green", "red", "white"]


@pytest.mark.early
def test_real_time_at_a_speed_comes_to_the_same_outcome(tmp_path):
    """The same gangs complete, with pods of the same names on the same nodes."""
    scenario = _program().one_after_another

    async def really() -> Any:
        clock = AdjustableClock(SPEED)
        cluster = await start(ClusterOptions(clock=clock, seed=7))
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(cluster.kubeconfig_text)
        options = AppOptions(
            config=DEFAULT, clock=SystemClock(), rng=random.Random(7), kubeconfig=str(kubeconfig)
        )
        app = App(options)
        daemon = asyncio.create_task(app.run())
        try:
            return await scenario(ClusterRun(cluster, clock, [daemon]))
        finally:
            app.stop()
            await daemon
            await cluster.close()

    virtual = simulate_cluster(scenario, options=SimulationOptions(seed=7))
    assert asyncio.run(really()) == virtual.value
