"""The tree that a group of Kubernetes is in: groups of groups down to PodGroups, with their pods."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from gpusched.api.foreign.kinds import NATIVE
from gpusched.api.gang.native_terms import COMPOSITE
from gpusched.base.classes import frozen
from gpusched.cache.gangs.foreign.native_trees import needed_children
from gpusched.cli.command import table
from gpusched.cli.inspect.cluster_reader import Json, items_at, list_objects, value_at
from gpusched.cli.inspect.pod_groups import served_kinds
from gpusched.io.client.api_client import ApiClient

_DEPTH_MAX: Final = 64
"""Levels that are looked through for the top: groups in each other have none."""
_HEADER: Final = ("GROUP", "NEEDS", "PLACED", "READY", "LEVEL")


@frozen(kw_only=True)
class TreeGroup:
    """One group of a tree.

    Attributes:
        parent: name of the CompositePodGroup that it is in; empty for the top.
        needed: pods of a PodGroup, or groups of a CompositePodGroup, that start together; None
            where the group cannot be read.
        level: node label of which all its pods need one value; empty for none.
    """

    kind: str
    name: str
    parent: str
    needed: int | None
    level: str


async def read_groups(api: ApiClient, namespace: str) -> tuple[TreeGroup, ...]:
    """All groups of Kubernetes in a namespace; none where it serves no such kind."""
    found = []
    for kind, codec, api_version in await served_kinds(api):
        if kind.source != NATIVE:
            continue
        path = f"/apis/{api_version}/namespaces/{namespace}/{kind.plural}"
        for item in await list_objects(api, path, what=kind.name):
            needed = None
            with contextlib.suppress(Exception):  # whatever is wrong, its conditions say it
                group = codec.entity_of(json.dumps(item).encode())
                composite = kind.kind == COMPOSITE
                needed = needed_children(group) if composite else group.min_member
            levels = items_at(item, "spec", "schedulingConstraints", "topology")
            found.append(
                TreeGroup(
                    kind=kind.kind,
                    name=str(value_at(item, "metadata", "name")),
                    parent=str(value_at(item, "spec", "parentCompositePodGroupName") or ""),
                    needed=needed,
                    level=", ".join(str(value_at(each, "key") or "") for each in levels),
                )
            )
    return tuple(sorted(found, key=lambda group: (group.kind, group.name)))


def tree_of(groups: Sequence[TreeGroup], kind: str, name: str) -> tuple[TreeGroup, ...]:
    """Groups of the tree that a group is in, the top first; none for a group that stands alone."""
    by_key = {(group.kind, group.name): group for group in groups}
    top = by_key.get((kind, name))
    for _ in range(_DEPTH_MAX):
        above = by_key.get((COMPOSITE, top.parent)) if top is not None else None
        if above is None:
            break
        top = above
    found = tuple(group for group, _ in _walk(groups, top)) if top is not None else ()
    return found if kind == COMPOSITE or len(found) > 1 else ()


def leaves_below(groups: Sequence[TreeGroup], name: str) -> frozenset[str]:
    """Names of the PodGroups under a CompositePodGroup, at any depth."""
    top = next((each for each in groups if (each.kind, each.name) == (COMPOSITE, name)), None)
    if top is None:
        return frozenset()
    return frozenset(group.name for group, _ in _walk(groups, top) if group.kind != COMPOSITE)


def describe_tree(
    tree: Sequence[TreeGroup], pods: Iterable[Json], group_of: Callable[[Json], str]
) -> list[dict[str, Any]]:
    """Each group with what it needs and has, the top first, as JSON.

    Args:
        tree: its groups, the top first; none for no tree.
        pods: of the namespace, others than those of the tree too.
        group_of: the name of the PodGroup that a pod belongs to.
    """
    if not tree:
        return []
    members: dict[str, list[Json]] = {}
    for pod in pods:
        members.setdefault(group_of(pod), []).append(pod)
    children: dict[str, list[TreeGroup]] = {}
    for each in tree[1:]:
        children.setdefault(each.parent, []).append(each)
    placed: dict[tuple[str, str], int] = {}
    rows = []
    for group, depth in reversed(_walk(tree, tree[0])):  # children before their parents
        below = children.get(group.name, []) if group.kind == COMPOSITE else []
        row: dict[str, Any] = {
            "kind": group.kind, "name": group.name, "parent": group.parent, "depth": depth,
            "needed": group.needed, "level": group.level,
        }  # fmt: skip
        if group.kind == COMPOSITE:
            have = sum(
                each.needed is not None and placed.get((each.kind, each.name), 0) >= each.needed
                for each in below
            )
            row |= {"groups": len(below), "placed": have}
        else:
            own = members.get(group.name, [])
            have = sum(map(_is_placed, own))
            row |= {"pods": len(own), "placed": have, "ready": sum(map(_is_ready, own))}
        placed[group.kind, group.name] = have
        rows.append(row)
    return rows[::-1]


def render_tree(rows: Sequence[Mapping[str, Any]]) -> str:
    """The tree as text: one line a group, each under its parent."""
    lines: list[tuple[str, ...]] = [_HEADER]
    open_at: list[bool] = []
    """Whether more groups follow at each depth above, so that their line goes on."""
    for index, row in enumerate(rows):
        depth = row["depth"]
        more = any(each["depth"] == depth for each in rows[index + 1 : _end_of_parent(rows, index)])
        open_at[depth:] = [more]
        stem = "".join("|  " if each else "   " for each in open_at[1:depth])
        branch = ("|- " if more else "`- ") if depth else ""
        composite = row["kind"] == COMPOSITE
        of = row["groups"] if composite else row["pods"]
        lines.append(
            (
                f"{stem}{branch}{row['kind']} {row['name']}",
                _needs(row["needed"], "group" if composite else "pod"),
                f"{row['placed']} of {of}",
                "" if composite else str(row["ready"]),
                row["level"],
            )
        )
    return table(lines)


def _end_of_parent(rows: Sequence[Mapping[str, Any]], index: int) -> int:
    """The first row behind one that does not stand under the same parent."""
    depth = rows[index]["depth"]
    return next(
        (each for each in range(index + 1, len(rows)) if rows[each]["depth"] < depth), len(rows)
    )


def _needs(needed: int | None, what: str) -> str:
    return "cannot be read" if needed is None else f"{needed} {what}{'s' * (needed != 1)}"


def _walk(groups: Sequence[TreeGroup], top: TreeGroup) -> list[tuple[TreeGroup, int]]:
    """A group and all below it with their depths, each parent before its children.

    Groups that are in each other are there once.
    """
    children: dict[str, list[TreeGroup]] = {}
    for each in reversed(groups):
        children.setdefault(each.parent, []).append(each)
    found, seen = [], set[tuple[str, str]]()
    waiting = [(top, 0)]
    while waiting:
        group, depth = waiting.pop()
        if (group.kind, group.name) in seen:
            continue
        seen.add((group.kind, group.name))
        found.append((group, depth))
        if group.kind == COMPOSITE:
            waiting += [(each, depth + 1) for each in children.get(group.name, ())]
    return found


def _is_placed(pod: Json) -> bool:
    failed = value_at(pod, "status", "phase") == "Failed"
    leaving = value_at(pod, "metadata", "deletionTimestamp")
    return bool(value_at(pod, "spec", "nodeName")) and not failed and not leaving


def _is_ready(pod: Json) -> bool:
    return _is_placed(pod) and any(
        value_at(each, "type") == "Ready" and value_at(each, "status") == "True"
        for each in items_at(pod, "status", "conditions")
    )
