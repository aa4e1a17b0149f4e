# ruff: noqa: ARG002  # strategies share one interface, and few kinds need all of it
"""Resource claims, their templates, and the claims that a pod names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from gpusched.devcluster.apimachinery import status
from gpusched.devcluster.apimachinery.field_errors import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    required,
    too_many,
)
from gpusched.devcluster.apimachinery.metadata import name_errors
from gpusched.devcluster.registry.devices.device_fields import condition_errors
from gpusched.devcluster.registry.devices.requests import (
    claim_errors,
    default_claim,
    reference_errors,
    request_names,
)
from gpusched.devcluster.registry.strategy import ServerContext, Strategy

Obj = dict[str, Any]

RESERVED_MAX: Final = 256
"""Most users that one claim can be reserved for."""
_RESULTS_MAX: Final = 32
_SEALED: Final = "field is immutable"
_ADMIN: Final = "resource.kubernetes.io/admin-access"
_BY_STATUS: Final = ("labels", "annotations", "finalizers", "ownerReferences")


class ResourceClaimStrategy(Strategy):
    """Claims: an immutable spec, and a status that a scheduler writes."""

    returns_object = True
    has_status = True

    def prepare_create(self, obj: Obj, core: ServerContext) -> None:
        """Start with nothing allocated; an empty status is printed."""
        obj.setdefault("spec", {})
        obj["status"] = {}

    def default(self, obj: Obj) -> None:
        """Fill in the counts of requests."""
        default_claim(obj["spec"])

    def validate(self, obj: Obj) -> list[FieldError]:
        """Check a new claim."""
        return claim_errors(obj["spec"], "spec")

    def validate_update(self, new: Obj, old: Obj) -> list[FieldError]:
        """Refuse any change of the spec."""
        return _immutable_spec_errors(new, old)

    def allocate(self, new: Obj, old: Obj | None, core: ServerContext) -> None:
        """Refuse a new claim that asks for more than its namespace may have."""
        if old is None:
            _check_admin(core, new, new["spec"])

    def prepare_status(self, new: Obj, old: Obj) -> None:
        """Keep the spec, and what of the metadata has no place in a status write."""
        super().prepare_status(new, old)
        new["status"] = new.get("status") or {}
        for key in _BY_STATUS:
            if key in old["metadata"]:
                new["metadata"][key] = old["metadata"][key]
            else:
                new["metadata"].pop(key, None)

    def validate_status(self, new: Obj, old: Obj) -> list[FieldError]:
        """Check reservations, and that an allocation is made or dropped but never changed."""
        now, was = new["status"], old.get("status") or {}
        errors = list(_device_status_errors(now))
        errors += _reservation_errors(now, was, deleted="deletionTimestamp" in old["metadata"])
        given, had = now.get("allocation"), was.get("allocation")
        if given is not None and had is not None:
            if given != had:
                errors.append(invalid("status.allocation", given, _SEALED))
        elif given is not None:
            errors += _allocation_errors(given, request_names(new["spec"]))
        return errors


def _check_admin(core: ServerContext, obj: Obj, spec: Obj) -> None:
    """Raise StatusError 422 when devices are asked for as an administrator in a plain namespace."""
    requests = (spec.get("devices") or {}).get("requests") or ()
    asked = [i for i, r in enumerate(requests) if (r.get("exactly") or {}).get("adminAccess")]
    if not asked:
        return
    home = core.store.collection("namespaces").get(obj["metadata"]["namespace"])
    labels = (home.obj["metadata"].get("labels") if home else None) or {}
    if labels.get(_ADMIN) == "true":
        return
    why = f"admin access to devices requires the `{_ADMIN}: true` label on the containing namespace"
    error = forbidden(f"spec.devices.requests[{asked[0]}].adminAccess", why)
    name = obj["metadata"]["name"]
    raise status.invalid(obj["kind"], "resource.k8s.io", name, errors=[error])


def _immutable_spec_errors(new: Obj, old: Obj) -> list[FieldError]:
    return [] if new["spec"] == old["spec"] else [invalid("spec", new["spec"], _SEALED)]


def _reservation_errors(now: Obj, was: Obj, *, deleted: bool) -> Iterator[FieldError]:
    users = now.get("reservedFor") or []
    at = "status.reservedFor"
    if len(users) > RESERVED_MAX:
        yield too_many(at, len(users), RESERVED_MAX)
    seen: set[str] = set()
    for i, user in enumerate(users):
        for key in ("resource", "name", "uid"):
            if not user.get(key):
                yield required(f"{at}[{i}].{key}")
        if (uid := user.get("uid") or "") in seen:
            yield duplicate(f"{at}[{i}]", uid)
        seen.add(uid)
    if users and now.get("allocation") is None:
        yield forbidden(at, "may not be specified when `allocated` is not set")
    elif deleted and any(user not in (was.get("reservedFor") or ()) for user in users):
        why = (
            "new entries may not be added while `deallocationRequested` or `deletionTimestamp` "
            "are set"
        )
        yield forbidden(at, why)


def _device_status_errors(now: Obj) -> Iterator[FieldError]:
    """What drivers say of devices must be of devices that the claim has, each once."""
    results = ((now.get("allocation") or {}).get("devices") or {}).get("results") or ()
    allocated = {_device_key(result) for result in results}
    seen: set[str] = set()
    for i, device in enumerate(now.get("devices") or ()):
        key = _device_key(device)
        if key not in allocated:
            yield invalid(f"status.devices[{i}]", key, "must be an allocated device in the claim")
        if key in seen:
            yield duplicate(f"status.devices[{i}]", key)
        seen.add(key)


def _device_key(device: Obj) -> str:
    parts = [device.get(key) or "" for key in ("driver", "pool", "device", "shareID")]
    return "/".join(part for part in parts if part)


def _allocation_errors(allocation: Obj, names: frozenset[str]) -> Iterator[FieldError]:
    results = (allocation.get("devices") or {}).get("results") or ()
    at = "status.allocation.devices.results"
    if len(results) > _RESULTS_MAX:
        yield too_many(at, len(results), _RESULTS_MAX)
    for i, result in enumerate(results):
        yield from reference_errors(result.get("request") or "", f"{at}[{i}].request", names)
        for key, label in (("driver", False), ("device", True)):
            value = result.get(key) or ""
            if value:
                yield from name_errors(value, field=f"{at}[{i}].{key}", label=label)
            else:
                yield required(f"{at}[{i}].{key}")
        yield from pool_errors(result.get("pool") or "", f"{at}[{i}].pool")
        yield from condition_errors(result, f"{at}[{i}]")


def pool_errors(name: str, at: str) -> list[FieldError]:
    """Check the name of a pool of devices: subdomains joined by slashes."""
    if not name:
        return [required(at)]
    return [error for part in name.split("/") for error in name_errors(part, field=at)]


class ResourceClaimTemplateStrategy(Strategy):
    """Templates of claims, which are immutable."""

    returns_object = True

    def default(self, obj: Obj) -> None:
        """Fill in the claim, and the metadata that is printed even when empty."""
        spec = obj.setdefault("spec", {})
        spec["metadata"] = spec.get("metadata") or {}
        default_claim(spec.setdefault("spec", {}))

    def allocate(self, new: Obj, old: Obj | None, core: ServerContext) -> None:
        """Refuse a new template that asks for more than its namespace may have."""
        if old is None:
            _check_admin(core, new, new["spec"]["spec"])

    def validate(self, obj: Obj) -> list[FieldError]:
        """Check a new template."""
        return claim_errors(obj["spec"]["spec"], "spec.spec")

    def validate_update(self, new: Obj, old: Obj) -> list[FieldError]:
        """Refuse any change of the spec."""
        return _immutable_spec_errors(new, old)


def pod_claim_errors(spec: Obj, at: str) -> Iterator[FieldError]:
    """Check the claims that a pod names, and that its containers use no others."""
    seen: list[str] = []
    for i, claim in enumerate(spec.get("resourceClaims") or ()):
        here, name = f"{at}.resourceClaims[{i}]", claim.get("name") or ""
        if not name:
            yield required(f"{here}.name")
        elif name in seen:
            yield duplicate(f"{here}.name", name)
        else:
            yield from name_errors(name, field=f"{here}.name", label=True)
        seen.append(name)
        given = [k for k in ("resourceClaimName", "resourceClaimTemplateName") if claim.get(k)]
        if len(given) > 1:
            why = (
                "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            )
            yield invalid(here, claim, why)
        elif not given:
            why = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
            yield invalid(here, claim, why)
        for key in given:
            yield from name_errors(claim[key], field=f"{here}.{key}")
    for part in ("initContainers", "containers"):
        for i, container in enumerate(spec.get(part) or ()):
            used = (container.get("resources") or {}).get("claims") or ()
            yield from _use_errors(used, f"{at}.{part}[{i}].resources.claims", seen)


def _use_errors(used: Any, at: str, names: list[str]) -> Iterator[FieldError]:
    seen: set[tuple[str, str]] = set()
    for i, use in enumerate(used):
        name = use.get("name") or ""
        key = (name, use.get("request") or "")
        if not name:
            yield required(f"{at}[{i}]")
            continue
        if key in seen:
            yield duplicate(f"{at}[{i}]", name)
        seen.add(key)
        if name not in names:
            known = f": {', '.join(sorted(n for n in names if n))}" if names else " which is empty"
            text = (
                f'Not found: "{name}": must be one of the names in pod.spec.resourceClaims{known}'
            )
            yield FieldError("Not found", f"{at}[{i}]", text, "FieldValueNotFound")
