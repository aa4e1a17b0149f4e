"""What of the view is told in one line: GPUs of the cluster, gangs by state, and whose turn is next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from gpusched.api.meta.gpu_resources import gpu_resources
from gpusched.api.meta.quantity import QuantityError, format_quantity, parse_quantity
from gpusched.base.classes import frozen
from gpusched.view.model import (
    ENDING,
    RUNNING,
    STARTING,
    WAITING,
    GangView,
    NodeView,
)

_LAST: Final = 1 << 60


@frozen(kw_only=True)
class ClusterSummary:
    """The cluster in numbers; GPUs in thousandths.

    Attributes:
        gpus, free: of all nodes, and what of them nobody has; None where nodes are not shown.
        unavailable: of the free ones those of nodes that take no pods.
        waiting, starting, running, ending: gangs in that state.
    """

    gpus: int | None
    free: int | None
    unavailable: int
    waiting: int
    starting: int
    running: int
    ending: int

    @property
    def used(self) -> int | None:
        """GPUs that somebody has, in thousandths."""
        return None if self.gpus is None or self.free is None else self.gpus - self.free


def summarize_cluster(
    gangs: Iterable[GangView], nodes: Iterable[NodeView] | None
) -> ClusterSummary:
    """The numbers of a moment.

    Args:
        gangs: that are shown.
        nodes: None where they are not shown.
    """
    states = Counter(gang.state for gang in gangs)
    total = free = unavailable = 0
    for node in nodes or ():
        idle = gpu_amount(node.free_gpus)
        total += gpu_amount(node.gpus)
        free += idle
        unavailable += 0 if node.state == "Ready" else idle
    return ClusterSummary(
        gpus=total if nodes is not None else None,
        free=free if nodes is not None else None,
        unavailable=unavailable,
        waiting=states[WAITING],
        starting=states[STARTING],
        running=states[RUNNING],
        ending=states[ENDING],
    )


def turn_key(gang: GangView) -> tuple[int, str, str]:
    """Sorts gangs that wait: of each queue the first, then of each the second; those without a place last."""
    return gang.position or _LAST, gang.queue, gang.key


def gpu_amount(text: str) -> int:
    """Thousandths of GPUs of a quantity such as ``8`` or ``500m``; 0 where there is none."""
    try:
        return parse_quantity(text, power=3) if text else 0
    except QuantityError:
        return 0


def gpu_amount_text(thousandths: int) -> str:
    """A quantity as people read it."""
    names = gpu_resources().names
    return format_quantity(thousandths, resource=names[0] if names else "cpu")
