"""Whether a gang that is evicted would have a third gang evicted once it is made again.

Two gangs would lose work for one claim. So before a claim is kept, each of its victims is asked on
the state after it: whether it finds room as a waiting gang without anybody's leaving, and if not,
whether an action of this session would evict others for it. A victim for which that is so stays
where it is, and the claim is made with others or not at all.

The bounds: victims that go on without the members they lose are not asked, nor more than
``VICTIMS_ASKED_MAX`` gangs of one claim, nor more than ``TRIALS_MAX`` in one session.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import attrs
import msgspec

from gpusched.api.meta.identity import GangKey
from gpusched.api.meta.resources import total
from gpusched.api.pod.pod import PodPhase
from gpusched.cache.gangs.gang import Gang, Placed, make_pod_sets
from gpusched.session.allocate.gang_placement import place_ignoring_reservations
from gpusched.session.framework.queue_accounts import less
from gpusched.session.framework.verdict import first_refusal
from gpusched.session.preempt.claims.claimants import claim_rules
from gpusched.session.preempt.victim_selection import VictimRules
from gpusched.session.preempt.victims import Victims
from gpusched.session.state.session import Session
from gpusched.session.state.statement import EvictOperation, Statement

VICTIMS_ASKED_MAX: Final = 8
"""Gangs of one claim that are asked; those of lost work first would be no better than any."""
TRIALS_MAX: Final = 64
"""Searches for victims of victims in one session: each costs about as much as a claim."""

ClaimTrial = Callable[[VictimRules, Victims, Gang], bool]
"""Whether others would be evicted for a gang under these rules, of these victims."""


class ChainCheck:
    """See the module. Used while the session is pipelining, one for each session.

    Args:
        session: in which is evicted.
        trial: asks for whom others would leave; it keeps nothing.
    """

    def __init__(self, session: Session, trial: ClaimTrial) -> None:
        self._session = session
        self._trial = trial
        self._trials = 0
        self._known: tuple[int, Victims] | None = None
        """Victims, and the number of claims with which they were looked up."""

    def victim_that_evicts(self, claimant: Gang, statement: Statement) -> Gang | None:
        """A victim that would have a third gang evicted; None when none was found.

        Args:
            claimant: for which room is made.
            statement: with its evictions and its places, not committed yet.
        """
        remade = remade_victims(statement.evictions)[:VICTIMS_ASKED_MAX]
        if not remade:
            return None
        session = self._session
        path = session.queue_path(claimant)
        places = [(path, place.pod.pod_class.requests, 1) for place in statement.assignments]
        with session.queue_accounts.assuming(places):
            return next((victim for victim, gang in remade if self._evicts(gang, statement)), None)

    def _evicts(self, gang: Gang, statement: Statement) -> bool:
        """Whether others would be evicted for a gang that waits, after a statement."""
        session = self._session
        if not any(rules.allow(gang) for rules in claim_rules(session, self._known_victims())):
            return False
        if finds_room(session, gang):
            return False
        left = Victims(session, nominated=True)
        left.claimed(statement.evictions, statement.withdrawn)
        for rules in claim_rules(session, left):
            if self._trials >= TRIALS_MAX:
                return False
            if rules.allow(gang):
                self._trials += 1
                if self._trial(rules.victims, left, gang):
                    return True
        return False

    def _known_victims(self) -> Victims:
        """Gangs that run or are nominated, those of a claim that is looked at included."""
        claims = len(self._session.nominations.plans)
        if self._known is None or self._known[0] != claims:
            self._known = (claims, Victims(self._session, nominated=True))
        return self._known[1]


def finds_room(session: Session, gang: Gang) -> bool:
    """Whether a gang that waits finds room as things are, within its quotas."""
    if first_refusal(session.hooks.quota_checks, gang).refuses:
        return False
    statement = session.statement()
    found = place_ignoring_reservations(session, gang, statement) is None
    statement.discard()
    return found


def remade_victims(evictions: Sequence[EvictOperation]) -> list[tuple[Gang, Gang]]:
    """Gangs that end, each with the gang that waits when its members were made again."""
    leaving: dict[GangKey, list[EvictOperation]] = {}
    for each in evictions:
        leaving.setdefault(each.gang.key, []).append(each)
    found = []
    for _, operations in sorted(leaving.items()):
        gang = operations[0].gang
        native = gang.pod_group is not None and gang.pod_group.native is not None
        if native and all(each.member.pod.owner is None for each in operations):
            continue  # no controller makes pods of a native group again that have none
        remade = remade_gang(gang, [each.member for each in operations])
        if remade.missing_members or not remade.placed:
            found.append((gang, remade))
    return found


def remade_gang(gang: Gang, leaving: Sequence[Placed]) -> Gang:
    """The gang with members that wait in place of those that leave."""
    gone = {member.pod.uid for member in leaving}
    pods = [
        msgspec.structs.replace(
            member.pod, node="", slots=0, plan="", scheduled=0.0, phase=PodPhase.PENDING
        )
        for member in leaving
    ]
    waiting = [pod for each in gang.pod_sets for pod in each.pods]
    requests = total(pod.pod_class.requests for pod in pods)
    return attrs.evolve(
        gang,
        pod_sets=make_pod_sets([*waiting, *pods]),
        placed=tuple(member for member in gang.placed if member.pod.uid not in gone),
        ready_roles=_without(gang.ready_roles, [pod.role for pod in pods]),
        ready_sub_groups=_without(gang.ready_sub_groups, [pod.sub_group for pod in pods]),
        running=max(0, gang.running - len(pods)),
        allocated=less(gang.allocated, requests),
        pending_requests=gang.pending_requests.plus(requests),
    )


def _without(
    counts: tuple[tuple[str, int], ...], gone: Sequence[str]
) -> tuple[tuple[str, int], ...]:
    """Counts by name, each less by how often the name is among those that are gone."""
    return tuple((name, count - gone.count(name)) for name, count in counts)
