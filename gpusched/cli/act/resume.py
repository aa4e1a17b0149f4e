"""``gpusched resume KIND NAME``: what was suspended has pods again, at once or in the turn of its queue."""

from __future__ import annotations

import argparse

from gpusched.cli.act.action import HOLD, ActionRefused, Done, Server, add_action
from gpusched.cli.act.named_objects import NamedObject
from gpusched.cli.act.suspend import is_started_by_queue, nested, suspension_place
from gpusched.cli.command import Subparsers
from gpusched.cli.inspect.cluster_reader import value_at


def register(subparsers: Subparsers) -> None:
    """Add the command to the parser."""
    add_action(
        subparsers,
        "resume",
        text="Resume what was suspended: a Job in a queue is released, and started in its turn.",
        act=resume,
    )


async def resume(server: Server, found: NamedObject, _: argparse.Namespace) -> Done:
    """Clear the field; of a Job that a queue starts only what holds it.

    Raises:
        ActionRefused: it is not suspended.
    """
    place = suspension_place(found)
    if value_at(found.item, *place) is not True:
        raise ActionRefused(f"{found.title} is not suspended")
    if not is_started_by_queue(found):
        return Done("resumed", await server.patch(found, nested(place, value=False)))
    if not found.annotation(HOLD):
        raise ActionRefused(
            f"{found.title} is not held: its queue starts it in its turn; gpusched explain job "
            f"{found.name} says why it waits"
        )
    changed = await server.patch(found, {"metadata": {"annotations": {HOLD: None}}})
    return Done("released: its queue resumes it in its turn", changed)
