"""Paths into objects, the part of ``kubectl -o jsonpath`` that expectations need.

``.status.succeeded``, ``.spec.containers[0].image``, ``.status.conditions[*].type``,
``.metadata.annotations['gpusched.io/slots']``; braces around it and a leading ``$`` are allowed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final, TypeAlias

Step: TypeAlias = str | int
ALL: Final = -(2**31)
"""The step ``[*]``: every item of a list, every value of a mapping."""
_STEP: Final = re.compile(
    r"""\.(?P<name>(?:[^.\[\]\\\s]|\\.)+)
    |\[\s*'(?P<single>(?:[^'\\]|\\.)*)'\s*\]
    |\[\s*"(?P<double>(?:[^"\\]|\\.)*)"\s*\]
    |\[\s*(?P<index>-?[0-9]{1,9})\s*\]
    |\[(?P<all>\*)\]""",
    re.VERBOSE,
)


@lru_cache(maxsize=1024)
def parse_path(text: str) -> tuple[Step, ...]:
    """The steps of a path: names of fields, indexes (negative ones count from the end), ``ALL``.

    Dots inside a name may also be written with a backslash before them, as kubectl allows.

    Raises:
        ValueError: it is none; ``str()`` says from where on it is not understood.
    """
    said = text.strip()
    if said.startswith("{") and said.endswith("}"):
        said = said[1:-1].strip()
    said = said.removeprefix("$")
    if said and said[0] not in ".[":
        said = "." + said
    steps: list[Step] = []
    at = 0
    while at < len(said):
        match = _STEP.match(said, at)
        if match is None:
            raise ValueError(
                f"path {text[:80]!r} is not understood from {said[at:][:40]!r} on; write "
                f".status.phase, ['key.with.dots'], [0] or [*]"
            )
        steps.append(_step(match))
        at = match.end()
    if not steps:
        raise ValueError(f"path {text[:80]!r} names nothing; write for example .status.phase")
    return tuple(steps)


def _step(match: re.Match[str]) -> Step:
    kind = match.lastgroup or ""
    word = match[kind]
    if word == "*" and kind in ("all", "name"):
        return ALL
    return int(word) if kind == "index" else re.sub(r"\\(.)", r"\1", word)


def values_at_path(obj: Any, path: Iterable[Step]) -> list[Any]:
    """What is at the path, nothing where it does not lead anywhere; null counts as nothing."""
    found = [obj]
    for step in path:
        found = [inner for each in found for inner in _into(each, step)]
    return [each for each in found if each is not None]


def _into(value: Any, step: Step) -> list[Any]:
    if step == ALL:
        if isinstance(value, dict):
            return list(value.values())
        return list(value) if isinstance(value, list) else []
    if isinstance(step, int):
        inside = isinstance(value, list) and -len(value) <= step < len(value)
        return [value[step]] if inside else []
    return [value[step]] if isinstance(value, dict) and step in value else []
