"""Fault rules from a YAML file; a mistake is reported with its line."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import yaml

from gpusched.base.errors import ConfigError
from gpusched.devcluster.apimachinery.limits import FAULT_FILE_BYTES_MAX
from gpusched.devcluster.control.fault_rules import (
    FaultRule,
    FaultRuleError,
    parse_rules,
    path_text,
)

API_VERSION: Final = "devcluster.gpusched.io/v1alpha1"
KIND: Final = "FaultSchedule"
_DEPTH_MAX: Final = 8

At = tuple[str | int, ...]


def load_faults(path: Path) -> list[FaultRule]:
    """Read the rules of a FaultSchedule; raises ConfigError ``FILE:LINE: what is wrong``."""
    try:
        raw = path.read_bytes()
    except OSError as e:
        raise ConfigError(f"{path}: {e.strerror}") from None
    if len(raw) > FAULT_FILE_BYTES_MAX:
        raise ConfigError(f"{path}: is larger than {FAULT_FILE_BYTES_MAX} bytes")
    lines: dict[At, int] = {}
    try:
        _refuse_aliases(raw)
        root = yaml.compose(raw, yaml.CSafeLoader)
        value = None if root is None else _plain(root, (), lines)
        return _rules(value)
    except yaml.MarkedYAMLError as e:
        line = e.problem_mark.line + 1 if e.problem_mark else 1
        raise ConfigError(f"{path}:{line}: {e.problem}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as e:
        raise ConfigError(f"{path}:1: is no YAML: {e}") from None
    except FaultRuleError as e:
        line = _line(lines, e.path)
        where = f"{path_text(e.path)}: " if e.path else ""
        raise ConfigError(f"{path}:{line}: {where}{e.why}") from None


def _rules(value: Any) -> list[FaultRule]:
    if not isinstance(value, dict):
        raise FaultRuleError((), "must be a mapping with apiVersion, kind and rules")
    for key in value:
        if key not in {"apiVersion", "kind", "rules"}:
            raise FaultRuleError((str(key),), "is no known key; known: apiVersion, kind, rules")
    for key, wanted in (("apiVersion", API_VERSION), ("kind", KIND)):
        if value.get(key) != wanted:
            raise FaultRuleError((key,), f"must be {wanted}")
    return parse_rules(value.get("rules"))


def _line(lines: dict[At, int], path: At) -> int:
    """Line of a path, or of the nearest thing around it that is there."""
    while path not in lines and path:
        path = path[:-1]
    return lines.get(path, 1)


def _plain(node: yaml.Node, path: At, lines: dict[At, int]) -> Any:
    lines.setdefault(path, node.start_mark.line + 1)
    if len(path) > _DEPTH_MAX:
        raise FaultRuleError(path, "is nested too deep")
    if isinstance(node, yaml.SequenceNode):
        return [_plain(item, (*path, i), lines) for i, item in enumerate(node.value)]
    if isinstance(node, yaml.MappingNode):
        table: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = str(key_node.value)
            at = (*path, key)
            first, lines[at] = lines.get(at), key_node.start_mark.line + 1
            if first is not None:
                raise FaultRuleError(at, f"is given twice, first on line {first}")
            table[key] = _plain(value_node, at, lines)
        return table
    try:
        return yaml.SafeLoader("").construct_object(node)
    except ValueError as e:
        raise FaultRuleError(path, str(e)) from None


def _refuse_aliases(raw: bytes) -> None:
    for event in yaml.parse(raw, yaml.CSafeLoader):
        if isinstance(event, yaml.AliasEvent):
            mark: Any = event.start_mark  # of either parser
            raise yaml.MarkedYAMLError(None, None, "aliases are not read here", mark)
