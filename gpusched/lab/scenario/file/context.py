"""What is shared while one scenario is read: its files, and everything that is wrong with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import attrs

from gpusched.base.classes import define
from gpusched.base.errors import ConfigError
from gpusched.base.limits import JSON_DEPTH_MAX, SCENARIO_FILE_BYTES_MAX
from gpusched.config.yaml_parser import parse_yaml_documents, read_file
from gpusched.config.yaml_tree import ConfigProblems, YamlNode, quoted
from gpusched.lab.scenario.model.scenario import SourceLocation

SUFFIXES: Final = frozenset({".yaml", ".yml"})


@define
class ReadContext:
    """One scenario on its way in.

    Attributes:
        folder: against which its paths are read.
        file: the one that is being read, as it is shown.
    """

    folder: Path
    file: str
    _problems: dict[str, ConfigProblems] = attrs.field(factory=dict)
    _unreadable: list[str] = attrs.field(factory=list)
    _used: set[Path] = attrs.field(factory=set)

    @property
    def problems(self) -> ConfigProblems:
        """What is wrong with the file that is being read."""
        return self.problems_in(self.file)

    def problems_in(self, file: str) -> ConfigProblems:
        """What is wrong with one file."""
        return self._problems.setdefault(file, ConfigProblems(file))

    def place(self, line: int) -> SourceLocation:
        """A line of the file that is being read."""
        return SourceLocation(self.file, line)

    def refuse(self, place: SourceLocation, what: str) -> None:
        """Note what is wrong at a place."""
        self.problems_in(place.file).add(place.line, what)

    @property
    def used(self) -> frozenset[Path]:
        """Files that something named, so that nothing else takes them for its own."""
        return frozenset(self._used)

    def path(self, name: str, line: int) -> Path | None:
        """A file or folder that the scenario names; None (and told) when it is not there."""
        found = self.folder / name
        try:
            there = bool(name) and found.exists()
        except (OSError, ValueError) as error:
            self.problems.add(line, f"{quoted(name)} cannot be a path: {error.__class__.__name__}")
            return None
        if not there:
            self.problems.add(line, f"{quoted(name)} is missing: there is no {quoted(str(found))}")
            return None
        self._used.add(found.resolve())
        return found

    def documents(self, path: Path) -> tuple[YamlNode, ...]:
        """The documents of a file; none (and told) when it cannot be read."""
        shown = str(path)
        try:
            raw = read_file(shown, most=SCENARIO_FILE_BYTES_MAX)
        except ConfigError as error:
            self._unreadable += error.problems
            return ()
        return parse_yaml_documents(raw, self.problems_in(shown), depth=JSON_DEPTH_MAX) or ()

    def merge(self, other: ReadContext) -> None:
        """Take over what was found while another file was read."""
        self._unreadable += other._unreadable
        self._used |= other._used
        for file, problems in other._problems.items():
            self.problems_in(file).take(problems)

    def tell(self, error: ConfigError) -> None:
        """Note what a reader of another file found, with its own places."""
        self._unreadable += error.problems

    @property
    def sentences(self) -> list[str]:
        """Everything that is wrong, file by file."""
        found = list(self._unreadable)
        for problems in self._problems.values():
            if problems:
                found += problems.error().problems
        return found


def yaml_files(folder: Path) -> list[Path]:
    """The YAML files right in a folder, names in order."""
    return sorted(path for path in folder.iterdir() if path.suffix in SUFFIXES and path.is_file())


def json_value(node: YamlNode) -> Any:
    """What a node holds, as JSON has it."""
    if isinstance(node.value, dict):
        return {key: json_value(entry.node) for key, entry in node.value.items()}
    if isinstance(node.value, tuple):
        return [json_value(item) for item in node.value]
    return node.value
