"""What to do when the API server says no: 401 and 403 are no outage."""

from __future__ import annotations

from gpusched.errors import Denied

DAEMON_ROLE = "ClusterRole gpusched (manifests/rbac.yaml)"


def denied(error: Denied, role: str) -> Denied:
    """The same error with what to do about it.

    Args:
        error: as the server's answer gave it; for 403 it names user, verb and resource.
        role: what grants the right.
    """
    if error.status == 401:
        todo = "the API server does not accept these credentials: renew them, or name others"
    else:
        todo = f"{role} has this right: bind it to this user, or ask an administrator to"
    return Denied(f"{error}; {todo}", status=error.status, reason=error.reason)
