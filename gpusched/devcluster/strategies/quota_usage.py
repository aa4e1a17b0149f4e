"""What objects use of a quota, under the names a quota may use; shared by admission and count."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any, Final

from gpusched.devcluster import quantities

Obj = dict[str, Any]

_BARE: Final = frozenset({"cpu", "memory", "ephemeral-storage"})
_ENDED: Final = frozenset({"Succeeded", "Failed"})


def pod_usage(pod: Obj) -> dict[str, Fraction]:
    """What one pod uses, under the names a quota may use; a finished pod only counts as object."""
    usage = {"count/pods": Fraction(1)}
    if pod["status"].get("phase") in _ENDED:
        return usage
    usage["pods"] = Fraction(1)
    for field in ("requests", "limits"):
        for name, amount in _effective(pod["spec"], field).items():
            usage[f"{field}.{name}"] = amount
            if field == "requests" and name in _BARE:
                usage[name] = amount
    return usage


def _effective(spec: Obj, field: str) -> dict[str, Fraction]:
    """Containers together, or the largest need while init containers run; plus overhead."""
    total: dict[str, Fraction] = {}
    for container in spec.get("containers") or ():
        add(total, _amounts(container, field))
    stays: dict[str, Fraction] = {}
    peak: dict[str, Fraction] = {}
    for container in spec.get("initContainers") or ():
        own = _amounts(container, field)
        if container.get("restartPolicy") == "Always":
            add(stays, own)
            own = {}
        _raise(peak, _sum(stays, own))
    add(total, stays)
    _raise(total, peak)
    overhead = {k: quantities.parse(v) for k, v in (spec.get("overhead") or {}).items()}
    add(total, {k: v for k, v in overhead.items() if field == "requests" or k in total})
    return total


def _amounts(container: Obj, field: str) -> dict[str, Fraction]:
    named = (container.get("resources") or {}).get(field) or {}
    return {name: quantities.parse(amount) for name, amount in named.items()}


def add(total: dict[str, Fraction], more: dict[str, Fraction]) -> None:
    """Add amounts to a running total."""
    for name, amount in more.items():
        total[name] = total.get(name, Fraction(0)) + amount


def _sum(a: dict[str, Fraction], b: dict[str, Fraction]) -> dict[str, Fraction]:
    total = dict(a)
    add(total, b)
    return total


def _raise(total: dict[str, Fraction], floor: dict[str, Fraction]) -> None:
    for name, amount in floor.items():
        total[name] = max(total.get(name, amount), amount)


def used(hard: Iterable[str], usage: dict[str, Fraction]) -> dict[str, str]:
    """The amounts of the limited names, printed as the API does."""
    return {name: printed(usage.get(name, Fraction(0)), name) for name in sorted(hard)}


def printed(amount: Fraction, name: str) -> str:
    """An exact amount as a canonical quantity; memory in powers of 1024."""
    if name.endswith(("memory", "storage")) and amount.denominator == 1:
        return quantities.canonical(_binary(int(amount)))
    if amount.denominator == 1:
        return quantities.canonical(str(int(amount)))
    return quantities.canonical(f"{int(amount * 10**9)}n")


def _binary(amount: int) -> str:
    for suffix, power in (("Ei", 60), ("Pi", 50), ("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10)):
        if amount and amount % (1 << power) == 0:
            return f"{amount >> power}{suffix}"
    return str(amount)
