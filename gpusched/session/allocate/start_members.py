"""Which members start a gang, and what to say when they do not exist."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gpusched.api.pod.pod import Pod
from gpusched.cache.gangs.gang import Gang, PodSet
from gpusched.placement.model.problem import Problem, SubGroupMinimum
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
    if len(gang.pod_sets) == 1 and not gang.min_roles:  # as nearly always
        only = gang.pod_sets[0]
        count = min(max(0, gang.members_at_start), len(only.pods))
        return [(only, count)] if count else [], ""
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


def start_sizes(gang: Gang, problem: Problem) -> list[int]:
    """Numbers of members to try, the fewest first.

    A member that can be taken away from a start is not needed for it. So a start either has exactly as
    many members as the gang needs, or it is a set of sub-groups with what each needs, and of
    roles with their minima, of which none can be left out.

    Args:
        gang: with pod sets.
        problem: with the gang's sub-groups.
    """
    need = gang.members_at_start
    alone, forced = _members_by_role_minima(gang, problem.parts)
    totals = _StartSizes(gang, problem, forced, more=need > gang.missing_by_sub_group[""])
    done = {total + alone for total in totals.of_gang(need - alone)}
    found = sorted(each for each in {need, *done} if each <= max(need, gang.pending))
    return found if len(found) <= SIZES_MAX else [*found[: SIZES_MAX - 1], found[-1]]


class _StartSizes:
    """Members with which sub-groups are complete, of which none can be left out.

    Args:
        gang: with pod sets.
        problem: with its sub-groups.
        forced: members of each sub-group of members that roles' minima call for.
        more: whether those that a sub-group of sub-groups needs may be too few for the gang.
    """

    def __init__(self, gang: Gang, problem: Problem, forced: Sequence[int], *, more: bool) -> None:
        self._gang = gang
        self._problem = problem
        self._forced = forced
        self._more = more

    def of_gang(self, need: int) -> set[int]:
        """Totals of sets of sub-groups with which the gang may start, of so many members at least."""
        lacking = self._completing_sizes(-1)
        # Those that a role's minimum calls for first; then the small ones.
        lacking.sort(key=lambda each: (not each[1], sorted(each[0])))
        least = self._problem.parts_least
        done: set[int] = set()
        states = {(0, 0)}
        for sizes, must in lacking:
            more = _with_one_more(states, sizes, least)
            states = more if must else states | more
            if not must:
                full = {each for each in states if each[0] >= least and each[1] >= need}
                done |= {total for _, total in full}
                states -= full
            states = _keep_largest(states)
        return done | {total for number, total in states if number >= least and total >= need}

    def _completing_sizes(self, holder: int) -> list[tuple[set[int], bool]]:
        """Of each sub-group that lacks members: numbers that complete it, and if it must be."""
        found = []
        for number, part in enumerate(self._problem.parts):
            there = _pending_in_sub_group(self._gang, number)
            if part.parent == holder and part.least and there >= part.least:
                forced = self._forced[number]
                found.append(({max(part.least, forced)}, bool(forced)))
        for number, each in enumerate(self._problem.holders):
            if each.parent == holder and each.least:
                inside = self._completing_sizes(number)
                sizes = self._of_holder(inside, each.least)
                if sizes:
                    found.append((sizes, any(must for _, must in inside)))
        return found

    def _of_holder(self, inside: Sequence[tuple[set[int], bool]], least: int) -> set[int]:
        states = {(0, 0)}
        for sizes, must in sorted(inside, key=lambda each: not each[1]):
            more = {(number + 1, total + size) for number, total in states for size in sizes}
            if not self._more and not must:
                more = {each for each in more if each[0] <= least}
            states = _keep_largest(more if must else states | more)
        return {total for number, total in states if number >= least}


def _with_one_more(
    states: set[tuple[int, int]], sizes: set[int], least: int
) -> set[tuple[int, int]]:
    return {(min(least, number + 1), total + size) for number, total in states for size in sizes}


def _keep_largest(states: set[tuple[int, int]]) -> set[tuple[int, int]]:
    return states if len(states) <= _STATES_MAX else set(sorted(states)[-_STATES_MAX:])


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
