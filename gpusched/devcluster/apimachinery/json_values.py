"""JSON values as JSON compares them, and why a text is no JSON in the words of Go's decoder."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any, Final

import msgspec

_encode: Final = msgspec.json.Encoder().encode


def json_fingerprint(value: Any) -> bytes:
    """Return 16 bytes that are the same for values with the same text, keys in the same order."""
    return hashlib.blake2b(_encode(value), digest_size=16).digest()


def pack_value(value: Any) -> bytes | None:
    """A value as bytes, the same ones for equal values of the same types; None where it is too deep, or has odd numbers or texts."""
    try:
        return msgspec.msgpack.encode(value)
    except (RecursionError, OverflowError, UnicodeEncodeError):
        return None


def json_equal(a: Any, b: Any) -> bool:
    """JSON equality: unlike in Python, true is not 1 (but 1 is 1.0)."""
    # Python's own comparison is quick and finds nearly every difference.
    return a is b or (bool(a == b) and _same_booleans(a, b))


def _same_booleans(a: Any, b: Any) -> bool:
    if a is b:
        return True
    if isinstance(a, dict):
        return all(_same_booleans(inner, b[key]) for key, inner in a.items())
    if isinstance(a, list):
        return all(_same_booleans(x, y) for x, y in zip(a, b, strict=True))
    return isinstance(a, bool) == isinstance(b, bool)


_PLACE: Final = re.compile(r"JSON is malformed: (.+) \(byte (\d+)\)")
_LITERAL: Final = re.compile(rb"(?:^|[\s:,\[])([tfn])")
_LITERALS: Final = {b"t": b"true", b"f": b"false", b"n": b"null"}
_CONTEXTS: Final = {
    "object keys must be strings": "looking for beginning of object key string",
    "trailing comma in object": "looking for beginning of object key string",
    "trailing comma in array": "looking for beginning of value",
    "expected ':'": "after object key",
    "expected ',' or '}'": "after object key:value pair",
    "expected ',' or ']'": "after array element",
    "trailing characters": "after top-level value",
}


def json_error_message(raw: bytes, fault: str) -> str:
    """Return the server's error message for a text, given the message of our decoder."""
    found = _PLACE.fullmatch(fault)
    if found is None:
        return "unexpected end of JSON input" if "truncated" in fault else fault
    what, at = found[1], int(found[2])
    if what == "trailing characters":
        at -= 1  # the error is raised after the character has been read
    if what in _CONTEXTS and at < len(raw):
        return _invalid(raw[at], _CONTEXTS[what])
    if what == "invalid escape character in string":
        return _invalid(raw[at - 1], "in string escape code")
    if what == "invalid character":
        return _in_literal(raw, at) or _at_value(raw, at) or fault
    return fault


def _in_literal(raw: bytes, at: int) -> str:
    starts = [found.start(1) for found in _LITERAL.finditer(raw, 0, min(at + 1, len(raw)))]
    if not starts:
        return ""
    start = starts[-1]
    word = _LITERALS[raw[start : start + 1]]
    for offset, wanted in enumerate(word):
        place = start + offset
        if place >= len(raw):
            return ""
        if raw[place] != wanted:
            name = word.decode()
            return _invalid(raw[place], f"in literal {name} (expecting {chr(wanted)!r})")
    return ""


def _at_value(raw: bytes, at: int) -> str:
    if at >= len(raw):
        return ""
    if raw[at] < ord(" "):
        return _invalid(raw[at], "in string literal")
    if raw[at - 1 : at] == b"-":
        return _invalid(raw[at], "in numeric literal")
    return _invalid(raw[at], "looking for beginning of value")


def _invalid(char: int, context: str) -> str:
    text = chr(char)
    shown = {"'": "\\'", '"': '"'}.get(text) or json.dumps(text, ensure_ascii=False)[1:-1]
    return f"invalid character '{shown}' {context}"
