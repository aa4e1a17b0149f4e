"""Which members start a gang, and what to say when they do not exist."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gpusched.api.pod.pod import Pod
from gpusched.cache.gangs.gang import Gang, PodSet
from gpusched.placement.model.problem import SubGroupMinimum
from gpusched.session.framework.hooks import PodOrder
from gpusched.session.framework.reasons import pods_text, shorten
from gpusched.session.framework.sort_keys import joined_sort_key


def choose_start_members(
    gang: Gang, *, largest_first: bool
) -> tuple[list[tuple[PodSet, int]], str]:
    """Which members start the gang: the roles' minima first, then as many as are missing.

    Returns:
        Pairs of pod set and count, largest class first, and a sentence when a role has too few
        pods (the pairs are then meaningless).
    """
    counts = dict.fromkeys(range(len(gang.pod_sets)), 0)
    order = list(range(len(gang.pod_sets)))
    if not largest_first:
        order.reverse()
    for role, lacking in gang.missing_roles:
        missing = lacking
        for index in order:
            pod_set = gang.pod_sets[index]
            if pod_set.role == role and missing > 0:
                counts[index] = min(missing, len(pod_set.pods))
                missing -= counts[index]
        if missing > 0:
            return [], role_shortage_message(gang, role, missing)
    left = gang.members_at_start - sum(counts.values())
    for index in order:
        take = min(max(0, left), len(gang.pod_sets[index].pods) - counts[index])
        counts[index] += take
        left -= take
    return [(gang.pod_sets[index], count) for index, count in sorted(counts.items()) if count], ""


def role_shortage_message(gang: Gang, role: str, missing: int) -> str:
    """The message for a role that lacks so many pods, which were never created."""
    minimum = dict(gang.min_roles)[role]
    return f"needs {pods_text(minimum)} of role {shorten(role)}; {minimum - missing} can run"


def in_pod_order(pods: Sequence[Pod], orders: Sequence[PodOrder]) -> Sequence[Pod]:
    """Equal pods in the order in which they get places; as they are when one has no key."""
    if not orders:
        return pods
    keys = {pod.uid: joined_sort_key(orders, pod) for pod in pods}
    if any(key is None for key in keys.values()):
        return pods
    return sorted(pods, key=lambda pod: keys[pod.uid])


SIZES_MAX: Final = 8
"""Numbers of members that are tried for one gang; each may cost a search."""
_STATES_MAX: Final = 4_000


def start_sizes(gang: Gang, parts: Sequence[SubGroupMinimum], least: int) -> list[int]:
    """Numbers of members to try, the fewest first.

    A member that can be taken away from a start is not needed for it. So a start either has exactly as
    many members as the gang needs, or it is a set of sub-groups with what each needs, and of
    roles with their minima, of which none can be left out.

    Args:
        gang: with pod sets.
        parts: one for each of its sub-groups.
        least: how many of those that lack members must be completed.
    """
    need = gang.members_at_start
    needs = [part.least for part in parts]
    alone, forced = _members_by_role_minima(gang, parts)
    lacking = [
        (max(count, forced[number]), bool(forced[number]))
        for number, count in enumerate(needs)
        if count and _pending_in_sub_group(gang, number) >= count
    ]
    # Those that a role's minimum calls for first; then the small ones.
    lacking.sort(key=lambda each: (not each[1], each[0]))
    done: set[int] = set()
    states = {(0, alone)}
    for size, must in lacking:
        more = {(min(least, number + 1), total + size) for number, total in states}
        states = more if must else states | more
        if not must:
            full = {each for each in states if each[0] >= least and each[1] >= need}
            done |= {total for _, total in full}
            states -= full
        if len(states) > _STATES_MAX:
            states = set(sorted(states)[-_STATES_MAX:])
    done |= {total for number, total in states if number >= least and total >= need}
    found = sorted(each for each in {need, *done} if each <= max(need, gang.pending))
    return found if len(found) <= SIZES_MAX else [*found[: SIZES_MAX - 1], found[-1]]


def _members_by_role_minima(gang: Gang, parts: Sequence[SubGroupMinimum]) -> tuple[int, list[int]]:
    """Members that minima of roles need outside sub-groups, and of each sub-group.

    A role whose members are in several sub-groups, or partly in none, asks none in particular.
    """
    named = {part.name: number for number, part in enumerate(gang.sub_groups)}
    alone, forced = 0, [0] * len(parts)
    for role, missing in gang.missing_roles:
        where = {
            named.get(pod_set.sub_group, -1) for pod_set in gang.pod_sets if pod_set.role == role
        }
        if where == {-1}:
            alone += missing
        elif len(where) == 1:
            forced[where.pop()] += missing
    return alone, forced


def _pending_in_sub_group(gang: Gang, number: int) -> int:
    name = gang.sub_groups[number].name
    return sum(len(pod_set.pods) for pod_set in gang.pod_sets if pod_set.sub_group == name)
