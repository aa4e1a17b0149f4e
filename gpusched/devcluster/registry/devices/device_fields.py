"""What a device may say of itself: attributes, capacities, counters, taints and conditions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any, Final

from gpusched.cel.quantities import parse_quantity
from gpusched.devcluster.apimachinery.field_errors import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
    too_long,
    too_many,
)
from gpusched.devcluster.apimachinery.metadata import (
    key_errors,
    label_value_problems,
    name_errors,
)

Obj = dict[str, Any]

EFFECTS: Final = ("NoExecute", "NoSchedule", "None")
_OPERATORS: Final = ("Equal", "Exists")
_VALUE_MAX: Final = 64
_NAME_MAX: Final = 32
_DRIVER_MAX: Final = 63
_TAINTS_MAX: Final = 16
_CONDITIONS_MAX: Final = 4
_CONSUMPTIONS_MAX: Final = 2
_COUNTERS_MAX: Final = 32
_COUNTER_SETS_MAX: Final = 8
_ATTRIBUTES_MAX: Final = 32
_OPTIONS_MAX: Final = 10
_LISTS: Final = ("bools", "ints", "strings", "versions")
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_IDENTIFIER_TEXT: Final = (
    "a valid C identifier must start with alphabetic character or '_', followed by a string of "
    "alphanumeric characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for "
    "validation is '[A-Za-z_][A-Za-z0-9_]*')"
)
_SEMVER: Final = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(-(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(\.(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*)?"
    r"(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?"
)
_NODES: Final = ("nodeName", "nodeSelector", "allNodes")
_ONE_NODE: Final = (
    "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when "
    "`perDeviceNodeSelection` is set to true in the ResourceSlice spec"
)
_NO_NODE: Final = (
    "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set "
    "to true in the ResourceSlice spec"
)


def driver_errors(driver: str, at: str) -> Iterator[FieldError]:
    """Check the name of a driver: a subdomain of at most 63 characters."""
    if not driver:
        yield required(at)
        return
    if len(driver) > _DRIVER_MAX:
        yield too_long(at, _DRIVER_MAX)
    yield from name_errors(driver, field=at)


def qualified_errors(name: str, at: str, *, full: bool = False) -> Iterator[FieldError]:
    """Check the name of an attribute or a capacity; ``full`` where it needs its domain."""
    domain, slash, short = name.partition("/")
    if "/" in short:
        yield invalid(at, name, "must not contain more than one slash")
        return
    if slash and not domain:
        yield invalid(at, "", "the domain must not be empty")
    elif slash:
        yield from driver_errors(domain, at)
    if slash and not short:
        yield invalid(at, "", "the name must not be empty")
    else:
        own = short if slash else name
        if len(own) > _NAME_MAX:
            yield too_long(at, _NAME_MAX)
        if not _IDENTIFIER.fullmatch(own):
            yield invalid(at, own, _IDENTIFIER_TEXT)
    if full and not slash:
        why = "a fully qualified name must be a domain and a name separated by a slash"
        yield invalid(at, name, why)


def device_errors(device: Obj, at: str, *, per_device: bool) -> Iterator[FieldError]:
    """Check one device of a slice.

    Args:
        device: as the slice has it.
        at: its path.
        per_device: whether each device of the slice names its own nodes.
    """
    yield from name_errors(device.get("name") or "", field=f"{at}.name", label=True)
    attributes, capacity = device.get("attributes") or {}, device.get("capacity") or {}
    total = len(attributes) + len(capacity)
    if total > _ATTRIBUTES_MAX:
        why = f"the total number of attributes and capacities must not exceed {_ATTRIBUTES_MAX}"
        yield invalid(at, total, why)
    for name, value in sorted(attributes.items()):
        yield from qualified_errors(name, f"{at}.attributes")
        yield from _attribute_errors(value, f"{at}.attributes[{name}]")
    for name, value in sorted(capacity.items()):
        yield from qualified_errors(name, f"{at}.capacity")
        if (policy := value.get("requestPolicy")) is not None:
            field = f"{at}.capacity[{name}].requestPolicy"
            if device.get("allowMultipleAllocations"):
                yield from _policy_errors(policy, value.get("value"), field)
            else:
                yield forbidden(field, "allowMultipleAllocations must be true")
    taints = device.get("taints") or ()
    if len(taints) > _TAINTS_MAX:
        yield too_many(f"{at}.taints", len(taints), _TAINTS_MAX)
    else:
        for i, taint in enumerate(taints):
            yield from taint_errors(taint, f"{at}.taints[{i}]")
    yield from _consumption_errors(device.get("consumesCounters") or (), f"{at}.consumesCounters")
    yield from _node_errors(device, at, per_device=per_device)
    yield from condition_errors(device, at)


def _attribute_errors(value: Obj, at: str) -> Iterator[FieldError]:
    for key in ("string", "version"):
        if (text := value.get(key)) is not None:
            yield from _text_errors(text, f"{at}.{key}", version=key == "version")
    for key in _LISTS:
        if (items := value.get(key)) is None:
            continue
        if not items:
            yield invalid(f"{at}.{key}", items, "must not be empty if specified")
        if key in {"strings", "versions"}:
            for i, text in enumerate(items):
                yield from _text_errors(text, f"{at}.{key}[{i}]", version=key == "versions")
    if len(value) != 1:
        yield invalid(at, value or "", "exactly one value must be specified")


def _text_errors(text: str, at: str, *, version: bool) -> Iterator[FieldError]:
    if version and not _SEMVER.fullmatch(text):
        yield invalid(at, text, "must be a string compatible with semver.org spec 2.0.0")
    if len(text.encode()) > _VALUE_MAX:
        yield too_long(at, _VALUE_MAX)


def _policy_errors(policy: Obj, capacity: Any, at: str) -> Iterator[FieldError]:
    """What requests for a share of a capacity may be, against all that there is of it."""
    values, span = policy.get("validValues") or (), policy.get("validRange")
    if values and span is not None:
        why = (
            'exactly one policy can be specified, cannot specify "validValues" and "validRange" '
            "at the same time"
        )
        yield forbidden(at, why)
    elif (values or span is not None) and policy.get("default") is None:
        key = "validValues" if values else "validRange"
        yield required(f"{at}.default", f"required when {key} is defined")
    elif values:
        yield from _values_errors(values, policy["default"], capacity, at=f"{at}.validValues")
    elif span is not None:
        yield from _range_errors(span, policy["default"], capacity, at=f"{at}.validRange")


def _amount(text: Any) -> Fraction:
    return Fraction(parse_quantity(str(text)))


def _values_errors(
    values: Sequence[Any], default: Any, capacity: Any, *, at: str
) -> Iterator[FieldError]:
    amounts = [_amount(value) for value in values]
    for i in range(1, len(amounts)):
        if amounts[i - 1] > amounts[i]:
            yield invalid(f"{at}[{i}]", values[i], "values must be sorted in ascending order")
    if len(values) > _OPTIONS_MAX:
        yield too_many(at, len(values), _OPTIONS_MAX)
        return
    for i, amount in enumerate(amounts):
        if amount > _amount(capacity):
            why = f"option is larger than capacity value: {capacity}"
            yield invalid(f"{at}[{i}]", values[i], why)
        if amount in amounts[:i]:
            yield duplicate(f"{at}[{i}]", str(values[i]))
    if _amount(default) not in amounts:
        why = "default value is not valid according to the requestPolicy"
        yield invalid(at, default, why)


def _range_errors(span: Obj, default: Any, capacity: Any, *, at: str) -> Iterator[FieldError]:
    least, most, step = span.get("min"), span.get("max"), span.get("step")
    if least is None:
        yield required(f"{at}.min", "required when validRange is defined")
        return
    if _amount(least) > _amount(capacity):
        yield invalid(f"{at}.min", least, f"min is larger than capacity value: {capacity}")
    if _amount(default) < _amount(least):
        yield invalid(f"{at}.default", default, f"default is less than min: {least}")
    if most is not None:
        if _amount(least) > _amount(most):
            yield invalid(f"{at}.max", least, f"min is larger than max: {most}")
        if _amount(most) > _amount(capacity):
            yield invalid(f"{at}.max", most, f"max is larger than capacity value: {capacity}")
        if _amount(default) > _amount(most):
            yield invalid(f"{at}.default", default, f"default is more than max: {most}")
    if step is None:
        return
    if _amount(step) <= 0:
        yield invalid(f"{at}.step", step, "must be greater than zero")
        return
    for value in (default, most):
        if value is not None and (_amount(value) - _amount(least)) % _amount(step):
            why = f"value is not a multiple of a given step ({step}) from ({least})"
            yield invalid(f"{at}.step", value, why)


def counter_set_errors(sets: Sequence[Obj], at: str) -> Iterator[FieldError]:
    """Check the counters that devices of a pool share."""
    if len(sets) > _COUNTER_SETS_MAX:
        yield too_many(at, len(sets), _COUNTER_SETS_MAX)
        return
    yield from _counted_errors(sets, at, key="name")


def _consumption_errors(consumed: Sequence[Obj], at: str) -> Iterator[FieldError]:
    if len(consumed) > _CONSUMPTIONS_MAX:
        yield too_many(at, len(consumed), _CONSUMPTIONS_MAX)
        return
    yield from _counted_errors(consumed, at, key="counterSet")


def _counted_errors(entries: Sequence[Obj], at: str, *, key: str) -> Iterator[FieldError]:
    """Check entries of counters, each of another set that ``key`` names."""
    names = [entry.get(key) or "" for entry in entries]
    for i, entry in enumerate(entries):
        if names[i]:
            yield from name_errors(names[i], field=f"{at}[{i}].{key}", label=True)
        else:
            yield required(f"{at}[{i}].{key}")
        counters = entry.get("counters") or {}
        if not counters:
            yield required(f"{at}[{i}].counters")
        elif len(counters) > _COUNTERS_MAX:
            yield too_many(f"{at}[{i}].counters", len(counters), _COUNTERS_MAX)
        else:
            for name in sorted(counters):
                yield from name_errors(name, field=f"{at}[{i}].counters", label=True)
    for i, name in enumerate(names):
        if name in names[:i]:
            yield duplicate(f"{at}[{i}]", name)


def taint_errors(taint: Obj, at: str) -> Iterator[FieldError]:
    """Check a taint of a device."""
    yield from _label_errors(taint, at, needed=True)
    effect = taint.get("effect") or ""
    if not effect:
        yield required(f"{at}.effect")
    elif effect not in EFFECTS:
        yield not_supported(f"{at}.effect", effect, EFFECTS)


def toleration_errors(toleration: Obj, at: str) -> Iterator[FieldError]:
    """Check a toleration of taints of devices."""
    operator, effect = toleration.get("operator") or "", toleration.get("effect") or ""
    exists = operator == "Exists"
    yield from _label_errors(toleration, at, needed=False, valued=not exists)
    if exists and toleration.get("value"):
        yield invalid(f"{at}.value", toleration["value"], "must be empty for operator `Exists`")
    elif not operator:
        yield required(f"{at}.operator")
    elif operator not in _OPERATORS:
        yield not_supported(f"{at}.operator", operator, _OPERATORS)
    if effect and effect not in EFFECTS:
        yield not_supported(f"{at}.effect", effect, EFFECTS)


def _label_errors(
    found: Obj, at: str, *, needed: bool, valued: bool = True
) -> Iterator[FieldError]:
    key, value = found.get("key") or "", found.get("value") or ""
    if key or needed:
        yield from key_errors(key, f"{at}.key")
    if value and valued:
        for why in label_value_problems(value):
            yield invalid(f"{at}.value", value, why)


def _node_errors(device: Obj, at: str, *, per_device: bool) -> Iterator[FieldError]:
    if not per_device:
        if any(device.get(key) is not None for key in _NODES):
            yield invalid(at, None, _NO_NODE)
        return
    if device.get("nodeName") == "":
        yield invalid(f"{at}.nodeName", "", "must not be empty")
    if device.get("allNodes") is False:
        yield invalid(f"{at}.allNodes", False, "must be either unset or set to true")
    given = [f"`{key}`" for key in _NODES if device.get(key)]
    if not given:
        yield required(at, _ONE_NODE)
    elif len(given) > 1:
        yield invalid(at, f"{{{', '.join(given)}}}", _ONE_NODE)


def condition_errors(holder: Obj, at: str) -> Iterator[FieldError]:
    """Check the conditions that a device, or an allocated one, is bound by."""
    made, failed = (
        holder.get("bindingConditions") or [],
        holder.get("bindingFailureConditions") or [],
    )
    for key, names in (("bindingConditions", made), ("bindingFailureConditions", failed)):
        if len(names) > _CONDITIONS_MAX:
            yield too_many(f"{at}.{key}", len(names), _CONDITIONS_MAX)
            continue
        for i, name in enumerate(names):
            yield from key_errors(name, f"{at}.{key}[{i}]")
        for i, name in enumerate(names):
            if name in names[:i]:
                yield duplicate(f"{at}.{key}[{i}]", name)
    for i, name in enumerate(failed):
        if name in made:
            why = "bindingFailureConditions must not overlap with bindingConditions"
            yield invalid(f"{at}.bindingFailureConditions[{i}]", name, why)
    if failed and not made:
        why = "bindingConditions are required to use bindingFailureConditions"
        yield invalid(f"{at}.bindingConditions", made, why)
    if made and not failed:
        why = "bindingFailureConditions are required to use bindingConditions"
        yield invalid(f"{at}.bindingFailureConditions", failed, why)
