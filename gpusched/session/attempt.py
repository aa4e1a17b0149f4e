"""One attempt at a session: the actions in order, then the parts of the plan.

Whatever it raises comes back as a ``Fault`` that names the stage and what was in hand.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import attrs

from gpusched import limits
from gpusched.cache.snapshot import Round, Snapshot
from gpusched.config.model import Placement
from gpusched.errors import Fenced, InvariantBroken, PluginFault
from gpusched.objects.meta import GangKey
from gpusched.placement.problem import Search
from gpusched.session.binds import gang_binds
from gpusched.session.claims import claims, stops
from gpusched.session.containment import EVICTING, FULL, Mode
from gpusched.session.jobs import switches
from gpusched.session.listening import Listening, Stage
from gpusched.session.masks import MaskCache
from gpusched.session.plan import Plan
from gpusched.session.protocols import Action, Guard, Policy
from gpusched.session.queue_status import queue_statuses
from gpusched.session.reasons import short
from gpusched.session.searches import Record
from gpusched.session.session import Session
from gpusched.session.status import gang_statuses, unplaced
from gpusched.session.stops import stop_gangs
from gpusched.session.suspects import Fault, Index, Suspect, place_of
from gpusched.session.topology_status import topology_statuses
from gpusched.session.without import without

ActionTimer = Callable[[str], None]
"""Told the name of each action when it ends; the outer layer reads its own clock then."""

OPEN: Final = "open"
STOPS: Final = "stops"
WAITING: Final = "waiting"
_PARTS: Final[tuple[tuple[str, Callable[[Session], Any]], ...]] = (
    ("binds", gang_binds),
    ("claims", claims),
    ("stopped gangs", stops),
    ("switches", switches),
    ("gang statuses", gang_statuses),
    ("queue statuses", queue_statuses),
    ("topology statuses", topology_statuses),
)
_FIELDS: Final = {
    "binds": "binds",
    "claims": "claims",
    "stopped gangs": "stops",
    "switches": "switches",
    "gang statuses": "gangs",
    "queue statuses": "queues",
    "topology statuses": "topologies",
}
SPARE: Final = frozenset({"backfill", WAITING})
"""Stages that nobody waits for."""
DISPENSABLE: Final = frozenset({STOPS, *SPARE, *_FIELDS})
"""Stages without which all others are what they are."""


@attrs.frozen(kw_only=True)
class Setting:
    """What all attempts at one decision have in common; see ``decide``."""

    policy: Policy
    guard: Guard
    masks: MaskCache
    placement: Placement
    search: Search
    ended: ActionTimer = lambda _name: None
    hand: Callable[[GangKey], None] = lambda _gang: None
    began: ActionTimer = lambda _name: None


@attrs.frozen(kw_only=True)
class Decided:
    """What an attempt that came to its end leaves.

    Attributes:
        snapshot: that it was decided on.
        rounds: of tenants whose gangs it could not all look at.
        closed: why nothing may be placed, empty when it may.
        hooks: faults of hooks of ours, with what they were asked about.
        answers: hooks of ours that answered.
    """

    snapshot: Snapshot
    plan: Plan
    waiting: Mapping[tuple[str, str], int]
    faults: tuple[str, ...]
    searches: tuple[Record, ...]
    rounds: tuple[Round, ...] = ()
    closed: str = ""
    hooks: tuple[Fault, ...] = ()
    answers: frozenset[str] = frozenset()


def attempt(
    snapshot: Snapshot,
    aside: frozenset[Suspect],
    setting: Setting,
    *,
    mode: Mode = FULL,
) -> Decided | Fault:
    """Decide on the snapshot without some objects.

    Args:
        snapshot: of this moment.
        aside: objects that are taken as not being there.
        setting: of the decision.
        mode: how much of a session is done.
    """
    stage = Stage(told=setting.began)
    smaller = snapshot
    try:
        smaller = without(snapshot, aside)
        heard = Listening(setting.guard, stage, smaller, setting.policy.plugins)
        decided = _session(smaller, attrs.evolve(setting, guard=heard), mode, stage)
        return attrs.evolve(decided, hooks=tuple(heard.faults), answers=frozenset(heard.answers))
    except Fenced:
        raise
    except Exception as error:  # noqa: BLE001 - containment is the task
        # Half of something may stand there now.
        setting.masks.forget_all()
        return fault_of(error, smaller, stage.name)


def fault_of(error: Exception, snapshot: Snapshot, stage: str) -> Fault:
    """The exception as data; its stack, which holds the session, is let go."""
    fault = Fault(
        kind=type(error).__name__,
        says=short(str(error)),
        stage=stage,
        place=place_of(error),
        suspects=Index(snapshot).suspects(error),
        story="".join(traceback.format_exception(error))[-limits.FAULT_STORY_MAX :],
        loud=isinstance(error, InvariantBroken),
    )
    traceback.clear_frames(error.__traceback__)
    return fault


def _session(snapshot: Snapshot, setting: Setting, mode: Mode, stage: Stage) -> Decided:
    policy = _plainer(setting.policy, mode)
    placement = setting.placement
    if not mode.solver:
        placement = attrs.evolve(placement, solver="greedy")
    skipped: set[str] = set()
    faults: list[str] = []
    while True:
        stage.enter(OPEN)
        session = Session(
            snapshot, policy, guard=setting.guard, masks=setting.masks, placement=placement,
            search=setting.search, hand=setting.hand,
        )  # fmt: skip
        stage.enter(STOPS)
        if STOPS not in mode.skipped:
            stop_gangs(session)
        failed = _act(session, policy.actions, skipped, stage, setting.ended)
        if not failed:
            break
        # Half of what it did may stand on the workbench: decide again as if it were not there.
        skipped.add(failed)
        faults += session.hooks.faults
    parts: dict[str, Any] = {}
    for name, build in _PARTS:
        stage.enter(name)
        if name not in mode.skipped:
            parts[_FIELDS[name]] = build(session)
    stage.enter(WAITING)
    waiting = {} if WAITING in mode.skipped else unplaced(session)
    setting.masks.only(snapshot.gangs, snapshot.active)
    return Decided(
        snapshot=snapshot,
        plan=Plan(revision=snapshot.revision, **parts),
        waiting=waiting,
        faults=(*faults, *session.hooks.faults),
        searches=tuple(session.searches),
        rounds=session.portion.rounds(),
        closed=session.closed,
    )


def _plainer(policy: Policy, mode: Mode) -> Policy:
    if mode == FULL:
        return policy
    off = {*mode.skipped, *(() if mode.evictions else EVICTING)}
    actions = tuple(action for action in policy.actions if action.name not in off)
    return attrs.evolve(policy, actions=actions)


def _act(
    session: Session,
    actions: Sequence[Action],
    skipped: set[str],
    stage: Stage,
    ended: ActionTimer,
) -> str:
    """Run the actions; the name of the one of others that failed when it had begun, else empty."""
    for action in actions:
        if action.name in skipped:
            continue
        stage.enter(action.name)
        session.work.begin()
        if _failed(session, action):
            return action.name
        ended(action.name)
    return ""


def _failed(session: Session, action: Action) -> bool:
    """Run one action; whether it is another's, began and failed.

    What our own actions raise goes to whoever contains the session. Those of others are contained
    like plugins; one that was set aside is not even begun.
    """
    if type(action).__module__.startswith("gpusched."):
        action.run(session)
        return False
    begun = failed = False

    def run() -> None:
        nonlocal begun
        begun = True
        try:
            action.run(session)
        except InvariantBroken as error:
            # It misused a statement, say; no doubt stays, as the session is dropped.
            raise PluginFault(action.name, "run", str(error)) from error

    def blame(fault: PluginFault) -> None:
        nonlocal failed
        failed = begun
        session.hooks.faults.append(str(fault))

    session.hooks.guard.wrap(action.name, "run", run, blame)()
    return failed
