"""Label selectors as people type them: ``team=a,tier!=test,gpu in (h100, a100),!old``."""

from __future__ import annotations

import re
from typing import Final

from gpusched.api.affinity.selector import Requirement, Selector
from gpusched.base.errors import UsageError

_KEY: Final = r"(?P<key>[A-Za-z0-9][-A-Za-z0-9_./]{0,316})"
_VALUE: Final = r"[-A-Za-z0-9_.]{0,63}"
_FORMS: Final = tuple(
    re.compile(rf"\s*{form}\s*")
    for form in (
        rf"{_KEY}\s*(?P<operator>!=|==|=)\s*(?P<values>{_VALUE})",
        rf"{_KEY}\s+(?P<operator>in|notin)\s+\((?P<values>[^()]*)\)",
        rf"(?P<operator>!)\s*{_KEY}",
        rf"(?P<operator>){_KEY}",
    )
)
_OPERATORS: Final = {
    "=": "In", "==": "In", "in": "In", "!=": "NotIn", "notin": "NotIn", "!": "DoesNotExist", "": "Exists",
}  # fmt: skip
_COMMA_OUTSIDE: Final = re.compile(r",(?![^()]*\))")


def parse_label_selector(text: str) -> Selector:
    """A selector of kubectl's option ``-l``; empty selects everything.

    Raises:
        UsageError: it cannot be understood.
    """
    if not text.strip():
        return Selector()
    return Selector(tuple(_requirement(part, text) for part in _COMMA_OUTSIDE.split(text)))


def _requirement(part: str, text: str) -> Requirement:
    for form in _FORMS:
        match = form.fullmatch(part)
        if match is None:
            continue
        operator = _OPERATORS[match["operator"]]
        if operator in {"Exists", "DoesNotExist"}:
            return Requirement(match["key"], operator)
        values = tuple(value.strip() for value in match["values"].split(","))
        if all(re.fullmatch(_VALUE, value) for value in values):
            return Requirement(match["key"], operator, values)
    raise UsageError(
        f"-l {text[:80]!r} is no label selector such as key=value, key!=value, 'key in (a, b)', "
        "key or !key, joined by commas"
    )
