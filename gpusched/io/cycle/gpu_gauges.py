"""Metrics of free GPUs and of fragmentation: looked at now and then, never in every session."""

from __future__ import annotations

from gpusched.base import limits
from gpusched.base.clock import Clock
from gpusched.cache.snapshot import Snapshot
from gpusched.io.observe.telemetry import Telemetry
from gpusched.session.state.session_cache import SessionCache
from gpusched.session.status.fragmentation import fragmentation_by_level
from gpusched.session.status.gpu_counts import GpuCounts, count_gpus


class GpuGauges:
    """Sets ``fragmentation_ratio`` and the counts of GPUs from what a session was given.

    Args:
        clock: says whether it is time again.
        telemetry: is told.
    """

    def __init__(self, clock: Clock, telemetry: Telemetry) -> None:
        self._clock = clock
        self._telemetry = telemetry
        self._next = float("-inf")
        self.counts: GpuCounts | None = None
        """As they were measured last; None before."""

    def measure_gpus(self, snapshot: Snapshot, session_cache: SessionCache) -> None:
        """Measure, when the last time is long enough ago.

        Args:
            snapshot: of the session.
            session_cache: of its policy, which know the levels.
        """
        now = self._clock.monotonic()
        if now < self._next:
            return
        self._next = now + limits.FRAGMENTATION_PERIOD_S
        levels = session_cache.topology_levels(
            snapshot.nodes, snapshot.topologies, snapshot.devices.slices
        )
        self._telemetry.replace_fragmentation(
            fragmentation_by_level(snapshot.nodes, snapshot.gangs, levels)
        )
        counts = count_gpus(snapshot, session_cache.gpu_types.of_nodes(snapshot.nodes))
        self.counts = counts
        self._telemetry.replace_gpus(
            total=counts.total, idle=counts.idle, stranded=counts.stranded, held=counts.held
        )
