"""``gpusched explain node NAME``: what a node has, what of it is free, who holds each GPU, and what keeps pods away."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from gpusched.api.devices.slots import format_slots, slot_mask
from gpusched.cli.command import table
from gpusched.cli.inspect.cluster_reader import items_at, value_at
from gpusched.cli.inspect.explaining.explanation import printable_line
from gpusched.cli.inspect.listing.view_table import job_rows
from gpusched.view.model import GangView, NodeView

_OTHERS: Final = "pods that gpusched did not place"
_HIDDEN: Final = "a gang of another namespace"


def describe_node(
    name: str, nodes: Sequence[NodeView], gangs: Sequence[GangView], item: dict[str, Any] | None
) -> dict[str, Any] | None:
    """The story of a node as JSON; None where there is none of the name.

    Args:
        name: of the node.
        nodes: all of them.
        gangs: that the user may see.
        item: the object, whose taints are told; None where it may not be read.
    """
    node = next((each for each in nodes if each.metadata.name == name), None)
    if node is None:
        return None
    here = [gang for gang in gangs if name in gang.nodes]
    taints = [
        "".join(
            (
                printable_line(each.get("key")),
                f"={printable_line(each['value'])}" if each.get("value") else "",
                f":{printable_line(each.get('effect'))}",
            )
        )
        for each in items_at(item, "spec", "taints")
    ]
    return {
        "kind": "Node",
        **msgspec.to_builtins(node),
        "taints": taints,
        "cordoned": bool(value_at(item, "spec", "unschedulable")),
        "gangViews": [msgspec.to_builtins(gang) for gang in here],
    }


def render_node(story: dict[str, Any], now: float) -> str:
    """The story as text, for a person.

    Args:
        story: as ``describe_node`` tells it.
        now: seconds since the epoch.
    """
    kind = f" of type {printable_line(story['gpuType'])}" if story["gpuType"] else ""
    free = f": {story['freeSlots']}" if story["freeSlots"] else ""
    facts = [
        ("gpus", f"{story['gpus']}{kind}, {story['freeGpus']} free{free}"),
        ("free", f"cpu {story['free']['cpu']}, memory {story['free']['memory']}"),
    ]
    domains = [f"{each['level']} {each['name']}" for each in story["domains"]]
    if domains:
        facts.append(("in", printable_line(", ".join(domains))))
    facts.append(("pods", str(story["pods"])))
    facts += [("taint", taint) for taint in story["taints"]]
    lines = [f"Node {printable_line(story['metadata']['name'])}: {printable_line(story['state'])}"]
    lines.append(table(facts, indent="  "))
    held = _held_slots(story["slots"])
    if held:
        lines += ["", table([("GPUS", "ISLAND", "FREE", "HELD BY"), *held])]
    views = [msgspec.convert(each, GangView) for each in story["gangViews"]]
    if views:
        lines += ["", table(job_rows(views, now, start=False, wide=False, everywhere=True))]
    return "\n".join(lines)


def _held_slots(slots: Sequence[dict[str, Any]]) -> list[tuple[str, ...]]:
    """One row for all GPUs of an island that the same gangs hold."""
    rows: dict[tuple[str, str, str], list[int]] = {}
    for slot in slots:
        holders = [_holder(each) for each in slot["holders"]]
        if not holders and slot["free"] == "0":
            holders = [_OTHERS]
        row = (str(slot["island"]), slot["free"], ", ".join(holders))
        rows.setdefault(row, []).append(slot["index"])
    return [(format_slots(slot_mask(tuple(numbers))), *row) for row, numbers in rows.items()]


def _holder(holder: dict[str, Any]) -> str:
    if holder["hidden"]:
        return _HIDDEN
    share = f" ({holder['share']})" if holder["share"] != "1" else ""
    return printable_line(f"{holder['namespace']}/{holder['kind']}/{holder['name']}{share}")
