"""Which of the possible nodes is best: the fullest (binpack) or the emptiest (spread)."""

from __future__ import annotations

from typing import ClassVar, Literal

import attrs
import numpy as np
from attrs import validators as v

from gpusched.plugin import Hooks, NodeRows, PodClass, View

FULL = 1000
"""Points of a node that is full (binpack) or empty (spread) in one resource."""
AFFINITY_POINTS = 10
"""Points for one unit of preferred node affinity, whose weights go from 1 to 100."""
PREFERRED = ("cpu", "memory")
GPU_WEIGHT = 8
"""GPUs count as much more than cpu and memory as they cost more."""


@attrs.frozen(kw_only=True)
class NodeOrderArgs:
    """``strategy: binpack`` keeps whole nodes free for large gangs; ``spread`` avoids hot nodes."""

    strategy: Literal["binpack", "spread"] = attrs.field(
        default="binpack", validator=v.in_(("binpack", "spread"))
    )


@attrs.frozen
class NodeOrder:
    """Scores nodes by how full they are in what the pod asks for."""

    name: ClassVar[str] = "nodeorder"
    api: ClassVar[int] = 1
    args: NodeOrderArgs = NodeOrderArgs()

    def open(self, hooks: Hooks, view: View) -> None:
        """See the class."""
        sign = 1 if self.args.strategy == "binpack" else -1

        def fullness(pod: PodClass, rows: NodeRows) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
            points = np.zeros(len(rows), dtype=np.int64)
            weights = 0
            for resource, weight in _weights(pod):
                offered = np.maximum(rows.allocatable(resource), 1)
                points += (
                    weight * sign * (np.minimum(rows.used(resource), offered) * FULL // offered)
                )
                weights += weight
            if not pod.gpu:
                points -= weights * FULL * _has_gpus(rows)
            return points // max(1, weights)

        def preference(
            pod: PodClass, rows: NodeRows
        ) -> np.ndarray[tuple[int], np.dtype[np.int64]] | None:
            if not pod.preferred:
                return None
            points = np.zeros(len(rows), dtype=np.int64)
            for weight, term in pod.preferred:
                for index, node in enumerate(rows.nodes()):
                    if term.matches(node.labels, name=node.name):
                        points[index] += weight * AFFINITY_POINTS
            return points

        del view
        hooks.node_score(fullness)
        hooks.node_score(preference)


def _weights(pod: PodClass) -> list[tuple[str, int]]:
    weights = [(name, 1) for name in PREFERRED if pod.requests.get(name)]
    return [*weights, (pod.gpu, GPU_WEIGHT)] if pod.gpu else weights or [("pods", 1)]


def _has_gpus(rows: NodeRows) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return (rows.gpus() > 0).astype(np.int64)
