"""``gpusched hold KIND NAME``: a gang waits, keeps its age and is not started until it is released."""

from __future__ import annotations

import argparse

from gpusched.cli.act.action import HOLD, ActionRefused, Done, Server, add_action
from gpusched.cli.act.named_objects import NamedObject
from gpusched.cli.command import Subparsers
from gpusched.cli.inspect.cluster_reader import value_at

_BY_HAND = "by hand"
_REASON_MAX = 160


def register(subparsers: Subparsers) -> None:
    """Add the command to the parser."""
    parser = add_action(
        subparsers,
        "hold",
        text="Let gangs wait: they keep their age, take no room and block nobody. What runs goes on; "
        "what is made again waits. gpusched release ends it.",
        act=hold,
    )
    parser.add_argument("--reason", default="", metavar="TEXT", help="is told with your name")


async def hold(server: Server, found: NamedObject, arguments: argparse.Namespace) -> Done:
    """Write the annotation, with who it was and why.

    Raises:
        ActionRefused: nothing of the object can wait any more.
    """
    if found.kind == "Pod" and value_at(found.item, "spec", "nodeName"):
        raise ActionRefused(
            f"{found.title} has a node already: gpusched requeue takes what runs from its nodes"
        )
    text = await hold_text(server, arguments.reason)
    changed = await server.patch(found, {"metadata": {"annotations": {HOLD: text}}})
    return Done("held", changed)


async def hold_text(server: Server, reason: str) -> str:
    """Who holds, and why, as far as both are known."""
    who = await server.user_name()
    why = " ".join(reason.split())[:_REASON_MAX]
    return ": ".join(part for part in (who, why) if part) or _BY_HAND
