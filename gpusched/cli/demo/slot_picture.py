"""The picture of every GPU slot of a scene, with its legend. Pure; drawn as ``gpusched top`` draws it."""

from __future__ import annotations

import re
from collections import Counter
from io import StringIO

from rich.console import Console, RenderableType
from rich.text import Text

from gpusched.cli.demo.scene import ClusterScene
from gpusched.cli.inspect.live.screen.gpu_map import (
    FREE,
    FREE_CELL,
    MappedNode,
    draw_gpu_map,
    gang_cell,
    gang_letter,
    gang_style,
)


def picture(scene: ClusterScene, *, width: int) -> Text:
    """Every node's slots, racks side by side as far as ``width`` columns go."""
    nodes = [
        MappedNode(
            name=node.name,
            block=node.rack or "no rack",
            cells=tuple(FREE_CELL if slot is None else gang_cell(slot) for slot in node.slots),
        )
        for node in scene.nodes
    ]
    drawn = Text()
    for line in draw_gpu_map(nodes, width=width):
        drawn.append_text(line).append("\n")
    return drawn


def legend(scene: ClusterScene) -> Text:
    """A line for each gang in the picture: its letter, what it is, what it holds."""
    held = Counter(slot for node in scene.nodes for slot in node.slots if slot is not None)
    lines = Text()
    for index in sorted(held):
        gang = scene.gangs[index]
        lines.append(f" {gang_letter(index)} ", gang_style(index))
        pods = f"{gang.held} pod{'s' if gang.held != 1 else ''}"
        lines.append(f" {gang.title:<14}{gang.queue:<13}{pods:>8} x {gang.gpus} GPU", "default")
        lines.append(f" = {held[index]}\n")
    free = scene.gpus - scene.used
    lines.append(f" {FREE} ", "dim").append(f" {'free':<27}{'':>16} = {free}\n")
    return lines


def svg(shown: RenderableType, *, title: str, width: int) -> str:
    """A drawing of what a terminal would show; it needs no font and no file from elsewhere."""
    console = Console(
        record=True, width=width, file=StringIO(), force_terminal=True, color_system="truecolor"
    )
    console.print(shown)
    drawing = console.export_svg(title=title, unique_id="gpusched-demo")
    return re.sub(r"@font-face \{.*?\}\s*", "", drawing, flags=re.DOTALL)
