"""The contract suite against a cluster, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
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


def play(kubeconfig: str, *, tell: Callable[[str], None]) -> Contract:
    """Every case on the cluster; progress is told case by case."""
    folder = ROOT / "tests" / "contract"
    files = [str(file) for pattern in FILES for file in sorted(folder.glob(pattern))]
    command = [sys.executable, "-m", "pytest", "-v", "--tb=line", "-p", "no:cacheprovider"]
    passed = 0
    failed: list[str] = []
    with subprocess.Popen(
        [*command, *files, "--target", kubeconfig],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        for line in process.stdout:
            case = line.split("::")[-1].split(" ")[0]
            if " PASSED" in line:
                passed += 1
                tell(f"{passed + len(failed)} cases, {case}")
            elif "::" in line and (" FAILED" in line or " ERROR" in line):
                failed.append(case)
        process.wait(_LIMIT_S)
    if process.returncode not in (0, 1) and not failed:
        failed.append(f"the suite ended with exit status {process.returncode}")
    return Contract(passed, tuple(dict.fromkeys(failed)))
