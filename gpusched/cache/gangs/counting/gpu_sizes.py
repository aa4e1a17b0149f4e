"""How many GPUs pods usually ask for: counted among those of ours that wait or run."""

from __future__ import annotations

from collections import Counter
from typing import Final

from gpusched.api.pod.pod import Pod
from gpusched.arrays.node_usage import DEFAULT_POPULATION

_PRIOR_COUNTS: Final = 100
"""Pods that the usual sizes count as: a few pods do not say what a cluster is used for."""
_STEP: Final = 20
"""Shares are rounded to so many thousandths, so that one pod more changes no table."""
_LEAST: Final = 20
"""What each usual size counts, however rare: whole islands are worth something everywhere."""


class GpuSizes:
    """Counts pods by the GPUs that each asks for."""

    def __init__(self) -> None:
        self._pods: Counter[int] = Counter()
        self._shares: tuple[tuple[int, int], ...] | None = None

    def replace_pod(self, before: Pod | None, after: Pod | None) -> None:
        """A pod came, went, or is another now; finished ones ask for nothing."""
        gone, come = _pod_gpus(before), _pod_gpus(after)
        if gone == come:
            return
        self._pods[gone] -= 1
        self._pods[come] += 1
        self._shares = None

    def size_shares(self) -> tuple[tuple[int, int], ...]:
        """Sizes, ascending, and how many of about a thousand pods have them."""
        if self._shares is None:
            weights = {size: share * _PRIOR_COUNTS for size, share in DEFAULT_POPULATION}
            for size, count in self._pods.items():
                if size and count > 0:
                    weights[size] = weights.get(size, 0) + count * 1000
            total = sum(weights.values())
            usual = dict(DEFAULT_POPULATION)
            rounded = {
                size: max(
                    (weight * 1000 // total + _STEP // 2) // _STEP * _STEP,
                    _LEAST if size in usual else 0,
                )
                for size, weight in weights.items()
            }
            self._shares = tuple(sorted((size, share) for size, share in rounded.items() if share))
        return self._shares


def _pod_gpus(pod: Pod | None) -> int:
    return 0 if pod is None or pod.finished else pod.pod_class.gpus
