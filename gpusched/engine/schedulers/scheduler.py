"""The decisions of one daemon of a simulated cluster: when it holds sessions, and what they come to."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Final

import attrs

from gpusched.base.debounce import QUIET_SHARE, Change, Debounce
from gpusched.base.errors import InvariantBroken
from gpusched.cache.cache import Cache
from gpusched.cache.snapshot import Snapshot
from gpusched.config.gpu_layouts import load_shipped_layouts
from gpusched.config.model import Config
from gpusched.io.workers.seen_changes import SeenChanges
from gpusched.placement.model.problem import search_in_process
from gpusched.pluginhost.guard import PluginGuard
from gpusched.session.decide import Decision, decide
from gpusched.session.state.order.round_progress import NextSession, RoundProgress
from gpusched.session.state.plan import Plan
from gpusched.session.state.policy import Policy
from gpusched.session.state.session_cache import SessionCache
from gpusched.session.status.next_wakeup import next_wakeup

_IDLE_MAX_S: Final = 6 * 3600.0
"""While gangs wait and nothing changes, sessions follow each other ever more slowly, up to this.

What passes with time has a session of its own: ends of minRuntime, maxRuntime, maxWait, promises."""
_IDLE_MAX_IN_SHARDS_S: Final = 60.0
_IDLE_SHARE_IN_SHARDS: Final = 6
"""The same where several daemons divide the cluster: a sixth of the time for which nothing has changed, up to this.

How long a gang has lacked room, and nodes were idle, is looked at in sessions."""
_QUIET_S: Final = 0.1
"""Sessions in which nothing is new are at least so far apart."""


class SimulatedScheduler:
    """The sessions of one daemon, seconds since the beginning.

    Args:
        config: of the daemon.
        policy: that decides.
        step_s: seconds for which changes are gathered before a session; 0 for the debounce of the daemon.
        start_s: from the binding of a pod until it runs, seconds.
        tells_starts: whether sessions work out when gangs that wait are expected to start.
        in_shards: whether others decide about the rest of the cluster.
    """

    def __init__(
        self,
        config: Config,
        policy: Policy,
        *,
        step_s: float,
        start_s: float,
        tells_starts: bool,
        in_shards: bool,
    ) -> None:
        self.config = config
        self.cache = Cache(config.scheduler_names)
        self.cache.rows.use_catalogue(config.layouts or load_shipped_layouts())
        self.cache.use_limits(config.limits)
        self.cache.use_priority_rules(config)
        self.session_cache = SessionCache()
        self.policy = policy
        self.faults: list[str] = []
        self.begun: float | None = None
        """When the first change came that no session has seen yet."""
        self.idle_at: float | None = None
        """When a session follows although nothing changes."""
        self.awaits_windows = False
        """The last session left gangs that wait, and Reservations with windows to come."""
        self.follows_ends = True
        """The last session left gangs that wait for room, or other shards may have some: ends of pods change something."""
        self._tells_starts = tells_starts
        self._limits_untold = attrs.evolve(config.limits, start_estimates=0)
        self._guard = PluginGuard(StoppedClock())
        self._debounce = Debounce()
        self._rounds = RoundProgress()
        self._changes = 0
        self._seen = SeenChanges()
        self._carries = False
        """Whether starts that it decided are carried out: what changes by that it has counted on."""
        self._left_waiting = False
        """Whether the last whole session left gangs that wait."""
        self._step_s = step_s
        self._in_shards = in_shards
        self._changed_at = 0.0
        period_s = config.cycle.max_period_s
        self._idle_s = period_s
        # The daemon looks again when the pods run that it bound.
        self._first_idle_s = period_s if step_s else min(period_s, max(start_s, _QUIET_S))
        self._snapshot: Snapshot | None = None

    @property
    def snapshot(self) -> Snapshot:
        """What the session is decided on that runs, or was run last."""
        assert self._snapshot is not None, "no session was run"
        return self._snapshot

    def note_change(self, now: float, *, decides: bool = True) -> None:
        """Something changed.

        Args:
            now: of the change.
            decides: whether a session is to follow.
        """
        self._changes += 1
        # What is carried out was counted on, with the pods that Jobs get at once.
        self._seen.note(Change.FORESEEN if self._carries else self.cache.change)
        if not decides:
            return
        self._debounce.note_change(
            now,
            self.config.cycle.debounce_s,
            alone=self.cache.change is Change.ALONE and self.begun is None,
        )
        if self.begun is None:
            self.begun = now

    def note_others(self, now: float) -> None:
        """Daemons of other shards told something anew: it is looked at in the next session, which is not far then."""
        self._changed_at, self._idle_s = now, self.config.cycle.max_period_s
        if self.idle_at is not None:
            self.idle_at = min(self.idle_at, now + self._idle_s)

    def session_at(self) -> float | None:
        """When the next session is due by what is known now."""
        if self.begun is None:
            return self.idle_at
        at = self._debounce.ends_at(self.begun, self.config.cycle.debounce_s)
        if self._step_s:
            at = self.begun + self._step_s
        return at if self.idle_at is None else min(at, self.idle_at)

    def hold_session(self, now: float, carry: Callable[[Decision], Plan], *, epoch: float) -> bool:
        """Decide, have it carried out, and work out when the next session follows; whether anything was to be done.

        Args:
            now: seconds since the beginning.
            carry: carries a decision out, and says what of its plan.
            epoch: wall time at second 0.
        """
        self.begun, self.idle_at = None, None
        changes = self._changes
        decision = self._decide(epoch + now)
        following = self._rounds.note_session(
            changes,
            rounds=decision.rounds,
            stays_until=decision.stays_until,
            now=self.snapshot.now,
            ended_early=decision.ended_early,
            settled=decision.settled,
        )
        following = self._note_seen(decision, following)
        if following.rounds is not None:
            self.cache.rounds = following.rounds
        self.cache.expected_starts = decision.expected_starts
        self.cache.spare_room = decision.spare_room
        self._note_faults(decision)
        self._carries = not (decision.plan.preemptions or decision.plan.stops)
        plan = carry(decision)
        self._carries = False
        if decision.ended_early:
            self.cache.families.show_all_again()
        self.follows_ends = bool(
            self._in_shards
            or decision.ended_early
            or decision.waiting
            or plan.preemptions
            or any(status.waiting_pods for status in plan.gangs)
        )
        acts = bool(plan.binds or plan.preemptions or plan.stops or plan.job_changes)
        self._plan_idle(decision, following, now, epoch=epoch, acts=acts)
        return acts or self.begun is not None

    def _decide(self, wall: float) -> Decision:
        cache, config = self.cache, self.config
        cache.rounds = self._rounds.begin_session(self._changes, cache.rounds, now=wall)
        cache.may_end_early = self._rounds.may_end_early and not self._in_shards
        if not self._tells_starts:  # not by its method: it is no change to decide about
            told = bool(cache.groups.items)
            cache.limits = config.limits if told else self._limits_untold
        foreseen = self._seen.begin_session(wall)
        # Who reads decisions reads of everybody; and where nobody waits nothing is saved.
        cache.foreseen = foreseen and self._left_waiting and not self._tells_starts
        snapshot = self._snapshot = cache.take_snapshot(wall)
        cache.part.note_snapshot(snapshot)
        self._guard.begin_session()
        return decide(
            snapshot,
            self.policy,
            guard=self._guard,
            session_cache=self.session_cache,
            placement=config.placement,
            search=search_in_process,
            incremental=config.cycle.incremental,
        )

    def _note_seen(self, decision: Decision, following: NextSession) -> NextSession:
        """Note what the session has decided about; what follows it: only the next look behind one that settled it."""
        holds_until = min(next_wakeup(self.snapshot) or inf, decision.next_limit)
        if not decision.ended_early:
            self._left_waiting = bool(decision.waiting)
            self._seen.note_whole_session(
                self.snapshot.now, holds_until=holds_until, starts=decision.expected_starts
            )
        elif decision.settled:
            self._seen.note_settled_session(self.snapshot.now, holds_until=holds_until)
            return NextSession(rounds=None, after_s=None)
        return following

    def _note_faults(self, decision: Decision) -> None:
        if decision.differs:
            self.faults.append(decision.differs)
        faults = (*decision.faults, *(each.message for each in decision.set_aside))
        if decision.degraded is not None:
            faults = (*faults, decision.degraded.message)
        if faults and not self.faults:
            self.faults.append(faults[0])

    def _plan_idle(
        self, decision: Decision, following: NextSession, now: float, *, epoch: float, acts: bool
    ) -> None:
        snapshot, cycle = self.snapshot, self.config.cycle
        if acts or self.begun is not None:
            self._idle_s, self._changed_at = self._first_idle_s, now
        due = min(next_wakeup(snapshot) or inf, decision.next_limit)
        if not decision.ended_early:
            self.awaits_windows = bool(decision.waiting) and any(
                each.current_window(snapshot.now) is not None for each in snapshot.reservations
            )
        if due < inf:
            self.idle_at = max(now, due - epoch)
        waits = decision.waiting or decision.settled
        if not waits and following.after_s is None:
            return
        idle = now + self._idle_s
        if following.after_s is not None:
            idle = now + max(following.after_s, cycle.debounce_s / QUIET_SHARE)
        self.idle_at = idle if self.idle_at is None else min(idle, self.idle_at)
        if following.after_s is None:
            self._idle_s = self._next_idle_s(now)

    def _next_idle_s(self, now: float) -> float:
        longest, longer = _IDLE_MAX_S, 2 * self._idle_s
        if self._in_shards:
            longest, longer = (
                _IDLE_MAX_IN_SHARDS_S,
                (now - self._changed_at) / _IDLE_SHARE_IN_SHARDS,
            )
        return min(longest, max(self.config.cycle.max_period_s, longer))


class StoppedClock:
    """A clock for what times plugins: nothing takes time, so that equal runs are equal."""

    def now(self) -> float:
        """Wall time in seconds, which is always 0."""
        return 0.0

    def monotonic(self) -> float:
        """Monotonic time in seconds, which is always 0."""
        return 0.0

    def boottime(self) -> float:
        """Time since boot in seconds, which is always 0."""
        return 0.0

    async def sleep(self, seconds: float) -> None:
        """Raises: nothing in a simulation waits for real time."""
        raise InvariantBroken(f"a simulation slept for {seconds} s")
