"""The sections ``gpuResources`` and ``gpuTypeWeights``: which extended resources are GPUs, labels that
tell of them, and how much GPUs of each type weigh.
"""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import Final

from gpusched.api.meta.gpu_resources import (
    DEFAULT_GPU_RESOURCES,
    GpuResource,
    GpuResources,
)
from gpusched.config.section import ConfigSection, list_items
from gpusched.config.values import BadValueError
from gpusched.config.yaml_tree import ConfigProblems, YamlNode, describe_value, quoted

_DOMAIN: Final = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)+"
_NAME: Final = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_RESOURCE: Final = re.compile(f"(?P<domain>{_DOMAIN})/{_NAME}")
_PREFIX: Final = re.compile(f"(?P<domain>{_DOMAIN})/[A-Za-z0-9][-A-Za-z0-9_.]{{0,61}}")
_LABEL: Final = re.compile(f"({_DOMAIN}/)?{_NAME}")
_GPU_TYPE: Final = re.compile(_NAME)
_WEIGHT_MAX: Final = 1_000
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
    return GpuResources(tuple(found)) if found else DEFAULT_GPU_RESOURCES


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


def _weight(node: YamlNode, name: str) -> int:
    value = node.value
    try:
        plain = isinstance(value, int | float | str) and not isinstance(value, bool)
        weight = Decimal(str(value)[:_NUMBER_LENGTH_MAX]) if plain else Decimal("nan")
    except InvalidOperation:
        weight = Decimal("nan")
    if not (weight.is_finite() and 1 <= weight <= _WEIGHT_MAX):
        raise BadValueError(
            node.line,
            f"{name} must be a number from 1 to {_WEIGHT_MAX}, not {describe_value(node)}; let the "
            f"type with the least be 1",
        )
    return int(weight * 1000)


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
