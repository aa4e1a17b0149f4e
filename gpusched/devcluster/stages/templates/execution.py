"""Renders Go templates as KWOK uses them, on plain decoded JSON.

Missing keys are nil, numbers print as they were written, maps are visited in key order.
Functions come from the caller; the language's own (``and``, ``eq``, ``index``...) are here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from gpusched.base.classes import define
from gpusched.devcluster.stages.templates import printing
from gpusched.devcluster.stages.templates.parser import (
    BranchBlock,
    FieldPath,
    LoopJump,
    Node,
    Operand,
    ParsedTemplate,
    Pipeline,
    TemplateCall,
    TemplateError,
    TemplateInclude,
    TemplateLiteral,
    TemplateText,
    TemplateVariable,
    parse_template,
)

Functions = Mapping[str, Callable[..., Any]]
_NESTING_MAX: Final = 100
"""Templates that include themselves end here, well before the interpreter's own stack."""


class _LoopJump(Exception):
    def __init__(self, word: str) -> None:
        super().__init__(word)
        self.word = word


def is_true(value: object) -> bool:
    """What ``if`` takes for true: anything but nil, false, zero and empty."""
    return bool(value)


def _index(value: Any, *keys: Any) -> Any:
    for key in keys:
        if isinstance(value, dict):
            value = value.get(key)
        elif isinstance(value, (list, str)):
            if isinstance(key, bool) or not isinstance(key, (int, float)):
                raise TemplateError(f"index: {key!r} is no list index")
            if not 0 <= int(key) < len(value):
                raise TemplateError(f"index: {int(key)} is out of range of {len(value)} items")
            value = value[int(key)]
        else:
            raise TemplateError(f"index: {printing.print_value(value)} has no items")
    return value


def _equal(first: Any, *others: Any) -> bool:
    return any(_same(first, other) for other in others)


def _same(a: Any, b: Any) -> bool:
    if a is None or b is None:
        return a is b
    if isinstance(a, bool) != isinstance(b, bool) or isinstance(a, str) != isinstance(b, str):
        raise TemplateError(f"eq: {a!r} and {b!r} are of different kinds")
    return bool(a == b)


def _is_less(a: Any, b: Any) -> bool:
    numbers = isinstance(a, (int, float)) and isinstance(b, (int, float))
    if isinstance(a, bool) or not (numbers or (isinstance(a, str) and isinstance(b, str))):
        raise TemplateError(f"lt: {a!r} and {b!r} have no order")
    return bool(a < b)


def _length(value: Any) -> int:
    if not isinstance(value, (str, list, dict)):
        raise TemplateError(f"len: {printing.print_value(value)} has no length")
    return len(value.encode()) if isinstance(value, str) else len(value)


def _slice(value: Any, *bounds: int) -> Any:
    if not isinstance(value, (str, list)) or len(bounds) > 2:
        raise TemplateError("slice: only a text or a list can be cut, at two places at most")
    low = bounds[0] if bounds else 0
    high = bounds[1] if len(bounds) > 1 else len(value)
    if not 0 <= low <= high <= len(value):
        raise TemplateError(f"slice: {low} to {high} is out of range of {len(value)}")
    return value[low:high]


_OWN: Final[dict[str, Callable[..., Any]]] = {
    "eq": _equal,
    "ge": lambda a, b: not _is_less(a, b),
    "gt": lambda a, b: _is_less(b, a),
    "index": _index,
    "le": lambda a, b: not _is_less(b, a),
    "len": _length,
    "lt": _is_less,
    "ne": lambda a, b: not _same(a, b),
    "not": lambda a: not is_true(a),
    "print": printing.print_all,
    "printf": printing.print_format,
    "println": lambda *values: " ".join(printing.print_value(v) for v in values) + "\n",
    "slice": _slice,
}
_LAZY: Final = frozenset({"and", "or"})
LANGUAGE_FUNCTIONS: Final = frozenset(_OWN) | _LAZY


@define
class _TemplateRun:
    """One rendering: its output, its variables (innermost last) and its functions."""

    parsed: ParsedTemplate
    functions: Functions
    out: list[str]
    variables: list[tuple[str, Any]]
    depth: int = 0

    def nodes(self, nodes: tuple[Node, ...], dot: Any) -> None:
        mark = len(self.variables)
        for node in nodes:
            self._node(node, dot)
        del self.variables[mark:]

    def _node(self, node: Node, dot: Any) -> None:
        if isinstance(node, TemplateText):
            self.out.append(node.text)
        elif isinstance(node, Pipeline):
            value = self.pipeline(node, dot)
            if not node.targets:
                self.out.append(value if type(value) is str else printing.print_value(value))
        elif isinstance(node, BranchBlock):
            self._branch(node, dot)
        elif isinstance(node, LoopJump):
            raise _LoopJump(node.word)
        else:
            self._include(node, dot)

    def _include(self, node: TemplateInclude, dot: Any) -> None:
        body = self.parsed.defined.get(node.name)
        if body is None:
            raise TemplateError(f"template {node.name!r} is not defined")
        if self.depth >= _NESTING_MAX:
            raise TemplateError(f"template {node.name!r} includes itself without end")
        inner = None if node.pipeline is None else self.pipeline(node.pipeline, dot)
        run = _TemplateRun(self.parsed, self.functions, self.out, [("$", inner)], self.depth + 1)
        run.nodes(body, inner)

    def _branch(self, node: BranchBlock, dot: Any) -> None:
        mark = len(self.variables)
        if node.word == "range":
            self._range(node, dot)
        else:
            value = self.pipeline(node.pipeline, dot)
            if is_true(value):
                self.nodes(node.body, value if node.word == "with" else dot)
            else:
                self.nodes(node.otherwise, dot)
        del self.variables[mark:]

    def _range(self, node: BranchBlock, dot: Any) -> None:
        entries = list(_entries(self._value(node.pipeline, dot)))
        mark = len(self.variables)
        for key, value in entries:
            self._bind(node.pipeline, key, value)
            try:
                self.nodes(node.body, value)
            except _LoopJump as jumped:
                if jumped.word == "break":
                    break
            finally:
                del self.variables[mark:]
        if not entries:
            self.nodes(node.otherwise, dot)

    def _bind(self, pipeline: Pipeline, key: Any, value: Any) -> None:
        if not pipeline.targets:
            return
        values = (value,) if len(pipeline.targets) == 1 else (key, value)
        for name, part in zip(pipeline.targets, values, strict=True):
            self._assign(name, part, declares=pipeline.declares)

    def _assign(self, name: str, value: Any, *, declares: bool) -> None:
        if declares:
            self.variables.append((name, value))
            return
        for at in range(len(self.variables) - 1, -1, -1):
            if self.variables[at][0] == name:
                self.variables[at] = (name, value)
                return
        raise TemplateError(f"variable {name} is not declared")

    def pipeline(self, pipeline: Pipeline, dot: Any) -> Any:
        value = self._value(pipeline, dot)
        for name in pipeline.targets:
            self._assign(name, value, declares=pipeline.declares)
        return value

    def _value(self, pipeline: Pipeline, dot: Any) -> Any:
        """What a pipeline comes to, without the variables that it sets."""
        commands = pipeline.commands
        value = self._operand(commands[0], dot)
        if len(commands) == 1:
            return value
        for command in commands[1:]:
            if not isinstance(command, TemplateCall):
                raise TemplateError("only a function can stand behind |")
            value = self._call(command, dot, (value,))
        return value

    def _operand(self, operand: Operand, dot: Any) -> Any:
        if isinstance(operand, TemplateVariable):
            return self._variable(operand.name)
        if isinstance(operand, TemplateLiteral):
            return operand.value
        if isinstance(operand, FieldPath):
            base = dot if operand.base is None else self._operand(operand.base, dot)
            return _descend(base, operand.fields)
        if isinstance(operand, Pipeline):
            return self.pipeline(operand, dot)
        return self._call(operand, dot, ())

    def _variable(self, name: str) -> Any:
        for known, value in reversed(self.variables):
            if known == name:
                return value
        raise TemplateError(f"variable {name} is not declared")

    def _call(self, call: TemplateCall, dot: Any, piped: tuple[Any, ...]) -> Any:
        if call.name in _LAZY:
            return self._lazy(call, dot, piped)
        function = _OWN.get(call.name) or self.functions.get(call.name)
        if function is None:
            raise TemplateError(f"function {call.name!r} is not known")
        arguments = [self._operand(argument, dot) for argument in call.arguments]
        try:
            return function(*arguments, *piped)
        except (TypeError, ValueError, ArithmeticError, AttributeError) as fault:
            raise TemplateError(f"{call.name}: {fault}") from fault

    def _lazy(self, call: TemplateCall, dot: Any, piped: tuple[Any, ...]) -> Any:
        value: Any = None
        for argument in call.arguments:
            value = self._operand(argument, dot)
            if is_true(value) == (call.name == "or"):
                return value
        return piped[0] if piped else value


def _descend(value: Any, fields: tuple[str, ...]) -> Any:
    for name in fields:
        if value is None:
            return None
        if not isinstance(value, dict):
            raise TemplateError(f"{printing.print_value(value)} has no field {name!r}")
        value = value.get(name)
    return value


def _entries(value: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, dict):
        yield from sorted(value.items())
    elif isinstance(value, list):
        yield from enumerate(value)
    elif isinstance(value, int) and not isinstance(value, bool):
        yield from enumerate(range(value))
    elif value is not None:
        raise TemplateError(f"range: {printing.print_value(value)} cannot be walked over")


@functools.cache
def parse_cached(source: str) -> ParsedTemplate:
    """Parse a template, once for each text; stages are few and stay for the life of the process."""
    return parse_template(source)


def render_template(source: str, data: Any, functions: Functions) -> str:
    """The text that ``source`` makes of ``data``.

    Raises:
        TemplateError: source or data do not fit; the sentence names the place.
    """
    run = _TemplateRun(parsed := parse_cached(source), functions, [], [("$", data)])
    run.nodes(parsed.body, data)
    return "".join(run.out)
