"""Rules of roles against what a request asks for. Pure; roles are plain objects.

After the documented semantics of ``rbac.authorization.k8s.io``: rules only ever allow, and one
rule must allow the whole request by itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from gpusched.base.classes import frozen

Obj = dict[str, Any]

MASTERS: Final = "system:masters"
EVERYONE: Final = "system:authenticated"
_ANY: Final = "*"
_ACCOUNT: Final = "system:serviceaccount:"
_ACCOUNTS: Final = "system:serviceaccounts"


@frozen
class User:
    """An authenticated client.

    Attributes:
        groups: all of them, ``system:authenticated`` included.
        extra: further values from the authenticator, by key.
    """

    name: str
    groups: tuple[str, ...]
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def admin(self) -> bool:
        """Members of ``system:masters`` are never refused, whatever roles there are."""
        return MASTERS in self.groups


@frozen(kw_only=True)
class AccessRequest:
    """What a request wants: a verb on a resource, or on a ``path`` that is no resource.

    Attributes:
        resource: plural, with its subresource as in ``pods/binding``.
        namespace: empty at the cluster scope.
        path: of a request without a resource; empty otherwise.
    """

    verb: str
    group: str = ""
    resource: str = ""
    name: str = ""
    namespace: str = ""
    path: str = ""


def account_user(namespace: str, name: str, uid: str = "") -> User:
    """Return the user that a service account is."""
    groups = (_ACCOUNTS, f"{_ACCOUNTS}:{namespace}", EVERYONE)
    return User(f"{_ACCOUNT}{namespace}:{name}", groups, uid)


def account_of(user_name: str) -> tuple[str, str] | None:
    """Return namespace and name of the service account behind a user name."""
    if not user_name.startswith(_ACCOUNT):
        return None
    namespace, colon, name = user_name.removeprefix(_ACCOUNT).partition(":")
    return (namespace, name) if colon and namespace and name and ":" not in name else None


def rule_allows(rule: Obj, ask: AccessRequest) -> bool:
    """Tell whether one rule of a role covers what is asked for."""
    if not _rule_lists(rule.get("verbs"), ask.verb):
        return False
    if ask.path:
        return any(_path_fits(p, ask.path) for p in rule.get("nonResourceURLs") or ())
    if not _rule_lists(rule.get("apiGroups"), ask.group):
        return False
    if not _resource_fits(rule.get("resources") or (), ask.resource):
        return False
    names = rule.get("resourceNames") or ()
    return not names or ask.name in names


def is_subject(subject: Obj, user: User, binding_namespace: str) -> bool:
    """Tell whether a subject of a binding is this user."""
    name = subject.get("name", "")
    match subject.get("kind"):
        case "User":
            return bool(name == user.name)
        case "Group":
            return name in user.groups
        case "ServiceAccount":
            namespace = subject.get("namespace") or binding_namespace
            return bool(namespace and user.name == f"{_ACCOUNT}{namespace}:{name}")
    return False


def _rule_lists(listed: Any, wanted: str) -> bool:
    return bool(listed) and (wanted in listed or _ANY in listed)


def _resource_fits(listed: Iterable[str], wanted: str) -> bool:
    _, slash, subresource = wanted.partition("/")
    any_parent = f"{_ANY}/{subresource}" if slash else ""
    return any(one in {_ANY, wanted} or (any_parent and one == any_parent) for one in listed)


def _path_fits(pattern: str, path: str) -> bool:
    if pattern.endswith(_ANY):
        return path.startswith(pattern.removesuffix(_ANY))
    return pattern == path
