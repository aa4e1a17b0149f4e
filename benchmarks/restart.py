"""From the start of the daemon to its first binding, in a cluster that is large and full already."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from benchmarks.cluster import COMMAND, running
from benchmarks.figures import Figure

NODES: Final = 5_000
PODS: Final = 140_000
WAITING: Final = 800
START_MAX_S: Final = 40.0


def measure() -> list[Figure]:
    """One restart."""
    with tempfile.TemporaryDirectory(prefix="gpusched-bench-") as folder:
        kubeconfig = str(Path(folder) / "kubeconfig")
        server = [sys.executable, "-m", "benchmarks.busy_server", kubeconfig]
        with running([*server, str(NODES), str(PODS), str(WAITING)]) as process:
            _line(process, "ready")
            daemon = [
                COMMAND, "run", "--kubeconfig", kubeconfig, "--listen", "none",
                "--log-level", "warning",
            ]  # fmt: skip
            began = time.monotonic()
            with running(daemon):
                first = float(_line(process, ""))
    seconds = first - began
    return [
        Figure(
            name=f"restart to first binding, {NODES:,} nodes, {PODS:,} pods listed",
            measured=seconds,
            unit="s",
            target=f"<= {START_MAX_S:g} s",
            met=seconds <= START_MAX_S,
        )
    ]


def _line(process: subprocess.Popen[str], expected: str) -> str:
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    if not line or not line.startswith(expected):
        raise RuntimeError(f"the server said {line!r}")
    return line
