"""The elector against a Lease served over HTTP, in virtual time."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest

from gpusched.base.errors import ConfigError
from gpusched.leader.lease_state import LeaseTiming


def test_a_free_lease_is_taken_at_once_and_kept(elect, may):
    """Taken without waiting, renewed every two seconds, labels of the manifest untouched."""

    async def scenario(lease, make, clock, server):
        elector, _ = await make("a")
        fence = await elector.acquired()
        assert clock.monotonic() < 0.1
        assert fence == "a/1"
        await clock.sleep(61)
        assert may(elector, clock)
        assert lease.lease["metadata"]["labels"] == {"app": "x"}
        assert lease.lease["spec"]["leaseDurationSeconds"] == 15
        return [round(at) for at, _, _ in lease.writes], {n for _, _, n in lease.writes}

    times, transitions = elect(scenario)
    assert times == list(range(0, 61, 2))
    assert transitions == {1}


def test_the_count_goes_on_where_a_lease_is_made_again(elect):
    """A server that knows the old Lease for ever must not take every new fence for a stale one."""

    async def scenario(lease, make, clock, server):
        lease.set(spec={})
        first, _ = await make("a")
        before = await first.acquired()
        await clock.sleep(100)
        lease.set(spec={})  # deleted and applied again
        await clock.sleep(100)
        second, _ = await make("b")
        return before, await second.acquired(), clock.now()

    before, after, now = elect(scenario)
    counts = [int(fence.partition("/")[2]) for fence in (before, after)]
    assert counts[0] < counts[1]
    assert abs(counts[1] - now / 2) < 60


@pytest.mark.parametrize("count", [-1, 2**31 - 1, "many", True])
def test_a_count_that_cannot_be_counted_on_from_begins_anew(elect, count):
    """The server stores no more than 32 bits."""

    async def scenario(lease, make, clock, server):
        lease.set(spec={"leaseTransitions": count})
        first, _ = await make("a")
        return await first.acquired(), clock.now()

    fence, now = elect(scenario)
    assert abs(int(fence.partition("/")[2]) - now / 2) < 60


@pytest.mark.parametrize("count", [{}, {"leaseTransitions": 2**31 - 1}])
def test_a_dead_holder_without_a_count_is_succeeded_after_a_whole_lease(elect, count):
    """Where its count would begin goes on with the clock: that is no sign of life."""

    async def scenario(lease, make, clock, server):
        lease.set(spec={"holderIdentity": "dead", "leaseDurationSeconds": 15, **count})
        standby, _ = await make("b")
        await asyncio.wait_for(standby.acquired(), 60)
        return clock.monotonic()

    assert 15 <= elect(scenario) < 18


def test_a_second_process_stands_by_and_takes_over_after_a_release(elect, caplog, may):
    """While the first renews the second waits; a clean release is taken within a retry."""

    async def scenario(lease, make, clock, server):
        first, first_run = await make("a")
        await first.acquired()
        second, _ = await make("b")
        await clock.sleep(120)
        assert not second.leading
        assert second.holder == "a"
        assert second.fence == ""
        first.stop()
        assert await first_run == "released"
        assert not may(first, clock)
        assert lease.lease["spec"]["holderIdentity"] == ""
        at = clock.monotonic()
        fence = await second.acquired()
        return fence, clock.monotonic() - at

    with caplog.at_level(logging.INFO, logger="gpusched"):
        fence, waited = elect(scenario)
    assert fence == "b/2"
    assert waited <= 2.1
    assert "standing by" in [r.getMessage() for r in caplog.records]


def test_a_dead_leader_is_succeeded_after_a_whole_lease(elect):
    """Nobody takes over before the record was unchanged for the lease's duration."""

    async def scenario(lease, make, clock, server):
        first, first_run = await make("a")
        await first.acquired()
        await make("b")
        await make("c")
        await clock.sleep(9)
        first_run.cancel()
        last = lease.writes[-1][0]
        while not any(holder in {"b", "c"} for _, holder, _ in lease.writes):
            await clock.sleep(0.1)
        await clock.sleep(10)
        takers = {holder for _, holder, _ in lease.writes} - {"a"}
        taken = next(at for at, holder, _ in lease.writes if holder != "a")
        return taken - last, len(takers), lease.lease["spec"]["leaseTransitions"]

    waited, takers, transitions = elect(scenario)
    assert 15 <= waited <= 17.1
    assert (takers, transitions) == (1, 2)


def test_doubt_is_settled_at_once(elect, may):
    """A fenced write stops all writes in the same moment; a renewal decides within a moment."""

    async def scenario(lease, make, clock, server):
        elector, run = await make("a")
        await elector.acquired()
        await clock.sleep(0.5)
        elector.doubt()
        assert not may(elector, clock)
        await clock.sleep(0.05)
        assert may(elector, clock)
        lease.set(spec={"holderIdentity": "thief", "leaseTransitions": 9})
        elector.doubt()
        await clock.sleep(0.05)
        return run.done()

    assert elect(scenario)


def test_a_missing_lease_is_said_once_and_waited_for(elect, caplog):
    """In a cluster we never make it: the sentence has the command; afterwards it is taken."""

    async def scenario(lease, make, clock, server):
        elector, _ = await make("a")
        await clock.sleep(60)
        assert not elector.leading
        assert lease.writes == []
        lease.lease = {"metadata": {"name": "gpusched"}}
        lease.set(spec={})
        await clock.sleep(3)
        return elector.fence

    with caplog.at_level(logging.INFO, logger="gpusched"):
        assert elect(scenario, lease=False).startswith("a/")
    told = [r for r in caplog.records if r.getMessage() == "lease cannot be used"]
    assert len(told) == 1
    assert told[0].gpusched_facts["why"] == (
        "lease gpusched-system/gpusched does not exist: run kubectl apply -k manifests/"
    )


def test_outside_a_cluster_it_is_made(elect):
    """With create_if_missing one of two processes makes it, the other stands by."""

    async def scenario(lease, make, clock, server):
        electors = [(await make(name, create_if_missing=True))[0] for name in "ab"]
        await clock.sleep(20)
        fences = sorted(e.fence for e in electors)
        return fences, lease.lease["metadata"]["name"], clock.now()

    fences, name, now = elect(scenario, lease=False)
    assert fences[0] == ""
    holder, _, count = fences[1].partition("/")
    assert holder in {"a", "b"}
    assert abs(int(count) - now / 2) < 60
    assert name == "gpusched"


def test_stopping_while_standing_by_writes_nothing(elect):
    """A standby that leaves does not touch the lease."""

    async def scenario(lease, make, clock, server):
        first, _ = await make("a")
        await first.acquired()
        second, run = await make("b")
        await clock.sleep(5)
        second.stop()
        return await run, {holder for _, holder, _ in lease.writes}

    assert elect(scenario) == ("stopped", {"a"})


def test_bad_durations_are_refused_at_construction(elect):
    """No elector exists with durations that could overlap."""

    async def scenario(lease, make, clock, server):
        with pytest.raises(ConfigError, match="leaderElection"):
            await make("a", timing=LeaseTiming(lease_s=5, deadline_s=10))
        return json.dumps(lease.writes)

    assert elect(scenario) == "[]"


KEY = "gpusched.io/seal-key"


def test_the_key_of_the_seal_is_made_once_and_kept(elect):
    """The first leader makes it, renewals and the next leader keep it; others' notes stay."""

    async def scenario(lease, make, clock, server):
        lease.lease["metadata"]["annotations"] = {"own": "kept"}
        first, run = await make("a", new_key=lambda: "a" * 64)
        assert first.seal_key == ""
        await first.acquired()
        assert first.seal_key == "a" * 64
        await clock.sleep(10)
        assert lease.lease["metadata"]["annotations"] == {"own": "kept", KEY: "a" * 64}
        second, _ = await make("b", new_key=lambda: "b" * 64)
        await clock.sleep(3)
        assert second.seal_key == "", "who stands by needs none"
        first.stop()
        await run
        assert first.seal_key == ""
        await second.acquired()
        assert second.seal_key == "a" * 64
        return lease.lease["metadata"]["annotations"]

    assert elect(scenario) == {"own": "kept", KEY: "a" * 64}


@pytest.mark.parametrize("left", [{}, {KEY: "none"}, {KEY: "c" * 64}])
def test_a_key_taken_away_during_a_term_comes_back(elect, left):
    """Somebody edits the Lease: bindings of one term are sealed alike, and the next term knows them."""

    async def scenario(lease, make, clock, server):
        elector, _ = await make("a", new_key=lambda: "a" * 64)
        await elector.acquired()
        await clock.sleep(5)
        lease.set(metadata={**lease.lease["metadata"], "annotations": left})
        await clock.sleep(5)
        assert elector.leading
        assert elector.seal_key == "a" * 64
        return lease.lease["metadata"]["annotations"][KEY]

    assert elect(scenario) == "a" * 64


def test_what_is_no_key_is_replaced(elect):
    """By a new one, at the next acquisition."""

    async def scenario(lease, make, clock, server):
        lease.lease["metadata"]["annotations"] = {KEY: "short"}
        elector, _ = await make("a", new_key=lambda: "a" * 64)
        await elector.acquired()
        return elector.seal_key, lease.lease["metadata"]["annotations"][KEY]

    assert elect(scenario) == ("a" * 64, "a" * 64)
