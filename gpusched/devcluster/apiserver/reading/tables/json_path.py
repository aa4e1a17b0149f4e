"""The part of Kubernetes' JSONPath that printer columns and selectable fields use.

Fields, quoted fields, indices, slices, unions, wildcards, recursive descent and filters that
compare one field with a literal, as in ``.status.conditions[?(@.type=="Ready")].status``.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import msgspec

from gpusched.base.errors import GpuschedError

Step = Callable[[Any], Iterable[Any]]

_TOKEN = re.compile(
    r"""
    \.(?=\.)(?P<descend>) | \.(?P<field>(?:\\.|[^.\[\]\\*\s])+) | \.(?P<star>\*)
    | \[(?:'(?P<single>(?:\\.|[^'])*)'|"(?P<double>(?:\\.|[^"])*)")\]
    | \[(?P<index>-?\d+)\] | \[(?P<wild>\*)\]
    | \[(?P<slice>-?\d*:-?\d*(?::-?\d*)?)\]
    | \[(?P<indices>-?\d+(?:\s*,\s*-?\d+)+)\]
    | \[(?P<keys>'[^']*'(?:\s*,\s*'[^']*')+)\]
    | \[\?\(\s*@(?P<left>[^=!<>\s]+)\s*(?:(?P<operator>==|!=|<=|>=|<|>)\s*(?P<right>[^)]+?)\s*)?\)\]
    """,
    re.VERBOSE,
)


class JsonPathError(GpuschedError):
    """A path outside the supported part of JSONPath."""


@functools.lru_cache(maxsize=1024)
def compile_path(path: str) -> Callable[[Any], list[Any]]:
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


def _step(match: re.Match[str], path: str) -> Step:  # one a kind of step
    if match["star"] or match["wild"]:
        return _children
    if match["index"] is not None:
        return functools.partial(_element_at, index=int(match["index"]))
    if match["slice"] is not None:
        return _slice(match["slice"], path)
    if match["indices"]:
        wanted = [int(i) for i in match["indices"].split(",")]
        return lambda value: [found for i in wanted for found in _element_at(value, i)]
    if match["keys"]:
        keys = re.findall(r"'([^']*)'", match["keys"])
        return lambda value: [found for key in keys for found in _key(value, key)]
    if match["descend"] is not None:
        return _descend
    if match["left"]:
        return _filter(match, path)
    name = match["field"] or match["single"] or match["double"] or ""
    return functools.partial(_key, key=re.sub(r"\\(.)", r"\1", name))


def _key(value: Any, key: str) -> Iterator[Any]:
    if isinstance(value, dict) and key in value:
        yield value[key]


def _element_at(value: Any, index: int) -> Iterator[Any]:
    if isinstance(value, list) and -len(value) <= index < len(value):
        yield value[index]


def _children(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _slice(text: str, path: str) -> Step:
    start, end, step = (int(part) if part else None for part in [*text.split(":"), ""][:3])
    if step is not None and step < 1:
        raise JsonPathError(f"the step of a slice must be positive in the JSONPath {path!r}")
    return lambda value: value[start:end:step] if isinstance(value, list) else []


def _descend(value: Any) -> list[Any]:
    """A value and everything below it, outer ones first."""
    return [value, *(found for child in _children(value) for found in _descend(child))]


def _ordered(a: Any, b: Any, operator: str) -> bool:
    """Whether numbers or texts stand in an order; values of unlike types do not."""
    if isinstance(a, str) != isinstance(b, str):
        return False
    try:
        return bool(_ORDERS[operator](a, b))
    except TypeError:
        return False


_ORDERS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def _filter(match: re.Match[str], path: str) -> Step:
    left = compile_path(match["left"])
    operator, literal = match["operator"], _literal(match["right"], path)

    def is_selected(element: Any) -> bool:
        found = left(element)
        if operator is None:
            return bool(found)
        if not found:
            return False
        if operator in _ORDERS:
            return _ordered(found[0], literal, operator)
        return bool(found[0] == literal) == (operator == "==")

    return lambda value: [e for e in _children(value) if is_selected(e)]


def _literal(text: str | None, path: str) -> Any:
    if text is None:
        return None
    if text[:1] == "'" and text[-1:] == "'":
        return text[1:-1]
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        raise JsonPathError(f"cannot read the literal {text} of the JSONPath {path!r}") from None
