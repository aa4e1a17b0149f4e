"""The cluster under test, embedded or any other, and a namespace of each case's own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from .api import Api, connect


@pytest.fixture(scope="session")
def target(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """``KUBECONFIG#CONTEXT`` of the cluster under test; starts an embedded one by default."""
    wanted = str(request.config.getoption("target"))
    if wanted != "devcluster":
        yield wanted
        return
    config = tmp_path_factory.mktemp("devcluster") / "kubeconfig"
    command = [sys.executable, "-m", "gpusched.cli.main", "devcluster", "--no-stages"]
    with subprocess.Popen(
        [*command, "--kubeconfig", str(config)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline().startswith("ready ")
            _until_written(config)
            yield str(config)
        finally:
            process.terminate()


def _until_written(config: Path) -> None:
    for _ in range(100):
        if config.exists() and "current-context" in config.read_text():
            return
        time.sleep(0.02)
    raise AssertionError(f"{config} was not written")


@pytest.fixture
async def cluster_api(target: str) -> AsyncIterator[Api]:
    """The API without a namespace."""
    async with connect(target) as api:
        yield api


@pytest.fixture
async def api(cluster_api: Api) -> AsyncIterator[Api]:
    """The API with a new namespace, which goes away with the case."""
    name = f"contract-{uuid.uuid4().hex[:10]}"
    created = await cluster_api.post("/api/v1/namespaces", {"metadata": {"name": name}})
    assert created.code == 201, created.body
    api = cluster_api.within(name)
    await api.until_ready_for_pods()
    yield api
    await cluster_api.delete(f"/api/v1/namespaces/{name}")


@pytest.fixture
async def node(cluster_api: Api) -> AsyncIterator[str]:
    """The name of a Ready node that nobody else's pods are bound to."""
    name = f"contract-{uuid.uuid4().hex[:10]}"
    body = {
        "metadata": {"name": name},
        "spec": {"taints": [{"key": "contract", "effect": "NoSchedule"}]},
        "status": {
            "allocatable": {"cpu": "8", "memory": "8Gi", "pods": "110", "nvidia.com/gpu": "8"},
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    }
    created = await cluster_api.post("/api/v1/nodes", body)
    assert created.code == 201, created.body
    yield name
    await cluster_api.delete(f"/api/v1/nodes/{name}")
