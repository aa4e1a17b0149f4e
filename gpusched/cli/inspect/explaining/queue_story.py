"""``gpusched explain queue NAME``: what a queue holds and is due, what waits in it and in which order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from gpusched.api.meta.gpu_resources import gpu_resources
from gpusched.api.meta.quantity import QuantityError, format_quantity, parse_quantity
from gpusched.cli.command import table
from gpusched.cli.inspect.explaining.explanation import printable_line
from gpusched.cli.inspect.listing.view_table import job_rows, sorted_jobs
from gpusched.view.model import WAITING, GangView, QueueView

_GANGS_SHOWN: Final = 20


def describe_queue(
    name: str, queues: Sequence[QueueView], gangs: Sequence[GangView]
) -> dict[str, Any] | None:
    """The story of a queue as JSON; None where there is none of the name.

    Args:
        name: of the queue.
        queues: all of them.
        gangs: that the user may see.
    """
    queue = next((each for each in queues if each.metadata.name == name), None)
    if queue is None:
        return None
    own = [gang for gang in gangs if gang.queue == name]
    below = sorted(each.metadata.name for each in queues if each.parent == name)
    return {
        "kind": "Queue",
        **msgspec.to_builtins(queue),
        "children": below,
        "waiting": [msgspec.to_builtins(gang) for gang in sorted_jobs(own, "queue", waiting=True)],
        "started": [
            msgspec.to_builtins(gang) for gang in sorted_jobs(own, "gpus") if gang.state != WAITING
        ],
    }


def render_queue(story: dict[str, Any], now: float) -> str:
    """The story as text, for a person.

    Args:
        story: as ``describe_queue`` tells it.
        now: seconds since the epoch.
    """
    gpus = story["gpus"]
    name, parent = printable_line(story["metadata"]["name"]), printable_line(story["parent"])
    state = printable_line(story["state"]) or "no daemon has looked at it yet"
    facts = []
    if story["state"]:
        facts.append(
            (
                "holds",
                f"{gpus['allocated']} GPUs, requests {gpus['requested']}, borrows {gpus['borrowed']}",
            )
        )
    due = {"now": gpus["fairShare"], "deserved": gpus["deserved"], "at most": gpus["limit"]}
    facts.append(
        (
            "due",
            ", ".join(f"{what} {amount}" for what, amount in due.items() if amount)
            or "its part by weight",
        )
    )
    if story["state"]:
        told = f"{story['running']} running, {story['inqueue']} admitted, {story['pending']} not admitted"
        facts.append(("gangs", told))
    order = printable_line(story["ordering"]) or "Priority"
    facts.append(("order", f"{order}, weight {story['weight']} under {parent or 'root'}"))
    if story["budget"]:
        facts.append(("budget", _budget_text(story["budget"])))
    if story["children"]:
        facts.append(("below", ", ".join(map(printable_line, story["children"]))))
    if story["message"]:
        facts.append(("why", printable_line(story["message"])))
    if story["warning"]:
        facts.append(("warning", printable_line(story["warning"])))
    lines = [f"Queue {name}: {state}", table(facts, indent="  ")]
    users = _user_rows(story)
    if len(users) > 1:
        lines += ["", table(users)]
    for gangs in (story["waiting"], story["started"]):
        views = [msgspec.convert(each, GangView) for each in gangs[:_GANGS_SHOWN]]
        if views:
            waits = views[0].state == WAITING
            lines += ["", table(job_rows(views, now, start=waits, wide=False, everywhere=True))]
        if len(gangs) > _GANGS_SHOWN:
            lines.append(
                f"and {len(gangs) - _GANGS_SHOWN} more: gpusched get jobs -A --sort-by queue"
            )
    return "\n".join(lines)


def _budget_text(budget: dict[str, Any]) -> str:
    told = f"{budget['used']} of {budget['available']} GPU-hours used, {budget['percent']} percent"
    opens = "nothing with GPUs starts before" if budget["reason"] == "BudgetExhausted" else "until"
    return printable_line(f"{told}; {opens} {budget['nextPeriod']}")


def _user_rows(story: dict[str, Any]) -> list[list[str]]:
    """A header and a line for each user whose gangs are seen, or who used any of the budget."""
    used = {each["name"]: each["used"] for each in (story["budget"] or {}).get("users", ())}
    names = {gang["user"] for part in ("started", "waiting") for gang in story[part]}
    if not (names | used.keys()) - {""}:
        return []
    rows = [["USER", "GPUS", "RUNNING", "WAITING", "USED"]]
    for name in sorted(names | used.keys()):
        started = [gang for gang in story["started"] if gang["user"] == name]
        waiting = sum(gang["user"] == name for gang in story["waiting"])
        gpus = sum(_gpu_thousandths(gang["gpus"]) for gang in started)
        rows.append(
            [
                printable_line(name) or "<not known>",
                format_quantity(gpus, resource=gpu_resources().main.name),
                str(len(started)),
                str(waiting),
                used.get(name, ""),
            ]
        )
    return rows


def _gpu_thousandths(text: str) -> int:
    try:
        return parse_quantity(text, power=3) if text else 0
    except QuantityError:
        return 0
