"""Eviction: a deletion that asks the disruption budgets first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import attrs

from gpusched.devcluster.apimachinery import status
from gpusched.devcluster.apimachinery.selectors import label_selector_matches
from gpusched.devcluster.apiserver.server_state import ServerState
from gpusched.devcluster.apiserver.writing.deletion import DeleteOptions, delete_object
from gpusched.devcluster.registry.policy.disruption_budgets import with_condition
from gpusched.devcluster.storage.store import Stored

Obj = dict[str, Any]


_TWO_BUDGETS: Final = (
    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not "
    "support."
)
_DISRUPTED_MAX: Final = 2000
"""Evictions of one budget that may be under way at once."""
_RETRY_S: Final = 10


def evict_pod(
    core: ServerState,
    namespace: str,
    name: str,
    *,
    body: Obj,
    dry_run: bool,
    admit: Callable[[], None],
) -> Obj:
    """Evict a pod and return the answer, a Status.

    Two budgets on one pod are answered, not raised: a Failure of code 500 in an answer that is
    otherwise a success. ``admit`` refuses an Eviction before the pod is looked at. Raises StatusError 403, 404, 409, 429 when a budget forbids it.
    """
    options = DeleteOptions.from_body(
        body.get("deleteOptions"), {"dryRun": "All"} if dry_run else {}
    )
    admit()
    stored = core.store.collection("pods").get(f"{namespace}/{name}")
    if stored is None:
        raise status.not_found("pods", "", name)
    pod = stored.obj
    phase = pod["status"].get("phase")
    free = phase in {"Pending", "Succeeded", "Failed"} or pod["metadata"].get("deletionTimestamp")
    if not free:
        budgets = _budgets(core, namespace, pod)
        if len(budgets) > 1:
            return {**status.success(), "status": "Failure", "message": _TWO_BUDGETS, "code": 500}
        for key, budget in budgets:
            _charge(core, key, budget, pod=pod, dry_run=options.dry_run)
    resource = core.registry.named("pods")
    if not options.dry_run:
        # The mark is a write of its own, so what was asked of uid and version is answered before.
        _check_preconditions(pod, options)
        stored = _mark_disrupted(core, stored)
        options = attrs.evolve(options, uid="", version="")
    delete_object(core, resource, stored, options=options)
    return status.success()


def _check_preconditions(pod: Obj, options: DeleteOptions) -> None:
    meta = pod["metadata"]
    for what, wanted, have in (
        ("UID", options.uid, meta["uid"]),
        ("ResourceVersion", options.version, meta["resourceVersion"]),
    ):
        if wanted and wanted != have:
            why = f"the {what} in the precondition ({wanted}) does not match the {what} in record ({have})"
            raise status.conflict("Pod", "", meta["name"], why=why)


def _budgets(core: ServerState, namespace: str, pod: Obj) -> list[tuple[str, Obj]]:
    """Storage keys and states of the budgets that a pod falls under."""
    labels = pod["metadata"].get("labels") or {}
    found = core.store.collection("poddisruptionbudgets.policy").scan(namespace)
    return [
        (key, stored.obj)
        for key, stored in found
        if label_selector_matches(stored.obj["spec"].get("selector"), labels)
    ]


def _charge(core: ServerState, key: str, budget: Obj, *, pod: Obj, dry_run: bool) -> None:
    """Take one disruption off a budget; raises StatusError when it has none."""
    counts = budget.get("status") or {}
    if not _ready(pod) and _spares_unready(budget, counts):
        return
    name = budget["metadata"]["name"]
    if counts.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
        why = f"The disruption budget {name} is still being processed by the server."
        raise _refused(why, retry_s=_RETRY_S)
    allowed = counts.get("disruptionsAllowed", 0)
    if allowed < 0:
        raise _forbidden(name, "pdb disruptions allowed is negative")
    if len(counts.get("disruptedPods") or ()) > _DISRUPTED_MAX:
        too_many = "too many evictions not confirmed by PDB controller"
        raise _forbidden(name, f"DisruptedPods map too big - {too_many}")
    if not allowed:
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
    left = {**counts, "disruptionsAllowed": allowed - 1, "disruptedPods": disrupted}
    if allowed == 1:
        left["conditions"] = with_condition(counts.get("conditions"), left, now=core.clock.now())
    changed = {**budget, "metadata": dict(budget["metadata"]), "status": left}
    core.store.collection("poddisruptionbudgets.policy").write(key, changed)


def _refused(why: str, *, retry_s: int = 0) -> status.StatusError:
    details: Obj = {"causes": [{"reason": "DisruptionBudget", "message": why}]}
    if retry_s:
        details["retryAfterSeconds"] = retry_s
    return status.failure(
        429,
        "TooManyRequests",
        "Cannot evict pod as it would violate the pod's disruption budget.",
        details=details,
    )


def _forbidden(name: str, why: str) -> status.StatusError:
    return status.forbidden("poddisruptionbudget", "policy", name, why=why)


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


def _mark_disrupted(core: ServerState, stored: Stored) -> Stored:
    pod = stored.obj
    meta, conditions = pod["metadata"], list(pod["status"].get("conditions") or ())
    mark: Obj = {
        "type": "DisruptionTarget",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": core.time_text(),
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
    }
    at = next((i for i, c in enumerate(conditions) if c.get("type") == mark["type"]), None)
    if at is None:
        conditions.append(mark)
    else:
        if conditions[at].get("status") == "True":
            mark["lastTransitionTime"] = conditions[at].get("lastTransitionTime")
        conditions[at] = mark
    if conditions == pod["status"].get("conditions"):
        return stored
    status_ = {**pod["status"], "conditions": conditions}
    new = {**pod, "metadata": dict(meta), "status": status_}
    return core.store.collection("pods").write(f"{meta['namespace']}/{meta['name']}", new)
