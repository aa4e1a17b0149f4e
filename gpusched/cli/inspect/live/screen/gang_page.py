"""One gang's whole story: how it stands, why, its pods and their places, and what was decided about it. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from rich.text import Text

from gpusched.cli.inspect.live.screen.cluster_map import draw_nodes
from gpusched.cli.inspect.live.screen.list_views import DECISION_COLUMNS, decision_cells
from gpusched.cli.inspect.live.screen.picture import (
    ClusterPicture,
    DrawnView,
    ScreenChoice,
    shown_text,
    time_since,
    time_until,
)
from gpusched.cli.inspect.live.screen.screen_table import (
    Cell,
    JoinedLines,
    ScreenColumn,
    layout_table,
)
from gpusched.view.gang_story import GangStory
from gpusched.view.model import WAITING, DomainView, GangView, MemberView, OrderTermView

_STATE_STYLES: Final = {"Waiting": "yellow", "Running": "green", "Starting": "cyan"}
_POD_COLUMNS: Final = (
    ScreenColumn(title="POD", importance=9, widest=44, narrowest=16),
    ScreenColumn(title="PHASE", importance=8),
    ScreenColumn(title="NODE", importance=9, widest=40, narrowest=12),
    ScreenColumn(title="GPUS", importance=8, narrowest=6),
    ScreenColumn(title="PLACE", importance=5, narrowest=12),
    ScreenColumn(title="ROLE", importance=4, widest=20),
    ScreenColumn(title="SUB-GROUP", importance=4, widest=20),
)
_TERM_COLUMNS: Final = (
    ScreenColumn(title="BY", importance=9),
    ScreenColumn(title="QUEUE", importance=6, widest=20, narrowest=8),
    ScreenColumn(title="VALUE", importance=5, widest=24),
    ScreenColumn(title="MEANS", importance=7, narrowest=20, wanted=60, takes_rest=True),
)
_LABEL: Final = 12


def draw_gang(story: GangStory, picture: ClusterPicture, choice: ScreenChoice) -> DrawnView:
    """The lines of one gang's page."""
    title = f"{story.gang_kind} {story.metadata.namespace}/{story.metadata.name}"
    head = Text.assemble(
        (shown_text(title), "bold"),
        "  ",
        (shown_text(story.state), _STATE_STYLES.get(story.state, "")),
    )
    head.truncate(choice.width, overflow="ellipsis")
    lines = [head, Text()]
    lines += [_fact(label, text, choice.width) for label, text in _facts(story, picture.now)]
    lines += [Text(), *draw_reason(story, width=choice.width)]
    lines += _order(story, choice.width)
    lines += _places(story, picture, choice)
    decided = _story(story, picture, choice.width)
    whole = JoinedLines([lines, *_pods(story, picture, choice.width), decided])
    return DrawnView(lines=whole, keys=[""] * len(whole))


def _facts(story: GangStory, now: float) -> Iterator[tuple[str, str]]:
    waits = story.state == WAITING
    yield "queue", f"{story.queue or 'none'}, priority {story.priority}"
    if story.owner is not None:
        yield "made by", f"{story.owner.kind} {story.owner.name}"
    total = story.placed + story.waiting
    yield "pods", f"{story.placed} of {total} have a node, {story.min_member} needed at once"
    yield "GPUs", f"{story.gpus or 'none'}{f' ({story.gpu_type})' if story.gpu_type else ''}"
    if story.created:
        yield "created", f"{story.created}, {time_since(story.created, now)} ago"
    if story.since and not waits:
        yield "runs since", f"{story.since}, {time_since(story.since, now)}"
    if story.expected_end_time:
        yield "ends", f"{story.expected_end_time}, {time_until(story.expected_end_time, now)}"
    if waits:
        yield "turn", f"{story.position} of its queue" if story.position else "none yet"
    if story.estimated_start_time:
        until = time_until(story.estimated_start_time, now)
        yield "may start", f"{story.estimated_start_time}, {until}"
    if story.estimated_start_latest:
        between = f"{story.estimated_start_earliest} and {story.estimated_start_latest}"
        yield "four of five", f"between {between}"
    if story.estimate_change:
        yield "moved", story.estimate_change
    if not story.preemptible:
        yield "preemption", "it is not preempted"


def draw_reason(gang: GangView, *, width: int) -> list[Text]:
    """Why a gang waits, in as many lines as it takes; none for one that does not."""
    if not gang.reason and not gang.message:
        waits = gang.state == WAITING
        return [Text("Nothing was said about why it waits yet.")] if waits else []
    reason = shown_text(gang.reason)
    told = f"{reason}: {shown_text(gang.message)}" if reason else shown_text(gang.message)
    lines = [Text(line) for line in textwrap.wrap(told, max(1, width))]
    lines[0].stylize("bold yellow", 0, len(reason))
    return lines


def _fact(label: str, text: str, width: int) -> Text:
    line = Text.assemble((f"{label:<{_LABEL}}", "dim"), shown_text(text))
    line.truncate(width, overflow="ellipsis")
    return line


def _order(story: GangStory, width: int) -> list[Text]:
    """Where its place in the order comes from, of one that waits."""
    order = story.order
    if order is None or (not order.position and not order.message):
        return []
    of_all = f" of {order.total}" if order.total else ""
    place = f"{order.position}{of_all} in line, it" if order.position else "it"
    told = textwrap.wrap(f"{place} {shown_text(order.message)}", max(1, width))
    lines = [Text(), Text("Order", "bold"), *map(Text, told)]
    if order.terms:
        table = layout_table(_TERM_COLUMNS, order.terms, _term_cells, width=width)
        lines += [table.titles(), *table.wrapped()]
    return lines


def _term_cells(term: OrderTermView) -> list[Cell]:
    return [
        shown_text(term.policy),
        shown_text(term.queue),
        shown_text(term.value),
        shown_text(term.message),
    ]


def _places(story: GangStory, picture: ClusterPicture, choice: ScreenChoice) -> list[Text]:
    """Its nodes on the map."""
    nodes = [node for node in picture.nodes if node.metadata.name in story.nodes and node.slots]
    if not nodes:
        return []
    drawn = draw_nodes(nodes, choice.numbers, width=choice.width)
    return [Text(), Text("Its nodes", "bold"), *drawn]


def _pods(story: GangStory, picture: ClusterPicture, width: int) -> list[Sequence[Text]]:
    if not story.members:
        return []
    domains = {node.metadata.name: node.domains for node in picture.nodes}
    cells = partial(_pod_cells, domains=domains)
    table = layout_table(_POD_COLUMNS, story.members, cells, width=width)
    return [[Text(), table.titles()], table]


def _pod_cells(member: MemberView, *, domains: Mapping[str, tuple[DomainView, ...]]) -> list[Cell]:
    place = domains.get(member.node, ())
    return [
        shown_text(member.name),
        shown_text(member.phase),
        shown_text(member.node) or "-",
        shown_text(member.slots),
        shown_text(place[-1].name if place else ""),
        shown_text(member.role),
        shown_text(member.sub_group),
    ]


def _story(story: GangStory, picture: ClusterPicture, width: int) -> list[Text]:
    if not story.story:
        source = picture.about.source
        told = (
            "Decisions are told by a daemon alone."
            if source == "api"
            else "Nothing was decided yet."
        )
        return [Text(), Text(told, "dim")]
    table = layout_table(DECISION_COLUMNS, story.story, decision_cells, width=width)
    return [Text(), table.titles(), *table.wrapped()]
