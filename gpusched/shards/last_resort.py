"""Evictions in shards are the last resort: before it a gang goes where there is room, or waits for nodes that are lent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import attrs

from gpusched.api.meta.identity import GangKey
from gpusched.cache.gangs.gang import Gang
from gpusched.cache.snapshot import Snapshot
from gpusched.session.framework.reasons import Reason
from gpusched.session.state.plan import GangStatus, PendingReason, Plan
from gpusched.shards.board import Board
from gpusched.shards.handover import fits_amounts, smallest_start
from gpusched.shards.layout import ShardLayout
from gpusched.shards.lending import ASKED_AFTER_S, node_wish

LENT_WITHIN_S: Final = 20.0
"""Within which nodes that were asked for are lent, if they are: two looks at the board, a session each, and some more."""


def claiming_gangs(snapshot: Snapshot, plan: Plan) -> Iterator[Gang]:
    """Gangs that are to start whole, and for which others are to be evicted by this plan and by none before it."""
    claims = {each.gang for each in plan.preemptions if each.stops and each.nominations}
    for gang in snapshot.gangs if claims else ():
        if gang.key in claims and not gang.placed and not gang.has_nominated_pods:
            yield gang


def may_be_lent(
    gang: Gang,
    here: str,
    snapshot: Snapshot,
    layout: ShardLayout,
    board: Board,
    *,
    waited_s: float,
) -> bool:
    """Whether nodes of shards that lend may come in time for a gang, so that nobody has to be evicted for it.

    Args:
        gang: for which others would be evicted.
        here: the shard that it is in.
        snapshot: in which it waits.
        layout: all shards.
        board: as it was read last.
        waited_s: seconds for which it has lacked room here.
    """
    if waited_s >= ASKED_AFTER_S + LENT_WITHIN_S:
        return False
    asked, free = smallest_start(gang), dict[str, int]()
    for shard in layout.names:
        entry = board.shards.get(shard)
        if entry is not None and (shard == here or layout.lends(shard)):
            for name, amount in entry.free.items():
                free[name] = free.get(name, 0) + amount
    return fits_amounts(asked, free) and node_wish(gang, "", snapshot.nodes, lent=0) is not None


def without_claims(plan: Plan, why: Mapping[GangKey, str]) -> Plan:
    """The plan without evictions for some gangs.

    Args:
        plan: that was decided.
        why: what these gangs are told, by gang.
    """

    def told(status: GangStatus) -> GangStatus:
        message = why.get(status.gang, "")
        if not message:
            return status
        reason = PendingReason(reason=Reason.INSUFFICIENT_RESOURCES, message=message)
        return attrs.evolve(status, nominated=(), scheduled=reason)

    return attrs.evolve(
        plan,
        preemptions=tuple(each for each in plan.preemptions if each.gang not in why),
        gangs=tuple(map(told, plan.gangs)),
    )
