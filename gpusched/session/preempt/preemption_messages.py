"""Messages for gangs for which others are, or are not, evicted."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from gpusched.api.gang.eviction_record import evictions_text
from gpusched.api.meta.identity import format_time
from gpusched.cache.gangs.gang import Gang
from gpusched.session.allocate.pod_by_pod import has_inter_pod_rules
from gpusched.session.framework.proposal import RECLAIM
from gpusched.session.framework.reasons import nodes_text, pods_text, shorten, truncate_message
from gpusched.session.preempt.victim_selection import VictimRules
from gpusched.session.state.plan import EvictionCount
from gpusched.session.state.session import Session
from gpusched.session.state.statement import EvictOperation


def preemption_in_progress_message(
    session: Session, gang: Gang, evictions: Sequence[EvictOperation]
) -> str:
    """The sentence for a gang for which room is being made."""
    places = session.nominations.nominated_places(gang)
    rows = {place.row for place in places}
    gangs = {each.gang.key for each in evictions}
    whose = "1 gang" if len(gangs) == 1 else f"{len(gangs)} gangs"
    by = f" by evicting {pods_text(len(evictions))} of {whose}" if evictions else ""
    return truncate_message(
        f"room for {pods_text(len(places))} is being freed on {nodes_text(len(rows))}{by} and is held "
        f"for it"
    )


def repeats_message(count: EvictionCount) -> str:
    """How often a gang was evicted of late, and whether room goes round between gangs."""
    chain = count.chain
    cycle = ""
    if chain.is_cycle:
        cycle = (
            f"; now for a gang that was evicted for it: {chain.length} evictions in a circle, which "
            f"cost {chain.gpu_seconds:,} GPU-seconds"
        )
    told = evictions_text(count.newest, count.window_s)
    return truncate_message(f"{told}{cycle}; minRuntime of the gang or of its queue protects it")


def has_pod_rules(session: Session, claimant: Gang) -> bool:
    """Whether a member of a gang that waits has a rule about other pods, or is meant by one of others."""
    return has_inter_pod_rules(session, [(each, len(each.pods)) for each in claimant.pod_sets])


def told_reach(session: Session, claimant: Gang, need: int, reach: int) -> int:
    """How many members would have found room without victims, as a gang may be told; -1 where amounts alone say it.

    Rules about other pods are not counted then: pods that stay may forbid what all that leave give room for.
    """
    return -1 if reach >= need and has_pod_rules(session, claimant) else reach


def preemption_failed_message(
    rules: VictimRules,
    *,
    need: int,
    reach: int,
    unstable: Gang | None,
    taker: Gang | None,
    chains_from: float,
) -> str:
    """Why no gang is evicted for another.

    Args:
        rules: who may be evicted for it.
        need: members for which room is needed.
        reach: members that would have found room at most.
        unstable: a victim that would have a third gang evicted once it is made again.
        taker: a gang for which this one would be evicted at once.
        chains_from: when victims may have third gangs evicted for it; infinite for never.
    """
    if rules.action != RECLAIM:
        whom = "evicting every preemptible pod of lower priority"
    elif rules.only_spare:
        whom = "taking back all members that gangs of other queues can spare and must give"
    else:
        whom = "taking back all that other queues must give"
    if taker is not None:
        name = shorten(f"{taker.key.namespace}/{taker.key.name}")
        return f"{whom} would leave room, of which it would be evicted at once for {name}"
    if unstable is not None:
        name = shorten(f"{unstable.key.namespace}/{unstable.key.name}")
        message = f"{name} stays: once made again, it would have a third gang evicted"
        if chains_from < inf:
            message += f"; it may be evicted for this gang from {format_time(chains_from)} on"
        return message
    if reach >= need:
        return f"{whom} would leave the room, but not all of it may go for this gang"
    return f"{whom} would leave room for {reach} of {need}"
