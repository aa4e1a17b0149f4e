"""Groups of groups: CompositePodGroups and the PodGroups under them, as one gang of sub-groups.

A tree is decided as one: its root is the gang, each group below it a sub-group. A group that names
a parent never starts by itself: where its tree is wrong or not whole it is held, with the reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs
from msgspec import structs

from gpusched.api.foreign.native_groups import AS_ONE, INVALID
from gpusched.api.gang.native_terms import COMPOSITE
from gpusched.api.gang.pod_group import PodGroup, SubGroup
from gpusched.api.gang.sub_group_tree import DEPTH_MAX, least_members, split_sub_groups
from gpusched.api.meta.identity import GangKey, ObjectKey
from gpusched.api.pod.pod import Pod
from gpusched.base.classes import frozen
from gpusched.cache.gangs.foreign.native_members import schedulers_error
from gpusched.cache.gangs.gang import GangSpec
from gpusched.cache.store import KindStore

Node = tuple[str, ObjectKey]
"""Kind and key of a group."""
_NAMED_MAX: Final = 3


@frozen(kw_only=True)
class GroupTree:
    """All groups of one tree.

    Attributes:
        root: the CompositePodGroup that has no parent.
        composites: those below it, parents before their children.
        groups: PodGroups of the tree, sorted.
        error: why no pod of it may start, a sentence; empty for nothing.
    """

    root: PodGroup
    composites: tuple[PodGroup, ...] = ()
    groups: tuple[PodGroup, ...] = ()
    error: str = ""


class NativeTrees:
    """Which native groups hold which others.

    Args:
        groups, composites: all there are.
    """

    def __init__(self, groups: KindStore[PodGroup], composites: KindStore[PodGroup]) -> None:
        self._groups = groups
        self._composites = composites
        self._children: dict[ObjectKey, set[Node]] = {}
        self._parents: dict[Node, ObjectKey] = {}

    def note_group(self, kind: str, key: ObjectKey) -> set[GangKey]:
        """A group was put or dropped.

        Returns:
            All keys of gangs that may be other ones by that.
        """
        if kind == "PodGroup" and not self._composites.items and not self._parents:
            found = self._find_group(kind, key)
            if found is None or found.native is None or not found.native.parent:
                return {GangKey(kind, *key)}
        node = (kind, key)
        touched = self._groups_around(node)
        before = self._parents.pop(node, None)
        if before is not None:
            self._children[before].discard(node)
            if not self._children[before]:
                del self._children[before]
        group = self._find_group(kind, key)
        if group is not None and group.native is not None and group.native.parent:
            parent = ObjectKey(key.namespace, group.native.parent)
            self._parents[node] = parent
            self._children.setdefault(parent, set()).add(node)
        return touched | self._groups_around(node)

    def top_of(self, key: GangKey) -> GangKey | None:
        """The gang of the tree that a PodGroup is in; None where it is in none."""
        node: Node = (key.kind, ObjectKey(key.namespace, key.name))
        if node not in self._parents:
            return None
        return GangKey(COMPOSITE, *self._ancestor_path(node)[-1][1])

    def keys_around(self, key: GangKey) -> set[GangKey]:
        """Keys of all groups of the tree that one is in."""
        return self._groups_around((key.kind, ObjectKey(key.namespace, key.name)))

    def error_of(self, group: PodGroup) -> str | None:
        """Why a group that has a parent is held; None where it belongs to a tree that is whole."""
        node = (group.kind, group.key)
        path = self._ancestor_path(node)
        names = [key.name for _, key in path]
        top = path[-1]
        if top in self._parents:
            chain = " in ".join([*names, self._parents[top].name])
            return f"{COMPOSITE}s are in each other ({chain}): give one of them no parent"
        found = self._composites.items.get(top[1])
        if found is None:
            rejected = self._composites.rejected.get(top[1])
            why = (
                f"cannot be used: {rejected.field}: {rejected.why}"
                if rejected
                else "does not exist"
            )
            return f"its parent {COMPOSITE} {top[1]} {why}; no pod of it starts without its tree"
        tree = self.build_tree(found)
        return (
            f"its tree {COMPOSITE} {found.key} cannot start: {tree.error}" if tree.error else None
        )

    def build_tree(self, root: PodGroup) -> GroupTree:
        """The tree under a group that has no parent, and what is wrong with it."""
        composites: list[PodGroup] = []
        groups: list[PodGroup] = []
        level, depth, error = [root], 1, ""
        while level:
            below: list[PodGroup] = []
            for group in level:
                for kind, key in sorted(self._children.get(group.key, ())):
                    child = self._find_group(kind, key)
                    if child is not None:
                        (below if kind == COMPOSITE else groups).append(child)
            depth += bool(below)
            if depth > DEPTH_MAX and below and not error:
                error = f"{COMPOSITE} {below[0].name} is {depth} levels deep, and {DEPTH_MAX} are the most"
            composites += below
            level = below
        groups.sort(key=lambda each: each.key)
        everything = [root, *composites, *groups]
        return GroupTree(
            root=root,
            composites=tuple(composites),
            groups=tuple(groups),
            error=error or _tree_error(everything),
        )

    def _find_group(self, kind: str, key: ObjectKey) -> PodGroup | None:
        store = self._composites if kind == COMPOSITE else self._groups
        return store.items.get(key)

    def _ancestor_path(self, node: Node) -> list[Node]:
        """The group and those above it; ends with one that was seen before where they are a circle."""
        path = [node]
        while (parent := self._parents.get(path[-1])) is not None:
            above: Node = (COMPOSITE, parent)
            if above in path:
                break
            path.append(above)
        return path

    def _groups_around(self, node: Node) -> set[GangKey]:
        """All groups of the tree that one is in."""
        found = set(self._ancestor_path(node))
        left = list(found)
        while left:
            kind, key = left.pop()
            for child in self._children.get(key, ()) if kind == COMPOSITE else ():
                if child not in found:
                    found.add(child)
                    left.append(child)
        return {GangKey(kind, *key) for kind, key in found}


def _tree_error(groups: Sequence[PodGroup]) -> str:
    """What is wrong with the objects of one tree, as a sentence; empty for nothing."""
    for group in groups:
        assert group.native is not None
        if group.native.error[0]:
            return f"{group.kind} {group.name}: {group.native.error[1]}"
        if group.deleting and not group.native.started:
            return f"{group.kind} {group.name} is being deleted"
    workloads = sorted({each.native.workload for each in groups if each.native is not None})
    if len(workloads) > 1:
        named = ", ".join(name or "none" for name in workloads[:_NAMED_MAX])
        return f"its groups are of several Workloads ({named}): a tree is of one"
    return ""


def members_error(pods: Sequence[Pod], others: Sequence[Pod]) -> str:
    """What is wrong with the pods of one tree, as a sentence; empty for nothing.

    Args:
        pods: of the tree that are ours.
        others: of the tree that name another scheduler.
    """
    mixed = schedulers_error(pods, others)
    if mixed:
        return mixed
    alive = [pod for pod in pods if not pod.finished]
    priorities = sorted({pod.priority for pod in alive})
    if len(priorities) > 1:
        named = ", ".join(map(str, priorities[:_NAMED_MAX]))
        return f"its pods have several priorities ({named}): give all of them the same"
    return ""


def spec_of_tree(origin: GangSpec, tree: GroupTree) -> GangSpec:
    """The gang of a tree: its root's, with each group below as a sub-group.

    Where one group below goes as one when it is evicted, all of the tree does.
    """
    root = tree.root
    assert root.native is not None
    parts = []
    for group in (*tree.composites, *tree.groups):
        assert group.native is not None
        above = group.native.parent
        parts.append(
            SubGroup(
                sub_group_name(group),
                _own_minimum(tree, group),
                group.topology,
                "" if above == root.name else _composite_name(above),
                needed_children(group) if group.native.composite else 0,
            )
        )
    least = needed_children(root)
    terms = origin.terms
    whole = [each for each in (*tree.composites, *tree.groups) if each.terms.disruption == AS_ONE]
    remarks = [origin.warning, *(each.warning for each in (*tree.composites, *tree.groups))]
    if whole and terms.disruption != AS_ONE:
        terms = attrs.evolve(terms, disruption=AS_ONE)
        remarks.append(f"as {whole[0].kind} {whole[0].name} goes as one, all of the tree does")
    error = origin.error
    have = _child_count(tree, root)
    if not error[0] and have < least:
        groups = "1 group" if least == 1 else f"{least} groups together"
        error = (
            "NotEnoughMembers",
            f"needs {groups}; {have} {'exists' if have == 1 else 'exist'}",
        )
    leaves, holders = split_sub_groups(parts)
    return attrs.evolve(
        origin,
        sub_groups=leaves,
        parent_groups=holders,
        min_sub_groups=min(least, have),
        min_member=max(1, least_members(parts, min(least, have))),
        tree=(*tree.composites, *tree.groups),
        terms=terms,
        error=error,
        warning="; ".join(dict.fromkeys(filter(None, remarks))),
    )


def queue_of_tree(tree: GroupTree) -> str:
    """The queue that a group below the root names, the first one; empty for none."""
    return next((each.queue for each in (*tree.composites, *tree.groups) if each.queue), "")


def _own_minimum(tree: GroupTree, group: PodGroup) -> int:
    """Pods of the group itself; one without groups is never complete, as no pod names it."""
    if group.kind == COMPOSITE:
        return 0 if _child_count(tree, group) else 1
    return group.min_member


def needed_children(group: PodGroup) -> int:
    """Children that a group needs at once: with the basic policy a first one makes a start."""
    assert group.native is not None
    return group.native.min_groups or 1


def _child_count(tree: GroupTree, group: PodGroup) -> int:
    return sum(
        each.native is not None and each.native.parent == group.name
        for each in (*tree.composites, *tree.groups)
    )


def sub_group_name(group: PodGroup) -> str:
    """The sub-group that stands for a group: kinds may have the same names."""
    return _composite_name(group.name) if group.kind == COMPOSITE else group.name


def _composite_name(name: str) -> str:
    return f"{COMPOSITE}/{name}"


def in_sub_group(pod: Pod, name: str) -> Pod:
    """The pod as a member of a sub-group, whatever its labels say."""
    return pod if pod.sub_group == name else structs.replace(pod, sub_group=name)


def invalid_spec_error(why: str) -> tuple[str, str]:
    """Reason and sentence of an error that the author has to mend."""
    return INVALID, why
