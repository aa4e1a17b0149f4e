"""ResourceQuota admission: an object that would exceed a quota is refused, an admitted one counted."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Final

from gpusched.cel.quantities import parse_amount
from gpusched.devcluster.apimachinery import status
from gpusched.devcluster.apiserver.server_state import ServerState
from gpusched.devcluster.registry.kinds import Resource
from gpusched.devcluster.registry.policy.quota_usage import (
    object_usage,
    pod_usage,
    print_amount,
    quota_covers,
)

Obj = dict[str, Any]

_MUST_SPECIFY: Final = (
    "cpu",
    "limits.cpu",
    "limits.memory",
    "memory",
    "requests.cpu",
    "requests.memory",
)
_UNCOUNTED: Final = frozenset({"events"})


def charge_quotas(core: ServerState, resource: Resource, obj: Obj, *, dry_run: bool) -> None:
    """Refuse what would exceed a quota of the namespace, and count what is admitted."""
    if not resource.namespaced or resource.storage in _UNCOUNTED:
        return
    meta = obj["metadata"]
    quotas = core.store.collection("resourcequotas")
    raised: list[tuple[str, Obj]] = []
    usage: dict[str, Fraction] | None = None
    for key, stored in quotas.scan(meta["namespace"]):
        pod = obj if resource.storage == "pods" else None
        if not quota_covers(stored.obj, pod):
            continue
        if usage is None:
            usage = object_usage(resource.storage, obj) if pod is None else pod_usage(pod)
        try:
            new = _raised(stored.obj, usage, pod=pod)
        except _QuotaExceeded as why:
            name = meta.get("name", "")
            raise status.forbidden(resource.plural, resource.group, name, why=str(why)) from None
        if new is not None:
            raised.append((key, new))
    if not dry_run:
        for key, quota in raised:
            quotas.write(key, quota)


class _QuotaExceeded(Exception):  # it never leaves this module
    """Why a quota does not admit an object."""


def _raised(quota: Obj, usage: Mapping[str, Fraction], *, pod: Obj | None) -> Obj | None:
    """Return the quota with the usage added, None when it does not count such objects."""
    name = quota["metadata"]["name"]
    hard: Obj = quota["spec"].get("hard") or {}
    counts = quota.get("status") or {}
    known: Obj = counts.get("used") or {}
    if pod is not None and (missing := _unspecified(pod, hard)):
        raise _QuotaExceeded(f"failed quota: {name}: must specify {missing}")
    asked = {key: value for key, value in usage.items() if key in hard}
    if not asked:
        return None
    if unknown := sorted(key for key in asked if key not in known):
        raise _QuotaExceeded(f"status unknown for quota: {name}, resources: {','.join(unknown)}")
    total = {key: parse_amount(known[key]) + asked[key] for key in asked}
    over = sorted(key for key in total if asked[key] and total[key] > parse_amount(hard[key]))
    if over:
        raise _QuotaExceeded(
            f"exceeded quota: {name}, "
            f"requested: {_amounts({k: print_amount(asked[k], k) for k in over})}, "
            f"used: {_amounts({k: known[k] for k in over})}, "
            f"limited: {_amounts({k: hard[k] for k in over})}"
        )
    used = {**known, **{key: print_amount(value, key) for key, value in total.items()}}
    return {**quota, "metadata": dict(quota["metadata"]), "status": {**counts, "used": used}}


def _unspecified(pod: Obj, hard: Obj) -> str:
    """Which limited amounts containers do not name, and which containers these are."""
    spec = pod["spec"]
    if spec.get("resources"):
        return ""
    parts = []
    for name in _MUST_SPECIFY:
        if name not in hard:
            continue
        part, _, resource = name.rpartition(".")
        silent = sorted(
            str(container.get("name", ""))
            for kind in ("containers", "initContainers")
            for container in spec.get(kind) or ()
            if resource not in ((container.get("resources") or {}).get(part or "requests") or {})
        )
        if silent:
            parts.append(f"{name} for: {','.join(silent)}")
    return "; ".join(parts)


def _amounts(values: Obj) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(values.items()))
