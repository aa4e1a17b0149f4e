"""The openb experiment through the daemon's own code: cache, sessions, plugins, statements.

Every pod of a fill is a manifest that was decoded and waits in the cache, created one second after
the one before it. ``gpusched.session.decide`` with the shipped plugins takes them in that order, one
by one, as gangs of one: seats, boards, filters, scores, statement, slots. What a session decides is
assumed in the cache, as before a binding is sent; sessions follow each other until one decides
nothing. Not run: HTTP, watches and bindings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from benchmarks.placement.openb_fill import Field, Fill, Measured, Tally
from benchmarks.placement.openb_traces import TraceHost, TracePod
from gpusched.api.devices.slots import slot_numbers
from gpusched.api.serializer.codecs import CODECS
from gpusched.base.clock import SystemClock
from gpusched.cache.cache import Cache
from gpusched.config.model import DEFAULT, Config
from gpusched.lab.experiments.openb_fill import fill_config
from gpusched.lab.simulate.traces.openb import hosts_as_nodes, pod_manifest
from gpusched.pluginhost.guard import PluginGuard
from gpusched.pluginhost.registry import load_policy
from gpusched.session.decide import decide
from gpusched.session.state.session_cache import SessionCache

_FIRST: Final = 1_767_225_600


def fill(
    hosts: Sequence[TraceHost],
    arriving: Sequence[TracePod],
    arguments: Mapping[str, Any],
    measure: Measured,
) -> Fill:
    """As ``openb_fill.fill``, decided by the daemon's sessions.

    Args:
        hosts: the nodes.
        arriving: the pods in order.
        arguments: of the plugin ``nodeorder``.
        measure: says how fragmented the hosts are.

    Raises:
        RuntimeError: a host was given more than it holds.
    """
    cache = _filled(hosts, arriving)
    placed = _decided(cache, fill_config(arguments))
    row_of = {host.name: row for row, host in enumerate(hosts)}
    field = Field(hosts)
    tally = Tally(field, measure)
    rows = []
    for index, request in enumerate(arriving):
        place = placed.get(_name(index))
        row = -1
        if place is not None:
            row = row_of[place[0]]
            _check(field, request, row, slots=place[1])
            field.move(request, row, place[1])
        rows.append(row)
        tally.arrive(request, row)
    return Fill(allocated=tally.allocated, wasted=tally.wasted, rows=tuple(rows))


def _check(field: Field, request: TracePod, row: int, *, slots: tuple[int, ...]) -> None:
    """The host holds it, and the slots that were named are so many and free for so much."""
    free = field.parts[row, list(slots)]
    wrong = len(slots) != request.gpus or (free < request.part).any()
    if wrong or not field.holds(request, [row])[0]:
        raise RuntimeError(f"{request} got slots {slots} with {free.tolist()} free")


def _decided(cache: Cache, chosen: Config) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Node and slots of every pod that got a place, by its name."""
    policy, guard, session_cache = load_policy(chosen), PluginGuard(SystemClock()), SessionCache()
    now = float(_FIRST + 10**6)
    placed: dict[str, tuple[str, tuple[int, ...]]] = {}
    while True:
        decision = decide(
            cache.take_snapshot(now),
            policy,
            guard=guard,
            session_cache=session_cache,
            placement=chosen.placement,
        )
        if decision.faults:
            raise RuntimeError(decision.faults[0])
        binds = [bind for gang in decision.plan.binds for bind in gang.binds]
        if not binds:
            return placed
        for bind in binds:
            pod = cache.find_pod(bind.uid)
            if pod is None:
                raise RuntimeError(f"{bind.key} was placed and does not exist")
            cache.assume_binding(pod, bind.node, bind.slots)
            placed[bind.key.name] = (bind.node, slot_numbers(bind.slots))


# -- objects ---------------------------------------------------------------------------------
def _filled(hosts: Sequence[TraceHost], arriving: Sequence[TracePod]) -> Cache:
    cache = Cache(DEFAULT.scheduler_names)
    for index, node in enumerate(hosts_as_nodes(hosts)):
        cache.put_node(_decoded("nodes", node, index))
    for index, request in enumerate(arriving):
        cache.put_pod(_decoded("pods", pod_manifest(_name(index), request), index))
    return cache


def _decoded(kind: str, obj: dict[str, Any], index: int) -> Any:
    created = datetime.fromtimestamp(_FIRST + index, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    obj["metadata"] |= {
        "uid": f"{kind[0]}{index:07d}-0000-4000-8000-000000000000",
        "resourceVersion": str(index + 1),
        "creationTimestamp": created,
    }
    line = msgspec.json.encode({"type": "ADDED", "object": obj})
    return CODECS[kind].decode_event(line).item


def _name(index: int) -> str:
    return f"pod-{index:06d}"
