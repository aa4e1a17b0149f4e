"""The section ``gpuResources``: which extended resources are GPUs, and labels that tell of them."""

from __future__ import annotations

import re
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
