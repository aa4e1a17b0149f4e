"""How many files and connections this process may have open, and how many it takes of them."""

from __future__ import annotations

import resource

from gpusched import limits
from gpusched.errors import ConfigError
from gpusched.io.logs import Log

_log = Log(__name__)


def prepare() -> None:
    """Raise the soft limit as far as we want and may; told when that leaves few.

    Raises:
        ConfigError: so few that the kinds could not even be watched.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if _less(soft, limits.FILES_WANTED):
        most = limits.FILES_WANTED if _less(limits.FILES_WANTED, hard) else hard
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        soft = most
    if _less(soft, limits.FILES_LEAST):
        raise ConfigError(
            f"this process may open {soft} files and connections, and needs {limits.FILES_LEAST} "
            f"at least: raise the limit to {limits.FILES_WANTED} (ulimit -n, LimitNOFILE)"
        )
    if _less(soft, limits.FILES_WANTED):
        _log.warning(
            "few files may be open: fewer bindings are in flight at once",
            allowed=soft,
            wanted=limits.FILES_WANTED,
            connections=connections(limits.CONNECTIONS_MAX),
        )


def connections(most: int) -> int:
    """How many connections a pool may have that would like to have so many."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most if soft == resource.RLIM_INFINITY else max(1, min(most, soft - limits.FILES_KEPT))


def _less(limit: int, other: int) -> bool:
    """Whether a limit is lower than another, none being the highest."""
    if limit == resource.RLIM_INFINITY:
        return False
    return other == resource.RLIM_INFINITY or limit < other
