"""Answers from the roles and bindings that the cluster holds at this moment."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from gpusched.base.classes import frozen
from gpusched.devcluster.apiserver.rbac.rules import AccessRequest, User, is_subject, rule_allows
from gpusched.devcluster.storage.store import Store

Obj = dict[str, Any]

GROUP: Final = "rbac.authorization.k8s.io"


@frozen
class RbacVerdict:
    """Whether something is allowed, and by what."""

    allowed: bool
    reason: str = ""


class RbacAuthorizer:
    """Reads roles and bindings from the store for every question: both may change."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def decide(self, user: User, ask: AccessRequest) -> RbacVerdict:
        """Tell whether a user may do something; administrators may do all."""
        if user.admin:
            return RbacVerdict(allowed=True)
        for source, rules in self._grants(user, ask.namespace):
            if any(rule_allows(rule, ask) for rule in rules):
                return RbacVerdict(allowed=True, reason=f"RBAC: allowed by {source}")
        return RbacVerdict(allowed=False)

    def rules_of(self, user: User, namespace: str) -> list[Obj]:
        """Return every rule that speaks for a user in a namespace, cluster-wide ones first."""
        if user.admin:
            return [
                {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
                {"verbs": ["*"], "nonResourceURLs": ["*"]},
            ]
        return [rule for _, rules in self._grants(user, namespace) for rule in rules]

    def rules_of_role(self, kind: str, namespace: str, name: str) -> list[Obj] | None:
        """Return the rules of a role, None when there is no such role."""
        plural = "clusterroles" if kind == "ClusterRole" else "roles"
        key = name if kind == "ClusterRole" else f"{namespace}/{name}"
        stored = self._store.collection(f"{plural}.{GROUP}").get(key)
        return None if stored is None else list(stored.obj.get("rules") or ())

    def _grants(self, user: User, namespace: str) -> Iterator[tuple[str, list[Obj]]]:
        """Yield what grants a user something, in words, and its rules."""
        yield from self._rules_bound_by("clusterrolebindings", user, "")
        if namespace:
            yield from self._rules_bound_by("rolebindings", user, namespace)

    def _rules_bound_by(
        self, plural: str, user: User, namespace: str
    ) -> Iterator[tuple[str, list[Obj]]]:
        for _, stored in self._store.collection(f"{plural}.{GROUP}").scan(namespace):
            binding = stored.obj
            subject = _first_subject(binding, user, namespace)
            if subject is None:
                continue
            role = binding["roleRef"]
            rules = self.rules_of_role(role["kind"], namespace, role["name"])
            if rules is not None:
                yield _source(binding, namespace, subject), rules


def _first_subject(binding: Obj, user: User, namespace: str) -> Obj | None:
    for subject in binding.get("subjects") or ():
        if is_subject(subject, user, namespace):
            found: Obj = subject
            return found
    return None


def _source(binding: Obj, namespace: str, subject: Obj) -> str:
    name = binding["metadata"]["name"]
    role = binding["roleRef"]
    shown = f"{name}/{namespace}" if namespace else name
    to = f'{subject["kind"]} "{subject.get("name", "")}"'
    if subject["kind"] == "ServiceAccount":
        home = subject.get("namespace") or namespace
        to = f'ServiceAccount "{subject.get("name", "")}/{home}"'
    kind = "RoleBinding" if namespace else "ClusterRoleBinding"
    return f'{kind} "{shown}" of {role["kind"]} "{role["name"]}" to {to}'
