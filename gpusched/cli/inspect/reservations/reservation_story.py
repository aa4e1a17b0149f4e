"""``gpusched explain reservation NAME``: which nodes it keeps, when and for whom, and which gangs are there."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from gpusched.api.meta.identity import InvalidObject, parse_time
from gpusched.base.time_zones import UTC_NAME, find_time_zone
from gpusched.cli.command import table
from gpusched.cli.inspect.cluster_reader import Json, value_at
from gpusched.cli.inspect.explaining.explanation import printable_line
from gpusched.cli.inspect.listing.view_table import job_rows
from gpusched.cli.inspect.reservations.reservation_list import (
    nodes_of,
    ready_condition,
    users_of,
)
from gpusched.view.model import GangView

_GANGS_SHOWN: Final = 20
_NODES_SHOWN: Final = 8
_PARTS: Final = ("spec", "status")
_UNTOLD: Final = "no daemon has looked at it yet"


def describe_reservation(item: Json, gangs: Sequence[GangView]) -> dict[str, Any]:
    """The story of a Reservation as JSON.

    Args:
        item: as the API has it.
        gangs: that the user may see.
    """
    nodes = set(nodes_of(item))
    here = [gang for gang in gangs if not nodes.isdisjoint(gang.nodes)]
    return {
        "kind": "Reservation",
        "metadata": {"name": str(value_at(item, "metadata", "name"))},
        **{part: found if isinstance(found := item.get(part), dict) else {} for part in _PARTS},
        "gangViews": [msgspec.to_builtins(gang) for gang in here],
    }


def render_reservation(story: dict[str, Any], now: float) -> str:
    """The story as text, for a person.

    Args:
        story: as ``describe_reservation`` tells it.
        now: seconds since the epoch.
    """
    spec, status = story["spec"], story["status"]
    message = printable_line(ready_condition(story).get("message") or _UNTOLD)
    facts = [("why", message)]
    if status.get("from"):
        facts.append(
            ("window", f"{printable_line(status['from'])} to {printable_line(status['to'])}")
        )
    if again := _recurrence_text(story):
        facts.append(("again", printable_line(again)))
    facts.append(("for", printable_line(", ".join(users_of(story)) or "nobody")))
    nodes = nodes_of(story)
    if nodes:
        more = f" and {len(nodes) - _NODES_SHOWN} more" if len(nodes) > _NODES_SHOWN else ""
        facts.append(("nodes", printable_line(", ".join(nodes[:_NODES_SHOWN])) + more))
    phase = printable_line(status.get("phase") or _UNTOLD)
    purpose = printable_line(spec.get("purpose") or "Reserved")
    lines = [f"Reservation {printable_line(story['metadata']['name'])}: {phase} ({purpose})"]
    lines.append(table(facts, indent="  "))
    views = [msgspec.convert(each, GangView) for each in story["gangViews"][:_GANGS_SHOWN]]
    if views:
        lines += ["", table(job_rows(views, now, start=False, wide=True, everywhere=True))]
    if len(story["gangViews"]) > _GANGS_SHOWN:
        lines.append(f"and {len(story['gangViews']) - _GANGS_SHOWN} more: gpusched get jobs -A")
    return "\n".join(lines)


def _recurrence_text(story: Json) -> str:
    """When its windows come again: ``every 24h``, ``on Mon, Tue at 22:00 Europe/Berlin``; empty if never."""
    every, weekdays, zone, until = (
        value_at(story, "spec", "recurring", field)
        for field in ("every", "weekdays", "timeZone", "until")
    )
    ends = f" until {until}" if until else ""
    if every:
        return f"every {every}{ends}"
    if not isinstance(weekdays, list) or not weekdays:
        return ""
    days = ", ".join(str(day) for day in weekdays)
    try:
        begins = parse_time(str(value_at(story, "spec", "from")))
        clock = datetime.fromtimestamp(begins, find_time_zone(str(zone or UTC_NAME)))
    except (InvalidObject, ValueError, OverflowError):  # the daemon's sentence says what is wrong
        return f"on {days}{ends}"
    return f"on {days} at {clock:%H:%M} {zone or UTC_NAME}{ends}"
