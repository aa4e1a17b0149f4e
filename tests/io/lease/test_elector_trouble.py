"""The elector when the server hangs, is gone, or somebody else edits the Lease."""

from __future__ import annotations

import json
import logging

import pytest
from aiohttp import web

from gpusched.io.client.responses import ApiResponse
from gpusched.io.leader.elector import Elector
from gpusched.lab.virtual_time.loop import run_virtual
from gpusched.leader.lease_state import LeaseTiming


@pytest.mark.parametrize("how", ["hung", "gone", "slow-then-lost"])
def test_a_leader_cut_off_steps_down_at_its_deadline(elect, how, may):
    """Ten seconds after the last renewal was sent it is over, whatever the server does."""

    async def scenario(lease, make, clock, server):
        elector, run = await make("a")
        await elector.acquired()
        await clock.sleep(6.5)
        last = lease.writes[-1][0]

        async def hang(request):
            await clock.sleep(1000)

        async def error(request):
            return web.json_response({}, status=503)

        if how == "gone":
            await server.stop()
        lease.fate = hang if how == "hung" else error
        acting = []
        while not run.done():
            if may(elector, clock):
                acting.append(clock.monotonic())
            await clock.sleep(0.1)
        return acting[-1] - last, clock.monotonic() - last, run.result()

    acted, ended, why = elect(scenario)
    assert 4.8 <= acted < 5.0
    assert 10.0 <= ended <= 10.2
    assert why == "the lease was not renewed within 10 s"


def test_a_hiccup_does_not_cost_the_lease(elect, may):
    """Lost answers, conflicts with ourselves and short outages are repaired by reading."""

    async def scenario(lease, make, clock, server):
        elector, run = await make("a")
        await elector.acquired()
        await clock.sleep(3)

        async def done_but_unanswered(request):
            if request.method != "PUT":
                return
            lease.fate = None
            await lease.handler(request)
            await clock.sleep(1000)
            return

        lease.fate = done_but_unanswered
        await clock.sleep(9)
        assert elector.leading
        assert may(elector, clock)

        async def refused(request):
            return web.json_response({}, status=500)

        lease.fate = refused
        await clock.sleep(5)
        assert "could not" in elector.error
        lease.fate = None
        await clock.sleep(3)
        return run.done(), may(elector, clock), elector.fence, elector.error

    assert elect(scenario) == (False, True, "a/1", "")


def test_a_lease_taken_by_force_ends_the_leadership_at_the_next_renewal(elect, may):
    """Somebody edits the holder: conflict, read, over."""

    async def scenario(lease, make, clock, server):
        elector, run = await make("a")
        await elector.acquired()
        await clock.sleep(1)
        lease.set(spec={"holderIdentity": "thief", "leaseTransitions": 9})
        at = clock.monotonic()
        why = await run
        return clock.monotonic() - at, why, may(elector, clock)

    waited, why, acts = elect(scenario)
    assert waited <= 1.1
    assert why == 'the lease is held by "thief"'
    assert not acts


@pytest.mark.parametrize(
    "garbage", [{}, {"holderIdentity": 7}, {"holderIdentity": "x", "leaseTransitions": -1}]
)
def test_a_deleted_or_garbled_lease_is_a_lost_one(elect, garbage, may):
    """A leader whose lease vanished or was overwritten steps down."""

    async def scenario(lease, make, clock, server):
        elector, run = await make("a")
        await elector.acquired()
        if garbage:
            lease.set(spec=garbage)
        else:
            lease.lease = None
        await run
        return may(elector, clock), len(lease.writes)

    assert elect(scenario) == (False, 1)


def test_a_server_absent_at_start_is_said_once(elect, caplog):
    """Retried every two seconds, one log line, taken when it comes."""

    async def scenario(lease, make, clock, server):
        await server.stop()
        elector, _ = await make("a")
        await clock.sleep(60)
        assert "cannot connect" in elector.error
        await server.start()
        await clock.sleep(2.1)
        return elector.leading

    with caplog.at_level(logging.INFO, logger="gpusched"):
        assert elect(scenario)
    assert [r.getMessage() for r in caplog.records].count("lease cannot be used") == 1


def test_a_release_that_fails_does_not_hang(elect):
    """The shutdown goes on after one retry period; the lease then runs out by itself."""

    async def scenario(lease, make, clock, server):
        elector, run = await make("a")
        await elector.acquired()

        async def hang(request):
            await clock.sleep(1000)

        await clock.sleep(1)
        lease.fate = hang
        elector.stop()
        at = clock.monotonic()
        why = await run
        return clock.monotonic() - at, why

    took, why = elect(scenario)
    assert took <= 2.1
    assert why.startswith("not released: ")


def test_a_call_that_ignores_its_timeout_is_cut_off():
    """Even if the client itself hangs, in a login plugin say, the deadline holds."""

    class HangingApi:
        def __init__(self, clock, answers):
            self.clock, self.answers = clock, answers

        async def request(self, method, path, **more):
            if self.answers:
                return ApiResponse(200, {}, json.dumps(self.answers.pop(0)).encode())
            await self.clock.sleep(10_000)
            raise AssertionError

    async def main(clock):
        lease = {"metadata": {"name": "gpusched", "resourceVersion": "1"}, "spec": {}}
        elector = Elector(
            HangingApi(clock, [lease, lease]),
            identity="a",
            namespace="gpusched-system",
            name="gpusched",
            timing=LeaseTiming(),
            clock=clock,
        )
        why = await elector.run()
        return clock.monotonic(), why

    at, why = run_virtual(main)
    assert at == pytest.approx(10.0)
    assert why == "the lease was not renewed within 10 s"
