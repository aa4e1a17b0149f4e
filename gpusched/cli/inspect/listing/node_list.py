"""``gpusched get nodes``: what each node has, what is free of it, and which gangs are there, as ``sinfo`` tells it.

What is used is counted by the daemon's own cache, of pods of all schedulers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import attrs

from gpusched.api.devices.gpu_types import gpu_type_of
from gpusched.api.devices.slots import format_slots
from gpusched.api.meta.gpu_resources import gpu_resources
from gpusched.api.meta.quantity import format_quantity
from gpusched.api.node.node import Node
from gpusched.arrays.columns import NodeColumns
from gpusched.cache.cache import Cache
from gpusched.cli.command import age, clean_cell
from gpusched.cli.inspect.cluster_reader import list_objects, read_entity
from gpusched.io.client.api_client import ApiClient

_PATHS: Final = {"nodes": "/api/v1/nodes", "pods": "/api/v1/pods"}


@attrs.frozen(kw_only=True)
class ListedNode:
    """One node.

    Attributes:
        state: as kubectl says it.
        gpu_type: product of its GPUs as a label tells it, empty where none does.
        gpus, free_gpus: in thousandths, of all GPU resources; shares count as their parts.
        free_slots: numbers of the GPU slots that nobody has any of, with commas.
        free: of CPU and memory, as quantities.
        pods: that take anything of it.
        gangs: of ours with members there, by namespace and name, sorted.
        created: seconds since the epoch.
    """

    name: str
    state: str
    gpu_type: str
    gpus: int
    free_gpus: int
    free_slots: str
    free: tuple[str, str]
    pods: int
    gangs: tuple[str, ...]
    created: float


async def list_nodes(
    api: ApiClient, *, schedulers: Sequence[str], now: float, selector: str = ""
) -> tuple[ListedNode, ...]:
    """Every node by name.

    Args:
        api: of the cluster.
        schedulers: names of schedulers whose pods are ours.
        now: seconds since the epoch.
        selector: of the nodes' labels, empty for all.

    Raises:
        Denied: nodes or pods may not be listed.
    """
    cache = Cache(schedulers)
    running: dict[str, int] = {}
    for kind, path in _PATHS.items():
        put = cache.put_node if kind == "nodes" else cache.put_pod
        query = {"labelSelector": selector} if selector and kind == "nodes" else None
        for item in await list_objects(api, path, what=kind, query=query):
            entity = read_entity(kind, item)
            put(entity)
            node = getattr(entity, "node", "") if kind == "pods" else ""
            if node and not entity.finished:
                running[node] = running.get(node, 0) + 1
    snapshot = cache.snapshot(now)
    gangs: dict[str, set[str]] = {}
    for key, gang in snapshot.placed_gangs.items():
        for member in gang.placed:
            gangs.setdefault(member.node, set()).add(str(key))
    nodes = snapshot.nodes
    return tuple(
        _listed(nodes, row, running.get(node.name, 0), gangs.get(node.name, set()))
        for row, node in sorted(enumerate(nodes.nodes), key=lambda each: each[1].name)
    )


def _listed(nodes: NodeColumns, row: int, pods: int, gangs: set[str]) -> ListedNode:
    node, names = nodes.nodes[row], gpu_resources()
    gpus = [name for name in names.names if node.allocatable.get(name)]
    return ListedNode(
        name=node.name,
        state=_state(node),
        gpu_type=gpu_type_of(node.labels, names) if gpus else "",
        gpus=sum(node.allocatable.get(name) for name in gpus),
        free_gpus=sum(_free(nodes, row, name) for name in gpus),
        free_slots=format_slots(nodes.free_slots[row]),
        free=(
            format_quantity(_free(nodes, row, "cpu"), resource="cpu"),
            format_quantity(_free(nodes, row, "memory"), resource="memory"),
        ),
        pods=pods,
        gangs=tuple(sorted(gangs)),
        created=node.created,
    )


def _free(nodes: NodeColumns, row: int, resource: str) -> int:
    column = nodes.columns.get(resource)
    if column is None:
        return 0
    return max(0, int(nodes.allocatable[row, column] - nodes.used[row, column]))


def _state(node: Node) -> str:
    state = "NotReady" if node.not_ready else "Ready"
    return f"{state},SchedulingDisabled" if node.unschedulable else state


def node_rows(nodes: Sequence[ListedNode], now: float, *, wide: bool) -> list[list[str]]:
    """A header and a line for each node; wide with free slots, CPU and memory, and the gangs' names."""
    rows = [["NAME", "STATE", "TYPE", "GPUS", "FREE", "PODS", "GANGS", "AGE"]]
    if wide:
        rows[0] += ["SLOTS", "CPU", "MEMORY", "GANGNAMES"]
    for each in nodes:
        row = [
            each.name,
            each.state,
            each.gpu_type,
            _gpu_text(each.gpus),
            _gpu_text(each.free_gpus),
            each.pods,
            len(each.gangs),
            age(now - each.created),
        ]
        row += [each.free_slots, *each.free, ",".join(each.gangs)] if wide else []
        rows.append([clean_cell(cell) for cell in row])
    return rows


def _gpu_text(thousandths: int) -> str:
    names = gpu_resources().names
    return format_quantity(thousandths, resource=names[0]) if names else str(thousandths)


def node_as_json(node: ListedNode) -> dict[str, Any]:
    """One node with the names of the table, in the style of the API."""
    cpu, memory = node.free
    return {
        "metadata": {"name": node.name},
        "state": node.state,
        "gpuType": node.gpu_type,
        "gpus": _gpu_text(node.gpus),
        "freeGpus": _gpu_text(node.free_gpus),
        "freeSlots": node.free_slots,
        "free": {"cpu": cpu, "memory": memory},
        "pods": node.pods,
        "gangs": list(node.gangs),
    }
