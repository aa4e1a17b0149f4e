"""The part of Kubernetes' JSONPath that printer columns and selectable fields use.

Fields, quoted fields, indices, wildcards and filters that compare one field with a literal, as
in ``.status.conditions[?(@.type=="Ready")].status``.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from gpusched.errors import GpuschedError

Step = Callable[[Any], Iterable[Any]]

_TOKEN = re.compile(
    r"""
    \.(?P<field>(?:\\.|[^.\[\]\\*\s])+) | \.(?P<star>\*)
    | \[(?:'(?P<single>(?:\\.|[^'])*)'|"(?P<double>(?:\\.|[^"])*)")\]
    | \[(?P<index>-?\d+)\] | \[(?P<wild>\*)\]
    | \[\?\(\s*@(?P<left>[^=!<>\s]+)\s*(?:(?P<operator>==|!=)\s*(?P<right>[^)]+?)\s*)?\)\]
    """,
    re.VERBOSE,
)


class JsonPathError(GpuschedError):
    """A path outside the supported part of JSONPath."""


@functools.lru_cache(maxsize=1024)
def compiled(path: str) -> Callable[[Any], list[Any]]:
    """A function from a document to the values the path finds there, in order.

    Raises:
        JsonPathError: the path cannot be read.
    """
    text = path[1:-1] if path.startswith("{") and path.endswith("}") else path
    text = text.removeprefix("$")
    if text and text[0] not in ".[":
        text = f".{text}"
    steps: list[Step] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise JsonPathError(f"cannot read the JSONPath {path!r} at {text[at : at + 20]!r}")
        steps.append(_step(match, path))
        at = match.end()

    def find(document: Any) -> list[Any]:
        values = [document]
        for step in steps:
            values = [found for value in values for found in step(value)]
        return values

    return find


def _step(match: re.Match[str], path: str) -> Step:
    if match["star"] or match["wild"]:
        return _children
    if match["index"] is not None:
        return functools.partial(_at, index=int(match["index"]))
    if match["left"]:
        return _filter(match, path)
    name = match["field"] or match["single"] or match["double"] or ""
    return functools.partial(_key, key=re.sub(r"\\(.)", r"\1", name))


def _key(value: Any, key: str) -> Iterator[Any]:
    if isinstance(value, dict) and key in value:
        yield value[key]


def _at(value: Any, index: int) -> Iterator[Any]:
    if isinstance(value, list) and -len(value) <= index < len(value):
        yield value[index]


def _children(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _filter(match: re.Match[str], path: str) -> Step:
    left = compiled(match["left"])
    operator, literal = match["operator"], _literal(match["right"], path)

    def keep(element: Any) -> bool:
        found = left(element)
        if operator is None:
            return bool(found)
        return bool(found) and (found[0] == literal) == (operator == "==")

    return lambda value: [e for e in _children(value) if keep(e)]


def _literal(text: str | None, path: str) -> Any:
    if text is None:
        return None
    if text[:1] == "'" and text[-1:] == "'":
        return text[1:-1]
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        raise JsonPathError(f"cannot read the literal {text} of the JSONPath {path!r}") from None
