"""A Lease served over HTTP, and electors running against it."""

from __future__ import annotations

import asyncio
import re

import pytest
from aiohttp import web

from gpusched.io.leader.elector import Elector
from gpusched.lab.virtual_time.loop import run_virtual
from gpusched.leader.lease_state import LeaseTiming

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
            spec = {"leaseTransitions": 0}  # one that was held before, so that counts are small
            self.set(metadata={"name": "gpusched", "labels": {"app": "x"}}, spec=spec)

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


def _may(elector, clock, needs_s=5.0):
    return elector.may_act(clock.monotonic(), clock.boottime(), needs_s)


@pytest.fixture
def may():
    """Whether an elector may begin a write at this moment."""
    return _may
