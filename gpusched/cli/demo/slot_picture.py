"""The picture of every GPU slot: a letter and a colour a gang, rack by rack. Pure."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence
from io import StringIO
from typing import Final

from rich.console import Console, RenderableType
from rich.text import Text

from gpusched.cli.demo.scene import ClusterScene, NodeScene

FREE: Final = "·"
_LETTERS: Final = string.ascii_uppercase + string.ascii_lowercase
_COLOURS: Final = (
    "#7aa2f7", "#9ece6a", "#f7768e", "#e0af68", "#bb9af7", "#7dcfff",
    "#ff9e64", "#73daca", "#c0caf5", "#d7d787", "#ff87d7", "#87afaf",
)  # fmt: skip
_GAP: Final = "    "


def letter(index: int) -> str:
    """The letter of a gang; beyond 52 gangs they share ``+``, and the legend tells."""
    return _LETTERS[index] if index < len(_LETTERS) else "+"


def style(index: int) -> str:
    """The colour of a gang: dark letters on a bright ground, so that both can be read."""
    return f"#1a1b26 on {_COLOURS[index % len(_COLOURS)]}"


def picture(scene: ClusterScene, *, width: int) -> Text:
    """Every node's slots, racks side by side as far as ``width`` columns go."""
    blocks = [_rack(rack, nodes) for rack, nodes in _racks(scene.nodes)]
    drawn = Text()
    while blocks:
        row = [blocks.pop(0)]
        while blocks and sum(map(_width, row)) + len(row) * len(_GAP) + _width(blocks[0]) <= width:
            row.append(blocks.pop(0))
        for number in range(max(map(len, row))):
            line = Text()
            for block in row:
                cell = block[number].copy() if number < len(block) else Text()
                cell.pad_right(_width(block) - cell.cell_len)
                line.append_text(cell).append(_GAP)
            line.rstrip()
            drawn.append_text(line).append("\n")
        if blocks:
            drawn.append("\n")
    return drawn


def legend(scene: ClusterScene) -> Text:
    """A line for each gang in the picture: its letter, what it is, what it holds."""
    held = Counter(slot for node in scene.nodes for slot in node.slots if slot is not None)
    lines = Text()
    for index in sorted(held):
        gang = scene.gangs[index]
        lines.append(f" {letter(index)} ", style(index))
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


def _racks(nodes: Sequence[NodeScene]) -> list[tuple[str, list[NodeScene]]]:
    racks: dict[str, list[NodeScene]] = {}
    for node in nodes:
        racks.setdefault(node.rack, []).append(node)
    return list(racks.items())


def _rack(rack: str, nodes: Sequence[NodeScene]) -> list[Text]:
    """Title and one line a node, the cells right behind the names."""
    names = max(len(node.name) for node in nodes)
    lines = [Text(rack or "no rack", "bold")]
    for node in nodes:
        line = Text(f"{node.name:<{names}}  ")
        for slot in node.slots:
            if slot is None:
                line.append(f" {FREE} ", "dim")
            else:
                line.append(f" {letter(slot)} ", style(slot))
        lines.append(line)
    return lines


def _width(block: Sequence[Text]) -> int:
    return max(line.cell_len for line in block)
