"""What stands before the verbs: faults strike here, whichever way a request came."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Final

import attrs

from gpusched.base.clock import Clock
from gpusched.devcluster.apimachinery import status
from gpusched.devcluster.apimachinery.limits import HISTORY_PER_KIND_MAX, LAGGING_CHUNKS_MAX
from gpusched.devcluster.apimachinery.status import qualified
from gpusched.devcluster.apiserver.endpoints.dispatch import ResourceEndpoints
from gpusched.devcluster.apiserver.endpoints.messages import ApiAnswer, ApiRequest
from gpusched.devcluster.apiserver.endpoints.routes import authorization_verb, parse_route
from gpusched.devcluster.apiserver.reading.representations import encode
from gpusched.devcluster.apiserver.server_state import ServerState
from gpusched.devcluster.control.active_faults import ActiveFaults
from gpusched.devcluster.control.fault_rules import CODES, FaultEffect, RequestFacts
from gpusched.devcluster.storage.store import Change, event_line

_VERSIONS_EVERY_S: Final = 0.01


class LostConnection(ConnectionResetError):
    """A fault rule took the connection away: the client gets no answer, or no more of it."""


class VersionTimes:
    """Which version was the newest at a past moment, as far as a lag looks back."""

    def __init__(self, core: ServerState) -> None:
        self._core = core
        self._seen: deque[tuple[float, int]] = deque(maxlen=HISTORY_PER_KIND_MAX)
        core.store.observers.append(self._see)
        self._note(core.store.version)

    def _see(self, _collection: str, change: Change) -> None:
        self._note(change.version)

    def _note(self, version: int) -> None:
        moment = self._core.clock.monotonic()
        if self._seen and moment - self._seen[-1][0] < _VERSIONS_EVERY_S:
            self._seen[-1] = (self._seen[-1][0], version)
        else:
            self._seen.append((moment, version))

    def at(self, moment: float) -> int:
        """Return the newest version written before a moment; the oldest known, if it is older."""
        found = self._seen[0][1]
        for when, version in self._seen:
            if when > moment:
                break
            found = version
        return min(found, self._core.store.version)

    def restart(self) -> None:
        """Forget the past, in which versions may have been higher."""
        self._seen.clear()
        self._note(self._core.store.version)


class HandlerChain:
    """Endpoints behind faults.

    Args:
        core: the cluster.
        endpoints: serve what gets through.
        faults: the rules in force.
    """

    def __init__(
        self, core: ServerState, endpoints: ResourceEndpoints, faults: ActiveFaults
    ) -> None:
        self._core = core
        self._endpoints = endpoints
        self.faults = faults
        self._start = core.clock.monotonic()
        self.times = VersionTimes(core)

    @property
    def elapsed_s(self) -> float:
        """Seconds of the cluster's clock since its start: the time of rules."""
        return self._core.clock.monotonic() - self._start

    async def serve(self, request: ApiRequest) -> ApiAnswer:
        """Answer a request, or do to it what a rule says.

        Raises:
            StatusError: every failure that a client caused, and made ones.
            LostConnection: no answer may be sent.
        """
        if not len(self.faults):
            return self._endpoints.serve(request)
        outcome = self.faults.meet(request_facts(request), self.elapsed_s)
        if outcome.delay_s:
            await self._core.clock.sleep(outcome.delay_s)
        fault = outcome.fault
        if fault is None:
            return self._endpoints.serve(request)
        if fault.type == "status":
            raise injected_status(fault)
        if fault.type == "lost" and not fault.applied:
            raise LostConnection(f"{outcome.rule}: before the request took effect")
        if fault.type == "expired":
            return await self._expired(request)
        if fault.type == "lag":
            request = attrs.evolve(request, as_of=self.version_behind(fault))
        answer = self._endpoints.serve(request)
        if fault.type == "lost":
            await _drop(answer)
            raise LostConnection(f"{outcome.rule}: the answer is lost")
        if fault.type == "truncate":
            return attrs.evolve(answer, cut=min(fault.bytes, len(answer.body)))
        if answer.stream is None:
            return answer
        return attrs.evolve(answer, stream=self._harmed(answer.stream, fault))

    def version_behind(self, fault: FaultEffect) -> int:
        """Return the version that a lagging read shows."""
        if fault.versions:
            return max(1, self._core.store.version - fault.versions)
        return self.times.at(self._core.clock.monotonic() - fault.seconds[0])

    async def _expired(self, request: ApiRequest) -> ApiAnswer:
        answer = self._endpoints.serve(request)
        asked = request.query.get("resourceVersion") or "0"
        error = status.expired(f"too old resource version: {asked} ({self._core.store.version})")
        if request_facts(request).verb != "watch":
            raise error
        await _drop(answer)
        return ApiAnswer(stream=_once(event_line("ERROR", encode(error.body))))

    def _harmed(self, stream: AsyncIterator[bytes], fault: FaultEffect) -> AsyncIterator[bytes]:
        if fault.type == "lag":
            if fault.versions:
                return _held_back(stream, fault.versions)
            return _delayed(stream, fault.seconds[0], self._core.clock)
        return _ending(stream, fault)


def request_facts(request: ApiRequest) -> RequestFacts:
    """Return what rules can ask about a request."""
    route = parse_route(request.path)
    user, agent = request.user.name, request.agent
    if route is None:
        verb = {"GET": "get", "HEAD": "get"}.get(request.method, request.method.lower())
        return RequestFacts(verb=verb, path=request.path, user=user, agent=agent)
    watch = request.query.get("watch", "0").lower() in {"1", "true"}
    resource = qualified(route.plural, route.group)
    return RequestFacts(
        verb=authorization_verb(request.method, route, watch=watch),
        path=request.path,
        resource=f"{resource}/{route.subresource}" if route.subresource else resource,
        namespace=route.namespace,
        name=route.name,
        user=user,
        agent=agent,
    )


def injected_status(fault: FaultEffect) -> status.StatusError:
    """Build the Status that a rule answers with."""
    details = {"retryAfterSeconds": fault.retry_after_s} if fault.retry_after_s else None
    return status.failure(fault.code, CODES[fault.code], fault.message, details=details)


async def _drop(answer: ApiAnswer) -> None:
    if isinstance(answer.stream, AsyncGenerator):
        await answer.stream.aclose()


async def _once(chunk: bytes) -> AsyncIterator[bytes]:
    yield chunk


async def _ending(stream: AsyncIterator[bytes], fault: FaultEffect) -> AsyncIterator[bytes]:
    """Pass a number of events on, then break off, end, or fall silent."""
    left = fault.after_events
    while left > 0:
        chunk = await anext(stream, b"")
        if not chunk:
            return
        lines = chunk.splitlines(keepends=True)
        yield b"".join(lines[:left])
        left -= len(lines)
    if fault.type == "stall":
        await asyncio.get_running_loop().create_future()
    if not fault.clean:
        raise LostConnection("a watch is dropped")


async def _held_back(stream: AsyncIterator[bytes], count: int) -> AsyncIterator[bytes]:
    """Hold the newest events back."""
    held: deque[bytes] = deque()
    async for chunk in stream:
        held.extend(chunk.splitlines(keepends=True))
        ready = [held.popleft() for _ in range(len(held) - count)]
        if ready:
            yield b"".join(ready)


async def _delayed(
    stream: AsyncIterator[bytes], seconds: float, clock: Clock
) -> AsyncIterator[bytes]:
    """Pass each chunk on ``seconds`` after it came."""
    queue: asyncio.Queue[tuple[float, bytes] | None] = asyncio.Queue(LAGGING_CHUNKS_MAX)

    async def read() -> None:
        async for chunk in stream:
            await queue.put((clock.monotonic() + seconds, chunk))
        await queue.put(None)

    reader = asyncio.create_task(read(), name="lagging watch")
    try:
        while (item := await queue.get()) is not None:
            due, chunk = item
            if (wait := due - clock.monotonic()) > 0:
                await clock.sleep(wait)
            yield chunk
    finally:
        reader.cancel()
