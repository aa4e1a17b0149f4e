"""A request as the endpoints read it, and what they answer: no transport, no verbs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from gpusched.base.classes import frozen
from gpusched.devcluster.apiserver.endpoints.access import RequestAccess
from gpusched.devcluster.apiserver.rbac.rules import User


@frozen(slots=True, kw_only=True)
class ApiRequest:
    """A request as this server reads it; ``as_of`` is the newest version that a list may show."""

    method: str
    path: str
    query: dict[str, str]
    accept: str
    content_type: str
    agent: str
    body: bytes
    user: User
    access: RequestAccess
    as_of: int | None = None


@frozen(slots=True, kw_only=True)
class ApiAnswer:
    """What goes back: a body, or a stream of chunks; ``cut`` bytes of the body are all that is sent."""

    body: bytes = b""
    code: int = 200
    content_type: str = "application/json"
    warnings: Sequence[str] = ()
    stream: AsyncIterator[bytes] | None = None
    cut: int | None = None
