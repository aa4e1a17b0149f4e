"""Queues, gangs that wait and run, and decisions: a row each, filtered and sorted. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from rich.text import Text

from gpusched.cli.inspect.live.screen.gpu_map import gang_letter, gang_style
from gpusched.cli.inspect.live.screen.picture import (
    ClusterPicture,
    DrawnView,
    ScreenChoice,
    draw_bar,
    shown_text,
    time_since,
    time_until,
)
from gpusched.cli.inspect.live.screen.screen_table import Cell, ScreenColumn, layout_table
from gpusched.cli.inspect.live.screen.summary import gpu_amount, turn_key
from gpusched.view.model import WAITING, DecisionView, GangView, QueueView

QUEUE_WORD: Final = "queue:"
_BAR_LEAST, _BAR_MOST = 8, 32
_LATEST: Final = "9999"
"""Sorts behind every time that is known."""
_EVENT_STYLES: Final = MappingProxyType(
    {"starts": "green", "grows": "green", "waits": "yellow", "claims": "magenta", "loses": "red"}
)
ORDERS: Final[Mapping[str, Mapping[str, Callable[[Any], Any]]]] = MappingProxyType(
    {
        "waiting": {
            "turn": turn_key,
            "name": lambda gang: gang.key,
            "gpus": lambda gang: (-gpu_amount(gang.gpus), gang.key),
            "priority": lambda gang: (-gang.priority, turn_key(gang)),
            "since": lambda gang: (gang.since or _LATEST, gang.key),
            "start": lambda gang: (gang.estimated_start_time or _LATEST, turn_key(gang)),
        },
        "running": {
            "queue": lambda gang: (gang.queue, gang.key),
            "name": lambda gang: gang.key,
            "gpus": lambda gang: (-gpu_amount(gang.gpus), gang.key),
            "since": lambda gang: (gang.since or _LATEST, gang.key),
            "end": lambda gang: (gang.expected_end_time or _LATEST, gang.key),
        },
        "queues": {
            "tree": lambda queue: queue.metadata.name,
            "held": lambda queue: (-gpu_amount(queue.gpus.allocated), queue.metadata.name),
            "borrowed": lambda queue: (-gpu_amount(queue.gpus.borrowed), queue.metadata.name),
            "waiting": lambda queue: (-queue.pending - queue.inqueue, queue.metadata.name),
        },
    }
)
"""How rows of a view are sorted, by name; the first is what is shown unless told."""


def draw_queues(picture: ClusterPicture, choice: ScreenChoice) -> DrawnView:
    """A row for each queue: what it holds, is due, borrows and asks for, with a bar."""
    if not picture.about.queues:
        return _sentence("Queues are not shown to this user.")
    order = order_of(choice, "queues")
    rows = _queue_rows(picture.queues, choice, order)
    if not rows:
        return _sentence("No queue is like that." if choice.typed else "There are no queues.")
    whole = max(
        sum(gpu_amount(node.gpus) for node in picture.nodes),
        *(max(gpu_amount(q.gpus.allocated), gpu_amount(q.gpus.fair_share)) for q, _ in rows),
    )
    bar = max(_BAR_LEAST, min(_BAR_MOST, choice.width - 62))
    cells = partial(_queue_cells, whole=whole, bar=bar)
    table = layout_table(_QUEUE_COLUMNS, rows, cells, width=choice.width)
    keys = [f"queue {queue.metadata.name}" for queue, _ in rows]
    return DrawnView(heads=(table.titles(),), lines=table, keys=keys)


def draw_waiting(picture: ClusterPicture, choice: ScreenChoice) -> DrawnView:
    """A row for each gang that waits, of each queue the next one first."""
    gangs = [gang for gang in chosen_gangs(picture, choice) if gang.state == WAITING]
    gangs.sort(key=order_of(choice, "waiting"), reverse=choice.backwards)
    if not gangs:
        return _sentence(_nothing("waits", choice))
    cells = partial(_waiting_cells, picture=picture, choice=choice)
    table = layout_table(_WAITING_COLUMNS, gangs, cells, width=choice.width)
    return DrawnView(heads=(table.titles(),), lines=table, keys=_gang_keys(gangs))


def draw_running(picture: ClusterPicture, choice: ScreenChoice) -> DrawnView:
    """A row for each gang that starts, runs or ends, with the letter that it has on the map."""
    gangs = [gang for gang in chosen_gangs(picture, choice) if gang.state != WAITING]
    gangs.sort(key=order_of(choice, "running"), reverse=choice.backwards)
    if not gangs:
        return _sentence(_nothing("runs", choice))
    cells = partial(_running_cells, picture=picture, choice=choice)
    table = layout_table(_RUNNING_COLUMNS, gangs, cells, width=choice.width)
    return DrawnView(heads=(table.titles(),), lines=table, keys=_gang_keys(gangs))


def draw_decisions(picture: ClusterPicture, choice: ScreenChoice) -> DrawnView:
    """Decisions, the newest first."""
    if picture.about.source == "api":
        return _sentence("Decisions are told by a daemon alone; the API does not keep them.")
    found = [each for each in picture.decisions if _is_decision_chosen(each, choice)]
    if not choice.backwards:
        found.reverse()
    if not found:
        return _sentence(
            "No decision is like that." if choice.typed else "Nothing was decided yet."
        )
    table = layout_table(DECISION_COLUMNS, found, decision_cells, width=choice.width)
    keys = [f"gang {each.gang.namespace}/{each.gang.kind}/{each.gang.name}" for each in found]
    return DrawnView(heads=(table.titles(),), lines=table, keys=keys)


def decision_cells(decision: DecisionView) -> list[Cell]:
    """Time, event and sentence."""
    return [
        shown_text(decision.time[11:]),
        Text(shown_text(decision.event), _EVENT_STYLES.get(decision.event, "")),
        shown_text(decision.message),
    ]


def chosen_gangs(picture: ClusterPicture, choice: ScreenChoice) -> list[GangView]:
    """Gangs of the namespace and with the words that were typed."""
    words = choice.typed.lower().split()
    return [
        gang
        for gang in picture.gangs
        if (not choice.namespace or gang.metadata.namespace == choice.namespace)
        and (not words or _has_words(words, gang.queue, partial(_gang_words, gang)))
    ]


def order_of(choice: ScreenChoice, view: str) -> Callable[[Any], Any]:
    """How rows of a view are sorted."""
    orders = ORDERS[view]
    named = orders.get(choice.order) if choice.view == view else None
    return named or next(iter(orders.values()))


def _queue_cells(row: tuple[QueueView, int], *, whole: int, bar: int) -> list[Cell]:
    queue, depth = row
    gpus = queue.gpus
    due = gpu_amount(gpus.fair_share) if gpus.fair_share else None
    borrowed = gpus.borrowed if gpu_amount(gpus.borrowed) else ""
    return [
        "  " * depth + shown_text(queue.metadata.name),
        shown_text(gpus.allocated),
        shown_text(gpus.fair_share),
        Text(shown_text(borrowed), "yellow"),
        draw_bar(gpu_amount(gpus.allocated), whole, columns=bar, due=due),
        str(queue.running or ""),
        Text(str(queue.pending + queue.inqueue or ""), "yellow"),
        shown_text(gpus.requested),
        shown_text(gpus.deserved),
        shown_text(gpus.limit),
        Text(shown_text(queue.message or _unusual(queue.state)), "red"),
    ]


def _waiting_cells(gang: GangView, *, picture: ClusterPicture, choice: ScreenChoice) -> list[Cell]:
    return [
        str(gang.position or "-"),
        _gang_name(gang, choice),
        shown_text(gang.queue),
        shown_text(gang.gpus),
        f"{gang.placed}/{gang.min_member}",
        time_since(gang.since, picture.now),
        Text(time_until(gang.estimated_start_time, picture.now), "cyan"),
        str(gang.priority),
        shown_text(gang.gang_kind),
        _reason_text(gang),
    ]


def _running_cells(gang: GangView, *, picture: ClusterPicture, choice: ScreenChoice) -> list[Cell]:
    return [
        _letter(gang.key, choice),
        _gang_name(gang, choice),
        shown_text(gang.queue),
        shown_text(gang.gpus),
        f"{gang.placed}/{gang.placed + gang.waiting}",
        time_since(gang.since, picture.now),
        Text(time_until(gang.expected_end_time, picture.now), "cyan"),
        shown_text(gang.state),
        shown_text(gang.gang_kind),
        shown_text(gang.gpu_type),
        shown_text(", ".join(gang.nodes)),
    ]


def _queue_rows(
    queues: Sequence[QueueView], choice: ScreenChoice, order: Callable[[Any], Any]
) -> list[tuple[QueueView, int]]:
    """Queues with their depth: the children behind their parent, unless they are filtered or sorted otherwise."""
    by_tree = order is ORDERS["queues"]["tree"]
    backwards = choice.backwards and choice.view == "queues"
    queues = sorted(queues, key=order, reverse=backwards)
    words = choice.typed.lower().split() if choice.view == "queues" else []
    if words or not by_tree:
        return [
            (queue, 0)
            for queue in queues
            if _has_words(words, queue.metadata.name, partial(str, queue.metadata.name))
        ]
    names = {queue.metadata.name for queue in queues}
    below: dict[str, list[QueueView]] = {}
    for queue in queues:
        parent = queue.parent if queue.parent in names - {queue.metadata.name} else ""
        below.setdefault(parent, []).append(queue)
    rows: list[tuple[QueueView, int]] = []
    seen: set[str] = set()
    pending = [(queue, 0) for queue in reversed(below.get("", []))]
    while pending:
        queue, depth = pending.pop()
        rows.append((queue, depth))
        seen.add(queue.metadata.name)
        children = below.get(queue.metadata.name, [])
        pending += [(each, depth + 1) for each in reversed(children)]
    rows += [(queue, 0) for queue in queues if queue.metadata.name not in seen]
    return rows


def _has_words(words: Iterable[str], queue: str, text: Callable[[], str]) -> bool:
    rest = []
    for word in words:
        if word.startswith(QUEUE_WORD):
            if queue.lower() != word.removeprefix(QUEUE_WORD):
                return False
        else:
            rest.append(word)
    if not rest:
        return True
    told = text().lower()
    return all(word in told for word in rest)


def _gang_words(gang: GangView) -> str:
    metadata = gang.metadata
    owner = f"{gang.owner.kind}/{gang.owner.name}" if gang.owner is not None else ""
    name = f"{metadata.namespace}/{metadata.name} {gang.gang_kind} {owner}"
    return f"{name} {gang.queue} {gang.state} {gang.reason} {gang.message} {' '.join(gang.nodes)}"


def _is_decision_chosen(decision: DecisionView, choice: ScreenChoice) -> bool:
    about = decision.gang
    if choice.namespace and about.namespace != choice.namespace:
        return False
    words = [word for word in choice.typed.lower().split() if not word.startswith(QUEUE_WORD)]
    told = f"{about.namespace}/{about.name} {decision.event} {decision.message}".lower()
    return all(word in told for word in words)


def _gang_name(gang: GangView, choice: ScreenChoice) -> str:
    metadata = gang.metadata
    name = metadata.name if choice.namespace else f"{metadata.namespace}/{metadata.name}"
    return shown_text(name)


def _letter(key: str, choice: ScreenChoice) -> Text:
    number = choice.numbers.get(key)
    return Text("") if number is None else Text(f" {gang_letter(number)} ", gang_style(number))


def _reason_text(gang: GangView) -> Text:
    if not gang.reason and not gang.message:
        return Text("nothing was said about it yet", "dim")
    between = ": " if gang.reason and gang.message else ""
    return Text.assemble((shown_text(gang.reason), "yellow"), between, shown_text(gang.message))


def _unusual(state: str) -> str:
    return "" if state in {"", "Open"} else state


def _nothing(what: str, choice: ScreenChoice) -> str:
    if choice.typed:
        return f"No gang that {what} is like that."
    where = f" in namespace {shown_text(choice.namespace)}" if choice.namespace else ""
    return f"Nothing {what}{where}."


def _gang_keys(gangs: Iterable[GangView]) -> list[str]:
    return [f"gang {gang.key}" for gang in gangs]


def _sentence(text: str) -> DrawnView:
    return DrawnView(lines=[Text(text)], keys=[""])


_QUEUE_COLUMNS: Final = (
    ScreenColumn(title="QUEUE", importance=9, widest=32, narrowest=18),
    ScreenColumn(title="HELD", right=True, importance=9),
    ScreenColumn(title="DUE", right=True, importance=9),
    ScreenColumn(title="BORROWED", right=True, importance=8),
    ScreenColumn(title="", importance=6),
    ScreenColumn(title="RUNNING", right=True, importance=8),
    ScreenColumn(title="WAITING", right=True, importance=8),
    ScreenColumn(title="REQUESTED", right=True, importance=5),
    ScreenColumn(title="DESERVED", right=True, importance=3),
    ScreenColumn(title="LIMIT", right=True, importance=4),
    ScreenColumn(title="", importance=7, narrowest=24, takes_rest=True),
)
_WAITING_COLUMNS: Final = (
    ScreenColumn(title="TURN", right=True, importance=9),
    ScreenColumn(title="GANG", importance=9, widest=40, narrowest=16),
    ScreenColumn(title="QUEUE", importance=7, widest=20, narrowest=8),
    ScreenColumn(title="GPUS", right=True, importance=8),
    ScreenColumn(title="PODS", right=True, importance=3),
    ScreenColumn(title="SINCE", right=True, importance=8),
    ScreenColumn(title="START", right=True, importance=8),
    ScreenColumn(title="PRIO", right=True, importance=2),
    ScreenColumn(title="KIND", importance=1, widest=16),
    ScreenColumn(title="WHY", importance=9, narrowest=20, wanted=60, takes_rest=True),
)
_RUNNING_COLUMNS: Final = (
    ScreenColumn(title="", importance=8),
    ScreenColumn(title="GANG", importance=9, widest=40, narrowest=16),
    ScreenColumn(title="QUEUE", importance=8, widest=20, narrowest=8),
    ScreenColumn(title="GPUS", right=True, importance=8),
    ScreenColumn(title="PODS", right=True, importance=7),
    ScreenColumn(title="SINCE", right=True, importance=7),
    ScreenColumn(title="END", right=True, importance=6),
    ScreenColumn(title="STATE", importance=5),
    ScreenColumn(title="KIND", importance=2, widest=16),
    ScreenColumn(title="TYPE", importance=3, widest=24),
    ScreenColumn(title="NODES", importance=6, narrowest=12, wanted=24, takes_rest=True),
)
DECISION_COLUMNS: Final = (
    ScreenColumn(title="TIME", importance=9),
    ScreenColumn(title="EVENT", importance=9),
    ScreenColumn(title="WHAT", importance=9, narrowest=20, takes_rest=True),
)
