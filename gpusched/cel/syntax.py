"""Reading CEL: text to a tree whose nodes know where they stand.

Macros are calls here, and the checker knows them. Errors are worded as by the parser of the API
server, which ANTLR generates from the same grammar; of a text with several, only the first in the
grammar is reported, beside every character that begins no token.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from typing import Final

from gpusched.base.classes import frozen
from gpusched.base.errors import GpuschedError
from gpusched.cel.errors import ExpressionIssue
from gpusched.cel.values import KEYWORDS

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
CONSTRUCTOR: Final = "{}"
"""Behind the name of a message: the function that makes one of a map of its fields."""
_BROKEN: Final = re.compile(
    r"""
    [rRbB]{0,2}"(?:[^"\\\n]|\\[abfnrtv0-7xXuU"'`?\\])*(?:\\.?|\n)?
  | [rRbB]{0,2}'(?:[^'\\\n]|\\[abfnrtv0-7xXuU"'`?\\])*(?:\\.?|\n)?
  | `[^`\n]*\n?
  | [=&|](?s:.)?
  | (?s:.)
    """,
    re.VERBOSE,
)
"""What the lexer passes over where no token begins: as far as it had hoped for one."""
_UNKNOWN_ESCAPE: Final = re.compile(
    r"""[bB]?["'](?:[^\\]|\\[abfnrtv0-7xXuU"'`?\\])*\\[^abfnrtv0-7xXuU"'`?\\]""", re.DOTALL
)
"""The beginning of a text that is not raw, up to an escape that the language does not know."""
_TOKEN_ORDER: Final = (
    "<EOF>", "'=='", "'!='", "'in'", "'<'", "'<='", "'>='", "'>'", "'&&'", "'||'", "'['", "']'",
    "'{'", "'}'", "'('", "')'", "'.'", "','", "'-'", "'!'", "'?'", "':'", "'+'", "'*'", "'/'",
    "'%'", "'true'", "'false'", "'null'", "NUM_FLOAT", "NUM_INT", "NUM_UINT", "STRING", "BYTES",
    "IDENTIFIER",
)  # fmt: skip
"""Tokens in the order in which the grammar declares them, which is that of error messages."""
_OPERATORS: Final = frozenset(
    [
        "'=='", "'!='", "'in'", "'<'", "'<='", "'>='", "'>'", "'&&'", "'||'", "'['", "'.'", "'-'",
        "'?'", "'+'", "'*'", "'/'", "'%'",
    ]
)  # fmt: skip
"""What may come after an operand."""
_STARTS: Final = frozenset(
    [
        "'['", "'{'", "'('", "'.'", "'-'", "'!'", "'true'", "'false'", "'null'", "NUM_FLOAT",
        "NUM_INT", "NUM_UINT", "STRING", "BYTES", "IDENTIFIER",
    ]
)  # fmt: skip
"""What an expression may begin with."""


class CelSyntaxError(GpuschedError):
    """A text that is no CEL expression.

    Attributes:
        issues: what is wrong with it, in order of place.
    """

    def __init__(self, issues: Iterable[ExpressionIssue]) -> None:
        self.issues = tuple(sorted(issues, key=lambda issue: issue.at))
        super().__init__("; ".join(issue.text for issue in self.issues))


@frozen(eq=False)
class LiteralNode:
    """A constant; ``unsigned`` for numbers that end in u."""

    at: int
    value: object
    unsigned: bool = False


@frozen(eq=False)
class NameNode:
    """A variable, by its name."""

    at: int
    name: str


@frozen(eq=False)
class SelectNode:
    """A field of a value; ``optional`` for ``.?``."""

    at: int
    operand: Expr
    field: str
    optional: bool = False


@frozen(eq=False)
class IndexNode:
    """An element of a list or map; ``optional`` for ``[?``."""

    at: int
    operand: Expr
    key: Expr
    optional: bool = False


@frozen(eq=False)
class CallNode:
    """A function, operator (``_+_``) or macro; ``target`` is what a method stands behind."""

    at: int
    function: str
    args: tuple[Expr, ...]
    target: Expr | None = None


@frozen(eq=False)
class ListNode:
    """A list; ``optional`` tells which elements are there only when they hold something."""

    at: int
    items: tuple[Expr, ...]
    optional: frozenset[int]


@frozen(eq=False)
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
        return _CelParser(text).parse_whole_text()
    except RecursionError:
        raise CelSyntaxError([_too_deep(text)]) from None


def _too_deep(text: str) -> ExpressionIssue:
    return ExpressionIssue(len(text), "Syntax error: expression recursion limit exceeded")


def _tokens(text: str) -> tuple[list[tuple[str, str, int]], list[ExpressionIssue]]:
    """Kind, text and place of each token, and what is none."""
    tokens: list[tuple[str, str, int]] = []
    issues: list[ExpressionIssue] = []
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None or (found.lastgroup == "text" and _UNKNOWN_ESCAPE.match(found.group())):
            found = _BROKEN.match(text, at)
            assert found is not None
            why = f"Syntax error: token recognition error at: '{found.group()}'"
            issues.append(ExpressionIssue(at, why))
        elif found.lastgroup != "space":
            tokens.append((found.lastgroup or "", found.group(), at))
        at = found.end()
    tokens.append(("end", "<EOF>", len(text)))
    return tokens, issues


def _spelled(names: Iterable[str]) -> str:
    """A set of tokens as messages list it."""
    found = sorted(names, key=_TOKEN_ORDER.index)
    return found[0] if len(found) == 1 else f"{{{', '.join(found)}}}"


class _CelParser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens, self._issues = _tokens(text)
        self._at = 0
        self._depth = 0

    def parse_whole_text(self) -> Expr:
        found = self._ternary()
        if self._name(0) != "<EOF>":
            if self._name(1) == "<EOF>":
                raise self._unexpected({"<EOF>"}, "extraneous")
            raise self._unexpected(_OPERATORS | {"<EOF>"}, "mismatched")
        if self._issues:
            raise CelSyntaxError(self._issues)
        return found

    # -- complaints ----------------------------------------------------------------------------

    def _name(self, ahead: int) -> str:
        """The name of a token in messages."""
        kind, text, _ = self._tokens[min(self._at + ahead, len(self._tokens) - 1)]
        if kind == "end":
            return "<EOF>"
        if kind == "float":
            return "NUM_FLOAT"
        if kind == "int":
            return "NUM_UINT" if text.endswith(("u", "U")) else "NUM_INT"
        if kind == "text":
            return "BYTES" if "b" in text[:2].lower().split(text[-1])[0] else "STRING"
        if kind == "symbol" or text in {"in", "true", "false", "null"}:
            return f"'{text}'"
        return "IDENTIFIER" if kind == "name" else kind

    def _fault(self, why: str, ahead: int = 0) -> CelSyntaxError:
        at = self._tokens[min(self._at + ahead, len(self._tokens) - 1)][2]
        return CelSyntaxError([*self._issues, ExpressionIssue(at, why)])

    def _unexpected(self, expected: Iterable[str], how: str = "") -> CelSyntaxError:
        """The error of a token that is none of those expected.

        ``how`` is what ANTLR would do: leave one token out (extraneous) when the next one fits,
        which it finds out itself when ``how`` is empty, else give up (mismatched).
        """
        expected = frozenset(expected)
        how = how or ("extraneous" if self._name(1) in expected else "mismatched")
        shown = self._tokens[self._at][1]
        return self._fault(f"Syntax error: {how} input '{shown}' expecting {_spelled(expected)}")

    def _unclosed(self, closing: str, *, more: Iterable[str] = (), question: bool = True) -> None:
        """Raise the error of an operand after which ``closing`` must come.

        Args:
            closing: the token that would end the surrounding form.
            more: what may come there as well.
            question: whether a condition could have gone on here.
        """
        name = f"'{closing}'"
        if self._name(1) == name:
            raise self._unexpected({name}, "extraneous")
        follows = _STARTS if closing == ":" else _OPERATORS | {"<EOF>", "')'", "']'", "'}'", "','"}
        if self._name(0) in follows:
            shown = self._tokens[self._at][1]
            raise self._fault(f"Syntax error: missing {name} at '{shown}'")
        operators = _OPERATORS if question else _OPERATORS - {"'?'"}
        raise self._unexpected(operators | {name} | frozenset(more), "mismatched")

    # -- tokens --------------------------------------------------------------------------------

    def _peek(self, *texts: str) -> bool:
        kind, text, _ = self._tokens[self._at]
        return kind in {"symbol", "name"} and text in texts

    def _take(self) -> tuple[str, str, int]:
        token = self._tokens[self._at]
        self._at += 1
        return token

    def _close(self, text: str, *, more: Iterable[str] = (), question: bool = True) -> None:
        if not self._peek(text):
            self._unclosed(text, more=more, question=question)
        self._take()

    # -- grammar -------------------------------------------------------------------------------

    def _ternary(self, also: Iterable[str] = ()) -> Expr:
        """Read an expression; ``also`` are tokens that may stand in its place."""
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise CelSyntaxError([_too_deep(self._text)])
        condition = self._binary(0, also)
        if self._peek("?"):
            at = self._take()[2]
            then = self._binary(0)
            self._close(":", question=False)
            condition = CallNode(at, "_?_:_", (condition, then, self._ternary()))
        self._depth -= 1
        return condition

    def _binary(self, level: int, also: Iterable[str] = ()) -> Expr:
        if level == len(_LEVELS):
            return self._unary(also)
        left = self._binary(level + 1, also)
        while self._peek(*_LEVELS[level]):
            _, operator, at = self._take()
            name = "@in" if operator == "in" else f"_{operator}_"
            left = CallNode(at, name, (left, self._binary(level + 1)))
        return left

    def _unary(self, also: Iterable[str] = ()) -> Expr:
        if self._peek("!", "-"):
            _, operator, at = self._take()
            kind, text, _ = self._tokens[self._at]
            if operator == "-" and kind in {"int", "float"} and not text.endswith(("u", "U")):
                self._take()
                number = -_number(kind, text, at, most=2**63)
                return self._members(LiteralNode(at, number))
            if self._name(0) not in _STARTS:
                raise self._operand_missing(operator)
            self._depth += 1
            if self._depth > _DEPTH_MAX:
                raise CelSyntaxError([_too_deep(self._text)])
            operand = self._unary()
            self._depth -= 1
            return CallNode(at, "!_" if operator == "!" else "-_", (operand,))
        return self._members(self._primary(also))

    def _operand_missing(self, operator: str) -> CelSyntaxError:
        if operator == "!":
            return self._unexpected(_STARTS, "extraneous")
        shown = "" if self._name(0) == "<EOF>" else self._tokens[self._at][1]
        why = f"Syntax error: no viable alternative at input '-{shown}'"
        self._issues.append(ExpressionIssue(self._tokens[self._at][2], why))
        return self._unexpected(_STARTS, "mismatched")

    def _members(self, value: Expr) -> Expr:
        while self._peek(".", "["):
            _, symbol, at = self._take()
            optional = self._peek("?")
            if optional:
                self._take()
            if symbol == "[":
                value = IndexNode(
                    at, value, self._ternary(() if optional else ("'?'",)), optional=optional
                )
                self._close("]")
                continue
            kind, name, _ = self._tokens[self._at]
            if kind not in {"name", "quoted"} or name == "in":
                raise self._no_member(at, optional=optional)
            self._take()
            if self._peek("(") and not optional:
                opening = self._take()[2]
                value = CallNode(opening, name, self._arguments(), target=value)
            else:
                value = SelectNode(at, value, name.strip("`"), optional=optional)
        return value

    def _no_member(self, at: int, *, optional: bool) -> CelSyntaxError:
        _, shown, place = self._tokens[self._at]
        if optional:
            return self._fault(
                f"Syntax error: mismatched input '{shown}' expecting {{IDENTIFIER, ESC_IDENTIFIER}}"
            )
        end = place + len(shown) if self._name(0) != "<EOF>" else at + 1
        return self._fault(f"Syntax error: no viable alternative at input '{self._text[at:end]}'")

    def _arguments(self) -> tuple[Expr, ...]:
        args: list[Expr] = []
        if not self._peek(")"):
            args.append(self._ternary(("')'",)))
            while self._peek(","):
                self._take()
                args.append(self._ternary())
        self._close(")", more=("','",))
        return tuple(args)

    def _primary(self, also: Iterable[str] = ()) -> Expr:  # noqa: PLR0911  # one a kind of token
        if self._name(0) not in _STARTS:
            raise self._unexpected(_STARTS | frozenset(also))
        kind, text, at = self._take()
        if kind in {"int", "float"}:
            unsigned = text.endswith(("u", "U"))
            number = _number(kind, text.rstrip("uU"), at, most=(2**64 if unsigned else 2**63) - 1)
            return LiteralNode(at, number, unsigned=unsigned)
        if kind == "text":
            return LiteralNode(at, _text(text, at))
        if kind == "name":
            if text in {"true", "false", "null"}:
                return LiteralNode(at, {"true": True, "false": False, "null": None}[text])
            if text in KEYWORDS:
                raise self._fault(f"reserved identifier: {text}", ahead=-1)
            if self._peek("("):
                opening = self._take()[2]
                return CallNode(opening, text, self._arguments())
            return self._message(text, at) if self._peek("{") else NameNode(at, text)
        if text == "(":
            inner = self._ternary()
            self._close(")")
            return inner
        if text == "[":
            return self._list(at)
        if text == "{":
            return self._map(at)
        if self._tokens[self._at][0] == "name":  # after a leading dot
            return self._primary()
        raise self._unexpected({"IDENTIFIER"}, "mismatched")

    def _mark(self, marked: list[int], index: int) -> None:
        if self._peek("?"):
            self._take()
            marked.append(index)

    def _goes_on(self, closing: str) -> bool:
        """Take the comma between two entries; False at the end of a list or map."""
        name = f"'{closing}'"
        if self._peek(closing):
            self._take()
            return False
        if not self._peek(","):
            raise self._unexpected({name, "','"})
        self._take()
        if self._peek(closing):
            self._take()
            return False
        if self._name(0) not in _STARTS | {"'?'"}:
            shown = self._tokens[self._at][1]
            if self._name(0) in (_OPERATORS | {"<EOF>", "')'"}) - _STARTS:
                raise self._fault(f"Syntax error: missing {name} at '{shown}'")
            raise self._unexpected({name}, "mismatched")
        return True

    def _list(self, at: int) -> Expr:
        items: list[Expr] = []
        optional: list[int] = []
        going = not self._empty("]")
        while going:
            self._mark(optional, len(items))
            items.append(self._ternary(() if items or optional else ("']'", "','", "'?'")))
            going = self._goes_on("]")
        return ListNode(at, tuple(items), frozenset(optional))

    def _map(self, at: int) -> Expr:
        entries: list[tuple[Expr, Expr]] = []
        optional: list[int] = []
        going = not self._empty("}")
        while going:
            self._mark(optional, len(entries))
            key = self._ternary(() if entries or optional else ("'}'", "','", "'?'"))
            self._close(":")
            entries.append((key, self._ternary()))
            going = self._goes_on("}")
        return MapNode(at, tuple(entries), frozenset(optional))

    def _message(self, name: str, at: int) -> Expr:
        """Read the fields of a message: a call of its constructor, over a map of them."""
        self._take()
        fields: list[tuple[Expr, Expr]] = []
        optional: list[int] = []
        going = not self._empty("}")
        while going:
            self._mark(optional, len(fields))
            if self._name(0) != "IDENTIFIER":
                raise self._unexpected({"IDENTIFIER"}, "mismatched")
            _, field, place = self._take()
            self._close(":")
            fields.append((LiteralNode(place, field), self._ternary()))
            going = self._goes_on("}")
        values = MapNode(at, tuple(fields), frozenset(optional))
        return CallNode(at, f"{name}{CONSTRUCTOR}", (values,))

    def _empty(self, closing: str) -> bool:
        """Take the end of an empty list or map, which may hold a comma."""
        if self._peek(",") and self._name(1) == f"'{closing}'":
            self._take()
        if not self._peek(closing):
            return False
        self._take()
        return True


def _number(kind: str, text: str, at: int, *, most: int) -> float | int:
    if kind == "float":
        return float(text)
    try:
        number = int(text, 0 if "x" in text else 10)
    except ValueError:  # more digits than Python reads
        number = 2**64
    if number > most:
        which = "uint" if most > 2**63 else "int"
        raise CelSyntaxError([ExpressionIssue(at, f"Syntax error: invalid {which} literal")])
    return number


def _text(token: str, at: int) -> str | bytes:
    """The value of a string or bytes literal; CEL's escapes are those of Python."""
    prefix = token[: len(token) - len(token.lstrip("rRbB"))].lower()
    body = token[len(prefix) :].replace("\n", "\\n") if "r" not in prefix else token[len(prefix) :]
    body = re.sub(r"\\([?`])", r"\1", body) if "r" not in prefix else body
    try:
        plain = str(ast.literal_eval(("r" if "r" in prefix else "") + body))
    except (SyntaxError, ValueError) as fault:
        why = f"Syntax error: invalid string literal: {fault}"
        raise CelSyntaxError([ExpressionIssue(at, why)]) from None
    return plain.encode() if "b" in prefix else plain
