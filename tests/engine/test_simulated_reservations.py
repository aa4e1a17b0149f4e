"""Reservations in simulations: windows are kept, waited for, and told in the record."""

from __future__ import annotations

import pytest

from gpusched.api.meta.identity import format_time
from gpusched.base.clock import EPOCH
from tests.engine.engine_cases import Obj, cluster, job, of, run


def reservation(name: str, *, at: float, **spec: object) -> Obj:
    """A Reservation whose first window begins at a second of the run."""
    return {
        "apiVersion": "scheduling.gpusched.io/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": name},
        "spec": {"from": format_time(EPOCH + at), **spec},
    }


def test_a_job_waits_for_the_end_of_a_window_hours_away():
    """Given maintenance that evicts no gang, a job of unknown length starts when it is over."""
    kept = reservation(
        "firmware", at=3600, duration="4h", purpose="Maintenance", nodes=1, atStart="Leave"
    )
    record = run([job("long", 10, 7200, 8)], [*cluster(1), kept])
    started = of(record, "long").started
    assert started == pytest.approx(3600 + 4 * 3600, abs=60)
    assert of(record, "long").reasons[0].reason == "Reserved"
    (span,) = record.kept
    assert (span.name, span.nodes) == ("firmware", ("node-0",))
    assert span.since == pytest.approx(3600, abs=60)


def test_windows_that_recur_for_ever_do_not_keep_a_run_from_ending():
    """Given a window each hour, a run is over when its jobs are."""
    kept = reservation("class", at=600, duration="10m", recurring={"every": "1h"}, nodes=1)
    record = run([job("short", 10, 60, 8)], [*cluster(2), kept])
    assert of(record, "short").ended is not None
    assert record.seconds < 7200
