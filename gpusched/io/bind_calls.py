"""The calls of a commit, and what each answer means to the commit machine.

Every call ends in an event, whatever the server does; nothing is decided here.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Final
from urllib.parse import quote

from gpusched import API_VERSION, errors, limits
from gpusched.clock import Clock
from gpusched.commit.facts import group_facts, pod_facts
from gpusched.commit.model import (
    CommitState,
    Created,
    Doubted,
    Found,
    GroupRead,
    GroupUnread,
    NotDone,
    Refused,
    Unread,
)
from gpusched.io.answers import Response, api_error
from gpusched.io.api import Api
from gpusched.io.pace import Pace, Traffic
from gpusched.io.telemetry import Telemetry
from gpusched.objects import encode
from gpusched.objects.meta import GangKey, ObjectKey
from gpusched.objects.seal import UNKNOWN, Seal

CALL_S: Final = limits.BIND_TIMEOUT_CLIENT_S
SERVER_QUERY: Final = {"timeout": f"{limits.BIND_TIMEOUT_SERVER_S:g}s"}

_PLAIN: Final = re.compile(r"[a-z0-9.-]+").fullmatch

GroupPath = Callable[[GangKey], str]
Answer = Created | Doubted | NotDone | Refused


def pod_path(key: ObjectKey) -> str:
    """Where the API has a pod; quoted only if it must be, as names hardly ever must."""
    namespace, name = key
    if not (_PLAIN(namespace) and _PLAIN(name)):
        namespace, name = quote(namespace, safe=""), quote(name, safe="")
    return f"/api/v1/namespaces/{namespace}/pods/{name}"


def own_group_path(gang: GangKey) -> str:
    """Where the API has a PodGroup of our own kind."""
    return f"/apis/{API_VERSION}/namespaces/{quote(gang.namespace)}/podgroups/{quote(gang.name)}"


class BindCalls:
    """See the module.

    Args:
        api: shared with everything but the lease.
        pace: gives turns to reads; bindings have had theirs.
        clock: time.
        telemetry: counts answers.
        group_path: where a gang's PodGroup is.
        seal: goes with each binding.
    """

    def __init__(
        self,
        api: Api,
        pace: Pace,
        *,
        clock: Clock,
        telemetry: Telemetry,
        group_path: GroupPath = own_group_path,
        seal: Callable[[], Seal] = lambda: UNKNOWN,
    ) -> None:
        self._group_path = group_path
        self._seal = seal
        self._api = api
        self._pace = pace
        self._clock = clock
        self._telemetry = telemetry
        self._server_ahead_s = 0.0
        self._server_read_at = float("-inf")

    def server_now(self) -> float:
        """Seconds since the epoch by the API server's clock, as its answers have shown it."""
        return self._clock.now() + self._server_ahead_s

    async def bind(self, state: CommitState, index: int) -> Answer:
        """POST one Binding; over within ``CALL_S`` seconds."""
        pod = state.gang.binds[index]
        body = encode.binding(
            pod.key, pod.uid, node=pod.node, slots=pod.slots, rank=pod.rank,
            plan=state.plan, fence=state.fence, proof=state.gang.proof,
            seal=self._seal().of_binding(
                pod.uid, node=pod.node, slots=pod.slots, plan=state.plan, fence=state.fence
            ),
        )  # fmt: skip
        path = f"{pod_path(pod.key)}/binding"
        try:
            # The client's own limit does not cover reading credentials again.
            async with asyncio.timeout(CALL_S):
                answer = await self._api.request(
                    "POST", path, query=SERVER_QUERY, body=body, timeout_s=CALL_S
                )
        except errors.ClusterUnreachable as error:
            self._telemetry.bind("unreachable")
            return NotDone(index, str(error))
        except errors.OutcomeUnknown as error:
            self._telemetry.bind("unknown")
            return Doubted(index, str(error))
        except TimeoutError:
            self._telemetry.bind("unknown")
            return Doubted(index, f"bind pod {pod.key}: no answer within {CALL_S:g} s")
        if answer.status == 201:
            self._telemetry.bind("bound")
            return Created(index)
        return self._refusal(index, answer, doing=f"bind pod {pod.key}")

    def _refusal(self, index: int, answer: Response, *, doing: str) -> Answer:
        self._read_clock(answer)
        error = api_error(answer, doing=doing, write=True)
        why = str(error)
        event: Answer
        match error:
            case errors.Conflict():
                result, event = "conflict", Doubted(index, why)
            case errors.OutcomeUnknown():
                result, event = "unknown", Doubted(index, why)
            case errors.Throttled():
                self._throttled(error)
                result, event = "throttled", NotDone(index, why)
            case errors.Denied():
                result, event = "denied", Refused(index, why, denied=True)
            case errors.NotFound():
                result, event = "gone", Refused(index, why)
            case _:
                result, event = "refused", Refused(index, why)
        self._telemetry.bind(result)
        return event

    async def read_pod(self, state: CommitState, index: int) -> Found | Unread:
        """One consistent GET of a pod."""
        key = state.gang.binds[index].key
        body, why = await self._get(pod_path(key), doing=f"read pod {key} back")
        if why:
            return Unread(index, why)
        try:
            return Found(index, None if body is None else pod_facts(body))
        except errors.Undecodable as error:
            return Unread(index, str(error))

    async def read_group(self, state: CommitState) -> GroupRead | GroupUnread:
        """One consistent GET of the gang's PodGroup."""
        gang = state.gang.gang
        body, why = await self._get(self._group_path(gang), doing=f"read PodGroup {gang}")
        if why:
            return GroupUnread(why)
        try:
            return GroupRead(None if body is None else group_facts(body))
        except errors.Undecodable as error:
            return GroupUnread(str(error))

    async def _get(self, path: str, *, doing: str) -> tuple[bytes | None, str]:
        """``(body, "")``, ``(None, "")`` for 404, else ``(None, why)``."""
        await self._pace.turn(Traffic.BIND)
        try:
            answer = await self._api.request("GET", path, timeout_s=CALL_S)
        except errors.ClusterUnreachable as unreachable:
            return None, str(unreachable)
        self._read_clock(answer)
        if answer.ok:
            return answer.body, ""
        error = api_error(answer, doing=doing)
        if isinstance(error, errors.Throttled):
            self._throttled(error)
        return None, "" if isinstance(error, errors.NotFound) else str(error)

    def _throttled(self, error: errors.Throttled) -> None:
        self._telemetry.throttled()
        self._pace.throttled(error.retry_after_s)

    def _read_clock(self, answer: Response) -> None:
        """Learn the server's clock, once a second at most."""
        now = self._clock.monotonic()
        if now - self._server_read_at >= 1.0:
            server = answer.server_time()
            if server is not None:
                self._server_read_at = now
                self._server_ahead_s = server - self._clock.now()
