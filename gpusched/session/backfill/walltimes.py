"""How long gangs run, and when those that run will end: whole seconds, from policies' walltimes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from gpusched.api.gang.running_kind import RunningKind
from gpusched.api.meta.identity import GangKey
from gpusched.api.queue.start_errors import StartKnownBy
from gpusched.base.limits import WALLTIME_OVERRUN_MAX_S, WALLTIME_OVERRUN_STEP_S
from gpusched.cache.gangs.gang import Gang
from gpusched.session.backfill.running.release_order import FOREVER, Release
from gpusched.session.state.nodes.windows.reserved_windows import shortest_walltime_s
from gpusched.session.state.session import Session

UNKNOWN_WALLTIME: Final = FOREVER
"""Seconds assumed for a gang of unknown walltime."""


def end_when_late_s(late_s: int, length_s: int) -> int | None:
    """Seconds until what should have ended already is taken to end; None where it is not believed any more.

    It is given as long again as it is late, up to a minute: most end soon after their time. What runs twice its
    time, and ten minutes over it, may run for ever: no node stays idle for an end that is unknown.

    Args:
        late_s: since its time was over.
        length_s: for how long it was to run.
    """
    if late_s > max(WALLTIME_OVERRUN_MAX_S, length_s):
        return None
    return max(1, min(WALLTIME_OVERRUN_STEP_S, late_s))


_Alike = tuple[RunningKind, int]
"""Pods that run, each a gang of its own, by their kind and deadline."""


def _alike_with(gang: Gang) -> _Alike | None:
    """What gangs have in common of which hooks that are alike say the same; None for one that is like no other."""
    kind = gang.running_kind
    if kind is None or gang.job is not None or gang.turn is not None:
        return None
    return kind, gang.placed[0].pod.deadline_s


class Walltimes:
    """Answers of the walltime hooks in one session, the shortest of each gang, each asked once."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._known: dict[tuple[GangKey | _Alike, int], int] = {}
        self.now = int(session.snapshot.unobserved_now)
        """Whole seconds since the epoch; who uses it says by ``changes_at`` until when what comes of it stays."""
        self.changes_at = session.snapshot.changes_at
        self.overruns: set[GangKey] = set()
        """Gangs that should have ended, as far as they were asked for."""

    def seconds_of(self, gang: Gang) -> int:
        """Seconds from the gang's start to its end, or UNKNOWN."""
        hooks, speed = self._session.hooks, self._session.view.gpu_speed(gang)
        alike = _alike_with(gang) if hooks.walltimes_alike else None
        own, shared = (gang.key, speed), (gang.key if alike is None else alike, speed)
        known = self._known.get(own if hooks.guard.compares_lists else shared)
        known = known or self._known.get(own)
        if known is None:
            faults = len(hooks.faults)
            self._known[own] = known = shortest_walltime_s(hooks, gang) or UNKNOWN_WALLTIME
            if len(hooks.faults) > faults:
                return known  # what a hook failed about says nothing of others
            if self._known.setdefault(shared, known) != known:
                hooks.faults.append(f"walltime: alike, but tells {gang.key} from one that is equal")
        return known

    def source_of(self, gang: Gang) -> StartKnownBy:
        """By what the gang's length is known."""
        if gang.terms.expected_duration_ns or (gang.job is not None and gang.job.deadline_s):
            return StartKnownBy.ANNOUNCED
        placed = (each.pod for each in gang.placed)
        waiting = (pod for pod_set in gang.pod_sets for pod in pod_set.pods)
        if all(pod.deadline_s for pods in (placed, waiting) for pod in pods):
            return StartKnownBy.ANNOUNCED
        queues = self._session.snapshot.queues
        nodes = (queues.get(name) for name in self._session.queue_path(gang))
        limited = any(node is not None and node.queue.max_runtime_ns for node in nodes)
        return StartKnownBy.MAX_RUNTIME if limited else StartKnownBy.LEARNED

    def end_if_started_now(self, gang: Gang) -> int:
        """When what starts now will end: with its gang, where that runs already."""
        if gang.placed:
            return self.end_of_running(gang)
        end = self._walltime_from(self.now, gang)
        if end < FOREVER:
            self.changes_at(self.now + 1)
        return end

    def end_of_running(self, gang: Gang) -> int:
        """When a gang that has members with a place will end; FOREVER when that is unknown.

        One that is late is taken to end soon, or never: see ``end_when_late_s``.
        """
        began = self.start_of_running(gang)
        end = self._walltime_from(self.now if began is None else int(began), gang)
        if end > self.now:
            self.changes_at(self.now + 1 if began is None else end)
            return end
        return self.end_of_late(gang.key, end, self.seconds_of(gang))

    def end_of_late(self, gang: GangKey, end: int, length: int) -> int:
        """When a gang will end that should have ended already; FOREVER when that is unknown.

        Args:
            gang: that runs.
            end: when it should have.
            length: seconds that it was to run.
        """
        left = end_when_late_s(self.now - end, length)
        if left is None:
            return FOREVER
        self.overruns.add(gang)
        self.changes_at(self.now + 1)
        return self.now + left

    def has_come(self, time: int) -> bool:
        """Whether a moment has come, whole seconds since the epoch."""
        if time > self.now:
            self.changes_at(time)
        return time <= self.now

    def would_run_at(self, gang: Gang, time: int) -> bool:
        """Whether a gang that runs, or starts now, will not have ended by then."""
        if gang.placed:
            return self.end_of_running(gang) > time
        end = self._walltime_from(self.now, gang)
        if end <= time:
            self.changes_at(self.now + time - end + 1)
        return end > time

    def note_moments(self, releases: Sequence[Release], window_s: int) -> None:
        """Note when others are the next moments ahead: the first is over, or one more is near enough.

        Args:
            releases: by time.
            window_s: how far is looked ahead.
        """
        for ahead_s in (0, window_s):
            first = bisect_right(releases, self.now + ahead_s, key=lambda each: each.time)
            if first < len(releases):
                self.changes_at(releases[first].time - ahead_s)

    def start_of_running(self, gang: Gang) -> float | None:
        """When a gang that has members with a place started; None where that is not told yet."""
        if gang.running_kind is not None:  # thousands are a pod that runs
            return gang.placed[0].pod.scheduled
        if gang.started_at:
            return gang.started_at
        # Below its minimum, or not confirmed yet: the clock of those it has goes on.
        times = [member.pod.scheduled for member in gang.placed if member.pod.scheduled]
        return min(times) if times and len(times) == len(gang.placed) else None

    def _walltime_from(self, began: int, gang: Gang) -> int:
        length = self.seconds_of(gang)
        return FOREVER if length >= UNKNOWN_WALLTIME else began + length


def session_walltimes(session: Session) -> Walltimes:
    """The walltimes of the session: each gang is asked about once for all that reads them."""
    return session.cycle_state.get_or_make(Walltimes, lambda: Walltimes(session))
