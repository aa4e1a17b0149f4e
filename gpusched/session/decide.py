"""The pure function that carries the product: a snapshot and a policy in, a plan out."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs

from gpusched.cache.snapshot import Snapshot
from gpusched.config.model import Placement
from gpusched.session.claims import claims, stops
from gpusched.session.jobs import switches
from gpusched.session.masks import MaskCache
from gpusched.session.plan import Plan
from gpusched.session.protocols import Guard, Policy
from gpusched.session.session import Session
from gpusched.session.status import gang_statuses, queue_statuses, unplaced

DEFAULT_PLACEMENT = Placement()
ActionTimer = Callable[[str], None]
"""Told the name of each action when it ends; the outer layer reads its own clock then."""


@attrs.frozen(kw_only=True)
class Decision:
    """What a session leaves.

    Attributes:
        waiting: numbers of waiting gangs by queue and reason.
        faults: sentences about plugins that failed.
        searches: how each search of the solver ended, and its seconds.
    """

    plan: Plan
    waiting: Mapping[tuple[str, str], int]
    faults: tuple[str, ...]
    searches: tuple[tuple[str, float], ...] = ()


def decide(
    snapshot: Snapshot,
    policy: Policy,
    *,
    guard: Guard,
    masks: MaskCache,
    placement: Placement = DEFAULT_PLACEMENT,
    ended: ActionTimer = lambda _name: None,
) -> Decision:
    """Run one session.

    Args:
        snapshot: of this moment; its ``now`` is the only time there is.
        policy: actions and plugins.
        guard: contains the plugins; one for each loaded policy.
        masks: filter results of earlier sessions under the same policy.
        placement: how to search.
        ended: told after each action.
    """
    session = Session(snapshot, policy, guard=guard, masks=masks, placement=placement)
    for action in policy.actions:
        action.run(session)
        ended(action.name)
    plan = Plan(
        revision=snapshot.revision,
        binds=session.gang_binds(),
        claims=claims(session),
        stops=stops(session),
        switches=switches(session),
        gangs=gang_statuses(session),
        queues=queue_statuses(session),
    )
    return Decision(
        plan=plan,
        waiting=unplaced(session),
        faults=tuple(session.hooks.faults),
        searches=tuple((str(outcome), seconds) for outcome, seconds in session.searches),
    )
