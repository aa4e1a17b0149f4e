"""The section ``shards``: names and selectors of the parts that several daemons divide a cluster into."""

from __future__ import annotations

import itertools
from typing import Final

from gpusched.api.affinity.selector import OPERATORS, Requirement, Selector
from gpusched.config.model import ShardConfig
from gpusched.config.section import ConfigSection, list_items, one_of
from gpusched.config.values import BadValueError, is_label_key, is_label_value, namespace_name
from gpusched.config.yaml_tree import ConfigProblems, YamlNode, describe_value, quoted

_NO_SELECTOR: Final = Selector()
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
            section.read("name", _shard_name, default=""),
            section.read("nodeSelector", _selector, default=_NO_SELECTOR),
            section.read("idleNodes", _lends, default=False),
        )
        section.finish()
        if shard.name in lines:
            problems.add(
                section.key_line("name"),
                f"shard {quoted(shard.name)} is named twice: it is already in line {lines[shard.name]}",
            )
        if shard.name:
            lines.setdefault(shard.name, section.key_line("name"))
        shards.append(shard)
    for one, other in itertools.combinations(shards, 2):
        told = not one.name or not other.name or one.selector == _NO_SELECTOR
        if one.selector == other.selector and one.name != other.name and not told:
            problems.add(
                lines[other.name],
                f"shards {quoted(one.name)} and {quoted(other.name)} have the same nodeSelector: every node of "
                "theirs would belong to both, and nothing would be placed on it",
            )
    return tuple(shards)


def _shard_name(node: YamlNode, name: str, problems: ConfigProblems) -> str:
    try:
        return namespace_name(node, name, problems)
    except BadValueError:
        raise BadValueError(
            node.line,
            f"a shard's {name} must be a DNS label such as north, not {describe_value(node)}",
        ) from None


def _lends(node: YamlNode, name: str, _: ConfigProblems) -> bool:
    return one_of(node, name, ("keep", "lend")) == "lend"


def _selector(node: YamlNode, name: str, problems: ConfigProblems) -> Selector:
    """A LabelSelector that selects something in particular."""
    section = ConfigSection.from_node(node, name, problems)
    if section is None:
        return _NO_SELECTOR
    found = {
        "matchLabels": section.read("matchLabels", _labels, default=None),
        "matchExpressions": section.read("matchExpressions", _expressions, default=None),
    }
    section.finish()
    rules = tuple(rule for some in found.values() for rule in some or ())
    unread = any(some is None and key in section.entries for key, some in found.items())
    if not rules and not unread:
        problems.add(
            node.line, f"{name} must have matchLabels or matchExpressions: it selects all nodes"
        )
    return Selector(tuple(sorted(rules, key=lambda each: (each.key, each.operator, each.values))))


def _labels(node: YamlNode, name: str, _: ConfigProblems) -> tuple[Requirement, ...]:
    if not isinstance(node.value, dict):
        raise BadValueError(node.line, f"{name} must be a mapping, not {describe_value(node)}")
    return tuple(
        Requirement(_key(entry.node, key, name), "In", (_label_value(entry.node, f"{name}.{key}"),))
        for key, entry in node.value.items()
    )


def _expressions(
    node: YamlNode, name: str, problems: ConfigProblems
) -> tuple[Requirement, ...] | None:
    """The rules; None where one of them is wrong."""
    items = list_items(node, name)
    found = [rule for item in items if (rule := _expression(item, problems)) is not None]
    return tuple(found) if len(found) == len(items) else None


def _expression(item: YamlNode, problems: ConfigProblems) -> Requirement | None:
    section = ConfigSection.from_node(item, "an item of matchExpressions", problems)
    if section is None:
        return None
    key = section.read(
        "key", lambda value, what, _: _key(value, _text(value, what), what), default=""
    )
    operator = section.read(
        "operator", lambda value, what, _: one_of(value, what, _OPERATORS), default=""
    )
    values = section.read("values", _values, default=_NO_VALUES)
    section.finish()
    missing = not section.entries.keys() >= {"key", "operator"}
    needs_values = operator in {"In", "NotIn"}
    if missing or (operator and ("values" in section.entries) != needs_values):
        problems.add(
            item.line,
            "an item of matchExpressions needs a key, an operator, and values where that is In or NotIn",
        )
    elif key and operator and bool(values) == needs_values:
        return Requirement(key, operator, values)
    return None


def _values(node: YamlNode, name: str, _: ConfigProblems) -> tuple[str, ...]:
    return tuple(_label_value(item, f"an item of {name}") for item in list_items(node, name))


def _key(node: YamlNode, key: str, name: str) -> str:
    if is_label_key(key):
        return key
    raise BadValueError(
        node.line,
        f"{name} has {quoted(key)}, which no label can have as key: such as datacenter/hall",
    )


def _label_value(node: YamlNode, name: str) -> str:
    text = _text(node, name)
    if is_label_value(text):
        return text
    raise BadValueError(node.line, f"{name} is {quoted(text)}, which no label can have as value")


def _text(node: YamlNode, name: str) -> str:
    if isinstance(node.value, str):
        return node.value
    raise BadValueError(
        node.line, f"{name} must be a text, in quotes where needed, not {describe_value(node)}"
    )
