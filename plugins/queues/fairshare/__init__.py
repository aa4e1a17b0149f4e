"""Fair shares: what each queue is due, which is served first, and which must give back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import ClassVar, Final, Literal

import attrs
from attrs import validators as v
from gpusched_plugins.queues.fairshare.claimant import keys_by_queue
from gpusched_plugins.queues.fairshare.queue_order import QueueOrder, tell_queue_key
from gpusched_plugins.queues.fairshare.reclaim_rules import ReclaimRules
from gpusched_plugins.queues.fairshare.shares import Shares, SurplusRule

from gpusched.plugin import (
    DependsOn,
    EvictionLimits,
    Gang,
    Hooks,
    Key,
    KeyMeaning,
    QueueNode,
    Resources,
    Stable,
    Verdict,
    View,
)

YEAR_S: Final = 8760 * 3600


@attrs.frozen(kw_only=True)
class FairShareArgs:
    """How shares are divided and enforced.

    Attributes:
        order: ``share`` serves queues within their share first, then by priority; ``priority``
            serves by queue priority first.
        remainder: ``last`` deals what rounding left over when queues of every priority had their
            turn; ``byPriority`` deals it before queues of the next priority get anything.
        usage_weight: thousandths by which decayed use bends the surplus; 0 for not at all.
        saturation: percent; a queue may reclaim above its share only while it stays this much
            less saturated than each queue it takes from.
        starts: ``lasting`` starts no gang that a claim of the same session, by share or priority,
            would have evicted in the next one; ``any`` starts it for that moment.
        chains: ``avoid`` evicts no gang that would have a third one evicted once it is made again;
            ``allow`` does.
        chain_wait_s: a gang that has waited for so many seconds may have such victims all the same,
            where there are no others; None for never.
        growth: ``reclaim`` lets gangs that run grow up to what their queue deserves, by members that
            others above theirs can spare; ``wait`` lets them wait for free room.
    """

    order: Literal["share", "priority"] = attrs.field(
        default="share", validator=v.in_(("share", "priority"))
    )
    remainder: Literal["last", "byPriority"] = attrs.field(
        default="last",
        validator=v.in_(("last", "byPriority")),
        metadata={
            "formerly": "leftovers",
            "renamed": {"after": "last", "byClass": "byPriority"},
        },
    )
    usage_weight: int = attrs.field(default=1000, validator=[v.ge(0), v.le(100_000)])
    starts: Literal["lasting", "any"] = attrs.field(
        default="lasting", validator=v.in_(("lasting", "any"))
    )
    chains: Literal["avoid", "allow"] = attrs.field(
        default="avoid", validator=v.in_(("avoid", "allow"))
    )
    chain_wait_s: float | None = attrs.field(default=600.0)
    growth: Literal["reclaim", "wait"] = attrs.field(
        default="reclaim", validator=v.in_(("reclaim", "wait"))
    )
    saturation: int = attrs.field(default=100, validator=[v.ge(100), v.le(100_000)])

    @chain_wait_s.validator
    def _bounded(self, _attribute: object, value: float | None) -> None:
        if value is not None and not 0 <= value <= YEAR_S:
            raise ValueError("'chain_wait_s' must be between 0s and 8760h, or null for never")


@attrs.frozen
class FairShare:
    """Divides what there is down the tree of queues, and serves and reclaims by it."""

    name: ClassVar[str] = "fairshare"
    api: ClassVar[int] = 1
    depends_on: ClassVar[DependsOn] = DependsOn.VIEW
    args: FairShareArgs = FairShareArgs()

    def open(self, hooks: Hooks, view: View) -> None:
        """See the class. Shares are worked out when they are first asked for."""
        args = self.args
        hooks.stable = Stable(
            starts=args.starts == "lasting",
            chains=args.chains == "avoid",
            chain_wait_s=args.chain_wait_s,
        )

        @cache
        def shares() -> Shares:
            bend = SurplusRule(bend=args.usage_weight, by_class=args.remainder == "byPriority")
            return Shares(view, bend)

        @cache
        def order() -> QueueOrder:
            return QueueOrder(view, shares(), priority_first=args.order == "priority")

        @cache
        def gates() -> ReclaimRules:
            return ReclaimRules(view, shares(), saturation=args.saturation)

        def turn(node: QueueNode, gang: Gang) -> Key:
            return order().key(node, gang)

        def due(queue: str) -> Resources:
            return shares().due(queue)

        hooks.fair_share(due)
        hooks.queue_turn(turn, alike=True)
        pooled = bool(view.pools.total)
        _register_reclaim(hooks, gates, grows=args.growth == "reclaim", pooled=pooled)

    def tell_queue_order(self, queue: str, key: Key) -> tuple[KeyMeaning, ...]:
        """Its share and priority in numbers."""
        return tell_queue_key(queue, key, priority_first=self.args.order == "priority")


def _register_reclaim(
    hooks: Hooks, gates: Callable[[], ReclaimRules], *, grows: bool, pooled: bool
) -> None:
    """Let queues reclaim by these rules, which are worked out when they are first asked for.

    Args:
        hooks: of the session.
        gates: the rules.
        grows: whether gangs may claim for their growth, too.
        pooled: whether queues limit node pools.
    """

    def may_claim(gang: Gang) -> Verdict:
        return gates().may_claim(gang)

    def may_grow(claimant: Gang, waiting: Resources) -> Verdict:
        return gates().may_grow(claimant, waiting)

    def may_lose(claimant: Gang, victim: Gang, action: str) -> Verdict:
        return gates().may_lose(claimant, victim, action)

    def lane(claimant: Gang, victim: Gang, action: str) -> Key:
        return gates().lane(claimant, victim, action)

    def preferred(claimant: Gang, victim: Gang, action: str) -> Key:
        return gates().preferred(claimant, victim, action)

    def may_each_lose(claimant: Gang, victims: Sequence[Gang], action: str) -> list[bool]:
        return gates().may_each_lose(claimant, victims, action)

    def may_lose_to_each(claimants: Sequence[Gang], victim: Gang, action: str) -> list[bool]:
        return gates().may_lose_to_each(claimants, victim, action)

    def lanes(claimant: Gang, victims: Sequence[Gang], action: str) -> list[Key]:
        return keys_by_queue(victims, lambda victim: gates().lane(claimant, victim, action))

    def preferences(claimant: Gang, victims: Sequence[Gang], action: str) -> list[Key]:
        return gates().each_preferred(claimant, victims, action)

    def limits(claimant: Gang, action: str, queues: Sequence[str]) -> EvictionLimits | None:
        return gates().limits(claimant, action, queues)

    hooks.reclaim_check(may_claim)
    if grows:
        hooks.growth_check(may_grow)
    # What is held in node pools differs with the node.
    hooks.victim_filter(
        may_lose, for_all=may_each_lose, alike=not pooled, for_claimants=may_lose_to_each
    )
    hooks.victim_order(lane, fixed=True, for_all=lanes, alike=True)
    hooks.victim_preference(preferred, for_all=preferences, alike=True)
    hooks.eviction_limits(limits)
    hooks.reclaim_gate(lambda proposal: gates().may_go(proposal))
    hooks.monotone_claims()
