"""The section ``shards``: names and selectors of the parts that several daemons divide a cluster into."""

from __future__ import annotations

import itertools
from typing import Final

from gpusched.api.affinity.selector import OPERATORS, Requirement, Selector
from gpusched.config.model import ShardConfig
from gpusched.config.section import ConfigSection, list_items, one_of
from gpusched.config.values import BadValueError, namespace_name
from gpusched.config.yaml_tree import ConfigProblems, YamlNode, describe_value, quoted

_NO_SELECTOR: Final = Selector()
_NO_RULES: Final[tuple[Requirement, ...]] = ()
_NO_VALUES: Final[tuple[str, ...]] = ()
_OPERATORS: Final = tuple(sorted(OPERATORS - {"Gt", "Lt"}))


def read_shards(node: YamlNode, name: str, problems: ConfigProblems) -> tuple[ShardConfig, ...]:
    """The shards in their order."""
    shards: list[ShardConfig] = []
    lines: dict[str, int] = {}
    for item in list_items(node, name):
        section = ConfigSection.from_node(item, "a shard", problems)
        if section is None:
            continue
        if not section.entries.keys() >= {"name", "nodeSelector"}:
            problems.add(item.line, "a shard needs the keys name and nodeSelector")
        shard = ShardConfig(
            section.read("name", namespace_name, default=""),
            section.read("nodeSelector", _selector, default=_NO_SELECTOR),
            section.read("idleNodes", _lends, default=False),
        )
        section.finish()
        if shard.name in lines:
            problems.add(
                section.key_line("name"),
                f"shard {quoted(shard.name)} is named twice: it is already in line {lines[shard.name]}",
            )
        lines.setdefault(shard.name, section.key_line("name"))
        shards.append(shard)
    for one, other in itertools.combinations(shards, 2):
        if one.selector == other.selector and one.name != other.name:
            problems.add(
                lines[other.name],
                f"shards {quoted(one.name)} and {quoted(other.name)} have the same nodeSelector: every node of "
                "theirs would belong to both, and nothing would be placed on it",
            )
    return tuple(shards)


def _lends(node: YamlNode, name: str, _: ConfigProblems) -> bool:
    return one_of(node, name, ("keep", "lend")) == "lend"


def _selector(node: YamlNode, name: str, problems: ConfigProblems) -> Selector:
    """A LabelSelector that selects something in particular."""
    section = ConfigSection.from_node(node, name, problems)
    if section is None:
        return _NO_SELECTOR
    rules = (
        *section.read("matchLabels", _labels, default=_NO_RULES),
        *section.read("matchExpressions", _expressions, default=_NO_RULES),
    )
    section.finish()
    if not rules:
        problems.add(
            node.line, f"{name} must have matchLabels or matchExpressions: it selects all nodes"
        )
    return Selector(tuple(sorted(rules, key=lambda each: (each.key, each.operator, each.values))))


def _labels(node: YamlNode, name: str, _: ConfigProblems) -> tuple[Requirement, ...]:
    if not isinstance(node.value, dict):
        raise BadValueError(node.line, f"{name} must be a mapping, not {describe_value(node)}")
    return tuple(
        Requirement(key, "In", (_text(entry.node, f"{name}.{key}"),))
        for key, entry in node.value.items()
    )


def _expressions(node: YamlNode, name: str, problems: ConfigProblems) -> tuple[Requirement, ...]:
    found = []
    for item in list_items(node, name):
        section = ConfigSection.from_node(item, "an item of matchExpressions", problems)
        if section is None:
            continue
        key = section.read("key", lambda value, what, _: _text(value, what), default="")
        operator = section.read(
            "operator", lambda value, what, _: one_of(value, what, _OPERATORS), default="Exists"
        )
        values = section.read("values", _values, default=_NO_VALUES)
        section.finish()
        if not key or bool(values) != (operator in {"In", "NotIn"}):
            problems.add(
                item.line,
                "an item of matchExpressions needs a key, an operator, and values where that is In or NotIn",
            )
        found.append(Requirement(key, operator, values))
    return tuple(found)


def _values(node: YamlNode, name: str, _: ConfigProblems) -> tuple[str, ...]:
    return tuple(_text(item, f"an item of {name}") for item in list_items(node, name))


def _text(node: YamlNode, name: str) -> str:
    if isinstance(node.value, str):
        return node.value
    raise BadValueError(
        node.line, f"{name} must be a text, in quotes where needed, not {describe_value(node)}"
    )
