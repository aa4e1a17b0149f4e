"""Metrics of free GPUs and of fragmentation are set now and then."""

from __future__ import annotations

from gpusched.base import limits
from gpusched.io.cycle.gpu_gauges import GpuGauges
from gpusched.io.observe.telemetry import Telemetry
from gpusched.session.state.session_cache import SessionCache
from gpusched.testing.entities import NOW
from gpusched.testing.given import Given


class _Clock:
    """Stands still until it is moved."""

    seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds


def test_it_is_measured_again_only_after_a_while_and_lost_levels_go():
    """A rack level shows, then its nodes lose the label: the row goes with the next look."""
    given = Given().nodes(3, gpus=8, rack="a").gang("g", pods=2, gpus=8)
    clock, telemetry, masks = _Clock(), Telemetry(), SessionCache()
    gauge = GpuGauges(clock, telemetry)
    gauge.measure_gpus(given.cache.take_snapshot(NOW), masks)
    rack = b'gpusched_fragmentation_ratio{level="rack"} 0.3333'
    assert rack in telemetry.render()
    for number in range(3):
        given.node(f"node-{number}", gpus=8)
    gauge.measure_gpus(given.cache.take_snapshot(NOW), masks)
    assert rack in telemetry.render()
    clock.seconds = limits.FRAGMENTATION_PERIOD_S
    gauge.measure_gpus(given.cache.take_snapshot(NOW), masks)
    text = telemetry.render()
    assert b'level="rack"' not in text
    assert b'gpusched_fragmentation_ratio{level="host"} 0.0' in text
    telemetry.shutdown()
