"""Parses Go ``text/template`` source into a small tree; knows no function and no data.

Stages of KWOK are written in that language, and the same files have to run there and here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import attrs

from gpusched.base.classes import define, frozen
from gpusched.base.errors import ConfigError


class TemplateError(ConfigError):
    """The template cannot be parsed, or cannot be rendered for this object."""


@frozen
class TemplateLiteral:
    """A constant: text, number, boolean or nil."""

    value: object


@frozen
class FieldPath:
    """Fields under a base: ``.a.b``, ``$x.a``, ``(pipeline).a``; no fields is the base itself."""

    base: TemplateVariable | Pipeline | None
    fields: tuple[str, ...]


@frozen
class TemplateVariable:
    """``$name``; ``$`` alone is the object the template was started with."""

    name: str


@frozen
class TemplateCall:
    """A function and its arguments, still to be looked up."""

    name: str
    arguments: tuple[Operand, ...]


@frozen
class Pipeline:
    """Commands joined by ``|``; each result is the last argument of the next.

    ``targets`` are variables that receive the value, declared anew when ``declares``.
    """

    commands: tuple[Operand, ...]
    targets: tuple[str, ...] = ()
    declares: bool = False


Operand = TemplateLiteral | FieldPath | TemplateVariable | TemplateCall | Pipeline


@frozen
class TemplateText:
    """Printed as it stands."""

    text: str


@frozen
class BranchBlock:
    """``if``, ``with`` or ``range`` with its body and what stands after ``else``."""

    word: str
    pipeline: Pipeline
    body: tuple[Node, ...]
    otherwise: tuple[Node, ...]


@frozen
class TemplateInclude:
    """An inclusion: ``template "name" pipeline``."""

    name: str
    pipeline: Pipeline | None


@frozen
class LoopJump:
    """A jump in a loop: ``break`` or ``continue``."""

    word: str


Node = TemplateText | Pipeline | BranchBlock | TemplateInclude | LoopJump


@frozen
class ParsedTemplate:
    """A template, the named templates it defines, and every function it calls."""

    body: tuple[Node, ...]
    defined: dict[str, tuple[Node, ...]]
    functions: frozenset[str]


_ACTION = re.compile(
    r"\{\{(?P<left>-(?=\s))?(?P<inner>\s*/\*.*?\*/\s*|(?:\"(?:\\.|[^\"\\])*\"|`[^`]*`|[^`\"])*?)"
    r"(?P<right>(?<=\s)-)?\}\}",
    re.DOTALL,
)
_TOKEN = re.compile(
    r"""\s*(?:
      (?P<string>"(?:\\.|[^"\\])*")
    | (?P<raw>`[^`]*`)
    | (?P<number>[-+]?(?:0[xX][0-9a-fA-F]+|\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)(?![\w.]))
    | (?P<variable>\$\w*(?:\.\w+)*)
    | (?P<field>(?:\.\w+)+|\.)
    | (?P<word>[A-Za-z_]\w*)
    | (?P<mark>:=|=|\||\(|\)|,)
    )""",
    re.VERBOSE,
)
_Token = tuple[str, str, bool]
"""Kind, text, and whether blank space stood before it (``(x).y`` differs from ``(x) .y``)."""


def _tokens(source: str) -> list[_Token]:
    found: list[_Token] = []
    at = 0
    end = len(source.rstrip())
    while at < end:
        match = _TOKEN.match(source, at)
        if match is None:
            raise TemplateError(f"cannot read {source[at : at + 30]!r} in template action")
        kind = match.lastgroup or ""
        found.append((kind, match[kind], match.start(kind) > at))
        at = match.end()
    return found


class _PipelineParser:
    """Reads one action's tokens as a pipeline."""

    def __init__(self, tokens: list[_Token], functions: set[str]) -> None:
        self._tokens = tokens
        self._at = 0
        self._functions = functions

    def _peek(self) -> _Token:
        return self._tokens[self._at] if self._at < len(self._tokens) else ("end", "", False)

    def _next(self) -> _Token:
        token = self._peek()
        self._at += 1
        return token

    def whole(self) -> Pipeline:
        """Read everything; anything left over is an error."""
        pipeline = self._pipeline()
        if self._peek()[0] != "end":
            raise TemplateError(f"unexpected {self._peek()[1]!r} in template action")
        return pipeline

    def _targets(self) -> tuple[tuple[str, ...], bool]:
        start = self._at
        names: list[str] = []
        while self._peek()[0] == "variable" and "." not in self._peek()[1]:
            names.append(self._next()[1])
            mark = self._peek()[1]
            if mark == ",":
                self._next()
                continue
            if mark in {":=", "="}:
                self._next()
                return tuple(names), mark == ":="
            break
        self._at = start
        return (), False

    def _pipeline(self) -> Pipeline:
        targets, declares = self._targets()
        commands = [self._command()]
        while self._peek()[1] == "|" and self._peek()[0] == "mark":
            self._next()
            commands.append(self._command())
        return Pipeline(tuple(commands), targets, declares)

    def _command(self) -> Operand:
        kind, text, _ = self._peek()
        if kind == "word" and text not in {"true", "false", "nil"}:
            self._next()
            self._functions.add(text)
            arguments: list[Operand] = []
            while not self._closes():
                arguments.append(self._operand())
            return TemplateCall(text, tuple(arguments))
        operand = self._operand()
        if not self._closes():
            raise TemplateError(f"{text!r} is no function and takes no arguments")
        return operand

    def _closes(self) -> bool:
        kind, text, _ = self._peek()
        return kind == "end" or (kind == "mark" and text in {"|", ")"})

    def _operand(self) -> Operand:
        kind, text, _ = self._next()
        if kind == "mark" and text == "(":
            inner = self._pipeline()
            if self._next()[1] != ")":
                raise TemplateError("a parenthesis is not closed in template action")
            follower, fields, spaced = self._peek()
            if follower == "field" and not spaced:
                self._next()
                return FieldPath(inner, _names(fields))
            return inner
        return self._simple(kind, text)

    def _simple(self, kind: str, text: str) -> Operand:
        if kind == "string":
            return TemplateLiteral(json.loads(text, strict=False))
        if kind == "raw":
            return TemplateLiteral(text[1:-1])
        if kind == "number":
            whole = re.fullmatch(r"[-+]?(0[xX][0-9a-fA-F]+|\d+)", text)
            return TemplateLiteral(int(text, 0) if whole else float(text))
        if kind == "field":
            return FieldPath(None, _names(text))
        if kind == "variable":
            name, *fields = text.split(".")
            return (
                FieldPath(TemplateVariable(name), tuple(fields))
                if fields
                else TemplateVariable(name)
            )
        constants: dict[str, object] = {"true": True, "false": False, "nil": None}
        if kind == "word" and text in constants:
            return TemplateLiteral(constants[text])
        if kind == "word":
            self._functions.add(text)
            return TemplateCall(text, ())
        raise TemplateError(f"unexpected {text!r} in template action")


def _names(dotted: str) -> tuple[str, ...]:
    return tuple(name for name in dotted.split(".") if name)


@define
class _BlockParser:
    """Walks text and actions, nesting blocks until their ``end``."""

    pieces: Iterator[tuple[str, str]]
    defined: dict[str, tuple[Node, ...]] = attrs.field(factory=dict)
    functions: set[str] = attrs.field(factory=set)

    def commands(self, source: str) -> Pipeline:
        return _PipelineParser(_tokens(source), self.functions).whole()

    def block(self, *, nested: bool) -> tuple[tuple[Node, ...], str]:
        """Nodes up to ``end`` or ``else``; the latter's own words are handed back."""
        nodes: list[Node] = []
        for kind, text in self.pieces:
            if kind == "text":
                nodes.append(TemplateText(text))
                continue
            word, _, rest = text.partition(" ")
            if word in {"end", "else"}:
                if not nested:
                    raise TemplateError(f"{word!r} without a block it could belong to")
                return tuple(nodes), text
            node = self._node(word, rest.strip(), text)
            if node is not None:
                nodes.append(node)
        if nested:
            raise TemplateError("a block is not closed with end")
        return tuple(nodes), ""

    def _node(self, word: str, rest: str, text: str) -> Node | None:
        if word in {"if", "with", "range"}:
            return self._branch(word, rest)
        if word in {"define", "block"}:
            name, pipeline = self._named(rest)
            self.defined[name], _ = self.block(nested=True)
            return TemplateInclude(name, pipeline) if word == "block" else None
        if word == "template":
            return TemplateInclude(*self._named(rest))
        if word in {"break", "continue"}:
            return LoopJump(word)
        return self.commands(text) if text else None

    def _branch(self, word: str, rest: str) -> BranchBlock:
        pipeline = self.commands(rest)
        body, closing = self.block(nested=True)
        otherwise: tuple[Node, ...] = ()
        if closing.startswith("else"):
            again, _, condition = closing[len("else") :].strip().partition(" ")
            if again:
                otherwise = (self._branch(again, condition.strip()),)
            else:
                otherwise, _ = self.block(nested=True)
        return BranchBlock(word, pipeline, body, otherwise)

    def _named(self, rest: str) -> tuple[str, Pipeline | None]:
        match = re.match(r"\"((?:\\.|[^\"\\])*)\"\s*(.*)", rest, re.DOTALL)
        if match is None:
            raise TemplateError(f"a template name in quotes is missing at {rest!r}")
        return match[1], self.commands(match[2]) if match[2] else None


def _pieces(source: str) -> Iterator[tuple[str, str]]:
    at = 0
    trim = False
    for match in _ACTION.finditer(source):
        text = source[at : match.start()]
        text = text.lstrip() if trim else text
        text = text.rstrip() if match["left"] else text
        if "{{" in text:
            break
        if text:
            yield "text", text
        inner = match["inner"].strip()
        if not inner.startswith("/*"):
            yield "action", re.sub(r"^(\w+)\s+", r"\1 ", inner)
        trim = bool(match["right"])
        at = match.end()
    rest = source[at:].lstrip() if trim else source[at:]
    if "{{" in rest:
        raise TemplateError(f"an action is not closed with }}}} after {rest[:40]!r}")
    if rest:
        yield "text", rest


def parse_template(source: str) -> ParsedTemplate:
    """Parse a template.

    Raises:
        TemplateError: the source is not a template; the sentence names the place.
    """
    reader = _BlockParser(_pieces(source))
    body, _ = reader.block(nested=False)
    return ParsedTemplate(body, reader.defined, frozenset(reader.functions))
