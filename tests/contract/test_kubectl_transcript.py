"""A day with kubectl, as a document: each command is typed again and must print the same.

The document stands in ``kubectl/transcript.txt``; ``GPUSCHED_WRITE_TRANSCRIPT=1`` writes it anew
from its own commands, to be read before it is committed. What the machine's kubectl prints by
itself differs between versions: with another minor version than the document's, only exit codes
and the lines of answers that the server forms are compared.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import attrs
import pytest

from gpusched.devcluster.cluster import ClusterOptions, start

pytestmark = pytest.mark.early

DOCUMENT: Final = Path(__file__).parent / "kubectl" / "transcript.txt"
WRITE: Final = os.environ.get("GPUSCHED_WRITE_TRANSCRIPT") == "1"
KUBECTL: Final = shutil.which("kubectl")
MASKS: Final = (
    (re.compile(r"\x1b\[[0-9;]*m"), ""),
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "UID"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"), "TIME"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+ \+0000"), "TIME"),
    (re.compile(r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d \+0000"), "TIME"),
    (re.compile(r'(resourceVersion: ")\d+'), r"\1VERSION"),
    (re.compile(r"http://127\.0\.0\.1:\d+"), "http://SERVER"),
    (re.compile(r"/tmp/(LIVE|MERGED)-\d+"), r"/tmp/\1"),
    (
        re.compile(
            r"\b((?:j|web)(?:-[0-9a-f]{6,10}|-[bcdfghjklmnpqrstvwxz2456789]{6,10})?)"
            r"-[bcdfghjklmnpqrstvwxz2456789]{5}\b"
        ),
        r"\1-XXXXX",
    ),
    (re.compile(r"\bweb-[0-9a-f]{6,10}\b|\bweb-[bcdfghjklmnpqrstvwxz2456789]{6,10}\b"), "web-HASH"),
    (re.compile(r"(?<!\S)(?:\d+[smhd]){1,2}(?!\S)|<invalid>"), "AGE"),
    (re.compile(r" from \w+ namespace$"), ""),
    (re.compile(r"( {2,}|\t)(?=\S)(?<=\S\s\s)|(?<=\S)(?: {2,}|\t+ *)(?=\S)"), "   "),
)


@attrs.frozen
class Step:
    """One line of the document: prose, or a command with what it printed."""

    text: str
    printed: tuple[str, ...] = ()

    @property
    def command(self) -> str:
        """The command, empty for prose."""
        return self.text.removeprefix("$ ") if self.text.startswith("$ ") else ""


def read(text: str) -> Iterator[Step]:
    """Yield the steps of a document; what stands below a command in two spaces it printed."""
    command, printed = "", []
    for line in text.splitlines():
        if command and (line.startswith("  ") or line == "  "):
            printed.append(line[2:])
            continue
        if command:
            yield Step(command, tuple(printed))
            command, printed = "", []
        if line.startswith("$ "):
            command = line
        else:
            yield Step(line)
    if command:
        yield Step(command, tuple(printed))


def write_files(steps: list[Step], folder: Path) -> None:
    """Write the files that the document shows."""
    name = ""
    for step in steps:
        if step.text.startswith("file "):
            name = step.text.removeprefix("file ")
            (folder / name).write_text("")
        elif name and step.text.startswith("  "):
            with (folder / name).open("a") as file:
                file.write(step.text[2:] + "\n")
        else:
            name = ""


def masked(line: str) -> str:
    """Replace what differs from run to run."""
    for pattern, replacement in MASKS:
        line = pattern.sub(replacement, line)
    return line.rstrip()


def version() -> str:
    """The version of the machine's kubectl, as ``1.32.4``."""
    if KUBECTL is None:
        return "none"
    done = subprocess.run(
        [KUBECTL, "version", "--client", "-o", "json"], capture_output=True, check=True
    )
    found = re.match(r"v?(\d+\.\d+\.\d+)", json.loads(done.stdout)["clientVersion"]["gitVersion"])
    assert found is not None
    return found.group(1)


def _type(command: str, folder: Path, environment: dict[str, str]) -> tuple[str, ...]:
    done = subprocess.run(
        ["/bin/sh", "-c", command],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    lines = [masked(line) for line in done.stdout.splitlines()]
    while lines and not lines[-1]:
        lines.pop()
    if done.returncode:
        lines.append(f"[exit {done.returncode}]")
    return tuple(lines)


def _minor(text: str) -> int:
    return int(text.split(".")[1])


def _known(step: Step, kubectl: str) -> bool:
    """Tell whether this kubectl knows a command; ``# 1.26`` at its end names the first that does."""
    since = re.search(r"# (1\.\d+)$", step.command)
    return since is None or _minor(since.group(1)) <= _minor(kubectl)


def _comparable(step: Step, *, same_version: bool) -> tuple[str, ...]:
    """Return what to compare: all, or what the server forms, or the exit code alone."""
    if same_version:
        return step.printed
    if re.match(r"kubectl (get(?!.* -o (yaml|json))|create) ", step.command):
        own = ("warning", "error")  # sentences of kubectl
        return tuple(line for line in step.printed if not line.lower().startswith(own))
    return step.printed[-1:] if step.printed and step.printed[-1].startswith("[exit") else ()


@pytest.mark.skipif(KUBECTL is None, reason="no kubectl on this machine")
@pytest.mark.parametrize("kubectl", [pytest.param(version(), id=f"kubectl-{version()}")])
async def test_kubectl_prints_what_the_document_says(kubectl: str, tmp_path: Path):
    """Every command of the document prints what stands below it and ends with its exit code."""
    steps = list(read(DOCUMENT.read_text()))
    write_files(steps, tmp_path)
    cluster = await start(ClusterOptions())
    config = tmp_path / "kubeconfig"
    config.write_text(cluster.kubeconfig_text)
    environment = {
        "PATH": f"{Path(str(KUBECTL)).parent}:/usr/bin:/bin",
        "HOME": str(tmp_path),
        "KUBECONFIG": str(config),
    }
    typed: list[Step] = []
    try:
        for step in steps:
            if not step.command or not _known(step, kubectl):
                typed.append(step)
                continue
            printed = await asyncio.to_thread(_type, step.command, tmp_path, environment)
            typed.append(Step(step.text, printed))
    finally:
        await cluster.close()
    if WRITE:
        lines = [line for s in typed for line in (s.text, *(f"  {p}" for p in s.printed))]
        DOCUMENT.write_text("\n".join(lines) + "\n")
    same = f"kubectl 1.{_minor(kubectl)}." in steps[0].text
    for step, now in zip(steps, typed, strict=True):
        shown = _comparable(step, same_version=same)
        assert _comparable(now, same_version=same) == shown, step.text
