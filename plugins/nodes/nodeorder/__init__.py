"""Which of the possible nodes is best: the fullest, the emptiest, or the one that breaks up least.

The third leaves free what requests that are usual here can use, see ``measure``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ClassVar, Literal

import attrs
import numpy as np
from attrs import validators as v
from gpusched_plugins.nodes.nodeorder.fragmentation import Ints
from gpusched_plugins.nodes.nodeorder.typical_requests import TypicalRequests

from gpusched.plugin import DEVICE, DependsOn, Fullness, Hooks, NodeRows, PodClass, View

FULL = 1000
"""Points of a node that is full (binpack) or empty (spread) in one resource."""
AFFINITY_POINTS = 10
"""Points for one unit of preferred node affinity, whose weights go from 1 to 100."""
PREFERRED = ("cpu", "memory")
GPU_WEIGHT = 8
"""GPUs count as much more than cpu and memory as they cost more."""
STEP = 10_000
"""Points for one class of the fall of fragmentation; fewer only decide between equals."""
LOOK_AHEAD_MAX = 64
FEW = 8
"""Rows up to which a call for an array costs more than its arithmetic does in Python."""

SHARED_WEIGHT = 2 * (GPU_WEIGHT + len(PREFERRED))
"""Twice what all resources weigh together: shares go where GPUs are shared already."""


@attrs.frozen(kw_only=True)
class NodeOrderArgs:
    """``strategy: binpack`` keeps whole nodes free for large gangs; ``spread`` avoids hot nodes.

    ``fragmentation`` is for many single pods that share GPUs: it leaves free what those that run
    and wait typically ask for. ``lookAhead`` says through how many of them the room that is left is
    followed; 0 is the published measure.
    """

    strategy: Literal["binpack", "spread", "fragmentation"] = attrs.field(
        default="binpack", validator=v.in_(("binpack", "spread", "fragmentation"))
    )
    look_ahead: int = attrs.field(default=12, validator=[v.ge(0), v.le(LOOK_AHEAD_MAX)])


@attrs.frozen
class NodeOrder:
    """Scores nodes by how full they would be, with the pod, in what it asks for."""

    name: ClassVar[str] = "nodeorder"
    api: ClassVar[int] = 1
    depends_on: ClassVar[DependsOn] = DependsOn.VIEW
    args: NodeOrderArgs = NodeOrderArgs()

    def open(self, hooks: Hooks, view: View) -> None:
        """Register the scores of nodes."""
        sign = -1 if self.args.strategy == "spread" else 1
        # Preferences weigh as much beside each strategy.
        unit = STEP if self.args.strategy == "fragmentation" else AFFINITY_POINTS

        def preference(pod: PodClass, rows: NodeRows) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
            points = np.zeros(len(rows), dtype=np.int64)
            for weight, term in pod.preferred:
                for index, node in enumerate(rows.nodes()):
                    if term.matches(node.labels, name=node.name):
                        points[index] += weight * unit
            return points

        if self.args.strategy == "fragmentation":
            hooks.node_score(_score_fragmentation(view, self.args.look_ahead))
        else:
            score = partial(_score_fullness, sign=sign)
            hooks.node_score(score, alike=True, fullness=partial(_fullness, sign=sign))
        hooks.node_score(preference, only_with=("preferred",))


def _score_fullness(pod: PodClass, rows: NodeRows, *, sign: int) -> Ints:
    if len(rows) <= FEW and pod.share is None and pod.gpu:
        return _score_few(pod, rows, sign=sign)
    points: Ints = np.zeros(len(rows), dtype=np.int64)
    weights = 0
    if pod.share is not None:
        points += sign * _score_shared_gpu(pod, rows)
    for resource, weight in _weights(pod):
        offered = np.maximum(rows.allocatable(resource), 1)
        used = rows.used(resource) + _amount_added(pod, rows, resource)
        points += weight * sign * (np.minimum(used, offered) * FULL // offered)
        weights += weight
    if not pod.gpu:
        points -= weights * FULL * _has_gpus(rows)
    return points // max(1, weights)


def _score_few(pod: PodClass, rows: NodeRows, *, sign: int) -> Ints:
    """``_score_fullness`` of a few rows for a pod with whole GPUs: one by one costs less than as arrays."""
    points, weights = [0] * len(rows), 0
    for resource, weight in _weights(pod):
        asked = pod.requests.get(resource)
        amounts = zip(
            rows.allocatable(resource).tolist(), rows.used(resource).tolist(), strict=True
        )
        for index, (offered, used) in enumerate(amounts):
            after = used + asked
            full = (
                after * FULL // offered if after < offered else FULL
            )  # as of the least of the two
            points[index] += weight * sign * full
        weights += weight
    return np.array([each // max(1, weights) for each in points], dtype=np.int64)


def _fullness(resources: tuple[str, ...], gpu: str, *, sign: int) -> Fullness | None:
    """``_score_fullness`` as data; None for pods without GPUs, which nodes with GPUs are rated lower for."""
    if gpu not in resources:
        return None
    weights = [(name, 1) for name in PREFERRED if name in resources]
    weights.append((gpu, GPU_WEIGHT))
    divisor = sum(weight for _, weight in weights)
    return Fullness(tuple((name, sign * weight) for name, weight in weights), FULL, divisor)


def _amount_added(pod: PodClass, rows: NodeRows, resource: str) -> Ints | int:
    """What the pod would take of a resource on each row, base units.

    A share takes a whole GPU, except where it joins one that is shared already.
    """
    if pod.share is not None and resource == pod.gpu:
        return np.where(rows.gpu_room_left(pod) >= 0, 0, DEVICE)
    return pod.requests.get(resource)


def _score_fragmentation(view: View, look_ahead: int) -> Callable[[PodClass, NodeRows], Ints]:
    mixes: list[TypicalRequests] = []

    def useful_rest(pod: PodClass, rows: NodeRows) -> Ints:
        if not mixes:  # when first asked: most sessions place nothing
            mixes.append(TypicalRequests(view, look_ahead))
        if mixes[0].empty:
            return _score_fullness(pod, rows, sign=1)
        classes, free = mixes[0].classes(pod, rows)
        return classes * STEP + np.maximum(STEP - 1 - free // 4, 0)

    return useful_rest


def _score_shared_gpu(pod: PodClass, rows: NodeRows) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """More points than all else together for a GPU that is shared already, most for the fullest."""
    left = rows.gpu_room_left(pod)
    return np.where(left >= 0, SHARED_WEIGHT * (2 * FULL - left), 0)


def _weights(pod: PodClass) -> list[tuple[str, int]]:
    weights = [(name, 1) for name in PREFERRED if pod.requests.get(name)]
    return [*weights, (pod.gpu, GPU_WEIGHT)] if pod.gpu else weights or [("pods", 1)]


def _has_gpus(rows: NodeRows) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return (rows.gpus() + rows.slices() > 0).astype(np.int64)
