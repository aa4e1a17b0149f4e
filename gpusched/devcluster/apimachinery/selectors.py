"""Label and field selectors: parsing with the API server's texts, matching on stored objects."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from gpusched.devcluster.apimachinery.metadata import (
    label_value_problems,
    qualified_name_problems,
)
from gpusched.devcluster.apimachinery.status import StatusError, bad_request

Obj = dict[str, Any]
Match = Callable[[Obj], bool]

_SYMBOLS: Final = frozenset("=!(),><")
_WORDS: Final = frozenset({")", ",", "!", "==", "=", ">", "<", "!=", "("})
_OPERATORS: Final = {"in", "notin", "=", "==", "!=", ">", "<"}
_BINARY: Final = "in, notin, =, ==, !=, gt, lt"
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")

Labels = Mapping[str, str]
LabelTest = Callable[[Labels], bool]


def parse_labels(text: str) -> LabelTest | None:
    """Return a predicate on labels, or None when the selector selects everything.

    Raises StatusError 400 in the words of the API server.
    """
    tests = _LabelSelectorParser(_tokens(text)).selector()
    if not tests:
        return None
    if len(tests) == 1:
        return tests[0]
    return lambda labels: all(test(labels) for test in tests)


def _tokens(text: str) -> list[str]:
    """Symbols and words; the empty text at the end stands for the end of the string."""
    found: list[str] = []
    at = 0
    while at < len(text):
        if text[at] in " \t\r\n":
            at += 1
        elif text[at] in _SYMBOLS:
            size = 2 if text[at : at + 2] in _WORDS else 1
            found.append(text[at : at + size])
            at += size
        else:
            start = at
            while at < len(text) and text[at] not in _SYMBOLS and not text[at].isspace():
                at += 1
            found.append(text[start:at])
    return [*found, ""]


class _LabelSelectorParser:
    """The grammar of label selectors, as the API server reads it."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens = tokens
        self._at = 0

    def _next(self) -> str:
        token = self._tokens[self._at]
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return token

    def selector(self) -> list[LabelTest]:
        tests: list[LabelTest] = []
        while token := self._tokens[self._at]:
            if _symbol(token) and token != "!":  # noqa: S105  # a token of the grammar
                raise bad_request(f"found '{token}', expected: !, identifier, or 'end of string'")
            tests.append(self._requirement())
            after = self._next()
            if not after:
                break
            if after != ",":
                raise bad_request(f"found '{after}', expected: ',' or 'end of string'")
            following = self._tokens[self._at]
            if following != "!" and _symbol(following):
                raise bad_request(f"found '{following}', expected: identifier after ','")
        return tests

    def _requirement(self) -> LabelTest:
        key = self._next()
        absent = key == "!"
        if absent:
            key = self._next()
        if _symbol(key):
            raise _unparsed(f"found '{key}', expected: identifier")
        if problems := qualified_name_problems(key):
            joined = "; ".join(problems)
            raise _unparsed(f"<nil>: Invalid value: {_quoted(key)}: {joined}")
        if absent:
            return lambda labels: key not in labels
        if self._tokens[self._at] in {"", ","}:
            return lambda labels: key in labels
        operator = self._next()
        if operator not in _OPERATORS:
            raise _unparsed(f"found '{operator}', expected: {_BINARY}")
        values = self._values() if operator in {"in", "notin"} else [self._exact_value()]
        return _test(key, operator, values)

    def _exact_value(self) -> str:
        if self._tokens[self._at] in {"", ","}:
            return ""
        token = self._next()
        if _symbol(token):
            raise _unparsed(f"found '{token}', expected: identifier")
        return token

    def _values(self) -> list[str]:
        opening = self._next()
        if opening != "(":
            raise _unparsed(f"found '{opening}' expected: '('")
        token = self._tokens[self._at]
        if token == ")":  # noqa: S105  # a token of the grammar
            self._next()
            return [""]
        if _symbol(token) and token != ",":  # noqa: S105  # a token of the grammar
            raise _unparsed(f"found '{token}', expected: ',', ')' or identifier")
        found: dict[str, None] = {}
        while (token := self._next()) != ")":
            following = self._tokens[self._at]
            if token == ",":  # noqa: S105  # a token of the grammar
                if not found or following in {",", ")"}:
                    found[""] = None
            elif _symbol(token):
                raise _unparsed(f"found '{token}', expected: ',', or identifier")
            else:
                found[token] = None
                if following not in {",", ")"}:
                    raise _unparsed(f"found '{following}', expected: ',' or ')'")
        return sorted(found)


def _symbol(token: str) -> bool:
    """Whether a token cannot be a key or value; the end of the string cannot either."""
    return not token or token in _WORDS


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()


def _unparsed(why: str) -> StatusError:
    return bad_request(f"unable to parse requirement: {why}")


def _test(key: str, operator: str, values: list[str]) -> LabelTest:
    errors: list[str] = []
    if operator in {">", "<"} and not _INTEGER.fullmatch(values[0]):
        why = "for 'Gt', 'Lt' operators, the value must be an integer"
        errors.append(f"values[0]: Invalid value: {_quoted(values[0])}: {why}")
    errors += [
        f"values[{i}][{key}]: Invalid value: {_quoted(value)}: {'; '.join(problems)}"
        for i, value in enumerate(values)
        if (problems := label_value_problems(value))
    ]
    if errors:
        raise _unparsed(errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]")
    chosen = frozenset(values)
    if operator in {"in", "=", "=="}:
        return lambda labels: labels.get(key) in chosen
    if operator in {"notin", "!="}:
        return lambda labels: labels.get(key) not in chosen
    return _comparison(key, operator, int(values[0]))


def _comparison(key: str, operator: str, bound: int) -> LabelTest:
    def test(labels: Labels) -> bool:
        have = labels.get(key, "")
        if not _INTEGER.fullmatch(have):
            return False
        return int(have) > bound if operator == ">" else int(have) < bound

    return test


def parse_fields(
    text: str, known: Mapping[str, Callable[[Obj], str]], *, common: bool = False
) -> Match | None:
    """Return a predicate on objects, or None for an empty selector; 400 for unknown fields.

    Args:
        text: the selector.
        known: readers of the fields that it may name.
        common: whether the kind is a built-in that has only the fields of all kinds, of which an
            unknown one is told in other words.
    """
    if not text:
        return None
    tests: list[Match] = []
    for part in _terms(text):
        if not part:
            continue
        found = re.fullmatch(r"((?:[^=!\\]|\\.|!(?!=))*)(==|!=|=)(.*)", part, re.DOTALL)
        if not found:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{part}'")
        field, operator, raw = found.groups()
        value = _unescaped(raw)
        read = known.get(field)
        if read is None:
            raise bad_request(_unknown_field(field, common=common))
        tests.append(_field_test(read, value, equal=operator != "!="))
    if len(tests) == 1:
        return tests[0]
    return lambda obj: all(test(obj) for test in tests)


def _unknown_field(field: str, *, common: bool) -> str:
    if common:
        known = '"metadata.name", "metadata.namespace"'
        return f"{_quoted(field)} is not a known field selector: only {known}"
    return f"field label not supported: {field}"


def _terms(text: str) -> list[str]:
    """Parts between commas that are not escaped."""
    return [m.group(0) for m in re.finditer(r"(?:[^,\\]|\\.|\\$)+", text, re.DOTALL)]


def _unescaped(raw: str) -> str:
    """The value of a field selector, in which comma, equals sign and backslash are escaped."""
    if "\\" not in raw and "=" not in raw:
        return raw
    value = ""
    characters = iter(raw)
    for character in characters:
        if character == "=":
            # Real servers print the number of the character.
            raise bad_request(
                f"invalid field selector: unescaped character in value: {ord(character)}"
            )
        if character == "\\":
            escaped = next(characters, "")
            if escaped not in {"\\", ",", "="}:
                why = f"invalid escape sequence: \\{escaped}"
                raise bad_request(f"invalid field selector: {why}")
            character = escaped  # noqa: PLW2901  # what it stands for
        value += character
    return value


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
