"""The catalogue of GPU layouts, ``gpu-layouts.yaml``: by product, or by a name that nodes use.

It lies beside the configuration; where none does, the one that comes with the program counts.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Final

from gpusched.api.devices.gpu_layout import (
    GpuLayout,
    GpuLayoutCatalog,
    GpuLayoutError,
    parse_islands,
    parse_numa_slots,
)
from gpusched.base import installed_files
from gpusched.config.yaml_parser import parse_yaml, read_file
from gpusched.config.yaml_tree import (
    ConfigProblems,
    YamlNode,
    describe_value,
    did_you_mean,
    list_names,
    quoted,
)

CATALOG_FILE: Final = "gpu-layouts.yaml"
_KEYS: Final = ("islands", "numa")


def catalog_path(path: str) -> Path:
    """Where the catalogue of a configuration file would be."""
    return Path(path).parent / CATALOG_FILE


def load_shipped_layouts() -> GpuLayoutCatalog:
    """The catalogue that comes with the program.

    Raises:
        GpuschedError: it is missing.
    """
    path = str(installed_files.path(f"conf/{CATALOG_FILE}"))
    return load_layouts(read_file(path), source=path)


@lru_cache(maxsize=8)  # a reload, and each daemon of a process, reads the same text again
def load_layouts(raw: bytes, *, source: str) -> GpuLayoutCatalog:
    """Read a catalogue.

    Args:
        raw: YAML.
        source: the file's name for sentences.

    Raises:
        ConfigError: with one sentence a problem, each beginning ``source:line:``.
    """
    problems = ConfigProblems(source)
    root = parse_yaml(raw, problems, empty="write {} to name no layout")
    if root is None:
        raise problems.error()
    found = _entries(root, problems)
    if problems:
        raise problems.error()
    return GpuLayoutCatalog(MappingProxyType(found))


def _entries(root: YamlNode, problems: ConfigProblems) -> dict[str, GpuLayout]:
    if not isinstance(root.value, dict):
        problems.add(root.line, f"the layouts must be a mapping, not {describe_value(root)}")
        return {}
    found = {}
    for name, entry in root.value.items():
        try:
            found[name] = _layout(entry.node, name, problems)
        except GpuLayoutError as why:
            problems.add(entry.line, f"{quoted(name)} {why}")
    return found


def _layout(node: YamlNode, name: str, problems: ConfigProblems) -> GpuLayout:
    if not isinstance(node.value, dict):
        return GpuLayout(parse_islands(_plain(node)))
    entries = node.value
    for key, entry in entries.items():
        if key not in _KEYS:
            problems.add(
                entry.line,
                f"unknown key {quoted(key)} in {quoted(name)}: known keys are "
                f"{list_names(_KEYS)}{did_you_mean(key, _KEYS)}",
            )
    if "islands" not in entries:
        raise GpuLayoutError("needs the key islands")
    islands = parse_islands(_plain(entries["islands"].node))
    if "numa" not in entries:
        return GpuLayout(islands)
    try:
        return GpuLayout(islands, parse_numa_slots(_plain(entries["numa"].node), islands))
    except GpuLayoutError as why:
        problems.add(entries["numa"].line, f"numa of {quoted(name)} {why}")
        return GpuLayout(islands)


def _plain(node: YamlNode) -> object:
    if isinstance(node.value, tuple):
        return [_plain(each) for each in node.value]
    return node.value
