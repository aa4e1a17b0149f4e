"""Status bodies: what a client decides on when an answer is not the object it asked for.

The shape of ``details`` differs by reason and is part of the contract (behaviours E1 to E3).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpusched.devcluster.apimachinery.field_errors import FieldError

Body = dict[str, Any]


class StatusError(Exception):
    """A request that ends in a Status of kind Failure; the body is complete and ready to send."""

    def __init__(self, body: Body) -> None:
        super().__init__(body.get("message", ""))
        self.body = body

    @property
    def code(self) -> int:
        """Return the HTTP status code."""
        return int(self.body["code"])

    @property
    def reason(self) -> str:
        """Machine-readable reason, empty when the body has none."""
        return str(self.body.get("reason", ""))

    @property
    def message(self) -> str:
        """The sentence of the body."""
        return str(self.body.get("message", ""))


def failure(code: int, reason: str, message: str, *, details: Body | None = None) -> StatusError:
    """Build a Failure; ``details`` stays absent when None, and the reason when empty."""
    body: Body = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
    }
    if reason:
        body["reason"] = reason
    if details is not None:
        body["details"] = details
    body["code"] = code
    return StatusError(body)


def success(*, code: int = 201, details: Body | None = None) -> Body:
    """Build the Status of kind Success that answers bindings, evictions and some deletions."""
    body: Body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if details is not None:
        body["details"] = details
    else:
        body["code"] = code
    return body


def qualified(plural: str, group: str) -> str:
    """``jobs.batch`` for grouped resources, ``pods`` for the core."""
    return f"{plural}.{group}" if group else plural


def _details(name: str, group: str, kind: str) -> Body:
    details: Body = {}
    if name:
        details["name"] = name
    if group:
        details["group"] = group
    details["kind"] = kind
    return details


def not_found(plural: str, group: str, name: str) -> StatusError:
    """404 of an object."""
    return failure(
        404,
        "NotFound",
        f'{qualified(plural, group)} "{name}" not found',
        details=_details(name, group, plural),
    )


def unknown_resource() -> StatusError:
    """404 of a resource that its known group and version do not serve."""
    return failure(404, "NotFound", "the server could not find the requested resource", details={})


def already_exists(plural: str, group: str, name: str) -> StatusError:
    """409 of a create."""
    return failure(
        409,
        "AlreadyExists",
        f'{qualified(plural, group)} "{name}" already exists',
        details=_details(name, group, plural),
    )


def conflict(plural: str, group: str, name: str, *, why: str) -> StatusError:
    """409 of a write that no longer fits the stored object."""
    return failure(
        409,
        "Conflict",
        f'Operation cannot be fulfilled on {qualified(plural, group)} "{name}": {why}',
        details=_details(name, group, plural),
    )


MODIFIED = (
    "the object has been modified; please apply your changes to the latest version and try again"
)
"""Why a write with an old resourceVersion is refused."""


def forbidden(
    plural: str, group: str, name: str, *, why: str, causes: list[Body] | None = None
) -> StatusError:
    """403, by rights or by admission."""
    subject = f'{qualified(plural, group)} "{name}"' if name else qualified(plural, group)
    details = _details(name, group, plural)
    if causes:
        details["causes"] = causes
    return failure(403, "Forbidden", f"{subject} is forbidden: {why}", details=details)


def bad_request(message: str) -> StatusError:
    """400: the request cannot be understood."""
    return failure(400, "BadRequest", message)


def method_not_allowed() -> StatusError:
    """Return the 405 of a verb that a resource does not have."""
    return failure(
        405,
        "MethodNotAllowed",
        "the server does not allow this method on the requested resource",
        details={},
    )


def terminating_definition(plural: str, group: str) -> StatusError:
    """405 of a create of a custom kind whose definition is being deleted."""
    return failure(
        405,
        "MethodNotAllowed",
        "create not allowed while custom resource definition is terminating",
        details={"group": group, "kind": plural},
    )


def unauthorized() -> StatusError:
    """Return the 401 of a request without valid credentials."""
    return failure(401, "Unauthorized", "Unauthorized")


def not_implemented(feature: str, *, field: str = "") -> StatusError:
    """501: this server is honest about what it leaves to a real API server."""
    causes = [{"reason": "NotImplemented", "message": feature, "field": field}]
    return failure(
        501,
        "NotImplemented",
        f"{feature} is not supported by the embedded API server; use a real API server for it",
        details={"causes": causes},
    )


def expired(message: str) -> StatusError:
    """410: the asked version is no longer known."""
    return failure(410, "Expired", message)


def invalid(kind: str, group: str, name: str, *, errors: Sequence[FieldError]) -> StatusError:
    """422 with one cause a field error, texts aggregated as clients print them."""
    seen: dict[str, None] = {}
    for e in errors:
        seen.setdefault(f"{e.field}: {e.text}")
    texts = list(seen)
    joined = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    details = _details(name, group, kind)
    details["causes"] = [
        {"reason": e.cause_reason, "message": e.text, "field": e.field} for e in errors
    ]
    return failure(
        422,
        "Invalid",
        f'{qualified(kind, group)} "{name}" is invalid: {joined}',
        details=details,
    )
