"""Grants of a queue in several shards: whatever each does, and in whatever order, together they stay within."""

from __future__ import annotations

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusched.shards.board import GrantRow
from gpusched.shards.grants import divide_by_demand, divide_evenly, grant_goals, settle_grants

GPU = "nvidia.com/gpu"


def row(granted=0, used=0, *, following=None, wanted=None, since=0.0):
    following = used if following is None else following
    wanted = following if wanted is None else wanted
    return GrantRow(
        granted={GPU: granted}, used={GPU: used}, next={GPU: following}, wanted={GPU: wanted},
        since=since,
    )  # fmt: skip


def settle(capability, rows, *mine, may_raise=(GPU,)):
    new = settle_grants({GPU: capability}, rows, mine, may_raise=may_raise)
    return {shard: amounts[GPU] for shard, amounts in new.items()}


def test_what_is_free_is_granted_to_who_wants_it():
    assert settle(16, {"a": row(following=8, since=1.0), "b": row()}, "a") == {"a": 8}


def test_nothing_is_raised_before_every_shard_was_counted():
    rows = {"a": row(following=8, since=1.0), "b": row()}
    assert settle(16, rows, "a", may_raise=()) == {"a": 0}


def test_what_is_not_needed_is_given_back_when_another_shard_lacks_it():
    rows = {"a": row(granted=16, used=8), "b": row(following=8, since=1.0)}
    assert settle(16, rows, "a") == {"a": 8}
    assert settle(16, {**rows, "a": row(granted=8, used=8)}, "b") == {"b": 8}


def test_what_is_not_needed_is_kept_while_nobody_lacks_it():
    assert settle(16, {"a": row(granted=16, used=8), "b": row()}, "a") == {"a": 16}


def test_what_is_used_is_never_given_back():
    rows = {"a": row(granted=16, used=16), "b": row(following=8, since=1.0)}
    assert settle(16, rows, "a") == {"a": 16}
    assert settle(16, rows, "b") == {"b": 0}


def test_the_gang_that_waits_longest_gets_all_it_needs_before_others_get_a_part():
    rows = {"a": row(following=8, since=2.0), "b": row(following=8, since=1.0)}
    goals = grant_goals({GPU: 8}, rows)
    assert {shard: goal[GPU] for shard, goal in goals.items()} == {"a": 0, "b": 8}


def test_a_capability_that_was_lowered_takes_back_what_is_not_used():
    rows = {"a": row(granted=16, used=4), "b": row(granted=16, used=2)}
    assert settle(8, rows, "a") == {"a": 4}
    assert settle(8, rows, "b") == {"b": 2}


@given(
    st.integers(0, 1000), st.dictionaries(st.sampled_from("abcd"), st.integers(0, 500), min_size=1)
)
def test_even_parts_give_nobody_more_than_is_wanted_and_leave_nothing_over(amount, wanted):
    parts = divide_evenly(amount, wanted)
    assert all(0 <= parts[name] <= wanted[name] for name in wanted)
    assert sum(parts.values()) == min(amount, sum(wanted.values()))


@given(
    st.integers(0, 100_000),
    st.dictionaries(st.sampled_from("abcd"), st.integers(0, 50_000)),
    st.dictionaries(st.sampled_from("abcd"), st.integers(0, 50_000), min_size=1),
    st.sampled_from([1, 1000]),
)
def test_parts_by_demand_sum_up_to_the_amount(amount, demand, room, unit):
    parts = divide_by_demand(amount, demand, room, unit=unit)
    assert sum(parts.values()) == amount
    assert all(part >= 0 for part in parts.values())


SHARDS = ("a", "b", "c")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["sync", "start", "end", "want", "cap"]),
        st.sampled_from(SHARDS),
        st.integers(0, 12),
    ),
    max_size=60,
)


@settings(max_examples=300)
@given(STEPS, st.integers(0, 40))
def test_no_order_of_steps_lets_a_queue_hold_more_than_its_capability(steps, capability):
    """Each shard starts only within its grant, and changes its grant by a board that may be behind what others use."""
    rows = {shard: row() for shard in SHARDS}
    used = dict.fromkeys(SHARDS, 0)
    peak = capability
    for step, shard, amount in steps:
        own = rows[shard]
        if step == "sync":
            own = msgspec.structs.replace(own, used={GPU: used[shard]})
            before = sum(each.granted.get(GPU, 0) for each in rows.values())
            granted = settle(capability, {**rows, shard: own}, shard)[shard]
            rows[shard] = msgspec.structs.replace(own, granted={GPU: granted})
            after = sum(each.granted.get(GPU, 0) for each in rows.values())
            assert after <= max(before, capability)
        elif step == "start":
            over = sum(each.granted.get(GPU, 0) for each in rows.values()) > capability
            if not over and used[shard] + amount <= own.granted.get(GPU, 0):
                used[shard] += amount
                assert sum(used.values()) <= capability
        elif step == "end":
            used[shard] = max(0, used[shard] - amount)
        elif step == "want":
            rows[shard] = msgspec.structs.replace(
                own, next={GPU: used[shard] + amount}, wanted={GPU: used[shard] + 2 * amount},
                since=1.0 + amount,
            )  # fmt: skip
        else:
            capability = amount * 3
            peak = max(peak, capability)
        assert sum(used.values()) <= peak


def test_every_shard_that_can_start_comes_to_what_it_should_have():
    """Given two shards that each need all of it, when they settle in turns, then the older one has it, and only it."""
    rows = {
        "a": row(granted=4, following=8, since=2.0),
        "b": row(granted=4, following=8, since=1.0),
    }
    for shard in ("b", "a", "b", "a", "b"):
        rows[shard] = msgspec.structs.replace(
            rows[shard], granted={GPU: settle(8, rows, shard)[shard]}
        )
    assert {shard: each.granted[GPU] for shard, each in rows.items()} == {"a": 0, "b": 8}
