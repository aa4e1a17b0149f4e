"""A real process reloads in its own thread, on a signal and by itself."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest

pytestmark = pytest.mark.early

BINPACK = "tiers: [{plugins: [{name: nodeorder, arguments: {strategy: binpack}}]}]\n"
SPREAD = BINPACK.replace("binpack", "spread")
PROGRAM = "import sys; from gpusched.cli.main import main; sys.exit(main(sys.argv[1:]))"
KUBECONFIG = """\
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://127.0.0.1:9"}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
"""


@pytest.fixture
def daemon(tmp_path):
    """``gpusched run`` without a cluster: reloading does not wait for one."""
    (tmp_path / "kubeconfig").write_text(KUBECONFIG)
    file = tmp_path / "gpusched.yaml"
    file.write_text(BINPACK)
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "run", "--listen", "none", "--view", "none",
         "--kubeconfig", str(tmp_path / "kubeconfig"), "--config", str(file),
         "--log-format", "json"],
        stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    yield process, file
    process.kill()
    process.wait()
    process.stderr.close()


def until(process, words):
    """The first record with these words in its sentence."""
    for line in process.stderr:
        record = json.loads(line)
        if words in line:
            return record
    raise AssertionError(f"the process ended without saying {words!r}")


def test_a_process_reloads_and_ends_in_order(daemon):
    """SIGHUP is answered, a change is seen without it, a bad one is refused, SIGTERM ends all."""
    process, file = daemon
    until(process, "namespace cannot be made sure of yet")
    process.send_signal(signal.SIGHUP)
    until(process, "the configuration asks for what is in force")
    file.write_text(SPREAD)
    assert until(process, "the configuration was applied")["changed"] == "tiers"
    file.write_text("tiers: [")
    process.send_signal(signal.SIGHUP)
    assert "is not YAML" in until(process, "the changed configuration is refused")["why"]
    process.send_signal(signal.SIGTERM)
    process.stderr.read()
    assert process.wait() == 0
