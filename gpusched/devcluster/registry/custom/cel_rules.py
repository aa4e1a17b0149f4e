"""CEL rules of custom kinds: compiled once with the CRD, run on every write.

A rule that cannot be compiled refuses its CRD, as on a real server: unknown names and fields
count, and operators on types that they do not take.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import msgspec

from gpusched.base.classes import define, frozen
from gpusched.base.errors import GpuschedError
from gpusched.cel.checker import declared_type
from gpusched.cel.compilation import FAULTS, compile_expression, error_message
from gpusched.cel.errors import OptionalValue
from gpusched.cel.schema_nodes import Doc, Json, SchemaNode, join
from gpusched.cel.values import cel_value
from gpusched.devcluster.apimachinery.field_errors import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    invalid_unquoted,
    required,
)
from gpusched.devcluster.apimachinery.json_values import json_equal
from gpusched.devcluster.schema.schema import SCHEMA_PATH, Schema

_LITERAL = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'")
_TOKENS = re.compile(r"[A-Za-z_]\w*")


class RulesRefused(GpuschedError):
    """Rules of a CRD cannot be compiled.

    Attributes:
        errors: one field error of the CRD a rule.
    """

    def __init__(self, errors: list[FieldError]) -> None:
        super().__init__("; ".join(f"{e.field}: {e.text}" for e in errors))
        self.errors = errors


@frozen
class _Rule:
    text: str
    program: _Program
    message: str
    message_program: _Program | None
    reason: str
    field_path: str
    needs_old: bool
    optional_old: bool


@define
class _RuleNode:
    """Rules of one value and of those below it; nodes without any are left out."""

    node: SchemaNode
    rules: tuple[_Rule, ...] = ()
    props: dict[str, _RuleNode] = attrs.field(factory=dict)
    additional: _RuleNode | None = None
    items: _RuleNode | None = None


class ValidationRules:
    """All rules of one custom kind's version."""

    def __init__(self, root: _RuleNode | None) -> None:
        self._root = root

    def __bool__(self) -> bool:
        return self._root is not None

    def check(self, obj: Doc, old: Doc | None = None) -> list[FieldError]:
        """Field errors of the rules that fail, parents before children.

        Args:
            obj: the object, defaulted and free of schema errors.
            old: the stored object on updates; rules that read ``oldSelf`` run only then, and
                rules of values that did not change are not held against the writer.
        """
        if self._root is None:
            return []
        return list(_check(self._root, obj, old, path=""))


def compile_rules(schema: Schema, *, path: str = SCHEMA_PATH) -> ValidationRules:
    """Compile the rules of a structural schema.

    Raises:
        RulesRefused: a rule has a syntax error or names something that does not exist.
    """
    errors: list[FieldError] = []
    root = _compile(schema.node, path, errors=errors)
    if errors:
        raise RulesRefused(errors)
    return ValidationRules(root)


def _compile(node: SchemaNode, path: str, *, errors: list[FieldError]) -> _RuleNode | None:
    compiled = _RuleNode(node)
    compiled.rules = tuple(
        rule
        for i, raw in enumerate(node.validations)
        if (rule := _rule(raw, node, f"{path}.x-kubernetes-validations[{i}]", errors=errors))
    )
    for name in sorted(node.props):
        # Metadata comes from the shipped documents and cannot carry rules.
        if name != "metadata" and (
            below := _compile(node.props[name], f"{path}.properties[{name}]", errors=errors)
        ):
            compiled.props[name] = below
    if node.additional is not None:
        compiled.additional = _compile(
            node.additional, f"{path}.additionalProperties", errors=errors
        )
    if node.items is not None:
        compiled.items = _compile(node.items, f"{path}.items", errors=errors)
    used = compiled.rules or compiled.props or compiled.additional or compiled.items
    return compiled if used else None


def _rule(raw: Doc, node: SchemaNode, path: str, *, errors: list[FieldError]) -> _Rule | None:
    text = raw.get("rule", "")
    if not text.strip():
        errors.append(required(f"{path}.rule", "rule is not specified"))
        return None
    optional_old = bool(raw.get("optionalOldSelf"))
    program, why = _program(text, node, wanted="bool", optional_old=optional_old)
    if program is None:
        if why.startswith("must"):
            why = f"cel expression {why}"
        errors.append(invalid(f"{path}.rule", {"rule": text}, why))
        return None
    message_program = None
    if expression := raw.get("messageExpression"):
        message_program, why = _program(
            expression, node, wanted="string", optional_old=optional_old
        )
        if message_program is None:
            message = f"messageExpression {why}"
            errors.append(invalid(f"{path}.messageExpression", expression, message))
    return _Rule(
        text=text.strip(),
        program=program,
        message=raw.get("message", ""),
        message_program=message_program,
        reason=raw.get("reason") or "FieldValueInvalid",
        field_path=raw.get("fieldPath", ""),
        needs_old="oldSelf" in program.names,
        optional_old=optional_old,
    )


@frozen
class _Program:
    """A compiled expression, and the variables it reads."""

    run: Callable[[dict[str, Any]], Any]
    names: frozenset[str]


def _program(
    text: str, node: SchemaNode, *, wanted: str, optional_old: bool
) -> tuple[_Program | None, str]:
    """The compiled expression, or None and why not."""
    kind = declared_type(node)
    variables = {"self": kind, "oldSelf": "dyn" if optional_old else kind}
    run, result, why = compile_expression(text, variables)
    if run is None:
        return None, why
    if result not in (wanted, "dyn"):
        return None, f"must evaluate to a {wanted}"
    return _Program(run, frozenset(_TOKENS.findall(_LITERAL.sub("''", text)))), ""


def _check(rules: _RuleNode, value: Json, old: Json, *, path: str) -> Iterator[FieldError]:
    if value is None:
        return
    yield from _own(rules, value, old, path=path)
    if isinstance(value, dict):
        for key, inner in value.items():
            below = rules.props.get(key)
            place = join(path, key)
            if below is None and key not in rules.node.props:
                below, place = rules.additional, f"{path}[{key}]"
            if below is not None:
                before = old.get(key) if isinstance(old, dict) else None
                yield from _check(below, inner, before, path=place)
    elif isinstance(value, list) and rules.items is not None:
        find = _correlated(rules.node, old)
        for i, element in enumerate(value):
            yield from _check(rules.items, element, find(element), path=f"{path}[{i}]")


def _own(rules: _RuleNode, value: Json, old: Json, *, path: str) -> Iterator[FieldError]:
    """Run the rules that stand at this very value."""
    if not rules.rules:
        return
    unchanged = old is not None and json_equal(value, old)
    try:
        names = _activation(rules, value, old, root=not path)
    except FAULTS as fault:
        # A value that has its schema's form and still no meaning, such as the 30th of February.
        yield invalid_unquoted(path or "<nil>", error_message(fault))
        return
    for rule in rules.rules:
        first_write = rule.needs_old and old is None and not rule.optional_old
        if first_write or (unchanged and not rule.needs_old):
            continue
        error = _run(rule, names, value=value, path=path)
        if error is not None:
            yield error


def _activation(rules: _RuleNode, value: Json, old: Json, *, root: bool) -> dict[str, Any]:
    names = {"self": cel_value(value, rules.node, root=root)}
    if any(r.needs_old for r in rules.rules) and old is not None:
        names["oldSelf"] = cel_value(old, rules.node, root=root)
    return names


def _correlated(node: SchemaNode, old: Json) -> Callable[[Json], Json]:
    """Finder of an element's former self: only keyed lists have one."""
    before: dict[bytes, Json] = {}
    keys = node.map_keys if node.is_keyed_list else ()

    def key(element: Doc) -> bytes:
        return msgspec.json.encode([element.get(k) for k in keys])

    if keys and isinstance(old, list):
        before = {key(e): e for e in old}
    return lambda element: before.get(key(element)) if before else None


def _variables(names: dict[str, Any], *, optional_old: bool) -> dict[str, Any]:
    if not optional_old:
        return names
    old = names.get("oldSelf")
    return {**names, "oldSelf": OptionalValue(old, present=old is not None)}


def _run(rule: _Rule, names: dict[str, Any], *, value: Json, path: str) -> FieldError | None:
    try:
        context = _variables(names, optional_old=rule.optional_old)
        passed = rule.program.run(context)
    except FAULTS as fault:
        message, why = rule.message.strip() or rule.text, error_message(fault)
        if why == "no such overload":
            message = (
                f"'{why}': call arguments did not match a supported operator, function or macro "
                f"signature for rule: {message}"
            )
        else:
            message = f"{why} evaluating rule: {message}"
        return invalid_unquoted(path or "<nil>", message)
    if passed is True:
        return None
    field = f"{path}{rule.field_path}" if path else rule.field_path.removeprefix(".")
    return _rule_error(rule, field or "<nil>", _message(rule, context), value=value)


def _message(rule: _Rule, context: Any) -> str:
    if rule.message_program is not None:
        try:
            message = rule.message_program.run(context)
        except FAULTS:
            message = None
        # An expression that fails or gives no sentence leaves the fixed message, by contract.
        if isinstance(message, str) and message.strip() and "\n" not in message:
            return message.strip()
    return rule.message.strip() or f"failed rule: {rule.text}"


def _rule_error(rule: _Rule, field: str, message: str, *, value: Json) -> FieldError:
    match rule.reason:
        case "FieldValueForbidden":
            return forbidden(field, message)
        case "FieldValueRequired":
            return required(field, message)
        case "FieldValueDuplicate":
            return duplicate(field, value)
    return invalid_unquoted(field, message)
