"""Eviction: a deletion that asks the disruption budgets first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpusched.devcluster import status
from gpusched.devcluster.deletion import DeleteOptions, delete
from gpusched.devcluster.selectors import label_selector_matches
from gpusched.devcluster.store import Stored

if TYPE_CHECKING:
    from gpusched.devcluster.core import Core

Obj = dict[str, Any]


def evict(core: Core, namespace: str, name: str, *, body: Obj, dry_run: bool) -> None:
    """Evict a pod; raises StatusError 404, 409, 429 when a budget forbids it.

    Two budgets on one pod are the API server's own refusal, code 500.
    """
    stored = core.store.collection("pods").get(f"{namespace}/{name}")
    if stored is None:
        raise status.not_found("pods", "", name)
    options = DeleteOptions.from_body(
        body.get("deleteOptions"), {"dryRun": "All"} if dry_run else {}
    )
    pod = stored.obj
    phase = pod["status"].get("phase")
    free = phase in {"Pending", "Succeeded", "Failed"} or pod["metadata"].get("deletionTimestamp")
    if not free:
        _charge_budget(core, namespace, pod, dry_run=options.dry_run)
    resource = core.registry.named("pods")
    if not options.dry_run and not pod["metadata"].get("deletionTimestamp"):
        stored = _mark_disrupted(core, stored)
    delete(core, resource, stored, options=options)


def _charge_budget(core: Core, namespace: str, pod: Obj, *, dry_run: bool) -> None:
    budgets = core.store.collection("poddisruptionbudgets.policy")
    labels = pod["metadata"].get("labels") or {}
    found = [
        (key, stored)
        for key, stored in budgets.scan(namespace)
        if label_selector_matches(stored.obj["spec"].get("selector"), labels)
    ]
    if not found:
        return
    if len(found) > 1:
        raise status.failure(
            500,
            "InternalError",
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does "
            "not support.",
        )
    key, stored = found[0]
    budget = stored.obj
    counts = budget.get("status") or {}
    if not _ready(pod) and _spares_unready(budget, counts):
        return
    name = budget["metadata"]["name"]
    if counts.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
        raise _refused(f"The disruption budget {name} is still being processed by the server.")
    allowed = counts.get("disruptionsAllowed", 0)
    if allowed <= 0:
        raise _refused(
            f"The disruption budget {name} needs {counts.get('desiredHealthy', 0)} healthy pods and "
            f"has {counts.get('currentHealthy', 0)} currently"
        )
    if dry_run:
        return
    disrupted = {
        **(counts.get("disruptedPods") or {}),
        pod["metadata"]["name"]: core.time_text(),
    }
    new_counts = {**counts, "disruptionsAllowed": allowed - 1, "disruptedPods": disrupted}
    budgets.put(key, {**budget, "metadata": dict(budget["metadata"]), "status": new_counts})


def _refused(why: str) -> status.StatusError:
    return status.failure(
        429,
        "TooManyRequests",
        "Cannot evict pod as it would violate the pod's disruption budget.",
        details={"causes": [{"reason": "DisruptionBudget", "message": why}]},
    )


def _ready(pod: Obj) -> bool:
    return any(
        c["type"] == "Ready" and c["status"] == "True"
        for c in pod["status"].get("conditions") or ()
    )


def _spares_unready(budget: Obj, counts: Obj) -> bool:
    """Tell whether evicting an unready pod costs nothing under the budget's policy."""
    if budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    desired = counts.get("desiredHealthy", 0)
    return bool(desired > 0 and counts.get("currentHealthy", 0) >= desired)


def _mark_disrupted(core: Core, stored: Stored) -> Stored:
    pod = stored.obj
    conditions = [
        c for c in pod["status"].get("conditions") or () if c["type"] != "DisruptionTarget"
    ]
    conditions.append(
        {
            "type": "DisruptionTarget",
            "status": "True",
            "lastProbeTime": None,
            "lastTransitionTime": core.time_text(),
            "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
        }
    )
    meta = pod["metadata"]
    new = {
        **pod,
        "metadata": dict(meta),
        "status": {**pod["status"], "conditions": conditions},
    }
    return core.store.collection("pods").put(f"{meta['namespace']}/{meta['name']}", new)
