"""The GPUs of nodes of the view on the map, with its legend. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from rich.text import Text

from gpusched.cli.inspect.live.screen.gpu_map import (
    FREE,
    FREE_CELL,
    MapCell,
    MappedNode,
    draw_gpu_map,
    gang_cell,
    gang_letter,
    gang_style,
)
from gpusched.cli.inspect.live.screen.picture import (
    ClusterPicture,
    DrawnView,
    ScreenChoice,
    shown_text,
)
from gpusched.cli.inspect.live.screen.screen_table import (
    Cell,
    JoinedLines,
    ScreenColumn,
    layout_table,
)
from gpusched.cli.inspect.live.screen.summary import gpu_amount
from gpusched.view.model import GangView, NodeView, SlotView

OTHERS: Final = "#"
HIDDEN: Final = "?"
_SEVERAL_MAX: Final = 9
_GREY: Final = "#1a1b26 on #87878f"
_LEGEND_COLUMNS: Final = (
    ScreenColumn(title="", importance=9),
    ScreenColumn(title="GANG", importance=9, narrowest=16),
    ScreenColumn(title="QUEUE", importance=8, widest=24, narrowest=8),
    ScreenColumn(title="GPUS HERE", right=True, importance=9),
    ScreenColumn(title="NODES", right=True, importance=7),
    ScreenColumn(title="KIND", importance=3),
)


def draw_map(picture: ClusterPicture, choice: ScreenChoice) -> DrawnView:
    """Every node's GPUs by domain, and below them who has them."""
    if not picture.about.nodes:
        return DrawnView(lines=[Text("Nodes are not shown to this user.")], keys=[""])
    nodes = [node for node in picture.nodes if node.slots and _is_node_chosen(node, choice)]
    if not nodes:
        told = "No node with GPUs is like that." if choice.typed else "No node has GPUs."
        return DrawnView(lines=[Text(told)], keys=[""])
    drawn = draw_nodes(nodes, choice.numbers, width=choice.width)
    legend = _legend(nodes, picture.gangs, choice)
    last = [Text(), _marks(nodes)]
    rest = len(picture.nodes) - sum(1 for node in picture.nodes if node.slots)
    if rest:
        last.append(Text(f"{rest} node{'s' if rest != 1 else ''} without GPUs", "dim"))
    above = [*drawn, Text(), *legend.heads]
    keys = [*([""] * len(above)), *legend.keys, *([""] * len(last))]
    return DrawnView(lines=JoinedLines([above, legend.lines, last]), keys=keys)


def draw_nodes(nodes: Iterable[NodeView], numbers: Mapping[str, int], *, width: int) -> list[Text]:
    """The map of some nodes."""
    ordered = sorted(nodes, key=lambda node: (_natural(_block(node)), _natural(node.metadata.name)))
    return draw_gpu_map([_map_node(node, numbers) for node in ordered], width=width)


def gangs_on_map(nodes: Iterable[NodeView]) -> list[str]:
    """Gangs that have a GPU, as ``NAMESPACE/KIND/NAME``: those with the most first, as letters are few."""
    held = Counter(
        f"{holder.namespace}/{holder.kind}/{holder.name}"
        for node in nodes
        for slot in node.slots
        for holder in slot.holders
        if not holder.hidden
    )
    return sorted(held, key=lambda gang: (-held[gang], gang))


def _map_node(node: NodeView, numbers: Mapping[str, int]) -> MappedNode:
    ready = node.state == "Ready"
    return MappedNode(
        name=shown_text(node.metadata.name) + ("" if ready else " !"),
        block=_block(node),
        cells=tuple(_cell(slot, numbers) for slot in node.slots),
        style="" if ready else "red",
    )


def _cell(slot: SlotView, numbers: Mapping[str, int]) -> MapCell:
    partly = 0 < gpu_amount(slot.free) < gpu_amount("1")
    if len(slot.holders) > 1:
        count = min(len(slot.holders), _SEVERAL_MAX)
        return MapCell(mark=str(count), style=_GREY, partly=partly)
    for holder in slot.holders:
        number = numbers.get(f"{holder.namespace}/{holder.kind}/{holder.name}")
        if holder.hidden or number is None:
            return MapCell(mark=HIDDEN, style=_GREY, partly=partly)
        return gang_cell(number, partly=partly)
    if gpu_amount(slot.free) >= gpu_amount("1"):
        return FREE_CELL
    return MapCell(mark=OTHERS, style=_GREY, partly=partly)


def _block(node: NodeView) -> str:
    """Domains of a node, widest first, without what the name of a level or of the domain around says already."""
    told, around = [], ""
    for domain in node.domains:
        name = domain.name.removeprefix(f"{around}/") if around else domain.name
        level = "" if name.startswith(domain.level) else f"{domain.level} "
        told.append(shown_text(f"{level}{name}"))
        around = domain.name
    return ", ".join(told) or "nodes without a place in the topology"


def _legend(
    nodes: Sequence[NodeView], gangs: Iterable[GangView], choice: ScreenChoice
) -> DrawnView:
    held: Counter[str] = Counter()
    on: Counter[str] = Counter()
    for node in nodes:
        here: set[str] = set()
        for slot in node.slots:
            for each in slot.holders:
                key = f"{each.namespace}/{each.kind}/{each.name}"
                if not each.hidden:
                    held[key] += 1
                    here.add(key)
        on.update(here)
    queues = {gang.key: gang.queue for gang in gangs}
    keys = sorted(held, key=lambda key: (choice.numbers.get(key, len(choice.numbers)), key))
    if not keys:
        return DrawnView(lines=[], keys=[])

    def cells(key: str) -> list[Cell]:
        number = choice.numbers.get(key)
        letter = "" if number is None else Text(f" {gang_letter(number)} ", gang_style(number))
        queue = shown_text(queues.get(key, ""))
        namespace, kind, name = key.split("/", 2)
        gang = shown_text(f"{namespace}/{name}")
        return [letter, gang, queue, str(held[key]), str(on[key]), shown_text(kind)]

    table = layout_table(_LEGEND_COLUMNS, keys, cells, width=choice.width)
    named = [f"gang {key}" for key in keys]
    return DrawnView(heads=(table.titles(),), lines=table, keys=named)


def _marks(nodes: Sequence[NodeView]) -> Text:
    """What the marks mean that are there."""
    free = sum(gpu_amount(slot.free) >= gpu_amount("1") for node in nodes for slot in node.slots)
    told = [f"{FREE} free: {free}"]
    slots = [slot for node in nodes for slot in node.slots]
    if any(not slot.holders and gpu_amount(slot.free) < gpu_amount("1") for slot in slots):
        told.append(f"{OTHERS} pods of other schedulers")
    if any(holder.hidden for slot in slots for holder in slot.holders):
        told.append(f"{HIDDEN} gangs that are not shown to this user")
    if any(len(slot.holders) > 1 for slot in slots):
        told.append("2-9 so many gangs share it")
    if any(0 < gpu_amount(slot.free) < gpu_amount("1") for slot in slots):
        told.append("~ part of it is free")
    if any(node.state != "Ready" for node in nodes):
        told.append("! takes no pods")
    return Text(" · ".join(told), "dim")


def _is_node_chosen(node: NodeView, choice: ScreenChoice) -> bool:
    words = choice.typed.lower().split()
    told = (
        f"{node.metadata.name} {_block(node)} {node.gpu_type} {node.state} {' '.join(node.gangs)}"
    )
    return all(word in told.lower() for word in words)


def _natural(text: str) -> list[tuple[int, str]]:
    """Sorts ``node-9`` before ``node-10``."""
    return [
        (int(part), "") if part.isdecimal() and part.isascii() else (-1, part)
        for part in re.split(r"(\d+)", text)
    ]
