"""Keeps the status of PodDisruptionBudgets: how many healthy pods there are and may be lost."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from gpusched.clock import Clock
from gpusched.devcluster.controllers import pod_state
from gpusched.devcluster.controllers.workqueue import WorkQueue, serve
from gpusched.devcluster.core import parse_time, rfc3339
from gpusched.devcluster.local_client import LocalClient, Obj, WatchItem
from gpusched.devcluster.selectors import label_selector_matches
from gpusched.devcluster.status import qualified

_PDBS: Final = "poddisruptionbudgets.policy"
EVICTION_FORGOTTEN_S: Final = 120.0
"""An eviction that was granted but not carried out counts for so long."""

_GATHER_S: Final = 0.1
"""Changes of pods within so long are counted together: a count reads a whole namespace."""


def status(budget: Obj, pods: Sequence[Obj], *, now: float) -> tuple[Obj, float | None]:
    """The status of a budget over the pods its selector matches, finished ones included.

    Returns:
        The status, and the seconds until a granted eviction is forgotten (None: none is open).
    """
    before = budget.get("status") or {}
    why = _unknowable(budget["spec"], pods)
    if why:  # nothing may be lost until the numbers are known again
        condition = _condition(budget, 0, why, now=now)
        return {**before, "disruptionsAllowed": 0, "conditions": [condition]}, None
    open_evictions, again = _open_evictions(before, pods, now)
    healthy = sum(
        pod_state.ready(pod)
        and not pod_state.deleting(pod)
        and pod["metadata"]["name"] not in open_evictions
        for pod in pods
    )
    expected, desired = _expectation(budget["spec"], pods)
    allowed = max(healthy - desired, 0) if expected else 0
    fresh: Obj = {
        "observedGeneration": budget["metadata"].get("generation", 0),
        "disruptionsAllowed": allowed,
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "expectedPods": expected,
    }
    if open_evictions:
        fresh["disruptedPods"] = open_evictions
    fresh["conditions"] = [_condition(budget, allowed, "", now=now)]
    return fresh, again


def _expectation(spec: Obj, pods: Sequence[Obj]) -> tuple[int, int]:
    """How many pods there should be, and how many of them healthy.

    Shares, and maxUnavailable, are taken of the scale of controllers; pods without one do not
    count, and no built-in kind served here has a scale.
    """
    least = spec.get("minAvailable", 1)
    if spec.get("maxUnavailable") is not None or isinstance(least, str):
        return 0, 0
    return len(pods), int(least)


def _open_evictions(
    before: Obj, pods: Sequence[Obj], now: float
) -> tuple[dict[str, str], float | None]:
    waiting = {p["metadata"]["name"] for p in pods if not pod_state.deleting(p)}
    left = {
        name: parse_time(since) + EVICTION_FORGOTTEN_S - now
        for name, since in (before.get("disruptedPods") or {}).items()
        if name in waiting
    }
    kept = {name: before["disruptedPods"][name] for name, seconds in left.items() if seconds > 0}
    return kept, min((left[name] for name in kept), default=None)


def _unknowable(spec: Obj, pods: Sequence[Obj]) -> str:
    """Why the expected number of pods cannot be known, empty when it can."""
    if spec.get("maxUnavailable") is None and not isinstance(spec.get("minAvailable"), str):
        return ""
    for pod in pods:
        owner = pod_state.controller_of(pod)
        if owner is not None:  # no kind served here has a scale that could be asked
            group = str(owner.get("apiVersion", "")).rpartition("/")[0]
            kind = f"{str(owner.get('kind', '')).lower()}s"
            return f"{qualified(kind, group)} does not implement the scale subresource"
    return ""


def _condition(budget: Obj, allowed: int, why: str, *, now: float) -> Obj:
    fresh: Obj = {
        "type": "DisruptionAllowed",
        "status": "True" if allowed else "False",
        "observedGeneration": budget["metadata"].get("generation", 0),
        "lastTransitionTime": rfc3339(now),
        "reason": "SyncFailed" if why else "SufficientPods" if allowed else "InsufficientPods",
        "message": why,
    }
    for have in (budget.get("status") or {}).get("conditions") or ():
        if (have.get("type"), have.get("status")) == (fresh["type"], fresh["status"]):
            fresh["lastTransitionTime"] = have.get("lastTransitionTime") or rfc3339(now)
    return fresh


class DisruptionController:
    """Recounts a budget when it or one of its pods changes.

    Args:
        client: the cluster.
        clock: time of conditions and of forgotten evictions.
    """

    def __init__(self, client: LocalClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._queue: WorkQueue[tuple[str, str]] = WorkQueue(clock)
        self._pods: dict[str, dict[str, Obj]] = {}
        self._selectors: dict[str, dict[str, Obj | None]] = {}

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch_budgets())
            group.create_task(self._watch_pods())
            group.create_task(serve(self._queue, self.sync, name="disruption controller"))

    async def _watch_budgets(self) -> None:
        async for item in self._client.watch(_PDBS):
            metadata = item.object["metadata"]
            namespace, name = metadata["namespace"], metadata["name"]
            selectors = self._selectors.setdefault(namespace, {})
            if item.type == "DELETED":
                selectors.pop(name, None)
            else:
                selectors[name] = item.object["spec"].get("selector")
                self._queue.soon((namespace, name))

    async def _watch_pods(self) -> None:
        async for item in self._client.watch("pods"):
            self._see_pod(item)

    def _see_pod(self, item: WatchItem) -> None:
        metadata = item.object["metadata"]
        pods = self._pods.setdefault(metadata["namespace"], {})
        if item.type == "DELETED":
            pods.pop(metadata["uid"], None)
        else:
            pods[metadata["uid"]] = item.object
        for name, selector in self._selectors.get(metadata["namespace"], {}).items():
            if any(_selects(selector, pod) for pod in (item.object, item.previous)):
                self._queue.by((metadata["namespace"], name), _GATHER_S)

    def sync(self, key: tuple[str, str]) -> None:
        """Write one budget's status when it changed."""
        namespace, name = key
        budget = self._client.get(_PDBS, namespace, name)
        if budget is None:
            return
        selector = budget["spec"].get("selector")
        pods = [p for p in self._pods.get(namespace, {}).values() if _selects(selector, p)]
        fresh, again = status(budget, pods, now=self._clock.now())
        if again is not None:
            self._queue.by(key, again)
        if fresh != budget.get("status"):
            self._client.update(_PDBS, {**budget, "status": fresh}, "status")


def _selects(selector: Obj | None, pod: Obj | None) -> bool:
    if pod is None:
        return False
    return label_selector_matches(selector, pod["metadata"].get("labels") or {})
