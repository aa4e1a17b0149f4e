"""JSON patch (RFC 6902) on plain documents.

Nothing here changes its input: what a patch touches is copied on the way down, the rest is
shared between the old and the new document.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from gpusched.base.errors import GpuschedError
from gpusched.cel.schema_nodes import Json
from gpusched.devcluster.apimachinery.json_values import json_equal


class PatchError(GpuschedError):
    """A patch that cannot be applied to this document.

    Attributes:
        kind: ``test`` a failed test, ``path`` a place that does not exist, ``malformed`` a
            patch that is not one (the client's mistake whatever the document is).
    """

    def __init__(self, kind: str, why: str) -> None:
        super().__init__(why)
        self.kind = kind


def json_patch(doc: Json, ops: Json) -> Json:
    """Apply a list of operations in order and return the new document.

    Raises:
        PatchError: an operation is malformed, names a missing place, or is a failed test.
    """
    if not isinstance(ops, list):
        raise PatchError("malformed", "a JSON patch is a list of operations")
    for op in ops:
        doc = _apply(doc, op)
    return doc


def _apply(doc: Json, op: Json) -> Json:
    if not isinstance(op, dict) or not isinstance(op.get("path"), str):
        raise PatchError("malformed", "an operation of a JSON patch has op and path")
    path = _tokens(op["path"])
    match op.get("op"):
        case "add":
            return _add(doc, path, op.get("value"))
        case "remove":
            return _remove(doc, path)
        case "replace":
            return _replace(doc, path, op.get("value"))
        case "move":
            source = _tokens(op.get("from"))
            moved = _get(doc, source)
            if source == path[: len(source)] and source != path:
                raise PatchError("path", "a value cannot be moved into itself")
            return _add(_remove(doc, source), path, moved)
        case "copy":
            return _add(doc, path, _get(doc, _tokens(op.get("from"))))
        case "test":
            return _test(doc, path, op.get("value"))
        case other:
            raise PatchError("malformed", f"a JSON patch knows no operation {_json_text(other)}")


def _test(doc: Json, path: Sequence[str], expected: Json) -> Json:
    # A null is also true of a key that does not exist: clients use it for "not there".
    _above, parent = _spine(doc, path)
    if path and isinstance(parent, dict) and path[-1] not in parent:
        if expected is None:
            return doc
        raise PatchError("test", f"testing value {_pointer(path)} failed")
    found = _get(doc, path)
    if not json_equal(found, expected):
        raise PatchError("test", f"testing value {_pointer(path)} failed")
    return doc


def _json_text(value: Json) -> str:
    return msgspec.json.encode(value).decode()


def _tokens(pointer: Json) -> list[str]:
    if not isinstance(pointer, str):
        raise PatchError("malformed", "a JSON pointer is a string")
    if not pointer:
        return []
    if not pointer.startswith("/"):
        raise PatchError("path", f"a JSON pointer begins with a slash: {pointer}")
    return [t.replace("~1", "/").replace("~0", "~") for t in pointer[1:].split("/")]


def _pointer(tokens: Sequence[str]) -> str:
    return "".join("/" + t.replace("~", "~0").replace("/", "~1") for t in tokens)


def _missing(path: Sequence[str]) -> PatchError:
    return PatchError("path", f"there is nothing at {_pointer(path)}")


_NEGATIVE = re.compile(r"-[1-9][0-9]{0,8}")


def _index(token: str, length: int) -> int:
    if _NEGATIVE.fullmatch(token) and int(token) + length >= 0:
        return int(token) + length  # counted from the end, which the RFC does not know
    digits = token.isascii() and token.isdigit()
    if not digits or (len(token) > 1 and token[0] == "0"):
        raise PatchError("path", f"{token} is not an index of a list")
    if len(token) > len(str(length)) or int(token) >= length:
        raise PatchError("path", f"index {token} is beyond the end of the list")
    return int(token)


def _step(doc: Json, token: str, *, path: Sequence[str]) -> Json:
    if isinstance(doc, dict):
        if token not in doc:
            raise _missing(path)
        return doc[token]
    if isinstance(doc, list):
        return doc[_index(token, len(doc))]
    raise _missing(path)


def _get(doc: Json, path: Sequence[str]) -> Json:
    for token in path:
        doc = _step(doc, token, path=path)
    return doc


def _rebuild(spine: Sequence[Json], path: Sequence[str], leaf: Json) -> Json:
    """Copy the containers of ``spine`` from the bottom up, each holding its new child."""
    for container, token in zip(reversed(spine), reversed(path), strict=True):
        if isinstance(container, dict):
            leaf = {**container, token: leaf}
        else:
            copied = list(container)
            copied[_index(token, len(copied))] = leaf
            leaf = copied
    return leaf


def _spine(doc: Json, path: Sequence[str]) -> tuple[list[Json], Json]:
    """Containers above the one that holds the last token, and that one."""
    above: list[Json] = []
    for token in path[:-1]:
        above.append(doc)
        doc = _step(doc, token, path=path)
    return above, doc


def _add(doc: Json, path: Sequence[str], value: Json) -> Json:
    if not path:
        return value
    above, parent = _spine(doc, path)
    last = path[-1]
    if isinstance(parent, dict):
        changed: Json = {**parent, last: value}
    elif isinstance(parent, list):
        changed = list(parent)
        changed.insert(len(parent) if last == "-" else _index(last, len(parent) + 1), value)
    else:
        raise _missing(path)
    return _rebuild(above, path[:-1], changed)


def _replace(doc: Json, path: Sequence[str], value: Json) -> Json:
    if not path:
        return value
    above, parent = _spine(doc, path)
    _step(parent, path[-1], path=path)
    return _rebuild([*above, parent], path, value)


def _remove(doc: Json, path: Sequence[str]) -> Json:
    if not path:
        raise PatchError("path", "the whole document cannot be removed")
    above, parent = _spine(doc, path)
    _step(parent, path[-1], path=path)
    if isinstance(parent, dict):
        changed: Json = {k: v for k, v in parent.items() if k != path[-1]}
    else:
        changed = list(parent)
        del changed[_index(path[-1], len(parent))]
    return _rebuild(above, path[:-1], changed)
