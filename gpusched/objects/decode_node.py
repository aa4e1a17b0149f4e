"""Nodes: from the wire to the entity."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Final

import msgspec

from gpusched.limits import LAYOUT_TEXT_MAX
from gpusched.objects import wire
from gpusched.objects.codec import KindCodec
from gpusched.objects.fields import (
    check_identity,
    labels_of,
    parse_resources,
    printable,
    uid_of,
    version_of,
)
from gpusched.objects.layout import FLAT, Layout, LayoutError, believed_islands, believed_numa
from gpusched.objects.meta import parse_time
from gpusched.objects.node import Node
from gpusched.objects.quantity import QuantityError
from gpusched.objects.resources import Resources
from gpusched.objects.selector import Taint
from gpusched.objects.units import DEVICE, GPU_RESOURCES

_HARD_EFFECTS: Final = frozenset({"NoSchedule", "NoExecute"})
_SOFT_EFFECT: Final = "PreferNoSchedule"


def node_of(parsed: wire.Node) -> Node:
    """A parsed node as an entity.

    Raises:
        Disbelief: it cannot be believed.
    """
    metadata, spec, status = parsed.metadata, parsed.spec, parsed.status
    check_identity(metadata, namespaced=False)
    notes = metadata.annotations
    layout, trouble = _said((notes.gpu_layout if notes else None) or "")
    return Node(
        name=sys.intern(metadata.name),
        uid=uid_of(metadata),
        resource_version=version_of(metadata),
        created=parse_time(metadata.creation_timestamp or ""),
        labels=labels_of(metadata),
        allocatable=parse_resources(status.allocatable, field="status.allocatable"),
        taints=tuple(
            Taint(each.key, each.value, each.effect)
            for each in spec.taints or ()
            if each.effect in _HARD_EFFECTS
        ),
        unschedulable=bool(spec.unschedulable),
        not_ready=_not_ready(status.conditions),
        layout=layout.islands,
        numa=layout.numa,
        layout_trouble=trouble,
        gpus_built_in=_built_in(status.capacity),
        soft_taints=tuple(
            Taint(each.key, each.value, each.effect)
            for each in spec.taints or ()
            if each.effect == _SOFT_EFFECT
        ),
    )


def _not_ready(conditions: Iterable[wire.Condition] | None) -> str:
    """Why the node takes no pods; empty when it does."""
    for each in conditions or ():
        if each.type == "Ready":
            if each.status == "True":
                return ""
            reason = f" ({printable(each.reason)})" if each.reason else ""
            return f"Ready is {printable(each.status) or 'not set'}{reason}"
    return "Ready condition is missing"


def parse_layout(text: str) -> Layout:
    """The annotation ``gpusched.io/gpu-layout``: islands, or ``{"islands": ..., "numa": ...}``.

    Raises:
        LayoutError: it cannot be believed.
    """
    if not text:
        return FLAT
    if len(text) > LAYOUT_TEXT_MAX:
        raise LayoutError(f"must not be longer than {LAYOUT_TEXT_MAX} characters")
    try:
        said = msgspec.json.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise LayoutError("must be JSON, such as [[0, 1], [2, 3]]") from None
    if not isinstance(said, dict):
        return Layout(believed_islands(said))
    if not {"islands"} <= set(said) <= {"islands", "numa"}:
        raise LayoutError("must have the key islands, and beside it numa only")
    islands = believed_islands(said["islands"])
    return Layout(islands, believed_numa(said["numa"], islands) if "numa" in said else ())


def _said(text: str) -> tuple[Layout, str]:
    """The annotation, and why it cannot be believed: the node then works on without."""
    try:
        return parse_layout(text), ""
    except LayoutError as why:
        return FLAT, str(why)


def _built_in(capacity: wire.Quantities | None) -> int:
    """GPUs of all kinds; 0 when that cannot be read, as nothing depends on it alone."""
    found = {name: text for name, text in (capacity or {}).items() if name in GPU_RESOURCES}
    try:
        return sum(amount // DEVICE for _, amount in Resources.parse(found, field="").items)
    except QuantityError:
        return 0


NODES: Final = KindCodec("Node", wire_type=wire.Node, entity=node_of)
