"""``gpusched suspend KIND NAME``: a Job, or what makes Jobs, has no pods until it is resumed."""

from __future__ import annotations

import argparse
from typing import Final

from gpusched.api.pod.gang_annotations import read_queue_name
from gpusched.cli.act.action import HOLD, ActionRefused, Done, Server, add_action
from gpusched.cli.act.hold import hold_text
from gpusched.cli.act.named_objects import NamedObject
from gpusched.cli.command import Subparsers
from gpusched.cli.inspect.cluster_reader import Json, value_at

_SPEC: Final = ("spec", "suspend")
_RUN_POLICY: Final = ("spec", "runPolicy", "suspend")
_PLACES: Final = {
    "Job": _SPEC,
    "JobSet": _SPEC,
    "RayCluster": _SPEC,
    **dict.fromkeys(("PyTorchJob", "TFJob", "XGBoostJob", "JAXJob", "PaddleJob", "MPIJob"), _RUN_POLICY),
}  # fmt: skip
"""Where objects say that they are suspended, by kind."""


def register(subparsers: Subparsers) -> None:
    """Add the command to the parser."""
    add_action(
        subparsers,
        "suspend",
        text="End the pods of Jobs, and of what is suspended as Jobs are, until gpusched resume. Unlike "
        "requeue it counts as no failure; a Job in a queue is held as well, as its queue would start it again.",
        act=suspend,
    )


async def suspend(server: Server, found: NamedObject, _: argparse.Namespace) -> Done:
    """Set the field, and hold what a queue would start again.

    Raises:
        ActionRefused: it cannot be suspended.
    """
    place = suspension_place(found)
    if value_at(found.item, *place) is True and not is_started_by_queue(found):
        raise ActionRefused(f"{found.title} is suspended already")
    change = nested(place, value=True)
    if is_started_by_queue(found):
        text = await hold_text(server, "suspended")
        change["metadata"] = {"annotations": {HOLD: text}}
        return Done("suspended and held", await server.patch(found, change))
    return Done("suspended", await server.patch(found, change))


def suspension_place(found: NamedObject) -> tuple[str, ...]:
    """The field that suspends an object.

    Raises:
        ActionRefused: there is none, or another controller decides about it.
    """
    place = _PLACES.get(found.kind)
    if place is None:
        raise ActionRefused(
            f"{found.title} cannot be suspended, a {found.kind} has no field for it: gpusched hold keeps "
            "what waits, gpusched requeue takes what runs from its nodes"
        )
    if found.kind == "Job" and found.controller and not found.controller.startswith("CronJob "):
        raise ActionRefused(
            f"{found.title} belongs to {found.controller}, which suspends and resumes it: name that"
        )
    ends = value_at(found.item, "status", "conditions") or ()
    if any(
        each.get("type") in {"Complete", "Failed"} and each.get("status") == "True" for each in ends
    ):
        raise ActionRefused(f"{found.title} is over")
    return place


def is_started_by_queue(found: NamedObject) -> bool:
    """Whether a suspended Job names a queue, so that the daemon starts it in its turn."""
    if found.kind != "Job":
        return False
    template = value_at(found.item, "spec", "template", "metadata", "labels") or {}
    own = value_at(found.item, "metadata", "labels") or {}
    return bool(read_queue_name(own, None) or read_queue_name(template, None))


def nested(place: tuple[str, ...], *, value: bool) -> Json:
    """A patch with a value at a path of keys."""
    change: Json = {place[-1]: value}
    for key in reversed(place[:-1]):
        change = {key: change}
    return change
