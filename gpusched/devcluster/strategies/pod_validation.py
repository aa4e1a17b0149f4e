"""The subset of pod validation that clients of a scheduler meet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from gpusched.devcluster.amounts import amount, is_integer, is_negative, printed
from gpusched.devcluster.field_errors import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
)
from gpusched.devcluster.meta import key_errors, label_errors, name_errors
from gpusched.devcluster.strategies.claims import pod_claim_errors

Obj = dict[str, Any]

NATIVE: Final = ("cpu", "memory", "ephemeral-storage", "storage")
_RESTART: Final = ("Always", "OnFailure", "Never")
_DNS: Final = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_PULL: Final = ("Always", "IfNotPresent", "Never")
_TOLERATION_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_OVERCOMMIT_TEXT: Final = "Limit must be set for non overcommitable resources"


def pod_errors(obj: Obj) -> list[FieldError]:
    """Check a pod on creation."""
    spec = obj.get("spec") or {}
    errors = spec_errors(spec, "spec")
    if spec.get("schedulingGates") and spec.get("nodeName"):
        why = "cannot be set until all schedulingGates have been cleared"
        errors.append(forbidden("spec.nodeName", why))
    return errors


def spec_errors(spec: Obj, at: str) -> list[FieldError]:
    """Check the spec of a pod or of a pod template."""
    errors: list[FieldError] = []
    if not spec.get("containers"):
        errors.append(required(f"{at}.containers"))
    names: set[str] = set()
    for part in ("initContainers", "containers"):
        for i, container in enumerate(spec.get(part) or ()):
            errors += _container_errors(container, f"{at}.{part}[{i}]", names=names)
    for key, known in (("restartPolicy", _RESTART), ("dnsPolicy", _DNS)):
        if spec.get(key) not in known:
            errors.append(not_supported(f"{at}.{key}", spec.get(key), known))
    errors += label_errors(spec.get("nodeSelector"), f"{at}.nodeSelector")
    errors += _toleration_errors(spec.get("tolerations") or (), f"{at}.tolerations")
    errors += _gate_errors(spec.get("schedulingGates") or (), f"{at}.schedulingGates")
    errors += pod_claim_errors(spec, at)
    if (deadline := spec.get("activeDeadlineSeconds")) is not None and deadline < 1:
        errors.append(
            invalid(
                f"{at}.activeDeadlineSeconds",
                deadline,
                "must be between 1 and 2147483647, inclusive",
            )
        )
    if spec.get("nodeName"):
        errors += name_errors(spec["nodeName"], field=f"{at}.nodeName")
    if spec.get("hostname"):
        errors += name_errors(spec["hostname"], field=f"{at}.hostname", label=True)
    return errors


def _container_errors(container: Obj, at: str, *, names: set[str]) -> Iterator[FieldError]:
    name = container.get("name") or ""
    if not name:
        yield required(f"{at}.name")
    else:
        yield from name_errors(name, field=f"{at}.name", label=True)
        if name in names:
            yield duplicate(f"{at}.name", name)
        names.add(name)
    if not container.get("image"):
        yield required(f"{at}.image")
    if container.get("imagePullPolicy") not in _PULL:
        yield not_supported(f"{at}.imagePullPolicy", container.get("imagePullPolicy"), _PULL)
    if resources := container.get("resources"):
        yield from _resource_errors(resources, f"{at}.resources")


def _resource_errors(resources: Obj, at: str) -> Iterator[FieldError]:
    limits: Mapping[str, Any] = resources.get("limits") or {}
    requests: Mapping[str, Any] = resources.get("requests") or {}
    for part, values in (("limits", limits), ("requests", requests)):
        for name, value in values.items():
            yield from _amount_errors(name, value, f"{at}.{part}[{name}]", parent=f"{at}.{part}")
    for name, value in requests.items():
        limit = limits.get(name)
        if limit is None:
            if name not in NATIVE and "/" in name:
                yield required(f"{at}.limits", _OVERCOMMIT_TEXT)
            continue
        asked, most = amount(value), amount(limit)
        if "/" in name and asked != most:
            why = f"must be equal to {name} limit of {printed(most)}"
            yield invalid(f"{at}.requests", str(value), why)
        elif asked > most:
            why = f"must be less than or equal to {name} limit of {limit}"
            yield invalid(f"{at}.requests", str(value), why)


def _amount_errors(name: str, value: Any, at: str, *, parent: str) -> Iterator[FieldError]:
    if "/" not in name and name not in NATIVE and not name.startswith("hugepages-"):
        yield invalid(at, name, "must be a standard resource for containers")
        return
    yield from key_errors(name, parent)
    if is_negative(value):
        yield invalid(at, str(value), "must be greater than or equal to 0")
    elif "/" in name and not is_integer(value):
        yield invalid(at, str(value), "must be an integer")


def _toleration_errors(tolerations: Any, at: str) -> Iterator[FieldError]:
    for i, toleration in enumerate(tolerations):
        here = f"{at}[{i}]"
        operator = toleration.get("operator") or "Equal"
        key = toleration.get("key") or ""
        if key:
            yield from key_errors(key, f"{here}.key")
        elif operator != "Exists":
            why = (
                "operator must be Exists when `key` is empty, which means "
                '"match all values and all keys"'
            )
            yield invalid(f"{here}.operator", operator, why)
        if operator == "Exists" and toleration.get("value"):
            why = "value must be empty when `operator` is 'Exists'"
            yield invalid(f"{here}.operator", toleration, why)
        if operator not in {"Exists", "Equal"}:
            yield not_supported(f"{here}.operator", operator, ("Equal", "Exists"))
        effect = toleration.get("effect") or ""
        if effect and effect not in _TOLERATION_EFFECTS:
            yield not_supported(f"{here}.effect", effect, _TOLERATION_EFFECTS)
        if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
            why = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            yield invalid(f"{here}.effect", effect, why)


def _gate_errors(gates: Any, at: str) -> Iterator[FieldError]:
    seen: set[str] = set()
    for i, gate in enumerate(gates):
        name = gate.get("name") or ""
        yield from key_errors(name, f"{at}[{i}]")
        if name in seen:
            yield duplicate(f"{at}[{i}]", name)
        seen.add(name)
