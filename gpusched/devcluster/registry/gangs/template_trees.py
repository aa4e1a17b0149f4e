"""Trees of templates in a Workload of Kubernetes 1.37: names, depth, priorities, children."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from gpusched.devcluster.apimachinery.field_errors import (
    FieldError,
    duplicate,
    invalid,
    invalid_structure,
)
from gpusched.devcluster.registry.gangs.features import GangFeatures

Obj = dict[str, Any]

DEPTH_MAX: Final = 4
_GROUPS: Final = "podGroupTemplates"
_TREES: Final = "compositePodGroupTemplates"


def template_tree_errors(spec: Obj, features: GangFeatures) -> list[FieldError]:
    """Check what holds across templates; Kubernetes 1.36 has no such rules."""
    if features.release == "1.36":
        return []
    names = {group.get("name") or "" for group in spec.get(_GROUPS) or ()}
    return [
        *_repeated_names(spec, "spec", names),
        *_depth_errors(spec),
        *_priority_errors(spec),
        *_childless(spec, "spec"),
    ]


def _repeated_names(holder: Obj, at: str, names: set[str]) -> Iterator[FieldError]:
    """Names of trees, then those in each of them; within one list declared rules look."""
    trees = holder.get(_TREES) or ()
    for i, tree in enumerate(trees):
        if (tree.get("name") or "") in names:
            yield duplicate(f"{at}.{_TREES}[{i}].name", tree.get("name") or "")
    names.update(tree.get("name") or "" for tree in trees)
    for i, tree in enumerate(trees):
        here, groups = f"{at}.{_TREES}[{i}]", tree.get(_GROUPS) or ()
        for j, group in enumerate(groups):
            if (group.get("name") or "") in names:
                yield duplicate(f"{here}.{_GROUPS}[{j}].name", group.get("name") or "")
        names.update(group.get("name") or "" for group in groups)
        yield from _repeated_names(tree, here, names)


def _depth_errors(spec: Obj) -> Iterator[FieldError]:
    for i, tree in enumerate(spec.get(_TREES) or ()):
        if _too_deep(tree, 1):
            why = f"maximum template hierarchy depth is {DEPTH_MAX}"
            shown = [_internal(below) for below in tree.get(_TREES) or ()] or None
            yield invalid_structure(f"spec.{_TREES}[{i}]", shown, why)


def _too_deep(tree: Obj, depth: int) -> bool:
    return depth == DEPTH_MAX or any(_too_deep(t, depth + 1) for t in tree.get(_TREES) or ())


def _internal(tree: Obj) -> Obj:
    """A template as the server prints its internal form: every field, by its name in Go."""
    policy = tree.get("schedulingPolicy") or {}
    gang = policy.get("gang")
    return {
        "Name": tree.get("name") or "",
        "SchedulingPolicy": {
            "Basic": policy.get("basic"),
            "Gang": gang and {"MinGroupCount": gang.get("minGroupCount", 0)},
        },
        "SchedulingConstraints": tree.get("schedulingConstraints"),
        "DisruptionMode": tree.get("disruptionMode"),
        "PriorityClassName": tree.get("priorityClassName") or "",
        "Priority": tree.get("priority"),
        "PreemptionPolicy": tree.get("preemptionPolicy"),
        "PodGroupTemplates": tree.get(_GROUPS),
        "CompositePodGroupTemplates": [_internal(t) for t in tree.get(_TREES) or ()] or None,
    }


def _priority(template: Obj) -> tuple[str, int | None]:
    return template.get("priorityClassName") or "", template.get("priority")


def _priority_errors(spec: Obj) -> list[FieldError]:
    """All templates of a Workload share one priority."""
    groups = [_priority(group) for group in spec.get(_GROUPS) or ()]
    if len(set(groups)) > 1:
        return [invalid("spec", None, "detected multiple priority configurations")]
    if len({*groups, *_priorities(spec)}) > 1:
        why = (
            "all priority and priorityClassName values must be identical, detected multiple values"
        )
        return [invalid("spec", None, why)]
    return []


def _priorities(holder: Obj) -> Iterator[tuple[str, int | None]]:
    for tree in holder.get(_TREES) or ():
        yield _priority(tree)
        yield from _priorities(tree)
        for group in tree.get(_GROUPS) or ():
            yield _priority(group)


def _childless(holder: Obj, at: str) -> Iterator[FieldError]:
    for i, tree in enumerate(holder.get(_TREES) or ()):
        here = f"{at}.{_TREES}[{i}]"
        if not tree.get(_GROUPS) and not tree.get(_TREES):
            why = "must have at least one child PodGroupTemplate or CompositePodGroupTemplate"
            yield invalid(here, tree.get("name") or "", why)
        yield from _childless(tree, here)
