"""Repeated evictions and chains of them: who left for whom, how often, and whether it goes round."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given as forall
from hypothesis import strategies as st

from gpusched.api.gang.eviction_record import (
    NO_EVICTIONS,
    GangEvictions,
    PastEviction,
    evictions_text,
    format_evictions,
    later_evictions,
    parse_evictions,
    with_eviction,
)
from gpusched.api.meta.identity import UID
from gpusched.base.limits import EVICTIONS_RECORDED_MAX
from gpusched.session.state.decided.eviction_chains import EvictionEdge, EvictionGraph

NAMES = "abcd"
EDGES = st.lists(
    st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES), st.integers(1, 20)).filter(
        lambda edge: edge[0] != edge[1]
    ),
    max_size=7,
    unique_by=lambda edge: edge[2],
)
PAST = st.builds(
    PastEviction,
    at=st.integers(1, 10**9).map(float),
    action=st.sampled_from(["preempt", "reclaim", "stop"]),
    reason=st.just("Preempted"),
    claimant=st.text("0123456789abcdef-", max_size=36).map(UID),
    claimant_name=st.text("abc/ -", max_size=80),
    gpu_seconds=st.integers(0, 2**50),
)


def past(at, claimant="b", gpu_seconds=10):
    """An eviction."""
    return PastEviction(
        at=float(at), action="preempt", reason="Preempted", claimant=UID(claimant),
        claimant_name=f"PodGroup x/{claimant}", gpu_seconds=gpu_seconds,
    )  # fmt: skip


def edge(text, at, cost=1):
    """``a>b`` is: a left for b."""
    victim, claimant = text.split(">")
    return EvictionEdge(victim, claimant, float(at), cost)


# -- the record ----------------------------------------------------------------------------------
@forall(st.lists(PAST, max_size=EVICTIONS_RECORDED_MAX))
def test_a_record_is_read_as_it_was_written(evictions):
    record = GangEvictions(tuple(evictions))
    assert parse_evictions(format_evictions(record, seal="s")) == record


@pytest.mark.parametrize(
    "text",
    [
        None, "", "{", "[]", '{"evictions":3}', '{"evictions":[{"time":"yesterday"}]}',
        '{"evictions":[{"time":"2026-01-01T00:00:00Z","gpuSeconds":-1}]}',
        '{"evictions":[{"time":"2026-01-01T00:00:00Z","for":"a\\nb"}]}',
        '{"evictions":[' + ",".join(['{"time":"2026-01-01T00:00:00Z"}'] * 9) + "]}",
        '{"evictions":[]' + " " * 20_000 + "}",
    ],
)  # fmt: skip
def test_what_we_never_wrote_is_no_record(text):
    assert parse_evictions(text) == NO_EVICTIONS


@forall(st.lists(st.integers(1, 10**6), max_size=40, unique=True))
def test_a_record_never_grows_beyond_its_bound(times):
    record = NO_EVICTIONS
    for at in sorted(times):
        record = with_eviction(record, past(at), placed_at=float(at))
    assert len(record.past) <= EVICTIONS_RECORDED_MAX
    assert record.past == tuple(past(at) for at in sorted(times))[-EVICTIONS_RECORDED_MAX:]


def test_an_eviction_that_is_tried_again_is_no_second_one():
    """Given members that got their places before the last eviction, then it was never carried out."""
    record = with_eviction(NO_EVICTIONS, past(100, "b"), placed_at=50.0)
    again = with_eviction(record, past(130, "c"), placed_at=50.0)
    assert [each.claimant for each in again.past] == ["c"]
    later = with_eviction(again, past(200, "b"), placed_at=140.0)
    assert [each.claimant for each in later.past] == ["c", "b"]


def test_an_eviction_in_the_second_of_the_start_is_tried_again_as_one():
    """Given members that got their places in the second in which they were evicted, then it counts once."""
    record = with_eviction(NO_EVICTIONS, past(100, "b"), placed_at=100.0)
    for at in (100, 170):
        again = with_eviction(record, past(at, "c"), placed_at=100.0)
        assert [each.claimant for each in again.past] == ["c"]


def test_of_two_records_the_one_that_goes_further_counts():
    short, long = GangEvictions((past(1),)), GangEvictions((past(1), past(2)))
    assert later_evictions(short, long) is long
    assert later_evictions(long, NO_EVICTIONS) is long


def test_evictions_are_told_with_their_number_cost_and_reasons():
    found = (past(0, "b", 1000), past(60, "c", 500))
    assert evictions_text(found, 3600.0) == (
        "evicted 2 times within 1h, which cost 1,500 GPU-seconds of work: by preempt for "
        "PodGroup x/c at 1970-01-01T00:01:00Z, by preempt for PodGroup x/b at 1970-01-01T00:00:00Z"
    )


# -- chains --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("before", "last", "length", "cycle", "cost"),
    [
        ([], "a>b", 1, False, 1),
        (["a>b"], "b>c", 2, False, 2),
        (["a>b"], "b>a", 2, True, 2),
        (["a>b", "b>c"], "c>a", 3, True, 3),
        (["a>b", "b>c"], "c>d", 3, False, 3),
        (["b>c", "a>b"], "c>d", 2, False, 2),  # a left for b after b had left for c
        (["x>b", "a>b"], "b>c", 2, False, 3),
        (["a>b", "b>a", "a>b"], "b>a", 4, True, 4),
        (["a>b"], "c>a", 1, False, 1),
    ],
)
def test_a_chain_has_the_evictions_from_which_one_follows(before, last, length, cycle, cost):
    graph = EvictionGraph(edge(text, at) for at, text in enumerate(before, 1))
    found = graph.chain(edge(last, 9))
    assert (found.length, found.is_cycle, found.gpu_seconds) == (length, cycle, cost)


@forall(EDGES, st.sampled_from(NAMES), st.sampled_from(NAMES))
def test_chains_are_those_that_trying_every_line_finds(edges, victim, claimant):
    """Whatever the order in which evictions are given."""
    known = [EvictionEdge(one, other, float(at), 1) for one, other, at in edges]
    last = EvictionEdge(victim, claimant, 21.0, 1)

    def lines(end):
        found = [[end]]
        for each in known:
            if each.claimant == end.victim and each.at < end.at:
                found += [[*line, end] for line in lines(each)]
        return found

    every = lines(last)
    assert all(a.claimant == b.victim and a.at < b.at for line in every for a, b in pairwise(line))
    chain = EvictionGraph(reversed(known)).chain(last)
    assert chain.length == max(len(line) for line in every)
    assert chain.is_cycle == any(each.victim == claimant for line in every for each in line[:-1])
    assert chain.gpu_seconds == len({each for line in every for each in line})


def test_two_claims_of_one_session_that_end_one_gang_count_once(given):
    """Given a claim on what a gang has beside its minimum and one on the rest, the second one ends it."""
    given.nodes(3, gpus=8).group("lent", min_member=2)
    for number in range(3):
        given.pod(
            f"lent-{number}", group="lent", gpus=8, node=f"node-{number}", phase="Running",
            scheduled=given.now - 100, slots=0b11111111,
        )  # fmt: skip
    for name in ("urgent-a", "urgent-b"):
        given.pod(name, gpus=8, priority=1000)
    plan = given.when.one_session()
    stops = [stop for claim in plan.preemptions for stop in claim.stops]
    assert [stop.gang.name for stop in stops] == ["lent", "lent"]
    assert sorted(len(stop.evictions) for stop in stops) == [1, 2]
    (count,) = [stop.count for stop in stops if stop.count is not None]
    assert (count.times, count.chain.length) == (1, 1)
    (last,) = count.newest
    assert last.gpu_seconds == sum(each.gpu_seconds for stop in stops for each in stop.evictions)
