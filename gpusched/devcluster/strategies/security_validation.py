"""Security contexts of pods and containers: stored without effect, but only when they are sound."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from gpusched.devcluster.field_errors import FieldError, invalid, not_supported, required

Obj = dict[str, Any]

_ID_MAX: Final = 0xFFFFFFFF
_ID_TEXT: Final = f"must be between 0 and {_ID_MAX}, inclusive"
_PROFILES: Final = ("Localhost", "RuntimeDefault", "Unconfined")


def pod_security_errors(context: Obj, at: str) -> Iterator[FieldError]:
    """Check the security context of a whole pod."""
    yield from _id_errors(context, at, keys=("fsGroup", "runAsUser", "runAsGroup"))
    for i, group in enumerate(context.get("supplementalGroups") or ()):
        if not 0 <= group <= _ID_MAX:
            yield invalid(f"{at}.supplementalGroups[{i}]", group, _ID_TEXT)
    for key, known in (
        ("fsGroupChangePolicy", ("Always", "OnRootMismatch")),
        ("supplementalGroupsPolicy", ("Merge", "Strict")),
    ):
        if context.get(key) is not None and context[key] not in known:
            yield not_supported(f"{at}.{key}", context[key], known)
    yield from _profile_errors(context.get("seccompProfile"), f"{at}.seccompProfile")


def security_context_errors(context: Obj, at: str) -> Iterator[FieldError]:
    """Check the security context of a container."""
    yield from _id_errors(context, at, keys=("runAsUser", "runAsGroup"))
    mount = context.get("procMount")
    if mount is not None and mount not in {"Default", "Unmasked"}:
        yield not_supported(f"{at}.procMount", mount, ("Default", "Unmasked"))
    yield from _profile_errors(context.get("seccompProfile"), f"{at}.seccompProfile")
    if context.get("allowPrivilegeEscalation") is False and context.get("privileged"):
        why = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
        yield invalid(at, context, why)


def _id_errors(context: Obj, at: str, *, keys: tuple[str, ...]) -> Iterator[FieldError]:
    for key in keys:
        value = context.get(key)
        if value is not None and not 0 <= value <= _ID_MAX:
            yield invalid(f"{at}.{key}", value, _ID_TEXT)


def _profile_errors(profile: Obj | None, at: str) -> Iterator[FieldError]:
    if profile is None:
        return
    kind = profile.get("type") or ""
    if not kind:
        yield required(f"{at}.type", "type is required when seccompProfile is set")
    elif kind not in _PROFILES:
        yield not_supported(f"{at}.type", kind, _PROFILES)
    local = profile.get("localhostProfile")
    if kind == "Localhost" and local is None:
        why = "must be set when seccomp type is Localhost"
        yield required(f"{at}.localhostProfile", why)
