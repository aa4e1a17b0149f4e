"""Samples of queues: as many as are kept, one a period, in order of time."""

from __future__ import annotations

from gpusched.view.model import QueueGpus, QueueView, ViewName
from gpusched.view.over_time.queue_series import QUEUES_KEPT, QueueSeries


def queues(**held):
    return {
        name: QueueView(metadata=ViewName(name=name), gpus=QueueGpus(allocated=str(gpus)))
        for name, gpus in held.items()
    }


def held(series, name):
    return [list(each.allocated) for each in series.series([name])]


def test_the_oldest_sample_goes_for_the_newest():
    """Given room for three samples and a queue that was deleted: it goes with its last sample."""
    series = QueueSeries(period_s=60, kept=3)
    series.take(0, queues(a=0, b=7))
    for minute in (1, 2):
        series.take(60 * minute, queues(a=minute))
    assert (held(series, "a"), held(series, "b")) == ([[0, 1, 2]], [[7, None, None]])
    series.take(180, queues(a=3))
    assert (series.names(), held(series, "a")) == (["a"], [[1, 2, 3]])
    assert series.times()[0] == "1970-01-01T00:01:00Z"


def test_a_clock_that_is_put_back_begins_anew():
    """Given samples of a later time than now: they would stand in the future, so they go."""
    series = QueueSeries()
    series.take(990, {})  # before anything was told there is nothing to note
    series.take(1000, queues(a=1))
    series.take(1059, queues(a=2))
    series.take(500, queues(a=3))
    assert (held(series, "a"), series.times()) == ([[3]], ["1970-01-01T00:08:20Z"])


def test_queues_beyond_the_bound_have_no_past():
    """Given more queues than are kept: the first by name are."""
    series = QueueSeries()
    series.take(0, queues(**{f"q{number:04d}": 1 for number in range(QUEUES_KEPT + 5)}))
    assert (len(series.names()), held(series, f"q{QUEUES_KEPT:04d}")) == (QUEUES_KEPT, [])
