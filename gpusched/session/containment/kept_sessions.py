"""Sessions that need not be held again: nothing that they saw is another, and no moment that they asked about has come.

A session is a function of its snapshot. Of the time it says itself when it would decide otherwise (see
``ObservedSnapshot``), so that the same snapshot is answered until then by what was decided before. Where a tenant
has more than its share of a session, one session of a round follows another: each is kept by how far the
rounds had come. See ``RoundProgress`` for when a round is repeated.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from gpusched.api.meta.resources import Resources
from gpusched.base.classes import frozen
from gpusched.cache.snapshot import Snapshot, TenantRound, same_cluster
from gpusched.config.model import PlacementConfig
from gpusched.session.containment.attempt import AttemptResult
from gpusched.session.framework.guard import DependsOn
from gpusched.session.framework.plugin import Plugin
from gpusched.session.state.policy import Action, Policy

KEPT_MAX: Final = 16
"""Sessions on one cluster that are kept: each holds names of the gangs that it left to others."""


@frozen(slots=True, eq=False)
class _KeptSession:
    """What was decided, on what rounds and beside which reserved room, and since when it holds."""

    rounds: tuple[TenantRound, ...]
    spare_room: Mapping[str, Resources]
    since: float
    result: AttemptResult
    tells_its_own: bool
    """Whether it worked out itself when gangs should start."""

    def looks_at_the_same(self, snapshot: Snapshot) -> bool:
        """Whether a session on a later snapshot of the same cluster would look at the same gangs."""
        if self.rounds != snapshot.tenant_rounds:
            return False
        return not self.result.rounds or self.spare_room == snapshot.spare_room

    def tells_alike(self, snapshot: Snapshot) -> bool:
        """Whether a session on a later snapshot of the same cluster would tell the same of starts."""
        if snapshot.leaves_expected_starts:
            return self.result.expected_starts == snapshot.expected_starts
        return self.tells_its_own


class KeptSessions:
    """Sessions held since anything changed, under one loaded configuration."""

    def __init__(self) -> None:
        self._about: tuple[Snapshot, Policy, PlacementConfig] | None = None
        self._kept: list[_KeptSession] = []

    def find(
        self, snapshot: Snapshot, policy: Policy, placement: PlacementConfig
    ) -> AttemptResult | None:
        """What a session on this snapshot would come to, as far as it is known."""
        if not self._is_about(snapshot, policy, placement):
            return None
        for each in self._kept:
            if (
                each.since <= snapshot.now < each.result.stays_until
                and each.looks_at_the_same(snapshot)
                and each.tells_alike(snapshot)
            ):
                plan = attrs.evolve(each.result.plan, revision=snapshot.revision)
                return attrs.evolve(each.result, snapshot=snapshot, plan=plan, searches=())
        return None

    def _is_about(self, snapshot: Snapshot, policy: Policy, placement: PlacementConfig) -> bool:
        return (
            self._about is not None
            and self._about[1:] == (policy, placement)
            and same_cluster(self._about[0], snapshot)
        )

    def keep(
        self,
        snapshot: Snapshot,
        policy: Policy,
        placement: PlacementConfig,
        result: AttemptResult,
    ) -> None:
        """Keep what a session came to that went well and does nothing to pods or Jobs."""
        if not _may_be_kept(policy, result) or result.stays_until <= snapshot.now:
            return
        kept = self._kept
        if self._about is None or not self._is_about(snapshot, policy, placement):
            kept.clear()
            self._about = (snapshot, policy, placement)
        kept[:] = [each for each in kept[1 - KEPT_MAX :] if not each.looks_at_the_same(snapshot)]
        own = not snapshot.leaves_expected_starts
        kept.append(
            _KeptSession(snapshot.tenant_rounds, snapshot.spare_room, snapshot.now, result, own)
        )


def _may_be_kept(policy: Policy, result: AttemptResult) -> bool:
    troubled = (
        result.faults or result.hooks or result.failing_orders or result.untold or result.closed
    )
    if troubled or any(each.faults for each in result.searches):
        return False
    whole = not result.plan.has_effects and not result.ended_early
    return whole and not undeclared_parts(policy)


def undeclared_parts(policy: Policy) -> tuple[str, ...]:
    """Names of plugins and actions that do not say that they depend on nothing but the view or the session."""
    used: tuple[Plugin | Action, ...] = (*policy.plugins, *policy.actions)
    return tuple(
        each.name for each in used if getattr(each, "depends_on", None) is not DependsOn.VIEW
    )
