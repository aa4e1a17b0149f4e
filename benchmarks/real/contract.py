"""The contract suite against a cluster, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

import attrs

ROOT: Final = Path(__file__).resolve().parents[2]
FILES: Final = ("test_case_*.py", "test_python_clients.py")
"""Those that speak to the cluster under test; the others are about the embedded one."""
_LIMIT_S: Final = 1800.0


@attrs.frozen
class Contract:
    """How many cases held, and lines that name those that did not."""

    passed: int
    failed: tuple[str, ...]


def play(
    kubeconfig: str,
    *,
    tell: Callable[[str], None],
    folder: Path = ROOT / "tests" / "contract",
    limit_s: float = _LIMIT_S,
) -> Contract:
    """Every case on the cluster; progress is told case by case.

    Args:
        kubeconfig: of the cluster.
        tell: told about each case that holds.
        folder: of the suite.
        limit_s: after so long it is ended, with the case that it is in.
    """
    files = [str(file) for pattern in FILES for file in sorted(folder.glob(pattern))]
    command = [sys.executable, "-m", "pytest", "-v", "--tb=line", "-p", "no:cacheprovider"]
    passed = 0
    failed: list[str] = []
    started = ""
    with subprocess.Popen(
        [*command, *files, "--target", kubeconfig],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        limit = threading.Timer(limit_s, process.kill)  # a case that waits for ever says nothing
        limit.start()
        for line in process.stdout:
            case = line.split("::")[-1].split(" ")[0].strip()
            started = case if "::" in line and not line.endswith("\n") else ""
            if " PASSED" in line:
                passed += 1
                tell(f"{passed + len(failed)} cases, {case}")
            elif "::" in line and (" FAILED" in line or " ERROR" in line):
                failed.append(case)
        limit.cancel()
    if process.returncode not in (0, 1):
        at = f" in {started}" if started else ""
        failed.append(f"the suite ended{at} with exit status {process.returncode}")
    return Contract(passed, tuple(dict.fromkeys(failed)))
