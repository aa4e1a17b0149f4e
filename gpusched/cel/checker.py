"""Checking CEL before it runs: names, fields and operators against the types of the schema.

Where a type is unknown it is ``dyn`` and anything goes, as in the language itself. Issues
have the messages and the positions of the API server.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gpusched.cel.errors import ExpressionIssue
from gpusched.cel.evaluation import TYPE_NAMES, VARIABLES, qualified_function
from gpusched.cel.libraries.authorization import (
    AUTHORIZER,
    METHODS,
    REQUESTED,
    RESOURCE_CHECK,
)
from gpusched.cel.libraries.functions import FUNCTIONS
from gpusched.cel.schema_nodes import SchemaNode
from gpusched.cel.signatures import (
    ARITHMETIC,
    OPTIONAL,
    OPTIONALS,
    ORDERED,
    Type,
    misuse_message,
    result_of,
)
from gpusched.cel.standard import CONVERSIONS
from gpusched.cel.syntax import (
    CONSTRUCTOR,
    CallNode,
    Expr,
    IndexNode,
    ListNode,
    LiteralNode,
    MapNode,
    NameNode,
    SelectNode,
)
from gpusched.cel.values import KEYWORDS, escape_identifier

_LITERALS: Final = {bool: "bool", int: "int", float: "double", str: "string", bytes: "bytes"}
_TIMES: Final = {
    "date-time": "timestamp", "datetime": "timestamp", "date": "timestamp", "duration": "duration",
}  # fmt: skip
_SCALARS: Final = {"string": "string", "integer": "int", "number": "double", "boolean": "bool"}
_LONG: Final = {
    "timestamp": "google.protobuf.Timestamp", "duration": "google.protobuf.Duration",
    "optional": "optional_type",
}  # fmt: skip
_NUMBERS: Final = frozenset({"int", "uint", "double"})


def declared_type(node: SchemaNode, *, depth: int = 0) -> Type:
    """The type that a schema gives a value."""
    if node.type == "array":
        return ("list", declared_type(node.items, depth=depth + 1) if node.items else "dyn")
    if node.type == "object" and node.additional is not None and not node.props:
        return ("map", "string", declared_type(node.additional, depth=depth + 1))
    if node.type == "object" and node.props:
        return ("object", node)
    if node.type == "string" and node.format in _TIMES:
        return _TIMES[node.format]
    if node.type == "string" and node.format == "byte":
        return "bytes"
    return _SCALARS.get(node.type, "dyn")


def type_text(kind: Type) -> str:
    """A type as issues spell it."""
    if isinstance(kind, tuple):
        if kind[0] == "object":
            return "object"
        if kind[0] == "record":
            return str(kind[1])
        return f"{kind[0]}({', '.join(type_text(inner) for inner in kind[1:])})"
    return str(_LONG.get(kind, kind))


def check_types(
    tree: Expr, variables: Mapping[str, Type], functions: Mapping[str, Type]
) -> tuple[Type, list[ExpressionIssue]]:
    """Return the type of an expression, and everything wrong with it in order of place.

    Args:
        tree: the expression.
        variables: their types by name.
        functions: results of functions beside those of the language and of Kubernetes.
    """
    checker = _Checker(functions)
    kind = checker.type_of(tree, dict(variables))
    return kind, sorted(checker.issues, key=lambda issue: issue.at)


class _Checker:
    def __init__(self, functions: Mapping[str, Type]) -> None:
        self.issues: list[ExpressionIssue] = []
        self._functions = functions

    def _issue(self, at: int, text: str) -> Type:
        self.issues.append(ExpressionIssue(at, text))
        return "dyn"

    def type_of(self, tree: Expr, names: dict[str, Type]) -> Type:  # noqa: PLR0911  # one a kind
        match tree:
            case LiteralNode():
                if tree.value is None:
                    return "null"
                return "uint" if tree.unsigned else _LITERALS[type(tree.value)]
            case NameNode():
                if tree.name in names:
                    return names[tree.name]
                if tree.name in TYPE_NAMES:
                    return "type"
                return self._issue(
                    tree.at, f"undeclared reference to '{tree.name}' (in container '')"
                )
            case SelectNode():
                return self._select(tree, names)
            case IndexNode():
                return self._element(tree, names)
            case ListNode():
                kinds = [self.type_of(item, names) for item in tree.items]
                alike = kinds and not tree.optional and all(k == kinds[0] for k in kinds)
                return ("list", kinds[0] if alike else "dyn")
            case MapNode():
                keys = {self.type_of(key, names) for key, _ in tree.entries}
                values = [self.type_of(value, names) for _, value in tree.entries]
                alike = values and not tree.optional and all(v == values[0] for v in values)
                return (
                    "map",
                    keys.pop() if len(keys) == 1 else "dyn",
                    values[0] if alike else "dyn",
                )
            case CallNode():
                message = tree.function.endswith(CONSTRUCTOR)
                return self._message(tree, names) if message else self._call(tree, names)

    def _select(self, tree: SelectNode, names: dict[str, Type]) -> Type:
        operand = self.type_of(tree.operand, names)
        inner, maybe = _unwrapped(operand)
        found = self._field(tree, inner)
        return _wrapped(found) if maybe or tree.optional else found

    def _field(self, tree: SelectNode, operand: Type) -> Type:
        if operand in ("dyn", "optional"):
            return "dyn"
        if operand == AUTHORIZER and tree.field == REQUESTED:
            return RESOURCE_CHECK
        if isinstance(operand, tuple) and operand[0] == "map":
            return operand[2]
        if isinstance(operand, tuple) and operand[0] == "object":
            node: SchemaNode = operand[1]
            spelled = f"__{tree.field}__" if tree.field in KEYWORDS else tree.field
            for key, child in node.props.items():
                if escape_identifier(key) in {tree.field, spelled}:
                    return declared_type(child)
            return self._issue(tree.at, f"undefined field '{tree.field}'")
        if isinstance(operand, tuple) and operand[0] == "record":
            if tree.field in operand[2]:
                return operand[2][tree.field]
            return self._issue(tree.at, f"undefined field '{tree.field}'")
        return self._issue(tree.at, f"type '{type_text(operand)}' does not support field selection")

    def _element(self, tree: IndexNode, names: dict[str, Type]) -> Type:
        operand, key = self.type_of(tree.operand, names), self.type_of(tree.key, names)
        operand, maybe = _unwrapped(operand)
        found = self._element_of(tree, operand, key)
        return _wrapped(found) if maybe or tree.optional else found

    def _element_of(self, tree: IndexNode, operand: Type, key: Type) -> Type:
        if isinstance(operand, tuple) and operand[0] == "record":
            return self._no_overload(tree.at, "_[_]", (operand, key))
        if not isinstance(operand, tuple):
            if operand in ("dyn", "optional"):
                return "dyn"
            return self._no_overload(tree.at, "_[_]", (operand, key))
        if operand[0] == "list" and key not in ("int", "dyn"):
            return self._no_overload(tree.at, "_[_]", (operand, key))
        if operand[0] == "map" and key not in (operand[1], "dyn") and operand[1] != "dyn":
            return self._no_overload(tree.at, "_[_]", (operand, key))
        return operand[1] if operand[0] == "list" else operand[-1] if operand[0] == "map" else "dyn"

    def _no_overload(
        self, at: int, name: str, kinds: tuple[Type, ...], *, method: str = ""
    ) -> Type:
        types = ", ".join(type_text(kind) for kind in kinds)
        text = f"found no matching overload for '{name}' applied to '{method}({types})'"
        return self._issue(at, text)

    def _call(self, tree: CallNode, names: dict[str, Type]) -> Type:
        macro = (tree.function, len(tree.args))
        if tree.target is not None and macro in VARIABLES:
            return self._macro(tree, names)
        if tree.function == "has" and tree.target is None:
            return self._check_has_macro(tree, names)
        target, name = None, qualified_function(tree)
        if tree.target is not None and name == tree.function:
            target = self.type_of(tree.target, names)
        kinds = tuple(self.type_of(arg, names) for arg in tree.args)
        if name.startswith(("_", "@", "!", "-")):
            return self._operator(tree, kinds)
        if name not in CONVERSIONS and name not in FUNCTIONS:
            return self._added(tree, name)
        if name in METHODS:
            return self._right(tree, target, kinds)
        if name in OPTIONALS:
            return _of_optional(name, target, kinds)
        if misuse_message(name, target, kinds):
            method = f"{type_text(target)}." if target is not None else ""
            return self._no_overload(tree.at, name, kinds, method=method)
        return result_of(name, target)

    def _added(self, tree: CallNode, name: str) -> Type:
        """A call of a function that is neither the language's nor one of Kubernetes."""
        if name in self._functions:
            return self._functions[name]
        return self._issue(tree.at, f"undeclared reference to '{name}' (in container '')")

    def _message(self, tree: CallNode, names: dict[str, Type]) -> Type:
        """A message with its fields; the environment brings its constructor and its type."""
        kind = self._functions.get(tree.function)
        if kind is None:
            return self._issue(
                tree.at,
                f"undeclared reference to '{tree.function.removesuffix(CONSTRUCTOR)}' (in container '')",
            )
        [values] = tree.args
        assert isinstance(values, MapNode)
        for i, (key, value) in enumerate(values.entries):
            assert isinstance(key, LiteralNode)
            given = self.type_of(value, names)
            given = _unwrapped(given)[0] if i in values.optional else given
            wanted = kind[2].get(key.value)
            if wanted is None:
                self._issue(key.at, f"undefined field '{key.value}'")
            elif not _alike(wanted, given):
                self._issue(
                    key.at,
                    f"expected type of field '{key.value}' is '{type_text(wanted)}' "
                    f"but provided type is '{type_text(given)}'",
                )
        return kind

    def _right(self, tree: CallNode, target: Type, kinds: tuple[Type, ...]) -> Type:
        """A step of a question about rights."""
        receivers, result, texts = METHODS[tree.function]
        known = target == "dyn" or (isinstance(target, str) and target in receivers)
        if known and len(kinds) == texts and all(kind in ("string", "dyn") for kind in kinds):
            return result
        method = f"{type_text(target)}." if target is not None else ""
        return self._no_overload(tree.at, tree.function, kinds, method=method)

    def _check_has_macro(self, tree: CallNode, names: dict[str, Type]) -> Type:
        if len(tree.args) != 1 or not isinstance(tree.args[0], SelectNode):
            return self._issue(tree.at, "invalid argument to has() macro")
        self.type_of(tree.args[0], names)
        return "bool"

    def _macro(self, tree: CallNode, names: dict[str, Type]) -> Type:
        count = VARIABLES[tree.function, len(tree.args)]
        for arg in tree.args[:count]:
            if not isinstance(arg, NameNode):
                return self._issue(arg.at, "argument must be a simple name")
        variables = [a.name for a in tree.args[:count] if isinstance(a, NameNode)]
        if tree.function == "bind":
            kinds = [self.type_of(tree.args[1], names)]
        elif tree.function in {"optMap", "optFlatMap"} and tree.target is not None:
            kinds = [_unwrapped(self.type_of(tree.target, names))[0]]
        else:
            assert tree.target is not None
            kinds = _loop_types(self.type_of(tree.target, names), count)
            if not kinds:
                why = "cannot be range of a comprehension (must be list, map, or dynamic)"
                kind = type_text(self.type_of(tree.target, names))
                return self._issue(tree.target.at, f"expression of type '{kind}' {why}")
        inner = {**names, **dict(zip(variables, kinds, strict=False))}
        start = 2 if tree.function == "bind" else count
        bodies = [self.type_of(arg, inner) for arg in tree.args[start:]]
        match tree.function:
            case "bind":
                return bodies[-1]
            case "map" | "transformList":
                return ("list", bodies[-1])
            case "filter":
                return ("list", kinds[0])
            case "optMap" | "optFlatMap":
                return _wrapped(bodies[-1])
            case "transformMap" | "transformMapEntry":
                return "dyn"
        return "bool"

    def _operator(self, tree: CallNode, kinds: tuple[Type, ...]) -> Type:  # noqa: PLR0911  # one a kind
        name = tree.function
        if name in {"_&&_", "_||_", "!_"}:
            if any(kind not in ("bool", "dyn") for kind in kinds):
                return self._no_overload(tree.at, name, kinds)
            return "bool"
        if name == "_?_:_":
            if kinds[0] not in ("bool", "dyn") or not _alike(kinds[1], kinds[2]):
                return self._no_overload(tree.at, name, kinds)
            return kinds[1] if kinds[1] == kinds[2] else "dyn"
        if name in {"_==_", "_!=_"}:
            return "bool" if _alike(*kinds) else self._no_overload(tree.at, name, kinds)
        if name == "@in":
            container = kinds[1]
            held = container[1] if isinstance(container, tuple) and len(container) > 1 else "dyn"
            fits = container == "dyn" or isinstance(container, tuple)
            if not fits or container[0] in {"object", "record"} or not _alike(kinds[0], held):
                return self._no_overload(tree.at, name, kinds)
            return "bool"
        if "dyn" in kinds:
            return "bool" if name in ORDERED else _beside_dyn(kinds)
        return self._arithmetic(tree, kinds)

    def _arithmetic(self, tree: CallNode, kinds: tuple[Type, ...]) -> Type:
        name = tree.function
        if name == "-_":
            fits = kinds[0] in ("int", "double")
            return kinds[0] if fits else self._no_overload(tree.at, name, kinds)
        left, right = kinds
        if name in ORDERED:
            simple = isinstance(left, str) and left not in {"null", "type", "optional"}
            if simple and (left == right or {left, right} <= _NUMBERS):
                return "bool"
            return self._no_overload(tree.at, name, kinds)
        if name == "_+_" and isinstance(left, tuple) and isinstance(right, tuple):
            if left[0] == right[0] == "list":
                return left if left == right else ("list", "dyn")
            return self._no_overload(tree.at, name, kinds)
        if isinstance(left, str) and isinstance(right, str):
            found = ARITHMETIC[name].get((left, right))
            if found is not None:
                return found
        return self._no_overload(tree.at, name, kinds)


_PLAIN: Final = frozenset({"int", "uint", "double", "string", "bytes"})


def _beside_dyn(kinds: tuple[Type, ...]) -> Type:
    """What arithmetic gives of which one side is untyped: the other side's type, if that tells."""
    known = [kind for kind in kinds if kind != "dyn"]
    return known[0] if known and isinstance(known[0], str) and known[0] in _PLAIN else "dyn"


def _unwrapped(kind: Type) -> tuple[Type, bool]:
    """The type inside an optional, and whether it was one."""
    if isinstance(kind, tuple) and kind[0] == OPTIONAL:
        return kind[1], True
    return ("dyn", True) if kind == "optional" else (kind, False)


def _wrapped(kind: Type) -> Type:
    return kind if _unwrapped(kind)[1] else (OPTIONAL, kind)


def _loop_types(target: Type, count: int) -> list[Type]:
    """Types of a macro's variables over a value; none when it cannot be walked."""
    if target in ("dyn", "optional"):
        return ["dyn", "dyn"][:count]
    if not isinstance(target, tuple) or target[0] in {"object", "record"}:
        return []
    if target[0] == "list":
        return [target[1]] if count == 1 else ["int", target[1]]
    return [target[1], target[2]][:count]


def _of_optional(name: str, target: Type, kinds: tuple[Type, ...]) -> Type:
    """What functions make of optionals, or give for them."""
    inner, _ = _unwrapped(target)
    match name:
        case "hasValue":
            return "bool"
        case "value":
            return inner
        case "orValue":
            return inner if kinds == (inner,) else "dyn"
        case "or":
            return _wrapped(inner if kinds and _unwrapped(kinds[0])[0] == inner else "dyn")
        case "optional.none":
            return (OPTIONAL, "dyn")
    return (OPTIONAL, kinds[0] if kinds else "dyn")


def _alike(a: Type, b: Type) -> bool:
    """Whether values of two types can be equal."""
    if "dyn" in (a, b) or a == b or "null" in (a, b):
        return True
    if isinstance(a, str) and isinstance(b, str):
        return False
    if isinstance(a, tuple) and isinstance(b, tuple):
        if "record" in (a[0], b[0]):
            return bool(a[:2] == b[:2])
        if a[0] == "object" or b[0] == "object":
            return a[0] == b[0] or "map" in (a[0], b[0])
        return a[0] == b[0] and all(_alike(x, y) for x, y in zip(a[1:], b[1:], strict=True))
    return False
