"""CEL's questions about rights: ``authorizer.group('').resource('pods').check('create')``.

The values are built step by step, each from the one before it; what is allowed is asked of a
function that the caller passes in, so that this package knows no roles.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from gpusched.base.classes import frozen
from gpusched.cel.errors import CelError

AUTHORIZER: Final = "kubernetes.authorization.Authorizer"
PATH_CHECK: Final = "kubernetes.authorization.PathCheck"
GROUP_CHECK: Final = "kubernetes.authorization.GroupCheck"
RESOURCE_CHECK: Final = "kubernetes.authorization.ResourceCheck"
DECISION: Final = "kubernetes.authorization.Decision"
REQUESTED: Final = "requestResource"
"""The one field of an authorizer, of type ``RESOURCE_CHECK``."""


@frozen(kw_only=True)
class AuthorizationQuestion:
    """A question about rights: the subject, the verb and the resource.

    Attributes:
        account: namespace and name of the service account asked about; None for the requester.
        resource: plural, without its subresource.
        path: of a question about no resource; empty otherwise.
    """

    verb: str
    account: tuple[str, str] | None = None
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""


@frozen
class AuthorizationDecision:
    """Whether something is allowed, and by what."""

    allowed: bool
    reason: str = ""


Decide = Callable[[AuthorizationQuestion], AuthorizationDecision]


@frozen
class AuthorizerVariable:
    """Where every question begins.

    Attributes:
        requested: what the request at hand asks for (``authorizer.requestResource``).
    """

    decide: Decide
    account: tuple[str, str] | None = None
    requested: ResourceCheck | None = None


@frozen
class PathCheck:
    """A path that is no resource."""

    authorizer: AuthorizerVariable
    path: str


@frozen
class GroupCheck:
    """A group of the API."""

    authorizer: AuthorizerVariable
    group: str


@frozen(kw_only=True)
class ResourceCheck:
    """A resource, narrowed down as far as the rule says."""

    authorizer: AuthorizerVariable
    group: str
    resource: str
    subresource: str = ""
    namespace: str = ""
    name: str = ""


def _path(value: AuthorizerVariable, path: str) -> PathCheck:
    if not path.strip():
        raise CelError("path must not be empty")
    return PathCheck(value, path)


def _resource(value: GroupCheck, resource: str) -> ResourceCheck:
    if not resource.strip():
        raise CelError("resource must not be empty")
    return ResourceCheck(authorizer=value.authorizer, group=value.group, resource=resource)


def _narrowed(field: str) -> Callable[..., ResourceCheck]:
    return lambda value, text: attrs.evolve(value, **{field: text})


def _check(value: PathCheck | ResourceCheck, verb: str) -> AuthorizationDecision:
    authorizer = value.authorizer
    if isinstance(value, PathCheck):
        question = AuthorizationQuestion(verb=verb, account=authorizer.account, path=value.path)
    else:
        question = AuthorizationQuestion(
            verb=verb,
            account=authorizer.account,
            group=value.group,
            resource=value.resource,
            subresource=value.subresource,
            namespace=value.namespace,
            name=value.name,
        )
    return authorizer.decide(question)


_CHECKS: Final = (PathCheck, ResourceCheck)
_FUNCTIONS: Final[Mapping[str, tuple[Any, Callable[..., Any]]]] = {
    "path": (AuthorizerVariable, _path),
    "group": (AuthorizerVariable, GroupCheck),
    "serviceAccount": (
        AuthorizerVariable, lambda value, namespace, name: attrs.evolve(value, account=(namespace, name)),
    ),
    "resource": (GroupCheck, _resource),
    "subresource": (ResourceCheck, _narrowed("subresource")),
    "namespace": (ResourceCheck, _narrowed("namespace")),
    "name": (ResourceCheck, _narrowed("name")),
    # Selectors narrow a list or a watch further; roles know no such rule, so they change nothing.
    "fieldSelector": (ResourceCheck, lambda value, _text: value),
    "labelSelector": (ResourceCheck, lambda value, _text: value),
    "check": (_CHECKS, _check),
    "allowed": (AuthorizationDecision, lambda value: value.allowed),
    "reason": (AuthorizationDecision, lambda value: value.reason),
    "errored": (AuthorizationDecision, lambda _value: False),
    "error": (AuthorizationDecision, lambda _value: ""),
}  # fmt: skip


def _typed(receiver: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(value: Any, *args: Any) -> Any:
        if not isinstance(value, receiver) or not all(isinstance(a, str) for a in args):
            raise CelError("no such overload")
        return function(value, *args)

    return call


AUTHORIZATION: Final[dict[str, Callable[..., Any]]] = {
    name: _typed(receiver, function) for name, (receiver, function) in _FUNCTIONS.items()
}
"""Name of a method to its meaning; the receiver is its first argument."""

METHODS: Final[Mapping[str, tuple[frozenset[str], str, int]]] = {
    "path": (frozenset({AUTHORIZER}), PATH_CHECK, 1),
    "group": (frozenset({AUTHORIZER}), GROUP_CHECK, 1),
    "serviceAccount": (frozenset({AUTHORIZER}), AUTHORIZER, 2),
    "resource": (frozenset({GROUP_CHECK}), RESOURCE_CHECK, 1),
    "subresource": (frozenset({RESOURCE_CHECK}), RESOURCE_CHECK, 1),
    "namespace": (frozenset({RESOURCE_CHECK}), RESOURCE_CHECK, 1),
    "name": (frozenset({RESOURCE_CHECK}), RESOURCE_CHECK, 1),
    "fieldSelector": (frozenset({RESOURCE_CHECK}), RESOURCE_CHECK, 1),
    "labelSelector": (frozenset({RESOURCE_CHECK}), RESOURCE_CHECK, 1),
    "check": (frozenset({PATH_CHECK, RESOURCE_CHECK}), DECISION, 1),
    "allowed": (frozenset({DECISION}), "bool", 0),
    "reason": (frozenset({DECISION}), "string", 0),
    "errored": (frozenset({DECISION}), "bool", 0),
    "error": (frozenset({DECISION}), "string", 0),
}
"""Name of a method to the types it stands behind, the type it gives, and its number of texts."""
