"""Which members start a gang, and what to say when they do not exist."""

from __future__ import annotations

from gpusched.cache.gangs import Gang, Task
from gpusched.session.reasons import members, short


def wanted(gang: Gang, *, largest_first: bool) -> tuple[list[tuple[Task, int]], str]:
    """Which members start the gang: the roles' minima first, then as many as are missing.

    Returns:
        Pairs of task and count, largest class first, and a sentence when a role has too few
        pods (the pairs are then meaningless).
    """
    counts = dict.fromkeys(range(len(gang.tasks)), 0)
    order = list(range(len(gang.tasks)))
    if not largest_first:
        order.reverse()
    for role, lacking in gang.missing_roles:
        missing = lacking
        for index in order:
            task = gang.tasks[index]
            if task.role == role and missing > 0:
                counts[index] = min(missing, len(task.pods))
                missing -= counts[index]
        if missing > 0:
            return [], short_of_role(gang, role, missing)
    left = gang.at_once - sum(counts.values())
    for index in order:
        take = min(max(0, left), len(gang.tasks[index].pods) - counts[index])
        counts[index] += take
        left -= take
    return [(gang.tasks[index], count) for index, count in sorted(counts.items()) if count], ""


def short_of_role(gang: Gang, role: str, missing: int) -> str:
    """The sentence for a role of which so many pods are missing that nobody created."""
    minimum = dict(gang.min_roles)[role]
    return f"needs {members(minimum)} of role {short(role)}; {minimum - missing} can run"
