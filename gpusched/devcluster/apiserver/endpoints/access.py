"""Authentication, impersonation and authorization of a request."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Final

from gpusched.devcluster.apimachinery import status
from gpusched.devcluster.apimachinery.status import StatusError
from gpusched.devcluster.apiserver.endpoints.routes import Route
from gpusched.devcluster.apiserver.rbac.authorizer import RbacAuthorizer
from gpusched.devcluster.apiserver.rbac.rules import (
    EVERYONE,
    MASTERS,
    AccessRequest,
    User,
    account_of,
    account_user,
)
from gpusched.devcluster.apiserver.rbac.tokens import AUDIENCE, ServiceAccountTokens
from gpusched.devcluster.apiserver.server_state import ServerState

Obj = dict[str, Any]

USER_TOKEN: Final = "usertoken"  # noqa: S105  # it opens nothing by itself, by design
ADMIN: Final = User("admin", (MASTERS, EVERYONE))
_ANONYMOUS: Final = "system:anonymous"
_UNKNOWN_CLIENTS: Final = "system:unauthenticated"
_AUTHENTICATION: Final = "authentication.k8s.io"
_EXTRA: Final = "impersonate-extra-"


class RequestAccess:
    """Tokens, impersonation, and the checks made before anything else is looked at.

    Args:
        core: whose roles and service accounts count.
        admin_token: may do everything.
        local: only this machine can connect.
    """

    def __init__(self, core: ServerState, admin_token: str, *, local: bool = True) -> None:
        self._local = local
        self._users = {
            admin_token: ADMIN,
            USER_TOKEN: User("alice", (EVERYONE,)),
        }
        self.authorizer = RbacAuthorizer(core.store)
        self.tokens = ServiceAccountTokens(core, secrets.token_bytes(32))

    def user(self, authorization: str, *, browser: bool = False) -> User:
        """Return the user of an Authorization header; raises StatusError 401.

        On a loopback address a request without the header is the admin's, as with ``kubectl
        proxy``: kubectl sends no credentials over plain HTTP. A page in a browser is no such
        client, whatever site it comes from.
        """
        if not authorization and self._local and not browser:
            return ADMIN
        scheme, _, token = authorization.partition(" ")
        found = self.read_token(token.strip()) if scheme.lower() == "bearer" else None
        if found is None:
            raise status.unauthorized()
        return found[0]

    def read_token(
        self, token: str, audiences: list[str] | None = None
    ) -> tuple[User, list[str]] | None:
        """Return the user of a token and its audiences among those asked for, or None."""
        if (user := self._users.get(token)) is not None:
            shared = [a for a in audiences or [AUDIENCE] if a == AUDIENCE]
            return (user, shared) if shared else None
        return self.tokens.user(token, audiences)

    def acting_as(self, user: User, headers: Mapping[str, str], groups: Sequence[str]) -> User:
        """Return the user that the ``Impersonate-`` headers name, else the user of the request.

        Args:
            user: the sender of the request.
            headers: of the request; names in any case.
            groups: every value of ``Impersonate-Group``.

        Raises:
            StatusError: 403, the user may not act as that one; 500, groups without a user.
        """
        name = headers.get("Impersonate-User", "")
        uid = headers.get("Impersonate-Uid", "")
        extra = {
            key.lower().removeprefix(_EXTRA): value
            for key, value in headers.items()
            if key.lower().startswith(_EXTRA)
        }
        if not name:
            if groups or extra or uid:
                why = "Internal error occurred: requested groups, uid or extra of a user without impersonating a user"
                raise status.failure(500, "InternalError", why)
            return user
        account = account_of(name)
        self._may_act(user, _identity(name))
        for group in groups:
            self._may_act(user, AccessRequest(verb="impersonate", resource="groups", name=group))
        if uid:
            ask = AccessRequest(
                verb="impersonate", group=_AUTHENTICATION, resource="uids", name=uid
            )
            self._may_act(user, ask)
        for key, value in extra.items():
            what = f"userextras/{key}"
            ask = AccessRequest(
                verb="impersonate", group=_AUTHENTICATION, resource=what, name=value
            )
            self._may_act(user, ask)
        held = tuple(groups)
        if not held and account is not None:
            held = account_user(*account).groups
        elif name != _ANONYMOUS and not {EVERYONE, _UNKNOWN_CLIENTS} & set(held):
            held = (*held, EVERYONE)
        return User(name, held, uid, tuple((key, (value,)) for key, value in extra.items()))

    def _may_act(self, user: User, ask: AccessRequest) -> None:
        if not self.authorizer.decide(user, ask).allowed:
            raise forbidden_status(user, ask)

    def check(self, user: User, route: Route, verb: str) -> None:
        """Refuse what a user may not do, before telling whether it exists; StatusError 403."""
        if user.admin:
            return
        what = f"{route.plural}/{route.subresource}" if route.subresource else route.plural
        ask = AccessRequest(
            verb=verb,
            group=route.group,
            resource=what,
            name=route.name,
            namespace=route.name if route.plural == "namespaces" else route.namespace,
        )
        if not self.authorizer.decide(user, ask).allowed:
            raise forbidden_status(user, ask)

    def check_path(self, user: User, path: str, method: str) -> None:
        """Refuse a path that is no resource; StatusError 403."""
        ask = AccessRequest(verb=method.lower(), path=path)
        if not self.authorizer.decide(user, ask).allowed:
            why = f'forbidden: User "{user.name}" cannot {ask.verb} path "{path}"'
            raise status.failure(403, "Forbidden", why, details={})


def _identity(name: str) -> AccessRequest:
    account = account_of(name)
    if account is None:
        return AccessRequest(verb="impersonate", resource="users", name=name)
    namespace, short = account
    return AccessRequest(
        verb="impersonate", resource="serviceaccounts", name=short, namespace=namespace
    )


def forbidden_status(user: User, ask: AccessRequest) -> StatusError:
    """403 in the words of the authorizer."""
    scope = f'in the namespace "{ask.namespace}"' if ask.namespace else "at the cluster scope"
    why = (
        f'User "{user.name}" cannot {ask.verb} resource "{ask.resource}" '
        f'in API group "{ask.group}" {scope}'
    )
    return status.forbidden(ask.resource.partition("/")[0], ask.group, ask.name, why=why)
