"""Keeps every queue and its users within their caps, what is guaranteed to others free, and loans recoverable."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import ClassVar

import attrs
import numpy as np
import numpy.typing as npt
from gpusched_plugins.queues.quota.budgets import (
    check_budgets,
    check_drained,
    drains_by_budget,
)
from gpusched_plugins.queues.quota.guarantees import Guarantees, Held
from gpusched_plugins.queues.quota.user_limits import check_user_limits, others_text

from gpusched.plugin import (
    ALLOW,
    DependsOn,
    EvictionLimits,
    Gang,
    Hooks,
    PairRule,
    Pod,
    PodClass,
    QueueNode,
    Reason,
    Resources,
    Verdict,
    View,
    deny,
    format_quantity,
    pool_of,
    resource_of,
    wait,
)

TOLD_MAX = 4
"""Node pools named in one sentence."""
Caps = tuple[tuple[str, int], ...]
"""Resources, of node pools too, and how much a queue may have of each."""


@attrs.frozen(kw_only=True)
class QuotaArgs:
    """What is refused besides going above a capability.

    Attributes:
        non_preemptible_within_deserved: gangs that are not preemptible stay within what every queue on
            their path deserves: what is lent must be possible to take back.
    """

    non_preemptible_within_deserved: bool = attrs.field(
        default=True, metadata={"formerly": "firmWithinDeserved"}
    )


@attrs.frozen
class Quota:
    """Refuses a gang whose minimum would take some queue on its path above its hard cap.

    A minimum that is above the cap on its own can never start: that is said as
    ``QuotaExceeded``; one that only has to wait for others is told ``WaitingForQuota``. Only
    what the gang asks for is looked at: a queue that is over in one resource still serves
    gangs that do not ask for it.

    In a node pool the same holds for gangs whose pods may run in that pool alone. Others are
    placed around pools of which a queue on their path has its capability.
    """

    name: ClassVar[str] = "quota"
    api: ClassVar[int] = 1
    depends_on: ClassVar[DependsOn] = DependsOn.VIEW
    args: QuotaArgs = QuotaArgs()

    @property
    def bounds_not_preemptible(self) -> bool:
        """Whether gangs that are not preemptible stay within what their queues deserve."""
        return self.args.non_preemptible_within_deserved

    def open(self, hooks: Hooks, view: View) -> None:
        """Register the quota checks of queues."""

        @cache
        def guarantees() -> Guarantees:
            return Guarantees(view)

        caps = cache(partial(_caps_on_path, view))

        def check(gang: Gang, held: Held) -> Verdict:
            if not (gang.accounts or gang.is_lasting or bounded(gang.queue)):
                return ALLOW
            asked = view.minimum(gang)
            verdict = _check_capability(gang, asked, caps(gang.queue), view, held)
            if verdict is ALLOW:
                verdict = pools().room(gang, held)
            if verdict is ALLOW:
                verdict = check_user_limits(gang, view, held)
            if verdict is ALLOW:
                verdict = check_budgets(gang, view)
            if verdict is ALLOW and self.args.non_preemptible_within_deserved:
                verdict = _check_not_preemptible(gang, asked, view)
            if verdict is ALLOW:
                verdict = guarantees().keep(gang, asked, held)
            return verdict

        @cache
        def pools() -> NodePoolCaps:
            return NodePoolCaps(view)

        bounded = cache(partial(_is_bounded, view, caps, pools, guarantees))

        _register_pool_rule(hooks, view, pools)

        def limits(claimant: Gang, _action: str, _queues: Sequence[str]) -> EvictionLimits:
            return EvictionLimits(
                frees=(*_over_capability(claimant, view), *guarantees().short(claimant))
            )

        hooks.eviction_limits(limits)
        hooks.quota_check(lambda gang: check(gang, view.allocated))
        hooks.reserve_check(
            lambda gang: check(gang, view.staying),
            for_all=lambda gangs: _sure_of_each(gangs, caps, pools(), guarantees(), view),
        )
        _state_monotone(hooks, view)
        hooks.stop_check(
            lambda gang: check_drained(gang, view), queues=lambda node: drains_by_budget(node, view)
        )


def _register_pool_rule(hooks: Hooks, view: View, pools: Callable[[], NodePoolCaps]) -> None:
    """Keep pods off pools of which their queue has its capability."""

    def concerns(pod_class: PodClass) -> bool:
        return pools().concern(pod_class)

    def rule(pod: Pod) -> PairRule | None:
        return pools().rule(pod)

    capped = any(node.queue.pool_capability.items for node in view.queues())
    hooks.pair_filter(
        "are in a node pool of which its queue has its capability", rule, concerns=concerns,
        reads=None if capped else (),
    )  # fmt: skip


def _state_monotone(hooks: Hooks, view: View) -> None:
    """Not where a queue has a guarantee, of which what is kept free grows and shrinks, or tells users apart."""
    if not any(
        node.guarantee.items or node.queue.user_limits or node.queue.budget is not None
        for node in view.queues()
    ):
        hooks.monotone_claims()


def _is_bounded(
    view: View,
    caps: Callable[[str], Sequence[tuple[QueueNode, Caps]]],
    pools: Callable[[], NodePoolCaps],
    guarantees: Callable[[], Guarantees],
    queue: str,
) -> bool:
    """Whether anything may be in the way of gangs of a queue that are preemptible and count for no user."""
    return bool(caps(queue) or pools().some or view.budgets or guarantees().some)


def _caps_on_path(view: View, queue: str) -> list[tuple[QueueNode, Caps]]:
    """Those of a queue and the queues above it that have a capability, with it."""
    caps = [
        (node, (*node.queue.capability.items, *node.queue.pool_capability.items))
        for node in _queues_on_path(queue, view)
    ]
    return [each for each in caps if each[1]]


def _check_capability(
    gang: Gang,
    asked: Resources,
    caps: Sequence[tuple[QueueNode, Caps]],
    view: View,
    held: Held,
) -> Verdict:
    divided = _check_divided(gang, asked, view)
    if divided.refuses:
        return divided
    for node, limits in caps:
        name = node.queue.name
        holds: Resources | None = None
        for resource, cap in limits:
            need = asked.get(resource)
            if not need:
                continue
            holds = holds or held(name).plus(node.elsewhere)
            if holds.get(resource) + need <= cap:
                continue
            _, left = node.of_others(name, resource, cap, cap - node.elsewhere.get(resource))
            has = holds.get(resource) - left
            words = {
                "need": format_quantity(need, resource=resource),
                "held": format_quantity(has, resource=resource),
                "others": others_text(left if has + need <= cap else 0, resource),
                "cap": format_quantity(cap, resource=resource),
                "resource": resource,
                "devices": view.devices_text(gang, resource),
                "queue": name,
            }
            if need > cap:
                return deny(
                    Reason.QUOTA_EXCEEDED,
                    "needs {need} {resource}{devices}; queue {queue} never gets more than its capability "
                    "of {cap}",
                    **words,
                )
            return wait(
                Reason.WAITING_FOR_QUOTA,
                "needs {need} {resource}{devices}; queue {queue} holds {held} of its capability of {cap}{others}",
                **words,
            )
    return ALLOW


def _sure_of_each(
    gangs: Sequence[Gang],
    caps: Callable[[str], Sequence[tuple[QueueNode, Caps]]],
    pools: NodePoolCaps,
    guarantees: Guarantees,
    view: View,
) -> list[bool]:
    """Of which gangs it is sure that their queues may take them beside all others: their capabilities take the sums."""
    if pools.some or guarantees.some or view.budgets:
        return [False] * len(gangs)
    sums: dict[str, dict[str, int]] = {}
    limited: dict[str, Sequence[tuple[QueueNode, Caps]]] = {}
    for gang in gangs:
        if (on_path := limited.get(gang.queue)) is None:
            on_path = limited[gang.queue] = caps(gang.queue)
        for node, _ in on_path:
            asked = sums.setdefault(node.queue.name, {})
            for resource, amount in view.minimum(gang).items:
                asked[resource] = asked.get(resource, 0) + amount
    over = {
        queue: any(
            view.staying(node.queue.name).plus(node.elsewhere).get(resource) + need > cap
            for node, limits in on_path
            for resource, cap in limits
            if (need := sums[node.queue.name].get(resource))
        )
        for queue, on_path in limited.items()
    }
    return [
        not (over[gang.queue] or gang.accounts or (not gang.terms.preemptible and gang.is_lasting))
        for gang in gangs
    ]


def _over_capability(gang: Gang, view: View) -> Iterator[tuple[str, str, int]]:
    """Queues, resources, and how much must leave there so that the minimum is within the caps."""
    asked = view.minimum(gang)
    for node in _queues_on_path(gang.queue, view):
        held = view.staying(node.queue.name).plus(node.elsewhere)
        for resource, cap in node.queue.capability.items:
            need = asked.get(resource)
            over = held.get(resource) + need - cap
            if need and over > 0:
                yield node.queue.name, resource, over


def _check_not_preemptible(gang: Gang, asked: Resources, view: View) -> Verdict:
    """A loan to a gang that cannot be evicted would never come back."""
    if not gang.is_lasting:
        return ALLOW
    for node in _queues_on_path(gang.queue, view):
        fixed: Resources | None = None
        for resource, deserved, here in _deserved_limits(node):
            need = asked.get(resource)
            if not need:
                continue
            fixed = fixed or view.not_preemptible(node.queue.name)
            if fixed.get(resource) + need <= here:
                continue
            theirs, left = node.of_others(node.lasting_account, resource, deserved, here)
            has = fixed.get(resource) + theirs
            words = {
                "others": others_text(left if has + need <= deserved else 0, resource),
                "need": format_quantity(need, resource=resource),
                "held": format_quantity(has, resource=resource),
                "deserved": format_quantity(deserved, resource=resource),
                "resource": resource,
                "devices": view.devices_text(gang, resource),
                "queue": node.queue.name,
            }
            if need > deserved:
                return deny(
                    Reason.QUOTA_EXCEEDED,
                    "is not preemptible and needs {need} {resource}{devices}; queue {queue} deserves "
                    "{deserved}, and only what is preemptible may borrow",
                    **words,
                )
            return wait(
                Reason.WAITING_FOR_QUOTA,
                "is not preemptible and needs {need} {resource}{devices}; queue {queue} deserves "
                "{deserved}, of which {held} are held by others that are not preemptible{others}",
                **words,
            )
    return ALLOW


def _check_divided(gang: Gang, asked: Resources, view: View) -> Verdict:
    """The same where shards divide it, before all else: who has too little left of it is granted nothing else."""
    if not gang.is_lasting:
        return ALLOW
    divided = any(node.lasting_here is not None for node in _queues_on_path(gang.queue, view))
    return _check_not_preemptible(gang, asked, view) if divided else ALLOW


def _deserved_limits(node: QueueNode) -> Iterator[tuple[str, int, int]]:
    """Resources, what the queue deserves, and what of it gangs that are not preemptible may have here."""
    whole = node.queue.deserved if node.lasting_here is None else node.deserved_in_all
    for resource, amount in whole.items:
        here = amount if node.lasting_here is None else node.lasting_here.get(resource)
        yield resource, amount, here
    for resource, amount in node.queue.pool_deserved.items:
        yield resource, amount, amount


class NodePoolCaps:
    """Where pods may go whose gang is not bound to one node pool: not where a cap is reached.

    Args:
        view: of the session.
    """

    def __init__(self, view: View) -> None:
        self._view = view
        self._caps: dict[str, tuple[tuple[str, int], ...]] = {}
        """By queue, dimensions that it caps, with the caps."""
        self._nodes: dict[str, QueueNode] = {}
        self._resources: set[str] = set()
        for node in view.queues():
            caps = node.queue.pool_capability.items
            if caps:
                self._caps[node.queue.name] = caps
                self._nodes[node.queue.name] = node
                self._resources.update(resource_of(name) for name, _ in caps)
        self._rows: dict[str, npt.NDArray[np.bool_]] = {}
        self._rules: dict[tuple[tuple[str, ...], str], PairRule | None] = {}

    @property
    def some(self) -> bool:
        """Whether there are any."""
        return bool(self._resources)

    def concern(self, pod_class: PodClass) -> bool:
        """Whether pods of the class take of anything that is capped in some pool."""
        return bool(self._resources) and any(
            amount and name in self._resources for name, amount in pod_class.charged.items
        )

    def rule(self, pod: Pod) -> PairRule | None:
        """None where the quota check says all: the gang runs in one pool, or nothing is capped."""
        path = self._view.pools.queues_of(pod)
        key = (path, pod.pod_class.digest)
        if key not in self._rules:
            self._rules[key] = self._rule(path, pod.pod_class)
        rule = self._rules[key]
        return None if rule is None or self._view.pools.confined(pod) else rule

    def _rule(self, path: tuple[str, ...], pod_class: PodClass) -> PairRule | None:
        requests = dict(pod_class.charged.items)
        caps = tuple(
            (queue, name, cap, requests[resource_of(name)])
            for queue in path
            for name, cap in self._caps.get(queue, ())
            if requests.get(resource_of(name))
        )
        if not caps:
            return None

        def allows() -> npt.NDArray[np.bool_]:
            allowed = np.ones(len(self._view.nodes()), dtype=np.bool_)
            for queue, name, cap, need in caps:
                if self._view.allocated(queue).get(name) + need > cap - self._others(queue, name):
                    allowed &= ~self._of_pool(pool_of(name))
            return allowed

        return PairRule(caps, allows, exact=True)

    def room(self, gang: Gang, held: Held) -> Verdict:
        """Whether the pools in which a gang of equal pods may run can take its minimum together.

        Asked before it is placed, so that one which waits for its queue is not taken for one
        that more nodes would help.
        """
        if not self.some:
            return ALLOW
        pod_set = gang.pod_sets[0] if len(gang.pod_sets) == 1 else None
        node = self._view.queue(gang.queue)
        if pod_set is None or node is None or not self.concern(pod_set.pod_class):
            return ALLOW
        if not any(queue in self._caps for queue in node.path):
            return ALLOW
        pools = self._view.pools.where(pod_set.pod_class)
        if len(pools) < 2:
            return ALLOW  # The one pool is in what it asks for.
        count = min(len(pod_set.pods), gang.missing_members or gang.fewest_next)
        requests = dict(pod_set.pod_class.charged.items)
        fit, most, told = 0, 0, []
        for pool in pools:
            rooms = [
                (
                    (cap - self._others(queue, name) - held(queue).get(name)) // need,
                    cap // need,
                    queue,
                    name,
                    cap,
                )
                for queue in node.path
                for name, cap in self._caps.get(queue, ())
                if pool_of(name) == pool and (need := requests.get(resource_of(name), 0))
            ]
            if not pool or not rooms:
                return ALLOW
            left, _, queue, name, cap = min(rooms)
            fit += max(0, left)
            most += min(each[1] for each in rooms)
            theirs, not_granted = self._nodes[queue].of_others(
                queue, name, cap, cap - self._others(queue, name)
            )
            has = format_quantity(held(queue).get(name) + theirs, resource=name)
            told.append(
                f"queue {queue} holds {has} {name} of its capability of "
                f"{format_quantity(cap, resource=name)}{others_text(not_granted, name)}"
            )
        if fit >= count:
            return ALLOW
        refuse, reason = (
            (deny, Reason.QUOTA_EXCEEDED) if most < count else (wait, Reason.WAITING_FOR_QUOTA)
        )
        return refuse(
            reason,
            "needs room for {count} pods in node pools, which have it for {fit}: {told}",
            count=count,
            fit=fit,
            told="; ".join(told[:TOLD_MAX]),
        )

    def _others(self, queue: str, name: str) -> int:
        """What of a cap is not to be used here."""
        return self._nodes[queue].elsewhere.get(name)

    def _of_pool(self, pool: str) -> npt.NDArray[np.bool_]:
        known = self._rows.get(pool)
        if known is None:
            known = self._rows[pool] = self._view.pools.rows(pool)
        return known


def _queues_on_path(queue: str, view: View) -> list[QueueNode]:
    """A queue and those above it."""
    leaf = view.queue(queue)
    nodes = [view.queue(name) for name in (leaf.path if leaf else ())]
    return [node for node in nodes if node is not None]
