"""One cycle's workbench: policies advise, actions try moves, kept moves become a plan.

A session reads one snapshot and nothing else: no clock, no randomness, no API. The same
snapshot and policy give the same plan, whatever the order in which objects arrived.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np

from gpusched.arrays.columns import Bools, Demand, Ints, Workbench, demand
from gpusched.cache.gangs import Gang, Task
from gpusched.cache.queues import QueueNode
from gpusched.cache.snapshot import Snapshot
from gpusched.config.model import Placement
from gpusched.errors import PluginFault
from gpusched.limits import PLAN_BINDS_MAX
from gpusched.objects.meta import GangKey
from gpusched.objects.pod import PodClass
from gpusched.objects.resources import NOTHING, Resources
from gpusched.placement.board import Board
from gpusched.placement.problem import Outcome
from gpusched.session.hooks import Hooks
from gpusched.session.masks import MaskCache
from gpusched.session.plan import Ask, GangBind, PodBind
from gpusched.session.protocols import Guard, Policy
from gpusched.session.reasons import Reason, members, short
from gpusched.session.statement import Place, Statement
from gpusched.session.verdict import Verdict, error
from gpusched.session.view import NodeRows, View
from gpusched.topology.domain import Level


@attrs.frozen(slots=True, eq=False)
class ClassSeat:
    """One class in this session: its demand, what filters refuse, its board."""

    ask: Demand
    refused: list[Bools]
    board: Board


class Session:
    """What actions work with.

    Args:
        snapshot: of this moment.
        policy: actions and plugins in order.
        guard: contains the plugins.
        masks: filter results kept from earlier sessions of the same policy.
        placement: how long and how to search where one pass does not find a place.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        policy: Policy,
        *,
        guard: Guard,
        masks: MaskCache,
        placement: Placement,
    ) -> None:
        self.snapshot = snapshot
        self.placement = placement
        self.searches: list[tuple[Outcome, float]] = []
        """How each search of the solver ended, and seconds spent, for metrics."""
        self.bench = Workbench(snapshot.nodes)
        self.charged: dict[str, Resources] = {}
        self.hooks = Hooks(guard)
        self.view = View(snapshot, self.charged, self.hooks.fair_shares)
        self.admitted: set[GangKey] = set()
        self.asks: dict[GangKey, Ask] = {}
        self.admission: dict[GangKey, Ask] = {}
        self.served: dict[str, int] = {}
        self.enqueue_ran = False
        self.closed = ""
        """Why nothing may be placed in this session: a policy that could not open is missing."""
        self._kept: dict[GangKey, list[Place]] = {}
        self._gangs: dict[GangKey, Gang] = {gang.key: gang for gang in snapshot.gangs}
        self._seats: dict[str, ClassSeat] = {}
        self._masks = masks
        self._binds = 0
        self._open(policy)

    def _open(self, policy: Policy) -> None:
        for plugin in policy.plugins:
            self.hooks.plugin = plugin.name
            opened = self.hooks.guard.wrap(plugin.name, "open", plugin.open, self._not_opened)
            opened(self.hooks, self.view)

    def _not_opened(self, fault: PluginFault, _hooks: Hooks, _view: View) -> None:
        self.hooks.faults.append(str(fault))
        self.closed = f"{fault}; nothing is placed until it works or is removed"

    # -- reading ---------------------------------------------------------------------------
    @property
    def gangs(self) -> tuple[Gang, ...]:
        """Sorted by key."""
        return self.snapshot.gangs

    @property
    def levels(self) -> tuple[Level, ...]:
        """Topology levels, widest first."""
        return self._masks.levels(self.snapshot.nodes, self.snapshot.topologies)

    @property
    def full(self) -> bool:
        """Whether the plan holds as many binds as one plan may."""
        return self._binds >= PLAN_BINDS_MAX

    def queue_of(self, gang: Gang) -> QueueNode | None:
        """The gang's queue, None when it does not exist."""
        return self.snapshot.queues.get(gang.queue)

    def kept(self, gang: Gang) -> list[Place]:
        """Places given to the gang in this session."""
        return self._kept.get(gang.key, [])

    def seat(self, pod_class: PodClass) -> ClassSeat:
        """The class on this session's nodes, up to date."""
        seat = self._seats.get(pod_class.digest)
        if seat is None:
            seat = self._make_seat(pod_class)
            self._seats[pod_class.digest] = seat
        else:
            seat.board.refresh()
        return seat

    def _make_seat(self, pod_class: PodClass) -> ClassSeat:
        nodes = self.snapshot.nodes
        ask = demand(pod_class.requests, nodes.columns)
        faults = self.hooks.filter_faults
        refused = self._masks.refusals(pod_class, nodes, self.hooks.filters)
        if self.hooks.filter_faults > faults:
            self._masks.forget(pod_class)
        allowed = np.full(len(nodes), not pod_class.unsupported, dtype=np.bool_)
        for mask in refused:
            allowed &= ~mask
        scores = self.hooks.scores
        bench = self.bench

        def score(rows: Sequence[int] | None) -> Ints:
            chosen = NodeRows(bench, rows)
            points: Ints = np.zeros(len(chosen), dtype=np.int64)
            for each in scores:
                opinion = each(pod_class, chosen)
                if opinion is not None:
                    points += opinion
            return points

        return ClassSeat(ask, refused, Board(bench, ask, allowed=allowed, score=score))

    def admit(self, gang: Gang, verdict: Verdict) -> None:
        """Enter the answer on admission; a refused gang is told the same on both conditions."""
        if self.closed:
            verdict = error(Reason.BACK_OFF, self.closed)
        if verdict.refuses:
            self.admission[gang.key] = Ask(reason=verdict.reason, sentence=verdict.sentence)
            self.refuse(gang, verdict.reason, verdict.sentence)
        else:
            self.admitted.add(gang.key)

    # -- moving ----------------------------------------------------------------------------
    def statement(self) -> Statement:
        """An empty batch of moves."""
        return Statement(self.bench)

    def keep(self, gang: Gang, statement: Statement) -> None:
        """The statement's moves belong to the plan; queues are charged up the tree."""
        places = statement.keep()
        if not places:
            return
        self._kept.setdefault(gang.key, []).extend(places)
        self._binds += len(places)
        counts: dict[str, tuple[PodClass, int]] = {}
        for place in places:
            digest = place.pod.pod_class.digest
            known = counts.get(digest)
            counts[digest] = (place.pod.pod_class, known[1] + 1 if known else 1)
        asked = NOTHING
        for pod_class, count in counts.values():
            asked = asked.plus(pod_class.requests, times=count)
        queue = self.queue_of(gang)
        for name in queue.path if queue else ():
            self.charged[name] = self.charged.get(name, NOTHING).plus(asked)

    def refuse(self, gang: Gang, reason: str, sentence: str) -> None:
        """The gang does not start in this session, and this is why."""
        self.asks[gang.key] = Ask(reason=reason, sentence=sentence)

    # -- the result ------------------------------------------------------------------------
    def gang_binds(self) -> tuple[GangBind, ...]:
        """The kept moves as data, sorted by gang."""
        nodes = self.snapshot.nodes.nodes
        binds = []
        for key, places in sorted(self._kept.items()):
            gang = self._gangs[key]
            moved = [
                PodBind(
                    place.pod.key,
                    place.pod.uid,
                    nodes[place.row].name,
                    nodes[place.row].uid,
                    place.slots,
                    place.pod.rank,
                    place.pod.pod_class.requests,
                )
                for place in places
            ]
            moved.sort(key=lambda bind: (bind.key, bind.uid))
            binds.append(
                GangBind(
                    gang=key,
                    uid=gang.uid,
                    generation=gang.generation,
                    queue=gang.queue,
                    min_member=gang.min_member,
                    placed=gang.ready,
                    binds=tuple(moved),
                )
            )
        return tuple(binds)


def wanted(gang: Gang, *, largest_first: bool) -> tuple[list[tuple[Task, int]], str]:
    """Which members start the gang: the roles' minima first, then as many as are missing.

    Returns:
        Pairs of task and count, largest class first, and a sentence when a role has too few
        pods (the pairs are then meaningless).
    """
    counts = dict.fromkeys(range(len(gang.tasks)), 0)
    order = list(range(len(gang.tasks)))
    if not largest_first:
        order.reverse()
    for role, lacking in gang.missing_roles:
        missing = lacking
        for index in order:
            task = gang.tasks[index]
            if task.role == role and missing > 0:
                counts[index] = min(missing, len(task.pods))
                missing -= counts[index]
        if missing > 0:
            return [], short_of_role(gang, role, missing)
    left = gang.need - sum(counts.values())
    for index in order:
        take = min(max(0, left), len(gang.tasks[index].pods) - counts[index])
        counts[index] += take
        left -= take
    return [(gang.tasks[index], count) for index, count in sorted(counts.items()) if count], ""


def short_of_role(gang: Gang, role: str, missing: int) -> str:
    """The sentence for a role of which so many pods are missing that nobody created."""
    minimum = dict(gang.min_roles)[role]
    return f"needs {members(minimum)} of role {short(role)}; {minimum - missing} can run"
