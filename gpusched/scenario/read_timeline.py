"""Entries of a timeline, out of their fields."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from gpusched.config.tree import Node, listed
from gpusched.devcluster.control.rules import RuleError, parse_rule
from gpusched.scenario import read_objects, templates
from gpusched.scenario.fields import ACT_NAMES
from gpusched.scenario.mappings import Found
from gpusched.scenario.model import (
    Act,
    Apply,
    Cordon,
    Delete,
    Drain,
    Entry,
    Evict,
    FailNode,
    Fault,
    Patch,
    Process,
    Restart,
    Scale,
    Submit,
    Target,
    When,
)
from gpusched.scenario.moments import STAGE
from gpusched.scenario.read_work import workload
from gpusched.scenario.reading import Reading, plain


def entry(found: Found, reading: Reading) -> Entry | None:
    """One entry; None (and told) when it does nothing that can be understood."""
    when = _when(found, reading)
    name = next((name for name in ACT_NAMES if name in found.values), None)
    if name is None:
        return None
    _check_templates(found.entries[name].node, reading)
    value = found.values[name]
    act = _ACTS[name](value, reading, found, when)
    if act is None:
        return None
    return Entry(
        when,
        act,
        reading.place(found.line),
        say=found.get("say", ""),
        unchecked=found.get("unchecked", False),
    )


def _check_templates(node: Node, reading: Reading) -> None:
    """Each text of an act, so that what does not parse is told at its own line."""
    if isinstance(node.value, dict):
        kind = node.value.get("kind")
        if kind is not None and kind.node.value == STAGE:
            return
        for each in node.value.values():
            _check_templates(each.node, reading)
    elif isinstance(node.value, tuple):
        for item in node.value:
            _check_templates(item, reading)
    elif isinstance(node.value, str) and (fault := templates.fault_of(node.value)):
        reading.problems.add(node.line, fault)


def _when(found: Found, reading: Reading) -> When:
    problems = reading.problems
    every = found.get("every", 0.0)
    repeats = "every" in found
    if repeats and "count" not in found and "until" not in found:
        problems.add(
            found.line_of("every"), "every needs count or until: this timeline would never end"
        )
    for key in ("until", "arrivals", "day"):
        if key in found and not repeats:
            problems.add(found.line_of(key), f"{key} needs every")
    day = found.get("day", ())
    if day and not sum(day):
        problems.add(found.line_of("day"), "day has no hour in which anything happens")
        day = ()
    at, until = found.get("at", 0.0), found.get("until")
    if until is not None and until < at:
        problems.add(found.line_of("until"), "until is before at: this would never happen")
    return When(
        at_s=at,
        every_s=every,
        count=found.get("count", None if repeats and until is not None else 1),
        until_s=until,
        process=Process(found.get("arrivals", "fixed")),
        seed=found.get("seed", 0),
        day=day,
    )


def target(found: Found, *, kind: str = "") -> Target:
    """A target out of its fields."""
    return Target(
        kind=found.get("kind", kind),
        name=found.get("name", ""),
        namespace=found.get("namespace", "default"),
        api_version=found.get("apiVersion", ""),
        labels=found.get("labels", {}),
    )


def _nodes(value: str | Found) -> Target:
    if isinstance(value, str):
        return Target(kind="Node", name=value, namespace="")
    return Target(
        kind="Node", name=value.get("name", ""), namespace="", labels=value.get("labels", {})
    )


# -- acts --------------------------------------------------------------------------------------
def _submit(value: Found, reading: Reading, _: Found, when: When) -> Submit:
    repeated = when.every_s > 0 or when.count != 1
    return Submit(workload(value, reading, repeated=repeated))


def _apply(value: Node | tuple[Node, ...], reading: Reading, *_: Any) -> Apply:
    items = value if isinstance(value, tuple) else (value,)
    return Apply(tuple(read_objects.objects(items, reading)))


def _delete(value: Found, *_: Any) -> Delete:
    grace = value.get("grace")
    return Delete(target(value), None if grace is None else round(grace))


def _patch(value: Found, *_: Any) -> Patch | None:
    if "merge" not in value.values:
        return None
    return Patch(target(value), plain(value.get("merge")), value.get("status", False))


def _scale(value: Found, *_: Any) -> Scale:
    return Scale(target(value), value.get("replicas", 0))


def _fail(value: Found, reading: Reading, *_: Any) -> FailNode:
    how, gpus = value.get("how", "notReady"), value.get("gpus", 0)
    if (how == "gpus") != ("gpus" in value):
        line = value.line_of("gpus" if "gpus" in value else "how")
        reading.problems.add(line, "gpus: NUMBER and how: gpus need each other")
    nodes = Target(
        kind="Node", name=value.get("node", ""), namespace="", labels=value.get("labels", {})
    )
    if not nodes.name and not nodes.labels:
        reading.problems.add(value.line, f"a failure needs one of {listed(('node', 'labels'))}")
    return FailNode(nodes, how, value.get("for"), gpus)


def _fault(value: Found, reading: Reading, *_: Any) -> Fault:
    rule = {key: plain(each.node) for key, each in value.entries.items() if key != "for"}
    try:
        parse_rule(rule, default_name="rule")
    except RuleError as error:
        reading.problems.add(_line_in(value, error.path), f"fault: {error}")
    return Fault(rule, value.get("for"))


def _line_in(value: Found, path: tuple[str | int, ...]) -> int:
    """The line of the innermost part of a path that is written."""
    line, entries = value.line, value.entries
    for step in path:
        found = entries.get(step) if isinstance(step, str) else None
        if found is None:
            break
        line = found.line
        if not isinstance(found.node.value, dict):
            break
        entries = found.node.value
    return line


def _restart(value: Found, reading: Reading, *_: Any) -> Restart:
    what = value.get("what", "scheduler")
    if "afterWrites" in value and what != "leader":
        reading.problems.add(value.line_of("afterWrites"), f"afterWrites is of leader, not {what}")
    return Restart(what, value.get("down", 0.0), value.get("afterWrites", 0))


_ACTS: Final[dict[str, Callable[..., Act | Submit | None]]] = {
    "submit": _submit,
    "apply": _apply,
    "delete": _delete,
    "patch": _patch,
    "scale": _scale,
    "cordon": lambda value, *_: Cordon(_nodes(value)),
    "uncordon": lambda value, *_: Cordon(_nodes(value), on=False),
    "drain": lambda value, *_: Drain(_nodes(value)),
    "fail": _fail,
    "evict": lambda value, *_: Evict(target(value, kind="Pod")),
    "fault": _fault,
    "restart": _restart,
}
