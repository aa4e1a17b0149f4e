"""Nodes: from the wire to the entity."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from gpusched.api.affinity.selector import Taint
from gpusched.api.devices.gpu_layout import (
    FLAT,
    GpuLayout,
    GpuLayoutError,
    parse_islands,
    parse_numa_slots,
)
from gpusched.api.meta import wire
from gpusched.api.meta.codec import KindCodec
from gpusched.api.meta.fields import (
    check_identity,
    parse_resources,
    printable_text,
    read_labels,
    read_resource_version,
    read_uid,
)
from gpusched.api.meta.gpu_resources import gpu_resources
from gpusched.api.meta.identity import parse_time
from gpusched.api.meta.quantity import QuantityError
from gpusched.api.meta.resources import Resources
from gpusched.api.meta.units import DEVICE
from gpusched.api.node import wire as node_wire
from gpusched.api.node.node import Node
from gpusched.base.limits import LAYOUT_TEXT_MAX
from gpusched.base.shared_texts import shared_text

_HARD_EFFECTS: Final = frozenset({"NoSchedule", "NoExecute"})
_SOFT_EFFECT: Final = "PreferNoSchedule"


def decode_node(parsed: node_wire.WireNode) -> Node:
    """A parsed node as an entity.

    Raises:
        InvalidObject: a field of it is missing, malformed or out of bounds.
    """
    metadata, spec, status = parsed.metadata, parsed.spec, parsed.status
    check_identity(metadata, namespaced=False)
    notes = metadata.annotations
    layout, trouble = _annotated_layout((notes.gpu_layout if notes else None) or "")
    return Node(
        name=shared_text(metadata.name),
        uid=read_uid(metadata),
        resource_version=read_resource_version(metadata),
        created=parse_time(metadata.creation_timestamp or ""),
        labels=read_labels(metadata),
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
        layout_error=trouble,
        gpus_installed=_gpus_built_in(status.capacity),
        soft_taints=tuple(
            Taint(each.key, each.value, each.effect)
            for each in spec.taints or ()
            if each.effect == _SOFT_EFFECT
        ),
    )


def _not_ready(conditions: Iterable[wire.WireCondition] | None) -> str:
    """Why the node takes no pods; empty when it does."""
    for each in conditions or ():
        if each.type == "Ready":
            if each.status == "True":
                return ""
            reason = f" ({printable_text(each.reason)})" if each.reason else ""
            return f"Ready is {printable_text(each.status) or 'not set'}{reason}"
    return "Ready condition is missing"


def parse_layout(text: str) -> GpuLayout:
    """The annotation ``gpusched.io/gpu-layout``: islands, or ``{"islands": ..., "numa": ...}``.

    Raises:
        LayoutError: it cannot be believed.
    """
    if not text:
        return FLAT
    if len(text) > LAYOUT_TEXT_MAX:
        raise GpuLayoutError(f"must not be longer than {LAYOUT_TEXT_MAX} characters")
    try:
        said = msgspec.json.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise GpuLayoutError("must be JSON, such as [[0, 1], [2, 3]]") from None
    if not isinstance(said, dict):
        return GpuLayout(parse_islands(said))
    if not {"islands"} <= set(said) <= {"islands", "numa"}:
        raise GpuLayoutError("must have the key islands, and beside it numa only")
    islands = parse_islands(said["islands"])
    return GpuLayout(islands, parse_numa_slots(said["numa"], islands) if "numa" in said else ())


def _annotated_layout(text: str) -> tuple[GpuLayout, str]:
    """The annotation, and why it cannot be believed: the node then works on without."""
    try:
        return parse_layout(text), ""
    except GpuLayoutError as why:
        return FLAT, str(why)


def _gpus_built_in(capacity: wire.Quantities | None) -> int:
    """GPUs of all kinds; 0 when that cannot be read, as nothing depends on it alone."""
    whole = gpu_resources().whole
    found = {name: text for name, text in (capacity or {}).items() if name in whole}
    try:
        return sum(amount // DEVICE for _, amount in Resources.parse(found, field="").items)
    except QuantityError:
        return 0


NODES: Final = KindCodec("Node", wire_type=node_wire.WireNode, entity=decode_node)
