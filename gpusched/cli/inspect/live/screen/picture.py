"""What is known of the cluster at one moment, what of it is asked for, and the lines above each view."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import attrs
from rich.text import Text

from gpusched.api.meta.identity import InvalidObject, format_time, parse_time
from gpusched.base.classes import frozen
from gpusched.cli.command import age
from gpusched.cli.inspect.live.screen.summary import (
    ClusterSummary,
    gpu_amount_text,
    summarize_cluster,
)
from gpusched.io.observe.text import one_line
from gpusched.view.model import AboutView, DecisionView, GangView, NodeView, QueueView

VIEWS: Final = ("overview", "queues", "waiting", "running", "map", "decisions")
"""Views by the number of their key, from 1."""
TEXT_MAX: Final = 4096
_BAR: Final = 20
_LINES_MAX: Final = 2
"""Of one sentence above the views."""


@frozen(kw_only=True)
class ClusterPicture:
    """One moment.

    Attributes:
        about: where it is from.
        told: for people: where it was read.
        note: why it was read from the API; empty where the daemon told it.
        lost: why it is old; empty while it is not.
        lost_at: since when, seconds since the epoch.
        now: seconds since the epoch, for ages.
        gangs: by namespace, kind and name; nodes and queues by name; decisions oldest first.
    """

    about: AboutView
    told: str = ""
    note: str = ""
    lost: str = ""
    lost_at: float = 0.0
    now: float = 0.0
    gangs: Sequence[GangView] = ()
    nodes: Sequence[NodeView] = ()
    queues: Sequence[QueueView] = ()
    decisions: Sequence[DecisionView] = ()


@frozen(kw_only=True)
class ScreenChoice:
    """What is asked for.

    Attributes:
        view: one of ``VIEWS``.
        namespace: of gangs and decisions; empty for all of them.
        typed: words that a row must have; ``queue:NAME`` means that queue alone.
        order: of ``ORDERS`` of the view; empty for the first.
        backwards: whether the order is turned.
        width: columns of the terminal.
        rows_max: rows of each part of the overview.
        numbers: of gangs, by which they have letters.
    """

    view: str = "overview"
    namespace: str = ""
    typed: str = ""
    order: str = ""
    backwards: bool = False
    width: int = 80
    rows_max: int = 20
    numbers: Mapping[str, int] = attrs.field(factory=dict)


@frozen(kw_only=True)
class DrawnView:
    """A view as lines.

    Attributes:
        heads: lines that stay above the others.
        lines: each made when it is looked at.
        keys: what each line is about: ``gang NAMESPACE/KIND/NAME``, ``queue NAME`` or empty.
    """

    heads: Sequence[Text] = ()
    lines: Sequence[Text]
    keys: Sequence[str]


def draw_header(picture: ClusterPicture, choice: ScreenChoice) -> list[Text]:
    """GPUs, gangs, and where and when this was read: three lines, and more where something is wrong."""
    about = picture.about
    summary = summarize_cluster(picture.gangs, picture.nodes if about.nodes else None)
    lines = [_gpu_line(picture, summary), _gang_line(picture, summary, choice)]
    lines += _source_lines(picture, choice.width)
    for warning in _warnings(picture):
        lines += [Text(each, "bold red") for each in _wrapped(warning, choice.width)]
    for line in lines:
        line.truncate(choice.width, overflow="ellipsis")
    return lines


def draw_bar(held: int, whole: int, *, columns: int, due: int | None = None) -> Text:
    """A bar of what is held of a whole, with a line where what is due ends; what is beyond it is borrowed."""
    whole = max(1, whole)
    filled = min(columns, -(-columns * held // whole))
    mark = None if due is None else min(columns - 1, columns * due // whole)
    bar = Text()
    for column in range(columns):
        beyond = due is not None and held > due and column >= columns * due // whole
        if column == mark:
            bar.append("│", "bold")
        elif column < filled:
            bar.append("█", "yellow" if beyond else "green")
        else:
            bar.append("░", "dim")
    return bar


def shown_text(text: str) -> str:
    """A text of others on one line, with characters that cannot be seen as their numbers."""
    return one_line(text, TEXT_MAX)


def time_since(text: str, now: float) -> str:
    """An age such as ``12m``; empty where the time is not known."""
    seconds = _seconds(text)
    return age(now - seconds) if seconds else ""


def time_until(text: str, now: float) -> str:
    """``in 12m``, or ``now`` where that time is over; empty where it is not known."""
    seconds = _seconds(text)
    if not seconds:
        return ""
    return f"in {age(seconds - now)}" if seconds - now >= 1 else "now"


def clock_text(seconds: float) -> str:
    """The time of day in UTC."""
    return format_time(seconds)[11:]


def _seconds(text: str) -> float:
    try:
        return parse_time(text) if text else 0.0
    except InvalidObject:
        return 0.0


def _gpu_line(picture: ClusterPicture, summary: ClusterSummary) -> Text:
    if summary.gpus is None or summary.free is None or summary.used is None:
        return Text("GPUs    nodes are not shown to this user")
    line = Text.assemble(("GPUs    ", "bold"), draw_bar(summary.used, summary.gpus, columns=_BAR))
    used, total = gpu_amount_text(summary.used), gpu_amount_text(summary.gpus)
    line.append(f" {used} of {total} used, {gpu_amount_text(summary.free)} free")
    totals = picture.about.gpu_totals
    if totals is not None:
        line.append(f", {totals.stranded} stranded", "yellow" if totals.stranded else "")
        reasons = ", ".join(f"{count} {name}" for name, count in totals.stranded_by_reason.items())
        line.append(f" ({reasons})" if reasons else "")
    elif summary.unavailable:
        line.append(f", {gpu_amount_text(summary.unavailable)} of them on nodes that take no pods")
    return line


def _gang_line(picture: ClusterPicture, summary: ClusterSummary, choice: ScreenChoice) -> Text:
    line = Text.assemble(("Gangs   ", "bold"))
    line.append(f"{summary.running} running", "green")
    for count, state in ((summary.starting, "starting"), (summary.ending, "ending")):
        line.append(f", {count} {state}" if count else "")
    line.append(", ").append(f"{summary.waiting} waiting", "yellow" if summary.waiting else "")
    again = picture.about.gangs_evicted_again
    line.append(f", {again} evicted again" if again else "", "red")
    seen = picture.about.namespaces
    if choice.namespace:
        where = f"namespace {shown_text(choice.namespace)} is listed"
    elif seen == "all":
        where = "all namespaces"
    else:
        names = ", ".join(map(shown_text, seen)) or "none"
        where = f"of namespaces that this user may see: {names}"
    return line.append(f" · {where}")


def _source_lines(picture: ClusterPicture, width: int) -> list[Text]:
    about = picture.about
    moment = about.now[11:] or "?"
    if about.source == "api":
        told = f"Source  the API at {shown_text(moment)}: {shown_text(picture.note)}"
        lines = [Text(each) for each in _wrapped(told, width)]
        lines[0].stylize("bold", 0, len("Source"))
        return lines
    line = Text.assemble(("Daemon  ", "bold"), shown_text(about.daemon or picture.told))
    ready = shown_text(about.ready) or "it says nothing of its readiness"
    line.append(f": {ready}", "" if about.leading else "yellow")
    live = "" if picture.lost else "live, "
    return [line.append(f" · {live}as of its session at {shown_text(moment)}")]


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, max(4, width), max_lines=_LINES_MAX, placeholder=" …")


def _warnings(picture: ClusterPicture) -> Iterator[str]:
    if picture.lost:
        since = clock_text(picture.lost_at)
        yield f"Old since {since}: {shown_text(picture.lost)}; it is tried again and again."
    about = picture.about
    if about.source == "api" and about.nodes and about.namespaces != "all":
        yield "GPUs of pods that this user may not list count as free here"
