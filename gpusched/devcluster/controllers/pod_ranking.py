"""Which pods a replica set gives up first when it shrinks."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

from gpusched.devcluster.controllers import pod_state
from gpusched.devcluster.controllers.pod_state import Obj
from gpusched.devcluster.core import parse_time

_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
_INTEGER: Final = re.compile(r"0|-?[1-9][0-9]*")
_COST_MAX: Final = 2**31
_PHASES: Final = {"Pending": 0, "Unknown": 1, "Running": 2}
_NANOSECONDS: Final = 1_000_000_000
_FOREVER: Final = 1 << 10

Rank = tuple[bool, int, bool, int, int, int, int, int, str]


def doomed(pods: Sequence[Obj], count: int, *, related: Sequence[Obj], now: float) -> list[Obj]:
    """The pods that go when ``count`` have to.

    Unbound ones go first, then those that do not run, are not ready, cost less by annotation,
    share their node with more of their like, are ready for less long (ages compare by their
    power of two), restarted more often, are younger.

    Args:
        pods: active pods of the replica set.
        count: how many go.
        related: active pods of all replica sets with the same owner, these pods among them.
        now: epoch seconds.
    """
    crowds = Counter(str(p["spec"].get("nodeName") or "") for p in related)

    def rank(pod: Obj) -> Rank:
        node = str(pod["spec"].get("nodeName") or "")
        ready = pod_state.ready(pod)
        return (
            bool(node),
            _PHASES.get(pod_state.phase(pod), 0),
            ready,
            _cost(pod),
            -crowds[node],
            _magnitude(pod_state.ready_since(pod), now) if ready else 0,
            -pod_state.restarts([pod]),
            _magnitude(pod["metadata"].get("creationTimestamp"), now),
            pod["metadata"]["uid"],
        )

    return sorted(pods, key=rank)[:count]


def _cost(pod: Obj) -> int:
    text = (pod["metadata"].get("annotations") or {}).get(_COST, "")
    if not _INTEGER.fullmatch(text):
        return 0
    cost = int(text)
    return cost if -_COST_MAX <= cost < _COST_MAX else 0


def _magnitude(since: str | None, now: float) -> int:
    """The power of two of an age; what does not tell its age counts as youngest."""
    if not since:
        return -_FOREVER
    age = (now - parse_time(since)) * _NANOSECONDS
    return int(math.log2(age)) if age > 0 else -1
