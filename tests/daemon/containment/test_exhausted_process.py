"""A real process short of files, readers, collectors or ports: rows 50 to 52 of docs/faults.md."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import resource
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
import yaml

from gpusched.base import limits
from gpusched.io.observe import process_limits
from gpusched.io.observe.logs import LogQueueHandler

pytestmark = pytest.mark.early

PROGRAM = "import sys; from gpusched.cli.main import main; sys.exit(main(sys.argv[1:]))"
GANG = [
    {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n", "annotations": {"kwok.x-k8s.io/node": "fake"}},
        "status": {
            part: {"cpu": "96", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": "8"}
            for part in ("allocatable", "capacity")
        },
    },
    {
        "apiVersion": "scheduling.gpusched.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "g", "namespace": "default"},
        "spec": {"minMember": 8},
    },
    *(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"g-{number}",
                "namespace": "default",
                "labels": {"gpusched.io/pod-group": "g"},
                "annotations": {"gpusched.io/run-for": "1h"},
            },
            "spec": {
                "schedulerName": "gpusched",
                "containers": [
                    {
                        "name": "c",
                        "image": "i",
                        "resources": {"limits": {"nvidia.com/gpu": "1"}},
                    }
                ],
            },
        }
        for number in range(8)
    ),
]


def start(*words, files=0, **how):
    """A process of ours that may open so many files."""
    command = [sys.executable, "-c", PROGRAM, *words]
    if files:  # by a shell: code between fork and exec may hang where threads run
        command = ["sh", "-c", 'ulimit -n "$0" && exec "$@"', str(files), *command]
    streams = {"stderr": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, **how}
    return subprocess.Popen(command, **streams)


@pytest.fixture
def cluster(tmp_path):
    """An embedded cluster in a process of its own, with a gang of eight; its kubeconfig."""
    file = tmp_path / "gang.yaml"
    file.write_text(yaml.safe_dump_all(GANG))
    kubeconfig = tmp_path / "kubeconfig"
    process = start(
        "devcluster", "--port", "0", "--kubeconfig", str(kubeconfig), "--apply", str(file)
    )
    line = process.stdout.readline()
    assert line, process.stderr.read()
    yield str(kubeconfig)
    process.terminate()
    process.communicate(timeout=30)


def records(process, words):
    """What the daemon logged until something with these words."""
    found = []
    for line in process.stderr:
        found.append(json.loads(line))
        if words in line:
            return found
    raise AssertionError(f"the process ended without saying {words!r}: {found}")


def bound(kubeconfig, count):
    """Pods that have a node, as soon as there are so many, or after a minute."""
    known = yaml.safe_load(Path(kubeconfig).read_text(encoding="utf-8"))
    server = known["clusters"][0]["cluster"]["server"]
    token = known["users"][0]["user"]["token"]
    asked = urllib.request.Request(
        f"{server}/api/v1/pods", headers={"Authorization": f"Bearer {token}"}
    )
    found = 0
    for _ in range(120):
        with urllib.request.urlopen(asked) as answer:
            pods = json.load(answer)["items"]
        found = sum(bool(pod["spec"].get("nodeName")) for pod in pods)
        if found >= count:
            break
        time.sleep(0.5)
    return found


def test_with_too_few_files_it_does_not_start_and_says_what_to_do(tmp_path):
    """Given 16 files, the daemon ends at once with 78 and says how many it needs."""
    process = start(
        "run",
        "--kubeconfig",
        str(tmp_path / "none"),
        "--listen",
        "none",
        "--view",
        "none",
        files=16,
    )
    _, told = process.communicate(timeout=60)
    assert process.returncode == 78
    assert told == (
        "gpusched: this process may open 16 files and connections, and needs 64 at least: raise "
        "the limit to 256 (ulimit -n, LimitNOFILE)\n"
    )


def test_with_few_files_pools_are_smaller_and_gangs_start(cluster):
    """Given 64 files, a gang of eight is bound, and no file or connection is refused."""
    process = start(
        "run",
        "--kubeconfig",
        cluster,
        "--listen",
        "127.0.0.1:0",
        "--view",
        "none",
        "--log-format",
        "json",
        files=64,
    )
    try:
        few = records(process, "few files may be open")[-1]
        assert few["connections"] == 64 - limits.OPEN_FILES_RESERVED
        assert bound(cluster, 8) == 8
    finally:
        process.terminate()
        _, rest = process.communicate(timeout=60)
    assert "Too many open files" not in rest
    assert process.returncode == 0


def test_a_port_that_is_taken_ends_the_start(cluster):
    """Given an address where somebody listens, the daemon ends with 78 and names it."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        process = start("run", "--kubeconfig", cluster, "--listen", address, "--view", "none")
        _, told = process.communicate(timeout=60)
    assert process.returncode == 78
    assert told.strip().splitlines()[-1].startswith(f"gpusched: cannot listen on {address} for")
    assert "give another address" in told


@pytest.mark.parametrize(
    ("soft", "size"), [(64, 40), (100, 76), (4096, 96), (resource.RLIM_INFINITY, 96), (20, 1)]
)
def test_pools_take_no_more_than_there_is(monkeypatch, soft, size):
    """Given a limit, a pool that would like 96 connections leaves some for the rest."""
    monkeypatch.setattr(resource, "getrlimit", lambda _what: (soft, soft))
    assert process_limits.connection_limit(limits.CONNECTIONS_MAX) == size


def test_the_soft_limit_is_raised_where_that_is_allowed(monkeypatch):
    """Given a low soft limit under a high hard one, it is raised to what is wanted."""
    set_to = []
    monkeypatch.setattr(resource, "getrlimit", lambda _what: (64, 4096))
    monkeypatch.setattr(resource, "setrlimit", lambda _what, pair: set_to.append(pair))
    process_limits.raise_file_limit()
    assert set_to == [(limits.OPEN_FILES_WANTED, 4096)]


# -- row 50 ------------------------------------------------------------------------------------
def test_a_log_that_nobody_reads_stops_nothing(cluster):
    """Given a standard error that takes no byte more, a gang is bound, and the end is in order."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writing, b"x" * 4096)
    os.set_blocking(writing, True)
    words = (
        "run",
        "--kubeconfig",
        cluster,
        "--listen",
        "none",
        "--view",
        "none",
        "--log-level",
        "debug",
    )
    process = start(*words, stderr=writing, stdout=subprocess.DEVNULL)
    try:
        assert bound(cluster, 8) == 8
    finally:
        process.terminate()
        assert process.wait(timeout=60) == 0
        os.close(reading)
        os.close(writing)


def test_lines_beyond_the_bound_are_dropped_and_counted():
    """Given a stream that stands still, who logs goes on at once; later the loss is told."""
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as stream, os.fdopen(reading) as reader:
        queue = LogQueueHandler(stream, most=100)
        logger = logging.getLogger("of a test")
        logger.propagate = False
        logger.addHandler(queue)
        for number in range(50_000):
            logger.warning("line %06d %s", number, "x" * 100)
        assert queue.dropped > 40_000
        assert not queue.drain(0.01)
        lines, told = 0, 0
        while told < queue.dropped:
            line = reader.readline()
            lines += line.startswith("line ")
            told += int(line.rpartition(" ")[2]) if line.startswith("log lines") else 0
        assert (told, lines) == (queue.dropped, 50_000 - queue.dropped)
        assert queue.drain(limits.LOG_DRAIN_S)
    logger.removeHandler(queue)


# -- row 51 ------------------------------------------------------------------------------------
def test_a_trace_collector_that_never_answers_stops_nothing(cluster):
    """Given a collector that takes connections and says nothing, a gang is bound all the same."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        where = f"http://127.0.0.1:{silent.getsockname()[1]}"
        process = start(
            "run", "--kubeconfig", cluster, "--listen", "none", "--view", "none",
            stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            env={**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": where,
                 "OTEL_EXPORTER_OTLP_TIMEOUT": "2", "OTEL_BSP_SCHEDULE_DELAY": "100"},
        )  # fmt: skip
        try:
            assert bound(cluster, 8) == 8
        finally:
            process.terminate()
            assert process.wait(timeout=60) == 0
