"""Label and field selectors: parsing with the API server's texts, matching on stored objects."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from gpusched.devcluster.status import bad_request

Obj = dict[str, Any]
Match = Callable[[Obj], bool]

_TOKEN: Final = re.compile(r"\s*(==|!=|=|!|\(|\)|,|<|>|[^\s=!(),<>]+)")
_KEY: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_./]*[A-Za-z0-9])?")
_PREDICATES: Final = {"in", "notin"}


def parse_labels(text: str) -> Callable[[Mapping[str, str]], bool] | None:
    """Return a predicate on labels, or None when the selector selects everything.

    Raises StatusError 400 in the words of the API server.
    """
    tokens = _TOKEN.findall(text)
    if not tokens:
        return None
    tests: list[Callable[[Mapping[str, str]], bool]] = []
    position = 0
    while position < len(tokens):
        test, position = _requirement(tokens, position)
        tests.append(test)
        if position < len(tokens):
            if tokens[position] != ",":
                raise bad_request(f"found '{tokens[position]}', expected: ',' or 'end of string'")
            position += 1
            if position == len(tokens):
                raise bad_request("found '', expected: identifier after ','")
    if len(tests) == 1:
        return tests[0]
    return lambda labels: all(test(labels) for test in tests)


def _requirement(
    tokens: list[str], position: int
) -> tuple[Callable[[Mapping[str, str]], bool], int]:
    token = tokens[position]
    if token == "!":  # noqa: S105  # a token of the grammar
        key = _identifier(tokens, position + 1)
        return (lambda labels: key not in labels), position + 2
    if token in {"=", "==", "!=", "(", ")", ",", "<", ">"}:
        raise bad_request(f"found '{token}', expected: !, identifier, or 'end of string'")
    key = _identifier(tokens, position)
    operator = tokens[position + 1] if position + 1 < len(tokens) else ","
    if operator == ",":
        return (lambda labels: key in labels), position + 1
    if operator in {"=", "=="}:
        value, end = _exact_value(tokens, position + 2)
        return (lambda labels: labels.get(key) == value), end
    if operator == "!=":
        value, end = _exact_value(tokens, position + 2)
        return (lambda labels: labels.get(key) != value), end
    if operator in _PREDICATES:
        values, end = _value_set(tokens, position + 2)
        if operator == "in":
            return (lambda labels: labels.get(key) in values), end
        return (lambda labels: labels.get(key) not in values), end
    if operator in {"<", ">"}:
        return _comparison(key, operator, tokens, position + 2)
    raise bad_request(f"found '{operator}', expected: in, notin, =, ==, !=, gt, lt")


def _comparison(
    key: str, operator: str, tokens: list[str], position: int
) -> tuple[Callable[[Mapping[str, str]], bool], int]:
    value, end = _exact_value(tokens, position)
    try:
        bound = int(value)
    except ValueError:
        raise bad_request(
            f"for 'Gt', 'Lt' operators, the value must be an integer: \"{value}\""
        ) from None

    def test(labels: Mapping[str, str]) -> bool:
        try:
            have = int(labels[key])
        except (KeyError, ValueError):
            return False
        return have > bound if operator == ">" else have < bound

    return test, end


def _identifier(tokens: list[str], position: int) -> str:
    token = tokens[position] if position < len(tokens) else ""
    if not _KEY.fullmatch(token):
        raise bad_request(
            f'unable to parse requirement: <nil>: Invalid value: "{token}": name part must consist of '
            "alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
            "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
            "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
        )
    return token


def _exact_value(tokens: list[str], position: int) -> tuple[str, int]:
    if position >= len(tokens) or tokens[position] == ",":
        return "", position
    token = tokens[position]
    if token in {"(", ")", "=", "==", "!=", "!", "<", ">"}:
        raise bad_request(f"found '{token}', expected: identifier")
    return token, position + 1


def _value_set(tokens: list[str], position: int) -> tuple[frozenset[str], int]:
    opening = tokens[position] if position < len(tokens) else ""
    if opening != "(":
        raise bad_request(f"found '{opening}' expected: '('")
    try:
        closing = tokens.index(")", position)
    except ValueError:
        raise bad_request("found '', expected: ',' or ')'") from None
    inner = tokens[position + 1 : closing]
    return frozenset(t for t in inner if t != ",") | (
        frozenset({""}) if not inner else frozenset()
    ), closing + 1


def parse_fields(text: str, known: Mapping[str, Callable[[Obj], str]]) -> Match | None:
    """Return a predicate on objects, or None for an empty selector; 400 for unknown fields."""
    if not text:
        return None
    tests: list[Match] = []
    for part in re.split(r"(?<!\\),", text):
        if not part:
            continue
        found = re.fullmatch(r"([^=!]+)(==|!=|=)(.*)", part, re.DOTALL)
        if not found:
            raise bad_request(f"invalid selector: '{part}'; can't understand '{part}'")
        field, operator, raw = found.groups()
        read = known.get(field)
        if read is None:
            raise bad_request(f"field label not supported: {field}")
        value = re.sub(r"\\([\\,=])", r"\1", raw)
        tests.append(_field_test(read, value, equal=operator != "!="))
    if len(tests) == 1:
        return tests[0]
    return lambda obj: all(test(obj) for test in tests)


def _field_test(read: Callable[[Obj], str], value: str, *, equal: bool) -> Match:
    if equal:
        return lambda obj: read(obj) == value
    return lambda obj: read(obj) != value


def field_reader(path: str) -> Callable[[Obj], str]:
    """Return a reader of a dotted path: absent is the empty string, booleans are lower case."""
    parts = path.strip(".").split(".")

    def read(obj: Obj) -> str:
        value: Any = obj
        for part in parts:
            if not isinstance(value, dict) or part not in value:
                return ""
            value = value[part]
        if isinstance(value, bool):
            return "true" if value else "false"
        return "" if value is None else str(value)

    return read


def label_selector_matches(selector: Obj | None, labels: Mapping[str, str]) -> bool:
    """Apply a LabelSelector object; None selects nothing, an empty one everything."""
    if selector is None:
        return False
    for key, value in (selector.get("matchLabels") or {}).items():
        if labels.get(key) != value:
            return False
    for rule in selector.get("matchExpressions") or ():
        have = labels.get(rule["key"])
        operator = rule["operator"]
        values = rule.get("values") or ()
        held = {
            "In": have is not None and have in values,
            "NotIn": have is None or have not in values,
            "Exists": have is not None,
            "DoesNotExist": have is None,
        }.get(operator, False)
        if not held:
            return False
    return True
