"""Which of equal pods gets a place first."""

from __future__ import annotations

from collections.abc import Sequence

from gpusched.objects.pod import Pod
from gpusched.session.hooks import PodOrder
from gpusched.session.keys import comparable


def in_pod_order(pods: Sequence[Pod], orders: Sequence[PodOrder]) -> Sequence[Pod]:
    """Equal pods in the order in which they get places; as they are when one has no key."""
    if not orders:
        return pods
    keys = {pod.uid: comparable(orders, pod) for pod in pods}
    if any(key is None for key in keys.values()):
        return pods
    return sorted(pods, key=lambda pod: keys[pod.uid])
