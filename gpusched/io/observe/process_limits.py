"""How many files, connections and processors this process may use, and how many it takes of them."""

from __future__ import annotations

import gc
import os
import resource
from pathlib import Path
from typing import Final

from gpusched.base import limits
from gpusched.base.errors import ConfigError
from gpusched.io.observe.logs import Logger

_QUOTA: Final = Path("/sys/fs/cgroup/cpu.max")
_log = Logger(__name__)


def raise_file_limit() -> None:
    """Raise the soft limit as far as we want and may; told when that leaves few.

    Raises:
        ConfigError: so few that the kinds could not even be watched.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if _is_lower(soft, limits.OPEN_FILES_WANTED):
        most = limits.OPEN_FILES_WANTED if _is_lower(limits.OPEN_FILES_WANTED, hard) else hard
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        soft = most
    if _is_lower(soft, limits.OPEN_FILES_MIN):
        raise ConfigError(
            f"this process may open {soft} files and connections, and needs {limits.OPEN_FILES_MIN} "
            f"at least: raise the limit to {limits.OPEN_FILES_WANTED} (ulimit -n, LimitNOFILE)"
        )
    if _is_lower(soft, limits.OPEN_FILES_WANTED):
        _log.warning(
            "few files may be open: fewer bindings are in flight at once",
            allowed=soft,
            wanted=limits.OPEN_FILES_WANTED,
            connections=connection_limit(limits.CONNECTIONS_MAX),
        )


def connection_limit(most: int) -> int:
    """How many connections a pool may have that would like to have so many."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return (
        most
        if soft == resource.RLIM_INFINITY
        else max(1, min(most, soft - limits.OPEN_FILES_RESERVED))
    )


def usable_processors(quota: Path = _QUOTA) -> int:
    """Processors on which this process and its children may run at a time, one at least.

    Args:
        quota: file of the control group that says how much of their time they get.
    """
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    try:
        time, period = quota.read_text(encoding="ascii").split()
        return max(1, min(allowed or 1, int(time) // int(period)))
    except (OSError, ValueError):  # no such file, or no bound: max
        return allowed or 1


def _is_lower(limit: int, other: int) -> bool:
    """Whether a limit is lower than another, none being the highest."""
    if limit == resource.RLIM_INFINITY:
        return False
    return other == resource.RLIM_INFINITY or limit < other


def collect_garbage_rarely(*, plays: bool = False) -> None:
    """Let the collector run less often, for the whole process.

    Each of its runs walks what is young, and now and then everything: the cache of a large
    cluster, again and again while it is being filled. What we drop holds no cycles and is freed
    at once in any case.

    Args:
        plays: whether sessions are played one after the other: then it waits for more than one of them makes.
    """
    after = limits.COLLECT_IN_PLAYS_AFTER_OBJECTS if plays else limits.COLLECT_AFTER_OBJECTS
    gc.set_threshold(after, limits.COLLECT_OLDER_AFTER, gc.get_threshold()[2])


def collect_no_garbage_yet() -> None:
    """Let the collector rest until ``leave_objects_alone``, but for a process that never gets there."""
    gc.set_threshold(limits.COLLECT_WHILE_LISTING_AFTER_OBJECTS, *gc.get_threshold()[1:])


def leave_objects_alone() -> None:
    """Never walk again what there is now, which is the cluster: a run over everything stops the
    loop for a sixth of a second in a large one. From now on the collector runs rarely.
    """
    gc.freeze()
    collect_garbage_rarely()
