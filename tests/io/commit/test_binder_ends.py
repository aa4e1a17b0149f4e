"""How a binder ends: draining at SIGTERM, taking gangs back, and telling the server's time."""

from __future__ import annotations

import asyncio

import pytest

from gpusched.api.meta.identity import UID, ObjectKey
from gpusched.base import limits
from gpusched.commit.model import CommitPhase
from gpusched.session.state.plan import Undo

NAMES = ("a", "b", "c")


def test_drain_waits_for_what_is_under_way(play, gang, says):
    """SIGTERM in mid-gang: the gang is completed, later ones are refused."""

    async def scenario(given):
        given.cluster.add(*NAMES, "z")
        given.cluster.latency_s = 2.0
        given.binder.submit(gang(NAMES, "Job"))
        ended = asyncio.create_task(given.binder.drain(limits.SHUTDOWN_S))
        await asyncio.sleep(0)
        given.binder.submit(gang(["z"], "Pod", name="z"))
        assert await ended
        assert given.settled[0].phase is CommitPhase.BOUND
        assert given.ledger.forgotten == ["u-z"]
        assert given.clock.monotonic() < 3

    play(scenario)


def test_drain_ends_in_time(play, gang, says):
    """A server that does not answer delays the end by no more than was given."""

    async def scenario(given):
        given.cluster.add(*NAMES)
        given.cluster.script("POST", "/a/binding", *[says(500, after_s=4)] * 3)
        given.binder.submit(gang(NAMES, "Job"))
        assert not await given.binder.drain(limits.SHUTDOWN_S)
        assert given.clock.monotonic() == pytest.approx(limits.SHUTDOWN_S, abs=0.5)

    play(scenario)


def test_undo_evicts_by_uid_and_persists_against_a_budget(play):
    """Gone or made again is done; a refusing budget is tried again, politely."""

    async def scenario(given):
        given.cluster.add("a", "b", "c")
        given.cluster.pods["c"]["metadata"]["uid"] = "u-new"
        given.cluster.budget("b", 3)
        pods = tuple((ObjectKey("ns", n), UID(f"u-{n}")) for n in ("a", "b", "c", "gone"))
        undo = Undo(gang=("PodGroup", "ns", "g"), pods=pods, message="too late")
        given.binder.undo_partial(undo)
        given.binder.undo_partial(undo)
        await given.until(lambda: given.binder.evictor.blocked)
        assert "budget" in given.binder.evictor.blocked["u-b"]
        await given.until(lambda: "b" not in given.cluster.pods)
        assert set(given.cluster.pods) == {"c"}
        assert len(given.cluster.calls("POST", "/b/eviction")) == 4
        assert len(given.cluster.calls("POST", "/a/eviction")) == 1
        assert not given.binder.evictor.is_evicting(UID("u-b"))
        assert given.rate_limiter.rate == limits.API_RATE_MAX

    play(scenario)


@pytest.mark.parametrize("fence", ["", "me/3"])
def test_what_an_older_leadership_bound_in_part_is_not_undone(play, gang, fence):
    """Another leader may have completed the gang meanwhile: only the API can tell."""

    async def scenario(given):
        given.cluster.add("a")
        given.binder.submit(gang(["a", "b"], "Job"))
        await given.rest()
        given.lease.fence = fence
        await given.rest(2)
        assert given.settled[1].phase is CommitPhase.RELEASED
        await asyncio.sleep(100)
        assert given.cluster.calls("POST", "/eviction") == []
        assert not given.binder.has_open_commit(gang(["a"], "Job").gang)

    play(scenario)


def test_an_eviction_of_an_older_leadership_is_dropped(play, gang):
    """It waited for a budget while the leadership changed."""

    async def scenario(given):
        given.cluster.add("a")
        given.cluster.budget("a", 5)
        given.binder.submit(gang(["a", "b"], "Job"))
        await given.until(lambda: given.binder.evictor.blocked)
        given.lease.fence = "me/3"
        await given.rest(2)
        assert given.settled[1].phase is CommitPhase.RELEASED
        assert given.cluster.bound() == {"a"}
        assert not given.binder.evictor.is_evicting(UID("u-a"))

    play(scenario)


def test_the_servers_clock_is_known(play, gang):
    """Deadlines count by the server's clock, whatever ours says."""

    async def scenario(given):
        given.cluster.add(*NAMES)
        given.cluster.group()
        given.cluster.date = "Thu, 01 Jan 2026 01:00:00 GMT"
        given.binder.submit(gang(NAMES))
        await given.rest()
        assert given.binder.server_now() == pytest.approx(given.clock.now() + 3600, abs=2)

    play(scenario)
