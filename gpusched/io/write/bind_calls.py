"""The calls of a commit, and what each answer means to the commit machine.

Every call ends in an event, whatever the server does; nothing is decided here.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from typing import Final, Protocol, TypeVar
from urllib.parse import quote

from gpusched import API_VERSION
from gpusched.api.foreign.kinds import ServedForeignKind
from gpusched.api.gang.charge_record import format_charge
from gpusched.api.gang.pod_group import PodGroup
from gpusched.api.meta.identity import GangKey, ObjectKey
from gpusched.api.serializer import requests
from gpusched.api.serializer.seal import UNKNOWN_SEAL, Seal
from gpusched.base import errors, limits
from gpusched.base.clock import Clock
from gpusched.commit.model import (
    BindCreated,
    BindNotDone,
    BindRefused,
    BindUnknown,
    CommitState,
    GroupRead,
    GroupUnreadable,
    PodRead,
    PodUnreadable,
)
from gpusched.commit.observed_pod import read_pod, read_pod_group
from gpusched.io.client.api_client import ApiClient
from gpusched.io.client.responses import ApiResponse, api_error
from gpusched.io.observe.telemetry import Telemetry
from gpusched.io.workers.rate_limiter import RateLimiter, TrafficClass

CALL_S: Final = limits.BIND_TIMEOUT_CLIENT_S
SERVER_QUERY: Final = {"timeout": f"{limits.BIND_TIMEOUT_SERVER_S:g}s"}

_PLAIN: Final = re.compile(r"[a-z0-9.-]+").fullmatch

GroupPath = Callable[[GangKey], str]
Answer = BindCreated | BindUnknown | BindNotDone | BindRefused


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
        rate_limiter: gives turns to reads; bindings have had theirs.
        clock: time.
        telemetry: counts answers.
        group_path: where a gang's PodGroup is.
        seal: goes with each binding.
    """

    def __init__(
        self,
        api: ApiClient,
        rate_limiter: RateLimiter,
        *,
        clock: Clock,
        telemetry: Telemetry,
        group_path: GroupPath = own_group_path,
        seal: Callable[[], Seal] = lambda: UNKNOWN_SEAL,
    ) -> None:
        self._group_path = group_path
        self._seal = seal
        self._api = api
        self._rate_limiter = rate_limiter
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
        seal, charge = self._seal(), pod.charge
        body = requests.binding_body(
            pod.key, pod.uid, node=pod.node, slots=pod.slots or pod.device_slots, rank=pod.rank,
            plan=state.plan, fence=state.fence, proof=state.gang.proof,
            seal=seal.of_binding(
                pod.uid, node=pod.node, slots=pod.slots, plan=state.plan, fence=state.fence
            ),
            charged=format_charge(charge, seal=seal.of_charge(pod.uid, charge)) if charge else "",
            numa=",".join(map(str, pod.numa)) if pod.claims else None,
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
            return BindNotDone(index, str(error))
        except errors.OutcomeUnknown as error:
            self._telemetry.bind("unknown")
            return BindUnknown(index, str(error))
        except TimeoutError:
            self._telemetry.bind("unknown")
            return BindUnknown(index, f"bind pod {pod.key}: no answer within {CALL_S:g} s")
        if answer.status == 201:
            self._telemetry.bind("bound")
            return BindCreated(index)
        return self._read_refusal(index, answer, doing=f"bind pod {pod.key}")

    def _read_refusal(self, index: int, answer: ApiResponse, *, doing: str) -> Answer:
        self._read_clock(answer)
        error = api_error(answer, doing=doing, write=True)
        why = str(error)
        event: Answer
        match error:
            case errors.Conflict():
                result, event = "conflict", BindUnknown(index, why)
            case errors.OutcomeUnknown():
                result, event = "unknown", BindUnknown(index, why)
            case errors.Throttled():
                self._slow_down(error)
                result, event = "throttled", BindNotDone(index, why)
            case errors.Denied():
                result, event = "denied", BindRefused(index, why, denied=True)
            case errors.NotFound():
                result, event = "gone", BindRefused(index, why)
            case _:
                result, event = "refused", BindRefused(index, why)
        self._telemetry.bind(result)
        return event

    async def read_pod(self, state: CommitState, index: int) -> PodRead | PodUnreadable:
        """One consistent GET of a pod."""
        key = state.gang.binds[index].key
        body, why = await self._get(pod_path(key), doing=f"read pod {key} back")
        if why:
            return PodUnreadable(index, why)
        try:
            return PodRead(index, None if body is None else read_pod(body))
        except errors.UndecodableObject as error:
            return PodUnreadable(index, str(error))

    async def read_group(self, state: CommitState) -> GroupRead | GroupUnreadable:
        """One consistent GET of the gang's PodGroup."""
        gang = state.gang.gang
        body, why = await self._get(self._group_path(gang), doing=f"read PodGroup {gang}")
        if why:
            return GroupUnreadable(why)
        try:
            return GroupRead(None if body is None else read_pod_group(body))
        except errors.UndecodableObject as error:
            return GroupUnreadable(str(error))

    async def _get(self, path: str, *, doing: str) -> tuple[bytes | None, str]:
        """``(body, "")``, ``(None, "")`` for 404, else ``(None, why)``."""
        await self._rate_limiter.turn(TrafficClass.BIND)
        try:
            answer = await self._api.request("GET", path, timeout_s=CALL_S)
        except errors.ClusterUnreachable as unreachable:
            return None, str(unreachable)
        self._read_clock(answer)
        if answer.ok:
            return answer.body, ""
        error = api_error(answer, doing=doing)
        if isinstance(error, errors.Throttled):
            self._slow_down(error)
        return None, "" if isinstance(error, errors.NotFound) else str(error)

    def _slow_down(self, error: errors.Throttled) -> None:
        self._telemetry.throttled()
        self._rate_limiter.throttled(error.retry_after_s)

    def _read_clock(self, answer: ApiResponse) -> None:
        """Learn the server's clock, once a second at most."""
        now = self._clock.monotonic()
        if now - self._server_read_at >= 1.0:
            server = answer.server_time()
            if server is not None:
                self._server_read_at = now
                self._server_ahead_s = server - self._clock.now()


E_co = TypeVar("E_co", covariant=True)


class ForeignStore(Protocol[E_co]):
    """Entities of one kind."""

    @property
    def items(self) -> Mapping[ObjectKey, E_co]:
        """Entities of the kind by key."""


class ServedForeignKinds(Protocol):
    """Where groups and queues of other projects are."""

    @property
    def served(self) -> Mapping[tuple[str, str], ServedForeignKind]:
        """By kind and source."""


class ServedCache(Protocol):
    """What the API showed last, and where."""

    @property
    def groups(self) -> ForeignStore[PodGroup]:
        """Store of all PodGroups."""

    @property
    def foreign(self) -> ServedForeignKinds:
        """Where groups and queues of other projects are."""


def group_path(cache: ServedCache, gang: GangKey) -> str:
    """Where the API has a gang's PodGroup."""
    group = cache.groups.items.get(ObjectKey(gang.namespace, gang.name))
    served = cache.foreign.served.get(("PodGroup", group.source)) if group is not None else None
    if served is None:
        return own_group_path(gang)
    return served.object_path(quote(gang.namespace), quote(gang.name))
