"""What objects use of a quota, under the names a quota may use; shared by admission and count."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any, Final

from gpusched.cel import quantities

Obj = dict[str, Any]

_BARE: Final = frozenset({"cpu", "memory", "ephemeral-storage"})
_HUGE: Final = "hugepages-"
_ALIASED: Final = frozenset(
    {
        "configmaps",
        "persistentvolumeclaims",
        "replicationcontrollers",
        "resourcequotas",
        "secrets",
        "services",
    }
)
"""Kinds of the core that a quota may also name without ``count/``."""
_ENDED: Final = frozenset({"Succeeded", "Failed"})


def pod_usage(pod: Obj) -> dict[str, Fraction]:
    """What one pod uses, under the names a quota may use; a finished pod only counts as object."""
    usage = {"count/pods": Fraction(1)}
    if pod["status"].get("phase") in _ENDED:
        return usage
    usage["pods"] = Fraction(1)
    for field in ("requests", "limits"):
        for name, amount in _effective(pod["spec"], field).items():
            if field == "requests" or name in _BARE:
                usage[f"{field}.{name}"] = amount
            if field == "requests" and (name in _BARE or name.startswith(_HUGE)):
                usage[name] = amount
    return usage


def object_usage(storage: str, obj: Obj) -> dict[str, Fraction]:
    """What an object that is no pod uses; ``storage`` is its plural with its group."""
    usage = {f"count/{storage}": Fraction(1)}
    if storage in _ALIASED:
        usage[storage] = Fraction(1)
    spec = obj.get("spec") or {}
    if storage == "services":
        ports = Fraction(len(spec.get("ports") or ()))
        balanced = spec.get("type") == "LoadBalancer"
        exposed = balanced or spec.get("type") == "NodePort"
        usage["services.loadbalancers"] = Fraction(int(balanced))
        usage["services.nodeports"] = ports if exposed else Fraction(0)
    if storage == "persistentvolumeclaims":
        asked = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
        usage["requests.storage"] = quantities.parse_quantity(asked) if asked else Fraction(0)
    return usage


def counted_storage(name: str) -> str | None:
    """The plural with its group of the objects that a quota's name counts, None for amounts."""
    if name.startswith("count/"):
        return name.removeprefix("count/")
    if name in {"services.nodeports", "services.loadbalancers"}:
        return "services"
    if name == "requests.storage":
        return "persistentvolumeclaims"
    return name if name in _ALIASED else None


def is_counted_amount(name: str) -> bool:
    """Tell whether anything counts a pod's amount of that name."""
    if name in {"pods", *_BARE} or name.startswith(_HUGE):
        return True
    part, _, resource = name.partition(".")
    return part == "requests" or (part == "limits" and resource in _BARE)


def quota_covers(quota: Obj, pod: Obj | None) -> bool:
    """Tell whether a quota's scopes include a pod; only quotas without scopes include others."""
    spec = quota.get("spec") or {}
    rules = [{"scopeName": scope, "operator": "Exists"} for scope in spec.get("scopes") or ()]
    rules += (spec.get("scopeSelector") or {}).get("matchExpressions") or ()
    if pod is None:
        return not rules
    return all(_in_scope(rule, pod) for rule in rules)


def _in_scope(rule: Obj, pod: Obj) -> bool:
    spec = pod["spec"]
    limited = spec.get("activeDeadlineSeconds") is not None
    best_effort: bool = pod["status"].get("qosClass") == "BestEffort"
    match rule["scopeName"]:
        case "Terminating":
            return limited
        case "NotTerminating":
            return not limited
        case "BestEffort":
            return best_effort
        case "NotBestEffort":
            return not best_effort
        case "PriorityClass":
            return _has_class(rule, spec.get("priorityClassName") or "")
        case "CrossNamespacePodAffinity":
            return _looks_elsewhere(spec.get("affinity") or {})
    return False


def _has_class(rule: Obj, name: str) -> bool:
    named = name in (rule.get("values") or ())
    return {
        "In": bool(name) and named,
        "NotIn": not named,
        "Exists": bool(name),
        "DoesNotExist": not name,
    }.get(rule.get("operator") or "", False)


def _looks_elsewhere(affinity: Obj) -> bool:
    for key in ("podAffinity", "podAntiAffinity"):
        part = affinity.get(key) or {}
        terms = [*(part.get("requiredDuringSchedulingIgnoredDuringExecution") or ())]
        terms += [
            weighted.get("podAffinityTerm") or {}
            for weighted in part.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
        ]
        if any(t.get("namespaces") or t.get("namespaceSelector") is not None for t in terms):
            return True
    return False


def _effective(spec: Obj, field: str) -> dict[str, Fraction]:
    """Containers together, or the largest need while init containers run; plus overhead."""
    total: dict[str, Fraction] = {}
    for container in spec.get("containers") or ():
        add_amounts(total, _amounts(container, field))
    stays: dict[str, Fraction] = {}
    peak: dict[str, Fraction] = {}
    for container in spec.get("initContainers") or ():
        own = _amounts(container, field)
        if container.get("restartPolicy") == "Always":
            add_amounts(stays, own)
            own = {}
        _raise(peak, _sum(stays, own))
    add_amounts(total, stays)
    _raise(total, peak)
    overhead = {k: quantities.parse_quantity(v) for k, v in (spec.get("overhead") or {}).items()}
    add_amounts(total, {k: v for k, v in overhead.items() if field == "requests" or k in total})
    return total


def _amounts(container: Obj, field: str) -> dict[str, Fraction]:
    named = (container.get("resources") or {}).get(field) or {}
    return {name: quantities.parse_quantity(amount) for name, amount in named.items()}


def add_amounts(total: dict[str, Fraction], more: dict[str, Fraction]) -> None:
    """Add amounts to a running total."""
    for name, amount in more.items():
        total[name] = total.get(name, Fraction(0)) + amount


def _sum(a: dict[str, Fraction], b: dict[str, Fraction]) -> dict[str, Fraction]:
    total = dict(a)
    add_amounts(total, b)
    return total


def _raise(total: dict[str, Fraction], floor: dict[str, Fraction]) -> None:
    for name, amount in floor.items():
        total[name] = max(total.get(name, amount), amount)


def printed_usage(hard: Iterable[str], usage: dict[str, Fraction]) -> dict[str, str]:
    """The amounts of the limited names, printed as the API does."""
    return {name: print_amount(usage.get(name, Fraction(0)), name) for name in sorted(hard)}


def print_amount(amount: Fraction, name: str) -> str:
    """An exact amount as a canonical quantity; memory in powers of 1024."""
    if name.endswith(("memory", "storage")) and amount.denominator == 1:
        return quantities.canonical_quantity(_binary(int(amount)))
    if amount.denominator == 1:
        return quantities.canonical_quantity(str(int(amount)))
    return quantities.canonical_quantity(f"{int(amount * 10**9)}n")


def _binary(amount: int) -> str:
    for suffix, power in (("Ei", 60), ("Pi", 50), ("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10)):
        if amount and amount % (1 << power) == 0:
            return f"{amount >> power}{suffix}"
    return str(amount)
