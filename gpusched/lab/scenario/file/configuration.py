"""The configuration of a scenario's daemons: a whole file, or what differs from another."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final

import attrs

from gpusched.base import installed_files
from gpusched.base.errors import ConfigError
from gpusched.config.load import ConfigFiles, load_file, load_files, read_files
from gpusched.config.model import DEFAULT, Config
from gpusched.config.read import read_config
from gpusched.config.yaml_parser import parse_yaml
from gpusched.config.yaml_tree import (
    ConfigProblems,
    YamlEntry,
    YamlNode,
    describe_value,
    did_you_mean,
    list_names,
    quoted,
)
from gpusched.lab.scenario.file.context import ReadContext
from gpusched.pluginhost.registry import load_policy

_SHIPPED: Final = "conf/gpusched.yaml"
_PLUGINS: Final = "plugins"
_PLAYS: Final = "playStarts"


def daemon_configuration(said: YamlNode | None, given: Path | None, reading: ReadContext) -> Config:
    """What the daemons run with.

    Args:
        said: ``spec.config``: a path, a mapping of what differs, or nothing.
        given: the file of ``--config``, instead of the shipped one.
        reading: takes what is wrong.
    """
    found = _configuration(said, given, reading)
    if found is not DEFAULT and not reading.sentences:
        try:
            load_policy(found)
        except ConfigError as error:
            reading.tell(error)
    return found


def says_plays(said: YamlNode | None) -> bool:
    """Whether a configuration says how often starts are played: they take time of the process that plays the scenario.

    Args:
        said: ``spec.config``.
    """
    cycle = said.value.get("cycle") if said is not None and isinstance(said.value, dict) else None
    return cycle is not None and isinstance(cycle.node.value, dict) and _PLAYS in cycle.node.value


def _configuration(said: YamlNode | None, given: Path | None, reading: ReadContext) -> Config:
    if said is None:
        return _loaded(str(given), reading) if given is not None else DEFAULT
    if isinstance(said.value, str):
        if given is not None:
            reading.problems.add(
                said.line, f"names its whole configuration, so that {given} cannot be used for it"
            )
        path = reading.path(said.value, said.line)
        return _loaded(str(path), reading) if path is not None else DEFAULT
    base = installed_files.path(_SHIPPED) if given is None else given
    return _merged(said, str(base), reading)


def _loaded(path: str, reading: ReadContext) -> Config:
    try:
        return load_file(path)
    except ConfigError as error:
        reading.tell(error)
        return DEFAULT


def _merged(said: YamlNode, path: str, reading: ReadContext) -> Config:
    try:
        base, root = _base(read_files(path), path)
    except ConfigError as error:
        reading.tell(error)
        return DEFAULT
    assert isinstance(said.value, dict)
    problems = ConfigProblems(reading.file)
    differs = {key: entry for key, entry in said.value.items() if key != _PLUGINS}
    whole = _overlaid(_moved(root, said.line), YamlNode(said.line, differs))
    if _PLUGINS in said.value:
        whole = _arguments(whole, said.value[_PLUGINS], problems)
    config = read_config(whole, problems)
    reading.problems.take(problems)
    if config is None or problems:
        return DEFAULT
    return attrs.evolve(config, layouts=base.layouts)


@lru_cache(maxsize=4)
def _base(files: ConfigFiles, path: str) -> tuple[Config, YamlNode]:
    """A configuration that others differ from, thousands of them in a sweep, and its parsed file."""
    base = load_files(files, source=path)
    root = parse_yaml(files.raw, ConfigProblems(path))
    assert root is not None
    return base, root


def _moved(node: YamlNode, line: int) -> YamlNode:
    """A value whose every line is one in another file."""
    if isinstance(node.value, dict):
        entries = {
            key: YamlEntry(line, _moved(entry.node, line)) for key, entry in node.value.items()
        }
        return YamlNode(line, entries)
    if isinstance(node.value, tuple):
        return YamlNode(line, tuple(_moved(item, line) for item in node.value))
    return YamlNode(line, node.value)


def _overlaid(base: YamlNode, over: YamlNode) -> YamlNode:
    """Mappings merged, all else replaced."""
    if not isinstance(base.value, dict) or not isinstance(over.value, dict):
        return over
    entries = dict(base.value)
    for key, entry in over.value.items():
        old = entries.get(key)
        node = entry.node if old is None else _overlaid(old.node, entry.node)
        entries[key] = YamlEntry(entry.line, node)
    return YamlNode(over.line, entries)


def _shipped_tiers(line: int) -> YamlEntry:
    """The tiers of a configuration that names none."""
    path = str(installed_files.path(_SHIPPED))
    _, root = _base(read_files(path), path)
    assert isinstance(root.value, dict)
    return YamlEntry(line, _moved(root.value["tiers"].node, line))


def _arguments(root: YamlNode, said: YamlEntry, problems: ConfigProblems) -> YamlNode:
    """The tiers with changed arguments of some plugins."""
    if not isinstance(said.node.value, dict):
        problems.add(said.line, f"plugins must be a mapping, not {describe_value(said.node)}")
        return root
    wanted: Mapping[str, YamlEntry] = said.node.value
    seen: list[str] = []

    def changed(node: YamlNode) -> YamlNode:
        if isinstance(node.value, tuple):
            return YamlNode(node.line, tuple(changed(item) for item in node.value))
        if not isinstance(node.value, dict):
            return node
        name = node.value.get("name")
        if name is not None and isinstance(name.node.value, str):
            seen.append(name.node.value)
            if (entry := wanted.get(name.node.value)) is not None:
                more = YamlNode(entry.line, {"arguments": YamlEntry(entry.line, entry.node)})
                return _overlaid(node, more)
            return node
        return YamlNode(
            node.line,
            {key: YamlEntry(entry.line, changed(entry.node)) for key, entry in node.value.items()},
        )

    assert isinstance(root.value, dict)
    tiers = root.value.get("tiers") or _shipped_tiers(said.line)
    entries = {**root.value, "tiers": YamlEntry(tiers.line, changed(tiers.node))}
    for name, entry in wanted.items():
        if name not in seen:
            problems.add(
                entry.line,
                f"plugin {quoted(name)} is in no tier: "
                f"there are {list_names(seen)}{did_you_mean(name, seen)}",
            )
    return YamlNode(root.line, entries)
