"""The command: one line when ready, a kubeconfig for its owner, a clean end on a signal."""

import asyncio
import signal
import socket
import stat
import subprocess
import sys
import urllib.request

import pytest
import yaml

from gpusched.base.errors import ConfigError
from gpusched.devcluster.cluster import ClusterOptions, start

RUN = (
    "import argparse, sys; from gpusched.cli.devcluster import command; p = argparse.ArgumentParser(); "
    "command.register(p.add_subparsers()); a = p.parse_args(sys.argv[1:]); "
    "raise SystemExit(a.run(a))"
)
NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}


@pytest.fixture
def running(tmp_path):
    manifest = tmp_path / "nodes.yaml"
    manifest.write_text(yaml.safe_dump(NODE))
    config = tmp_path / "config"
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, "devcluster", "--kubeconfig", config, "--apply", manifest],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    yield process, config
    if process.poll() is None:
        process.kill()
    process.stdout.close()
    process.wait()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_says_when_it_is_ready_and_ends_on_a_signal(running, number):
    """Exactly one line on stdout, the applied objects are there, exit status 0."""
    process, config = running
    line = process.stdout.readline()
    word, url = line.split()
    assert word == "ready"
    written = yaml.safe_load(config.read_text())
    assert written["clusters"][0]["cluster"]["server"] == url
    assert stat.S_IMODE(config.stat().st_mode) == 0o600
    with urllib.request.urlopen(f"{url}/api/v1/nodes/n1", timeout=30) as answer:
        assert answer.status == 200
    process.send_signal(number)
    assert process.stdout.read() == ""
    assert process.wait(timeout=60) == 0


def refused(*arguments):
    """Run the command, which must end by itself as wrong usage; return what it says."""
    told = subprocess.run(
        [sys.executable, "-m", "gpusched.cli.main", "devcluster", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (told.returncode, told.stdout) == (2, "")
    return told.stderr


def test_a_kubeconfig_that_cannot_be_written_is_told(tmp_path):
    """A path below a file is no place; the sentence names it and the option."""
    (tmp_path / "file").write_text("")
    place = tmp_path / "file" / "config"
    assert f"cannot write the kubeconfig {place}" in refused("--kubeconfig", str(place))


def test_a_port_that_is_taken_is_told(tmp_path):
    """Another's port is the user's to change, and no bug."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        said = refused("--port", port, "--kubeconfig", str(tmp_path / "config"))
    assert f"cannot listen on port {port}" in said
    assert "bug" not in said


@pytest.mark.parametrize(
    ("name", "fault"), [("n" * 300, OSError), ("missing", ConfigError), ("broken", ConfigError)]
)
def test_a_start_that_fails_leaves_no_port_taken(tmp_path, name, fault):
    """Whatever was wrong with the file to apply: the next start can listen there."""
    (tmp_path / "broken").write_text("kind: [")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    async def fail() -> None:
        with pytest.raises(fault):
            await start(ClusterOptions(port=port, apply=[tmp_path / name]))
        with socket.create_server(("127.0.0.1", port)):
            pass

    asyncio.run(fail())
