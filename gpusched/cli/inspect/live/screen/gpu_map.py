"""The map of every GPU: a letter and a colour a gang, domain by domain. Pure; the demo draws it, too."""

from __future__ import annotations

import string
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final

from rich.text import Text

from gpusched.base.classes import frozen

FREE: Final = "·"
_LETTERS: Final = string.ascii_uppercase + string.ascii_lowercase
_COLOURS: Final = (
    "#7aa2f7", "#9ece6a", "#f7768e", "#e0af68", "#bb9af7", "#7dcfff",
    "#ff9e64", "#73daca", "#c0caf5", "#d7d787", "#ff87d7", "#87afaf",
)  # fmt: skip
_GAP: Final = "    "
_NAME_MIN: Final = 12


@frozen(kw_only=True)
class MapCell:
    """One GPU.

    Attributes:
        mark: a character, which says it without colours.
        style: of rich; empty for none.
        partly: whether some of it is free while somebody has the rest.
    """

    mark: str = FREE
    style: str = "dim"
    partly: bool = False


@frozen(kw_only=True)
class MappedNode:
    """One node: its name, the title of the block in which it stands, and its GPUs.

    Attributes:
        style: of the name; empty for none.
    """

    name: str
    block: str
    cells: tuple[MapCell, ...]
    style: str = ""


FREE_CELL: Final = MapCell()


def gang_letter(index: int) -> str:
    """The letter of a gang; beyond 52 gangs they share ``+``, and the legend tells."""
    return _LETTERS[index] if index < len(_LETTERS) else "+"


def gang_style(index: int) -> str:
    """The colour of a gang: dark letters on a bright ground, so that both can be read."""
    return f"#1a1b26 on {_COLOURS[index % len(_COLOURS)]}"


def gang_cell(index: int, *, partly: bool = False) -> MapCell:
    """A GPU that one gang has."""
    return MapCell(mark=gang_letter(index), style=gang_style(index), partly=partly)


def number_gangs(before: Mapping[str, int], gangs: Iterable[str]) -> dict[str, int]:
    """A number for each gang, by which it gets its letter: the one it had, else the first that is free.

    Args:
        before: numbers that gangs had.
        gangs: those that have GPUs now, in the order in which they choose.
    """
    names = list(dict.fromkeys(gangs))
    numbers = {name: before[name] for name in names if name in before}
    taken, free = set(numbers.values()), 0
    for name in names:
        if name in numbers:
            continue
        while free in taken:
            free += 1
        numbers[name] = free
        taken.add(free)
    return numbers


def draw_gpu_map(nodes: Sequence[MappedNode], *, width: int) -> list[Text]:
    """Every node's GPUs, blocks side by side as far as ``width`` columns go."""
    by_block: dict[str, list[MappedNode]] = {}
    for node in nodes:
        by_block.setdefault(node.block, []).append(node)
    blocks = [_block(title, each, width) for title, each in by_block.items()]
    lines: list[Text] = []
    while blocks:
        row = [blocks.pop(0)]
        while blocks and sum(map(_width, row)) + len(row) * len(_GAP) + _width(blocks[0]) <= width:
            row.append(blocks.pop(0))
        lines += [_joined(row, number) for number in range(max(map(len, row)))]
        if blocks:
            lines.append(Text())
    return lines


def _joined(row: Sequence[Sequence[Text]], number: int) -> Text:
    """One line of several blocks, which end where their last colour does."""
    line, start = Text(), 0
    for block in row:
        if number < len(block):
            line.pad_right(start - line.cell_len)
            line.append_text(block[number])
        start += _width(block) + len(_GAP)
    if not any(span.end == len(line) and " on " in str(span.style) for span in line.spans):
        line.rstrip()
    return line


def _block(title: str, nodes: Sequence[MappedNode], width: int) -> list[Text]:
    """Title and one line a node, the cells right behind the names; narrower where there is no room."""
    most = max(len(node.cells) for node in nodes)
    names = max(Text(node.name).cell_len for node in nodes)
    cell = next((each for each in (3, 2) if names + 2 + each * most <= width), 1)
    names = min(names, max(_NAME_MIN, width - 2 - cell * most))
    head = Text(title, "bold")
    head.truncate(width, overflow="ellipsis")
    lines = [head]
    for node in nodes:
        line = Text(node.name, node.style)
        line.truncate(names, overflow="ellipsis", pad=True)
        line.append("  ")
        line.append_text(_draw_cells(node.cells, cell))
        line.truncate(width)
        lines.append(line)
    return lines


@lru_cache(maxsize=1 << 14)
def _draw_cells(cells: tuple[MapCell, ...], width: int) -> Text:
    """GPUs of a node, so many columns each; most nodes are as they were before."""
    drawn = Text()
    for each in cells:
        mark = f" {each.mark}{'~' if each.partly else ' '}"
        drawn.append(mark if width == 3 else mark[1 : 1 + width], each.style)
    return drawn


def _width(block: Sequence[Text]) -> int:
    return max(line.cell_len for line in block)
