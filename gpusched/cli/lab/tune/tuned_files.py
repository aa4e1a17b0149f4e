"""What a search leaves behind: the configuration as a file, and the sweep that shows what it gains."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs
import yaml

from gpusched import __version__
from gpusched.base import installed_files
from gpusched.base.errors import InvariantBroken
from gpusched.cli.lab.sweep.results import ResultFolder
from gpusched.cli.lab.sweep.settings_drawn import Values
from gpusched.cli.lab.sweep.sweep_inputs import FILES, SweepInput
from gpusched.config.load import load_file
from gpusched.config.model import Config

CONFIG_FILE: Final = "gpusched.yaml"
SWEEP_FILE: Final = "check.yaml"
_PARTS: Final = ("plugins", "placement", "cycle", "limits", "actions")
_NAMES: Final = {"span": "for", "assume_duration": "assumeDuration", "start_delay": "startDelay"}


def write_configuration(
    folder: ResultFolder, base: str | None, changes: Values, *, tuned: Config, why: str
) -> Path:
    """Write the base configuration with the changes, and read it back.

    Args:
        folder: where.
        base: the file that it begins from; None for the shipped one.
        changes: keys of ``--set``; those that are not of the configuration are left out.
        tuned: what was simulated: the file has to say the same.
        why: one line for its head.

    Raises:
        InvariantBroken: the file does not say what was simulated.
        UsageError: it cannot be written.
    """
    source = Path(base) if base is not None else installed_files.path("conf/gpusched.yaml")
    said = yaml.safe_load(source.read_bytes()) or {}
    for path, value in changes:
        _change(said, path.split("."), value)
    head = f"# {source.name} of gpusched {__version__} as gpusched tune changed it: {why}\n"
    text = head + yaml.safe_dump(said, sort_keys=False, width=110)
    folder.write(CONFIG_FILE, text.encode())
    written = folder.folder / CONFIG_FILE
    if attrs.evolve(load_file(str(written)), source="") != attrs.evolve(tuned, source=""):
        raise InvariantBroken(f"{written} does not say what was simulated")
    return written


def _change(said: dict[str, Any], path: list[str], value: str) -> None:
    if path[0] not in _PARTS:
        return
    try:
        found = json.loads(value)
    except ValueError:
        found = value
    if path == ["actions"]:
        said["actions"] = [each.strip() for each in value.split(",")]
        return
    inner = said
    if path[0] == "plugins":
        inner = next(
            each for tier in said["tiers"] for each in tier["plugins"] if each["name"] == path[1]
        ).setdefault("arguments", {})
        path = path[2:]
    for step in path[:-1]:
        inner = inner.setdefault(step, {})
    inner[path[-1]] = found


def sweep_text(
    inputs: Iterable[SweepInput], seeds: Sequence[int], *,
    base: str | None, changes: Values, objectives: Sequence[str],
) -> str:  # fmt: skip
    """A sweep that plays the base and the tuned configuration on what was not seen while tuning."""
    outside = {key: value for key, value in changes if key.split(".")[0] not in _PARTS}
    shipped: dict[str, Any] = {"name": "shipped"}
    if base is not None:
        shipped["file"] = str(Path(base).resolve())
    said = {
        "inputs": [{"name": each.name, **_input_keys(each.options)} for each in inputs],
        "seeds": list(seeds),
        "configurations": [
            {**shipped, **({"set": dict(changes)} if changes else {})},
            {"name": "tuned", "file": CONFIG_FILE, **({"set": outside} if outside else {})},
        ],
        "statistics": list(objectives),
    }
    head = f"# gpusched simulate --sweep {SWEEP_FILE} --out check: what tuning gains on what it has not seen\n"
    return head + yaml.safe_dump(said, sort_keys=False, width=110)


def _input_keys(options: Mapping[str, Any]) -> dict[str, Any]:
    found = {}
    for key, value in options.items():
        if key in FILES:
            value = str(Path(value).resolve())  # noqa: PLW2901 - the same path from any folder
        found[_NAMES.get(key, key)] = value
    return found
