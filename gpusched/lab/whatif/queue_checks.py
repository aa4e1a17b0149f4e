"""What the daemon would say of queues after a change: limits that contradict those of other queues, and the like."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gpusched.api.queue.queue import DEFAULT_QUEUE
from gpusched.cache.cache import Cache
from gpusched.config.model import Config
from gpusched.engine.objects import Obj, SimulatedObjects, plural_of
from gpusched.engine.timed_changes import EditObject, TimedChange
from gpusched.lab.whatif.arrivals import LoadJob

_QUEUES_TOLD_MAX: Final = 3


def queue_remarks(
    objects: Sequence[Obj], changes: Sequence[TimedChange], config: Config, *, now: float
) -> tuple[str, ...]:
    """What the daemon says of queues then and does not say as it is, each sentence once.

    Args:
        objects: of the cluster.
        changes: that are made; those of queues count, whenever they are made.
        config: of the daemon.
        now: seconds since the Unix epoch.
    """
    edits = [each for each in changes if isinstance(each, EditObject) and each.plural == "queues"]
    if not edits:
        return ()
    cache = Cache(config.scheduler_names)
    world = SimulatedObjects((cache,), epoch=now)
    for obj in objects:
        if plural_of(obj) in ("queues", "nodes", "namespaces"):
            world.create(obj, now=0.0)
    before = _sentences(cache, now)
    for change in edits:
        queue = world.get("queues", change.key)
        if queue is not None:
            metadata = queue["metadata"]
            generation = metadata.get("generation", 1) + 1
            world.write({**change.edit(queue), "metadata": {**metadata, "generation": generation}})
    said = dict.fromkeys(each for each in _sentences(cache, now) if each not in before)
    return tuple(f"the daemon will say: {each}" for each in said)


def _sentences(cache: Cache, now: float) -> list[str]:
    queues = cache.take_snapshot(now).queues.queues
    return [
        sentence
        for _, node in sorted(queues.items())
        for sentence in (node.error, node.fault, node.warning)
        if sentence
    ]


def lost_jobs_note(objects: Sequence[Obj], jobs: Sequence[LoadJob]) -> str:
    """How many of the jobs that arrive name a queue that takes none; empty for none of them."""
    specs = [obj.get("spec") or {} for obj in objects if plural_of(obj) == "queues"]
    names = {obj["metadata"]["name"] for obj in objects if plural_of(obj) == "queues"}
    leaves = (names | {DEFAULT_QUEUE}) - {str(spec.get("parent") or "root") for spec in specs}
    lost = [job.queue for job in jobs if job.queue and job.queue not in leaves]
    if not lost:
        return ""
    told = sorted(set(lost))
    shown = ", ".join(told[:_QUEUES_TOLD_MAX])
    more = len(told) - _QUEUES_TOLD_MAX
    shown += f" and {more} more" if more > 0 else ""
    return f"{len(lost):,} of the jobs that arrive wait for ever, in queues that are not there or have child queues: {shown}"
