"""``gpusched requeue KIND NAME``: members that run end, their controllers make them again, and the gang waits."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from gpusched.api.meta.identity import ObjectKey
from gpusched.api.pod.pod import Pod
from gpusched.base.clock import SystemClock
from gpusched.base.errors import ApiError, BudgetRefused
from gpusched.cache.gangs.gang import Gang
from gpusched.cli.act.action import HOLD, ActionRefused, Done, Server, add_action
from gpusched.cli.act.ended_pods import fatal_failures_text, forbidding_budget_text
from gpusched.cli.act.hold import hold_text
from gpusched.cli.act.named_objects import NamedObject
from gpusched.cli.act.suspend import is_started_by_queue
from gpusched.cli.command import Subparsers
from gpusched.cli.inspect import cluster_reader
from gpusched.cli.inspect.cluster_reader import Json
from gpusched.cli.inspect.listing.api_objects import read_objects
from gpusched.session.framework.reasons import pods_text

_HELD_BACK_NAMED_MAX = 3


def register(subparsers: Subparsers) -> None:
    """Add the command to the parser."""
    parser = add_action(
        subparsers,
        "requeue",
        text="Take the members of gangs that run from their nodes, within disruption budgets; controllers "
        "make them again, and the gangs wait with the age that they have. A Job in a queue is suspended for "
        "that, which fails nothing; all others are evicted.",
        act=requeue,
    )
    parser.add_argument("--hold", action="store_true", help="and hold them, as gpusched hold does")
    parser.set_defaults(config=None)


async def requeue(server: Server, found: NamedObject, arguments: argparse.Namespace) -> Done:
    """Evict, after the hold where one is wanted.

    Raises:
        ActionRefused: nothing runs, a member would not be made again, or none may be evicted.
    """
    config = cluster_reader.configuration(arguments.config)
    scope = f"/namespaces/{found.namespace}"
    known = await read_objects(
        server.api, scope, schedulers=config.scheduler_names, now=SystemClock().now()
    )
    gangs = [gang for gang in known.gangs if _is_of(gang, found)]
    members = {member.pod.uid: member.pod for gang in gangs for member in gang.placed}
    pods = sorted(members.values(), key=lambda pod: pod.key)
    if not pods:
        raise ActionRefused(f"{found.title} has no pod on a node that gpusched schedules")
    for pod in pods:
        if pod.owner is None:
            raise ActionRefused(
                f"nothing is evicted of {found.title}: no controller makes pod {pod.name} again, so that "
                f"it would be lost; kubectl delete pod {pod.name} ends it"
            )
    if is_started_by_queue(found) and not _is_made_by_another_controller(found):
        return await _suspend(server, found, pods, hold=arguments.hold)
    fatal = fatal_failures_text(
        (item for key, item in known.objects.items() if key.kind == "Job"), pods
    )
    if fatal:
        raise ActionRefused(f"nothing is evicted of {found.title}: {fatal}")
    item, text = found.item, ""
    if arguments.hold:
        why = await hold_text(server, "requeued")
        item = await server.patch(found, {"metadata": {"annotations": {HOLD: why}}})
        text = " and held"
    evicted, kept = await _evict_all(server, pods)
    if not evicted:
        raise kept[0]
    notes = [f"{error}" for error in kept[:_HELD_BACK_NAMED_MAX]]
    notes += [f"and {len(kept) - len(notes)} more pods"] if len(kept) > len(notes) else []
    warnings = {gang.eviction_warning.message for gang in gangs if gang.eviction_warning}
    of = f" of {len(pods)}" if kept else ""
    done = f"requeued{text} ({evicted}{of} {pods_text(len(pods)).partition(' ')[2]} evicted)"
    return Done(done, item, (*sorted(warnings), *notes))


async def _suspend(server: Server, found: NamedObject, pods: Sequence[Pod], *, hold: bool) -> Done:
    """Suspend a Job that its queue starts again, as the daemon does where it makes room: nothing of it fails."""
    forbids = await forbidding_budget_text(server.api, found.namespace, pods)
    if forbids:
        raise ActionRefused(f"{found.title} is not suspended: {forbids}")
    change: Json = {"spec": {"suspend": True}}
    if hold:
        change["metadata"] = {"annotations": {HOLD: await hold_text(server, "requeued")}}
    item = await server.patch(found, change)
    ended = f"{pods_text(len(pods))} ended"
    return Done(f"requeued and held ({ended})" if hold else f"requeued ({ended})", item)


def _is_made_by_another_controller(found: NamedObject) -> bool:
    return bool(found.controller) and not found.controller.startswith("CronJob ")


def _is_of(gang: Gang, found: NamedObject) -> bool:
    """Whether the gang is what the object stands for, or has a member that it made."""
    if (gang.key.kind, gang.key.name) == (found.kind, found.name):
        return True
    made = [member.pod for member in gang.placed]
    if found.kind == "Pod":
        return any(pod.key == ObjectKey(found.namespace, found.name) for pod in made)
    return any(
        pod.owner is not None and (pod.owner.kind, pod.owner.name) == (found.kind, found.name)
        for pod in made
    )


async def _evict_all(server: Server, pods: list[Pod]) -> tuple[int, list[ApiError]]:
    """How many pods are evicted, and why others are not: a budget, or no right."""
    evicted = 0
    kept: list[ApiError] = []
    for pod in pods:
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": {"preconditions": {"uid": pod.uid}},
        }
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/eviction"
        try:
            await server.send("POST", path, body, doing=f"evict pod {pod.name}")
        except BudgetRefused as error:
            kept.append(error)
            continue
        except ApiError as error:
            if not evicted:
                raise
            kept.append(error)
            continue
        evicted += 1
    return evicted, kept
