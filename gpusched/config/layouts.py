"""The catalogue of GPU layouts, ``gpu-layouts.yaml``: by product, or by a name that nodes use.

It lies beside the configuration; where none does, the one that comes with the program counts.
"""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import Final

from gpusched import assets
from gpusched.config.parse import parse, read_file
from gpusched.config.tree import Node, Problems, listed, nearest, quoted, shown
from gpusched.objects.layout import (
    Catalogue,
    Layout,
    LayoutError,
    believed_islands,
    believed_numa,
)

NAME: Final = "gpu-layouts.yaml"
_KEYS: Final = ("islands", "numa")


def beside(path: str) -> Path:
    """Where the catalogue of a configuration file would be."""
    return Path(path).parent / NAME


def shipped() -> Catalogue:
    """The catalogue that comes with the program.

    Raises:
        GpuschedError: it is missing.
    """
    path = str(assets.path(f"conf/{NAME}"))
    return load_layouts(read_file(path), source=path)


def load_layouts(raw: bytes, *, source: str) -> Catalogue:
    """Read a catalogue.

    Args:
        raw: YAML.
        source: the file's name for sentences.

    Raises:
        ConfigError: with one sentence a problem, each beginning ``source:line:``.
    """
    problems = Problems(source)
    root = parse(raw, problems, empty="to name no layout")
    if root is None:
        raise problems.error()
    found = _entries(root, problems)
    if problems:
        raise problems.error()
    return Catalogue(MappingProxyType(found))


def _entries(root: Node, problems: Problems) -> dict[str, Layout]:
    if not isinstance(root.value, dict):
        problems.add(root.line, f"the layouts must be a mapping, not {shown(root)}")
        return {}
    found = {}
    for name, entry in root.value.items():
        try:
            found[name] = _layout(entry.node, name, problems)
        except LayoutError as why:
            problems.add(entry.line, f"{quoted(name)} {why}")
    return found


def _layout(node: Node, name: str, problems: Problems) -> Layout:
    if not isinstance(node.value, dict):
        return Layout(believed_islands(_plain(node)))
    entries = node.value
    for key, entry in entries.items():
        if key not in _KEYS:
            problems.add(
                entry.line,
                f"unknown key {quoted(key)} in {quoted(name)}: known keys are "
                f"{listed(_KEYS)}{nearest(key, _KEYS)}",
            )
    if "islands" not in entries:
        raise LayoutError("needs the key islands")
    islands = believed_islands(_plain(entries["islands"].node))
    if "numa" not in entries:
        return Layout(islands)
    try:
        return Layout(islands, believed_numa(_plain(entries["numa"].node), islands))
    except LayoutError as why:
        problems.add(entries["numa"].line, f"numa of {quoted(name)} {why}")
        return Layout(islands)


def _plain(node: Node) -> object:
    if isinstance(node.value, tuple):
        return [_plain(each) for each in node.value]
    return node.value
