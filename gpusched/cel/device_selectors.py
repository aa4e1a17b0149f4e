"""Selectors of devices: CEL over the one variable ``device``, with the meaning that Kubernetes gives it.

Domains that a device does not have are empty maps; a name that it does not have ends the evaluation
in an error. Source of the limits: k8s.io/dynamic-resource-allocation, ``cel``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

import attrs

from gpusched.base.classes import frozen
from gpusched.base.errors import GpuschedError
from gpusched.cel.compilation import FAULTS, compile_expression, error_message
from gpusched.cel.errors import CelError
from gpusched.cel.evaluation import ADDED_FUNCTIONS, METER, CostExceededError, CostMeter
from gpusched.cel.libraries.extensions import semver_value
from gpusched.cel.libraries.functions import quantity_of_billionths
from gpusched.cel.signatures import Type
from gpusched.cel.syntax import (
    CallNode,
    CelSyntaxError,
    Expr,
    IndexNode,
    ListNode,
    LiteralNode,
    MapNode,
    NameNode,
    SelectNode,
    parse_expression,
)
from gpusched.cel.values import KEYWORDS, DefaultMap

SELECTOR_BYTES_MAX: Final = 10 * 1024
"""Length of an expression that the API takes."""
COST_MAX: Final = 1_000_000
"""Units that one evaluation may cost."""
COSTLY_UNITS: Final = 20_000
"""Units beyond which an evaluation is a costly one; usual selectors cost less than ten."""
COSTLY_MAX: Final = 10
"""Costly evaluations of one selector, one for each device that differs in what it reads. One that
costs as much as it may is done in a tenth of a second or more: a thousand devices would take minutes."""
_ATTRIBUTES: Final[Type] = ("map", "string", ("map", "string", "dyn"))
_QUANTITY: Final[Type] = ("record", "kubernetes.Quantity", {})
_CAPACITIES: Final[Type] = ("map", "string", ("map", "string", _QUANTITY))
DEVICE_TYPE: Final[Type] = (
    "record",
    "kubernetes.DRADevice",
    {
        "driver": "string",
        "attributes": _ATTRIBUTES,
        "capacity": _CAPACITIES,
        "allowMultipleAllocations": "bool",
    },
)
"""The type of ``device``, the one variable of a selector."""
SELECTOR_FUNCTIONS: Final[dict[str, Type]] = {"includes": "bool"}
"""Functions of selectors that other expressions of Kubernetes do not have, with their results."""
_RESULTS: Final = ("bool", "dyn")
_NOT_BOOLEAN: Final = "must evaluate to bool"
_CACHED: Final = 4096


class SelectorInvalid(GpuschedError):
    """An expression that is no selector; ``str()`` says why in the words of the API server."""


class SelectorFailed(GpuschedError):
    """An expression without a value for a device; ``str()`` says why."""


@frozen(slots=True, eq=False)
class DeviceView:
    """One device as expressions see it.

    Attributes:
        variables: of an evaluation.
        fault: why no expression can be evaluated on it; empty where all can.
    """

    variables: dict[str, Any]
    fault: str = ""


def make_device_view(
    driver: str,
    attributes: Mapping[str, object],
    capacities: Mapping[str, int],
    *,
    shareable: bool,
    domains: tuple[Iterable[str], Iterable[str]] = ((), ()),
) -> DeviceView:
    """A device prepared for selectors.

    Args:
        driver: that publishes it.
        attributes: by qualified name; booleans, ints, texts, tuples of such values, and objects
            with a ``text`` for semantic versions; an empty tuple for a value of no known type.
        capacities: billionths by qualified name.
        shareable: whether several claims may hold shares of it.
        domains: of attributes and of capacities that are there, whether or not these have any of them.
    """
    found: dict[str, dict[str, Any]] = DefaultMap()
    fault = ""
    for name, value in attributes.items():
        domain, _, short = name.partition("/")
        try:
            found.setdefault(domain, {})[short] = _attribute(value)
        except CelError:
            fault = fault or _unsupported(short)
    amounts: dict[str, dict[str, Any]] = DefaultMap()
    for name, amount in capacities.items():
        domain, _, short = name.partition("/")
        amounts.setdefault(domain, {})[short] = quantity_of_billionths(amount)
    for names, of_domain in zip(domains, (found, amounts), strict=True):
        for domain in names:
            of_domain.setdefault(domain, {})
    device = {
        "driver": driver,
        "attributes": found,
        "capacity": amounts,
        "allowMultipleAllocations": shareable,
    }
    return DeviceView({"device": device, ADDED_FUNCTIONS: {"includes": _includes}}, fault)


@lru_cache(maxsize=_CACHED)
def attribute_fault(name: str, value: object) -> str:
    """Why no expression can be evaluated on a device with this attribute, empty where all can."""
    try:
        _attribute(value)
    except CelError:
        return _unsupported(name.partition("/")[2])
    return ""


def _unsupported(short_name: str) -> str:
    return f"attribute {short_name}: unsupported attribute value"


def _attribute(value: object) -> Any:
    if isinstance(value, bool | int | str):
        return value
    if isinstance(value, tuple):
        if not value:
            raise CelError("unsupported attribute value")
        return [_attribute(each) for each in value]
    return semver_value(str(getattr(value, "text", "")))


def _includes(values: Any, wanted: Any) -> bool:
    """Whether an attribute is this value, or a list with it."""
    return wanted in values if isinstance(values, list) else bool(values == wanted)


@frozen(slots=True, eq=False)
class DeviceSelector:
    """A compiled selector.

    Attributes:
        text: of the expression.
    """

    text: str
    _run: Callable[[dict[str, Any]], Any]
    _costly: list[int] = attrs.field(factory=list)
    """Units of the evaluations that cost much."""

    def matches(self, view: DeviceView) -> bool:
        """Whether the device is selected.

        Raises:
            SelectorFailed: the expression has no value for it, or costs too much.
        """
        if view.fault:
            raise SelectorFailed(view.fault)
        if len(self._costly) >= COSTLY_MAX:
            raise SelectorFailed(
                f"operation cancelled: {COSTLY_MAX} devices cost more than {COSTLY_UNITS} units each"
            )
        meter = CostMeter(COST_MAX)
        try:
            value = self._run({**view.variables, METER: meter})
        except CostExceededError as why:
            raise SelectorFailed(str(why)) from None
        except RecursionError:
            raise SelectorFailed("expression recursion limit exceeded") from None
        except FAULTS as why:
            raise SelectorFailed(error_message(why)) from None
        finally:
            if COST_MAX - meter.left > COSTLY_UNITS:
                self._costly.append(COST_MAX - meter.left)
        if not isinstance(value, bool):
            raise SelectorFailed(f"expression result of type {type(value).__name__}, not bool")
        return value


@lru_cache(maxsize=_CACHED)
def selector_complaint(text: str) -> str:
    """Why an expression cannot be compiled as a selector; empty when it can."""
    _, result, complaint = compile_expression(text, {"device": DEVICE_TYPE}, SELECTOR_FUNCTIONS)
    return complaint or ("" if result in _RESULTS else _NOT_BOOLEAN)


def compile_selector(text: str) -> DeviceSelector:
    """A selector from its text, compiled once.

    Raises:
        SelectorInvalid: it is too long, means nothing, or has no boolean result.
    """
    found = _compiled(text)
    if isinstance(found, str):
        raise SelectorInvalid(found)
    return found


@lru_cache(maxsize=_CACHED)
def _compiled(text: str) -> DeviceSelector | str:
    """A selector, or why a text is none: a text that is none is not read again each session."""
    if not text:
        return "CEL expression empty (unsupported selector type?)"
    size = len(text.encode())
    if size > SELECTOR_BYTES_MAX:
        return f"CEL compile error: expression has {size} bytes, more than {SELECTOR_BYTES_MAX}"
    run, result, complaint = compile_expression(text, {"device": DEVICE_TYPE}, SELECTOR_FUNCTIONS)
    if run is None:
        return f"CEL compile error: {complaint}"
    if result not in _RESULTS:
        return f"CEL compile error: {_NOT_BOOLEAN}"
    return DeviceSelector(text, run)


# -- what a selector reads ---------------------------------------------------------------------
@frozen(slots=True)
class SelectorReads:
    """Attributes and capacities, by qualified name, that an expression reads beside driver and shares."""

    attributes: frozenset[str]
    capacities: frozenset[str]


_MAPS: Final = ("attributes", "capacity")
_FIELDS: Final = ("driver", "allowMultipleAllocations")


@lru_cache(maxsize=_CACHED)
def selector_reads(text: str) -> SelectorReads | None:
    """What an expression reads of a device; None where its text does not tell.

    Values and errors of an evaluation depend on nothing else, but for attributes without a value.
    """
    try:
        tree = parse_expression(text)
        read: dict[str, set[str]] = {each: set() for each in _MAPS}
        told = _note_reads(tree, read)
    except (CelSyntaxError, RecursionError):
        return None
    if not told:
        return None
    return SelectorReads(frozenset(read["attributes"]), frozenset(read["capacity"]))


def _note_reads(tree: Expr, read: dict[str, set[str]]) -> bool:
    """Note the names under ``device`` that a tree reads; False where it uses the device otherwise."""
    member = _member_of_device(tree)
    if member is not None:
        which, domain, name = member
        read[which].add(f"{domain}/{name}")
        return True
    match tree:
        case NameNode():
            return tree.name != "device"
        case SelectNode():
            plain = isinstance(tree.operand, NameNode) and tree.field in _FIELDS
            return plain or _note_reads(tree.operand, read)
        case IndexNode():
            return _note_reads(tree.operand, read) and _note_reads(tree.key, read)
        case CallNode():
            below = [*tree.args, *([] if tree.target is None else [tree.target])]
            return all(_note_reads(each, read) for each in below)
        case ListNode():
            return all(_note_reads(each, read) for each in tree.items)
        case MapNode():
            return all(_note_reads(each, read) for entry in tree.entries for each in entry)
        case LiteralNode():
            return True


def _member_of_device(tree: Expr) -> tuple[str, str, str] | None:
    """Map, domain and name of ``device.attributes["domain"].name`` and of what means the same."""
    if isinstance(tree, CallNode):
        if tree.function != "@in" or tree.target is not None:
            return None
        name, domain = _text_of(tree.args[0]), _domain_of_device(tree.args[1])
    else:
        step = _step(tree)
        if step is None:
            return None
        name, domain = step[1], _domain_of_device(step[0])
    return None if name is None or domain is None else (*domain, name)


def _domain_of_device(tree: Expr) -> tuple[str, str] | None:
    """Map and domain of ``device.attributes["domain"]``."""
    step = _step(tree)
    if step is None or getattr(tree, "optional", False):
        return None
    operand, domain = step
    if (
        isinstance(operand, SelectNode)
        and not operand.optional
        and operand.field in _MAPS
        and isinstance(operand.operand, NameNode)
        and operand.operand.name == "device"
    ):
        return operand.field, domain
    return None


def _step(tree: Expr) -> tuple[Expr, str] | None:
    """What a field or an element with a known name is of, and that name."""
    if isinstance(tree, SelectNode) and tree.field not in KEYWORDS:
        return tree.operand, tree.field
    if isinstance(tree, IndexNode) and (key := _text_of(tree.key)) is not None:
        return tree.operand, key
    return None


def _text_of(tree: Expr) -> str | None:
    """A text that stands in the expression."""
    if isinstance(tree, LiteralNode) and isinstance(tree.value, str):
        return tree.value
    return None
