"""What CEL's operators and functions take and give, as far as the checker knows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

Type = Any
"""``int``, ``string`` and so on; (``list``, T), (``map``, K, V), (``object``, Node);
(``record``, name, types by field); (``optional_type``, T); ``dyn``."""

ARITHMETIC: Final[Mapping[str, Mapping[tuple[str, str], str]]] = {
    "_+_": {
        **{(t, t): t for t in ("int", "uint", "double", "string", "bytes", "duration")},
        ("timestamp", "duration"): "timestamp",
        ("duration", "timestamp"): "timestamp",
    },
    "_-_": {
        **{(t, t): t for t in ("int", "uint", "double", "duration")},
        ("timestamp", "duration"): "timestamp",
        ("timestamp", "timestamp"): "duration",
    },
    "_*_": {(t, t): t for t in ("int", "uint", "double")},
    "_/_": {(t, t): t for t in ("int", "uint", "double")},
    "_%_": {(t, t): t for t in ("int", "uint")},
}
OPTIONAL: Final = "optional_type"
OPTIONALS: Final = frozenset(
    [
        "hasValue", "value", "orValue", "or", "optional.of", "optional.none",
        "optional.ofNonZeroValue",
    ]
)  # fmt: skip
"""Functions of optionals; their types follow from what is inside."""
ORDERED: Final = frozenset({"_<_", "_<=_", "_>_", "_>=_"})
BOOLEAN: Final = frozenset(
    [
        "contains",
        "startsWith",
        "endsWith",
        "matches",
        "isSorted",
        "isQuantity",
        "isGreaterThan",
        "isLessThan",
        "isInteger",
        "hasValue",
        "isIP",
        "isCIDR",
        "isURL",
        "containsIP",
        "containsCIDR",
        "isLoopback",
        "isUnspecified",
        "isGlobalUnicast",
        "isLinkLocalUnicast",
        "isLinkLocalMulticast",
        "sets.contains",
        "sets.equivalent",
        "sets.intersects",
        "isSemver",
        "ip.isCanonical",
        "all",
        "exists",
        "exists_one",
        "existsOne",
        "has",
        "bool",
    ]
)
INTEGER: Final = frozenset(
    [
        "size",
        "int",
        "indexOf",
        "lastIndexOf",
        "getFullYear",
        "getMonth",
        "getDate",
        "getDayOfMonth",
        "getDayOfWeek",
        "getDayOfYear",
        "getHours",
        "getMinutes",
        "getSeconds",
        "getMilliseconds",
        "compareTo",
        "asInteger",
        "sign",
        "family",
        "prefixLength",
        "major",
        "minor",
        "patch",
    ]
)
TEXT: Final = frozenset(
    [
        "string",
        "charAt",
        "lowerAscii",
        "upperAscii",
        "replace",
        "join",
        "substring",
        "trim",
        "find",
        "format",
        "getScheme",
        "getHost",
        "getHostname",
        "getPort",
        "getEscapedPath",
        "base64.encode",
        "jsonpatch.escapeKey",
    ]
)
OTHERS: Final[Mapping[str, Type]] = {
    "double": "double", "uint": "uint", "bytes": "bytes", "duration": "duration",
    "timestamp": "timestamp", "split": ("list", "string"), "findAll": ("list", "string"),
    "type": "type", "asApproximateFloat": "double", "lists.range": ("list", "int"),
}  # fmt: skip
TEXT_METHODS: Final = frozenset(
    [
        "contains",
        "startsWith",
        "endsWith",
        "matches",
        "charAt",
        "lowerAscii",
        "upperAscii",
        "replace",
        "split",
        "substring",
        "trim",
        "find",
        "findAll",
    ]
)
TEXT_TESTS: Final = frozenset({"startsWith", "endsWith", "contains", "matches"})


def misuse_message(name: str, target: Type, kinds: tuple[Type, ...]) -> bool:
    """Whether a function of texts or sizes is used on something else."""
    if name == "size":
        return (target or (*kinds, "dyn")[0]) in {"int", "double", "bool", "uint"}
    if target is None:
        return False
    if name in TEXT_METHODS and target not in ("string", "dyn"):
        return True
    return name in TEXT_TESTS and kinds not in {("string",), ("dyn",)}


def result_of(name: str, target: Type) -> Type:
    """The type of what a function or method gives; ``dyn`` when it is unknown."""
    if name in {"indexOf", "lastIndexOf"} or name in INTEGER:
        return "int"
    if name in BOOLEAN:
        return "bool"
    if name in TEXT:
        return "string"
    if name == "reverse":
        return target if target is not None else "dyn"
    if name in {"sum", "min", "max"} and isinstance(target, tuple):
        return target[1]
    return OTHERS.get(name, "dyn")
