"""``gpusched move KIND NAME --queue QUEUE``: a gang goes to another queue."""

from __future__ import annotations

import argparse
from typing import Final

from gpusched.api.pod.gang_annotations import QUEUE_LABEL
from gpusched.base.errors import ApiError, Denied, UsageError
from gpusched.cli.act.action import ActionRefused, Done, Server, add_action
from gpusched.cli.act.named_objects import NamedObject
from gpusched.cli.command import Subparsers
from gpusched.cli.inspect.cluster_reader import (
    GROUP_PATH,
    Json,
    is_name,
    list_objects,
    value_at,
)
from gpusched.cli.inspect.pod_groups import group_of_pod, pod_group_of_pod

_IN_SPEC: Final = ("scheduling.gpusched.io", "scheduling.volcano.sh", "scheduling.run.ai")
"""Groups of PodGroups that name their queue in ``spec.queue``; others are labelled."""
_INVALID: Final = 422
_NAMED_MAX: Final = 8


def register(subparsers: Subparsers) -> None:
    """Add the command to the parser."""
    parser = add_action(
        subparsers,
        "move",
        text="Move gangs to another queue. They keep their age; a PodGroup of gpusched moves while it waits.",
        act=move,
    )
    parser.add_argument("--queue", required=True, metavar="QUEUE", help="a queue without children")


async def move(server: Server, found: NamedObject, arguments: argparse.Namespace) -> Done:
    """Write the queue where the object names it.

    Raises:
        ActionRefused: the queue does not exist, or something else decides about the gang's queue.
    """
    queue: str = arguments.queue
    if not is_name(queue):
        raise UsageError(f"{queue[:80]!r} is no name of a queue")
    notes = await _check_queue(server, queue)
    _check_object(found)
    if found.kind == "PodGroup" and found.resource.partition(".")[2] in _IN_SPEC:
        before = str(value_at(found.item, "spec", "queue") or "")
        change: Json = {"spec": {"queue": queue}}
    else:
        before = found.label(QUEUE_LABEL)
        change = {"metadata": {"labels": {QUEUE_LABEL: queue}}}
    if before == queue:
        raise ActionRefused(f"{found.title} is in queue {queue} already")
    try:
        changed = await server.patch(found, change)
    except ApiError as error:
        if error.status == _INVALID and "has started" in str(error):
            raise ActionRefused(
                f"{found.title} has started, and its queue cannot change while it runs: gpusched requeue "
                f"{found.kind.lower()} {found.name} --hold, then move and release it when its pods are gone"
            ) from error
        raise
    came = f" from {before}" if before else ""
    return Done(f"moved{came} to queue {queue}", changed, notes)


async def _check_queue(server: Server, queue: str) -> tuple[str, ...]:
    """Notes about the queue.

    Raises:
        ActionRefused: there is none of that name, or gangs do not go there.
    """
    path = f"{GROUP_PATH}/queues"
    try:
        every = await list_objects(server.api, path, what="queues")
    except Denied:
        return (f"whether there is a queue {queue} is not known: this user may not read queues",)
    names = {str(value_at(each, "metadata", "name")) for each in every} | {"default"}
    parents = {str(value_at(each, "spec", "parent") or "root") for each in every}
    leaves = ", ".join(sorted(names - parents)[:_NAMED_MAX])
    if queue not in names:
        raise ActionRefused(f"there is no queue {queue}: known are {leaves}")
    if queue in parents:
        raise ActionRefused(f"queue {queue} has child queues, and jobs go to leaves only: {leaves}")
    return ()


def _check_object(found: NamedObject) -> None:
    """Refuse objects of which another one names the queue."""
    if found.kind == "Pod":
        group = group_of_pod(found.item)
        above = f"PodGroup or Job {group}" if group else found.controller
        if above:
            raise ActionRefused(
                f"{found.title} belongs to {above}, which names its queue: move that"
            )
    if found.kind == "Job":
        group = pod_group_of_pod(value_at(found.item, "spec", "template") or {})
        if group:
            raise ActionRefused(
                f"{found.title} makes pods of PodGroup {group}, which names their queue: move that"
            )
        if found.controller and not found.controller.startswith("CronJob "):
            raise ActionRefused(
                f"{found.title} belongs to {found.controller}, which names its queue: move that"
            )
