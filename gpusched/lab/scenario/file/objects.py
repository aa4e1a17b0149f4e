"""Manifests, nodes and queues of a scenario's files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from gpusched.api.meta.duration import parse_duration
from gpusched.base import installed_files
from gpusched.base.errors import ConfigError
from gpusched.base.limits import JSON_DEPTH_MAX, SCENARIO_COUNT_MAX
from gpusched.config.values import BadValueError
from gpusched.config.yaml_parser import parse_yaml_documents, read_file
from gpusched.config.yaml_tree import (
    ConfigProblems,
    YamlNode,
    describe_value,
    did_you_mean,
    list_names,
    quoted,
)
from gpusched.devcluster.controllers.nodes.devices.device_entries import read_device_entries
from gpusched.devcluster.stages import node_pools
from gpusched.lab.scenario.expansion import nodes
from gpusched.lab.scenario.expansion.object_names import UNCHECKED
from gpusched.lab.scenario.expansion.templates import is_template
from gpusched.lab.scenario.file.context import ReadContext, json_value, yaml_files
from gpusched.lab.scenario.file.fields import QUEUE_NAME
from gpusched.lab.scenario.file.mappings import MappingValues
from gpusched.lab.scenario.file.value_types import QuantityType
from gpusched.lab.scenario.model.scenario import API_VERSION, KIND, Manifest, Obj

Definition = Mapping[str, Any]
QUEUE: Final = "Queue"
_FILES: Final = {
    QUEUE: "queues.yaml",
    "PodGroup": "podgroups.yaml",
    "Topology": "topologies.yaml",
    "Reservation": "reservations.yaml",
}
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
def kind_definition(kind: str) -> Definition:
    """The schema of a kind's ``spec``."""
    path = str(installed_files.path(f"manifests/crds/{_FILES[kind]}"))
    problems = ConfigProblems(path)
    (document,) = parse_yaml_documents(read_file(path), problems, depth=JSON_DEPTH_MAX) or (None,)
    if problems or document is None:
        raise problems.error()
    (version,) = json_value(document)["spec"]["versions"]
    found: Definition = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return found


def check_object(node: YamlNode, problems: ConfigProblems) -> None:
    """Tell of what is wrong in the ``spec`` of an object, where its kind is one of ours."""
    if not isinstance(node.value, dict):
        return
    kind, version = (
        entry.node.value if (entry := node.value.get(key)) else None
        for key in ("kind", "apiVersion")
    )
    ours = isinstance(version, str) and version.partition("/")[0] == _GROUP
    if ours and isinstance(kind, str) and kind in _FILES and "spec" in node.value:
        check_fields(node.value["spec"].node, kind_definition(kind), f"spec of {kind}", problems)


def check_fields(node: YamlNode, schema: Definition, name: str, problems: ConfigProblems) -> None:
    """Tell of unknown fields, wrong types, words and numbers out of range, with their lines."""
    value = node.value
    whole = schema.get("type") in {"object", "array"}
    if isinstance(value, str) and is_template(value) and not whole:
        return
    if schema.get("x-kubernetes-int-or-string"):
        try:
            QuantityType().read(node, name, problems)
        except BadValueError as error:
            problems.add(error.line, error.what)
        return
    types, word = _TYPES.get(schema.get("type", ""), ((), ""))
    if types and type(value) not in types:
        problems.add(node.line, f"{name} must be {word}, not {describe_value(node)}")
    elif isinstance(value, dict):
        _mapping(node, schema, name, problems)
    elif isinstance(value, tuple):
        for item in value:
            check_fields(item, schema.get("items", {}), f"an item of {name}", problems)
    else:
        _scalar(node, schema, name, problems)


def _mapping(node: YamlNode, schema: Definition, name: str, problems: ConfigProblems) -> None:
    assert isinstance(node.value, dict)
    fields: Mapping[str, Definition] = schema.get("properties", {})
    others = schema.get("additionalProperties")
    for key, entry in node.value.items():
        if key in fields:
            check_fields(entry.node, fields[key], key, problems)
        elif isinstance(others, dict):
            check_fields(entry.node, others, f"{name}[{key}]", problems)
        elif fields:
            problems.add(
                entry.line,
                f"unknown key {quoted(key)} in {name}: "
                f"known keys are {list_names(fields)}{did_you_mean(key, list(fields))}",
            )
    for key in schema.get("required", ()):
        if key not in node.value:
            problems.add(node.line, f"{name} needs the key {key}")


def _scalar(node: YamlNode, schema: Definition, name: str, problems: ConfigProblems) -> None:
    value = node.value
    words = schema.get("enum")
    if words and value not in words:
        close = did_you_mean(value, words) if isinstance(value, str) else ""
        problems.add(
            node.line,
            f"{name} must be one of {list_names(words)}, not {describe_value(node)}{close}",
        )
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


_LIST: Final = "List"


def is_scenario(node: YamlNode) -> bool:
    """Tell whether a document is one, be it with mistakes."""
    if not isinstance(node.value, dict):
        return False
    kind, version = (_text(node, key) for key in ("kind", "apiVersion"))
    return kind == KIND or version.partition("/")[0] == API_VERSION.partition("/")[0]


def _text(node: YamlNode, key: str) -> str:
    entry = node.value.get(key) if isinstance(node.value, dict) else None
    return entry.node.value if entry and isinstance(entry.node.value, str) else ""


# -- manifests ---------------------------------------------------------------------------------
def read_manifests(node: YamlNode, reading: ReadContext) -> list[Manifest]:
    """The objects of one document: itself, the items of a List, the nodes of a NodePool."""
    place = reading.place(node.line)
    if not isinstance(node.value, dict):
        reading.refuse(place, f"a manifest must be a mapping, not {describe_value(node)}")
        return []
    if _text(node, "kind") == _LIST:
        items = node.value.get("items")
        inner = items.node.value if items else ()
        if not isinstance(inner, tuple):
            reading.refuse(place, "the items of a List must be a list")
            return []
        return [each for item in inner for each in read_manifests(item, reading)]
    if not _complete(node, reading):
        return []
    obj = json_value(node)
    if ((obj["metadata"].get("annotations") or {}).get(UNCHECKED)) != "true":
        check_object(node, reading.problems)
    if obj["kind"] == node_pools.KIND and obj["apiVersion"] == node_pools.API_VERSION:
        return _pool(node, obj, reading)
    return [Manifest(obj, place)]


def _complete(node: YamlNode, reading: ReadContext) -> bool:
    assert isinstance(node.value, dict)
    missing = [key for key in ("apiVersion", "kind") if not _text(node, key)]
    for key in missing:
        reading.problems.add(node.line, f"a manifest needs the text {key}")
    metadata = node.value.get("metadata")
    inner = metadata.node if metadata else None
    if inner is None or not (_text(inner, "name") or _text(inner, "generateName")):
        what = _text(node, "kind") or "a manifest"
        reading.problems.add(node.line, f"{what} needs metadata.name, or metadata.generateName")
        return False
    assert isinstance(inner.value, dict)
    namespace = inner.value.get("namespace")
    if namespace is not None and not isinstance(namespace.node.value, str):
        reading.problems.add(namespace.line, "metadata.namespace must be a text")
        return False
    texts = [_texts(inner, key, reading) for key in ("labels", "annotations")]
    return not missing and all(texts)


def _texts(metadata: YamlNode, key: str, reading: ReadContext) -> bool:
    assert isinstance(metadata.value, dict)
    entry = metadata.value.get(key)
    if entry is None or entry.node.value is None:
        return True
    if not isinstance(entry.node.value, dict):
        reading.problems.add(
            entry.line, f"{key} must be a mapping, not {describe_value(entry.node)}"
        )
        return False
    wrong = [(k, e) for k, e in entry.node.value.items() if not isinstance(e.node.value, str)]
    for name, each in wrong:
        reading.problems.add(
            each.line,
            f"{key}[{name}] must be a text, not {describe_value(each.node)}: put it in quotes",
        )
    return not wrong


def _pool(node: YamlNode, obj: Obj, reading: ReadContext) -> list[Manifest]:
    """Written out, because a real cluster knows no pools."""
    assert isinstance(node.value, dict)
    place = reading.place(node.line)
    inner = ConfigProblems(reading.file)
    if "spec" in node.value:
        check_fields(node.value["spec"].node, POOL, "spec of NodePool", inner)
    reading.problems.take(inner)
    replicas = (obj.get("spec") or {}).get("replicas", 1)
    if not isinstance(replicas, int):
        reading.refuse(place, "replicas of a NodePool must be a whole number")
        return []
    if inner:
        return []
    try:
        return [Manifest(each, place) for each in node_pools.nodes_of(obj)]
    except ConfigError as error:
        reading.refuse(place, str(error))
        return []


def read_object_files(name: str, line: int, reading: ReadContext) -> list[Manifest]:
    """The objects of a file, or of all YAML files of a folder, that the scenario names."""
    path = reading.path(name, line)
    if path is None:
        return []
    found = []
    for file in yaml_files(path) if path.is_dir() else [path]:
        found += read_object_file(file, reading)
    if not found and not reading.sentences:
        reading.problems.add(line, f"{quoted(name)} holds no object")
    return found


def read_object_file(path: Path, reading: ReadContext) -> list[Manifest]:
    """The objects of one file."""
    inner = ReadContext(reading.folder, str(path))
    documents = reading.documents(path)
    found = [each for node in documents for each in read_manifests(node, inner)]
    reading.merge(inner)
    return found


def read_object_list(items: Sequence[Any], reading: ReadContext) -> list[Manifest]:
    """Of a list of paths and objects.

    Args:
        items: each a path with its node, or the node of an object.
        reading: takes what is wrong.
    """
    found = []
    for node in items:
        if isinstance(node.value, str):
            found += read_object_files(node.value, node.line, reading)
        else:
            found += read_manifests(node, reading)
    return found


# -- nodes -------------------------------------------------------------------------------------
def read_nodes(entries: Sequence[MappingValues], reading: ReadContext) -> list[Manifest]:
    """The nodes of ``spec.nodes``."""
    made: list[Manifest] = []
    domains = nodes.UsedDomains()
    for found in entries:
        shape = nodes.NodesSpec(
            name=found.get("name", "node"),
            count=found.get("count", 1),
            gpus=found.get("gpus", 0),
            cpu=found.get("cpu", "96"),
            memory=found.get("memory", "1Ti"),
            pods=found.get("pods", 110),
            product=found.get("product", ""),
            per_rack=found.get("perRack", 0),
            per_block=found.get("perBlock", 0),
            per_zone=found.get("perZone", 0),
            labels=found.get("labels", {}),
            annotations=found.get("annotations", {}),
            taints=tuple(json_value(each) for each in found.get("taints", ())),
            resources=found.get("resources", {}),
            devices=tuple(_device_entry(each) for each in found.get("devices", ())),
        )
        place = reading.place(found.line)
        try:
            read_device_entries(shape.devices)
            made += [Manifest(node, place) for node in nodes.nodes_of(shape, domains)]
        except ConfigError as error:
            reading.refuse(place, str(error))
    return made


def _device_entry(found: MappingValues) -> dict[str, Any]:
    """An entry of devices as JSON has it."""
    return {key: list(v) if isinstance(v, tuple) else v for key, v in found.values.items()}


def read_priorities(found: MappingValues, reading: ReadContext) -> list[Manifest]:
    """The PriorityClasses of ``spec.priorities``."""
    place = reading.place(found.line_of("priorities"))
    values = found.get("priorities", {})
    return [Manifest(nodes.priority_of(name, value), place) for name, value in values.items()]


def _is_short(key: str, node: YamlNode) -> bool:
    """Whether a bare number stands for GPUs."""
    return key in (*nodes.AMOUNTS, "guarantee") and type(node.value) in (int, float)


# -- queues ------------------------------------------------------------------------------------
def read_queues(entries: Sequence[YamlNode], reading: ReadContext) -> list[Manifest]:
    """The queues of ``spec.queues``."""
    found = []
    for node in entries:
        assert isinstance(node.value, dict)
        entry = node.value.get(QUEUE_NAME.name)
        if entry is None:
            reading.problems.add(node.line, "an entry of queues needs the key name")
            continue
        try:
            name = QUEUE_NAME.shape.read(entry.node, "name", reading.problems)
        except BadValueError as error:
            reading.problems.add(error.line, error.what)
            continue
        written = {key: each for key, each in node.value.items() if key != "name"}
        full = {key: each for key, each in written.items() if not _is_short(key, each.node)}
        check_fields(
            YamlNode(node.line, full), kind_definition(QUEUE), f"queue {name}", reading.problems
        )
        spec = {key: json_value(each.node) for key, each in written.items()}
        found.append(Manifest(nodes.queue_of(name, spec), reading.place(node.line)))
    return found
