"""Which nodes may take a pod at all, decided as kube-scheduler decides it.

Rules of a pod and a node alone are in ``nodes``; the other modules hold rules about the pods
around: ``ports`` of the host, ``affinity`` and anti-affinity, even ``spread``, ``volumes``, pods that
are ``expected`` on a node by other schedulers; ``liking`` holds what is only preferred.

Room for the pod (resources, GPU slots, pod count) is no policy: the session itself keeps it.
"""

from __future__ import annotations

from typing import ClassVar

import attrs
from gpusched_plugins.nodes.predicates import (
    host_ports,
    inter_pod_affinity,
    node_rules,
    nominated_pods,
    preferred,
    topology_spread,
    volumes,
)

from gpusched.plugin import DependsOn, Hooks, View


@attrs.frozen
class Predicates:
    """The filters of kube-scheduler. Members of one gang see each other's places."""

    name: ClassVar[str] = "predicates"
    api: ClassVar[int] = 1
    depends_on: ClassVar[DependsOn] = DependsOn.VIEW

    def open(self, hooks: Hooks, view: View) -> None:
        """See the class. The first filter that refuses a node is the one it is counted under."""
        node_rules.register_node_rules(hooks)
        host_ports.register_host_ports(hooks, view)
        inter_pod_affinity.register_inter_pod_affinity(hooks, view)
        topology_spread.register_topology_spread(hooks, view)
        nominated_pods.register_nominated_pods(hooks, view)
        volumes.register_volumes(hooks, view)
        preferred.register_preferences(hooks, view)
