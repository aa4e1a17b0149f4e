"""Nodes: from the wire to the entity."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Final

import msgspec

from gpusched.limits import SLOTS_PER_NODE_MAX
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
from gpusched.objects.meta import parse_time
from gpusched.objects.node import Node
from gpusched.objects.selector import Taint

_HARD_EFFECTS: Final = frozenset({"NoSchedule", "NoExecute"})
_SOFT_EFFECT: Final = "PreferNoSchedule"
_LAYOUT: Final = msgspec.json.Decoder(list[list[int]])


def node_of(parsed: wire.Node) -> Node:
    """A parsed node as an entity.

    Raises:
        Disbelief: it cannot be believed.
    """
    metadata, spec, status = parsed.metadata, parsed.spec, parsed.status
    check_identity(metadata, namespaced=False)
    notes = metadata.annotations
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
        layout=parse_layout((notes.gpu_layout if notes else None) or ""),
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


def parse_layout(text: str) -> tuple[tuple[int, ...], ...]:
    """The annotation ``gpusched.io/gpu-layout``: slot numbers by island.

    A layout only says which slots are close; one that cannot be believed says nothing, and the
    node works on without, so the answer is then empty.
    """
    if not text or len(text) > SLOTS_PER_NODE_MAX * 8:
        return ()
    try:
        islands = _LAYOUT.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return ()
    numbers = [number for island in islands for number in island]
    if len(set(numbers)) != len(numbers) or not all(islands):
        return ()
    if any(not 0 <= number < SLOTS_PER_NODE_MAX for number in numbers):
        return ()
    return tuple(tuple(island) for island in islands)


NODES: Final = KindCodec("Node", wire_type=wire.Node, entity=node_of)
