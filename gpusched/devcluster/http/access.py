"""Who may do what: two static tokens, one allowed everything and one nothing."""

from __future__ import annotations

from typing import Any, Final

import attrs

from gpusched.devcluster import status
from gpusched.devcluster.http.routes import Route
from gpusched.devcluster.status import StatusError

Obj = dict[str, Any]

USER_TOKEN: Final = "usertoken"  # noqa: S105  # it opens nothing, by design
_REVIEWS: Final = frozenset(
    {"selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews"}
)


@attrs.frozen
class User:
    """An authenticated client."""

    name: str
    groups: tuple[str, ...]
    admin: bool


class Access:
    """Tokens and the checks made before anything else is looked at."""

    def __init__(self, admin_token: str, *, local: bool = True) -> None:
        """Know the tokens; ``local`` says that only this machine can connect."""
        self._local = local
        everyone = "system:authenticated"
        self._admin = User("admin", ("system:masters", everyone), admin=True)
        self._users = {
            admin_token: self._admin,
            USER_TOKEN: User("alice", (everyone,), admin=False),
        }

    def user(self, authorization: str, *, browser: bool = False) -> User:
        """Return the user of an Authorization header; raises StatusError 401.

        On a loopback address a request without the header is the admin's, as with ``kubectl
        proxy``: kubectl sends no credentials over plain HTTP. A page in a browser is no such
        client, whatever site it comes from.
        """
        if not authorization and self._local and not browser:
            return self._admin
        scheme, _, token = authorization.partition(" ")
        user = self._users.get(token.strip()) if scheme.lower() == "bearer" else None
        if user is None:
            raise status.unauthorized()
        return user

    def check(self, user: User, route: Route, verb: str) -> None:
        """Refuse what a user may not do, before telling whether it exists; StatusError 403."""
        if user.admin or (route.plural in _REVIEWS and verb == "create"):
            return
        raise denied(user, route, verb)


def denied(user: User, route: Route, verb: str) -> StatusError:
    """403 in the words of the authorizer."""
    what = f"{route.plural}/{route.subresource}" if route.subresource else route.plural
    scope = f'in the namespace "{route.namespace}"' if route.namespace else "at the cluster scope"
    why = f'User "{user.name}" cannot {verb} resource "{what}" in API group "{route.group}" {scope}'
    return status.forbidden(route.plural, route.group, route.name, why=why)


def review(user: User, plural: str, body: Obj) -> Obj:
    """Answer a review: SelfSubjectAccessReview and its relatives."""
    answer: Obj = {
        "kind": body.get("kind"),
        "apiVersion": body.get("apiVersion"),
        "metadata": {},
        "spec": body.get("spec") or {},
    }
    if plural == "selfsubjectreviews":
        del answer["spec"]
        answer["status"] = {"userInfo": {"username": user.name, "groups": list(user.groups)}}
    elif plural == "selfsubjectrulesreviews":
        every = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
        paths = {"verbs": ["*"], "nonResourceURLs": ["*"]}
        answer["status"] = {
            "resourceRules": [every] if user.admin else [],
            "nonResourceRules": [paths] if user.admin else [],
            "incomplete": False,
        }
    else:
        allowed = user.admin
        if plural == "subjectaccessreviews":
            asked = answer["spec"]
            allowed = asked.get("user") == "admin" or "system:masters" in (
                asked.get("groups") or ()
            )
        answer["status"] = {"allowed": allowed}
    return answer
