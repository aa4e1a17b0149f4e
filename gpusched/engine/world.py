"""What the parts of a simulated cluster share: objects, time, and what becomes of everything."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import Final

from gpusched.api.meta.duration import NANOSECONDS, parse_duration
from gpusched.api.meta.identity import InvalidObject, ObjectKey, format_time, parse_time
from gpusched.base.classes import frozen
from gpusched.base.debounce import Change
from gpusched.cache.cache import Cache
from gpusched.engine.job_records import LifeRecords
from gpusched.engine.objects import Obj, SimulatedObjects

Act = Callable[[], None]


class EventQueue:
    """A heap of moments, seconds since the beginning."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Act, bool, bool]] = []
        self._count = 0
        self.busy = 0
        """How many are to come that are worth waiting for."""

    def at(self, when: float, act: Act, *, aside: bool = False, news: bool = True) -> None:
        """Do something at that moment.

        Args:
            when: seconds since the beginning.
            act: what is done.
            aside: whether the run may end before it.
            news: whether who waits in vain may hope anew after it, where it is not aside.
        """
        self._count += 1
        self.busy += not aside
        heapq.heappush(self._heap, (when, self._count, act, aside, news and not aside))

    def next(self) -> float | None:
        """When the first one is due; None when there is none."""
        return self._heap[0][0] if self._heap else None

    def pop(self) -> tuple[Act, bool]:
        """Take the first one; whether it is news."""
        _, _, act, aside, news = heapq.heappop(self._heap)
        self.busy -= not aside
        return act, news


RUN_FOR: Final = "gpusched.io/run-for"
START_AFTER: Final = "gpusched.io/start-after"
STOP_AFTER: Final = "gpusched.io/stop-after"
RUN_SPEEDS: Final = "gpusched.io/run-speeds"
"""How fast the members of a gang work on each type of GPUs, as JSON: ``{"h100": 1.0, "a100": 0.45}``.
All of them work as fast as the slowest; what is run for is the time at speed 1."""


@frozen(kw_only=True)
class SimulatedDelays:
    """How long things take that no object says, seconds.

    Attributes:
        start_s: from the binding of a pod until it runs.
        stop_s: from the moment a pod is told to go until its room is free.
        assume_s: how long pods of Jobs, bare pods and pods of groups run of which nothing tells;
            None when until they are told to go. Pods of other controllers always do.
    """

    start_s: float = 1.0
    stop_s: float = 0.1
    assume_s: float | None = None


class SimulatedWorld:
    """Objects, time and records that the parts of a simulated cluster share.

    Args:
        caches: what decisions of each daemon read; all have the same objects, and differ in which they decide about.
        epoch: wall time at second 0, seconds since the Unix epoch.
        pace: how long things take.
    """

    def __init__(self, caches: Sequence[Cache], *, epoch: float, pace: SimulatedDelays) -> None:
        self.caches = caches
        self.cache = caches[0]
        """Any of them, for who reads what all have."""
        self.objects = SimulatedObjects(caches, epoch=epoch)
        self.agenda = EventQueue()
        self.lives = LifeRecords()
        self.pace = pace
        self.epoch = epoch
        self.now = 0.0
        """Seconds since the beginning."""
        self.muted = False
        """What changes now is of no interest to decisions: finished objects that go away."""
        self.ending = False
        """What changes now is that a pod has ended: of no interest while no gang waits for room."""

    @property
    def wall(self) -> float:
        """Seconds since the Unix epoch."""
        return self.epoch + self.now

    @property
    def stamp(self) -> str:
        """The wall time as the API writes it."""
        return format_time(self.wall)

    def wake(self, at: float) -> None:
        """A decision may turn out differently then although nothing has changed."""
        if at > self.now:
            self.agenda.at(at, self.wake_now, aside=True)

    def wake_now(self) -> None:
        """Decide again although nothing has changed."""
        for cache in self.caches:
            cache.change = Change.ANY
            for listener in cache.on_change:
                listener()

    def priority_of(self, obj: Obj) -> Obj:
        """A new pod's manifest with the priority that its class gives it, as admission does."""
        spec = obj["spec"]
        name = spec.get("priorityClassName")
        if spec.get("priority") is not None or not name:
            return obj
        found = self.cache.priorities.items.get(ObjectKey("", name))
        if found is None:
            return obj
        more = {"priority": found.value, "preemptionPolicy": found.preemption_policy}
        return {**obj, "spec": {**spec, **more}}


def seconds_of(obj: Obj, annotation: str) -> float | None:
    """A duration that an annotation tells; None when it tells none, or what is no duration."""
    text = (obj["metadata"].get("annotations") or {}).get(annotation)
    if text is None:
        return None
    try:
        return parse_duration(text) / NANOSECONDS
    except ValueError:
        return None


def running_since(pod: Obj) -> float:
    """When its node began to run a pod, seconds since the Unix epoch; 0.0 where that is not told, or is no time."""
    try:
        return parse_time(str((pod.get("status") or {}).get("startTime") or ""))
    except InvalidObject:
        return 0.0
