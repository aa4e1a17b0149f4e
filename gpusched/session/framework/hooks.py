"""The closed list of hooks, how opinions are combined, and what a fault costs.

| hook                                  | combined by                        | when one raises   |
|---------------------------------------|------------------------------------|-------------------|
| queue_order, queue_turn               | keys joined in tier order          | left out          |
| gang_order                            | keys joined in tier order          | left out          |
| pod_order                             | keys joined in tier order          | pods as they are  |
| node_filter                           | AND; each names its reason         | no node           |
| node_score, pair_score                | sum of clamped ints                | 0                 |
| pair_filter                           | AND; each names its reason         | no node           |
| enqueue_check, quota_check, gang_ready| AND; the first refusal counts      | ERROR, gang waits |
| reserve_check, reclaim_check          | AND; the first refusal counts      | ERROR, gang waits |
| growth_check                          | AND; the first refusal counts      | nobody is evicted |
| victim_filter, stop_filter            | AND; the first refusal counts      | nobody is evicted |
| reclaim_gate                          | AND; the first refusal counts      | nobody is evicted |
| victim_order, victim_preference       | keys joined in tier order          | no victim         |
| eviction_limits                       | all count; None: cannot be said    | nobody is evicted |
| stop_check                            | the first refusal is the reason    | nobody is stopped |
| fair_share                            | the first provider answers         | nothing is due    |
| walltime                              | the shortest answer                | unknown           |
| waits_too_long, compact               | any                                | no                |
| usage                                 | the first provider answers         | nothing was used  |

A veto is explicit. Tiers order keys and reasons; they never decide whether a veto counts.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, ParamSpec, TypeVar

import attrs
import numpy as np
import numpy.typing as npt

from gpusched.api.gang.pod_group import NO_TOPOLOGY_REQUEST
from gpusched.api.meta.resources import NOTHING, Resources
from gpusched.api.node.node import Node
from gpusched.api.pod.pod import Pod, PodClass
from gpusched.api.queue.queue import QueueUsage
from gpusched.base.classes import define, frozen
from gpusched.base.errors import PluginFault
from gpusched.base.limits import QUANTITY_MAX
from gpusched.cache.gangs.gang import Gang
from gpusched.cache.queues.tree import QueueNode
from gpusched.session.framework.guard import DependsOn, Guard
from gpusched.session.framework.hook_calls import (
    NO_EVICTION,
    ClaimantsFilter,
    Fields,
    FilterDetail,
    FullnessOf,
    HookCalls,
    JointCheck,
    NodeScore,
    NodeScoreHook,
    ReadyCheck,
    VictimFilter,
    VictimOrder,
    VictimsFilter,
    VictimsOrder,
    contain_when_called,
    fields_of,
    text_of,
)
from gpusched.session.framework.inter_pod_rules import (
    Concerns,
    PairHooks,
    RuleOf,
    ScoreOf,
    filter_failure_message,
    validated_concerns,
)
from gpusched.session.framework.proposal import (
    EvictionLimits,
    Moving,
    Proposal,
    Stable,
    VictimFilterHook,
    VictimKeyHook,
)
from gpusched.session.framework.sort_keys import Key, SortKeyHook
from gpusched.session.framework.verdict import ALLOW, Verdict

CompactCheck = Callable[[Gang], bool]


@frozen(slots=True)
class SpareNodes:
    """Empty GPU nodes of each domain of a level, spared for gangs that run in that domain."""

    level: str
    nodes: int


@define
class TopologyHooks:
    """Topology hooks that plugins registered for one session.

    Attributes:
        compacts: whether a gang wants the most compact place though it does not say so; any.
    """

    compacts: list[CompactCheck] = attrs.field(factory=list)
    spares: list[SpareNodes] = attrs.field(factory=list)
    one_gpu_type: bool = False
    """Whether gangs that do not say it are of one type of GPUs where that is possible."""
    fast_gpus_shared: bool = True
    """Whether a gang leaves a type of GPUs to those that gain more by it."""

    def wants_compact(self, gang: Gang) -> bool:
        """Whether the gang is to get the most compact place there is."""
        return gang.topology != NO_TOPOLOGY_REQUEST or any(each(gang) for each in self.compacts)


P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_RETRIED = "it is tried again"
QueueOrder = Callable[[QueueNode], Key]
QueueTurn = Callable[[QueueNode, Gang], Key]
GangOrder = Callable[[Gang], Key]
PodOrder = Callable[[Pod], Key]
NodeFilter = Callable[[PodClass, Sequence[Node]], "Sequence[bool] | npt.NDArray[np.bool_] | None"]
Check = Callable[[Gang], Verdict]
GrowthCheck = Callable[[Gang, Resources], Verdict]
LimitsOf = Callable[[Gang, str, Sequence[str]], EvictionLimits | None]
QueueTest = Callable[[QueueNode], bool]
ProposalCheck = Callable[[Proposal], Verdict]
FairShare = Callable[[str], Resources]
Walltime = Callable[[Gang], int]
Overdue = Callable[[Gang], bool]
UsageOf = Callable[[str], QueueUsage]


@frozen
class Filter:
    """One node filter: None from ``allows`` means no objection to any node."""

    plugin: str
    reason: str
    allows: NodeFilter
    failed: str = ""
    """Error of a filter that gave no answer, so that no node is accepted; empty for none."""
    reads: tuple[str, ...] | None = None
    """Fields of a class that its answers depend on: classes equal in these share them. None for all."""
    detail: FilterDetail | None = None

    def refusal_text(self, pod_class: PodClass, refused: Sequence[Node]) -> str:
        """The reason with what is in the way of the pods on these nodes, which it refuses."""
        told = self.detail(pod_class, refused[:_DETAIL_NODES_MAX]) if self.detail else ""
        return f"{self.reason} ({told})" if told else self.reason


_DETAIL_NODES_MAX = 100
"""Refused nodes that a filter's detail is asked about: a sentence names few things anyway."""


class Hooks(HookCalls):
    """Hooks that plugins register for one session in ``Plugin.open``.

    Args:
        guard: contains faults; every callable is wrapped by it.
        faults: sentences of what went wrong, for metrics and events.
    """

    def __init__(self, guard: Guard) -> None:
        super().__init__(guard)
        self.filter_faults = 0
        self.unanswered: dict[tuple[str, int], str] = {}
        """Errors of filters that failed on a class of pods, by its digest and the filter's number."""
        self.queue_orders: list[SortKeyHook] = []
        self.gang_orders: list[SortKeyHook] = []
        self.pod_orders: list[PodOrder] = []
        self.filters: list[Filter] = []
        self.scores: list[NodeScoreHook] = []
        self.pairs = PairHooks(guard, self.faults)
        self.enqueue_checks: list[Check] = []
        self.quota_checks: list[Check] = []
        self.ready_checks: list[ReadyCheck] = []
        self.reserve_checks: list[Check] = []
        self.joint_checks: list[JointCheck | None] = []
        """Forms of these for many gangs at once; None for one that has no such form."""
        self.reclaim_checks: list[Check] = []
        self.growth_checks: list[GrowthCheck] = []
        self.victim_filters: list[VictimFilterHook] = []
        self.stop_filters: list[VictimFilterHook] = []
        self.victim_orders: list[VictimKeyHook] = []
        self.victim_orders_fixed = True
        """Whether no key of ``victim_orders`` changes while victims leave."""
        self.victim_preferences: list[VictimKeyHook] = []
        self.limits_of: list[LimitsOf] = []
        self.reclaim_gates: list[ProposalCheck] = []
        self.fair_shares: list[FairShare] = []
        self.walltimes: list[Walltime] = []
        self.walltimes_kept = True
        """Whether all of them say what their answers depend on."""
        self.walltimes_alike = True
        """Whether all of them answer the same for gangs of one pod that runs and are equal."""
        self.overdue: list[Overdue] = []
        self.reservations_per_pool = 8
        """Blocked gangs of one node pool for which nodes are reserved, at most."""
        self.longest_turn = 1
        """How many times ``maxRuntime`` a turn may last at most, for gangs whose earlier ones were not enough."""
        self.moving = Moving()  # bounds of the action consolidate
        self.stable = Stable()  # which decisions must last
        self.usages: list[UsageOf] = []
        self.topology = TopologyHooks()
        self.stop_checks: list[tuple[Check, QueueTest]] = []

    # -- registration ------------------------------------------------------------------------
    def queue_order(self, key: QueueOrder) -> None:
        """Order queues of one parent, inner ones too: smaller keys are served first."""
        of_queue = self._wrap_key("queue_order", key)
        self.queue_orders.append(
            SortKeyHook(lambda node, _gang: of_queue(node), alike=True, plugin=self.plugin)
        )

    def queue_turn(self, key: QueueTurn, *, alike: bool = False) -> None:
        """As ``queue_order``, with the gang that is next in the queue; ``alike`` as in ``gang_order``."""
        self.queue_orders.append(SortKeyHook(self._wrap_key("queue_turn", key), alike, self.plugin))

    def gang_order(
        self, key: GangOrder, *, alike: bool = False,
        rests_on: Callable[[], Hashable] | None = None, of_members: bool = True,
    ) -> None:  # fmt: skip
        """Order gangs of one queue: smaller keys are tried first.

        Args:
            key: of a gang.
            alike: the key of a gang without a place depends on its queue, priority, terms and minima, the classes and
                roles of its waiting members, and what the view shows: gangs equal in these have one.
            rests_on: tells all on which keys depend beside the gang itself: while that is equal they are not asked for again.
            of_members: False where one that is ``alike`` does not depend on the classes and roles of waiting members.
        """
        one, basis = self._wrap_key("gang_order", key), rests_on and self._wrap_basis(rests_on)
        self.gang_orders.append(SortKeyHook(one, alike, self.plugin, basis, of_members))

    def pod_order(self, key: PodOrder) -> None:
        """Order pods of one gang and class: smaller keys get places first."""
        self.pod_orders.append(self._wrap_key("pod_order", key))

    def node_filter(
        self,
        reason: str,
        allows: NodeFilter,
        *,
        detail: FilterDetail | None = None,
        reads: Sequence[str] | None = None,
    ) -> None:
        """Which nodes may take a pod of a class.

        Args:
            reason: what is wrong with a refused node, as words after a number of nodes:
                ``have an untolerated taint``.
            allows: given a class and nodes, a bool for each, or None for no objection. The
                answer for a node may depend on that node alone: it is cached until that node
                changes.
            detail: given a class and nodes that it is refused, a few words that name what is in
                the way, such as ``dedicated=team-x:NoSchedule``; asked when a sentence is made.
            reads: fields of a class that ``allows`` reads, such as ``("tolerations",)``: it is asked once for
                classes that are equal in these. None where it may read any.
        """
        number, plugin = len(self.filters), self.plugin
        fields = None if reads is None else tuple(reads)
        shown = fields if self.guard.compares_lists else None

        def refuse_all(
            fault: PluginFault, pod_class: PodClass, nodes: Sequence[Node]
        ) -> list[bool]:
            self.faults.append(str(fault))
            self.filter_faults += 1
            self.unanswered[pod_class.digest, number] = filter_failure_message(fault)
            return [False] * len(nodes)

        def sound(
            pod_class: PodClass, nodes: Sequence[Node]
        ) -> Sequence[bool] | npt.NDArray[np.bool_] | None:
            answer = allows(pod_class if shown is None else fields_of(pod_class, shown), nodes)
            if answer is None:
                return None
            mask = np.asarray(answer)
            if mask.shape != (len(nodes),) or (len(nodes) and mask.dtype != np.bool_):
                found = f"{mask.dtype} of shape {mask.shape}"
                raise PluginFault(plugin, "node_filter", f"{found}, not {len(nodes)} bools")
            return mask.astype(np.bool_, copy=False)

        wrapped = self._wrap_hook("node_filter", sound, refuse_all)
        named, untold = (plugin, "node_filter", f"{number} detail"), self._detail_untold
        told = detail and contain_when_called(self.guard, named, text_of(plugin, detail), untold)
        self.filters.append(Filter(self.plugin, reason, wrapped, detail=told, reads=fields))

    def _detail_untold(self, fault: PluginFault, *_about: object) -> str:
        """The reason stands without a detail that cannot be told."""
        self.faults.append(str(fault))
        return ""

    def node_score(
        self, score: NodeScore, *, weight: int = 1, alike: bool = False,
        only_with: Fields = (), fullness: FullnessOf | None = None,
    ) -> None:  # fmt: skip
        """Which nodes are better for a class: larger is better, ``weight`` times as much.

        None from ``score`` means no opinion on any node, and costs nothing. ``alike``: nodes that offer and hold the same
        amounts get the same points, so that one of them is asked about; for classes that ask for a share of a GPU each is.
        ``only_with``: fields of a class: where none of them is set it has no opinion. ``fullness``: what one that is
        ``alike`` says as data, by which thousands of unlike pods are placed without a call.
        """
        self.scores.append(self._wrap_score(score, weight, alike, only_with, fullness))

    def pair_filter(
        self,
        reason: str,
        rule: RuleOf,
        *,
        concerns: Concerns,
        reads: Sequence[str] | None = None,
    ) -> None:
        """Which nodes may take a pod, where that depends on where other pods are.

        Args:
            reason: what is wrong with a refused node, as words after a number of nodes.
            rule: what holds for a pod, None for no objection. Asked once for each pod.
            concerns: whether pods of a class may have such a rule. A class that no rule
                concerns costs nothing.
            reads: fields of a class that ``concerns`` reads, such as ``("spread",)``: it is asked once
                for classes that are equal in these. None where it may read any.
        """
        self.pairs.add_filter(self.plugin, reason, rule, concerns, reads)

    def pair_score(
        self,
        score: ScoreOf,
        *,
        concerns: Concerns,
        weight: int = 1,
        reads: Sequence[str] | None = None,
    ) -> None:
        """Which nodes are better for a pod, where that depends on where other pods are.

        ``reads`` as ``pair_filter`` has it.
        """
        self.pairs.add_score(self.plugin, score, concerns, weight, reads)

    def enqueue_check(self, check: Check) -> None:
        """May the gang be admitted from Pending to Inqueue?"""
        self.enqueue_checks.append(self._wrap_check("enqueue_check", check, _RETRIED))

    def quota_check(self, check: Check) -> None:
        """May the gang's minimum be charged to its queue now?"""
        self.quota_checks.append(self._wrap_check("quota_check", check, _RETRIED))

    def gang_ready(self, check: Check, *, concerns: Concerns | None = None) -> None:
        """Does the gang have what an attempt to place it needs?

        Asked of gangs with waiting members of classes that it ``concerns``; None for all.
        """
        judged = self._wrap_check("gang_ready", check, _RETRIED)
        self.ready_checks.append(limited_to_concerned_gangs(self, judged, concerns))

    # -- eviction ----------------------------------------------------------------------------
    def reserve_check(self, check: Check, *, for_all: JointCheck | None = None) -> None:
        """May room that is still to be freed be nominated for the gang's minimum?

        The same question as ``quota_check``, but on what its queues will hold once every pod
        that is leaving has left: ``view.staying`` in place of ``view.allocated``.

        Args:
            check: asked about one gang.
            for_all: asked about many that are to start: of which of them ``check`` is sure to allow the minimum,
                whichever of the others are charged before. What it is not sure of is asked gang by gang.
        """
        self.reserve_checks.append(self._wrap_check("reserve_check", check, _RETRIED))
        self.joint_checks.append(for_all and self._wrap_joint("reserve_check", check, for_all))

    def reclaim_check(self, check: Check) -> None:
        """May the gang reclaim from other queues at all? Called once, before victims are sought.

        A refusal costs nothing but a sentence; ALLOW settles nothing yet: each victim is
        checked with ``victim_filter`` and the whole with ``reclaim_gate``.
        """
        self.reclaim_checks.append(self._wrap_check("reclaim_check", check, _RETRIED))

    def growth_check(self, check: GrowthCheck) -> None:
        """May a gang that has its minimum take spare members of other queues' gangs, to grow?

        Called as ``check(claimant, waiting)``: the claimant lacks exactly the members for which it
        asks, and ``waiting`` are the minima of gangs of its queue that may reclaim, too, and still
        wait. Without any such check no gang is asked to give for another one's growth. What
        ``victim_filter`` and ``reclaim_gate`` say counts as well.
        """
        self.growth_checks.append(self._wrap_check("growth_check", check, NO_EVICTION))

    def victim_filter(
        self, allows: VictimFilter, *, for_all: VictimsFilter | None = None, alike: bool = False,
        for_claimants: ClaimantsFilter | None = None,
    ) -> None:  # fmt: skip
        """May any part of a running gang be evicted for the claimant?

        Called as ``allows(claimant, victim, action)`` with the action ``preempt`` (same queue)
        or ``reclaim`` (another queue), or ``consolidate`` (any: it is moved). It is about the pair alone, on the accounts as they
        are; how much of the victim may go is ``reclaim_gate``'s to say. A refusal is final:
        no other policy can allow the victim again.

        Thousands may run. ``for_all(claimant, victims, action)`` says the same of a list of victims
        at once: a bool for each, whether ``allows`` would not refuse it; ``for_claimants(claimants, victim, action)`` of a
        list of claimants. They are called in place of ``allows`` where no sentence is needed; where one fails, ``allows`` is.

        ``alike``: what it says of a gang that is one pod, which runs, depends on nothing else than its
        queue, namespace, priority and terms, and the class and priority of its pod, beside what the view
        shows of queues: one of those that are equal in these is asked about.
        """
        about = ("victim_filter", allows, for_all)
        made = self._wrap_victim_filter(*about, alike=alike, for_claimants=for_claimants)
        self.victim_filters.append(made)

    def stop_filter(self, allows: VictimFilter, *, for_all: VictimsFilter | None = None) -> None:
        """May a running gang be stopped as a whole for the claimant?

        Asked as ``victim_filter``, of gangs that it allowed; a refusal leaves those members
        that the gang can spare, and its minimum stands.
        """
        made = self._wrap_victim_filter("stop_filter", allows, for_all, alike=False)
        self.stop_filters.append(made)

    def victim_order(
        self, key: VictimOrder, *, fixed: bool = False, for_all: VictimsOrder | None = None,
        alike: bool = False,
    ) -> None:  # fmt: skip
        """Smaller keys are taken first, whatever that costs; called as ``key(claimant, victim, action)``.

        ``fixed``: the key of a victim stays the same while others leave. What is lost can be made
        least, and proven to be, only where all keys are fixed. ``for_all(claimant, victims, action)``
        gives the keys of a list of victims at once, as tuples; ``alike`` as ``victim_filter`` has it.
        """
        self.victim_orders_fixed = self.victim_orders_fixed and fixed
        made = self._wrap_victim_key("victim_order", key, for_all, alike=alike)
        self.victim_orders.append(made)

    def victim_preference(
        self, key: VictimOrder, *, for_all: VictimsOrder | None = None, alike: bool = False
    ) -> None:
        """Smaller keys are taken first among victims whose leaving costs the same.

        ``for_all`` and ``alike`` as ``victim_order`` has them.
        """
        made = self._wrap_victim_key("victim_preference", key, for_all, alike=alike)
        self.victim_preferences.append(made)

    def eviction_limits(self, limits: LimitsOf) -> None:
        """What a claimant's victims must respect, as amounts, so that the cheapest can be searched.

        Called as ``limits(claimant, action, queues)`` with the queues of all possible victims. None
        means that the rules cannot be said so; then ``reclaim_gate`` is asked by trial.
        """
        plugin = self.plugin

        def sound(claimant: Gang, action: str, queues: Sequence[str]) -> EvictionLimits | None:
            answer = limits(claimant, action, queues)
            if answer is not None and not isinstance(answer, EvictionLimits):
                raise PluginFault(
                    plugin, "eviction_limits", f"answered with a {type(answer).__name__}"
                )
            return answer

        def unknown(fault: PluginFault, *_about: Any) -> EvictionLimits | None:
            self.faults.append(str(fault))
            return None

        self.limits_of.append(self._wrap_hook("eviction_limits", sound, unknown))

    def reclaim_gate(self, check: ProposalCheck) -> None:
        """May exactly these chunks go, in this order, for this claimant? See ``Proposal``.

        Asked by ``reclaim`` for every set of victims that it means to evict, before it moves
        anything; a refusal names the queue level and the numbers.
        """
        self.reclaim_gates.append(self._wrap_check("reclaim_gate", check, NO_EVICTION))

    def stop_check(self, check: Check, *, queues: QueueTest | None = None) -> None:
        """Must a gang that runs be stopped as a whole, for its own sake?

        A refusal is the reason and sentence with which all its members leave. Asked before the
        actions, of gangs that ran and lost their minimum (``broken_since``), and of all in
        queues that ``queues`` selects: few, as thousands may run.
        """
        picks: QueueTest = queues or (lambda _node: False)
        selected = self._wrap_provider("stop_check", picks, _is_bool, False)
        self.stop_checks.append((self._wrap_check("stop_check", check, ALLOW), selected))

    def fair_share(self, provider: FairShare) -> None:
        """What each queue is due now, in base units, for ``view.fair_share``; the first provides.

        The answer for a queue does not change during a session.
        """
        self.fair_shares.append(
            self._wrap_provider(
                "fair_share", provider, lambda due: isinstance(due, Resources), NOTHING
            )
        )

    # -- reservations --------------------------------------------------------------------------
    def walltime(
        self, provider: Walltime, *, depends_on: DependsOn | None = None, alike: bool = False
    ) -> None:
        """Seconds from a gang's start to its end; 0 when unknown. The shortest answer counts.

        Args:
            provider: answers for a gang.
            depends_on: all that an answer may change with, so that answers for gangs that run are
                kept between sessions; None and ``VIEW`` ask for them in every session.
            alike: whether gangs of one pod that runs, without a Job or turns, get the same answer where their pods
                have the same deadline and GPUs of the same speed, and a ``victim_filter`` that is alike cannot tell them apart.
        """
        self.walltimes_kept &= depends_on is not None and DependsOn.VIEW not in depends_on
        self.walltimes_alike = self.walltimes_alike and alike
        self.walltimes.append(self._wrap_provider("walltime", provider, _are_seconds, 0))

    def waits_too_long(self, provider: Overdue) -> None:
        """Whether nodes are reserved for a blocked gang even if its start cannot be forecast."""
        self.overdue.append(self._wrap_provider("waits_too_long", provider, _is_bool, False))

    def usage(self, provider: UsageOf) -> None:
        """What each queue used of late, as of ``view.now``; the first provides.

        It is remembered in the queue's status, as ``Queue.usage``, when its share changed and
        not more often than ``limits.USAGE_PERIOD_S``; other plugins read it in ``view.usage``.
        """
        self.usages.append(
            self._wrap_provider(
                "usage", provider, lambda said: isinstance(said, QueueUsage), QueueUsage()
            )
        )

    # -- topology ------------------------------------------------------------------------------
    def compact(self, provider: CompactCheck) -> None:
        """Whether a gang without a topology request gets the most compact place as well.

        Gangs with a request always do. Where no policy says yes, members of other gangs take their
        places one by one, each on the node with the best score.
        """
        self.topology.compacts.append(self._wrap_provider("compact", provider, _is_bool, False))

    def choose_gpu_types(self, *, one_where_possible: bool, for_all_gangs: bool) -> None:
        """How types of GPUs are chosen for gangs.

        Args:
            one_where_possible: a gang that does not say it is of one type where that is possible.
            for_all_gangs: a gang leaves a type to those that gain more by it.
        """
        self.topology.one_gpu_type = one_where_possible
        self.topology.fast_gpus_shared = for_all_gangs

    def spare_nodes(self, level: str, nodes: int) -> None:
        """Spare so many empty GPU nodes of each domain of a level for gangs that run there."""
        self.topology.spares.append(SpareNodes(level, nodes))


def _are_seconds(answer: object) -> bool:
    return isinstance(answer, int) and 0 <= answer <= QUANTITY_MAX


def _is_bool(answer: object) -> bool:
    return isinstance(answer, bool)


def limited_to_concerned_gangs(
    hooks: Hooks, check: Callable[[Gang], Verdict], concerns: Concerns | None
) -> ReadyCheck:
    """The check, called for gangs with a waiting member of a class that it concerns.

    Args:
        hooks: of the session; what goes wrong is put down to its plugin, and concerns all.
        check: contained already.
        concerns: called once for each class of a session; None for all classes.
    """
    if concerns is None:
        return ReadyCheck(check, None)

    def all_of_them(fault: PluginFault, _pod_class: PodClass) -> bool:
        hooks.faults.append(str(fault))
        return True

    sound = validated_concerns(hooks.plugin, "gang_ready", concerns)
    part = f"concerns {len(hooks.ready_checks)}"
    named = (hooks.plugin, "gang_ready", part)
    return ReadyCheck(check, contain_when_called(hooks.guard, named, sound, all_of_them))
