"""The three patches that are not server-side apply, on plain documents.

None of them changes its input; unchanged parts are shared between the old and new document,
so callers must treat both as read-only.
"""

from __future__ import annotations

from gpusched.devcluster.patching.json_patch import PatchError, json_patch, merge_patch
from gpusched.devcluster.patching.strategic import strategic
from gpusched.devcluster.schema import Schema
from gpusched.devcluster.schema.types import Doc

__all__ = ["PatchError", "json_patch", "merge_patch", "strategic_merge"]


def strategic_merge(doc: Doc, patch: Doc, schema: Schema) -> Doc:
    """Merge by ``x-kubernetes-patch-merge-key`` and ``-strategy`` of the kind's schema.

    Understands ``$patch`` (delete, replace, merge), ``$retainKeys``,
    ``$deleteFromPrimitiveList/FIELD`` and ``$setElementOrder/FIELD``.

    Raises:
        PatchError: ``malformed`` when a directive or an element makes no sense.
    """
    return strategic(doc, patch, schema.node)
