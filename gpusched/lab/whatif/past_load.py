"""What arrived and how long it ran, from the history of gangs: the load that is played again, and run times that are guessed from it."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from gpusched.api.meta.duration import NANOSECONDS, format_duration
from gpusched.api.meta.identity import parse_time
from gpusched.base.classes import frozen
from gpusched.engine.objects import Obj
from gpusched.io.history.history_query import RUNNING, WAITING
from gpusched.lab.whatif.arrivals import LoadJob

_HOUR_S: Final = 3_600.0
_RUNS_MIN: Final = 3
"""Fewer runs of a queue tell nothing of the next one."""
_OPEN: Final = (WAITING, RUNNING)
_QUEUE: Final = "gpusched.io/queue"
_GROUP: Final = "gpusched.io/pod-group"

GangName = tuple[str, str, str]
"""Kind, namespace and name."""


@frozen(kw_only=True)
class PastGang:
    """All runs of one gang in the history.

    Attributes:
        created: seconds since the epoch, as is ``started``.
        started: of its latest run, 0.0 where it waits.
        run_s: how long its last run lasted; None where it waits or runs still.
    """

    name: GangName
    queue: str
    user: str
    priority: int
    members: int
    gpus: int
    created: float
    started: float
    run_s: float | None


def gangs_of_history(items: Iterable[Mapping[str, Any]]) -> tuple[PastGang, ...]:
    """Gangs by the time at which they were made.

    Args:
        items: runs as ``/v1/history`` and ``get history -o json`` have them.
    """
    by_uid: dict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for item in items:
        by_uid[item["metadata"]["uid"], item["metadata"]["name"]].append(item)
    found = [_gang(runs) for runs in by_uid.values()]
    return tuple(sorted(found, key=lambda gang: (gang.created, gang.name)))


def _gang(runs: list[Mapping[str, Any]]) -> PastGang:
    last = max(runs, key=_run_order)
    is_open = last["state"] in _OPEN
    started = parse_time(last["started"])
    return PastGang(
        name=(last["gangKind"], last["metadata"]["namespace"], last["metadata"]["name"]),
        queue=last["queue"],
        user=last["user"],
        priority=int(last["priority"]),
        members=max(int(run["members"]) for run in runs),
        gpus=max(_thousandths(run["gpus"]) for run in runs),
        created=min(parse_time(run["created"]) for run in runs),
        started=started,
        run_s=None if is_open or not started else float(last["runSeconds"]),
    )


def _run_order(run: Mapping[str, Any]) -> tuple[bool, float, float]:
    """Runs of one gang in their order; one that has not ended is the last."""
    return run["state"] in _OPEN, parse_time(run["since"]), parse_time(run["started"])


def _thousandths(text: str) -> int:
    try:
        return round(1000 * float(text))
    except ValueError:
        return 0


class RunTimeGuesses:
    """How long gangs run that do not say it, by what ran before.

    The median of the runs of the same user in the same queue, else of the queue, else of all, of which
    there are three at least, and which lasted longer than the gang has run already.
    """

    def __init__(self, gangs: Sequence[PastGang], *, now: float) -> None:
        self._now = now
        self._open = {gang.name: gang for gang in gangs if gang.run_s is None}
        self._lengths: dict[tuple[str, ...], list[float]] = defaultdict(list)
        for gang in gangs:
            if gang.run_s is not None:
                for key in _keys(gang.queue, gang.user):
                    self._lengths[key].append(gang.run_s)

    def guess_run(self, queue: str, user: str, *, ran_s: float = 0.0) -> float | None:
        """Seconds from the start to the end; None where the history cannot tell.

        Args:
            queue: of the gang.
            user: who made it; empty where that is not known.
            ran_s: so long it has run already.
        """
        for key in _keys(queue, user):
            longer = [length for length in self._lengths.get(key, ()) if length > ran_s]
            if len(longer) >= _RUNS_MIN:
                return statistics.median(longer)
        return None

    def guess_object(self, obj: Obj) -> str:
        """The same for a pod or a Job of a cluster, as a duration; empty where it cannot tell."""
        names = _gang_names(obj)
        gang = next((self._open[name] for name in names if name in self._open), None)
        labels = obj["metadata"].get("labels") or {}
        queue = gang.queue if gang is not None else labels.get(_QUEUE, "default")
        user = gang.user if gang is not None else ""
        ran_s = self._now - gang.started if gang is not None and gang.started else 0.0
        found = self.guess_run(queue, user, ran_s=max(0.0, ran_s))
        return format_duration(round(found) * NANOSECONDS) if found is not None else ""


def _keys(queue: str, user: str) -> tuple[tuple[str, ...], ...]:
    return ((queue, user), (queue,), ()) if user else ((queue,), ())


def _gang_names(obj: Obj) -> list[GangName]:
    """Gangs that a pod or Job may be of."""
    metadata = obj["metadata"]
    space = metadata.get("namespace") or "default"
    group = (metadata.get("labels") or {}).get(_GROUP)
    names = [("PodGroup", space, group)] if group else []
    names += [
        (owner["kind"], space, owner["name"])
        for owner in metadata.get("ownerReferences") or ()
        if owner.get("controller")
    ]
    return [*names, (obj["kind"], space, metadata["name"])]


@frozen(kw_only=True)
class PastLoad:
    """The load of a window of the past.

    Attributes:
        jobs: that arrived in it, by time since its beginning.
        window_s: its length.
        guessed: jobs whose run time is a guess, as they wait or run still.
        left_out: jobs of which nothing tells how long they run.
    """

    jobs: tuple[LoadJob, ...]
    window_s: float
    guessed: int
    left_out: int


def past_load(
    gangs: Sequence[PastGang], guesses: RunTimeGuesses, *, now: float, window_s: float
) -> PastLoad:
    """What arrived in the window that ends now.

    Args:
        gangs: of the history.
        guesses: for those that have not ended.
        now: seconds since the epoch.
        window_s: seconds.
    """
    begin, jobs = now - window_s, []
    guessed = left_out = 0
    for gang in gangs:
        if not begin <= gang.created < now:
            continue
        run_s = gang.run_s
        if run_s is None:
            ran_s = now - gang.started if gang.started else 0.0
            run_s = guesses.guess_run(gang.queue, gang.user, ran_s=ran_s)
            guessed += run_s is not None
        if run_s is None:
            left_out += 1
            continue
        jobs.append(_load_job(gang, at=gang.created - begin, run_s=run_s))
    return PastLoad(jobs=tuple(jobs), window_s=window_s, guessed=guessed, left_out=left_out)


def _load_job(gang: PastGang, *, at: float, run_s: float) -> LoadJob:
    pods = max(1, gang.members)
    return LoadJob(
        name=gang.name[2],
        namespace=gang.name[1],
        queue=gang.queue,
        at=at,
        run_s=max(1, round(run_s)),
        pods=pods,
        pod_gpus=gang.gpus // pods,
        priority=gang.priority,
    )


def covered_window(gangs: Sequence[PastGang], *, now: float, wanted_s: float) -> float:
    """So much of the window does a history cover that begins with the first of these gangs; an hour at least."""
    first = min((gang.created for gang in gangs), default=now)
    return min(wanted_s, max(_HOUR_S, now - first))
