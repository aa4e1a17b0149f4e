"""JSON taken apart into raw members and elements without recursion.

The typed parser gives up on a whole document when one object in it is nested too deeply, even
in a part that is not read. Then this takes over: some fifty times slower, for any depth.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec

_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\],:]', re.DOTALL)
_MEMBERS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ELEMENTS: Final = msgspec.json.Decoder(list[msgspec.Raw])
_STRING: Final = msgspec.json.Decoder(str)


def raw_members(raw: bytes) -> dict[str, bytes]:
    """The members of an object; empty when it is none.

    Raises:
        ValueError: not JSON.
    """
    try:
        return {key: bytes(value) for key, value in _MEMBERS.decode(raw).items()}
    except msgspec.ValidationError:
        return {}
    except RecursionError:
        pass
    found = {}
    for part in _parts(raw):
        key, colon, value = _at_colon(part)
        if colon:
            found[_STRING.decode(key)] = value
    return found


def raw_elements(raw: bytes) -> list[bytes]:
    """The elements of a list; empty when it is none.

    Raises:
        ValueError: not JSON.
    """
    try:
        return [bytes(element) for element in _ELEMENTS.decode(raw)]
    except msgspec.ValidationError:
        return []
    except RecursionError:
        return list(_parts(raw)) if raw.lstrip()[:1] == b"[" else []


def raw_text(raw: bytes | None) -> str:
    """A string; empty when it is none."""
    try:
        return _STRING.decode(raw) if raw else ""
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return ""


def _parts(raw: bytes) -> Iterator[bytes]:
    """What stands between the commas of the outermost object or list."""
    depth = 0
    start = 0
    for token in _TOKEN.finditer(raw):
        mark = token.group()
        if mark in b"{[":
            depth += 1
            if depth == 1:
                start = token.end()
        elif mark in b"}]":
            depth -= 1
            if depth == 0:
                last = raw[start : token.start()].strip()
                if last:
                    yield last
                return
        elif mark == b"," and depth == 1:
            yield raw[start : token.start()].strip()
            start = token.end()
    raise ValueError("JSON ends in the middle")


def _at_colon(part: bytes) -> tuple[bytes, bytes, bytes]:
    """Key, colon and value of a member."""
    key = _TOKEN.match(part)
    if key is None or not key.group().startswith(b'"'):
        return b"", b"", b""
    _, colon, value = part[key.end() :].partition(b":")
    return key.group(), colon, value.strip()
