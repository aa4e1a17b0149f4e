"""The sections ``gpuResources``, ``gpuTypeWeights`` and ``deviceQuota``: which extended resources are GPUs,
labels that tell of them, how much GPUs of each type weigh, and what devices of claims count as.
"""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import Final, Literal

from gpusched.api.meta.gpu_resources import (
    DEFAULT_DEVICE_QUOTA,
    DEFAULT_GPU_RESOURCES,
    DeviceQuota,
    GpuResource,
    GpuResources,
)
from gpusched.api.meta.quantity import QuantityError, parse_quantity
from gpusched.api.meta.units import unit_exponent
from gpusched.config.section import ConfigSection, list_items, one_of
from gpusched.config.values import BadValueError, object_name
from gpusched.config.yaml_tree import ConfigProblems, YamlNode, describe_value, quoted

_DOMAIN: Final = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)+"
_NAME: Final = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_RESOURCE: Final = re.compile(f"(?P<domain>{_DOMAIN})/{_NAME}")
_PREFIX: Final = re.compile(f"(?P<domain>{_DOMAIN})/[A-Za-z0-9][-A-Za-z0-9_.]{{0,61}}")
_LABEL: Final = re.compile(f"({_DOMAIN}/)?{_NAME}")
_GPU_TYPE: Final = re.compile(_NAME)
_WEIGHT_MAX: Final = 1_000
_PRICE_MAX: Final = 1_000_000
_OTHER_TYPES: Final = "other"
"""What stands for types that are not named."""
_NUMBER_LENGTH_MAX: Final = 32
_DRIVER: Final = re.compile(_DOMAIN)
_KUBERNETES: Final = ("kubernetes.io", "k8s.io")
_TEXT_MAX: Final = 253 + 1 + 63


def read_gpu_resources(node: YamlNode, name: str, problems: ConfigProblems) -> GpuResources:
    """The list with every mistake noted; the first resource is the one that shares are of."""
    found: list[GpuResource] = []
    lines: dict[str, int] = {}
    for item in list_items(node, name):
        section = ConfigSection.from_node(item, f"an item of {name}", problems)
        if section is None:
            continue
        if "name" not in section.entries:
            problems.add(item.line, f"an item of {name} needs the key name")
        resource = GpuResource(
            name=section.read("name", _resource_name, default=""),
            slice_prefix=section.read("slicePrefix", _slice_prefix, default=""),
            product_labels=section.read("productLabels", _labels, default=()),
            memory_label=section.read("memoryLabel", _label, default=""),
            replicas_label=section.read("replicasLabel", _label, default=""),
            driver=section.read("driver", _driver, default=""),
        )
        section.finish()
        line = section.key_line("name")
        if resource.name in lines:
            problems.add(
                line,
                f"{name} names {quoted(resource.name)} twice: "
                f"it is already in line {lines[resource.name]}",
            )
        if resource.name:
            lines.setdefault(resource.name, line)
            found.append(resource)
    _check_prefixes(found, node, name, problems)
    if not found:
        return DEFAULT_GPU_RESOURCES
    names = {each.name for each in found}
    rows = tuple(row for row in DEFAULT_DEVICE_QUOTA if names.issuperset(row.resources))
    return GpuResources(tuple(found), device_quota=rows)


def _check_prefixes(
    found: list[GpuResource], node: YamlNode, name: str, problems: ConfigProblems
) -> None:
    """A resource is a whole GPU or a slice of one, and a slice is of one kind of GPU."""
    sliced = [each for each in found if each.slice_prefix]
    for each in sliced:
        for other in found:
            if other.name.startswith(each.slice_prefix):
                problems.add(
                    node.line,
                    f"{name}: slicePrefix {quoted(each.slice_prefix)} of {each.name} also begins "
                    f"the name of {other.name}, which is a whole GPU",
                )
            elif other is not each and other.slice_prefix.startswith(each.slice_prefix):
                problems.add(
                    node.line,
                    f"{name}: slicePrefix {quoted(each.slice_prefix)} of {each.name} also begins "
                    f"that of {other.name}",
                )


def read_type_weights(
    node: YamlNode, name: str, problems: ConfigProblems
) -> tuple[tuple[str, int], ...]:
    """Weights of GPU types in thousandths, sorted by name; every mistake is noted."""
    if not isinstance(node.value, dict):
        raise BadValueError(
            node.line, f"{name} must be weights by GPU type, not {describe_value(node)}"
        )
    found: dict[str, tuple[str, int]] = {}
    for kind, entry in node.value.items():
        if not _GPU_TYPE.fullmatch(kind):
            problems.add(entry.line, f"{name}: {quoted(kind)} is no GPU type, such as h100")
            continue
        if kind.lower() in found:
            problems.add(entry.line, f"{name} names {kind} twice")
        try:
            found[kind.lower()] = (kind, _weight(entry.node, f"{name}.{kind}"))
        except BadValueError as why:
            problems.add(why.line, why.what)
    return tuple(found[kind] for kind in sorted(found))


def read_prices(
    node: YamlNode, name: str, problems: ConfigProblems
) -> tuple[tuple[tuple[str, int], ...], int]:
    """Prices of GPU types by the hour in thousandths, sorted by name, and that of others; mistakes are noted."""
    if not isinstance(node.value, dict):
        raise BadValueError(
            node.line, f"{name} must be prices by GPU type, not {describe_value(node)}"
        )
    found: dict[str, tuple[str, int]] = {}
    for kind, entry in node.value.items():
        if not _GPU_TYPE.fullmatch(kind):
            problems.add(entry.line, f"{name}: {quoted(kind)} is no GPU type, such as h100")
            continue
        if kind.lower() in found:
            problems.add(entry.line, f"{name} names {kind} twice")
        try:
            found[kind.lower()] = (kind, _price(entry.node, f"{name}.{kind}"))
        except BadValueError as why:
            problems.add(why.line, why.what)
    _, other = found.pop(_OTHER_TYPES, ("", 1_000))
    return tuple(found[kind] for kind in sorted(found)), other


def _price(node: YamlNode, name: str) -> int:
    price = _plain_number(node)
    if not (price.is_finite() and 0 <= price <= _PRICE_MAX):
        raise BadValueError(
            node.line, f"{name} must be a number from 0 to {_PRICE_MAX}, not {describe_value(node)}"
        )
    return int(price * 1000)


def _plain_number(node: YamlNode) -> Decimal:
    """The number that a value is; one that is not finite where it is none."""
    value = node.value
    plain = isinstance(value, int | float | str) and not isinstance(value, bool)
    try:
        return Decimal(str(value)[:_NUMBER_LENGTH_MAX]) if plain else Decimal("nan")
    except InvalidOperation:
        return Decimal("nan")


def _weight(node: YamlNode, name: str) -> int:
    weight = _plain_number(node)
    if not (weight.is_finite() and 1 <= weight <= _WEIGHT_MAX):
        raise BadValueError(
            node.line,
            f"{name} must be a number from 1 to {_WEIGHT_MAX}, not {describe_value(node)}; let the "
            f"type with the least be 1",
        )
    return int(weight * 1000)


def read_device_quota(
    node: YamlNode, name: str, problems: ConfigProblems
) -> tuple[DeviceQuota, ...]:
    """Rows of amounts by class or selector, with every mistake noted; an empty list counts nothing.

    GPUs of the list in force are counted in thousandths.
    """
    if node.value == ():
        return ()
    found: list[DeviceQuota] = []
    for item in list_items(node, name):
        section = ConfigSection.from_node(item, f"an item of {name}", problems)
        if section is None:
            continue
        whose = [key for key in ("deviceClass", "selector") if key in section.entries]
        if len(whose) != 1:
            problems.add(
                item.line,
                f"an item of {name} needs one of deviceClass and selector, not "
                + ("both" if whose else "neither"),
            )
        if "amounts" not in section.entries:
            problems.add(item.line, f"an item of {name} needs the key amounts")
        fixed, capacities = section.read("amounts", _device_amounts, default=_NO_AMOUNTS)
        row = DeviceQuota(
            device_class=section.read("deviceClass", object_name, default=""),
            selector=section.read("selector", _selector, default=""),
            amounts=fixed,
            capacities=capacities,
            by_part=section.read("count", _device_part, default="part") == "part",
        )
        section.finish()
        if any(
            (row.device_class, row.selector) == (each.device_class, each.selector) for each in found
        ):
            problems.add(item.line, f"{name} has two rows for {row.device_class or 'one selector'}")
        found.append(row)
    return tuple(found)


_Amounts = tuple[tuple[tuple[str, int], ...], tuple[tuple[str, str], ...]]
"""Base units by resource, and capacities by resource."""
_NO_AMOUNTS: Final[_Amounts] = ((), ())


def _device_amounts(node: YamlNode, name: str, problems: ConfigProblems) -> _Amounts:
    if not isinstance(node.value, dict) or not node.value:
        raise BadValueError(
            node.line, f"{name} must be amounts by resource, not {describe_value(node)}"
        )
    fixed: dict[str, int] = {}
    capacities: dict[str, str] = {}
    for resource, entry in node.value.items():
        if not _RESOURCE.fullmatch(resource) or len(resource) > _TEXT_MAX:
            problems.add(
                entry.line,
                f"{name}: {quoted(resource)} is no resource that devices count as; name an extended "
                f"one such as nvidia.com/gpu",
            )
            continue
        value = entry.node.value
        if isinstance(value, dict):
            section = ConfigSection(f"{name}.{resource}", value, problems, entry.line)
            capacity = section.read("capacity", _capacity, default="")
            section.finish()
            if "capacity" not in value:
                problems.add(entry.line, f"{name}.{resource} needs the key capacity")
            capacities[resource] = capacity
            continue
        try:
            plain = isinstance(value, int | float | str) and not isinstance(value, bool)
            fixed[resource] = parse_quantity(
                str(value) if plain else "", power=unit_exponent(resource)
            )
        except QuantityError:
            problems.add(
                entry.line,
                f"{name}.{resource} must be 0 or more, such as 1, 0.5 or 80Gi, or "
                f"{{capacity: NAME}}, not {describe_value(entry.node)}",
            )
    return tuple(sorted(fixed.items())), tuple(sorted(capacities.items()))


def _capacity(node: YamlNode, name: str, _: ConfigProblems) -> str:
    if (
        isinstance(node.value, str)
        and len(node.value) <= _TEXT_MAX
        and _LABEL.fullmatch(node.value)
    ):
        return node.value
    raise BadValueError(
        node.line,
        f"{name} must be the name of a capacity of devices such as memory, "
        f"not {describe_value(node)}",
    )


def _selector(node: YamlNode, name: str, _: ConfigProblems) -> str:
    if not isinstance(node.value, str) or not node.value:
        raise BadValueError(
            node.line, f"{name} must be a CEL expression over device, not {describe_value(node)}"
        )
    # Few configurations name devices, and every command reads one.
    from gpusched.cel.device_selectors import SelectorInvalid, compile_selector  # noqa: PLC0415

    try:
        compile_selector(node.value)
    except SelectorInvalid as why:
        raise BadValueError(
            node.line, f"{name} must be a CEL expression over device: {why}"
        ) from None
    return node.value


def _device_part(node: YamlNode, name: str, _: ConfigProblems) -> Literal["part", "whole"]:
    return one_of(node, name, ("part", "whole"))


def _resource_name(node: YamlNode, name: str, _: ConfigProblems) -> str:
    return _matched(node, _RESOURCE, f"{name} must be an extended resource such as nvidia.com/gpu")


def _slice_prefix(node: YamlNode, name: str, _: ConfigProblems) -> str:
    expected = f"{name} must begin names of resources, such as nvidia.com/mig-"
    return _matched(node, _PREFIX, expected)


def _matched(node: YamlNode, grammar: re.Pattern[str], expected: str) -> str:
    text = node.value
    match = grammar.fullmatch(text) if isinstance(text, str) and len(text) <= _TEXT_MAX else None
    if match is None:
        raise BadValueError(node.line, f"{expected}, not {describe_value(node)}")
    domain = match["domain"]
    if domain in _KUBERNETES or domain.endswith(tuple(f".{each}" for each in _KUBERNETES)):
        raise BadValueError(
            node.line, f"{expected}, not {describe_value(node)}: {domain} is of Kubernetes itself"
        )
    return str(text)


def _labels(node: YamlNode, name: str, problems: ConfigProblems) -> tuple[str, ...]:
    return tuple(_label(each, f"an item of {name}", problems) for each in list_items(node, name))


def _label(node: YamlNode, name: str, _: ConfigProblems) -> str:
    if (
        isinstance(node.value, str)
        and len(node.value) <= _TEXT_MAX
        and _LABEL.fullmatch(node.value)
    ):
        return node.value
    raise BadValueError(
        node.line,
        f"{name} must be the key of a label such as nvidia.com/gpu.product, "
        f"not {describe_value(node)}",
    )


def _driver(node: YamlNode, name: str, _: ConfigProblems) -> str:
    if isinstance(node.value, str) and len(node.value) <= 253 and _DRIVER.fullmatch(node.value):
        return node.value
    raise BadValueError(
        node.line,
        f"{name} must be a driver of dynamic resource allocation such as gpu.nvidia.com, "
        f"not {describe_value(node)}",
    )
