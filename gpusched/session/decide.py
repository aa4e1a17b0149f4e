"""The pure function that carries the product: a snapshot and a policy in, a plan out.

It contains itself: an object for which a session raises is set aside, and all others are decided
as if it were not there; see ``session.containment`` and docs/containment.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs

from gpusched.cache.snapshot import Round, Snapshot
from gpusched.config.model import Placement
from gpusched.objects.meta import GangKey
from gpusched.placement.problem import Search, search_here
from gpusched.session.aside_status import gangs_aside, gangs_idle, queues_aside, topologies_aside
from gpusched.session.attempt import ActionTimer, Decided, Setting
from gpusched.session.contained import hold
from gpusched.session.containment import Containment, Degraded, SetAside
from gpusched.session.masks import MaskCache
from gpusched.session.plan import Plan
from gpusched.session.protocols import Guard, Policy
from gpusched.session.reasons import Reason
from gpusched.session.searches import Record

DEFAULT_PLACEMENT = Placement()


@attrs.frozen(kw_only=True)
class Decision:
    """What a session leaves.

    Attributes:
        waiting: numbers of waiting gangs by queue and reason.
        faults: sentences about plugins that failed.
        searches: what was searched for and how it ended.
        snapshot: what it was decided on: without what was set aside.
        own: the plan without what is told of objects that were set aside.
        set_aside: objects that are left out, sorted.
        contained: those of them that were not left out before.
        degraded: how much plainer than configured the session was; None for not at all.
        again: whether the next session should follow at once.
        rounds: of tenants whose gangs this session could not all look at, for the next snapshot.
    """

    plan: Plan
    waiting: Mapping[tuple[str, str], int]
    faults: tuple[str, ...]
    searches: tuple[Record, ...] = ()
    snapshot: Snapshot
    own: Plan
    set_aside: tuple[SetAside, ...] = ()
    contained: tuple[SetAside, ...] = ()
    degraded: Degraded | None = None
    again: bool = False
    rounds: tuple[Round, ...] = ()

    @property
    def unfinished(self) -> bool:
        """Whether there are gangs that wait to be looked at."""
        return any(each.left for each in self.rounds)


def decide(
    snapshot: Snapshot,
    policy: Policy,
    *,
    guard: Guard,
    masks: MaskCache,
    placement: Placement = DEFAULT_PLACEMENT,
    search: Search = search_here,
    ended: ActionTimer = lambda _name: None,
    containment: Containment | None = None,
    hand: Callable[[GangKey], None] = lambda _gang: None,
    began: ActionTimer = lambda _name: None,
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
        containment: remembers from session to session what was set aside under this policy; None
            where this session is the only one.
        hand: told of each gang as it is taken in hand.
        began: told of each stage as it begins.
    """
    memory = Containment() if containment is None else containment
    setting = Setting(
        policy=policy,
        guard=guard,
        masks=masks,
        placement=placement,
        search=search,
        ended=ended,
        hand=hand,
        began=began,
    )
    held = hold(snapshot, setting, memory)
    return _told(snapshot, held.decided, memory, contained=held.contained, again=held.again)


def _told(
    snapshot: Snapshot,
    decided: Decided,
    memory: Containment,
    *,
    contained: tuple[SetAside, ...],
    again: bool,
) -> Decision:
    """The decision, with what is told of those who are set aside."""
    plan, waiting = decided.plan, decided.waiting
    idle = memory.degraded is not None and not memory.degraded.mode.decides
    if memory.aside or idle:
        gangs = gangs_aside(snapshot, memory.aside)
        if idle and memory.degraded is not None:
            known = {status.gang for status in (*plan.gangs, *gangs)}
            gangs = (*gangs, *gangs_idle(snapshot, memory.degraded, known))
        queues = queues_aside(snapshot, memory.aside)
        plan = attrs.evolve(
            plan,
            gangs=tuple(sorted((*plan.gangs, *gangs), key=lambda status: status.gang)),
            queues=tuple(sorted((*plan.queues, *queues), key=lambda status: status.name)),
            topologies=(*plan.topologies, *topologies_aside(snapshot, memory.aside)),
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
        set_aside=memory.aside,
        contained=contained,
        degraded=memory.degraded,
        again=again,
        rounds=decided.rounds,
    )
