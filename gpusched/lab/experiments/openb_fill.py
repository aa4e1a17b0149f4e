"""Filling the openb hosts with single pods, decided by the daemon's sessions: M6's first half.

Pods come one second after the other and never leave; a pod that fits nowhere is dropped. Sessions decide
about all that wait, in the order in which it came, until one decides nothing.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from gpusched.base.classes import frozen
from gpusched.base.clock import EPOCH
from gpusched.base.errors import InvariantBroken
from gpusched.cache.cache import Cache
from gpusched.config.model import DEFAULT, Config, PluginChoice
from gpusched.engine.objects import SimulatedObjects
from gpusched.engine.schedulers.scheduler import StoppedClock
from gpusched.lab.simulate.traces.openb import (
    WHOLE,
    TraceHost,
    TracePod,
    hosts_as_nodes,
    pod_arrivals,
    pod_manifest,
)
from gpusched.pluginhost.guard import PluginGuard
from gpusched.pluginhost.registry import load_policy
from gpusched.session.decide import decide
from gpusched.session.state.session_cache import SessionCache

CHECKPOINTS: Final = tuple(range(10, 131, 10))
"""Percent of the GPUs whose requests have arrived when a fill is looked at."""
_WORK_WITHOUT_END: Final = 10**12
"""Units of work for one session."""
POLICIES: Final[Mapping[str, Mapping[str, Any]]] = {
    "binpack (best fit)": {"strategy": "binpack"},
    "fragmentation": {"strategy": "fragmentation"},
}
"""Arguments of the plugin ``nodeorder``, by what the policy is called."""


@frozen(kw_only=True)
class FillResult:
    """How one fill went.

    Attributes:
        allocated: percent of the GPUs, by percent of them whose requests had arrived.
        placed: pods that got a place.
        dropped: pods that got none.
    """

    allocated: Mapping[int, float]
    placed: int
    dropped: int


def fill_config(arguments: Mapping[str, Any]) -> Config:
    """The shipped configuration without actions that evict and without the solver, and sessions that look at every pod.

    The solver would move pods of a session once the cluster is full, and rounds would serve those first that
    seem to have room: what is measured is the choice for one pod at a time, in the order in which they came.
    """
    tiers = tuple(
        attrs.evolve(
            tier,
            plugins=tuple(
                PluginChoice("nodeorder", arguments) if each.name == "nodeorder" else each
                for each in tier.plugins
            ),
        )
        for tier in DEFAULT.tiers
    )
    placement = attrs.evolve(DEFAULT.placement, solver="greedy")
    limits = attrs.evolve(DEFAULT.limits, session_work=_WORK_WITHOUT_END)
    return attrs.evolve(
        DEFAULT,
        actions=("enqueue", "allocate"),
        tiers=tiers,
        placement=placement,
        limits=limits,
    )


def fill_hosts(
    hosts: Sequence[TraceHost],
    requests: Sequence[TracePod],
    arguments: Mapping[str, Any],
    *,
    seed: int,
) -> FillResult:
    """Fill the hosts until requests reach 130 % of their GPUs.

    Args:
        hosts: those with GPUs.
        requests: the list; it is shuffled, and picks are appended.
        arguments: of the plugin ``nodeorder``.
        seed: of the order.
    """
    capacity = sum(host.gpus for host in hosts) * WHOLE
    rng = random.Random(seed)  # noqa: S311 - nothing secret is drawn
    coming = pod_arrivals(requests, capacity=capacity, rng=rng)
    placed = _decided(hosts, coming, fill_config(arguments))
    allocated: dict[int, float] = {}
    left, arrived, held = list(CHECKPOINTS), 0, 0
    for index, request in enumerate(coming):
        arrived += request.demand
        held += request.demand if _name(index) in placed else 0
        while left and arrived * 100 >= left[0] * capacity:
            allocated[left.pop(0)] = 100 * held / capacity
    return FillResult(allocated=allocated, placed=len(placed), dropped=len(coming) - len(placed))


def _decided(hosts: Sequence[TraceHost], coming: Sequence[TracePod], config: Config) -> set[str]:
    """Names of the pods that got a place."""
    cache = Cache(config.scheduler_names)
    cache.use_limits(config.limits)
    objects = SimulatedObjects((cache,), epoch=EPOCH)
    for node in hosts_as_nodes(hosts):
        objects.create(node, now=0.0)
    for index, request in enumerate(coming):
        objects.create(pod_manifest(_name(index), request), now=float(index))
    policy, guard, session_cache = load_policy(config), PluginGuard(StoppedClock()), SessionCache()
    placed: set[str] = set()
    while True:
        snapshot = cache.take_snapshot(EPOCH + len(coming))
        guard.begin_session()
        decision = decide(
            snapshot, policy, guard=guard, session_cache=session_cache, placement=config.placement
        )
        if decision.faults:
            raise InvariantBroken(decision.faults[0])
        if decision.set_aside:
            raise InvariantBroken(decision.set_aside[0].message)
        binds = [bind for gang in decision.plan.binds for bind in gang.binds]
        if not binds:
            return placed
        for bind in binds:
            pod = cache.find_pod(bind.uid)
            if pod is None:
                raise InvariantBroken(f"{bind.key} was placed and does not exist")
            cache.assume_binding(pod, bind.node, bind.slots)
            placed.add(bind.key.name)


def _name(index: int) -> str:
    return f"pod-{index:06d}"
