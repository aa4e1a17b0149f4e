"""Sub-groups that hold other sub-groups: a tree under the gang, a few levels deep."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from gpusched.api.gang.pod_group import SubGroup

DEPTH_MAX: Final = 4
"""Levels of sub-groups below the gang: as many as Kubernetes allows of CompositePodGroups."""


def split_sub_groups(
    groups: Sequence[SubGroup],
) -> tuple[tuple[SubGroup, ...], tuple[SubGroup, ...]]:
    """Sub-groups that pods name, and those that hold other sub-groups."""
    above = {each.parent for each in groups}
    return (
        tuple(each for each in groups if each.name not in above),
        tuple(each for each in groups if each.name in above),
    )


def sub_group_tree_error(groups: Sequence[SubGroup]) -> str:
    """Why these sub-groups are no tree that can be decided, with their names; empty for none."""
    known = {each.name: each for each in groups}
    holds = Counter(each.parent for each in groups)
    for each in groups:
        if each.parent and each.parent not in known:
            return f"the parent {each.parent!r} of {each.name!r} is no sub-group"
        path = [each.name]
        while known[path[-1]].parent:
            path.append(known[path[-1]].parent)
            if path[-1] in path[:-1]:
                return f"{' in '.join(repr(name) for name in path)}: a sub-group is in itself"
            if path[-1] not in known:
                break  # told when its own turn comes
        if len(path) > DEPTH_MAX:
            return f"{each.name!r} is {len(path)} levels deep, and {DEPTH_MAX} are the most"
    for each in groups:
        if each.min_sub_groups > holds[each.name]:
            return (
                f"{each.name!r} needs {each.min_sub_groups} sub-groups complete "
                f"and holds {holds[each.name]}"
            )
    return ""


def with_default_minima(groups: Sequence[SubGroup]) -> tuple[SubGroup, ...]:
    """With what is left out: all sub-groups in one that holds some, one pod in any other."""
    holds = Counter(each.parent for each in groups)
    return tuple(
        SubGroup(each.name, 0, each.topology, each.parent, each.min_sub_groups or holds[each.name])
        if holds[each.name]
        else SubGroup(each.name, each.min_member or 1, each.topology, each.parent)
        for each in groups
    )


def least_members(groups: Sequence[SubGroup], min_sub_groups: int) -> int:
    """Pods with which so many sub-groups at the top are complete, the smallest ones."""
    holds: dict[str, list[SubGroup]] = {}
    for each in groups:
        holds.setdefault(each.parent, []).append(each)

    def least(name: str, needed: int) -> int:
        sizes = (
            least(each.name, each.min_sub_groups) if each.name in holds else each.min_member
            for each in holds.get(name, ())
        )
        found = sorted(sizes)[:needed]
        return sum(found) + needed - len(found)

    return least("", min_sub_groups)
