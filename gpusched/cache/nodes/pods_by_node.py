"""Pods on each node, of every scheduler: what inter-pod affinity and topology spread look at.

Rows of nodes on which nothing happened are shared with the snapshot before.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gpusched.api.meta.identity import UID
from gpusched.api.pod.pod import Pod
from gpusched.arrays.columns import Ints, NodeColumns
from gpusched.base.classes import frozen
from gpusched.cache.ledger import Ledger


@frozen(slots=True, kw_only=True, eq=False)
class NodePods:
    """Pods by row of their node: bound, or assumed to be; in any order.

    Attributes:
        pods: pods that cannot be believed are not among them.
        apart: those of them that keep others away by required anti-affinity.
        generation: int64, shape (nodes,): counter of the last change of each row; read-only.
    """

    pods: tuple[tuple[Pod, ...], ...]
    apart: tuple[tuple[Pod, ...], ...]
    generation: Ints


class PodsByNode:
    """Pods on each row, and the pods that another scheduler has nominated to a node."""

    def __init__(self) -> None:
        self._changed: set[UID] = set()
        self._awaited: dict[UID, Pod] = {}
        self._counter = 0
        self._epoch = -1
        self._current: NodePods | None = None

    def note_pod(self, pod: Pod, known: Pod | None, *, ours: bool) -> None:
        """A pod appeared or changed; what moves it to or from a node is the ledger's to tell."""
        if known is not None and pod_for_pod_rules(known) != pod_for_pod_rules(pod):
            self._changed.add(pod.uid)
        if not ours and pod.nominated and not pod.node:
            self._awaited[pod.uid] = pod
        else:
            self._awaited.pop(pod.uid, None)

    def forget(self) -> None:
        """All rows are listed again."""
        self._current = None

    def drop_pod(self, uid: UID) -> None:
        """A pod is gone."""
        self._awaited.pop(uid, None)

    def awaited_pods(self) -> tuple[Pod, ...]:
        """Unbound pods of other schedulers that are nominated to a node, sorted by key."""
        return tuple(sorted(self._awaited.values(), key=lambda pod: pod.key))

    def build_rows(
        self, nodes: NodeColumns, ledger: Ledger, pods: Mapping[UID, Pod], moved: set[str]
    ) -> NodePods:
        """The residents of this moment; marks are taken.

        Args:
            nodes: of the same moment.
            ledger: holdings of pods on nodes.
            pods: that exist, by UID.
            moved: names of nodes whose holdings changed since the last call.
        """
        self._counter += 1
        old = self._current
        if old is None or self._epoch != nodes.epoch:
            changed = list(range(len(nodes)))
            listed: list[tuple[Pod, ...]] = [()] * len(nodes)
            apart: list[tuple[Pod, ...]] = [()] * len(nodes)
            generation = np.zeros(len(nodes), dtype=np.int64)
        else:
            held = (ledger.get(uid) for uid in self._changed)
            names = moved.union(holding.node for holding in held if holding is not None)
            changed = [nodes.row[name] for name in sorted(names) if name in nodes.row]
            if not changed:
                self._changed.clear()
                return old
            listed, apart, generation = list(old.pods), list(old.apart), old.generation.copy()
        for row in changed:
            own = tuple(pods[uid] for uid in ledger.uids_on(nodes.nodes[row].name) if uid in pods)
            listed[row] = own
            apart[row] = tuple(pod for pod in own if pod.pod_class.pod_anti_affinity)
        generation[changed] = self._counter
        generation.setflags(write=False)
        self._changed.clear()
        self._epoch = nodes.epoch
        self._current = NodePods(pods=tuple(listed), apart=tuple(apart), generation=generation)
        return self._current


def pod_for_pod_rules(pod: Pod) -> tuple[object, ...]:
    """What rules between pods read of a pod, beside its place."""
    return (pod.deleting, pod.pod_class, pod.labels, pod.claims)


def pod_for_others(pod: Pod | None) -> tuple[object, ...]:
    """What a decision about other pods may read of a pod that is not ours; nothing of one that is not there.

    Nor of one that only waits for another scheduler, and is in no group and claims no devices.
    """
    if pod is None:
        return ()
    if not (pod.node or pod.nominated or pod.group or pod.extended or pod.pod_class.claims):
        return ()
    return (pod.holds, pod.nominated, pod.priority, *pod_for_pod_rules(pod))
