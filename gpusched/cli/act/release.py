"""``gpusched release KIND NAME``: a gang that was held may start."""

from __future__ import annotations

import argparse

from gpusched.cli.act.action import HOLD, ActionRefused, Done, Server, add_action
from gpusched.cli.act.named_objects import NamedObject
from gpusched.cli.command import Subparsers


def register(subparsers: Subparsers) -> None:
    """Add the command to the parser."""
    add_action(
        subparsers,
        "release",
        text="Let gangs start again that were held: in their turn, with the age that they have.",
        act=release,
    )


async def release(server: Server, found: NamedObject, _: argparse.Namespace) -> Done:
    """Take the annotation away.

    Raises:
        ActionRefused: there is none.
    """
    if not found.annotation(HOLD):
        raise ActionRefused(
            f"{found.title} is not held: if its gang waits with reason Held, gpusched get jobs "
            "-o wide names the object that holds it"
        )
    changed = await server.patch(found, {"metadata": {"annotations": {HOLD: None}}})
    return Done("released", changed)
