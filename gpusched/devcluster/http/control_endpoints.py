"""The endpoints under ``/devcluster/``: JSON in, JSON out, one clear sentence for bad input."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import msgspec

from gpusched.base.classes import frozen
from gpusched.base.clock import Clock
from gpusched.devcluster.apimachinery import status
from gpusched.devcluster.apimachinery.limits import CLOCK_RATE_MAX, SERVER_DOWN_MAX_S, STEP_MAX_S
from gpusched.devcluster.apimachinery.times import rfc3339_micro
from gpusched.devcluster.control.adjustable_clock import AdjustableClock
from gpusched.devcluster.control.fault_rules import FaultRuleError, parse_rule, parse_rules
from gpusched.devcluster.control.restart import Restarts, UnknownSnapshot
from gpusched.devcluster.http.handler_chain import HandlerChain

Obj = dict[str, Any]
MEMORIES: Final = ("kept", "cut", "empty", "snapshot")


@frozen(kw_only=True)
class ControlReply:
    """The answer of a control endpoint; ``last`` tells that the connection ends with it."""

    body: Obj
    code: int = 200
    last: bool = False


Serve = Callable[[str, Obj], Awaitable[ControlReply]]


class ControlEndpoints:
    """Routes requests of an administrator to clock, faults and restarts.

    Args:
        clock: the cluster's; only a FastClock can be controlled.
        handlers: holds the faults in force.
        restarts: what restarts and remembers.
    """

    def __init__(self, clock: Clock, handlers: HandlerChain, restarts: Restarts) -> None:
        self._clock = clock
        self._handlers = handlers
        self._restarts = restarts
        self._routes: dict[tuple[str, str], tuple[Sequence[str], Serve]] = {
            ("GET", "clock"): ((), self._clock_state),
            ("POST", "clock/pause"): ((), self._pause),
            ("POST", "clock/resume"): ((), self._resume),
            ("POST", "clock/step"): (("seconds",), self._step),
            ("POST", "clock/rate"): (("rate",), self._rate),
            ("GET", "faults"): ((), self._list_faults),
            ("DELETE", "faults"): ((), self._clear_faults),
            ("DELETE", "faults/*"): ((), self._remove_fault),
            ("POST", "restart"): (("memory", "snapshot", "downSeconds"), self._restart),
            ("POST", "expire"): ((), self._expire),
            ("GET", "snapshots"): ((), self._list_snapshots),
            ("POST", "snapshots"): (("name",), self._take_snapshot),
            ("DELETE", "snapshots/*"): ((), self._drop_snapshot),
        }

    async def serve(self, method: str, path: str, raw: bytes) -> ControlReply:
        """Answer one request; ``path`` is what follows ``/devcluster/``. Raises StatusError."""
        path = path.strip("/")
        value = _body(raw)
        if (method, path) == ("POST", "faults"):
            return self._add_faults(value)
        first, _, name = path.partition("/")
        known = self._routes.get((method, path))
        if known is None and name and "/" not in name:
            known = self._routes.get((method, f"{first}/*"))
        if known is None:
            raise self._no_route(method, path)
        keys, answer = known
        value = {} if value is None else value
        if not isinstance(value, dict):
            raise status.bad_request("the body must be a JSON object")
        for key in value:
            if key not in keys:
                listed = ", ".join(keys) or "none"
                raise status.bad_request(f"{key!r} is no known key; known: {listed}")
        return await answer(name, value)

    def _no_route(self, method: str, path: str) -> status.StatusError:
        methods = sorted(m for m, p in [*self._routes, ("POST", "faults")] if p == path)
        if methods:
            why = f"/devcluster/{path} takes {', '.join(methods)}, not {method}"
            return status.failure(405, "MethodNotAllowed", why)
        why = f"there is no {method} /devcluster/{path}; docs/devcluster.md lists what there is"
        return status.failure(404, "NotFound", why)

    # -- clock -------------------------------------------------------------------------------

    def _controlled(self) -> AdjustableClock:
        if not isinstance(self._clock, AdjustableClock):
            why = "this cluster runs on its program's own clock, which cannot be controlled here"
            raise status.bad_request(why)
        return self._clock

    def _clock_body(self) -> Obj:
        clock = self._clock
        body: Obj = {"now": rfc3339_micro(clock.now()), "elapsedSeconds": self._handlers.elapsed_s}
        if isinstance(clock, AdjustableClock):
            body |= {"rate": clock.rate, "paused": clock.paused, "sleepers": clock.sleepers}
        return body

    async def _clock_state(self, _name: str, _body: Obj) -> ControlReply:
        return ControlReply(body=self._clock_body())

    async def _pause(self, _name: str, _body: Obj) -> ControlReply:
        self._controlled().pause()
        return ControlReply(body=self._clock_body())

    async def _resume(self, _name: str, _body: Obj) -> ControlReply:
        self._controlled().resume()
        return ControlReply(body=self._clock_body())

    async def _step(self, _name: str, body: Obj) -> ControlReply:
        clock = self._controlled()
        seconds = _number(body, "seconds", 0, STEP_MAX_S)
        if not clock.paused:
            raise status.bad_request("the clock runs; pause it before stepping it")
        ended = await clock.step(seconds)
        return ControlReply(body={**self._clock_body(), "ended": ended})

    async def _rate(self, _name: str, body: Obj) -> ControlReply:
        clock = self._controlled()
        rate = _number(body, "rate", 0, CLOCK_RATE_MAX)
        if rate <= 0:
            raise status.bad_request("rate must be above 0; pause the clock to stop it")
        clock.set_rate(rate)
        return ControlReply(body=self._clock_body())

    # -- faults ------------------------------------------------------------------------------

    def _fault_list(self) -> Obj:
        return {"rules": self._handlers.faults.counters()}

    async def _list_faults(self, _name: str, _body: Obj) -> ControlReply:
        return ControlReply(body=self._fault_list())

    def _add_faults(self, value: Any) -> ControlReply:
        faults = self._handlers.faults
        try:
            if isinstance(value, dict) and set(value) == {"rules"}:
                rules = parse_rules(value["rules"])
            else:
                rules = [parse_rule(value, default_name=faults.free_name())]
            faults.add(rules)
        except FaultRuleError as e:
            raise status.bad_request(str(e)) from None
        return ControlReply(body=self._fault_list(), code=201)

    async def _clear_faults(self, _name: str, _body: Obj) -> ControlReply:
        self._handlers.faults.clear()
        return ControlReply(body=self._fault_list())

    async def _remove_fault(self, name: str, _body: Obj) -> ControlReply:
        if not self._handlers.faults.remove(name):
            raise _missing("fault rule", name)
        return ControlReply(body=self._fault_list())

    # -- restarts and snapshots --------------------------------------------------------------

    async def _restart(self, _path: str, body: Obj) -> ControlReply:
        memory = body.get("memory", "kept")
        if memory not in MEMORIES:
            raise status.bad_request(f"memory must be one of {', '.join(MEMORIES)}")
        if ("snapshot" in body) != (memory == "snapshot"):
            raise status.bad_request("snapshot names the one to restore when memory is snapshot")
        down_s = (
            _number(body, "downSeconds", 0, SERVER_DOWN_MAX_S) if "downSeconds" in body else 0.0
        )
        snapshot = _named(body, "snapshot") if memory == "snapshot" else ""
        try:
            version = await self._restarts.restart(memory, snapshot, down_s=down_s)
        except UnknownSnapshot:
            raise _missing("snapshot", snapshot) from None
        return ControlReply(body={"resourceVersion": str(version), "memory": memory}, last=True)

    async def _expire(self, _name: str, _body: Obj) -> ControlReply:
        return ControlReply(body={"resourceVersion": str(self._restarts.cut())})

    def _snapshots(self) -> Obj:
        held = self._restarts.snapshots()
        rows = [{"name": name, "resourceVersion": str(v)} for name, v in held.items()]
        return {"snapshots": rows}

    async def _list_snapshots(self, _name: str, _body: Obj) -> ControlReply:
        return ControlReply(body=self._snapshots())

    async def _take_snapshot(self, _path: str, body: Obj) -> ControlReply:
        if not self._restarts.take(_named(body, "name")):
            raise status.bad_request("too many snapshots are held; delete one first")
        return ControlReply(body=self._snapshots(), code=201)

    async def _drop_snapshot(self, name: str, _body: Obj) -> ControlReply:
        try:
            self._restarts.drop(name)
        except UnknownSnapshot:
            raise _missing("snapshot", name) from None
        return ControlReply(body=self._snapshots())


def _body(raw: bytes) -> Any:
    if not raw.strip():
        return None
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as e:
        raise status.bad_request(f"the body is no JSON: {e}") from None


def _number(body: Obj, key: str, low: float, high: float) -> float:
    value = body.get(key)
    if isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high:
        return float(value)
    raise status.bad_request(f"{key} must be a number from {low:g} to {math.floor(high)}")


def _named(body: Obj, key: str) -> str:
    value = body.get(key)
    if not isinstance(value, str) or not 0 < len(value) <= 64 or "/" in value:
        raise status.bad_request(f"{key} must be a text of 1 to 64 characters without /")
    return value


def _missing(what: str, name: str) -> status.StatusError:
    return status.failure(404, "NotFound", f"there is no {what} {name!r}")
