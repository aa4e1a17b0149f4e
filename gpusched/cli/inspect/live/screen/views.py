"""Each view by its name, the overview of several, the line of views, and the help. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import attrs
from rich.text import Text

from gpusched.cli.inspect.live.screen.cluster_map import draw_map, gangs_on_map
from gpusched.cli.inspect.live.screen.gpu_map import number_gangs
from gpusched.cli.inspect.live.screen.list_views import (
    draw_decisions,
    draw_queues,
    draw_running,
    draw_waiting,
)
from gpusched.cli.inspect.live.screen.picture import (
    VIEWS,
    ClusterPicture,
    DrawnView,
    ScreenChoice,
    draw_header,
)
from gpusched.cli.inspect.live.screen.screen_table import JoinedLines
from gpusched.view.model import WAITING

HELP: Final = (
    ("1 to 6, Tab", "overview, queues, waiting, running, GPU map, decisions"),
    ("Up Down j k", "another row; Page Up, Page Down, Home and End go further"),
    ("Enter", "on a gang its story, on a queue what waits in it"),
    ("Escape", "back, or forget the filter"),
    ("/", "rows with these words alone; queue:NAME means that queue"),
    ("n", "gangs of one namespace alone; nothing means all"),
    ("s r", "sort by something else; turn the order"),
    ("?", "this page"),
    ("q, Ctrl-C", "quit"),
)
_MARKS: Final = (
    "On the map each GPU has the letter of its gang. · is free, # has a pod of",
    "another scheduler, ? a gang that you may not see, 2 to 9 so many gangs;",
    "~ means that part of it is free, ! that the node takes no pods.",
    "In the bar of a queue │ is what it is due.",
)
_FOOTER: Final = "Enter story  / filter  n namespace  s sort  ? help  q quit"
_FOOTER_OF_PAGE: Final = "Escape back  ? help  q quit"
_DRAWN: Final[Mapping[str, Callable[[ClusterPicture, ScreenChoice], DrawnView]]] = MappingProxyType(
    {
        "queues": draw_queues,
        "waiting": draw_waiting,
        "running": draw_running,
        "map": draw_map,
        "decisions": draw_decisions,
    }
)
_TITLES: Final = {"queues": "Queues", "waiting": "Waiting", "running": "Running", "map": "GPUs"}


def draw_view(picture: ClusterPicture, choice: ScreenChoice) -> DrawnView:
    """The view that is asked for."""
    if choice.view == "overview":
        return _draw_overview(picture, choice)
    return _DRAWN[choice.view](picture, choice)


def draw_tabs(picture: ClusterPicture, choice: ScreenChoice) -> Text:
    """One line with the views, their keys, and how many rows they have."""
    waiting = sum(gang.state == WAITING for gang in picture.gangs)
    counts = {"waiting": waiting, "running": len(picture.gangs) - waiting}
    line = Text()
    for number, view in enumerate(VIEWS, start=1):
        count = f" {counts[view]}" if counts.get(view) else ""
        here = view == choice.view
        text = f"[{number} {view}{count}]" if here else f" {number} {view}{count} "
        line.append(text, "bold reverse" if here else "")
    line.truncate(choice.width)
    return line


def draw_footer(choice: ScreenChoice, orders: str = "", *, of_page: bool = False) -> Text:
    """One line with the keys, and what is filtered and sorted by; ``of_page`` for a gang's page and help."""
    if of_page:
        return Text(_FOOTER_OF_PAGE, "dim")
    told = [f"filter: {choice.typed}"] if choice.typed else []
    if orders:
        told.append(f"by {orders}{' backwards' if choice.backwards else ''}")
    line = Text("  ".join([*told, _FOOTER]), "dim")
    line.truncate(choice.width, overflow="ellipsis")
    return line


def draw_help(choice: ScreenChoice) -> DrawnView:
    """Every key."""
    lines = [Text("Keys", "bold"), Text()]
    lines += [Text.assemble((f"{keys:<14}", "bold"), told) for keys, told in HELP]
    lines += [Text(), *map(Text, _MARKS)]
    for line in lines:
        line.truncate(choice.width, overflow="ellipsis")
    return DrawnView(lines=lines, keys=[""] * len(lines))


def draw_frame(picture: ClusterPicture, choice: ScreenChoice) -> Iterator[Text]:
    """All lines of one view with its header, for who reads it once."""
    choice = attrs.evolve(choice, numbers=number_gangs({}, gangs_on_map(picture.nodes)))
    yield from draw_header(picture, choice)
    yield Text()
    drawn = draw_view(picture, choice)
    yield from drawn.heads
    yield from drawn.lines


def _draw_overview(picture: ClusterPicture, choice: ScreenChoice) -> DrawnView:
    """Queues, the next gangs, the gangs that run, and the map, one below the other."""
    parts: list[Sequence[Text]] = []
    keys: list[str] = []
    for view, title in _TITLES.items():
        part = _DRAWN[view](picture, choice)
        whole = view == "map" or len(part.lines) <= choice.rows_max
        above = [*([Text()] if parts else []), Text(title, "bold reverse"), *part.heads]
        parts += [above, part.lines if whole else part.lines[: choice.rows_max]]
        keys += [*([""] * len(above)), *part.keys[: None if whole else choice.rows_max]]
        if not whole:
            left = len(part.lines) - choice.rows_max
            told = f"and {left} more: key {VIEWS.index(view) + 1}, or --view {view}"
            parts.append([Text(told, "dim")])
            keys.append("")
    return DrawnView(lines=JoinedLines(parts), keys=keys)
