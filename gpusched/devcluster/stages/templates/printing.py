"""How Go prints values: ``{{ . }}``, ``print`` and ``printf`` on decoded JSON."""

from __future__ import annotations

import json
import re
from typing import Any

from gpusched.devcluster.stages.typed_objects import TypedNumber

_VERB = re.compile(r"%([-+# 0]*)(\d+)?(?:\.(\d+))?([a-zA-Z%])")


def print_value(value: Any) -> str:
    """As ``%v`` does, except that nil is ``<no value>``, which is what a template writes."""
    return "<no value>" if value is None else _plain(value)


def _plain(value: Any) -> str:
    if value is None:
        return "<nil>"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, dict):
        return "map[" + " ".join(f"{k}:{_plain(v)}" for k, v in sorted(value.items())) + "]"
    if isinstance(value, (list, tuple)):
        return "[" + " ".join(_plain(v) for v in value) + "]"
    return str(value)


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() and abs(value) < 1e21 else f"{value!r}"


def print_all(*values: Any) -> str:
    """``print``: a space stands only between two neighbours of which neither is a text."""
    parts: list[str] = []
    for at, value in enumerate(values):
        if at and not isinstance(value, str) and not isinstance(values[at - 1], str):
            parts.append(" ")
        parts.append(_plain(value))
    return "".join(parts)


def print_format(template: str, *values: Any) -> str:
    """``printf`` with the verbs v, s, d, q, t, x, f, e, g and %%; others print Go's own complaint."""
    left = list(values)

    def fill(match: re.Match[str]) -> str:
        flags, width, precision, verb = match.groups()
        if verb == "%":
            return "%"
        if not left:
            return f"%!{verb}(MISSING)"
        text = _verb(verb, left.pop(0), precision)
        if width is None:
            return text
        if "-" in flags:
            return text.ljust(int(width))
        return text.zfill(int(width)) if "0" in flags else text.rjust(int(width))

    text = _VERB.sub(fill, template)
    extra = ", ".join(f"{type(value).__name__}={_plain(value)}" for value in left)
    return f"{text}%!(EXTRA {extra})" if extra else text


def _verb(verb: str, value: Any, precision: str | None) -> str:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if verb == "v":
        return _plain(value)
    if verb == "s" and not number:
        text = _plain(value)
        return text if precision is None else text[: int(precision)]
    if verb == "q" and isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if verb == "t" and isinstance(value, bool):
        return _plain(value)
    if verb == "d" and number and float(value).is_integer():
        return str(int(value))
    if verb == "x" and isinstance(value, (int, str)):
        return value.encode().hex() if isinstance(value, str) else f"{value:x}"
    if verb in "feg" and number:
        return f"{value:.{precision or 6}{verb}}"
    named = "json.Number" if isinstance(value, TypedNumber) else type(value).__name__
    return f"%!{verb}({named}={_plain(value)})"
