"""Nodes and queues in short made into ordinary manifests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from gpusched.api.meta.gpu_resources import gpu_resources
from gpusched.base.classes import define, frozen
from gpusched.devcluster.stages.node_pools import DEVICES_ANNOTATION, devices_text
from gpusched.lab.scenario.expansion.templates import compile_value, is_template
from gpusched.lab.scenario.model.scenario import Obj

RACK: Final = "gpusched.io/rack"
BLOCK: Final = "gpusched.io/block"
ZONE: Final = "topology.kubernetes.io/zone"
AMOUNTS: Final = ("deserved", "capability")
"""Fields of a Queue in which a bare number is GPUs; ``guarantee`` is another, with ``resource``."""


@frozen(kw_only=True)
class NodesSpec:
    """Nodes that are alike; ``per_*`` is how many share a domain, 0 for no such label.

    Attributes:
        name: nodes are ``name-0`` and so on, unless it holds ``{{ Index }}``.
        devices: entries of devices that drivers publish for each node.
    """

    name: str = "node"
    count: int = 1
    gpus: int = 0
    cpu: str = "96"
    memory: str = "1Ti"
    pods: int = 110
    product: str = ""
    per_rack: int = 0
    per_block: int = 0
    per_zone: int = 0
    labels: Mapping[str, str] = attrs.Factory(dict)
    annotations: Mapping[str, str] = attrs.Factory(dict)
    taints: tuple[dict[str, Any], ...] = ()
    resources: Mapping[str, str] = attrs.Factory(dict)
    devices: tuple[dict[str, Any], ...] = ()


@define
class UsedDomains:
    """Which racks, blocks and zones there are already: further nodes get others."""

    _count: dict[str, int] = attrs.field(factory=dict)

    def first(self, label: str, *, more: int) -> int:
        """The number of the first of some more domains of a label."""
        first = self._count.get(label, 0)
        self._count[label] = first + more
        return first


def nodes_of(nodes: NodesSpec, domains: UsedDomains) -> list[Obj]:
    """The Node objects, in the order of their numbers.

    Args:
        nodes: what is asked for; its texts may be templates of ``Index``.
        domains: of the nodes before.

    Raises:
        TemplateError: a text does not render.
    """
    offsets = {}
    for label, _, per in _levels(nodes):
        if per:
            offsets[label] = domains.first(label, more=-(-nodes.count // per))
    name = nodes.name if is_template(nodes.name) else f"{nodes.name}-{{{{ Index }}}}"
    shape = compile_value(attrs.evolve(nodes, name=name))
    return [_node(shape(number), number, offsets) for number in range(nodes.count)]


def _levels(nodes: NodesSpec) -> tuple[tuple[str, str, int], ...]:
    return (
        (ZONE, "zone", nodes.per_zone),
        (BLOCK, "block", nodes.per_block),
        (RACK, "rack", nodes.per_rack),
    )


def _node(nodes: NodesSpec, number: int, offsets: Mapping[str, int]) -> Obj:
    labels = {
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": nodes.name,
        "kubernetes.io/os": "linux",
        "type": "kwok",
    }
    gpu = gpu_resources().main
    if nodes.gpus:
        labels[f"{gpu.name}.count"] = str(nodes.gpus)
    if nodes.product and gpu.product_labels:
        labels[gpu.product_labels[0]] = nodes.product
    for label, word, per in _levels(nodes):
        if per:
            labels[label] = f"{word}-{offsets[label] + number // per}"
    capacity = {"cpu": nodes.cpu, "memory": nodes.memory, "pods": str(nodes.pods)}
    if nodes.gpus:
        capacity[gpu.name] = str(nodes.gpus)
    capacity.update(nodes.resources)
    node: Obj = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": nodes.name,
            "labels": {**labels, **nodes.labels},
            "annotations": {"kwok.x-k8s.io/node": "fake", **nodes.annotations},
        },
    }
    if nodes.devices:
        node["metadata"]["annotations"][DEVICES_ANNOTATION] = devices_text(nodes.devices)
    if nodes.taints:
        node["spec"] = {"taints": list(nodes.taints)}
    node["status"] = {"capacity": capacity, "allocatable": dict(capacity)}
    return node


def queue_of(name: str, spec: Mapping[str, Any]) -> Obj:
    """The Queue object.

    Args:
        name: of the queue.
        spec: as in a manifest, but a bare number in ``deserved``, ``capability`` or ``guarantee``
            is so many GPUs.
    """
    made = {key: _gpus(value) if key in AMOUNTS else value for key, value in spec.items()}
    if "guarantee" in made:
        value = made["guarantee"]
        made["guarantee"] = value if isinstance(value, dict) else {"resource": _gpus(value)}
    return {
        "apiVersion": "scheduling.gpusched.io/v1alpha1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": made,
    }


def priority_of(name: str, value: int) -> Obj:
    """Manifest of a PriorityClass with this value."""
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
    }


def _gpus(value: Any) -> Any:
    return {gpu_resources().main.name: str(value)} if isinstance(value, int | float) else value
