"""Follows gangs as the cache counts them, and makes the records of their runs.

No I/O: time is given, and what is new goes to a ``RunSink``. Of a gang that is gone nothing is kept.

A run begins when members wait, or hold places, that none has held before. It starts when enough
bindings were accepted, and ends when its last member holds nothing any more: what comes after, such
as the pods that a Job makes anew after an eviction, is another run.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

import attrs

from gpusched.api.meta.identity import UID, GangKey
from gpusched.api.meta.units import DEVICE
from gpusched.base.classes import define
from gpusched.cache.gangs.gang import Gang, Placed
from gpusched.io.history.gang_run import (
    DELETED,
    FAILED,
    SUCCEEDED,
    UNKNOWN,
    GangRun,
)
from gpusched.session.framework.reasons import Reason
from gpusched.session.state.plan import GangStop, Plan
from gpusched.view.gang_views import owner_view

_ADMITTED_PHASES: Final = frozenset({"Inqueue", "Running", "Completed"})
_SECOND: Final = 1.0
"""Times of the API are whole seconds: a start may look that much earlier than it was."""

Who = tuple[GangKey, UID]


class RunSink(Protocol):
    """Where it goes what became of gangs."""

    def write(self, run: GangRun) -> None:
        """A run is new, or has changed."""

    def started(self, run: GangRun) -> None:
        """A run that was seen waiting has started."""

    def ended(self, run: GangRun) -> None:
        """A run has ended before our eyes."""

    def evicted(self, run: GangRun, pods: int) -> None:
        """Members were made to leave."""

    def add_held_time(self, queue: str, gpu_type: str, gpu_seconds: float) -> None:
        """GPUs were held by a gang since this was told of it last."""


@define(slots=True, eq=False)
class _FollowedRun:
    """A run with what is needed to go on with it.

    Attributes:
        latest: its gang as it was counted last.
        held: thousandths of GPUs that members hold, by type.
        holders: members that hold something, or held it last.
        victims: members that were made to leave.
        stop: the stop that made the last of them leave.
        succeeded, failed: members of the gang that had ended so before this run.
        observed: whether it was seen from its beginning.
    """

    run: GangRun
    latest: Gang
    held: dict[str, int] = attrs.Factory(dict)
    holders: frozenset[UID] = frozenset()
    victims: set[UID] = attrs.Factory(set)
    stop: GangStop | None = None
    claimant: GangKey | None = None
    succeeded: int = 0
    failed: int = 0
    observed: bool = True


class GangLives:
    """See the module. One for each term of a daemon.

    Args:
        sink: told what is new.
        gpu_type: the type of the GPUs of a node, empty where it is not known.
        began: seconds since the epoch; what was before is not counted in metrics.
    """

    def __init__(self, sink: RunSink, gpu_type: Callable[[str], str], *, began: float) -> None:
        self._sink = sink
        self._gpu_type = gpu_type
        self._began = began
        self._families: dict[GangKey, set[Who]] = {}
        """Gangs that were shown, by the key under which they are counted together."""
        self._open: dict[Who, _FollowedRun] = {}
        self._written: OrderedDict[Who, float] = OrderedDict()
        """When runs that hold something were written last, the longest ago first."""
        self._ended: dict[Who, float] = {}
        """When the last run of a gang ended that is still there."""
        self._over: dict[Who, str] | None = {}
        """How gangs ended that were over when they were seen first; None once nobody asks any more."""

    # -- what the cache shows ----------------------------------------------------------------
    def counted(self, key: GangKey, family: Sequence[Gang], now: float) -> None:
        """All gangs of one key, as they were counted just now; none when they are gone."""
        if any(gang.error[0] == Reason.SCHEDULER_ERROR for gang in family):
            return  # our own fault: nothing is known of them
        before = self._families.get(key, set())
        shown = {(gang.key, gang.uid) for gang in family}
        if shown != before:
            self._families.pop(key, None)
            for who in sorted(before - shown):
                self._gone(who, now)
            if shown:
                self._families[key] = shown
        for gang in family:
            self._follow(gang, now)

    def _follow(self, gang: Gang, now: float) -> None:
        who = (gang.key, gang.uid)
        followed = self._open.get(who)
        if followed is None:
            if not (gang.pending or gang.gated or gang.placed):
                self._note_outcome(who, gang)
                return
            followed = self._begin(who, gang, now)
        run = followed.run
        followed.latest = gang
        self._charge(followed, now)
        changed = self._note_terms(run, gang, now)
        waits = bool(gang.pending or gang.gated)
        if not run.started and _has_started(gang):
            self._start(followed, gang, now)
        elif not gang.placed and not gang.leaving_placed and (run.started or not waits):
            self._end(who, followed, now, _outcome(followed, gang))
            if waits:
                self._follow(gang, now)
            return
        elif changed:
            self._sink.write(run)
        if followed.holders:
            self._written.setdefault(who, now)

    def _note_outcome(self, who: Who, gang: Gang) -> None:
        """How a gang has ended that was over when it was seen first."""
        if self._over is not None and bool(gang.succeeded) != bool(gang.failed):
            self._over[who] = FAILED if gang.failed else SUCCEEDED

    def _begin(self, who: Who, gang: Gang, now: float) -> _FollowedRun:
        pods = [pod.created for each in gang.pod_sets for pod in each.pods if pod.created]
        pods += [member.pod.created for member in gang.placed if member.pod.created]
        since = max(gang.waits_since, min(pods, default=0.0), self._ended.pop(who, 0.0))
        run = GangRun(
            gang=gang.key, uid=gang.uid, seen=now, queue=gang.queue, priority=gang.priority,
            min_member=gang.min_member, created=gang.created, since=min(since, now),
            owner=_owner_text(gang), user=gang.creator.user,
        )  # fmt: skip
        followed = _FollowedRun(
            run, gang, observed=not _has_started(gang),
            succeeded=gang.succeeded, failed=gang.failed,
        )  # fmt: skip
        self._open[who] = followed
        self._note_terms(run, gang, now)
        if not _has_started(gang):
            self._sink.write(run)
        return followed

    def _start(self, followed: _FollowedRun, gang: Gang, now: float) -> None:
        run = followed.run
        run.started = min(now, max(gang.started_at, run.since)) if gang.started_at else now
        run.admitted = run.admitted and min(run.admitted, run.started)
        if followed.observed:
            self._sink.started(run)
        self._sink.write(run)

    def _end(self, who: Who, followed: _FollowedRun, now: float, outcome: str) -> None:
        run, stop = followed.run, followed.stop
        run.ended, run.outcome = now, outcome
        if stop is not None and outcome == stop.evictions[0].reason:
            first = stop.evictions[0]
            run.reason = first.message
            claimant = followed.claimant
            run.ended_by = f"{claimant.kind} {claimant}" if claimant is not None else first.action
        self._forget(who)
        self._ended[who] = now
        self._sink.write(run)
        self._sink.ended(run)

    def _gone(self, who: Who, now: float) -> None:
        followed = self._open.get(who)
        if followed is not None:
            self._charge_time(followed, now)
            was_evicted = followed.stop is not None and followed.holders & followed.victims
            reason = followed.stop.evictions[0].reason if followed.stop and was_evicted else DELETED
            self._end(who, followed, now, reason)
        self._ended.pop(who, None)
        if self._over is not None:
            self._over.pop(who, None)

    def _forget(self, who: Who) -> None:
        del self._open[who]
        self._written.pop(who, None)

    def _note_terms(self, run: GangRun, gang: Gang, now: float) -> bool:
        """Take over what may change while it waits or runs; whether that has to be written."""
        run.members = max(run.members, gang.pending + gang.gated + len(gang.placed))
        asked = sum(len(each.pods) * each.pod_class.gpu_thousandths for each in gang.pod_sets)
        held = sum(member.pod.pod_class.gpu_thousandths for member in gang.placed)
        run.gpus = max(run.gpus, asked + held)
        before = (run.queue, run.priority, run.min_member, run.admitted)
        run.queue, run.priority, run.min_member = gang.queue, gang.priority, gang.min_member
        if not run.admitted:
            run.admitted = _admitted_at(gang, run.since, run.started or now)
        return before != (run.queue, run.priority, run.min_member, run.admitted)

    # -- GPUs times seconds --------------------------------------------------------------------
    def _charge(self, followed: _FollowedRun, now: float) -> None:
        """Add what was held until now, and see what is held from now on."""
        members = [*followed.latest.placed, *followed.latest.leaving_placed]
        bound = [each for each in members if each.confirmed]
        self._charge_time(followed, now, bound)
        held: dict[str, int] = {}
        for each in bound:
            amount = each.pod.pod_class.gpu_thousandths
            if amount:
                name = self._gpu_type(each.node)
                held[name] = held.get(name, 0) + amount
        followed.held = held
        if bound:
            followed.holders = frozenset(each.pod.uid for each in bound)

    def _charge_time(
        self, followed: _FollowedRun, now: float, bound: Iterable[Placed] = ()
    ) -> None:
        run, until = followed.run, followed.run.counted_until
        for name, amount in sorted(followed.held.items()):
            self._add(run, name, amount, until, now)
        for each in bound:
            amount = each.pod.pod_class.gpu_thousandths
            if amount and each.pod.scheduled and each.pod.uid not in followed.holders:
                name = self._gpu_type(each.node)
                self._add(run, name, amount, max(until, each.pod.scheduled), now)
        run.counted_until = now

    def _add(self, run: GangRun, name: str, amount: int, begin: float, end: float) -> None:
        if end <= begin:
            return
        run.gpu_seconds[name] = run.gpu_seconds.get(name, 0.0) + amount * (end - begin) / DEVICE
        told_from = max(begin, self._began)
        if end > told_from:
            self._sink.add_held_time(run.queue, name, amount * (end - told_from) / DEVICE)

    # -- what was decided ------------------------------------------------------------------------
    def decided(self, plan: Plan) -> None:
        """Remember for whom gangs are to leave."""
        for claim in plan.preemptions:
            for stop in () if claim.moves_itself else claim.stops:
                followed = self._open.get((stop.gang, stop.uid))
                if followed is not None:
                    followed.claimant = claim.gang

    def stopped(self, stop: GangStop) -> None:
        """The first member of a gang was made to leave, and the others will be."""
        followed = self._open.get((stop.gang, stop.uid))
        if followed is None or not stop.evictions:
            return
        run = followed.run
        new = [each for each in stop.evictions if each.uid not in followed.victims]
        followed.victims.update(each.uid for each in new)
        followed.stop = stop
        run.evictions += len(new)
        if stop.count is not None:
            run.repeated_evictions = max(run.repeated_evictions, stop.count.times - 1)
        run.lost_gpu_seconds += sum(each.gpu_seconds for each in new)
        self._sink.evicted(run, len(new))
        self._sink.write(run)

    # -- time passes -----------------------------------------------------------------------------
    def checkpoint(self, now: float, *, older_than_s: float, most: int) -> None:
        """Write what running gangs hold, those whose record is the oldest first.

        Args:
            now: seconds since the epoch.
            older_than_s: records that are younger are left as they are.
            most: records that are written at once.
        """
        for _ in range(most):
            who = next(iter(self._written), None)
            if who is None or self._written[who] > now - older_than_s:
                break
            followed = self._open[who]
            self._charge_time(followed, now)
            self._written[who] = now
            self._written.move_to_end(who)
            self._sink.write(followed.run)

    def write_all(self, now: float) -> None:
        """Write every run that has not ended: the file may have lost some, or we end."""
        for who in sorted(self._open):
            followed = self._open[who]
            self._charge_time(followed, now)
            self._sink.write(followed.run)

    # -- what was recorded before ------------------------------------------------------------------
    def resume(self, recorded: Iterable[GangRun], now: float) -> None:
        """Go on with runs that the file has as not ended, and end those that did while none looked.

        Args:
            recorded: such runs, of an earlier process, an earlier term, or before the file was lost.
            now: seconds since the epoch.
        """
        for old in recorded:
            who = (old.gang, old.uid)
            followed = self._open.get(who)
            if followed is None:
                self._end_unseen(old, (self._over or {}).get(who, UNKNOWN))
            elif followed.run.seen == old.seen:
                continue
            elif _goes_on(old, followed):
                self._go_on(old, followed, now)
            else:
                self._end_unseen(old, UNKNOWN)
                followed.run.since = max(followed.run.since, old.ended)
        self._over = None
        self.write_all(now)

    def _go_on(self, old: GangRun, followed: _FollowedRun, now: float) -> None:
        run = followed.run
        run.seen, run.since = old.seen, min(old.since, run.since)
        run.admitted = old.admitted or run.admitted
        run.started = old.started or run.started
        run.told_at, run.first_start = old.told_at, old.first_start
        run.half_start, run.known_by = old.half_start, old.known_by
        run.earliest_start, run.latest_start = old.earliest_start, old.latest_start
        run.estimate_moves = old.estimate_moves
        run.estimate_change = old.estimate_change
        run.evictions += old.evictions
        run.repeated_evictions = max(run.repeated_evictions, old.repeated_evictions)
        run.lost_gpu_seconds += old.lost_gpu_seconds
        run.gpu_seconds, run.counted_until = dict(old.gpu_seconds), old.counted_until
        followed.held, followed.holders = {}, frozenset()
        self._began, began = now, self._began  # metrics have it already
        self._charge(followed, now)
        self._began = began

    def _end_unseen(self, old: GangRun, outcome: str) -> None:
        """Its end was not seen: it is put where it was seen last."""
        old.ended = max(old.counted_until, old.started, old.since)
        old.outcome = outcome
        self._sink.write(old)


def _has_started(gang: Gang) -> bool:
    """Whether enough members have places that the API knows of."""
    return (
        bool(gang.placed)
        and not gang.missing_members
        and all(member.confirmed for member in gang.placed)
    )


def _admitted_at(gang: Gang, since: float, now: float) -> float:
    """When its queue let it in, as far as objects tell; 0.0 where they do not."""
    if gang.job is not None and gang.job.admitted:
        return max(since, gang.job.admitted)
    group = gang.pod_group
    return now if group is not None and group.phase in _ADMITTED_PHASES else 0.0


def _outcome(followed: _FollowedRun, gang: Gang) -> str:
    """How a run ended whose gang is still there and holds nothing."""
    if followed.stop is not None and followed.holders & followed.victims:
        return followed.stop.evictions[0].reason
    if gang.failed > followed.failed:
        return FAILED
    return SUCCEEDED if gang.succeeded > followed.succeeded else DELETED


def _goes_on(old: GangRun, followed: _FollowedRun) -> bool:
    """Whether a recorded run is the one that is seen now."""
    if not old.started:
        return True
    members = [*followed.latest.placed, *followed.latest.leaving_placed]
    return any(
        member.pod.scheduled and member.pod.scheduled <= old.counted_until + _SECOND
        for member in members
    )


def _owner_text(gang: Gang) -> str:
    """Kind and name of what made its pods, such as ``ReplicaSet serve-7f``; empty for the gang's own object."""
    owner = owner_view(gang)
    return f"{owner.kind} {owner.name}" if owner is not None else ""
