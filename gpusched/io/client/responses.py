"""What the API server said, and which of our faults that is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Final

from gpusched.base import errors, limits
from gpusched.base.classes import frozen
from gpusched.io.observe.text import one_line

BUDGET_CAUSE: Final = "DisruptionBudget"


@frozen
class ApiResponse:
    """Any HTTP answer.

    Attributes:
        headers: case-insensitive.
        body: raw bytes, whole.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def ok(self) -> bool:
        """Whether the server did what was asked."""
        return 200 <= self.status < 300

    def server_time(self) -> float | None:
        """Seconds since the epoch by the server's own clock (whole seconds), None if unsaid."""
        date = self.headers.get("Date")
        if date is None:
            return None
        try:
            return parsedate_to_datetime(date).timestamp()
        except ValueError:
            return None

    def retry_after_s(self) -> float:
        """Seconds the server asks us to wait; 0 if it does not."""
        return _seconds(self.headers.get("Retry-After", ""))


def api_error(response: ApiResponse, *, doing: str, write: bool = False) -> errors.ApiError:
    """The fault that an answer without success stands for; the caller raises it.

    Args:
        response: an answer whose ``ok`` is false.
        doing: what was tried, for the sentence: ``bind pod ns/name``.
        write: whether the request could have changed something; then a 5xx proves nothing.
    """
    status = response.status
    body = _status_body(response.body)
    reason = str(body.get("reason") or "")
    said = one_line(str(body.get("message") or ""), limits.TEXT_MAX) or f"HTTP {status}"
    message = f"could not {doing}: {said}"
    if status == 429:
        details = body.get("details")
        details = details if isinstance(details, dict) else {}
        causes = details.get("causes")
        budgets = [
            one_line(str(cause.get("message") or ""), limits.TEXT_MAX)
            for cause in (causes if isinstance(causes, list) else ())
            if isinstance(cause, dict) and cause.get("reason") == BUDGET_CAUSE
        ]
        if budgets:
            message = " ".join(filter(None, (message, budgets[0])))
            return errors.BudgetRefused(message, status=status, reason=reason)
        wait_s = response.retry_after_s() or _seconds(str(details.get("retryAfterSeconds") or ""))
        return errors.Throttled(message, retry_after_s=wait_s)
    if status >= 500 and write:
        return errors.OutcomeUnknown(message, status=status, reason=reason)
    return _KINDS.get(status, errors.ApiError)(message, status=status, reason=reason)


_KINDS: Final[Mapping[int, type[errors.ApiError]]] = {
    401: errors.Denied,
    403: errors.Denied,
    404: errors.NotFound,
    409: errors.Conflict,
    410: errors.Gone,
}


def _status_body(body: bytes) -> dict[str, Any]:
    """The Status object of an answer; what is no JSON object becomes its message."""
    try:
        parsed = json.loads(body[: limits.WATCH_LINE_MAX])
    except (ValueError, RecursionError):
        return {"message": body[: limits.TEXT_MAX].decode("utf-8", "replace").strip()}
    return parsed if isinstance(parsed, dict) else {}


def _seconds(text: str) -> float:
    return float(min(int(text), 3600)) if text.isascii() and text.isdigit() else 0.0
