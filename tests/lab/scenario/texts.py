"""Texts of scenarios for tests: what stands under ``spec``, with what every one needs around it."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent, indent

from gpusched.lab.scenario.file.read import read_path
from gpusched.lab.scenario.model.scenario import Scenario

HEAD = """\
apiVersion: scenario.gpusched.io/v1alpha1
kind: Scenario
metadata: {name: told}
spec:
  teaches: What a test needs.
"""
HEAD_LINES = HEAD.count("\n")


def whole(spec: str) -> str:
    """The text of a scenario whose ``spec`` goes on so."""
    return HEAD + indent(dedent(spec).strip("\n"), "  ") + "\n"


def scenario(folder: Path, spec: str) -> Scenario:
    """The scenario that is read from it."""
    file = folder / "told.yaml"
    file.write_text(whole(spec))
    (found,) = read_path(file)
    return found
