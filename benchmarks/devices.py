"""What devices cost beside the same gangs with ``nvidia.com/gpu``: sessions, claims, lists.

A session here is a snapshot and a decision; what is written afterwards is not in it. With a claim three
writes come before a pod runs, the finalizer, the allocation and the binding, instead of one.
"""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Callable
from typing import Any, Final

import msgspec

from benchmarks.device_inputs import (
    CLAIM,
    NICS_A_NODE,
    claim_of,
    claimant,
    classes,
    node_of_devices,
    slices,
    template,
)
from benchmarks.figures import Figure, middle
from benchmarks.inputs import GPUS_A_NODE, NAMESPACE, Obj, node, page, pod
from gpusched.api.devices.dynamic.claims import ClaimConsumer
from gpusched.api.devices.dynamic.decode import CODECS as DEVICE_CODECS
from gpusched.api.meta.identity import ObjectKey, Rejected
from gpusched.api.serializer.codecs import CODECS
from gpusched.base.clock import SystemClock
from gpusched.base.limits import LIST_PAGE
from gpusched.cache.cache import Cache
from gpusched.cache.claimable.device_stores import AssumedClaim
from gpusched.config.model import DEFAULT
from gpusched.io.observe.process_limits import collect_garbage_rarely
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
WAITING: Final = 1_000
CYCLE_CLAIMS: Final = 1_000
CYCLE_MAX_S: Final = 1.5
LISTED: Final = 100_000
LIST_MAX_S: Final = 5.0
DEVICE_MAX_BYTES: Final = 2_048
_NOW: Final = 1_767_225_600.0


def measure() -> list[Figure]:
    """Sessions with claims beside sessions without, one cycle with claims, and a long list."""
    collect_garbage_rarely()  # as the daemon does
    return [
        *_sessions("2 NICs that pods share", shareable_nics=True),
        *_sessions("2 NICs"),
        *_waiting(),
        _one_cycle(),
        *_listing(),
    ]


def _sessions(name: str, *, shareable_nics: bool = False) -> list[Figure]:
    """Pods a second of CPU in turns, each from an empty session cache until nothing more starts.

    Beside it the same where an earlier session had read nodes and devices, and, where not all gangs
    start, plain ones on nodes of so few GPUs that as many start.
    """
    rates: dict[bool, list[float]] = {True: [], False: []}
    known: dict[bool, list[float]] = {True: [], False: []}
    few: list[float] = []
    for _ in range(TURNS):
        for claims in (True, False):
            placed, cpu_s, _ = drain(filled(claims=claims, shareable_nics=shareable_nics))
            rates[claims].append(placed / cpu_s)
            cache = filled(claims=claims, shareable_nics=shareable_nics)
            placed, cpu_s, _ = drain(cache, known=True)
            known[claims].append(placed / cpu_s)
        if not shareable_nics:
            placed, cpu_s, _ = drain(filled(claims=False, gpus=NICS_A_NODE))
            few.append(placed / cpu_s)
    ratio, spread = middle([a / b for a, b in zip(rates[True], rates[False], strict=True)])
    read, read_spread = middle([a / b for a, b in zip(known[True], known[False], strict=True)])
    alike = [a / b for a, b in zip(rates[True], few, strict=True)] if few else []
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
        Figure(
            name="  the same, both after a session that read nodes and devices", measured=read, unit="times",
            spread=read_spread,
        ),
        *(
            Figure(
                name=f"  of the rate on nodes of {NICS_A_NODE} nvidia.com/gpu, where as many start",
                measured=middle(alike)[0], unit="times", spread=middle(alike)[1],
            )
            for _ in alike[:1]
        ),
    ]  # fmt: skip


def _waiting() -> list[Figure]:
    """Sessions of gangs of which no two are alike and none finds devices, when nothing has changed."""
    spent = {}
    for claims in (True, False):
        cache = filled(claims=claims, gangs=WAITING, unlike=True, gpus=0)
        policy, guard, kept = load_policy(DEFAULT), PluginGuard(SystemClock()), SessionCache()
        runs = []
        for turn in range(TURNS + 1):
            gc.collect()
            began = time.process_time()
            decide(cache.take_snapshot(_NOW + turn), policy, guard=guard, session_cache=kept)
            runs.append(time.process_time() - began)
        spent[claims] = runs
    quiet, spread = middle(spent[True][1:])
    return [
        Figure(
            name=f"{WAITING:,} unlike gangs of {MEMBERS} wait with claims: a session without news",
            measured=quiet, unit="s of CPU", spread=spread, raw=middle(spent[False][1:])[0],
            raw_is="with nvidia.com/gpu",
        ),
        Figure(
            name="  the first session", measured=spent[True][0], unit="s of CPU",
            raw=spent[False][0], raw_is="with nvidia.com/gpu",
        ),
    ]  # fmt: skip


def _one_cycle() -> Figure:
    """A first cycle, with nothing known of devices before."""
    runs = []
    for _ in range(TURNS):
        cache = filled(claims=True, gangs=CYCLE_CLAIMS // MEMBERS)
        gc.collect()
        began = time.process_time()
        decision = decide(
            cache.take_snapshot(_NOW),
            load_policy(DEFAULT),
            guard=PluginGuard(SystemClock()),
            session_cache=SessionCache(),
        )
        runs.append(time.process_time() - began)
        placed = sum(len(gang.binds) for gang in decision.plan.binds)
        if placed != CYCLE_CLAIMS:
            raise RuntimeError(f"{placed} of {CYCLE_CLAIMS} pods were placed")
    cost, spread = middle(runs)
    return Figure(
        name=f"{CYCLE_CLAIMS:,} claims in the first cycle, {NODES:,} nodes", measured=cost,
        unit="s of CPU", spread=spread, target=f"< {CYCLE_MAX_S:g} s", met=cost < CYCLE_MAX_S,
    )  # fmt: skip


def _listing() -> list[Figure]:
    """Slices decoded from pages of a list and put into the cache."""
    a_node = len(slices(0)[0]["spec"]["devices"]) + len(slices(0)[1]["spec"]["devices"])
    pages = _slice_pages(LISTED // a_node)
    runs = []
    for _ in range(TURNS):
        gc.collect()
        began = time.process_time()
        _list(pages)
        runs.append(time.process_time() - began)
    few = pages[: len(pages) // 10]
    tracemalloc.start()
    kept = _list(few)
    size = tracemalloc.get_traced_memory()[0] / (LISTED // 10)
    tracemalloc.stop()
    del kept
    cost, spread = middle(runs)
    return [
        Figure(
            name=f"{LISTED:,} devices listed: decoded and in the cache", measured=cost,
            unit="s of CPU", spread=spread, target=f"< {LIST_MAX_S:g} s", met=cost < LIST_MAX_S,
        ),
        Figure(
            name="memory of a device in the cache", measured=size, unit="bytes",
            raw=sum(map(len, few)) / (LISTED // 10), raw_is="as JSON",
            target=f"<= {DEVICE_MAX_BYTES:,}", met=size <= DEVICE_MAX_BYTES,
        ),
    ]  # fmt: skip


def _slice_pages(nodes: int) -> list[bytes]:
    bodies = []
    for index in range(nodes):
        for number, each in enumerate(slices(index)):
            each["metadata"] |= _stamps("d", 2 * index + number + 1)
            bodies.append(msgspec.json.encode(each))
    return [
        page(bodies[at : at + LIST_PAGE], token="", kind="ResourceSlice")
        for at in range(0, len(bodies), LIST_PAGE)
    ]


def _list(pages: list[bytes]) -> Cache:
    cache = Cache(DEFAULT.scheduler_names)
    codec = DEVICE_CODECS["ResourceSlice"]
    for each in pages:
        for item in codec.decode_page(each).items:
            assert not isinstance(item, Rejected), item.message
            cache.devices.slices.put(ObjectKey("", item.name), item)
    cache.take_snapshot(_NOW)
    return cache


def drain(cache: Cache, *, known: bool = False) -> tuple[int, float, float]:
    """Sessions until one places nothing, each after the places of the one before are taken.

    Args:
        cache: with nodes and gangs.
        known: whether the same session was held before, and nothing was carried out.

    Returns:
        Pods placed, seconds of CPU of the snapshots and sessions that placed them, and of the last.
    """
    policy, guard, kept = load_policy(DEFAULT), PluginGuard(SystemClock()), SessionCache()
    placed, spent = 0, 0.0
    if known:
        decide(cache.take_snapshot(_NOW), policy, guard=guard, session_cache=kept)
    while True:
        gc.collect()
        began = time.process_time()
        decision = decide(cache.take_snapshot(_NOW), policy, guard=guard, session_cache=kept)
        last = time.process_time() - began
        binds = [bind for gang in decision.plan.binds for bind in gang.binds]
        if not binds:
            return placed, spent, last
        placed, spent = placed + len(binds), spent + last
        for bind in binds:
            cache.assume_binding(cache.by_uid[bind.uid], bind.node, bind.slots)
            for claim in bind.claims:
                user = ClaimConsumer(group="", resource="pods", name=bind.key.name, uid=bind.uid)
                assumed = AssumedClaim(claim.uid, claim.allocation, (user,))
                cache.devices.assume_claim(claim.key, assumed)


def filled(
    *,
    claims: bool,
    shareable_nics: bool = False,
    nodes: int = NODES,
    gangs: int = GANGS,
    gpus: int = GPUS_A_NODE,
    unlike: bool = False,
) -> Cache:
    """A cache with empty nodes and gangs that wait.

    Args:
        claims: whether GPUs are devices, and pods have claims.
        shareable_nics: whether pods share NICs.
        nodes: number of nodes.
        gangs: number of gangs.
        gpus: of each node, as devices or as an amount.
        unlike: whether each gang asks for other amounts of CPU.
    """
    cache = Cache(DEFAULT.scheduler_names)
    serial = iter(range(1, 10**9))
    for index in range(nodes):
        made = node_of_devices(index) if claims else node(index)
        for amounts in (made["status"]["capacity"], made["status"]["allocatable"]):
            if "nvidia.com/gpu" in amounts:
                amounts["nvidia.com/gpu"] = str(gpus)
        _put("nodes", cache.put_node, made, serial=next(serial))
    if claims:
        for index in range(nodes):
            for each in slices(index, shareable_nics=shareable_nics, gpus=gpus):
                put_device_object(cache, each, serial=next(serial))
        for each in (*classes(), template()):
            put_device_object(cache, each, serial=next(serial))
    for gang in range(gangs):
        for member in range(MEMBERS):
            name = f"gang-{gang:04d}-{member:03d}"
            made = claimant(name) if claims else pod(name)
            made["metadata"]["annotations"] = {"gpusched.io/min-member": str(MEMBERS)}
            made["metadata"]["ownerReferences"] = [_owner(gang)]
            if unlike:
                made["spec"]["containers"][0]["resources"]["requests"]["cpu"] = f"{1_000 + gang}m"
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
