"""Objects of the project's own kinds against their definitions, so that a misspelt field is told.

An API server drops a field it does not know without a word; a file of a scenario is stricter.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from gpusched import assets
from gpusched.config.parse import parse_documents, read_file
from gpusched.config.tree import Node, Problems, listed, nearest, quoted, shown
from gpusched.config.values import BadValueError
from gpusched.limits import JSON_DEPTH_MAX, SCENARIO_COUNT_MAX
from gpusched.objects.duration import parse_duration
from gpusched.scenario.reading import plain
from gpusched.scenario.shapes import Amount
from gpusched.scenario.templates import is_template

Definition = Mapping[str, Any]
QUEUE: Final = "Queue"
_FILES: Final = {QUEUE: "queues.yaml", "PodGroup": "podgroups.yaml", "Topology": "topologies.yaml"}
_TEXTS: Final = {"type": "object", "additionalProperties": {"type": "string"}}
POOL: Final[Definition] = {
    "type": "object",
    "properties": {
        "replicas": {"type": "integer", "minimum": 0, "maximum": SCENARIO_COUNT_MAX},
        "template": {
            "type": "object",
            "properties": {
                "metadata": {
                    "type": "object",
                    "properties": {
                        "name": {"type": "string"}, "labels": _TEXTS, "annotations": _TEXTS,
                    },
                },
                "spec": {"type": "object"},
                "status": {"type": "object"},
            },
        },
    },
}  # fmt: skip
"""What a NodePool must be like to be written out."""
_GROUP: Final = "scheduling.gpusched.io"
_TYPES: Final[Mapping[str, tuple[tuple[type, ...], str]]] = {
    "object": ((dict,), "a mapping"),
    "array": ((tuple,), "a list"),
    "string": ((str,), "a text"),
    "integer": ((int,), "a whole number"),
    "number": ((int, float), "a number"),
    "boolean": ((bool,), "true or false"),
}


@cache
def definition(kind: str) -> Definition:
    """The schema of a kind's ``spec``."""
    path = str(assets.path(f"manifests/crds/{_FILES[kind]}"))
    problems = Problems(path)
    (document,) = parse_documents(read_file(path), problems, depth=JSON_DEPTH_MAX) or (None,)
    if problems or document is None:
        raise problems.error()
    (version,) = plain(document)["spec"]["versions"]
    found: Definition = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return found


def check_object(node: Node, problems: Problems) -> None:
    """Tell of what is wrong in the ``spec`` of an object, where its kind is one of ours."""
    if not isinstance(node.value, dict):
        return
    kind, version = (
        entry.node.value if (entry := node.value.get(key)) else None
        for key in ("kind", "apiVersion")
    )
    ours = isinstance(version, str) and version.partition("/")[0] == _GROUP
    if ours and isinstance(kind, str) and kind in _FILES and "spec" in node.value:
        check(node.value["spec"].node, definition(kind), f"spec of {kind}", problems)


def check(node: Node, schema: Definition, name: str, problems: Problems) -> None:
    """Tell of unknown fields, wrong types, words and numbers out of range, with their lines."""
    value = node.value
    whole = schema.get("type") in {"object", "array"}
    if isinstance(value, str) and is_template(value) and not whole:
        return
    if schema.get("x-kubernetes-int-or-string"):
        try:
            Amount().read(node, name, problems)
        except BadValueError as error:
            problems.add(error.line, error.what)
        return
    types, word = _TYPES.get(schema.get("type", ""), ((), ""))
    if types and type(value) not in types:
        problems.add(node.line, f"{name} must be {word}, not {shown(node)}")
    elif isinstance(value, dict):
        _mapping(node, schema, name, problems)
    elif isinstance(value, tuple):
        for item in value:
            check(item, schema.get("items", {}), f"an item of {name}", problems)
    else:
        _scalar(node, schema, name, problems)


def _mapping(node: Node, schema: Definition, name: str, problems: Problems) -> None:
    assert isinstance(node.value, dict)
    fields: Mapping[str, Definition] = schema.get("properties", {})
    others = schema.get("additionalProperties")
    for key, entry in node.value.items():
        if key in fields:
            check(entry.node, fields[key], key, problems)
        elif isinstance(others, dict):
            check(entry.node, others, f"{name}[{key}]", problems)
        elif fields:
            problems.add(
                entry.line,
                f"unknown key {quoted(key)} in {name}: "
                f"known keys are {listed(fields)}{nearest(key, list(fields))}",
            )
    for key in schema.get("required", ()):
        if key not in node.value:
            problems.add(node.line, f"{name} needs the key {key}")


def _scalar(node: Node, schema: Definition, name: str, problems: Problems) -> None:
    value = node.value
    words = schema.get("enum")
    if words and value not in words:
        close = nearest(value, words) if isinstance(value, str) else ""
        problems.add(node.line, f"{name} must be one of {listed(words)}, not {shown(node)}{close}")
    if isinstance(value, int) and not isinstance(value, bool):
        low, high = schema.get("minimum"), schema.get("maximum")
        if (low is not None and value < low) or (high is not None and value > high):
            some = f"from {low} to {high}" if high is not None else f"{low} or more"
            problems.add(node.line, f"{name} must be {some}, not {value}")
    if isinstance(value, str) and _is_duration(schema):
        try:
            parse_duration(value)
        except ValueError as error:
            problems.add(node.line, f"{name} must be a duration: {error}")


def _is_duration(schema: Definition) -> bool:
    return any(
        "duration(self)" in rule.get("rule", "")
        for rule in schema.get("x-kubernetes-validations", ())
    )
