"""Ports of the host: two pods on one node cannot have the same."""

from __future__ import annotations

import attrs
import numpy as np
from gpusched_plugins.nodes.predicates.pod_selection import Bools, named_pods

from gpusched.plugin import DomainLimit, Hooks, HostPort, PairRule, Pod, View


@attrs.frozen(cache_hash=True)
class PortUsers:
    """Pods that have one of these ports, or one that goes against it."""

    ports: tuple[HostPort, ...]
    cautious: bool = True
    needs: None = None

    def counts(self, pod: Pod) -> bool:
        """Whether this pod counts."""
        own = pod.pod_class.ports
        return bool(own) and any(port.conflicts(each) for port in self.ports for each in own)


def register_host_ports(hooks: Hooks, view: View) -> None:
    """A pod's ports must be free on its node."""

    def rule(pod: Pod) -> PairRule | None:
        if not pod.pod_class.ports:
            return None
        users = PortUsers(pod.pod_class.ports)

        def allows() -> Bools:
            free: Bools = view.pods_by_node(users) == 0
            return free

        def limits() -> list[DomainLimit]:
            nodes = len(view.nodes())
            return [DomainLimit("", users.counts, lambda: np.ones(nodes, dtype=np.int64))]

        return PairRule(
            users.ports,
            allows,
            once=True,
            limits=limits,
            detail=lambda: named_pods(view, [users], "taken by "),
        )

    hooks.pair_filter(
        "have no free host port for it",
        rule,
        concerns=lambda pod_class: bool(pod_class.ports),
        reads=("ports",),
    )
