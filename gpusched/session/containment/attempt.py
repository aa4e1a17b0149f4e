"""One attempt at a session: the actions in order, then the parts of the plan.

Whatever it raises comes back as a ``SessionFault`` that names the stage and the objects at hand.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Container, Mapping, Sequence
from math import inf
from typing import Any, Final

import attrs

from gpusched.api.meta.identity import GangKey
from gpusched.api.meta.resources import Resources
from gpusched.base import limits
from gpusched.base.classes import frozen
from gpusched.base.errors import Fenced, InvariantBroken, PluginFault
from gpusched.cache.snapshot import (
    NO_EXPECTED_STARTS,
    ExpectedStarts,
    ObservedSnapshot,
    Snapshot,
    TenantRound,
)
from gpusched.config.model import PlacementConfig
from gpusched.placement.model.problem import SearchRunner
from gpusched.session.allocate.suspended_jobs import job_suspend_changes
from gpusched.session.backfill.reservation_guard import reserve_ahead
from gpusched.session.containment.fault_listener import AttemptStage, FailingOrder, FaultListener
from gpusched.session.containment.reduced_snapshot import reduced_snapshot
from gpusched.session.containment.set_aside import EVICTING_ACTIONS, FULL_MODE, SessionMode
from gpusched.session.containment.suspects import (
    SessionFault,
    Suspect,
    SuspectIndex,
    source_location,
)
from gpusched.session.framework.guard import Guard
from gpusched.session.framework.plugin import Capability
from gpusched.session.framework.reasons import shorten
from gpusched.session.preempt.claims.late_claims import late_claims
from gpusched.session.preempt.preemption_plans import gang_stops, preemption_plans
from gpusched.session.preempt.stopped_gangs import stop_gangs
from gpusched.session.rebalance.window_clearing import clear_windows
from gpusched.session.state.order.waiting_turns import NO_ORDER, WaitingOrder
from gpusched.session.state.plan import Plan
from gpusched.session.state.policy import Action, Policy, action_capabilities
from gpusched.session.state.search_records import SearchRecord
from gpusched.session.state.session import Session
from gpusched.session.state.session_cache import SessionCache
from gpusched.session.status.binds import build_gang_binds
from gpusched.session.status.gang_status import count_waiting_gangs, gang_statuses
from gpusched.session.status.queue_status import queue_statuses
from gpusched.session.status.reserved.reservation_status import reservation_statuses
from gpusched.session.status.reserved.reserved_rooms import ReservedRoom, reserved_rooms, spare_room
from gpusched.session.status.topology_status import topology_statuses

ActionTimer = Callable[[str], None]
"""Called with the name of each action as it ends; the outer layer reads its own clock then."""

OPEN_STAGE: Final = "open"
STOPS_STAGE: Final = "stops"
LATE_CLAIMS_STAGE: Final = "late claims"
WAITING_STAGE: Final = "waiting"
RESERVED_STAGE: Final = "reserved rooms"
_PLAN_PARTS: Final[tuple[tuple[str, Callable[[Session], Any]], ...]] = (
    ("binds", build_gang_binds),
    ("claims", preemption_plans),
    ("stopped gangs", gang_stops),
    ("switches", job_suspend_changes),
    ("gang statuses", gang_statuses),
    ("queue statuses", queue_statuses),
    ("topology statuses", topology_statuses),
    ("reservation statuses", reservation_statuses),
)
_PLAN_FIELDS: Final = {
    "binds": "binds",
    "claims": "preemptions",
    "stopped gangs": "stops",
    "switches": "job_changes",
    "gang statuses": "gangs",
    "queue statuses": "queues",
    "topology statuses": "topologies",
    "reservation statuses": "reservations",
}
_OF_STARTS: Final = frozenset({"binds", "claims", "stopped gangs", "switches"})
"""Parts of the plan of a session that ended early."""
_LEFT_OUT: Final = frozenset({Capability.RESERVATIONS, Capability.CONSOLIDATION})
"""What such a session leaves to the next one."""
OPTIONAL_STAGES: Final = frozenset({"backfill", LATE_CLAIMS_STAGE, WAITING_STAGE, RESERVED_STAGE})
"""Stages that only improve the plan."""
SKIPPABLE_STAGES: Final = frozenset({STOPS_STAGE, *OPTIONAL_STAGES, *_PLAN_FIELDS})
"""Stages without which all others are what they are."""


@frozen(kw_only=True)
class AttemptSetting:
    """What all attempts at one decision have in common; see ``decide``."""

    policy: Policy
    guard: Guard
    session_cache: SessionCache
    placement: PlacementConfig
    search: SearchRunner
    ended: ActionTimer = lambda _name: None
    on_gang: Callable[[GangKey], None] = lambda _gang: None
    began: ActionTimer = lambda _name: None


@frozen(kw_only=True)
class AttemptResult:
    """What an attempt that came to its end leaves.

    Attributes:
        snapshot: that it was decided on.
        rounds: of tenants whose gangs it could not all look at.
        closed: why nothing may be placed, empty when it may.
        hooks: faults of shipped hooks, with the objects that they were called with.
        answers: shipped hooks that answered.
        failing_orders: orders of queues or gangs that failed and answered for nothing.
        untold: faults of reports about queues, which cost no gang its turn.
        order: turns of the gangs that wait.
        reserved: room that is kept for some of them.
        expected_starts: when gangs that wait are expected to start.
        spare_room: what others could take of nodes on which room is reserved, for the next snapshot.
        stays_until: the moment from which on the same snapshot may be decided on otherwise, seconds since the
            epoch; infinite for never.
        next_limit: when the first limit of time is over that was asked about, infinite for none.
        ended_early: whether it ended when it had started somebody: it says nothing of anybody else.
        settled: whether it ended so where nobody else would have started, and no claim was made: only status is left.
    """

    snapshot: Snapshot
    plan: Plan
    waiting: Mapping[tuple[str, str], int]
    faults: tuple[str, ...]
    searches: tuple[SearchRecord, ...]
    rounds: tuple[TenantRound, ...] = ()
    closed: str = ""
    hooks: tuple[SessionFault, ...] = ()
    answers: frozenset[str] = frozenset()
    failing_orders: tuple[FailingOrder, ...] = ()
    untold: tuple[tuple[str, SessionFault], ...] = ()
    order: WaitingOrder = NO_ORDER
    reserved: tuple[ReservedRoom, ...] = ()
    expected_starts: ExpectedStarts = NO_EXPECTED_STARTS
    spare_room: Mapping[str, Resources] = attrs.field(factory=dict)
    stays_until: float = -inf
    next_limit: float = inf
    ended_early: bool = False
    settled: bool = False


def attempt_session(
    snapshot: Snapshot,
    aside: frozenset[Suspect],
    setting: AttemptSetting,
    *,
    mode: SessionMode = FULL_MODE,
) -> AttemptResult | SessionFault:
    """Decide on the snapshot without some objects.

    Args:
        snapshot: of this moment.
        aside: objects that are taken as not being there.
        setting: of the decision.
        mode: how much of a session is done.
    """
    stage = AttemptStage(entered=setting.began)
    smaller = snapshot
    try:
        setting.guard.begin_session()
        smaller = reduced_snapshot(snapshot, aside)
        listener = FaultListener(
            setting.guard, stage, smaller, setting.policy.plugins, unordered=mode.unordered
        )
        decided = _run_session(smaller, attrs.evolve(setting, guard=listener), mode, stage)
        return attrs.evolve(
            decided,
            hooks=tuple(listener.faults),
            answers=frozenset(listener.answers),
            failing_orders=listener.failing_orders(),
        )
    except Fenced:
        raise
    except Exception as error:  # noqa: BLE001 - containment is the task
        # Half of something may stand there now.
        setting.session_cache.forget_all()
        return describe_exception(error, smaller, stage.name)


def describe_exception(error: Exception, snapshot: Snapshot, stage: str) -> SessionFault:
    """The exception as data; its stack, which holds the session, is let go."""
    fault = SessionFault(
        kind=type(error).__name__,
        says=shorten(str(error)),
        stage=stage,
        place=source_location(error),
        suspects=SuspectIndex(snapshot).suspects_in_error(error),
        story="".join(traceback.format_exception(error))[-limits.FAULT_STORY_MAX :],
        loud=isinstance(error, InvariantBroken),
    )
    traceback.clear_frames(error.__traceback__)
    return fault


def _run_session(
    snapshot: Snapshot, setting: AttemptSetting, mode: SessionMode, stage: AttemptStage
) -> AttemptResult:
    policy = _reduced_policy(setting.policy, mode)
    placement = setting.placement
    placement = placement if mode.solver else attrs.evolve(placement, solver="greedy")
    skipped: set[str] = set()
    faults: list[str] = []
    if snapshot.may_end_early and not _may_end_early(policy, mode):
        snapshot = attrs.evolve(snapshot, may_end_early=False)
    observed = ObservedSnapshot.observing(snapshot)
    while True:
        stage.enter_stage(OPEN_STAGE)
        session = Session(
            observed, policy.plugins, policy.capabilities, guard=setting.guard,
            session_cache=setting.session_cache, placement=placement, search=setting.search,
            on_gang=setting.on_gang,
        )  # fmt: skip
        stage.enter_stage(STOPS_STAGE)
        if STOPS_STAGE not in mode.skipped:
            stop_gangs(session)
            clear_windows(session)
        if not (failed := _run_actions(session, policy.actions, skipped, stage, setting.ended)):
            stage.enter_stage(LATE_CLAIMS_STAGE)
            if LATE_CLAIMS_STAGE not in mode.skipped:
                late_claims(session).make()
                setting.ended(LATE_CLAIMS_STAGE)
            break
        # Half of what it did may stand on the workbench: decide again as if it were not there.
        skipped.add(failed)
        faults += session.hooks.faults
        session.dissolve()
    if session.early_end.reached:
        result = _early_result(session, mode, stage, observed)
    else:
        result = _whole_result(session, mode, stage, observed)
        setting.session_cache.keep_only(snapshot.gangs)
    result = attrs.evolve(result, snapshot=snapshot, faults=(*faults, *result.faults))
    session.keep_places()
    session.dissolve()
    return result


def _plan_parts(
    session: Session, mode: SessionMode, stage: AttemptStage, names: Container[str]
) -> Plan:
    parts: dict[str, Any] = {}
    for name, build in _PLAN_PARTS:
        stage.enter_stage(name)
        if name not in mode.skipped and name in names:
            parts[_PLAN_FIELDS[name]] = build(session)
    return Plan(revision=session.snapshot.revision, **parts)


def _early_result(
    session: Session, mode: SessionMode, stage: AttemptStage, observed: ObservedSnapshot
) -> AttemptResult:
    """What a session leaves that ended early: its starts, and all else as it was."""
    snapshot = session.snapshot
    settled = session.early_end.settled and not session.nominations.plans
    return AttemptResult(
        snapshot=snapshot,
        plan=_plan_parts(session, mode, stage, _OF_STARTS),
        waiting={},
        faults=tuple(session.hooks.faults),
        searches=tuple(session.searches),
        rounds=snapshot.tenant_rounds,
        expected_starts=snapshot.expected_starts,
        spare_room=snapshot.spare_room,
        next_limit=observed.next_limit if settled else inf,
        ended_early=True,
        settled=settled,
    )


def _whole_result(
    session: Session, mode: SessionMode, stage: AttemptStage, observed: ObservedSnapshot
) -> AttemptResult:
    plan = _plan_parts(session, mode, stage, _PLAN_FIELDS)
    stage.enter_stage(WAITING_STAGE)
    waiting = {} if WAITING_STAGE in mode.skipped else count_waiting_gangs(session)
    stage.enter_stage(RESERVED_STAGE)
    reserved = () if RESERVED_STAGE in mode.skipped else reserved_rooms(session)
    spare = {} if RESERVED_STAGE in mode.skipped else spare_room(session)
    return AttemptResult(
        snapshot=observed,
        plan=plan,
        waiting=waiting,
        faults=tuple(session.hooks.faults),
        searches=tuple(session.searches),
        rounds=session.gang_selection.tenant_rounds(),
        closed=session.outcomes.closed,
        untold=tuple(
            (name, describe_exception(error, observed, "queue statuses"))
            for name, error in session.outcomes.untold_queues.items()
        ),
        order=session.outcomes.waiting_order,
        reserved=reserved,
        expected_starts=session.outcomes.expected_starts,
        spare_room=spare,
        stays_until=observed.stays_until,
        next_limit=observed.next_limit,
    )


def _may_end_early(policy: Policy, mode: SessionMode) -> bool:
    """Whether all that a session does may be left to the next one: of actions of others nobody knows."""
    shipped = all(type(action).__module__.startswith("gpusched.") for action in policy.actions)
    return shipped and mode == FULL_MODE


def _reduced_policy(policy: Policy, mode: SessionMode) -> Policy:
    if mode == FULL_MODE:
        return policy
    off = {*mode.skipped, *(() if mode.evictions else EVICTING_ACTIONS)}
    actions = tuple(action for action in policy.actions if action.name not in off)
    return attrs.evolve(policy, actions=actions)


def _run_actions(
    session: Session,
    actions: Sequence[Action],
    skipped: set[str],
    stage: AttemptStage,
    ended: ActionTimer,
) -> str:
    """Run the actions; the name of the one of others that failed when it had begun, else empty."""
    for action in actions:
        if action.name in skipped:
            continue
        if session.early_end.reached and not _LEFT_OUT.isdisjoint(action_capabilities(action)):
            continue
        stage.enter_stage(action.name)
        session.renew_shares(len(actions))
        if _action_failed(session, action):
            return action.name
        ended(action.name)
    return ""


def _action_failed(session: Session, action: Action) -> bool:
    """Run one action; whether it is another's, began and failed.

    What shipped actions raise goes to the code that contains the session. Foreign actions are
    contained like plugins; one that was quarantined is not even begun.
    """
    if type(action).__module__.startswith("gpusched."):
        action.run(session)
        return False
    begun = failed = False

    def run() -> None:
        nonlocal begun
        begun = True
        try:
            with session.enforcing_reservations():
                action.run(session)
        except InvariantBroken as error:
            # It misused a statement, say; no doubt stays, as the session is dropped.
            raise PluginFault(action.name, "run", str(error)) from error

    def blame(fault: PluginFault) -> None:
        nonlocal failed
        failed = begun
        session.hooks.faults.append(str(fault))

    reserve_ahead(session)
    session.hooks.guard.wrap_hook(action.name, "run", run, blame)()
    return failed
