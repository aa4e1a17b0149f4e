"""How far sessions have come with looking at every gang, and whether and when another one is to follow.

A tenant that has more waiting than its share of a session is looked at in rounds of its own. What changed while its
round went on may concern gangs looked at before: then another round follows. Where nothing has changed it rests
when its round is over, whatever rounds others are in, and when all rest no session follows. Rounds are repeated when a moment
has come that one of these sessions had asked about.

Gangs for which nodes have room, and those that were never looked at, press: sessions follow at once until all of them had
their turn. The others, for whom little can have changed, get a part of a session once a second, for the first time a second
after what began their round.
"""

from __future__ import annotations

from math import inf
from typing import Final, NamedTuple

import attrs

from gpusched.api.meta.identity import GangKey
from gpusched.base import limits
from gpusched.cache.snapshot import TenantRound

Rounds = tuple[TenantRound, ...]

_EARLY_S: Final = 0.01
"""So much before its time a session may begin that waited for it."""


class NextSession(NamedTuple):
    """What follows a session.

    Attributes:
        rounds: where the next session begins; None for where this one began.
        after_s: seconds until the next session, where one follows though nothing happens; None for none.
    """

    rounds: Rounds | None
    after_s: float | None


class RoundProgress:
    """One for each daemon; told of every session that it held."""

    def __init__(self) -> None:
        self._began: dict[tuple[str, str], int] = {}
        """Changes that were known when the round of each tenant began that goes on."""
        self._seen = -1
        """Changes that the last session knew of."""
        self._settled = -1
        """Number of the change up to which every gang was looked at."""
        self._goes_on = False
        """Whether some tenant has gangs that are still to be looked at."""
        self._stays_until = inf
        """The first moment that a session since the last change asked about and that was still to come."""
        self._rests_until = -inf
        """When gangs are looked at again though nothing has changed."""
        self._turn_at = -inf
        """From when on a session looks at gangs that do not press."""
        self._paused = False
        self._gave_way = False
        """Whether the last session left the gangs that do not press to the next one, as something had changed."""
        self._ended_early = False
        self._left: dict[tuple[str, str], tuple[GangKey, ...]] = {}
        """Gangs of each tenant that were left when the session began."""
        self._had_turn: dict[tuple[str, str], set[GangKey]] = {}
        """Gangs that were looked at since something changed, of tenants whose sessions end before they come to all."""

    @property
    def may_end_early(self) -> bool:
        """Whether the next session may end when it has started somebody, as the last one did not."""
        return not self._ended_early

    def begin_session(self, changes: int, rounds: Rounds, *, now: float) -> Rounds:
        """Where a session begins: nobody rests any more where something has changed, or a moment has come.

        Args:
            changes: that are known now.
            rounds: where it would begin by what is known of the last one.
            now: seconds since the epoch.
        """
        changed = changes != self._seen
        quiet = not changed and (self._goes_on or now < self._rests_until)
        if not quiet and not self._goes_on:
            self._turn_at = now + limits.TENANT_ROUND_PAUSE_S
        # Where the clock was set back the time of their turn is not known any more.
        waits = _EARLY_S < self._turn_at - now <= limits.TENANT_ROUND_PAUSE_S
        self._gave_way = changed and not waits and not self._gave_way and self.may_end_early
        self._paused = waits or self._gave_way
        self._left = {(each.queue, each.namespace): each.left for each in rounds}
        return tuple(
            attrs.evolve(each, rests=rests, changed=changed, paused=self._paused and not rests)
            for each in rounds
            for rests in (each.rests and quiet,)
        )

    def note_session(
        self,
        changes: int,
        *,
        rounds: Rounds,
        stays_until: float,
        now: float,
        ended_early: bool = False,
        settled: bool = False,
    ) -> NextSession:
        """Note a session, and tell what follows it.

        Args:
            changes: that the session knew of.
            rounds: how far it came with tenants that have too much for one session.
            stays_until: before when the session would decide the same, if nothing changed.
            now: of the session.
            ended_early: whether it ended when it had started somebody: it counts for no round, and another follows at once.
            settled: whether it has nevertheless decided about everybody: another may end early behind it.
        """
        self._ended_early = ended_early and not settled
        if ended_early:
            return NextSession(rounds=None, after_s=0.0)
        same, settled = changes == self._seen, changes == self._settled
        self._seen = changes
        self._note_turns(rounds, anew=not same)
        if not self._goes_on and settled and now < self._rests_until:
            self._rests_until = min(self._rests_until, stays_until)
            return NextSession(rounds=None, after_s=None)
        goes_on = same and self._goes_on
        self._stays_until = min(self._stays_until if goes_on else inf, stays_until)
        following = tuple(self._judged(each, changes) for each in rounds)
        self._goes_on = any(each.left or not each.rests for each in following)
        if not self._paused:
            self._turn_at = now + limits.TENANT_ROUND_PAUSE_S
        if self._goes_on:
            presses = not settled and any(
                self._goes_on_at_once(each, self._left.get((each.queue, each.namespace), ()))
                for each in following
            )
            pause_s = 0.0 if presses else max(0.0, self._turn_at - now)
            return NextSession(following, pause_s)
        self._settled, self._rests_until = changes, self._stays_until
        return NextSession(following, None)

    def _note_turns(self, rounds: Rounds, *, anew: bool) -> None:
        if anew:
            self._had_turn.clear()
        now = {(each.queue, each.namespace): each for each in rounds}
        for tenant, each in now.items():
            if each.cut:
                self._had_turn.setdefault(tenant, set()).update(each.looked_at)
        for tenant, left in self._left.items():
            still = now[tenant].left if tenant in now else ()
            gone = set(left).difference(still) if still is not left else set[GangKey]()
            self._had_turn.setdefault(tenant, set()).update(gone)

    def _goes_on_at_once(self, each: TenantRound, left_before: tuple[GangKey, ...]) -> bool:
        """Whether the next session has somebody to look at who presses, or whose turn has not come since a change."""
        had_turn = self._had_turn.get((each.queue, each.namespace), set())
        waits = each.cut and not had_turn.issuperset(each.left)
        return (each.presses or waits) and each.left != left_before

    def _judged(self, each: TenantRound, changes: int) -> TenantRound:
        """The round, and whether its tenant rests now."""
        tenant = (each.queue, each.namespace)
        if each.left:
            self._began.setdefault(tenant, changes)
            return attrs.evolve(each, rests=False) if each.rests else each
        began = self._began.pop(tenant, changes)
        return attrs.evolve(each, rests=began == changes)
