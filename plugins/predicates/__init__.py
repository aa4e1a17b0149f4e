"""Which nodes may take a pod at all, decided as kube-scheduler decides it.

Rules of a pod and a node alone are in ``nodes``; the other modules hold rules about the pods
around: ``ports`` of the host, ``affinity`` and anti-affinity, even ``spread``, ``volumes``, pods that
are ``expected`` on a node by other schedulers; ``liking`` holds what is only preferred.

Room for the pod (resources, GPU slots, pod count) is no policy: the session itself keeps it.
"""

from __future__ import annotations

from typing import ClassVar

import attrs
from gpusched_plugins.predicates import affinity, expected, liking, nodes, ports, spread, volumes

from gpusched.plugin import Hooks, View


@attrs.frozen
class Predicates:
    """The filters of kube-scheduler. Members of one gang see each other's places."""

    name: ClassVar[str] = "predicates"
    api: ClassVar[int] = 1

    def open(self, hooks: Hooks, view: View) -> None:
        """See the class. The first filter that refuses a node is the one it is counted under."""
        nodes.register(hooks)
        ports.register(hooks, view)
        affinity.register(hooks, view)
        spread.register(hooks, view)
        expected.register(hooks, view)
        volumes.register(hooks, view)
        liking.register(hooks, view)
