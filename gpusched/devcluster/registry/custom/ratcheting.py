"""Errors that a stored object has already: writes that leave the value alone pass.

Values correspond by the keys of objects and, in lists, by the keys of their elements; elements
of other lists correspond only while the whole list stays as it is.
"""

from __future__ import annotations

import re
from typing import Final

from gpusched.cel.schema_nodes import ANY, Doc, Json, SchemaNode
from gpusched.devcluster.apimachinery.field_errors import FieldError
from gpusched.devcluster.apimachinery.json_values import json_equal

_STEP: Final = re.compile(r"\[(\d+)\]|\.?([^.\[\]]+)")


def errors_of_changes(
    errors: list[FieldError], new: Doc, old: Doc, node: SchemaNode
) -> list[FieldError]:
    """The errors whose value, or any value around it, differs from the stored one."""
    return [e for e in errors if not _unchanged(e, new, old, node)]


def _unchanged(error: FieldError, new: Json, old: Json, node: SchemaNode) -> bool:
    steps = list(_STEP.finditer(error.field)) if error.field != "<nil>" else []
    if error.cause_reason == "FieldValueRequired":
        steps = steps[:-1]  # what misses a field is the object around it
    if json_equal(new, old):
        return True
    for step in steps:
        index, key = step.groups()
        if index is not None:
            if not isinstance(new, list) or not isinstance(old, list) or int(index) >= len(new):
                return False
            new, old = new[int(index)], _element(new[int(index)], old, node)
            node = node.items or ANY
        else:
            if not isinstance(new, dict) or not isinstance(old, dict) or key not in new:
                return False
            new, old = new[key], old.get(key, _NOTHING)
            node = node.child(key) or ANY
        if old is _NOTHING:
            return False
        if json_equal(new, old):
            return True
    return False


_NOTHING: Final = object()


def _element(element: Json, old: list[Json], node: SchemaNode) -> Json:
    if not node.is_keyed_list or not isinstance(element, dict):
        return _NOTHING
    for candidate in old:
        if isinstance(candidate, dict) and all(
            json_equal(candidate.get(k), element.get(k)) for k in node.map_keys
        ):
            return candidate
    return _NOTHING
