"""NUMA nodes of a node, and what a kubelet's topology manager keeps inside one of them."""

from __future__ import annotations

from typing import Final

from gpusched.api.meta.gpu_resources import gpu_resources
from gpusched.api.meta.resources import NOTHING, Resources
from gpusched.base.classes import frozen

SINGLE: Final = "single-numa-node"
RESTRICTED: Final = "restricted"
_CORE: Final = 1000


@frozen(slots=True)
class NumaNode:
    """One NUMA node.

    Attributes:
        slots: bitmask of its GPUs.
        offered, free: what the agent on the node reports, without GPUs; what is not named
            is not kept inside NUMA nodes there.
    """

    slots: int
    offered: Resources
    free: Resources


@frozen(slots=True)
class NumaTopology:
    """The NUMA nodes of a node whose kubelet refuses pods that do not fit them.

    Attributes:
        policy: ``SINGLE`` or ``RESTRICTED``.
        whole_pods: whether all containers of a pod are kept together (scope ``pod``).
    """

    policy: str
    whole_pods: bool
    cells: tuple[NumaNode, ...]


def aligned_requests(containers: list[tuple[Resources, Resources]]) -> tuple[Resources, ...]:
    """What the topology manager looks at, by container that has anything of it.

    GPUs of every pod; CPUs and memory of guaranteed pods whose CPUs are whole.

    Args:
        containers: requests and limits of those that stay: init containers are not looked at.
    """
    guaranteed = bool(containers) and all(
        requests.get(name) == limits.get(name) > 0
        for requests, limits in containers
        for name in ("cpu", "memory")
    )
    needs = []
    for requests, _ in containers:
        found = {name: requests.get(name) for name in gpu_resources().names if requests.get(name)}
        if guaranteed:
            found["memory"] = requests.get("memory")
            if requests.get("cpu") % _CORE == 0:
                found["cpu"] = requests.get("cpu")
        needs.append(Resources.of(found) if found else NOTHING)
    return tuple(each for each in needs if each)
