"""IP addresses of fake nodes and pods: handed out in sequence, lowest free one first."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from ipaddress import ip_address, ip_network
from typing import Final

_NODES: Final = "172.16.0.0/12"
_PODS: Final = "10.0.0.0/24"
"""Where a node has no podCIDR, as on KWOK; more pods than fit run on into the next network."""


class _Pool:
    def __init__(self, network: str) -> None:
        self._first = ip_network(network, strict=False).network_address
        self._count = 0
        self._free: list[int] = []

    def take(self) -> str:
        if self._free:
            return str(self._first + heapq.heappop(self._free))
        self._count += 1
        return str(self._first + self._count)

    def give_back(self, address: str) -> None:
        heapq.heappush(self._free, int(ip_address(address)) - int(self._first))


class AddressBook:
    """Remembers who has which address.

    Args:
        pod_network: the podCIDR of a node by name, empty when it has none.
    """

    def __init__(self, pod_network: Callable[[str], str]) -> None:
        self._pod_network = pod_network
        self._node_pool = _Pool(_NODES)
        self._nodes: dict[str, str] = {}
        self._pools: dict[str, _Pool] = {}
        self._pods: dict[str, tuple[str, str]] = {}

    def node(self, name: str) -> str:
        """The address of a node; the same for as long as the process lives."""
        if name not in self._nodes:
            self._nodes[name] = self._node_pool.take()
        return self._nodes[name]

    def pod(self, node: str, *, host_network: bool, uid: str, name: str, namespace: str) -> str:
        """The address of a pod; the same until ``release``."""
        if host_network:
            return self.node(node)
        key = uid or f"{namespace}/{name}"
        if key not in self._pods:
            network = self._pod_network(node) or _PODS
            pool = self._pools.setdefault(network, _Pool(network))
            self._pods[key] = (network, pool.take())
        return self._pods[key][1]

    def release(self, uid: str) -> None:
        """Free the address of a pod that is gone."""
        held = self._pods.pop(uid, None)
        if held is not None:
            network, address = held
            self._pools[network].give_back(address)
