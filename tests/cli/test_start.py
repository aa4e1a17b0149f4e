"""Ctrl-C while Python still loads a command: it ends without a word."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

PROGRAM = """
import os, signal, sys

class CtrlC:
    def find_spec(self, name, path=None, target=None):
        if name == {at!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, CtrlC())
from {module} import {function}
sys.exit({function}())
"""
PROJECT = Path(__file__).parents[2] / "pyproject.toml"
SCRIPTS = tomllib.loads(PROJECT.read_text())["project"]["scripts"]


def interrupted(script: str, at: str, **more: object) -> subprocess.CompletedProcess[str]:
    """What becomes of an installed script that is interrupted as it begins to load a module."""
    module, _, function = SCRIPTS[script].partition(":")
    code = PROGRAM.format(at=at, module=module, function=function)
    return subprocess.run(
        [sys.executable, "-c", code, "version"],
        capture_output=True, text=True, check=False, **more,
    )  # fmt: skip


COMMAND = ("gpusched.cli.main", "gpusched.cli.command", "gpusched.cli.version")
LOADED = {
    "gpusched": COMMAND,
    "kubectl-gpusched": COMMAND,
    "kubectl_complete-gpusched": ("gpusched.cli.shell.completion", *COMMAND[:2]),
}
"""Modules that scripts load one after the other."""


def test_every_script_is_interrupted():
    """None is forgotten here."""
    assert LOADED.keys() == SCRIPTS.keys()


@pytest.mark.parametrize(
    ("script", "at"), [(script, at) for script, modules in LOADED.items() for at in modules]
)
def test_an_interrupted_start_says_nothing(script, at):
    """Given Ctrl-C at any moment of its start, then a command ends as a shell expects, without a traceback."""
    ended = interrupted(script, at)
    assert (ended.returncode, ended.stderr) == (130, "")


def test_a_command_in_the_background_is_not_interrupted():
    """Shells start it with Ctrl-C ignored: it goes on."""
    ended = interrupted(
        "gpusched", "gpusched.cli.command",
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN), env=dict(os.environ),
    )  # fmt: skip
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "gpusched" in ended.stdout
