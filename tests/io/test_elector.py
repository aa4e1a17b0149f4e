"""The elector against a Lease served over HTTP, in virtual time."""

from __future__ import annotations

import asyncio
import json
import logging
import re

import pytest
from aiohttp import web

from gpusched.errors import ConfigError
from gpusched.io.answers import Response
from gpusched.io.elector import Elector
from gpusched.leader.lease_state import LeaseTiming
from gpusched.simulate.loop import run_virtual

PATH = "/apis/coordination.k8s.io/v1/namespaces/gpusched-system/leases"
RFC3339_MICRO = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$")


class LeaseServer:
    """One Lease with compare-and-set; ``fate`` may delay, refuse or lose a request."""

    def __init__(self, clock, lease=True):
        self.clock = clock
        self.lease = None
        self.version = 10
        self.writes: list[tuple[float, str, int]] = []
        self.fate = None
        if lease:
            self.set(metadata={"name": "gpusched", "labels": {"app": "x"}}, spec={})

    def set(self, **parts):
        """Overwrite parts of the Lease as somebody else would."""
        self.version += 1
        self.lease = (
            {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"} | (self.lease or {}) | parts
        )
        self.lease["metadata"] = {**self.lease["metadata"], "resourceVersion": str(self.version)}

    async def handler(self, request):
        """Answer GET, PUT and POST as the API server does."""
        if self.fate is not None:
            answer = await self.fate(request)
            if answer is not None:
                return answer
        if request.method == "POST":
            assert request.path == PATH
            if self.lease is not None:
                return web.json_response({"reason": "AlreadyExists"}, status=409)
            self.lease = {"metadata": {}}
        elif self.lease is None:
            return web.json_response({"reason": "NotFound"}, status=404)
        assert request.path == (PATH if request.method == "POST" else f"{PATH}/gpusched")
        if request.method == "GET":
            return web.json_response(self.lease)
        body = await request.json()
        now = self.lease["metadata"].get("resourceVersion")
        if request.method == "PUT" and body["metadata"]["resourceVersion"] != now:
            return web.json_response({"reason": "Conflict"}, status=409)
        spec = body["spec"]
        assert RFC3339_MICRO.match(spec["renewTime"])
        assert RFC3339_MICRO.match(spec["acquireTime"])
        self.set(metadata=body["metadata"], spec=spec)
        holder = spec["holderIdentity"]
        self.writes.append((self.clock.monotonic(), holder, spec["leaseTransitions"]))
        return web.json_response(self.lease, status=201 if request.method == "POST" else 200)


@pytest.fixture
def elect(fake_server):
    """Run ``async def scenario(lease, make, clock, server)``; ``make`` gives a running elector."""

    def run(scenario, *, lease=True):
        async def main(clock):
            server = await fake_server(clock).start()
            register = LeaseServer(clock, lease=lease)
            server.handler = register.handler
            opened, tasks = [], []

            async def make(identity, **more):
                api = await server.api(connections=2)
                opened.append(api)
                elector = Elector(
                    api,
                    identity=identity,
                    namespace="gpusched-system",
                    name="gpusched",
                    timing=more.pop("timing", LeaseTiming()),
                    clock=clock,
                    **more,
                )
                task = asyncio.create_task(elector.run())
                tasks.append(task)
                return elector, task

            try:
                return await scenario(register, make, clock, server)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                for api in opened:
                    await api.close()
                await server.stop()

        return run_virtual(main)

    return run


def may(elector, clock, needs_s=5.0):
    return elector.may_act(clock.monotonic(), clock.boottime(), needs_s)


def test_a_free_lease_is_taken_at_once_and_kept(elect):
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


def test_a_second_process_stands_by_and_takes_over_after_a_release(elect, caplog):
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


@pytest.mark.parametrize("how", ["hung", "gone", "slow-then-lost"])
def test_a_leader_cut_off_steps_down_at_its_deadline(elect, how):
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


def test_a_hiccup_does_not_cost_the_lease(elect):
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
        assert "could not" in elector.trouble
        lease.fate = None
        await clock.sleep(3)
        return run.done(), may(elector, clock), elector.fence, elector.trouble

    assert elect(scenario) == (False, True, "a/1", "")


def test_a_lease_taken_by_force_ends_the_leadership_at_the_next_renewal(elect):
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


def test_doubt_is_settled_at_once(elect):
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


@pytest.mark.parametrize(
    "garbage", [{}, {"holderIdentity": 7}, {"holderIdentity": "x", "leaseTransitions": -1}]
)
def test_a_deleted_or_garbled_lease_is_a_lost_one(elect, garbage):
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
        assert elect(scenario, lease=False) == "a/1"
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
        return sorted(e.fence for e in electors), lease.lease["metadata"]["name"]

    fences, name = elect(scenario, lease=False)
    assert fences[0] == ""
    assert fences[1] in {"a/1", "b/1"}
    assert name == "gpusched"


def test_a_server_absent_at_start_is_said_once(elect, caplog):
    """Retried every two seconds, one log line, taken when it comes."""

    async def scenario(lease, make, clock, server):
        await server.stop()
        elector, _ = await make("a")
        await clock.sleep(60)
        assert "cannot connect" in elector.trouble
        await server.start()
        await clock.sleep(2.1)
        return elector.leading

    with caplog.at_level(logging.INFO, logger="gpusched"):
        assert elect(scenario)
    assert [r.getMessage() for r in caplog.records].count("lease cannot be used") == 1


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


def test_bad_durations_are_refused_at_construction(elect):
    """No elector exists with durations that could overlap."""

    async def scenario(lease, make, clock, server):
        with pytest.raises(ConfigError, match="leaderElection"):
            await make("a", timing=LeaseTiming(lease_s=5, deadline_s=10))
        return json.dumps(lease.writes)

    assert elect(scenario) == "[]"


def test_a_call_that_ignores_its_timeout_is_cut_off():
    """Even if the client itself hangs, in a login plugin say, the deadline holds."""

    class HangingApi:
        def __init__(self, clock, answers):
            self.clock, self.answers = clock, answers

        async def request(self, method, path, **more):
            if self.answers:
                return Response(200, {}, json.dumps(self.answers.pop(0)).encode())
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
