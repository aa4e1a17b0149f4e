"""Keeps the status of PodDisruptionBudgets: healthy pods, and disruptions that are allowed.

The number of expected pods comes from the scale of the controllers that own the pods.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from gpusched.base.classes import frozen
from gpusched.base.clock import Clock
from gpusched.base.errors import GpuschedError
from gpusched.devcluster.apimachinery.selectors import label_selector_matches
from gpusched.devcluster.apimachinery.times import parse_time
from gpusched.devcluster.apiserver.client.local_client import LocalClient, Obj, WatchItem
from gpusched.devcluster.apiserver.client.workqueue import WorkQueue, serve_queue
from gpusched.devcluster.apiserver.writing.scale import paths_of, scale_of
from gpusched.devcluster.controllers import pod_state
from gpusched.devcluster.controllers.deployments.rollout_sizes import int_or_percent
from gpusched.devcluster.registry.policy.disruption_budgets import with_condition


class UnknownScale(GpuschedError):
    """The number of pods that a controller expects is unknown."""


@frozen
class ExpectedPods:
    """How many pods the controllers of some pods want, and how many of these have none."""

    count: int
    unmanaged: int


def expected_pods(client: LocalClient, pods: Sequence[Obj]) -> ExpectedPods:
    """Add up the scales of all controllers of the pods.

    Raises:
        UnknownScale: a controller is missing or has no scale; the text tells which.
    """
    scales: dict[str, int] = {}
    unmanaged = 0
    for pod in pods:
        holder = pod_state.controller_of(pod)
        if holder is None:
            unmanaged += 1
            continue
        if holder.get("uid") in scales:
            continue
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        found = _deployment_of(client, holder, namespace) or _scale_of(client, holder, namespace)
        if found is None:
            raise UnknownScale(f'found no controllers for pod "{name}"')
        uid, count = found
        scales[uid] = count
    return ExpectedPods(sum(scales.values()), unmanaged)


def _deployment_of(client: LocalClient, holder: Obj, namespace: str) -> tuple[str, int] | None:
    """The scale of the Deployment above a replica set; None when it is not such a chain."""
    if (holder.get("kind"), _group(holder)) != ("ReplicaSet", "apps"):
        return None
    owner = client.get("replicasets.apps", namespace, holder.get("name", ""))
    if owner is None or owner["metadata"]["uid"] != holder.get("uid"):
        return None
    above = pod_state.controller_of(owner)
    if above is None or (above.get("kind"), _group(above)) != ("Deployment", "apps"):
        return None
    found = client.get("deployments.apps", namespace, above.get("name", ""))
    if found is None or found["metadata"]["uid"] != above.get("uid"):
        return None
    return found["metadata"]["uid"], int(found["spec"]["replicas"])


def _scale_of(client: LocalClient, holder: Obj, namespace: str) -> tuple[str, int] | None:
    version, kind = str(holder.get("apiVersion", "")), str(holder.get("kind", ""))
    resource = client.kind_of(version, kind)
    if resource is None:
        raise UnknownScale(f'no matches for kind "{kind}" in version "{version}"')
    if not resource.has("scale"):
        raise UnknownScale(f"{resource.qualified} does not implement the scale subresource")
    found = client.get(resource.qualified, namespace, holder.get("name", ""))
    if found is None or found["metadata"]["uid"] != holder.get("uid"):
        return None
    scale = scale_of(found, paths_of(resource))
    return found["metadata"]["uid"], int(scale["spec"].get("replicas", 0))


def _group(reference: Obj) -> str:
    return str(reference.get("apiVersion", "")).rpartition("/")[0]


_PDBS: Final = "poddisruptionbudgets.policy"
EVICTION_FORGOTTEN_S: Final = 120.0
"""Seconds for which an eviction counts that was granted but not carried out."""

_UNMANAGED: Final = (
    "Pods selected by this PodDisruptionBudget (selector: {}) were found to be unmanaged. As a "
    "result, the status of the PDB cannot be calculated correctly, which may result in undefined "
    'behavior. To account for these pods please set ".spec.minAvailable" field of the PDB to an '
    "integer value."
)
_CROWD: Final = 500
_GATHER_S_PER_POD: Final = 5e-6
"""In namespaces with more pods than a crowd, changes are counted together within a while that
grows with the pods: a count reads the whole namespace."""


def budget_status(
    budget: Obj, pods: Sequence[Obj], expected: int, *, now: float
) -> tuple[Obj, float | None]:
    """The status of a budget over the pods its selector matches, finished ones included.

    Args:
        budget: as stored.
        pods: those that it selects.
        expected: how many pods their controllers want, for budgets that ask in shares.
        now: epoch seconds.

    Returns:
        The status, and the seconds until a granted eviction is forgotten (None: none is open).
    """
    before = budget.get("status") or {}
    open_evictions, again = _open_evictions(before, pods, now)
    healthy = sum(
        pod_state.is_ready(pod)
        and not pod_state.is_deleting(pod)
        and pod["metadata"]["name"] not in open_evictions
        for pod in pods
    )
    wanted, desired = _bounds(budget["spec"], len(pods), expected)
    allowed = max(healthy - desired, 0) if wanted else 0
    fresh: Obj = {
        "observedGeneration": budget["metadata"].get("generation", 0),
        "disruptionsAllowed": allowed,
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "expectedPods": wanted,
    }
    if open_evictions:
        fresh["disruptedPods"] = open_evictions
    fresh["conditions"] = with_condition(before.get("conditions"), fresh, now=now)
    return fresh, again


def unknown_budget_status(budget: Obj, why: str, *, now: float) -> Obj:
    """The status of a budget whose numbers cannot be known: nothing may be lost until they are."""
    before = budget.get("status") or {}
    fresh = {**before, "disruptionsAllowed": 0}
    fresh["conditions"] = with_condition(before.get("conditions"), fresh, now=now, why=why)
    return fresh


def asks_in_shares(spec: Obj) -> bool:
    """Tell whether the scale of the pods' controllers matters to a budget."""
    return spec.get("maxUnavailable") is not None or isinstance(spec.get("minAvailable"), str)


def _bounds(spec: Obj, present: int, expected: int) -> tuple[int, int]:
    """How many pods there should be, and how many of them healthy."""
    most, least = spec.get("maxUnavailable"), spec.get("minAvailable")
    if most is not None:
        return expected, max(expected - int_or_percent(most, expected, up=True), 0)
    if isinstance(least, str):
        return expected, int_or_percent(least, expected, up=True)
    return (present, int(least)) if least is not None else (0, 0)


def _open_evictions(
    before: Obj, pods: Sequence[Obj], now: float
) -> tuple[dict[str, str], float | None]:
    waiting = {p["metadata"]["name"] for p in pods if not pod_state.is_deleting(p)}
    left = {
        name: parse_time(since) + EVICTION_FORGOTTEN_S - now
        for name, since in (before.get("disruptedPods") or {}).items()
        if name in waiting
    }
    kept = {name: before["disruptedPods"][name] for name, seconds in left.items() if seconds > 0}
    return kept, min((left[name] for name in kept), default=None)


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
        """Watch and sync until the task is cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch_budgets())
            group.create_task(self._watch_pods())
            group.create_task(serve_queue(self._queue, self.sync, name="disruption controller"))

    async def _watch_budgets(self) -> None:
        async for item in self._client.watch(_PDBS):
            metadata = item.object["metadata"]
            namespace, name = metadata["namespace"], metadata["name"]
            selectors = self._selectors.setdefault(namespace, {})
            if item.type == "DELETED":
                selectors.pop(name, None)
            else:
                selectors[name] = item.object["spec"].get("selector")
                self._queue.add((namespace, name))

    async def _watch_pods(self) -> None:
        await self._client.follow("pods", self._see_pod)

    def _see_pod(self, item: WatchItem) -> None:
        metadata = item.object["metadata"]
        pods = self._pods.setdefault(metadata["namespace"], {})
        if item.type == "DELETED":
            pods.pop(metadata["uid"], None)
        else:
            pods[metadata["uid"]] = item.object
        gather_s = _GATHER_S_PER_POD * len(pods) if len(pods) > _CROWD else 0.0
        for name, selector in self._selectors.get(metadata["namespace"], {}).items():
            if any(_selects(selector, pod) for pod in (item.object, item.previous)):
                self._queue.add_after((metadata["namespace"], name), gather_s)

    def sync(self, key: tuple[str, str]) -> None:
        """Write one budget's status when it changed."""
        namespace, name = key
        budget = self._client.get(_PDBS, namespace, name)
        if budget is None:
            return
        selector = budget["spec"].get("selector")
        pods = [p for p in self._pods.get(namespace, {}).values() if _selects(selector, p)]
        now = self._clock.now()
        if not pods:
            self._event(budget, "NoPods", "No matching pods found", "Normal")
        try:
            expected = self._expected(budget, pods)
        except UnknownScale as e:
            why = f"Failed to calculate the number of expected pods: {e}"
            self._event(budget, "CalculateExpectedPodCountFailed", why, "Warning")
            fresh, again = unknown_budget_status(budget, str(e), now=now), None
        else:
            fresh, again = budget_status(budget, pods, expected, now=now)
        if again is not None:
            self._queue.add_after(key, again)
        if fresh != budget.get("status"):
            self._client.update(_PDBS, {**budget, "status": fresh}, "status")

    def _expected(self, budget: Obj, pods: Sequence[Obj]) -> int:
        if not asks_in_shares(budget["spec"]):
            return len(pods)
        found = expected_pods(self._client, pods)
        if found.unmanaged:
            message = _UNMANAGED.format(_go_selector(budget["spec"].get("selector")))
            self._event(budget, "UnmanagedPods", message, "Warning")
        return found.count

    def _event(self, budget: Obj, reason: str, message: str, type_: str) -> None:
        self._client.event(budget, reason, message, type_, component="controllermanager")


def _go_selector(selector: Obj | None) -> str:
    """A selector as the controller's events print it."""
    if selector is None:
        return "nil"
    labels = "".join(f"{k}: {v}," for k, v in sorted((selector.get("matchLabels") or {}).items()))
    rules = "".join(
        f"LabelSelectorRequirement{{Key:{r['key']},Operator:{r['operator']},"
        f"Values:[{' '.join(r.get('values') or ())}],}},"
        for r in selector.get("matchExpressions") or ()
    )
    return (
        f"&LabelSelector{{MatchLabels:map[string]string{{{labels}}},"
        f"MatchExpressions:[]LabelSelectorRequirement{{{rules}}},}}"
    )


def _selects(selector: Obj | None, pod: Obj | None) -> bool:
    if pod is None:
        return False
    return label_selector_matches(selector, pod["metadata"].get("labels") or {})
