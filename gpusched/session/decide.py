"""The pure function that carries the product: a snapshot and a policy in, a plan out."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs

from gpusched.cache.snapshot import Snapshot
from gpusched.session.masks import MaskCache
from gpusched.session.plan import Plan
from gpusched.session.protocols import Guard, Policy
from gpusched.session.session import Session
from gpusched.session.status import gang_statuses, queue_statuses, unplaced

ActionTimer = Callable[[str], None]
"""Told the name of each action when it ends; the outer layer reads its own clock then."""


@attrs.frozen(kw_only=True)
class Decision:
    """What a session leaves.

    Attributes:
        waiting: numbers of waiting gangs by queue and reason.
        faults: sentences about plugins that failed.
    """

    plan: Plan
    waiting: Mapping[tuple[str, str], int]
    faults: tuple[str, ...]


def decide(
    snapshot: Snapshot,
    policy: Policy,
    *,
    guard: Guard,
    masks: MaskCache,
    ended: ActionTimer = lambda _name: None,
) -> Decision:
    """Run one session.

    Args:
        snapshot: of this moment; its ``now`` is the only time there is.
        policy: actions and plugins.
        guard: contains the plugins; one for each loaded policy.
        masks: filter results of earlier sessions under the same policy.
        ended: told after each action.
    """
    session = Session(snapshot, policy, guard=guard, masks=masks)
    for action in policy.actions:
        action.run(session)
        ended(action.name)
    plan = Plan(
        revision=snapshot.revision,
        binds=session.gang_binds(),
        gangs=gang_statuses(session),
        queues=queue_statuses(session),
    )
    return Decision(plan=plan, waiting=unplaced(session), faults=tuple(session.hooks.faults))
