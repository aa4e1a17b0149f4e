"""Reading CEL: text to a tree whose nodes know where they stand.

Only what later stages need is kept: macros are calls here, and the checker knows them.
"""

from __future__ import annotations

import ast
import re
from typing import Final

import attrs

from gpusched.base.errors import GpuschedError

_TOKEN: Final = re.compile(
    r"""
    (?P<space>\s+|//[^\n]*)
  | (?P<float>\d+\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\.\d+(?:[eE][+-]?\d+)?)
  | (?P<int>0x[0-9a-fA-F]+[uU]?|\d+[uU]?)
  | (?P<text>[rRbB]{0,2}(?:\"\"\"(?:[^\\]|\\.)*?\"\"\"|'''(?:[^\\]|\\.)*?'''
      |"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'))
  | (?P<name>[A-Za-z_]\w*)
  | (?P<quoted>`[^`\n]+`)
  | (?P<symbol>==|!=|<=|>=|&&|\|\||[-+*/%!<>?:.,()\[\]{}])
    """,
    re.VERBOSE | re.DOTALL,
)
_LEVELS: Final = (
    ("||",),
    ("&&",),
    ("<", "<=", ">=", ">", "==", "!=", "in"),
    ("+", "-"),
    ("*", "/", "%"),
)
_DEPTH_MAX: Final = 200


class CelSyntaxError(GpuschedError):
    """A text that is no CEL expression."""


@attrs.frozen(eq=False)
class LiteralNode:
    """A constant; ``unsigned`` for numbers that end in u."""

    at: int
    value: object
    unsigned: bool = False


@attrs.frozen(eq=False)
class NameNode:
    """A variable."""

    at: int
    name: str


@attrs.frozen(eq=False)
class SelectNode:
    """A field of a value; ``optional`` for ``.?``."""

    at: int
    operand: Expr
    field: str
    optional: bool = False


@attrs.frozen(eq=False)
class IndexNode:
    """An element of a list or map; ``optional`` for ``[?``."""

    at: int
    operand: Expr
    key: Expr
    optional: bool = False


@attrs.frozen(eq=False)
class CallNode:
    """A function, operator (``_+_``) or macro; ``target`` is what a method stands behind."""

    at: int
    function: str
    args: tuple[Expr, ...]
    target: Expr | None = None


@attrs.frozen(eq=False)
class ListNode:
    """A list; ``optional`` tells which elements are there only when they hold something."""

    at: int
    items: tuple[Expr, ...]
    optional: frozenset[int]


@attrs.frozen(eq=False)
class MapNode:
    """A map; ``optional`` tells which entries are there only when they hold something."""

    at: int
    entries: tuple[tuple[Expr, Expr], ...]
    optional: frozenset[int]


Expr = LiteralNode | NameNode | SelectNode | IndexNode | CallNode | ListNode | MapNode


def parse_expression(text: str) -> Expr:
    """Read an expression.

    Raises:
        CelSyntaxError: it is none.
    """
    try:
        return _CelParser(text).whole()
    except RecursionError:
        raise CelSyntaxError("expression recursion limit exceeded") from None


class _CelParser:
    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, str, int]] = []
        self._at = 0
        self._depth = 0
        at = 0
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None:
                raise CelSyntaxError(f"token recognition error at: '{text[at]}'")
            kind = found.lastgroup or ""
            if kind != "space":
                self._tokens.append((kind, found.group(), at))
            at = found.end()
        self._tokens.append(("end", "<EOF>", len(text)))

    def whole(self) -> Expr:
        found = self._ternary()
        if self._tokens[self._at][0] != "end":
            raise self._unexpected()
        return found

    def _unexpected(self) -> CelSyntaxError:
        return CelSyntaxError(f"mismatched input '{self._tokens[self._at][1]}'")

    def _peek(self, *texts: str) -> bool:
        kind, text, _ = self._tokens[self._at]
        return kind in {"symbol", "name"} and text in texts

    def _take(self) -> tuple[str, str, int]:
        token = self._tokens[self._at]
        self._at += 1
        return token

    def _expect(self, text: str) -> int:
        if not self._peek(text):
            raise self._unexpected()
        return self._take()[2]

    def _ternary(self) -> Expr:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise CelSyntaxError("expression recursion limit exceeded")
        condition = self._binary(0)
        if self._peek("?"):
            at = self._take()[2]
            then = self._binary(0)
            self._expect(":")
            condition = CallNode(at, "_?_:_", (condition, then, self._ternary()))
        self._depth -= 1
        return condition

    def _binary(self, level: int) -> Expr:
        if level == len(_LEVELS):
            return self._unary()
        left = self._binary(level + 1)
        while self._peek(*_LEVELS[level]):
            _, operator, at = self._take()
            name = "@in" if operator == "in" else f"_{operator}_"
            left = CallNode(at, name, (left, self._binary(level + 1)))
        return left

    def _unary(self) -> Expr:
        if self._peek("!", "-"):
            _, operator, at = self._take()
            kind, text, _ = self._tokens[self._at]
            if operator == "-" and kind in {"int", "float"} and not text.endswith(("u", "U")):
                self._take()
                return self._members(LiteralNode(at, _number(kind, f"-{text}")))
            self._depth += 1
            if self._depth > _DEPTH_MAX:
                raise CelSyntaxError("expression recursion limit exceeded")
            operand = self._unary()
            self._depth -= 1
            return CallNode(at, "!_" if operator == "!" else "-_", (operand,))
        return self._members(self._primary())

    def _members(self, value: Expr) -> Expr:
        while self._peek(".", "["):
            _, symbol, at = self._take()
            optional = self._peek("?")
            if optional:
                self._take()
            if symbol == "[":
                value = IndexNode(at, value, self._ternary(), optional=optional)
                self._expect("]")
                continue
            kind, name, _ = self._take()
            if kind not in {"name", "quoted"}:
                self._at -= 1
                raise self._unexpected()
            if self._peek("(") and not optional:
                opening = self._take()[2]
                value = CallNode(opening, name, self._arguments(")"), target=value)
            else:
                value = SelectNode(at, value, name.strip("`"), optional=optional)
        return value

    def _arguments(self, closing: str) -> tuple[Expr, ...]:
        args: list[Expr] = []
        while not self._peek(closing):
            args.append(self._ternary())
            if not self._peek(","):
                break
            self._take()
        self._expect(closing)
        return tuple(args)

    def _primary(self) -> Expr:  # noqa: PLR0911  # one a kind of token
        kind, text, at = self._take()
        if kind in {"int", "float"}:
            unsigned = text.endswith(("u", "U"))
            return LiteralNode(at, _number(kind, text.rstrip("uU")), unsigned=unsigned)
        if kind == "text":
            return LiteralNode(at, _text(text))
        if kind == "name":
            if text in {"true", "false", "null"}:
                return LiteralNode(at, {"true": True, "false": False, "null": None}[text])
            if self._peek("("):
                opening = self._take()[2]
                return CallNode(opening, text, self._arguments(")"))
            return NameNode(at, text)
        if text == "(":
            inner = self._ternary()
            self._expect(")")
            return inner
        if text == "[":
            return self._list(at)
        if text == "{":
            return self._map(at)
        if text == "." and self._tokens[self._at][0] == "name":
            return self._primary()
        self._at -= 1
        raise self._unexpected()

    def _mark(self, marked: list[int], index: int) -> None:
        if self._peek("?"):
            self._take()
            marked.append(index)

    def _list(self, at: int) -> Expr:
        items: list[Expr] = []
        optional: list[int] = []
        while not self._peek("]"):
            self._mark(optional, len(items))
            items.append(self._ternary())
            if not self._peek(","):
                break
            self._take()
        self._expect("]")
        return ListNode(at, tuple(items), frozenset(optional))

    def _map(self, at: int) -> Expr:
        entries: list[tuple[Expr, Expr]] = []
        optional: list[int] = []
        while not self._peek("}"):
            self._mark(optional, len(entries))
            key = self._ternary()
            self._expect(":")
            entries.append((key, self._ternary()))
            if not self._peek(","):
                break
            self._take()
        self._expect("}")
        return MapNode(at, tuple(entries), frozenset(optional))


def _number(kind: str, text: str) -> float | int:
    return float(text) if kind == "float" else int(text, 0 if "x" in text else 10)


def _text(token: str) -> str | bytes:
    """The value of a string or bytes literal; CEL's escapes are those of Python."""
    prefix = token[: len(token) - len(token.lstrip("rRbB"))].lower()
    body = token[len(prefix) :].replace("\n", "\\n") if "r" not in prefix else token[len(prefix) :]
    body = re.sub(r"\\([?`])", r"\1", body) if "r" not in prefix else body
    try:
        plain = str(ast.literal_eval(("r" if "r" in prefix else "") + body))
    except (SyntaxError, ValueError) as fault:
        raise CelSyntaxError(f"invalid string literal: {fault}") from None
    return plain.encode() if "b" in prefix else plain
