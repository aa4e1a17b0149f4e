"""Gangs on whose object no turn can be written are told so where maxRuntime stops them."""

from __future__ import annotations

import pytest

from gpusched.testing.given import Given
from tests.session.running import runs

MINUTE_NS = 60 * 10**9
STOPPED = "ran for 590 s; queue short lets jobs run for 300 s"
NOT_COUNTED = (
    "; it keeps its place by age and all its turns are equal, as turns are counted for PodGroups of "
    "gpusched and for Jobs alone"
)


@pytest.mark.parametrize(("source", "words"), [("", ""), ("volcano", NOT_COUNTED)])
def test_the_stop_says_whether_its_turn_counts(source, words):
    """A PodGroup of ours has a record of its turn; one of another project has no place for it."""
    c = Given().node("n0", gpus=2).queue("short", max_runtime_ns=5 * MINUTE_NS)
    runs(c, "a", "n0 n0", queue="short", since=c.now - 590, group={"source": source})
    plan = c.when.one_session()
    (stop,) = plan.stops
    assert {each.message for each in stop.evictions} == {f"{STOPPED}{words}"}
    assert (stop.turn is None) == bool(source)
