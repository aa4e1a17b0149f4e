"""Recorded answers against served ones: tokens, masks and trimmed bodies.

Stricter than a count of recorded fields found: a field that the real server did not send is a
difference, texts are compared, lists are compared in order, and a token (``<uid:3>``) has one
value, which for uids and names no other token has.

A server writes by itself too: service accounts, statuses, leases. So the version of a list, of a
Table or of a bookmark is the recorded one or a later one, while those of objects are compared.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

TOKEN: Final = re.compile(r"<(?:uid|rv|continue|name):\d+>")
_ANY_TOKEN: Final = re.compile(r"(<(?:uid|rv|continue|name):\d+>|<time>)")
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_AGE: Final = re.compile(r"<unknown>|(\d+[smhdy])+")
_VERSIONS_IN_TEXT: Final = (
    (re.compile(r"(too old resource version: \d+) \(\d+\)"), r"\1 (N)"),
    (re.compile(r"(ResourceVersion in record) \(\d+\)"), r"\1 (N)"),
    (re.compile(r"(Too large resource version: \d+), current: \d+"), r"\1, current: N"),
)
_DUMP: Final = re.compile(
    r"(?<=Invalid value: )\{.*\}(?=: field is immutable)|(?<=negative\)\n).*", re.DOTALL
)
"""Where the server prints its internal structures: what stands before is compared."""

MASKED_KEYS: Final = frozenset(
    {
        "gitVersion",
        "gitCommit",
        "buildDate",
        "goVersion",
        "serverAddress",
        "serverRelativeURL",
        "storageVersionHash",
    }
)
"""Build, address and hash: present here and there, never equal."""

UNRECORDED_KEYS: Final = frozenset({"managedFields"})
"""What the recordings left out of answers that had it."""


class Tokens:
    """Values that the server made, by the token that stands for them."""

    def __init__(self, values: dict[str, str] | None = None) -> None:
        self.values = dict(values or {})

    def copy(self) -> Tokens:
        """Return a copy to try an answer with."""
        return Tokens(self.values)

    def fill(self, value: Any) -> Any:
        """Return a request with its tokens replaced by what was seen for them."""
        if isinstance(value, dict):
            return {key: self.fill(v) for key, v in value.items()}
        if isinstance(value, list):
            return [self.fill(v) for v in value]
        if isinstance(value, str):
            return TOKEN.sub(lambda m: self.values.get(m.group(), m.group()), value)
        return value

    def bind(self, token: str, value: str) -> bool:
        """Learn a token, or tell whether it agrees with what was learnt."""
        if token in self.values:
            return self.values[token] == value
        if token[1:4] != "rv:" and value in self.values.values():
            return False
        self.values[token] = value
        return True

    def version_agrees(self, token: str, value: str) -> bool:
        """Compare the version of a collection: writes of others may stand behind the last of ours."""
        if token not in self.values:
            return value.isdecimal() and self.bind(token, value)
        return value.isdecimal() and int(value) >= int(self.values[token])

    def text_agrees(self, want: str, got: str) -> bool:
        """Compare a text that may hold tokens and times."""
        want, got = _cut_dump(want), _cut_dump(got)
        for pattern, masked in _VERSIONS_IN_TEXT:
            want, got = pattern.sub(masked, want), pattern.sub(masked, got)
        parts = _ANY_TOKEN.split(want)
        if len(parts) == 1:
            return want == got
        tokens = parts[1::2]
        shape = "".join(
            (f"({_TIME.pattern})" if p == "<time>" else "(.+?)") if i % 2 else re.escape(p)
            for i, p in enumerate(parts)
        ).replace(r"(\.\d+)?", r"(?:\.\d+)?")
        found = re.fullmatch(shape, got, re.DOTALL)
        if found is None:
            return False
        return all(
            token == "<time>" or self.bind(token, value)
            for token, value in zip(tokens, found.groups(), strict=True)
        )


def _cut_dump(text: str) -> str:
    return _DUMP.sub("", text)


def differences(
    want: Any, got: Any, tokens: Tokens, *, extra: bool = True, at: str = ""
) -> Iterator[str]:
    """Yield where a served value is not the recorded one; learns tokens on the way.

    Args:
        want: recorded.
        got: served.
        tokens: values seen before, and from now on.
        extra: whether a field that was not recorded is a difference.
        at: path of the value, for the report.
    """
    if isinstance(want, dict) and isinstance(got, dict):
        if want.get("kind") == got.get("kind") == "Table":
            want, got = _ageless(want), _ageless(got)
        version = _collection_version(want)
        if version is not None:
            want, got, found = _without_version(want, got)
            yield from _fields(want, got, tokens, extra=extra, at=at)
            if found is not None and not tokens.version_agrees(version, found):
                yield f"{at}: recorded {tokens.fill(version)} or later, served {found!r}"
            return
        yield from _fields(want, got, tokens, extra=extra, at=at)
    elif isinstance(want, list) and isinstance(got, list):
        if len(want) != len(got):
            yield f"{at}: {len(want)} entries recorded, {len(got)} served"
            return
        for i, (a, b) in enumerate(zip(want, got, strict=True)):
            yield from differences(a, b, tokens, extra=extra, at=f"{at}[{i}]")
    elif isinstance(want, str) and isinstance(got, str):
        if not tokens.text_agrees(want, got):
            yield f"{at}: recorded {tokens.fill(want)!r}, served {got!r}"
    elif type(want) is not type(got) or want != got:
        yield f"{at}: recorded {want!r}, served {got!r}"


def _fields(want: Any, got: Any, tokens: Tokens, *, extra: bool, at: str) -> Iterator[str]:
    for key, value in want.items():
        if key not in got:
            if extra or value is not None:
                yield f"{at}.{key}: recorded {value!r}, not served"
        elif key not in MASKED_KEYS:
            yield from differences(value, got[key], tokens, extra=extra, at=f"{at}.{key}")
    if extra:
        for key in got:
            if key not in want and key not in UNRECORDED_KEYS:
                yield f"{at}.{key}: served {got[key]!r}, not recorded"


def _collection_version(want: Any) -> str | None:
    """Return the token that stands for the version of a list, a Table or a bookmark."""
    if want.get("type") == "BOOKMARK":
        want = want["object"]
    elif not str(want.get("kind", "")).endswith(("List", "Table")):
        return None
    version = want.get("metadata", {}).get("resourceVersion")
    return version if isinstance(version, str) and TOKEN.fullmatch(version) else None


def _without_version(want: Any, got: Any) -> tuple[Any, Any, str | None]:
    """Take the version out of both sides, to be compared when those of the objects are known.

    One that was not served stays recorded, so that it shows as a difference.
    """
    inner = "object" if want.get("type") == "BOOKMARK" else None
    sides = [side.get(inner, {}) if inner else side for side in (want, got)]
    found = sides[1].get("metadata", {}).get("resourceVersion")
    if not isinstance(found, str):
        return want, got, None
    cut = [
        {**side, "metadata": {k: v for k, v in side["metadata"].items() if k != "resourceVersion"}}
        for side in sides
    ]
    if inner:
        cut = [{**whole, inner: part} for whole, part in zip((want, got), cut, strict=True)]
    return cut[0], cut[1], found


def _ageless(table: Any) -> Any:
    """Replace the ages of a Table, by the value: Age, Duration and CRD dates print alike."""
    rows = [
        {**row, "cells": ["AGE" if _is_age(cell) else cell for cell in row["cells"]]}
        if isinstance(row, dict)
        else row
        for row in table.get("rows") or ()
    ]
    return {**table, "rows": rows}


def _is_age(cell: Any) -> bool:
    return isinstance(cell, str) and _AGE.fullmatch(cell) is not None


def trimmed_differences(want: Any, got: Any, tokens: Tokens) -> list[str]:
    """Compare a recorded body that was cut: to a part, to names, to a count, to some fields.

    A part (``.status``, ``.spec``, ``.spec.suspend``) is compared whole; of the rest every
    recorded field must be there and equal.
    """
    if isinstance(want, bool):
        return [] if got["spec"]["suspend"] is want else [f".spec.suspend: recorded {want}"]
    if isinstance(want.get("rows"), int):
        return list(differences(want["rows"], len(got["rows"]), tokens, at=".rows"))
    if "kind" not in want and "metadata" not in want and "paths" not in want:
        part = "spec" if "template" in want else "status"
        if isinstance(want.get("items"), int):
            return _counted(want, got, tokens)
        return list(differences(want, got.get(part), tokens, at=f".{part}"))
    return _counted(want, got, tokens)


def _counted(want: Any, got: Any, tokens: Tokens) -> list[str]:
    items = want.get("items")
    if isinstance(items, int):
        got = {**got, "items": len(got["items"])}
    elif items and isinstance(items[0], str):
        got = {**got, "items": [item["metadata"]["name"] for item in got["items"]]}
    return list(differences(want, got, tokens, extra=False))


def only_recorded(want: Any, got: Any) -> Any:
    """Cut the lists of a served body to the entries of a recorded one, by name or from the front.

    For recordings whose lists were cut to what matters; an entry not served is left out, so that
    it shows as a difference.
    """
    if isinstance(want, dict) and isinstance(got, dict):
        return {k: only_recorded(want.get(k), v) for k, v in got.items()}
    if isinstance(want, list) and isinstance(got, list):
        if want and all(isinstance(entry, dict) and _name(entry) for entry in want):
            by_name = {_name(entry): entry for entry in got}
            pairs = [(w, by_name[_name(w)]) for w in want if _name(w) in by_name]
        else:
            pairs = list(zip(want, got, strict=False))
        return [only_recorded(w, g) for w, g in pairs]
    return got


def _name(entry: Any) -> str:
    if not isinstance(entry, dict):
        return ""
    name = entry.get("metadata", {}).get("name") or entry.get("resource") or entry.get("name") or ""
    return str(name)


def unordered_errors(body: Any) -> Any:
    """Sort the errors of a Status, of which the server says several in no fixed order."""
    causes = sorted(body["details"]["causes"], key=lambda c: (c["field"], c["message"]))
    head, _, listed = body["message"].partition("[")
    texts = sorted(re.split(r", (?=spec\.|<nil>)", listed.rstrip("]")))
    return {
        **body,
        "message": f"{head}{texts}",
        "details": {**body["details"], "causes": causes},
    }


def rows_but(name: str) -> Any:
    """Return a cut of a Table that leaves the rows of one object out."""

    def cut(want: Any, got: Any) -> tuple[Any, Any]:
        rows = [row for row in got["rows"] if row["object"]["metadata"]["name"] != name]
        return want, {**got, "rows": rows}

    return cut
