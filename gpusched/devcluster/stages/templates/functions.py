"""The functions stage templates may call: KWOK's own and the common part of sprig.

KWOK offers all of sprig; what is missing here fails a Stage when it is loaded, by name.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from typing import Any, Final, Protocol

import yaml

from gpusched.devcluster.stages.typed_objects import restore_numbers

VERSION: Final = "v0.8.0"
"""Reported by ``Version``: the release of KWOK whose behaviour is followed."""
NODE_PORT: Final = 10250


class AddressFunctions(Protocol):
    """The source of IP addresses: one a node, one a pod, remembered by name and uid."""

    def node(self, name: str) -> str:
        """The address of a node."""

    def pod(self, node: str, *, host_network: bool, uid: str, name: str, namespace: str) -> str:
        """The address of a pod, out of its node's range or the node's own."""


NODE_CONDITIONS: Final[tuple[dict[str, str], ...]] = tuple(
    {"type": kind, "status": status, "reason": reason, "message": message}
    for kind, status, reason, message in (
        ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
        (
            "MemoryPressure",
            "False",
            "KubeletHasSufficientMemory",
            "kubelet has sufficient memory available",
        ),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        (
            "PIDPressure",
            "False",
            "KubeletHasSufficientPID",
            "kubelet has sufficient PID available",
        ),
        ("NetworkUnavailable", "False", "RouteCreated", "RouteController created a route"),
    )
)


_json: Final = json.JSONEncoder(ensure_ascii=False).encode


def quote_text(value: Any) -> str:
    """A value as a JSON text in quotes, so that YAML reads it as text."""
    encoded = _json(value)
    return encoded if isinstance(value, str) else _json(encoded)


def as_yaml(value: Any, indent: int = 0) -> str:
    """A value as block YAML, every line indented by ``indent`` steps of two spaces."""
    text: str = yaml.dump(
        restore_numbers(value), Dumper=yaml.CSafeDumper, default_flow_style=False, width=2**20
    )
    text = text.removesuffix("...\n")
    pad = "\n" + "  " * indent
    return ("\n" + text).replace("\n", pad) if indent else text


def _integer(value: Any) -> int:
    if isinstance(value, str):
        return int(value, 0) if re.fullmatch(r"[-+]?(0[xXoObB]\w+|[1-9]\d*|0)", value) else 0
    return int(value or 0)


def _quotient(a: Any, b: Any) -> int:
    whole = abs(_integer(a)) // abs(_integer(b))
    return whole if (_integer(a) < 0) == (_integer(b) < 0) else -whole


def _dictionary(*pairs: Any) -> dict[str, Any]:
    values = [*pairs, ""] if len(pairs) % 2 else list(pairs)
    return {str(key): value for key, value in zip(values[::2], values[1::2], strict=True)}


def _indented(spaces: int, text: str) -> str:
    pad = " " * spaces
    return pad + text.replace("\n", "\n" + pad)


def _filled(default: Any, given: Any = None) -> Any:
    return given or default


SPRIG: Final[dict[str, Callable[..., Any]]] = {
    "add": lambda *values: sum(_integer(value) for value in values),
    "add1": lambda value: _integer(value) + 1,
    "b64dec": lambda text: base64.b64decode(text).decode(),
    "b64enc": lambda text: base64.b64encode(text.encode()).decode(),
    "coalesce": lambda *values: next((value for value in values if value), None),
    "contains": lambda part, text: part in text,
    "default": _filled,
    "dict": _dictionary,
    "div": _quotient,
    "empty": lambda value: not value,
    "get": lambda mapping, key: mapping.get(key, ""),
    "hasKey": lambda mapping, key: key in mapping,
    "hasPrefix": lambda part, text: text.startswith(part),
    "hasSuffix": lambda part, text: text.endswith(part),
    "indent": _indented,
    "int": _integer,
    "join": lambda mark, values: mark.join(str(value) for value in values or ()),
    "keys": sorted,
    "list": lambda *values: list(values),
    "lower": lambda text: text.lower(),
    "max": lambda *values: max(_integer(value) for value in values),
    "min": lambda *values: min(_integer(value) for value in values),
    "mod": lambda a, b: _integer(a) - _integer(b) * _quotient(a, b),
    "mul": lambda *values: _product(values),
    "nindent": lambda spaces, text: "\n" + _indented(spaces, text),
    "quote": lambda *values: " ".join(json.dumps(str(v)) for v in values if v is not None),
    "repeat": lambda count, text: text * _integer(count),
    "replace": lambda old, new, text: text.replace(old, new),
    "squote": lambda *values: " ".join(f"'{v}'" for v in values if v is not None),
    "sub": lambda a, b: _integer(a) - _integer(b),
    "ternary": lambda yes, no, test: yes if test else no,
    "toJson": lambda value: json.dumps(restore_numbers(value), ensure_ascii=False, sort_keys=True),
    "toString": lambda value: value if isinstance(value, str) else json.dumps(value),
    "trim": lambda text: text.strip(),
    "trimPrefix": lambda part, text: text.removeprefix(part),
    "trimSuffix": lambda part, text: text.removesuffix(part),
    "trunc": lambda size, text: text[:size] if size >= 0 else text[size:],
    "upper": lambda text: text.upper(),
}


def _product(values: tuple[Any, ...]) -> int:
    product = 1
    for value in values:
        product *= _integer(value)
    return product


_FOR_PODS: Final = frozenset(
    {"NodeIP", "PodIP", "NodeIPWith", "NodeIPsWith", "PodIPWith", "PodIPsWith"}
)
_FOR_NODES: Final = frozenset({"NodeIP", "NodeName", "NodePort"})
_FOR_ALL: Final = frozenset({"Quote", "Now", "StartTime", "YAML", "Version", "NodeConditions"})


def known_functions(kind: str) -> frozenset[str]:
    """Every function a template for objects of ``kind`` may call, the language's own apart."""
    own = {"Pod": _FOR_PODS, "Node": _FOR_NODES}.get(kind, frozenset())
    return _FOR_ALL | own | SPRIG.keys()


def functions(
    obj: dict[str, Any], *, now: str, start_time: str, addresses: AddressFunctions
) -> dict[str, Callable[..., Any]]:
    """The functions as they answer for one object.

    Args:
        obj: the Pod, Node or other object the template is rendered for.
        now: RFC 3339 time that ``Now`` prints.
        start_time: RFC 3339 time at which the cluster was started.
        addresses: source of node and pod addresses.
    """
    table: dict[str, Callable[..., Any]] = dict(SPRIG)
    table.update(
        Quote=quote_text,
        YAML=as_yaml,
        Now=lambda: now,
        StartTime=lambda: start_time,
        Version=lambda: VERSION,
        NodeConditions=lambda: list(NODE_CONDITIONS),
    )
    kind = obj.get("kind")
    if kind == "Node":
        name = obj["metadata"]["name"]
        table.update(
            NodeIP=lambda: addresses.node(name),
            NodeName=lambda: name,
            NodePort=lambda: NODE_PORT,
        )
    elif kind == "Pod":
        table.update(_pod_functions(obj, addresses))
    return table


def _pod_functions(
    pod: dict[str, Any], addresses: AddressFunctions
) -> dict[str, Callable[..., Any]]:
    metadata, spec = pod["metadata"], pod.get("spec") or {}

    def pod_ip(
        node: str, host_network: Any = False, uid: str = "", name: str = "", namespace: str = ""
    ) -> str:
        return addresses.pod(
            node, host_network=bool(host_network), uid=uid, name=name, namespace=namespace
        )

    def own_ip() -> str:
        return pod_ip(
            spec.get("nodeName", ""),
            spec.get("hostNetwork", False),
            metadata.get("uid", ""),
            metadata.get("name", ""),
            metadata.get("namespace", ""),
        )

    return {
        "NodeIP": lambda: addresses.node(spec.get("nodeName", "")),
        "NodeIPWith": addresses.node,
        "NodeIPsWith": lambda node: [addresses.node(node)],
        "PodIP": own_ip,
        "PodIPWith": pod_ip,
        "PodIPsWith": lambda *arguments: [pod_ip(*arguments)],
    }
