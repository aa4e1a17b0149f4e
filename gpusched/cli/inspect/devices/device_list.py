"""``gpusched get devices``: pools of devices, one line each, with what is free and which gangs hold the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from gpusched.api.devices.dynamic.claims import DeviceClaimSpec, DeviceRequest
from gpusched.cli.command import clean_cell
from gpusched.cli.inspect.devices.device_reader import DeviceObjects
from gpusched.cli.inspect.devices.device_usage import DevicesInUse
from gpusched.devices.inventory import NodeDevices, PoolId
from gpusched.devices.requests import ReadyClaim, ReadyRequest
from gpusched.devices.shortage.causes import DeviceState, describe_request

_ANY: Final = ReadyRequest(DeviceRequest(name="any", device_class=""), "any", "any", (), ())
"""A request that every device matches."""
_CLAIM: Final = ReadyClaim("any", DeviceClaimSpec(), ((_ANY,),))
_HOLDERS_SHOWN: Final = 3
_COLUMNS: Final = ("NODE", "DRIVER", "POOL", "DEVICES", "FREE", "HELD", "PARTLY", "TAINTED")


def list_pools(objects: DeviceObjects) -> list[dict[str, Any]]:
    """One entry for each pool of each node, and for each pool that several nodes reach.

    Args:
        objects: devices of the cluster.
    """
    world = DevicesInUse(objects)
    found: dict[PoolId, dict[str, Any]] = {}
    for node in world.nodes:
        for part in node.pools:
            known = found.get(part.pool.id)
            if known is not None:
                known["nodes"].append(node.node)
                continue
            alone = NodeDevices(node.node, (part,))
            told = describe_request(
                world.inventory, world.usage, [(alone, True)], _CLAIM, _ANY, holders=world.holders
            )
            states = told.states
            found[part.pool.id] = {
                "driver": part.pool.id.driver,
                "pool": part.pool.id.pool,
                "nodes": [node.node],
                "devices": told.matching,
                "free": told.free,
                "held": states.get(DeviceState.HELD, 0),
                "partlyHeld": states.get(DeviceState.COUNTERS, 0)
                + states.get(DeviceState.CAPACITY, 0),
                "tainted": states.get(DeviceState.TAINTED, 0),
                "holders": [
                    {"name": name, "devices": count}
                    for name, count in sorted(
                        {**dict(told.counter_holders), **dict(told.capacity_holders), **dict(told.holders)}.items(),
                        key=lambda each: (-each[1], each[0]),
                    )
                ],
                "fault": part.pool.fault
                or ("" if part.pool.complete else "not all of its slices are there"),
            }  # fmt: skip
    return sorted(found.values(), key=lambda each: (each["nodes"][0], each["driver"], each["pool"]))


def pool_rows(pools: Sequence[dict[str, Any]], *, wide: bool) -> list[tuple[str, ...]]:
    """A header and a line for each pool; holders with ``wide`` alone."""
    rows = [(*_COLUMNS, *(("HOLDERS",) if wide else ()))]
    rows += [
        (
            each["nodes"][0] if len(each["nodes"]) == 1 else f"{len(each['nodes'])} nodes",
            each["driver"],
            each["pool"] + (f" ({each['fault']})" if each["fault"] else ""),
            *(str(each[key]) for key in ("devices", "free", "held", "partlyHeld", "tainted")),
            *((_holders_text(each["holders"]),) if wide else ()),
        )
        for each in pools
    ]
    return [tuple(map(clean_cell, row)) for row in rows]


def _holders_text(holders: Sequence[dict[str, Any]]) -> str:
    names = [f"{each['name']} {each['devices']}" for each in holders[:_HOLDERS_SHOWN]]
    more = len(holders) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")
