"""The pure function that carries the product: a snapshot and a policy in, a plan out.

It contains itself: an object for which a session raises is set aside, and all others are decided
as if it were not there; see ``session.containment`` and docs/containment.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import zip_longest
from math import inf
from typing import Final

import attrs

from gpusched.api.meta.gpu_resources import gpu_resources_in_force
from gpusched.api.meta.identity import GangKey
from gpusched.api.meta.resources import Resources
from gpusched.base.classes import frozen
from gpusched.cache.snapshot import NO_EXPECTED_STARTS, ExpectedStarts, Snapshot, TenantRound
from gpusched.config.model import Incremental, PlacementConfig
from gpusched.placement.model.problem import SearchRunner, search_in_process
from gpusched.session.containment.attempt import ActionTimer, AttemptResult, AttemptSetting
from gpusched.session.containment.contained_session import decide_contained
from gpusched.session.containment.kept_sessions import KeptSessions
from gpusched.session.containment.set_aside import Containment, Degraded, SetAside
from gpusched.session.containment.set_aside_status import (
    set_aside_gang_statuses,
    set_aside_queue_statuses,
    set_aside_reservation_statuses,
    set_aside_topology_statuses,
    undecided_gang_statuses,
)
from gpusched.session.containment.suspects import SessionFault
from gpusched.session.framework.guard import Guard
from gpusched.session.framework.reasons import Reason, shorten
from gpusched.session.state.order.waiting_turns import NO_ORDER, WaitingOrder
from gpusched.session.state.plan import Plan
from gpusched.session.state.policy import Policy
from gpusched.session.state.search_records import SearchRecord
from gpusched.session.state.session_cache import SessionCache
from gpusched.session.status.reserved.reserved_rooms import ReservedRoom

DEFAULT_PLACEMENT = PlacementConfig()


@frozen(kw_only=True)
class Decision:
    """What a session leaves.

    Attributes:
        waiting: numbers of waiting gangs by queue and reason.
        faults: sentences about plugins that failed.
        searches: what was searched for and how it ended.
        snapshot: what it was decided on: without what was set aside.
        own: the plan without statuses of objects that were set aside.
        set_aside: objects that are left out, sorted.
        contained: the ones among them that were not left out before.
        degraded: how much plainer than configured the session was; None for not at all.
        again: whether the next session should follow at once.
        rounds: of tenants whose gangs this session could not all look at, for the next snapshot.
        untold: queues whose status is left out, each with the fault for which it is.
        order: turns of the gangs that wait, for those who look; nothing is done for it.
        reserved: room that is kept for some of them, for those who look.
        expected_starts: when gangs that wait are expected to start, for those who are told.
        spare_room: what others could take of nodes on which room is reserved, for the next snapshot.
        kept: whether it is that of an earlier session, as nothing has changed since.
        stays_until: before when the same snapshot is decided on in the same way, seconds since the epoch.
        next_limit: when the first limit of time is over that was asked about (minRuntime, maxRuntime, maxWait and
            the like), seconds since the epoch; infinite for none.
        ended_early: whether it ended when it had started somebody: it says nothing of anybody else, and the next session
            follows at once.
        settled: whether it ended so where nobody else would have started: nothing is left to the next one but what it tells.
        differs: how it would be another one if nothing were kept from session to session, as a sentence; empty
            where it would not, or where nobody has compared.
    """

    plan: Plan
    waiting: Mapping[tuple[str, str], int]
    faults: tuple[str, ...]
    searches: tuple[SearchRecord, ...] = ()
    snapshot: Snapshot
    own: Plan
    set_aside: tuple[SetAside, ...] = ()
    contained: tuple[SetAside, ...] = ()
    degraded: Degraded | None = None
    again: bool = False
    rounds: tuple[TenantRound, ...] = ()
    untold: tuple[tuple[str, SessionFault], ...] = ()
    order: WaitingOrder = NO_ORDER
    reserved: tuple[ReservedRoom, ...] = ()
    expected_starts: ExpectedStarts = NO_EXPECTED_STARTS
    spare_room: Mapping[str, Resources] = attrs.field(factory=dict)
    kept: bool = False
    stays_until: float = -inf
    next_limit: float = inf
    ended_early: bool = False
    settled: bool = False
    differs: str = ""


def decide(
    snapshot: Snapshot,
    policy: Policy,
    *,
    guard: Guard,
    session_cache: SessionCache,
    placement: PlacementConfig = DEFAULT_PLACEMENT,
    search: SearchRunner = search_in_process,
    ended: ActionTimer = lambda _name: None,
    containment: Containment | None = None,
    on_gang: Callable[[GangKey], None] = lambda _gang: None,
    began: ActionTimer = lambda _name: None,
    incremental: Incremental = "always",
) -> Decision:
    """Run one session, or answer by an earlier one where it would come to the same.

    Args:
        snapshot: of this moment; its ``now`` is the only time there is.
        policy: actions and plugins.
        guard: contains the plugins; one for each loaded policy.
        session_cache: results of earlier sessions under the same policy.
        placement: how to search.
        search: runs what may take long or crash, in this process or in another.
        ended: called with the name of each action as it ends.
        containment: remembers from session to session what was set aside under this policy; None
            where this session is the only one.
        on_gang: called with the key of each gang as it is looked at.
        began: called with the name of each stage as it begins.
        incremental: whether results of earlier sessions are used: ``never``, or ``compared`` with a session that
            uses none, which counts where they differ.
    """
    memory = Containment() if containment is None else containment
    setting = AttemptSetting(
        policy=policy,
        guard=guard,
        session_cache=SessionCache() if incremental == "never" else session_cache,
        placement=placement,
        search=search,
        ended=ended,
        on_gang=on_gang,
        began=began,
    )
    with gpu_resources_in_force(snapshot.gpu_resources):
        decision = _decide(snapshot, setting, memory)
        if incremental == "compared" and memory.is_clean and not decision.faults:
            anew = attrs.evolve(setting, session_cache=SessionCache())
            decision = _compared(decision, _decide(snapshot, anew, Containment()))
            if decision.differs:
                session_cache.forget_all()
        return decision


def _decide(snapshot: Snapshot, setting: AttemptSetting, memory: Containment) -> Decision:
    sessions = setting.session_cache.kept.get_or_make(KeptSessions, KeptSessions)
    clean = memory.is_clean
    known = sessions.find(snapshot, setting.policy, setting.placement) if clean else None
    if known is not None:
        decision = _with_set_aside_statuses(snapshot, known, memory, contained=(), again=False)
        return attrs.evolve(decision, kept=True)
    held = decide_contained(snapshot, setting, memory)
    if clean and memory.is_clean and not held.again:
        sessions.keep(snapshot, setting.policy, setting.placement, held.decided)
    return _with_set_aside_statuses(
        snapshot, held.decided, memory, contained=held.contained, again=held.again
    )


_COMPARED: Final = ("plan", "waiting", "rounds", "reserved", "expected_starts", "spare_room")


def _compared(decision: Decision, anew: Decision) -> Decision:
    """The decision; where one that rests on nothing kept is another, that one, and how they differ."""
    parts = [name for name in _COMPARED if getattr(decision, name) != getattr(anew, name)]
    if not parts:
        return decision
    whose = "an earlier session" if decision.kept else "what earlier sessions left"
    about = _first_difference(decision.plan, anew.plan)
    message = (
        f"by {whose} the {' and the '.join(parts)} would be another{about}; it was decided anew"
    )
    return attrs.evolve(anew, differs=message)


def _first_difference(kept: Plan, anew: Plan) -> str:
    for part in attrs.fields(Plan):
        here, there = getattr(kept, part.name), getattr(anew, part.name)
        if here == there or isinstance(here, int):
            continue
        pair = next((p for p in zip_longest(here, there) if p[0] != p[1]), None)
        return f", {part.name} first: {shorten(str(pair))}"
    return ""


def _with_set_aside_statuses(
    snapshot: Snapshot,
    decided: AttemptResult,
    memory: Containment,
    *,
    contained: tuple[SetAside, ...],
    again: bool,
) -> Decision:
    """The decision, with statuses of objects that are set aside."""
    plan, waiting = decided.plan, decided.waiting
    idle = memory.degraded is not None and not memory.degraded.mode.decides
    if memory.objects_set_aside or idle:
        gangs = set_aside_gang_statuses(snapshot, memory.objects_set_aside)
        if idle and memory.degraded is not None:
            known = {status.gang for status in (*plan.gangs, *gangs)}
            gangs = (*gangs, *undecided_gang_statuses(snapshot, memory.degraded, known))
        queues = set_aside_queue_statuses(snapshot, memory.objects_set_aside)
        plan = attrs.evolve(
            plan,
            gangs=tuple(sorted((*plan.gangs, *gangs), key=lambda status: status.gang)),
            queues=tuple(sorted((*plan.queues, *queues), key=lambda status: status.name)),
            topologies=(
                *plan.topologies,
                *set_aside_topology_statuses(snapshot, memory.objects_set_aside),
            ),
            reservations=(
                *plan.reservations,
                *set_aside_reservation_statuses(snapshot, memory.objects_set_aside),
            ),
        )
        waiting = dict(waiting)
        for status in gangs:
            if not status.is_scheduled:
                row = (status.queue, str(Reason.SCHEDULER_ERROR))
                waiting[row] = waiting.get(row, 0) + 1
    return Decision(
        plan=plan,
        waiting=waiting,
        faults=decided.faults,
        searches=decided.searches,
        snapshot=decided.snapshot,
        own=decided.plan,
        set_aside=memory.objects_set_aside,
        contained=contained,
        degraded=memory.degraded,
        again=again,
        rounds=decided.rounds,
        untold=decided.untold,
        order=decided.order,
        reserved=decided.reserved,
        expected_starts=decided.expected_starts,
        spare_room=decided.spare_room,
        stays_until=decided.stays_until,
        next_limit=decided.next_limit,
        ended_early=decided.ended_early,
        settled=decided.settled,
    )
