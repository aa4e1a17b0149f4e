"""docs/coming-from.md: every command of its tables, typed from the top in the cluster of the page, prints what is shown."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpusched.base.clock import SystemClock
from gpusched.cli.main import main

PAGE = (Path(__file__).parents[2] / "docs" / "coming-from.md").read_text(encoding="utf-8")
ROW = re.compile(
    r"^\| `[^`]+` \| [^|]+ \| `(?P<command>[^`]+)` \| `(?P<seen>[^`]+)` \|$", re.MULTILINE
)
(CLUSTER,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
PROGRAM = "import sys; from gpusched.cli.main import main; sys.exit(main(sys.argv[1:]))"
PATIENCE_S = 30.0
LOOKS = ("get ", "explain ")
"""Commands that only look are typed again until it is so."""


def test_every_row_of_its_tables_is_played():
    """Given the page, then no row is passed over because it is written in another way."""
    rows = [line for line in PAGE.splitlines() if line.startswith("| `")]
    assert len(rows) == len(ROW.findall(PAGE)) > 40
    assert all(command.split()[0] in {"gpusched", "kubectl"} for command, _ in ROW.findall(PAGE))


@pytest.fixture
def processes():
    """Starts commands that go on running, and ends them."""
    started: list[subprocess.Popen[str]] = []

    def start(*words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", PROGRAM, *words]
        started.append(
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        )
        return started[-1]

    yield start
    for process in reversed(started):
        process.kill()
        process.communicate(timeout=30)


def squeezed(text: str) -> str:
    """Words with one space between them."""
    return " ".join(text.split())


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl to type")
def test_the_commands_of_the_page_print_what_it_shows(processes, tmp_path, monkeypatch, capsys):
    """Given the cluster of the page, then each command answers, in the order of the page."""
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    kubeconfig = str(tmp_path / "kubeconfig")
    cluster = processes(
        "devcluster", "--port", "0", "--kubeconfig", kubeconfig, "--apply", str(tmp_path / "cluster.yaml")
    )  # fmt: skip
    assert cluster.stdout.readline().startswith("ready")
    processes(
        "run", "--kubeconfig", kubeconfig, "--listen", "none", "--view", "127.0.0.1:0",
        "--state-file", "none", "--history", str(tmp_path / "history.db"),
    )  # fmt: skip
    monkeypatch.setenv("KUBECONFIG", kubeconfig)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    clock = SystemClock()

    def printed(command: str) -> str:
        program, *words = shlex.split(command)
        if program == "gpusched":
            main(words)
            told = capsys.readouterr()
            return squeezed(told.out + told.err)
        answer = subprocess.run([program, *words], capture_output=True, text=True, check=False)
        return squeezed(answer.stdout + answer.stderr)

    for command, seen in ROW.findall(PAGE):
        end = clock.monotonic() + PATIENCE_S
        found = printed(command)
        while seen not in found and any(word in command for word in LOOKS):
            if clock.monotonic() > end:
                break
            time.sleep(0.3)
            found = printed(command)
        assert seen in found, f"{command}\n{found}"
