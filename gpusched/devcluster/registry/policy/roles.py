"""Roles and their bindings: what a rule must hold, and which subjects a binding may name."""

from __future__ import annotations

from typing import Any, Final

from gpusched.devcluster.apimachinery.field_errors import (
    FieldError,
    invalid,
    not_supported,
    required,
)
from gpusched.devcluster.apimachinery.metadata import name_errors, segment_errors
from gpusched.devcluster.registry.strategy import Strategy

Obj = dict[str, Any]

_GROUP: Final = "rbac.authorization.k8s.io"
_ACCOUNT: Final = "ServiceAccount"
_OTHERS: Final = {"User": "user", "Group": "group"}


class RoleStrategy(Strategy):
    """Roles; ``namespaced`` ones say nothing about paths."""

    segment_name = True
    knows_all = True

    def __init__(self, *, namespaced: bool) -> None:
        self._namespaced = namespaced

    def default(self, obj: Obj) -> None:
        """Print absent rules as null, as the typed object does."""
        obj.setdefault("rules", None)

    def validate(self, obj: Obj) -> list[FieldError]:
        """Check every rule of the role."""
        errors: list[FieldError] = []
        for index, rule in enumerate(obj.get("rules") or ()):
            errors += self._rule_errors(rule, f"rules[{index}]")
        return errors

    def _rule_errors(self, rule: Obj, field: str) -> list[FieldError]:
        errors = []
        if not rule.get("verbs"):
            errors.append(required(f"{field}.verbs", "verbs must contain at least one value"))
        if paths := rule.get("nonResourceURLs"):
            whys = []
            if self._namespaced:
                whys.append("namespaced rules cannot apply to non-resource URLs")
            if any(rule.get(key) for key in ("apiGroups", "resources", "resourceNames")):
                whys.append("rules cannot apply to both regular resources and non-resource URLs")
            return errors + [invalid(f"{field}.nonResourceURLs", paths, why) for why in whys]
        if not rule.get("apiGroups"):
            why = "resource rules must supply at least one api group"
            errors.append(required(f"{field}.apiGroups", why))
        if not rule.get("resources"):
            why = "resource rules must supply at least one resource"
            errors.append(required(f"{field}.resources", why))
        return errors


class RoleBindingStrategy(Strategy):
    """Bindings of roles; what they bind never changes."""

    segment_name = True
    knows_all = True

    def __init__(self, *, namespaced: bool) -> None:
        self._namespaced = namespaced

    def default(self, obj: Obj) -> None:
        """Fill in the API groups of the role and of users and groups."""
        if isinstance(ref := obj.get("roleRef"), dict):
            obj["roleRef"] = {"apiGroup": ref.get("apiGroup") or _GROUP, **_without_api_group(ref)}
        if obj.get("subjects"):
            obj["subjects"] = [_defaulted(subject) for subject in obj["subjects"]]

    def validate(self, obj: Obj) -> list[FieldError]:
        """Check the role that is bound and every subject."""
        errors = []
        ref = obj.get("roleRef") or {}
        if ref.get("apiGroup") != _GROUP:
            errors.append(not_supported("roleRef.apiGroup", ref.get("apiGroup") or "", [_GROUP]))
        kinds = ["Role", "ClusterRole"] if self._namespaced else ["ClusterRole"]
        if ref.get("kind") not in kinds:
            errors.append(not_supported("roleRef.kind", ref.get("kind") or "", kinds))
        if name := ref.get("name"):
            errors += segment_errors(name, "roleRef.name")
        else:
            errors.append(required("roleRef.name"))
        for index, subject in enumerate(obj.get("subjects") or ()):
            errors += self._subject_errors(subject, f"subjects[{index}]")
        return errors

    def validate_update(self, new: Obj, old: Obj) -> list[FieldError]:
        """Refuse a change of the role that is bound."""
        errors = self.validate(new)
        if new.get("roleRef") != old.get("roleRef"):
            errors.append(invalid("roleRef", new.get("roleRef"), "cannot change roleRef"))
        return errors

    def _subject_errors(self, subject: Obj, field: str) -> list[FieldError]:
        errors = []
        kind, name = subject.get("kind") or "", subject.get("name") or ""
        group = subject.get("apiGroup") or ""
        if not name:
            errors.append(required(f"{field}.name"))
        if kind == _ACCOUNT:
            if name:
                errors += name_errors(name, field=f"{field}.name")
            if group:
                errors.append(not_supported(f"{field}.apiGroup", group, [""]))
            if not self._namespaced and not subject.get("namespace"):
                errors.append(required(f"{field}.namespace"))
        elif kind in _OTHERS:
            if not name:
                why = f"{_OTHERS[kind]} name cannot be empty"
                errors.append(invalid(f"{field}.name", name, why))
            if group != _GROUP:
                errors.append(not_supported(f"{field}.apiGroup", group, [_GROUP]))
        else:
            errors.append(not_supported(f"{field}.kind", kind, [_ACCOUNT, *_OTHERS]))
        return errors


def _without_api_group(ref: Obj) -> Obj:
    return {key: value for key, value in ref.items() if key != "apiGroup"}


def _defaulted(subject: Obj) -> Obj:
    group = subject.get("apiGroup") or (_GROUP if subject.get("kind") in _OTHERS else "")
    kind = {"kind": subject["kind"]} if "kind" in subject else {}
    rest = {k: v for k, v in subject.items() if k not in {"kind", "apiGroup"}}
    return {**kind, **({"apiGroup": group} if group else {}), **rest}
