"""How large the replica sets of a Deployment may be: pure numbers, no cluster."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from typing import Final

from gpusched.devcluster.controllers.pod_state import Obj

DESIRED: Final = "deployment.kubernetes.io/desired-replicas"
MAXIMUM: Final = "deployment.kubernetes.io/max-replicas"


def wanted_replicas(obj: Obj) -> int:
    """Replicas that a spec asks for."""
    return int(obj["spec"]["replicas"])


def total_wanted(sets: Iterable[Obj]) -> int:
    """Replicas that the specs of several sets ask for."""
    return sum(wanted_replicas(one) for one in sets)


def total_reported(sets: Iterable[Obj], key: str = "replicas") -> int:
    """The sum of one count over the statuses of several sets."""
    return sum((one.get("status") or {}).get(key, 0) for one in sets)


def int_or_percent(value: int | str, whole: int, *, up: bool) -> int:
    """A count, or a percentage of a whole rounded up or down."""
    if isinstance(value, int):
        return value
    exact = Fraction(int(value.removesuffix("%")) * whole, 100)
    return math.ceil(exact) if up else math.floor(exact)


def _bounds(deployment: Obj) -> tuple[int, int]:
    """How many pods may be too many, and how many too few; never both none."""
    strategy = deployment["spec"]["strategy"]
    if strategy["type"] != "RollingUpdate":
        return 0, 0
    rolling, replicas = strategy["rollingUpdate"], wanted_replicas(deployment)
    surge = int_or_percent(rolling["maxSurge"], replicas, up=True)
    lost = int_or_percent(rolling["maxUnavailable"], replicas, up=False)
    return (surge, lost) if surge or lost else (0, 1)


def max_surge(deployment: Obj) -> int:
    """Pods that may exist beyond the wanted ones."""
    return _bounds(deployment)[0]


def max_unavailable(deployment: Obj) -> int:
    """Wanted pods that may be missing."""
    return min(_bounds(deployment)[1], wanted_replicas(deployment))


def new_replica_set_size(deployment: Obj, sets: Iterable[Obj], size: int) -> int:
    """The next size of the newest set, which has ``size`` now, beside all sets it is one of."""
    replicas = wanted_replicas(deployment)
    if deployment["spec"]["strategy"]["type"] != "RollingUpdate":
        return replicas
    room = replicas + max_surge(deployment) - total_wanted(sets)
    return size if room <= 0 else size + min(room, replicas - size)


def size_annotations(one: Obj, key: str) -> int | None:
    """A number in an annotation; None when there is none that can be read."""
    text = (one["metadata"].get("annotations") or {}).get(key, "")
    return int(text) if text.isascii() and text.isdigit() else None


def proportional_sizes(deployment: Obj, sets: list[Obj]) -> dict[str, int]:
    """Sizes by name of active sets when a Deployment is scaled amid a rollout.

    What is added or taken is spread by size, the remainder goes to the largest set.
    """
    replicas = wanted_replicas(deployment)
    allowed = replicas + max_surge(deployment) if replicas else 0
    change = allowed - total_wanted(sets)
    by_age = sorted(
        sets,
        key=lambda one: (one["metadata"]["creationTimestamp"], one["metadata"]["name"]),
        reverse=change > 0,
    )
    ordered = sorted(by_age, key=wanted_replicas, reverse=True)
    sizes: dict[str, int] = {}
    spread = 0
    for one in ordered:
        part = _part_of_change(deployment, one, change - spread) if change else 0
        sizes[one["metadata"]["name"]] = wanted_replicas(one) + part
        spread += part
    if ordered and change:
        largest = ordered[0]["metadata"]["name"]
        sizes[largest] = max(sizes[largest] + change - spread, 0)
    return sizes


def _part_of_change(deployment: Obj, one: Obj, left: int) -> int:
    """A set's part of a change, of which ``left`` is still to be spread."""
    size = wanted_replicas(one)
    if not size or not left:
        return 0
    if not wanted_replicas(deployment):
        part = -size
    else:
        before = size_annotations(one, MAXIMUM) or (deployment.get("status") or {}).get(
            "replicas", 0
        )
        most = wanted_replicas(deployment) + max_surge(deployment)
        exact = Fraction(size * most, before) if before else Fraction(size)
        part = math.floor(exact + Fraction(1, 2)) - size
    return min(part, left) if left > 0 else max(part, left)
