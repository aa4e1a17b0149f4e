"""How much the next session may look at, after one that started all that it looked at.

What a session costs beside what it decides, it costs for everybody who waits. So a burst of gangs that start is decided
in fewer and longer sessions, as in TCP's slow start: each looks at twice as much as the one before it, up to what all actions
of a session may spend together. The first gang that does not start ends that.
"""

from __future__ import annotations

import attrs

from gpusched.cache.snapshot import Snapshot
from gpusched.session.state.order.round_progress import Rounds
from gpusched.session.state.plan import Plan


def with_work_times(snapshot: Snapshot, times: int) -> Snapshot:
    """The snapshot for a session, each action of which may spend so many times ``limits.sessionWork``."""
    if times == 1:
        return snapshot
    limits = attrs.evolve(snapshot.limits, session_work=snapshot.limits.session_work * times)
    return attrs.evolve(snapshot, limits=limits, work_times=times)


def next_work_times(snapshot: Snapshot, plan: Plan, rounds: Rounds, *, actions: int) -> int:
    """How many times ``limits.sessionWork`` an action of the next session may spend.

    Args:
        snapshot: of the session that was held.
        plan: that it decided on.
        rounds: how far it came with tenants that have too much for one session.
        actions: of a session, all of which together never spend more.
    """
    if not _burst_goes_on(snapshot, plan, rounds):
        return 1
    return max(1, min(2 * snapshot.work_times, actions))


def _burst_goes_on(snapshot: Snapshot, plan: Plan, rounds: Rounds) -> bool:
    """Whether all that it looked at started, of each tenant with too much for one session, and more of them waits."""
    if not rounds or plan.preemptions:
        return False
    started = {bind.gang for bind in plan.binds}
    before = {(each.queue, each.namespace): each for each in snapshot.tenant_rounds}
    for each in rounds:
        known = before.get((each.queue, each.namespace))
        fresh = each.looked_at - known.looked_at if known is not None else each.looked_at
        if not each.left or not fresh or not fresh <= started:
            return False
    return True
