"""A node whose kubelet refused a pod gets no such pod for a time, see ``cache.refusals``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gpusched.objects.node import Node
from gpusched.objects.pod import PodClass
from gpusched.session.hooks import Filter


def _takes(pod_class: PodClass, nodes: Sequence[Node]) -> list[bool] | None:
    if not any(node.avoided for node in nodes):
        return None
    return [pod_class.requests not in node.avoided for node in nodes]


REFUSED_LATELY: Final = Filter("", "refused such a pod lately", _takes)
"""The session's own: whatever policies are configured, it holds."""
