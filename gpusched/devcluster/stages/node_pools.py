"""The nodes a NodePool asks for: pure, so that the embedded cluster and a file hold the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import resources
from typing import Any, Final

import msgspec
import yaml

from gpusched.base.errors import ConfigError
from gpusched.devcluster.schema.schema import Schema, load_builtin, structural
from gpusched.devcluster.stages.templates import execution
from gpusched.devcluster.stages.templates.functions import SPRIG
from gpusched.devcluster.stages.templates.parser import TemplateError

Obj = dict[str, Any]
API_VERSION: Final = "devcluster.gpusched.io/v1alpha1"
KIND: Final = "NodePool"
POOL_LABEL: Final = "devcluster.gpusched.io/pool"
"""On every node of a pool: the pool's name."""
DEVICES_ANNOTATION: Final = "devcluster.gpusched.io/devices"
"""On a node: the devices that drivers publish for it, as a list in JSON."""
_FAKE: Final = {"kwok.x-k8s.io/node": "fake"}


class NodePoolError(ConfigError):
    """A NodePool that cannot be filled; the sentence names it and the text that is wrong."""


def pool_schema() -> Schema:
    """What a NodePool may be, as the embedded cluster defines it."""
    file = resources.files("gpusched.devcluster").joinpath("data", "definitions", "nodepools.yaml")
    (version,) = yaml.safe_load(file.read_text(encoding="utf-8"))["spec"]["versions"]
    return structural(version["schema"]["openAPIV3Schema"])


def nodes_of(pool: Obj, *, replicas: int | None = None) -> list[Obj]:
    """The Node objects of a pool, by number; each has its own name.

    Args:
        pool: the decoded NodePool.
        replicas: instead of the pool's own number.

    Raises:
        NodePoolError: a template does not render, what it makes is no Node, or two nodes would have one name.
    """
    name: str = (pool.get("metadata") or {}).get("name") or "pool"
    spec: Obj = pool.get("spec") or {}
    template: Obj = spec.get("template") or {}
    if fault := _node_fault({"metadata": template.get("metadata") or {}}):
        raise NodePoolError(f"NodePool {name!r}: spec.template: {fault}")
    count = spec.get("replicas", 1) if replicas is None else replicas
    found: dict[str, Obj] = {}
    for index in range(count):
        node = _node(name, template, index)
        if spec.get("devices"):
            node["metadata"]["annotations"][DEVICES_ANNOTATION] = devices_text(spec["devices"])
        if fault := _node_fault(node):
            raise NodePoolError(f"NodePool {name!r}, node {index}: {fault}")
        own = node["metadata"]["name"]
        if own in found:
            raise NodePoolError(
                f"NodePool {name!r}: {own} would be the name of two nodes; "
                "let spec.template.metadata.name hold {{ Index }}"
            )
        found[own] = node
    return list(found.values())


def _node_fault(node: Obj) -> str | None:
    """Why no Node can be read from an object; None where one can."""
    return load_builtin("", "v1", "Node").decode_error(node)


def devices_text(devices: Sequence[Any]) -> str:
    """Entries of devices as the annotation of a node has them."""
    return msgspec.json.encode(devices, order="sorted").decode()


def _node(pool: str, template: Obj, index: int) -> Obj:
    functions = {**SPRIG, "Index": lambda: index, "Pool": lambda: pool}
    try:
        shape: Obj = _rendered(template, functions)
    except TemplateError as fault:
        raise NodePoolError(f"NodePool {pool!r}, node {index}: {fault}") from fault
    metadata: Obj = shape.get("metadata") or {}
    name = metadata.get("name") or f"{pool}-{index}"
    labels = {
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        **(metadata.get("labels") or {}),
        POOL_LABEL: pool,
    }
    annotations = {**_FAKE, **(metadata.get("annotations") or {})}
    status: Obj = shape.get("status") or {}
    if "capacity" in status:
        status = {**status, "allocatable": status.get("allocatable") or status["capacity"]}
    parts = {"spec": shape.get("spec"), "status": status}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {**metadata, "name": name, "labels": labels, "annotations": annotations},
        **{key: part for key, part in parts.items() if part},
    }


def _rendered(value: Any, functions: dict[str, Callable[..., Any]]) -> Any:
    if isinstance(value, dict):
        return {key: _rendered(item, functions) for key, item in value.items()}
    if isinstance(value, list):
        return [_rendered(item, functions) for item in value]
    if isinstance(value, str) and "{{" in value:
        return execution.render_template(value, {}, functions)
    return value
