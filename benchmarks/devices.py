"""What devices cost beside the same gangs with ``nvidia.com/gpu``: sessions, claims, lists."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec

from benchmarks.device_inputs import (
    CLAIM,
    claim_of,
    claimant,
    classes,
    node_of_devices,
    slices,
    template,
)
from benchmarks.figures import Figure, middle
from benchmarks.inputs import NAMESPACE, Obj, node, pod
from gpusched.api.devices.dynamic.claims import ClaimConsumer
from gpusched.api.devices.dynamic.decode import CODECS as DEVICE_CODECS
from gpusched.api.meta.identity import ObjectKey
from gpusched.api.serializer.codecs import CODECS
from gpusched.base.clock import SystemClock
from gpusched.cache.cache import Cache
from gpusched.cache.claimable.device_stores import AssumedClaim
from gpusched.config.model import DEFAULT
from gpusched.pluginhost.guard import PluginGuard
from gpusched.pluginhost.registry import load_policy
from gpusched.session.decide import decide
from gpusched.session.state.session_cache import SessionCache

NODES: Final = 1_000
GANGS: Final = 500
MEMBERS: Final = 8
TURNS: Final = 3
RATE_MIN: Final = 0.6
"""Pods a second with claims, of those without."""
_NOW: Final = 1_767_225_600.0


def measure() -> list[Figure]:
    """Sessions with claims beside sessions without."""
    return [*_sessions("2 NICs that pods share", shareable_nics=True), *_sessions("2 NICs")]


def _sessions(name: str, *, shareable_nics: bool = False) -> list[Figure]:
    """Pods a second of CPU in turns, each from an empty session cache until nothing more starts."""
    rates: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(TURNS):
        for claims in (True, False):
            cache = filled(claims=claims, shareable_nics=shareable_nics)
            placed, cpu_s, _ = drain(cache)
            rates[claims].append(placed / cpu_s)
    ratio, spread = middle([a / b for a, b in zip(rates[True], rates[False], strict=True)])
    rate, rate_spread = middle(rates[True])
    plain, _ = middle(rates[False])
    return [
        Figure(
            name=f"{GANGS} gangs of {MEMBERS}, a GPU and a NIC each, {NODES:,} nodes of 8 GPUs, {name}",
            measured=rate, unit="pods/s of CPU", spread=rate_spread,
            raw=plain, raw_is="with nvidia.com/gpu",
        ),
        Figure(
            name="  of the rate with nvidia.com/gpu, turn by turn", measured=ratio, unit="times",
            spread=spread, target=f">= {RATE_MIN:g}", met=ratio >= RATE_MIN,
        ),
    ]  # fmt: skip


def drain(cache: Cache) -> tuple[int, float, float]:
    """Sessions until one places nothing, each after the places of the one before are taken.

    Returns:
        Pods placed, seconds of CPU of the snapshots and sessions that placed them, and of the last.
    """
    policy, guard, kept = load_policy(DEFAULT), PluginGuard(SystemClock()), SessionCache()
    placed, spent = 0, 0.0
    while True:
        gc.collect()
        began = time.process_time()
        decision = decide(cache.snapshot(_NOW), policy, guard=guard, session_cache=kept)
        last = time.process_time() - began
        binds = [bind for gang in decision.plan.binds for bind in gang.binds]
        if not binds:
            return placed, spent, last
        placed, spent = placed + len(binds), spent + last
        for bind in binds:
            cache.assume(cache.by_uid[bind.uid], bind.node, bind.slots)
            for claim in bind.claims:
                user = ClaimConsumer(group="", resource="pods", name=bind.key.name, uid=bind.uid)
                assumed = AssumedClaim(claim.uid, claim.allocation, (user,))
                cache.devices.assume(claim.key, assumed)


def filled(
    *, claims: bool, shareable_nics: bool = False, nodes: int = NODES, gangs: int = GANGS
) -> Cache:
    """A cache with empty nodes and gangs that wait."""
    cache = Cache(DEFAULT.scheduler_names)
    serial = iter(range(1, 10**9))
    for index in range(nodes):
        made = node_of_devices(index) if claims else node(index)
        _put("nodes", cache.put_node, made, serial=next(serial))
    if claims:
        for index in range(nodes):
            for each in slices(index, shareable_nics=shareable_nics):
                put_device_object(cache, each, serial=next(serial))
        for each in (*classes(), template()):
            put_device_object(cache, each, serial=next(serial))
    for gang in range(gangs):
        for member in range(MEMBERS):
            name = f"gang-{gang:04d}-{member:03d}"
            made = claimant(name) if claims else pod(name)
            made["metadata"]["annotations"] = {"gpusched.io/min-member": str(MEMBERS)}
            made["metadata"]["ownerReferences"] = [_owner(gang)]
            if claims:
                claim = claim_of(name)
                put_device_object(cache, claim, serial=next(serial))
                named = {"name": CLAIM, "resourceClaimName": claim["metadata"]["name"]}
                made["status"] = {"resourceClaimStatuses": [named]}
            _put("pods", cache.put_pod, made, serial=next(serial))
    return cache


def put_device_object(cache: Cache, obj: Obj, *, serial: int) -> None:
    """An object of ``resource.k8s.io`` as a watch shows it."""
    metadata = obj["metadata"]
    metadata |= _stamps("d", serial)
    kind = obj["kind"]
    item = DEVICE_CODECS[kind].entity_of(msgspec.json.encode(obj))
    cache.devices.shelves[kind].put(
        ObjectKey(metadata.get("namespace", ""), metadata["name"]), item
    )


def _put(kind: str, put: Callable[[Any], None], obj: Obj, *, serial: int) -> None:
    obj["metadata"] |= _stamps(kind[0], serial)
    if kind == "pods":
        obj["metadata"].setdefault("namespace", NAMESPACE)
    line = msgspec.json.encode({"type": "ADDED", "object": obj})
    put(CODECS[kind].decode_event(line).item)


def _stamps(letter: str, serial: int) -> Obj:
    return {
        "uid": f"{letter}{serial:07d}-0000-4000-8000-000000000000",
        "resourceVersion": str(serial),
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }


def _owner(gang: int) -> Obj:
    return {
        "apiVersion": "example.com/v1", "kind": "Trainer", "name": f"gang-{gang:04d}",
        "uid": f"t{gang:07d}-0000-4000-8000-000000000000", "controller": True,
    }  # fmt: skip
