"""Which pods a kubelet refused lately, so that no such pod is sent there again for a time.

    refused --5 min--> tried again --refused again--> 10 min, 20 min, ... at most an hour

What is remembered comes from the failed pods themselves and their times: a restart loses only
what was learned from pods that exist no more. What a process saw it remembers, as many
controllers delete a failed pod at once.
"""

from __future__ import annotations

from gpusched.api.meta.identity import UID
from gpusched.api.meta.resources import Resources
from gpusched.api.pod.pod import Pod
from gpusched.base.limits import (
    KUBELET_REFUSAL_MAX_S,
    KUBELET_REFUSAL_S,
    KUBELET_REFUSALS_KEPT_S,
    KUBELET_REFUSALS_PER_NODE_MAX,
)


class KubeletRefusals:
    """By node and by what the refused pods asked for."""

    def __init__(self) -> None:
        self._times: dict[str, dict[Resources, dict[UID, float]]] = {}

    def note_pod(self, pod: Pod) -> None:
        """A pod of ours was seen."""
        if pod.refusal is None or not pod.node:
            return
        shapes = self._times.setdefault(pod.node, {})
        times = shapes.setdefault(pod.pod_class.requests, {})
        times[pod.uid] = pod.refusal.at
        if len(times) > KUBELET_REFUSALS_PER_NODE_MAX:
            del times[min(times, key=lambda uid: (times[uid], uid))]
        if len(shapes) > KUBELET_REFUSALS_PER_NODE_MAX:
            del shapes[min(shapes, key=lambda shape: (max(shapes[shape].values()), shape.items))]

    def node_names(self) -> list[str]:
        """Names of nodes of which something is remembered, sorted."""
        return sorted(self._times)

    def avoided_requests(self, node: str, now: float) -> tuple[Resources, ...]:
        """Requests of which no pod is sent to the node at this time, sorted.

        Args:
            node: its name.
            now: seconds since the epoch.
        """
        shapes = self._times.get(node, {})
        for shape, times in list(shapes.items()):
            kept = {uid: at for uid, at in times.items() if at + KUBELET_REFUSALS_KEPT_S > now}
            if kept:
                shapes[shape] = kept
            else:
                del shapes[shape]
        if node in self._times and not shapes:
            del self._times[node]
        avoided = [shape for shape, times in shapes.items() if _avoided_until(times) > now]
        return tuple(sorted(avoided, key=lambda shape: shape.items))


def _avoided_until(times: dict[UID, float]) -> float:
    doubled = KUBELET_REFUSAL_S * (1 << min(len(times) - 1, 16))
    return max(times.values()) + min(doubled, KUBELET_REFUSAL_MAX_S)
