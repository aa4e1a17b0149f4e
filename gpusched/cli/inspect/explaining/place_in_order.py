"""Where a gang that waits is in the order, as ``explain`` tells it; ``get priority`` tells each term."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from gpusched import __version__
from gpusched.cli.command import clean_cell
from gpusched.io.serve.view_client import ViewClient
from gpusched.view.gang_story import GangStory
from gpusched.view.model import WAITING

_GANGS_NAMED: Final = 3
"""Gangs of one object whose places are told; ``get priority`` has all."""


def describe_places(gangs: Sequence[dict[str, Any]]) -> list[str]:
    """One line for each gang that is in line: its position, and what puts it after the one before it.

    Args:
        gangs: of the view, as JSON.
    """
    waiting = [each for each in gangs if (each.get("order") or {}).get("position")]
    several = len(waiting) > 1
    return [_place(each, named=several) for each in waiting[:_GANGS_NAMED]]


async def missing_order_notes(client: ViewClient, gangs: Sequence[GangStory]) -> tuple[str, ...]:
    """That a daemon of another version tells no place of gangs that wait; empty where it does."""
    if all(each.order is not None for each in gangs if each.state == WAITING):
        return ()
    version = await client.version()
    return (
        f"the daemon is of version {version}, which does not tell the place in the order; this is {__version__}",
    )


def _place(gang: dict[str, Any], *, named: bool) -> str:
    order = gang["order"]
    total = f" of {order['total']}" if order["total"] else ""
    inside = f" of {order['queueTotal']}" if order["queueTotal"] else ""
    name = f"{gang['metadata']['name']}: " if named else ""
    place = f"{order['position']}{total} in line, {order['queuePosition']}{inside} in its queue"
    return clean_cell(f"{name}{place}: {order['message']}")
