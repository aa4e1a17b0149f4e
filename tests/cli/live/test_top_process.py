"""``gpusched top`` on a terminal of its own: a real daemon on the embedded cluster, which dies and comes back."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from urllib.request import Request, urlopen

import pyte
import pytest
import yaml

from tests.daemon.containment.test_exhausted_process import GANG, PROGRAM

pytestmark = pytest.mark.early

PATIENCE_S = 60
POD = {
    "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "late", "namespace": "default"},
    "spec": {
        "schedulerName": "gpusched",
        "containers": [
            {"name": "c", "image": "i", "resources": {"limits": {"cpu": "1"}}}
        ],
    },
}  # fmt: skip


def start(*words, **more):
    return subprocess.Popen([sys.executable, "-c", PROGRAM, *words], text=True, **more)


class Terminal:
    """A pseudo-terminal with ``top`` in it, and the screen that somebody sees."""

    def __init__(self, *words):
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        env = {**os.environ, "TERM": "xterm-256color"}
        self.process = start(*words, stdin=slave, stdout=slave, stderr=slave, env=env)
        os.close(slave)
        self.screen = pyte.Screen(80, 24)
        self.stream = pyte.ByteStream(self.screen)

    def until(self, words):
        """The lines on the screen, once some words are there."""
        deadline = time.monotonic() + PATIENCE_S
        while not any(words in line for line in self.screen.display):
            assert time.monotonic() < deadline, "\n".join(
                [f"{words!r} is not in", *self.screen.display]
            )
            if select.select([self.master], [], [], 0.2)[0]:
                self.stream.feed(os.read(self.master, 1 << 16))
        return self.screen.display

    def press(self, key):
        """A key."""
        os.write(self.master, key.encode())

    def end(self):
        """Its exit status."""
        self.press("q")
        while self.process.poll() is None:
            if select.select([self.master], [], [], 0.2)[0]:
                try:
                    os.read(self.master, 1 << 16)
                except OSError:
                    break
        return self.process.wait(timeout=PATIENCE_S)

    def close(self):
        """The terminal goes away, and what is left in it."""
        self.process.kill()
        self.process.wait(timeout=PATIENCE_S)
        os.close(self.master)


@pytest.fixture
def cluster(tmp_path):
    """An embedded cluster with a gang of eight; a function that starts a daemon there."""
    (tmp_path / "gang.yaml").write_text(yaml.safe_dump_all(GANG))
    kubeconfig = tmp_path / "kubeconfig"
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    server = start(
        "devcluster", "--port", "0", "--kubeconfig", str(kubeconfig), "--apply",
        str(tmp_path / "gang.yaml"), **pipes,
    )  # fmt: skip
    assert server.stdout.readline(), server.stderr.read()
    daemons = []

    def daemon():
        process = start(
            "run", "--kubeconfig", str(kubeconfig), "--listen", "none", "--view", "127.0.0.1:0",
            "--state-file", "none", "--log-format", "json", **pipes,
        )  # fmt: skip
        daemons.append(process)
        for line in process.stderr:
            if "the view is served" in line:
                return process
        raise AssertionError("it ended")

    yield str(kubeconfig), daemon
    for process in (*daemons, server):
        process.kill()
        process.communicate(timeout=30)


def submit(kubeconfig, pod):
    """Create a pod, as a user does."""
    known = yaml.safe_load(Path(kubeconfig).read_text())
    server, token = known["clusters"][0]["cluster"]["server"], known["users"][0]["user"]["token"]
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    path = f"{server}/api/v1/namespaces/default/pods"
    with urlopen(Request(path, json.dumps(pod).encode(), headers)) as answer:
        assert answer.status == 201


@pytest.fixture
def terminal(cluster):
    """A terminal in which ``top`` shows what runs, begun before there is any daemon."""
    opened = Terminal("top", "--view", "running", "--kubeconfig", cluster[0])
    yield opened
    opened.close()


@pytest.mark.long
def test_a_live_cluster_on_a_terminal(cluster, terminal):
    """Given no daemon, then one: what runs and comes is there; it dies and is told, and the next one."""
    kubeconfig, daemon = cluster
    terminal.until("no daemon serves a view")

    # When: a daemon comes, which starts the gang. Then: it is what is shown from then on.
    first = daemon()
    terminal.until("live, as of its session")
    submit(kubeconfig, POD)
    terminal.until("default/late")

    # Then: Enter shows a story, Escape goes back.
    terminal.press("\r")
    terminal.until("needed at once")
    terminal.press("\x1b")
    terminal.until("SINCE")

    # When: the daemon dies. Then: that is told, and the next one is followed.
    first.terminate()
    terminal.until("Old since")
    daemon()
    terminal.until("live, as of its session")

    # Then: the same without a terminal, by the daemon; and it ends when asked.
    once = ("top", "--once", "--source", "daemon", "--kubeconfig", kubeconfig)
    done = start(*once, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, err = done.communicate(timeout=PATIENCE_S)
    assert (done.returncode, err) == (0, "")
    assert "leader · live" in out
    assert "default/late" in out
    assert terminal.end() == 0
