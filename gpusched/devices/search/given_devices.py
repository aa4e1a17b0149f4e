"""What a search gave a claim, by places of devices, and the allocation that is written for it."""

from __future__ import annotations

from collections.abc import Sequence

from gpusched.api.affinity.selector import NodeTerm, Requirement
from gpusched.api.devices.dynamic.claims import (
    SHARE,
    AllocatedConfig,
    AllocatedDevice,
    ClaimAllocation,
)
from gpusched.base.classes import frozen
from gpusched.devices.inventory import NodeDevices, PoolDevice
from gpusched.devices.requests import ReadyRequest


@frozen(slots=True, eq=False)
class GivenDevice:
    """A device that a request was given, by its place among those of its node.

    Attributes:
        place: in ``NodeDevices.usable``.
        share: whether it is a share of the device.
        consumed: of a share, billionths by capacity.
    """

    place: int
    request: ReadyRequest
    share: bool
    consumed: tuple[tuple[str, int], ...]


def make_allocation(
    node: NodeDevices, given: Sequence[GivenDevice], configs: tuple[AllocatedConfig, ...]
) -> ClaimAllocation:
    """What is written for a claim that gets these devices of a node."""
    usable = node.usable
    devices = [usable[each.place][0] for each in given]
    return ClaimAllocation(
        devices=tuple(
            [
                AllocatedDevice(
                    request=each.request.name,
                    driver=device.id.driver,
                    pool=device.id.pool,
                    device=device.id.device,
                    admin=each.request.request.admin,
                    share=SHARE if each.share else "",
                    consumed=each.consumed,
                    tolerations=each.request.request.tolerations,
                    binding_conditions=device.device.binding_conditions,
                    failure_conditions=device.device.failure_conditions,
                )
                for each, device in zip(given, devices, strict=True)
            ]
        ),
        nodes=_node_terms(node, devices),
        configs=configs,
    )


def _node_terms(node: NodeDevices, devices: Sequence[PoolDevice]) -> tuple[NodeTerm, ...] | None:
    """Nodes from which all of the devices can be used; None for every node."""
    labels: dict[Requirement, None] = {}
    fields: dict[Requirement, None] = {}
    for each in devices:
        if each.device.binds_to_node or each.reach.node:
            return node.here
        for term in (each.reach.terms or ())[:1]:
            labels.update(dict.fromkeys(term.labels))
            fields.update(dict.fromkeys(term.fields))
    if not labels and not fields:
        return None
    return (NodeTerm(labels=tuple(labels), fields=tuple(fields)),)
