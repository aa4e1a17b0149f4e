"""The pure function that carries the product: a snapshot and a policy in, a plan out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet

import attrs

from gpusched.cache.snapshot import Snapshot
from gpusched.config.model import Placement
from gpusched.errors import InvariantBroken, PluginFault
from gpusched.placement.problem import Search, search_here
from gpusched.session.binds import gang_binds
from gpusched.session.claims import claims, stops
from gpusched.session.jobs import switches
from gpusched.session.masks import MaskCache
from gpusched.session.plan import Plan
from gpusched.session.protocols import Action, Guard, Policy
from gpusched.session.queue_status import queue_statuses
from gpusched.session.searches import Record
from gpusched.session.session import Session
from gpusched.session.status import gang_statuses, unplaced
from gpusched.session.stops import stop_gangs
from gpusched.session.topology_status import topology_statuses

DEFAULT_PLACEMENT = Placement()
ActionTimer = Callable[[str], None]
"""Told the name of each action when it ends; the outer layer reads its own clock then."""


@attrs.frozen(kw_only=True)
class Decision:
    """What a session leaves.

    Attributes:
        waiting: numbers of waiting gangs by queue and reason.
        faults: sentences about plugins that failed.
        searches: what was searched for and how it ended.
    """

    plan: Plan
    waiting: Mapping[tuple[str, str], int]
    faults: tuple[str, ...]
    searches: tuple[Record, ...] = ()


def decide(
    snapshot: Snapshot,
    policy: Policy,
    *,
    guard: Guard,
    masks: MaskCache,
    placement: Placement = DEFAULT_PLACEMENT,
    search: Search = search_here,
    ended: ActionTimer = lambda _name: None,
) -> Decision:
    """Run one session.

    Args:
        snapshot: of this moment; its ``now`` is the only time there is.
        policy: actions and plugins.
        guard: contains the plugins; one for each loaded policy.
        masks: filter results of earlier sessions under the same policy.
        placement: how to search.
        search: runs what may take long or crash, in this process or in another.
        ended: told after each action.
    """
    skipped: set[str] = set()
    faults: list[str] = []
    while True:
        session = Session(
            snapshot, policy, guard=guard, masks=masks, placement=placement, search=search
        )
        stop_gangs(session)
        failed = _act(session, policy.actions, skipped=skipped, ended=ended)
        if not failed:
            break
        # Half of what it did may stand on the workbench: decide again as if it were not there.
        skipped.add(failed)
        faults += session.hooks.faults
    plan = Plan(
        revision=snapshot.revision,
        binds=gang_binds(session),
        claims=claims(session),
        stops=stops(session),
        switches=switches(session),
        gangs=gang_statuses(session),
        queues=queue_statuses(session),
        topologies=topology_statuses(session),
    )
    masks.only(snapshot.gangs, snapshot.active)
    return Decision(
        plan=plan,
        waiting=unplaced(session),
        faults=(*faults, *session.hooks.faults),
        searches=tuple(session.searches),
    )


def _act(
    session: Session, actions: Sequence[Action], *, skipped: AbstractSet[str], ended: ActionTimer
) -> str:
    """Run the actions; the name of the one that failed when it had begun, else empty."""
    for action in actions:
        if action.name in skipped:
            continue
        if _failed(session, action):
            return action.name
        ended(action.name)
    return ""


def _failed(session: Session, action: Action) -> bool:
    """Run one action; whether it began and failed.

    Our own actions are not contained: what they raise is a bug, told with a dump. Those of
    others are, like plugins; one that was set aside is not even begun.
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
