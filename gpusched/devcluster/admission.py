"""What the server's own admission plug-ins do: namespaces, priority, tolerations, node taint."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

from gpusched.devcluster import limit_ranges, status
from gpusched.devcluster.amounts import amount
from gpusched.devcluster.strategies.pod_defaults import add_default_tolerations
from gpusched.devcluster.strategies.quota_usage import pod_usage, printed

if TYPE_CHECKING:
    from gpusched.devcluster.core import Core
    from gpusched.devcluster.kinds import Resource

Obj = dict[str, Any]

_MUST_SPECIFY: Final = frozenset(
    {
        "cpu",
        "memory",
        "requests.cpu",
        "requests.memory",
        "limits.cpu",
        "limits.memory",
    }
)
_NOT_READY: Final = "node.kubernetes.io/not-ready"


def admit_create(core: Core, resource: Resource, obj: Obj) -> None:
    """Refuse or complete a new object in place; raises StatusError 403 or 404."""
    meta = obj["metadata"]
    if resource.namespaced:
        check_namespace(core, resource, meta["namespace"], name=meta.get("name", ""))
    if resource.storage == "pods":
        limit_ranges.complete_pod(obj, limit_ranges.limited(core, resource, obj))
        _resolve_priority(core, resource, obj)
        add_default_tolerations(obj["spec"])
    elif resource.storage == "nodes":
        _taint_new_node(obj)


def check_namespace(core: Core, resource: Resource, namespace: str, *, name: str) -> None:
    """Refuse creates where the namespace is missing or on its way out."""
    found = core.store.collection("namespaces").get(namespace)
    if found is None:
        raise status.not_found("namespaces", "", namespace)
    if found.obj["metadata"].get("deletionTimestamp"):
        raise status.forbidden(
            resource.plural,
            resource.group,
            name,
            why=f"unable to create new content in namespace {namespace} "
            "because it is being terminated",
            causes=[
                {
                    "reason": "NamespaceTerminating",
                    "message": f"namespace {namespace} is being terminated",
                    "field": "metadata.namespace",
                }
            ],
        )


def _resolve_priority(core: Core, resource: Resource, obj: Obj) -> None:
    spec = obj.setdefault("spec", {})
    classes = core.store.collection("priorityclasses.scheduling.k8s.io")
    name = spec.get("priorityClassName") or ""
    chosen = classes.get(name) if name else _global_default(core)
    pod = obj["metadata"].get("name") or obj["metadata"].get("generateName", "")
    if name and chosen is None:
        why = f"no PriorityClass with name {name} was found"
        raise status.forbidden(resource.plural, "", pod, why=why)
    value = chosen.obj.get("value", 0) if chosen else 0
    policy = chosen.obj.get("preemptionPolicy") if chosen else None
    policy = policy or "PreemptLowerPriority"
    if spec.get("priority") not in {None, value}:
        why = (
            f"the integer value of priority ({spec['priority']}) must not be provided in pod spec; "
            f"priority admission controller computed {value} from the given PriorityClass name"
        )
        raise status.forbidden(resource.plural, "", pod, why=why)
    if spec.get("preemptionPolicy") not in {None, policy}:
        why = (
            f"the string value of PreemptionPolicy ({spec['preemptionPolicy']}) must not be "
            f"provided in pod spec; priority admission controller computed {policy} from the given "
            "PriorityClass name"
        )
        raise status.forbidden(resource.plural, "", pod, why=why)
    if chosen and not name:
        spec["priorityClassName"] = chosen.obj["metadata"]["name"]
    spec["priority"] = value
    spec["preemptionPolicy"] = policy


def _global_default(core: Core) -> Any:
    classes = core.store.collection("priorityclasses.scheduling.k8s.io")
    marked = [stored for _, stored in classes.scan() if stored.obj.get("globalDefault")]
    return min(marked, key=lambda stored: stored.obj.get("value", 0), default=None)


def _taint_new_node(obj: Obj) -> None:
    spec = obj.setdefault("spec", {})
    taints = spec.setdefault("taints", [])
    if not any(t.get("key") == _NOT_READY and t.get("effect") == "NoSchedule" for t in taints):
        taints.append({"key": _NOT_READY, "effect": "NoSchedule"})


def charge(core: Core, resource: Resource, obj: Obj, *, dry_run: bool) -> None:
    """Refuse what is outside limits or would exceed a quota, and count what is admitted."""
    limit_ranges.check(resource, obj, limit_ranges.limited(core, resource, obj))
    if resource.storage != "pods":
        return
    namespace, name = obj["metadata"]["namespace"], obj["metadata"].get("name", "")
    quotas = core.store.collection("resourcequotas")
    raised: list[tuple[str, Obj]] = []
    usage: dict[str, Fraction] | None = None
    for key, stored in quotas.scan(namespace):
        if usage is None:
            usage = pod_usage(obj)
        new = _raised(stored.obj, usage, pod=name)
        raised.append((key, new))
    if not dry_run:
        for key, quota in raised:
            quotas.put(key, quota)


def _raised(quota: Obj, usage: dict[str, Fraction], *, pod: str) -> Obj:
    """Return the quota with the usage added; raises StatusError 403 when it does not fit."""
    name = quota["metadata"]["name"]
    hard: Obj = quota["spec"].get("hard") or {}
    counts = quota.get("status") or {}
    known: Obj = counts.get("used") or {}
    asked = {key: amount for key, amount in usage.items() if key in hard}
    missing = sorted(key for key in hard if key in _MUST_SPECIFY and key not in usage)
    if missing:
        raise status.forbidden(
            "pods", "", pod, why=f"failed quota: {name}: must specify {','.join(missing)}"
        )
    if unknown := sorted(key for key in asked if key not in known):
        why = f"status unknown for quota: {name}, resources: {','.join(unknown)}"
        raise status.forbidden("pods", "", pod, why=why)
    total = {key: amount(known[key]) + asked[key] for key in asked}
    over = sorted(key for key in total if total[key] > amount(hard[key]))
    if over:
        why = (
            f"exceeded quota: {name}, "
            f"requested: {_amounts({k: printed(asked[k], k) for k in over})}, "
            f"used: {_amounts({k: known[k] for k in over})}, "
            f"limited: {_amounts({k: hard[k] for k in over})}"
        )
        raise status.forbidden("pods", "", pod, why=why)
    used = {**known, **{key: printed(value, key) for key, value in total.items()}}
    return {**quota, "metadata": dict(quota["metadata"]), "status": {**counts, "used": used}}


def _amounts(values: Obj) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(values.items()))
