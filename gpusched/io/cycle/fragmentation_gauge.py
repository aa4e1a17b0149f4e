"""The metric of fragmentation: looked at now and then, never in every session."""

from __future__ import annotations

from gpusched.base import limits
from gpusched.base.clock import Clock
from gpusched.cache.snapshot import Snapshot
from gpusched.io.observe.telemetry import Telemetry
from gpusched.session.state.session_cache import SessionCache
from gpusched.session.status.fragmentation import fragmentation_by_level


class FragmentationGauge:
    """Sets ``fragmentation_ratio`` from what a session was given.

    Args:
        clock: says whether it is time again.
        telemetry: is told.
    """

    def __init__(self, clock: Clock, telemetry: Telemetry) -> None:
        self._clock = clock
        self._telemetry = telemetry
        self._next = float("-inf")

    def look(self, snapshot: Snapshot, session_cache: SessionCache) -> None:
        """Measure, when the last time is long enough ago.

        Args:
            snapshot: of the session.
            session_cache: of its policy, which know the levels.
        """
        now = self._clock.monotonic()
        if now < self._next:
            return
        self._next = now + limits.FRAGMENTATION_PERIOD_S
        levels = session_cache.levels(snapshot.nodes, snapshot.topologies, snapshot.devices.slices)
        self._telemetry.replace_fragmentation(
            fragmentation_by_level(snapshot.nodes, snapshot.gangs, levels)
        )
