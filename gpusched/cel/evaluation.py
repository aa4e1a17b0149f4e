"""Running CEL: a checked tree becomes functions of the variables.

Values are plain Python ones. Errors are ``CelError``; ``&&``, ``||`` and the quantifiers let a
decisive side win over an error of the other, as the language demands.

A ``CostMeter`` in the environment bounds what an evaluation may cost. Expressions are short and
objects bounded, so only repetition is expensive: each turn of a loop costs as many units as its
body has nodes, a function over a text or list one unit for each ten characters or elements. A real
server counts every step; the figures differ, the bound holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from gpusched.base.errors import GpuschedError
from gpusched.cel.errors import CelError, OptionalValue
from gpusched.cel.libraries.authorization import REQUESTED, AuthorizerVariable
from gpusched.cel.libraries.functions import FUNCTIONS
from gpusched.cel.libraries.patterns import compile_pattern
from gpusched.cel.standard import CONVERSIONS, OPERATORS
from gpusched.cel.syntax import (
    CallNode,
    Expr,
    IndexNode,
    ListNode,
    LiteralNode,
    MapNode,
    NameNode,
    SelectNode,
)
from gpusched.cel.values import KEYWORDS, DefaultMap

METER: Final = "\x00meter"
"""The variable under which an environment carries its meter; no expression can name it."""
ADDED_FUNCTIONS: Final = "\x00functions"
"""The variable under which an environment carries functions that only its owner knows, by name."""
_UNITS_PER_SIZE: Final = 10
_FUNCTION_UNITS: Final = {"check": 350_000}
"""Cost of an authorization check, as a real server counts it: an expression may make two."""


_GROWING: Final = (str, bytes, list, dict)
"""Values that may be of any size."""
_SEARCHES: Final = frozenset({"matches", "find", "findAll"})
_THOROUGH: Final = frozenset({"format", "string", "indexOf", "lastIndexOf", "includes"})
"""Functions that go through all that is inside of a value."""
_COMPARISONS: Final = frozenset({"_==_", "_!=_", "@in", "_+_"})
"""Operators that go through texts, lists and maps."""


def _size_of_replaced(text: Any, old: Any, new: Any, *_count: Any) -> int:
    return text.count(old) * len(new) if all(isinstance(e, str) for e in (text, old, new)) else 0


def _size_of_joined(values: Any, separator: Any = "") -> int:
    return len(values) * len(separator) if isinstance(separator, str) else 0


def _size_of_split(text: Any, *_separator: Any) -> int:
    return _UNITS_PER_SIZE * len(text) if isinstance(text, str) else 0


_SIZES_MADE: Final[dict[str, Callable[..., int]]] = {
    "replace": _size_of_replaced,
    "join": _size_of_joined,
    "split": _size_of_split,
}
"""What functions make beyond what they are given, by their names."""


class CostExceededError(GpuschedError):
    """An expression cost more than one may; no ``||`` hides it, unlike other faults."""


class CostMeter:
    """Counts down; ``left`` is what may still be spent."""

    def __init__(self, units: int) -> None:
        self.left = units

    def spend(self, units: int) -> None:
        """Draw on the budget; raises CostExceededError when it is used up."""
        self.left -= units
        if self.left < 0:
            raise CostExceededError("operation cancelled: actual cost limit exceeded")

    def spend_on(self, function: str, values: tuple[Any, ...]) -> None:
        """Draw for a function over these values, by its name and their sizes."""
        size = sum(len(v) for v in values if isinstance(v, _GROWING))
        self.spend(_FUNCTION_UNITS.get(function, 1) + size // _UNITS_PER_SIZE)
        if function in _THOROUGH:
            for value in values:
                self.spend_on_value(value)
        made = _SIZES_MADE.get(function)
        if made is not None:
            self.spend(made(*values) // _UNITS_PER_SIZE)
        elif function in _SEARCHES and all(isinstance(each, str) for each in values[:2]):
            self.spend(compile_pattern(values[1]).units(values[0]))

    def spend_on_value(self, value: Any) -> None:
        """Draw for going through a value with all that is in it."""
        if isinstance(value, (str, bytes)):
            self.spend(len(value) // _UNITS_PER_SIZE)
        elif isinstance(value, list):
            self.spend(len(value) // _UNITS_PER_SIZE)
            for each in value:
                if isinstance(each, _GROWING):
                    self.spend(1)
                    self.spend_on_value(each)
        elif isinstance(value, dict):
            self.spend(len(value) // _UNITS_PER_SIZE)
            for each in value.values():
                if isinstance(each, _GROWING):
                    self.spend(1)
                    self.spend_on_value(each)


def count_nodes(tree: Expr) -> int:
    """Number of nodes of an expression."""
    match tree:
        case SelectNode():
            return 1 + count_nodes(tree.operand)
        case IndexNode():
            return 1 + count_nodes(tree.operand) + count_nodes(tree.key)
        case CallNode():
            below = sum(count_nodes(arg) for arg in tree.args)
            return 1 + below + (count_nodes(tree.target) if tree.target is not None else 0)
        case ListNode():
            return 1 + sum(count_nodes(item) for item in tree.items)
        case MapNode():
            return 1 + sum(count_nodes(k) + count_nodes(v) for k, v in tree.entries)
    return 1


Env = dict[str, Any]
Run = Callable[[Env], Any]

_FAULTS: Final = (
    CelError, ValueError, TypeError, KeyError, IndexError, ArithmeticError, AttributeError,
)  # fmt: skip
TYPE_NAMES: Final = frozenset(
    ["int", "uint", "double", "string", "bytes", "bool", "list", "map", "null_type", "type", "dyn"]
)
"""Names that stand for types wherever no variable has them."""


def qualified_function(tree: CallNode) -> str:
    """The function a call means: ``sets.contains`` has no receiver but a name in two parts."""
    if isinstance(tree.target, NameNode):
        name = f"{tree.target.name}.{tree.function}"
        if name in CONVERSIONS or name in FUNCTIONS:
            return name
    return tree.function


def compile_tree(tree: Expr) -> Run:
    """Turn a tree into a function of its variables."""
    match tree:
        case LiteralNode():
            value = tree.value
            return lambda _env: value
        case NameNode():
            return _name(tree.name)
        case SelectNode():
            return _select(tree)
        case IndexNode():
            return _index(tree)
        case ListNode():
            return _list(tree)
        case MapNode():
            return _map(tree)
        case CallNode():
            return _call(tree)


def _name(name: str) -> Run:
    if name in TYPE_NAMES:
        return lambda env: env.get(name, name)
    return lambda env: env[name]


def _select(tree: SelectNode) -> Run:
    operand, field, optional = compile_tree(tree.operand), tree.field, tree.optional

    def run(env: Env) -> Any:
        value = operand(env)
        if isinstance(value, OptionalValue) or optional:
            return _optional_field(value, field)
        if isinstance(value, dict) and (key := _key_of(value, field)) in value:
            return value[key]
        if isinstance(value, AuthorizerVariable) and field == REQUESTED:
            return value.requested
        raise CelError(f"no such key: {field}")

    return run


def _key_of(value: dict[Any, Any], field: str) -> str:
    """The key that a field's name stands for: a declared field named by a keyword has two names."""
    escaped = f"__{field}__"
    return escaped if field in KEYWORDS and field not in value and escaped in value else field


def _optional_field(value: Any, field: str) -> OptionalValue:
    inner = value.value if isinstance(value, OptionalValue) else value
    return _optional_member(value, _key_of(inner, field) if isinstance(inner, dict) else field)


def _optional_member(value: Any, key: Any) -> OptionalValue:
    if isinstance(value, OptionalValue):
        if not value.present:
            return value
        value = value.value
    try:
        return OptionalValue(member_value(value, key), present=True)
    except CelError:
        return OptionalValue()


def member_value(value: Any, key: Any) -> Any:
    """The element of a list or map under a key; CelError when there is none."""
    if isinstance(value, dict):
        if isinstance(key, float) and key.is_integer():
            key = int(key)
        if key in value:
            return value[key]
        if isinstance(value, DefaultMap) and isinstance(key, str):
            return {}
        raise CelError(f"no such key: {key}")
    if isinstance(value, list):
        if isinstance(key, bool) or not isinstance(key, (int, float)) or key != int(key):
            raise CelError("no such overload")
        if 0 <= key < len(value):
            return value[int(key)]
        raise CelError(f"index out of bounds: {int(key)}")
    raise CelError("no such overload")


def _index(tree: IndexNode) -> Run:
    operand, key, optional = compile_tree(tree.operand), compile_tree(tree.key), tree.optional

    def run(env: Env) -> Any:
        value = operand(env)
        if isinstance(value, OptionalValue) or optional:
            return _optional_member(value, key(env))
        return member_value(value, key(env))

    return run


def _list(tree: ListNode) -> Run:
    items, optional = [compile_tree(i) for i in tree.items], tree.optional
    if not optional:

        def make(env: Env) -> list[Any]:
            made = [run(env) for run in items]
            if METER in env:
                env[METER].spend_on_value(made)
            return made

        return make

    def run(env: Env) -> list[Any]:
        found: list[Any] = []
        for i, item in enumerate(items):
            value = item(env)
            if i not in optional:
                found.append(value)
            elif value.present:
                found.append(value.value)
        if METER in env:
            env[METER].spend_on_value(found)
        return found

    return run


def _map(tree: MapNode) -> Run:
    entries = [(compile_tree(k), compile_tree(v)) for k, v in tree.entries]
    optional = tree.optional

    def run(env: Env) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        for i, (key, value) in enumerate(entries):
            held = value(env)
            if i in optional:
                if not held.present:
                    continue
                held = held.value
            found[key(env)] = held
        if METER in env:
            env[METER].spend_on_value(found)
        return found

    return run


def _call(tree: CallNode) -> Run:
    if tree.target is not None and (macro := _MACROS.get((tree.function, len(tree.args)))):
        return macro(tree)
    if tree.function in _LAZY and tree.target is None:
        return _LAZY[tree.function](tree)
    name = qualified_function(tree)
    args = [compile_tree(a) for a in tree.args]
    if tree.target is not None and name == tree.function:
        args.insert(0, compile_tree(tree.target))
    if name in _COMPARISONS:
        return _thorough(OPERATORS[name], args)
    if name in OPERATORS:
        return _plain(OPERATORS[name], args)
    return _metered(name, args)


def _thorough(operator: Callable[..., Any], args: list[Run]) -> Run:
    """An operator that costs by all that is in the texts, lists and maps that it is given."""
    left, right = args

    def run(env: Env) -> Any:
        first, second = left(env), right(env)
        if METER in env and isinstance(second, _GROWING):
            env[METER].spend_on_value(first)
            env[METER].spend_on_value(second)
        return operator(first, second)

    return run


def _metered(name: str, args: list[Run]) -> Run:
    """A call of a function, which costs by the size of what it is given."""
    function = CONVERSIONS.get(name) or FUNCTIONS.get(name)
    if function is None:
        return _added(name, args)
    free = _plain(function, args)

    def run(env: Env) -> Any:
        if METER not in env:
            return free(env)
        values = tuple(arg(env) for arg in args)
        env[METER].spend_on(name, values)
        return function(*values)

    return run


def _added(name: str, args: list[Run]) -> Run:
    """A call of a function that comes with the environment, which may lack it."""

    def run(env: Env) -> Any:
        function = env.get(ADDED_FUNCTIONS, {}).get(name)
        if function is None:
            raise CelError(f"undeclared reference to '{name}'")
        return function(*[arg(env) for arg in args])

    return run


def _plain(function: Callable[..., Any], args: list[Run]) -> Run:
    if len(args) == 1:
        one = args[0]
        return lambda env: function(one(env))
    if len(args) == 2:
        first, second = args
        return lambda env: function(first(env), second(env))
    return lambda env: function(*[run(env) for run in args])


def _logic(tree: CallNode, *, decisive: bool) -> Run:
    left, right = compile_tree(tree.args[0]), compile_tree(tree.args[1])
    return lambda env: _decide((lambda: left(env), lambda: right(env)), decisive=decisive)


def _decide(sides: Iterable[Callable[[], Any]], *, decisive: bool) -> bool:
    """Whether a side is decisive; an error counts only when none is."""
    fault: Exception | None = None
    for side in sides:
        try:
            value = side()
        except _FAULTS as e:
            fault = fault or e
            continue
        if not isinstance(value, bool):
            fault = fault or CelError("no such overload")
        elif value == decisive:
            return value
    if fault is not None:
        raise fault
    return not decisive


def _choice(tree: CallNode) -> Run:
    condition, then, otherwise = (compile_tree(a) for a in tree.args)

    def run(env: Env) -> Any:
        chosen = condition(env)
        if not isinstance(chosen, bool):
            raise CelError("no such overload")
        return then(env) if chosen else otherwise(env)

    return run


def _compile_has(tree: CallNode) -> Run:
    [arg] = tree.args
    assert isinstance(arg, SelectNode)
    operand, field = compile_tree(arg.operand), arg.field

    def run(env: Env) -> bool:
        value = operand(env)
        if isinstance(value, OptionalValue):
            return bool(_optional_field(value, field).present)
        if not isinstance(value, dict):
            raise CelError("no such overload")
        return _key_of(value, field) in value

    return run


_LAZY: Final[dict[str, Callable[[CallNode], Run]]] = {
    "_&&_": lambda tree: _logic(tree, decisive=False),
    "_||_": lambda tree: _logic(tree, decisive=True),
    "_?_:_": _choice,
    "has": _compile_has,
}


# -- macros --------------------------------------------------------------------------------------


def _pairs(value: Any) -> Iterable[tuple[Any, Any]]:
    """Index and element of a list, key and value of a map."""
    if isinstance(value, dict):
        return list(value.items())
    if isinstance(value, list):
        return enumerate(value)
    raise CelError("no such overload")


Loop = Callable[[Env], Iterable[Env]]


def _loop(tree: CallNode, variables: int) -> Loop:
    """A function to the environments of a macro's body, one for each element."""
    assert tree.target is not None
    target = compile_tree(tree.target)
    names = [a.name for a in tree.args[:variables] if isinstance(a, NameNode)]
    turn = 1 + sum(count_nodes(body) for body in tree.args[variables:])

    def run(env: Env) -> Iterable[Env]:
        value = target(env)
        inner, meter = dict(env), env.get(METER)
        for key, element in _pairs(value):
            if meter is not None:
                meter.spend(turn)
            if len(names) == 2:
                inner[names[0]], inner[names[1]] = key, element
            else:
                inner[names[0]] = key if isinstance(value, dict) else element
            yield inner

    return run


def _quantifier(*, decisive: bool, variables: int) -> Callable[[CallNode], Run]:
    def macro(tree: CallNode) -> Run:
        loop, body = _loop(tree, variables), compile_tree(tree.args[-1])

        def run(env: Env) -> bool:
            sides = ((lambda inner=inner: body(inner)) for inner in loop(env))
            return _decide(sides, decisive=decisive)

        return run

    return macro


def _exists_one(variables: int) -> Callable[[CallNode], Run]:
    def macro(tree: CallNode) -> Run:
        loop, body = _loop(tree, variables), compile_tree(tree.args[-1])
        return lambda env: sum(body(inner) is True for inner in loop(env)) == 1

    return macro


def _mapped(variables: int, *, filtered: bool) -> Callable[[CallNode], Run]:
    def macro(tree: CallNode) -> Run:
        loop, body = _loop(tree, variables), compile_tree(tree.args[-1])
        keep = compile_tree(tree.args[-2]) if filtered else _always

        def run(env: Env) -> list[Any]:
            meter, found = env.get(METER), []
            for inner in loop(env):
                if keep(inner):
                    value = body(inner)
                    if meter is not None and isinstance(value, _GROWING):
                        meter.spend_on_value(value)
                    found.append(value)
            return found

        return run

    return macro


def _always(_env: Env) -> bool:
    return True


def _filter(tree: CallNode) -> Run:
    loop, body = _loop(tree, 1), compile_tree(tree.args[1])
    name = tree.args[0]
    assert isinstance(name, NameNode)
    return lambda env: [inner[name.name] for inner in loop(env) if body(inner)]


def _transform_map(*, filtered: bool, entry: bool) -> Callable[[CallNode], Run]:
    def macro(tree: CallNode) -> Run:
        loop, body = _loop(tree, 2), compile_tree(tree.args[-1])
        keep = compile_tree(tree.args[2]) if filtered else _always
        key = tree.args[0]
        assert isinstance(key, NameNode)

        def run(env: Env) -> dict[Any, Any]:
            made: dict[Any, Any] = {}
            for inner in loop(env):
                if not keep(inner):
                    continue
                for k, v in body(inner).items() if entry else [(inner[key.name], body(inner))]:
                    if entry and k in made:
                        raise CelError(f"insert failed: key {k} already exists")
                    made[k] = v
            return made

        return run

    return macro


def _opt_map(*, flat: bool) -> Callable[[CallNode], Run]:
    def macro(tree: CallNode) -> Run:
        assert tree.target is not None
        target, body, name = compile_tree(tree.target), compile_tree(tree.args[1]), tree.args[0]
        assert isinstance(name, NameNode)

        def run(env: Env) -> Any:
            value = target(env)
            if not value.present:
                return value
            made = body({**env, name.name: value.value})
            return made if flat else OptionalValue(made, present=True)

        return run

    return macro


def _bind(tree: CallNode) -> Run:
    name, value, body = tree.args[0], compile_tree(tree.args[1]), compile_tree(tree.args[2])
    assert isinstance(name, NameNode)
    return lambda env: body({**env, name.name: value(env)})


_MACROS: Final[dict[tuple[str, int], Callable[[CallNode], Run]]] = {
    ("all", 2): _quantifier(decisive=False, variables=1),
    ("all", 3): _quantifier(decisive=False, variables=2),
    ("exists", 2): _quantifier(decisive=True, variables=1),
    ("exists", 3): _quantifier(decisive=True, variables=2),
    ("exists_one", 2): _exists_one(1),
    ("existsOne", 2): _exists_one(1),
    ("existsOne", 3): _exists_one(2),
    ("map", 2): _mapped(1, filtered=False),
    ("map", 3): _mapped(1, filtered=True),
    ("filter", 2): _filter,
    ("transformList", 3): _mapped(2, filtered=False),
    ("transformList", 4): _mapped(2, filtered=True),
    ("transformMap", 3): _transform_map(filtered=False, entry=False),
    ("transformMap", 4): _transform_map(filtered=True, entry=False),
    ("transformMapEntry", 3): _transform_map(filtered=False, entry=True),
    ("transformMapEntry", 4): _transform_map(filtered=True, entry=True),
    ("optMap", 2): _opt_map(flat=False),
    ("optFlatMap", 2): _opt_map(flat=True),
    ("bind", 3): _bind,
}
"""By name and number of arguments; the leading ones are names of variables."""

_IN_PAIRS: Final = frozenset({"all", "exists", "existsOne"})
VARIABLES: Final = {
    (name, count): 2 if (count == 3 and name in _IN_PAIRS) or name.startswith("transform") else 1
    for name, count in _MACROS
}
"""How many of a macro's arguments name variables."""
