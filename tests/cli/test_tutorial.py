"""The README's first tutorial, typed word for word: each command prints what the text shows.

Only what differs from run to run by its nature is not compared: ages and the random ends of pods'
names. ``kubectl`` is needed; where there is none, the tutorial cannot be played.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from gpusched.base.clock import SystemClock

pytestmark = pytest.mark.early

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
TUTORIAL = README.partition("## First tutorial")[2].partition("\n## ")[0]
PROGRAM = "#!{python}\nimport sys\nfrom gpusched.cli.main import main\nsys.exit(main())\n"
MASKS = (
    (re.compile(r"\b((?:first|second)-\d+)-[bcdfghjklmnpqrstvwxz2456789]{5}\b"), r"\1-XXXXX"),
    (re.compile(r"(?<!\S)(?:\d+[smhd]){1,2}(?!\S)"), "AGE"),
    (re.compile(r" from default namespace$", re.MULTILINE), ""),
    (re.compile(r"[ \t]+"), " "),
    (re.compile(r" $", re.MULTILINE), ""),
)
PATIENCE_S = 30.0


@attrs.frozen
class Typed:
    """A command of the text, and what it prints there."""

    command: str
    printed: str

    @property
    def looks(self) -> bool:
        """Whether it only looks, so that it may be typed again until it is so."""
        return bool(re.match(r"kubectl (get|gpusched explain|describe)\b", self.command))


def blocks() -> list[tuple[str, str]]:
    """Language and text of each block of the tutorial."""
    return re.findall(r"^```(\w*)\n(.*?)^```$", TUTORIAL, re.MULTILINE | re.DOTALL)


def typed() -> Iterator[Typed]:
    """All that is typed with a prompt, in order."""
    for language, text in blocks():
        if language or not text.startswith("$ "):
            continue
        for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
            end = (
                part.find("\nEOF\n") + len("\nEOF\n") if "<<'EOF'" in part else part.find("\n") + 1
            )
            yield Typed(part[:end].rstrip("\n"), part[end:])


def masked(text: str) -> str:
    """A text without what differs by its nature."""
    for pattern, word in MASKS:
        text = pattern.sub(word, text.strip("\n"))
    return text


@pytest.fixture
def folder(tmp_path):
    """A checkout as the tutorial sees it: its scenarios and its programs."""
    (tmp_path / "kwok-scenarios").symlink_to(ROOT / "kwok-scenarios")
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    for name in ("gpusched", "kubectl-gpusched"):
        (programs / name).write_text(PROGRAM.format(python=sys.executable))
        (programs / name).chmod(0o755)
    return tmp_path


@pytest.fixture
def environment(folder):
    """Of a user who has nothing set."""
    kept = {key: value for key, value in os.environ.items() if key != "KUBECONFIG"}
    return {**kept, "HOME": str(folder), "PWD": str(folder)}


@pytest.fixture
def terminals(folder, environment):
    """Starts commands that go on running, and ends them."""
    started: list[subprocess.Popen[bytes]] = []

    def start(command: str) -> None:
        started.append(
            subprocess.Popen(
                ["bash", "-c", f"exec {command}"], cwd=folder, env=environment,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )
        )  # fmt: skip

    yield start
    for process in reversed(started):
        process.send_signal(signal.SIGTERM)
    for process in started:
        process.wait(20)


async def type_until(each: Typed, *, folder: Path, environment: dict[str, str], right: str) -> str:
    """What a command prints; one that only looks is typed again while that is not yet right."""
    clock = SystemClock()
    end = clock.monotonic() + PATIENCE_S
    while True:
        answer = subprocess.run(  # noqa: ASYNC221 - nothing else runs here
            ["bash", "-c", f"{right}\n{each.command}"], cwd=folder, env=environment,
            capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
        found = masked(answer.stdout + answer.stderr)
        if found == masked(each.printed) or not each.looks or clock.monotonic() > end:
            return found
        await clock.sleep(1.0)


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl to type")
async def test_every_command_prints_what_the_text_shows(folder, environment, terminals):
    """Two terminals, then each command of the third one in its turn."""
    plain = [text for language, text in blocks() if not language and not text.startswith("$ ")]
    running, (export,) = plain[0].splitlines(), plain[1:]
    assert [line.split()[1] for line in running] == ["devcluster", "run"]
    kubeconfig = folder / "gpusched-devcluster.kubeconfig"
    terminals(running[0])
    clock = SystemClock()
    end = clock.monotonic() + PATIENCE_S
    while not kubeconfig.exists():
        assert clock.monotonic() < end, "the cluster wrote no kubeconfig"
        await clock.sleep(0.1)
    terminals(running[1])
    (gang,) = [text for language, text in blocks() if language == "yaml"]
    (folder / "gang.yaml").write_text(gang)
    commands = list(typed())
    assert len(commands) >= 7
    for each in commands:
        found = await type_until(each, folder=folder, environment=environment, right=export)
        assert found == masked(each.printed), each.command
