"""What a terminating namespace says of the content that keeps it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Obj = dict[str, Any]

_FINE = (
    (
        "NamespaceDeletionDiscoveryFailure",
        "ResourcesDiscovered",
        "All resources successfully discovered",
    ),
    (
        "NamespaceDeletionGroupVersionParsingFailure",
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    ),
    (
        "NamespaceDeletionContentFailure",
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
)


def conditions(left: Mapping[str, Sequence[Obj]], before: Sequence[Obj], *, now: str) -> list[Obj]:
    """The conditions of a namespace.

    Args:
        left: remaining objects by plural with group.
        before: conditions so far; those that say the same keep their time.
        now: time of those that changed.
    """
    told = [(kind, "False", reason, message) for kind, reason, message in _FINE]
    told += [_content(left), _finalizers(left)]
    known = {condition.get("type"): condition for condition in before}
    made: list[Obj] = []
    for kind, status, reason, message in told:
        old = known.get(kind) or {}
        same = old.get("status") == status
        made.append(
            {
                "type": kind,
                "status": status,
                "lastTransitionTime": old.get("lastTransitionTime") if same else now,
                "reason": reason,
                "message": message,
            }
        )
    return made


def _content(left: Mapping[str, Sequence[Obj]]) -> tuple[str, str, str, str]:
    kind = "NamespaceContentRemaining"
    parts = sorted(
        f"{name if '.' in name else name + '.'} has {len(objects)} resource instances"
        for name, objects in left.items()
    )
    if not parts:
        return kind, "False", "ContentRemoved", "All content successfully removed"
    return kind, "True", "SomeResourcesRemain", f"Some resources are remaining: {', '.join(parts)}"


def _finalizers(left: Mapping[str, Sequence[Obj]]) -> tuple[str, str, str, str]:
    kind = "NamespaceFinalizersRemaining"
    counts: dict[str, int] = {}
    for objects in left.values():
        for obj in objects:
            for finalizer in obj["metadata"].get("finalizers") or ():
                counts[finalizer] = counts.get(finalizer, 0) + 1
    if not counts:
        why = "All content-preserving finalizers finished"
        return kind, "False", "ContentHasNoFinalizers", why
    parts = sorted(f"{name} in {count} resource instances" for name, count in counts.items())
    why = f"Some content in the namespace has finalizers remaining: {', '.join(parts)}"
    return kind, "True", "SomeFinalizersRemain", why
