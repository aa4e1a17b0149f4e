"""What the demo shows: tables for a terminal, sentences for a pipe. Pure functions of scenes."""

from __future__ import annotations

from statistics import mean
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gpusched.cli.demo.scene import ClusterScene, DemoOutcome, GangPhase, GangScene
from gpusched.cli.demo.slot_picture import legend, picture
from gpusched.cli.inspect.live.screen.gpu_map import gang_letter, gang_style
from gpusched.cli.inspect.live.screen.picture import draw_bar

_STARTS_SHOWN: Final = 6
_NO_PODS: Final = "NotEnoughMembers"
_BAR: Final = 32
_TALL: Final = 46
"""Lines of a terminal from which on the picture has room below the tables."""


def screen(scene: ClusterScene, *, width: int, height: int) -> RenderableType:
    """The live view: queues, waiting gangs with their reasons, the latest starts."""
    parts: list[RenderableType] = [headline(scene), tables(scene)]
    if height >= _TALL:
        parts += [Text(), picture(scene, width=width)]
    return Group(*parts)


def tables(scene: ClusterScene) -> RenderableType:
    """Queues, waiting gangs, the latest starts, one below the other."""
    parts: list[RenderableType] = []
    for table in (queues(scene), waiting(scene), starts(scene)):
        parts += [Text(), table]
    return Group(*parts)


def headline(scene: ClusterScene) -> Text:
    """One line: time, GPUs, gangs."""
    began = sum(gang.whole_s is not None for gang in scene.gangs)
    return Text.assemble(
        ("gpusched demo", "bold"),
        f"  {scene.at_s:5.1f} s   ",
        f"{scene.used} of {scene.gpus} GPUs in use   ",
        f"{began} of {len(scene.gangs)} gangs started",
    )


def queues(scene: ClusterScene) -> Table:
    """A row for each queue, with a bar of its GPUs."""
    table = _table("QUEUE", "GPUS", "", "RUNNING", "WAITING")
    for queue in scene.queues:
        bar = draw_bar(queue.gpus, scene.gpus, columns=_BAR)
        table.add_row(
            Text(queue.name), str(queue.gpus), bar, str(queue.running), str(queue.waiting)
        )
    return table


def waiting(scene: ClusterScene) -> RenderableType:
    """A row for each gang that waits, with the daemon's own sentence."""
    if not scene.waiting:
        return Text("Nobody waits.")
    table = _table("WAITING", "NEEDS", "SINCE", "WHY")
    for gang in scene.waiting:
        why = gang.sentence or "not decided yet"
        table.add_row(
            Text(gang.title), needs(gang), f"{gang.waited_s:.0f} s", Text(why, overflow="fold")
        )
    return table


def starts(scene: ClusterScene) -> RenderableType:
    """The latest starts, newest first."""
    table = _table("", "STARTED", "QUEUE", "PODS", "NODES", "WAITED", "DECIDED")
    began = [(gang.whole_s, number) for number, gang in enumerate(scene.gangs) if gang.whole_s]
    for _, number in sorted(began, reverse=True)[:_STARTS_SHOWN]:
        gang = scene.gangs[number]
        table.add_row(
            Text(f" {gang_letter(number)} ", gang_style(number)),
            Text(gang.title, "dim" if gang.stand is GangPhase.DONE else ""),
            Text(gang.queue),
            pods(gang),
            str(gang.nodes),
            seconds(gang.waited_s),
            "-" if gang.decided_ms is None else f"{gang.decided_ms:.1f} ms",
        )
    return table


def needs(gang: GangScene) -> str:
    """``8 x 8 GPU``: pods that start together and what each asks for."""
    return f"{gang.min_member} x {gang.gpus} GPU"


def pods(gang: GangScene) -> str:
    """How many were bound, and of how many when the gang is elastic."""
    if gang.members > gang.min_member:
        return f"{gang.started} of {gang.members} pods (min {gang.min_member})"
    return f"{gang.started} pod{'s' if gang.started != 1 else ''}"


def seconds(value: float) -> str:
    """A wait: milliseconds while it is short."""
    return f"{1000 * value:.0f} ms" if value < 1 else f"{value:.1f} s"


def news(before: ClusterScene, after: ClusterScene) -> list[str]:
    """What happened between two moments, a plain line each."""
    known = {(gang.kind, gang.namespace, gang.name): gang for gang in before.gangs}
    lines = []
    for gang in after.gangs:
        old = known.get((gang.kind, gang.namespace, gang.name))
        who = f"{gang.queue}/{gang.title}"
        if gang.whole_s is not None and (old is None or old.whole_s is None):
            decided = "" if gang.decided_ms is None else f", decided in {gang.decided_ms:.1f} ms"
            nodes = f"{gang.nodes} node{'s' if gang.nodes != 1 else ''}"
            lines.append(
                f"{who} started: {pods(gang)} x {gang.gpus} GPU on {nodes} after "
                f"{seconds(gang.waited_s)}{decided}"
            )
        elif _refused(gang) and (old is None or not _refused(old) or old.reason != gang.reason):
            lines.append(f"{who} waits: {gang.sentence}")
        if gang.stand is GangPhase.DONE and (old is None or old.stand is not GangPhase.DONE):
            lines.append(f"{who} is done")
    return [f"{after.at_s:5.1f} s  {line}" for line in lines]


def finale(outcome: DemoOutcome, *, width: int) -> RenderableType:
    """The picture of the fullest moment, with its legend."""
    scene = outcome.fullest
    title = (
        f"Every GPU at the fullest moment, {scene.at_s:.1f} s after the beginning: "
        f"{scene.used} of {scene.gpus} in use, {_gangs(len(scene.waiting))} waiting"
    )
    return Group(Text(title, "bold"), Text(), picture(scene, width=width), legend(scene))


def totals(outcome: DemoOutcome) -> list[str]:
    """What came of it, a sentence each; read off what the API's watch showed."""
    last = outcome.last
    began = [gang for gang in last.gangs if gang.whole_s is not None]
    lines = [f"{len(began)} of {_gangs(len(last.gangs))} started in {last.at_s:.1f} s."]
    lines += [f"{gang.title} never can: {gang.sentence}." for gang in last.gangs if gang.never]
    if began:
        longest = max(began, key=lambda gang: gang.waited_s)
        lines.append(
            f"Waiting: {mean(gang.waited_s for gang in began):.1f} s on average, "
            f"at most {longest.waited_s:.1f} s ({longest.title})."
        )
    parted = [gang for gang in last.gangs if gang.early or 0 < gang.started < gang.min_member]
    if not parted and began:
        slowest = max(gang.spread_ms for gang in began)
        lines.append(
            "No gang started in part: none had a pod running before all that it needs were bound, "
            f"which took {slowest:.0f} ms at most from the first pod to the last."
        )
    if outcome.bindings and not outcome.double:
        lines.append(f"No GPU was given twice in {outcome.bindings} bindings.")
    return lines


def _refused(gang: GangScene) -> bool:
    """Whether it waits for more than for its own pods to be created."""
    return bool(gang.sentence) and gang.whole_s is None and gang.reason != _NO_PODS


def _gangs(count: int) -> str:
    return f"{count} gang{'s' if count != 1 else ''}"


def _table(*titles: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for title in titles:
        numeric = title in ("GPUS", "RUNNING", "NODES")
        table.add_column(
            title,
            justify="right" if numeric else "left",
            no_wrap=title != "WHY",
            ratio=1 if title == "WHY" else None,
        )
    return table
