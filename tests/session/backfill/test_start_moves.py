"""An estimate that moved says why: the cause is found in what both rest on."""

from __future__ import annotations

import pytest

from gpusched.api.meta.identity import GangKey
from gpusched.cache.snapshot import StartEstimate
from gpusched.session.backfill.estimates.start_moves import ClusterChange, explain_move, is_move

T = 1_600_000_000
A, B, C = (GangKey("Job", "ns", name) for name in "abc")
OTHER = GangKey("PodGroup", "secret", "x")


def estimate(after_s, *, ends=(), ahead=(), known_by="Announced"):
    return StartEstimate(
        start=float(T + after_s),
        known_by=known_by,
        ends=tuple((key, T + at) for key, at in ends),
        ahead=ahead,
    )


def change(*, running=(), waiting=(), lost=(), new=(), namespace=""):
    return ClusterChange(
        running=set(running),
        waiting=set(waiting),
        lost_nodes=lost,
        new_nodes=new,
        namespace=namespace,
    )


SOON, LATER = "2020-09-13T12:36:40Z", "2020-09-13T12:46:40Z"
BEFORE = estimate(600, ends=[(A, 600)], ahead=(C,))


@pytest.mark.parametrize(
    ("after", "changed", "why"),
    [
        (
            estimate(1200, ends=[(A, 600)], ahead=(C,)),
            change(running=[A], lost=["gpu-3"]),
            "node gpu-3 cannot be used any more",
        ),
        (
            estimate(1200, ends=[(A, 600)], ahead=(C, B)),
            change(running=[A], waiting=[B, C]),
            "Job ns/b is before it in the order now",
        ),
        (
            estimate(1200, ends=[(A, 1200)], ahead=(C,)),
            change(running=[A]),
            f"Job ns/a, for whose end it waits, is expected to end at {LATER} instead of {SOON}",
        ),
        (
            estimate(1200, ends=[(B, 1200)], ahead=(C,)),
            change(running=[B]),
            "it waits for the end of Job ns/b at 2020-09-13T12:46:40Z now",
        ),
        (
            estimate(1200, ends=[(B, 1200)], ahead=(C,)),
            change(waiting=[B]),
            "Job ns/b, which is before it and waits as well, is expected to end at 2020-09-13T12:46:40Z",
        ),
        (
            estimate(1200, ahead=(C,), known_by="Quota"),
            change(running=[A]),
            "what its queue may use, and others of it hold, has changed",
        ),
        (
            estimate(1200, ends=[(B, 300)], ahead=(C,), known_by="Window"),
            change(running=[A, B]),
            "it waits for the end of a window now, for which a Reservation keeps nodes that it needs",
        ),
        (
            estimate(60, ends=[(B, 60)], ahead=(C,)),
            change(running=[B]),
            "Job ns/a, for whose end it waited, has left before its time",
        ),
        (
            estimate(60, ends=[(A, 60)], ahead=()),
            change(running=[A]),
            "Job ns/c is no more before it in the order: gone",
        ),
        (
            estimate(60, ends=[(A, 60)], ahead=()),
            change(running=[A], waiting=[C]),
            "Job ns/c is behind it in the order now",
        ),
        (
            estimate(60, ends=[(A, 60)], ahead=(C,)),
            change(running=[A], new=["gpu-1", "gpu-2", "gpu-3"]),
            "nodes gpu-1, gpu-2 and 1 more can be used now",
        ),
        (
            estimate(1200, ends=[(A, 600)], ahead=(C, OTHER)),
            change(running=[A], namespace="ns"),
            "a PodGroup of another namespace is before it in the order now",
        ),
    ],
    ids=[
        "a node is gone", "others came before it", "an end moved", "another end counts",
        "it waits for one that waits", "its quota", "a window", "an end came early", "one before it is gone",
        "one before it fell back", "nodes came", "names of others are hidden",
    ],
)  # fmt: skip
def test_the_cause_is_told_with_both_times(after, changed, why):
    text = explain_move(BEFORE, after, changed)
    by = "10m later" if after.start > BEFORE.start else "9m earlier"
    assert text.startswith(f"{by} than told before (2020-09-13T12:36:40Z to ")
    assert text.split("): ", 1)[1] == why


@pytest.mark.parametrize(
    ("now", "moved_s", "counts"),
    [(0, 59, False), (0, 60, True), (-9_400, 600, False), (-9_400, 1_001, True)],
)
def test_a_move_counts_from_a_minute_and_a_tenth_of_the_wait_on(now, moved_s, counts):
    assert is_move(BEFORE, estimate(600 + moved_s), now=float(T + now)) is counts
    assert is_move(BEFORE, estimate(600 - moved_s), now=float(T + now)) is counts
