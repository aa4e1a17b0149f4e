"""What is counted about later moments: loads beside which quotas allow one more, and the last ends on some rows."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gpusched.api.meta.identity import GangKey
from gpusched.api.meta.resources import NOTHING
from gpusched.session.backfill.running.quota_over_time import FittingLoad, QueueLoad
from gpusched.session.backfill.running.release_order import Release, ReleaseOrder

KINDS = [(("a", "root"), NOTHING), (("b", "root"), NOTHING)]


@given(
    st.lists(st.lists(st.sampled_from(KINDS), max_size=60), max_size=12),
    st.dictionaries(st.sampled_from([path for path, _ in KINDS]), st.integers(0, 80)),
)
def test_a_load_that_is_covered_is_one_that_quotas_allow(loads, limits):
    """Whatever was asked before, and however the limits of the queues are."""

    def allows(load):
        counted = {path: count for (path, _), count in load.counts.items()}
        return all(counted.get(path, 0) <= limit for path, limit in limits.items())

    fitting = FittingLoad()
    for gangs in loads:
        load = QueueLoad(gangs)
        if fitting.covers(load, allows):
            assert allows(load)


def test_where_no_limit_is_near_quotas_are_asked_seldom():
    """A line of a thousand equal gangs, each beside all before it."""
    asked, fitting = [], FittingLoad()

    def allows(load):
        asked.append(load)
        return True

    assert all(fitting.covers(QueueLoad(KINDS[:1] * count), allows) for count in range(1, 1001))
    assert len(asked) < 10


def gang(number):
    return GangKey("Job", "default", f"g{number:03d}")


@given(
    st.lists(
        st.tuples(st.integers(1, 9), st.lists(st.integers(0, 19), min_size=1, max_size=5)),
        min_size=1, max_size=200,
    ),
    st.sets(st.integers(0, 19)),
    st.integers(0, 10),
)  # fmt: skip
def test_the_last_ends_on_rows_are_those_of_all_of_them_in_order(ends, rows, until):
    """However far back they are; of those of one time the first by name."""
    releases = [
        Release(
            time, np.array(on, dtype=np.int64), np.ones((len(on), 1), dtype=np.int64), gang(number)
        )
        for number, (time, on) in enumerate(ends)
    ]
    order = ReleaseOrder(releases)
    order.arrays(1)
    mask = np.isin(np.arange(20), sorted(rows))
    expected = sorted(
        (-time, gang(number))
        for number, (time, on) in enumerate(ends)
        if time <= until and rows & set(on)
    )
    found = order.last_on_rows(mask, until, 4)
    assert found == [(-time, name) for time, name in expected[:4]]
