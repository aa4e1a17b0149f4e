"""Manifests, nodes and queues of a scenario's files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from gpusched.config.tree import Node, Problems, quoted, shown
from gpusched.config.values import BadValueError
from gpusched.devcluster import node_pools
from gpusched.errors import ConfigError
from gpusched.scenario import nodes
from gpusched.scenario.fields import QUEUE_NAME
from gpusched.scenario.mappings import Found
from gpusched.scenario.model import API_VERSION, KIND, Manifest, Obj
from gpusched.scenario.population import UNCHECKED
from gpusched.scenario.read_kinds import POOL, QUEUE, check, check_object, definition
from gpusched.scenario.reading import Reading, plain, yaml_files

_LIST: Final = "List"


def is_scenario(node: Node) -> bool:
    """Tell whether a document is one, be it with mistakes."""
    if not isinstance(node.value, dict):
        return False
    kind, version = (_text(node, key) for key in ("kind", "apiVersion"))
    return kind == KIND or version.partition("/")[0] == API_VERSION.partition("/")[0]


def _text(node: Node, key: str) -> str:
    entry = node.value.get(key) if isinstance(node.value, dict) else None
    return entry.node.value if entry and isinstance(entry.node.value, str) else ""


# -- manifests ---------------------------------------------------------------------------------
def manifests(node: Node, reading: Reading) -> list[Manifest]:
    """The objects of one document: itself, the items of a List, the nodes of a NodePool."""
    place = reading.place(node.line)
    if not isinstance(node.value, dict):
        reading.refuse(place, f"a manifest must be a mapping, not {shown(node)}")
        return []
    if _text(node, "kind") == _LIST:
        items = node.value.get("items")
        inner = items.node.value if items else ()
        if not isinstance(inner, tuple):
            reading.refuse(place, "the items of a List must be a list")
            return []
        return [each for item in inner for each in manifests(item, reading)]
    if not _complete(node, reading):
        return []
    obj = plain(node)
    if ((obj["metadata"].get("annotations") or {}).get(UNCHECKED)) != "true":
        check_object(node, reading.problems)
    if obj["kind"] == node_pools.KIND and obj["apiVersion"] == node_pools.API_VERSION:
        return _pool(node, obj, reading)
    return [Manifest(obj, place)]


def _complete(node: Node, reading: Reading) -> bool:
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


def _texts(metadata: Node, key: str, reading: Reading) -> bool:
    assert isinstance(metadata.value, dict)
    entry = metadata.value.get(key)
    if entry is None or entry.node.value is None:
        return True
    if not isinstance(entry.node.value, dict):
        reading.problems.add(entry.line, f"{key} must be a mapping, not {shown(entry.node)}")
        return False
    wrong = [(k, e) for k, e in entry.node.value.items() if not isinstance(e.node.value, str)]
    for name, each in wrong:
        reading.problems.add(
            each.line,
            f"{key}[{name}] must be a text, not {shown(each.node)}: put it in quotes",
        )
    return not wrong


def _pool(node: Node, obj: Obj, reading: Reading) -> list[Manifest]:
    """Written out, because a real cluster knows no pools."""
    assert isinstance(node.value, dict)
    place = reading.place(node.line)
    inner = Problems(reading.file)
    if "spec" in node.value:
        check(node.value["spec"].node, POOL, "spec of NodePool", inner)
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


def files(name: str, line: int, reading: Reading) -> list[Manifest]:
    """The objects of a file, or of all YAML files of a folder, that the scenario names."""
    path = reading.path(name, line)
    if path is None:
        return []
    found = []
    for file in yaml_files(path) if path.is_dir() else [path]:
        found += file_objects(file, reading)
    if not found and not reading.sentences:
        reading.problems.add(line, f"{quoted(name)} holds no object")
    return found


def file_objects(path: Path, reading: Reading) -> list[Manifest]:
    """The objects of one file."""
    inner = Reading(reading.folder, str(path))
    documents = reading.documents(path)
    found = [each for node in documents for each in manifests(node, inner)]
    reading.merge(inner)
    return found


def objects(items: Sequence[Any], reading: Reading) -> list[Manifest]:
    """Of a list of paths and objects.

    Args:
        items: each a path with its node, or the node of an object.
        reading: takes what is wrong.
    """
    found = []
    for node in items:
        if isinstance(node.value, str):
            found += files(node.value, node.line, reading)
        else:
            found += manifests(node, reading)
    return found


# -- nodes -------------------------------------------------------------------------------------
def short_nodes(entries: Sequence[Found], reading: Reading) -> list[Manifest]:
    """The nodes of ``spec.nodes``."""
    made: list[Manifest] = []
    domains = nodes.Domains()
    for found in entries:
        shape = nodes.Nodes(
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
            taints=tuple(plain(each) for each in found.get("taints", ())),
            resources=found.get("resources", {}),
        )
        place = reading.place(found.line)
        try:
            made += [Manifest(node, place) for node in nodes.nodes_of(shape, domains)]
        except ConfigError as error:
            reading.refuse(place, str(error))
    return made


def short_priorities(found: Found, reading: Reading) -> list[Manifest]:
    """The PriorityClasses of ``spec.priorities``."""
    place = reading.place(found.line_of("priorities"))
    values = found.get("priorities", {})
    return [Manifest(nodes.priority_of(name, value), place) for name, value in values.items()]


def _is_short(key: str, node: Node) -> bool:
    """Whether a bare number stands for GPUs."""
    return key in (*nodes.AMOUNTS, "guarantee") and type(node.value) in (int, float)


# -- queues ------------------------------------------------------------------------------------
def short_queues(entries: Sequence[Node], reading: Reading) -> list[Manifest]:
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
        check(Node(node.line, full), definition(QUEUE), f"queue {name}", reading.problems)
        spec = {key: plain(each.node) for key, each in written.items()}
        found.append(Manifest(nodes.queue_of(name, spec), reading.place(node.line)))
    return found
