"""JSON merge patch (RFC 7396) on plain documents."""

from __future__ import annotations

from typing import Any


def merge_patch(doc: Any, patch: Any) -> Any:
    """The document with a patch merged into it: null removes, objects merge, anything else replaces.

    The document stays as it is; what the patch does not touch is shared between the old and the new one.
    """
    if not isinstance(patch, dict):
        return patch
    merged: dict[str, Any] = dict(doc) if isinstance(doc, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged
