"""From the start of the daemon to its first binding, and what it takes of memory, in clusters that are large and full."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from benchmarks.cluster import COMMAND, peak_mib, running
from benchmarks.figures import Figure

WAITING: Final = 800
START_MAX_S: Final = 10.0
MEMORY_MAX_MIB: Final = 1024.0


def measure() -> list[Figure]:
    """One restart in each of two clusters."""
    seconds, _ = _restart(nodes=5_000, pods=140_000)
    later, mib = _restart(nodes=10_000, pods=200_000)
    return [
        Figure(
            name="restart to first binding, 5,000 nodes, 140,000 pods listed",
            measured=seconds,
            unit="s",
            target=f"<= {START_MAX_S:g} s",
            met=seconds <= START_MAX_S,
        ),
        Figure(
            name=f"memory of the daemon at its first binding ({later:.1f} s), 10,000 nodes, 200,000 pods",
            measured=mib,
            unit="MiB",
            target=f"< {MEMORY_MAX_MIB:g}",
            met=mib < MEMORY_MAX_MIB,
        ),
    ]


def _restart(*, nodes: int, pods: int) -> tuple[float, float]:
    """Seconds to the first binding, and the most memory of the daemon and its children until then, MiB."""
    with tempfile.TemporaryDirectory(prefix="gpusched-bench-") as folder:
        kubeconfig = str(Path(folder) / "kubeconfig")
        server = [sys.executable, "-m", "benchmarks.busy_server", kubeconfig]
        with running([*server, str(nodes), str(pods), str(WAITING)]) as process:
            _line(process, "ready")
            daemon = [
                COMMAND, "run", "--kubeconfig", kubeconfig, "--listen", "none",
                "--log-level", "warning",
            ]  # fmt: skip
            began = time.monotonic()
            with running(daemon) as started:
                first = float(_line(process, ""))
                mib = peak_mib(started.pid)
    return first - began, mib


def _line(process: subprocess.Popen[str], expected: str) -> str:
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    if not line or not line.startswith(expected):
        raise RuntimeError(f"the server said {line!r}")
    return line
