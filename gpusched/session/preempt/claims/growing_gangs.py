"""Gangs that run and could grow if gangs of other queues gave members that they can spare.

A claimant here is the gang with those members alone for which it asks: of one class, or those that
complete one further sub-group. Policies say how many it may ask for; equal gangs of a queue ask for
equal parts of that, and whoever finds no victims for so many asks for half of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import attrs

from gpusched.api.meta.resources import NOTHING, Resources
from gpusched.cache.gangs.expected_pods import is_expected
from gpusched.cache.gangs.gang import Gang, PodSet
from gpusched.session.allocate.start_members import in_pod_order
from gpusched.session.allocate.sub_groups import MemberCounts, members_to_complete
from gpusched.session.framework.reasons import Reason
from gpusched.session.framework.verdict import Verdict, first_refusal
from gpusched.session.preempt.claims.claimants import reclaim_rules
from gpusched.session.preempt.claims.session_starts import started_gangs
from gpusched.session.preempt.victim_selection import VictimRules
from gpusched.session.preempt.victims import Victims
from gpusched.session.state.session import Session


def growth_rules(victims: Victims) -> VictimRules:
    """Victims are of other queues, and lose no member of their minimum."""
    return attrs.evolve(reclaim_rules(victims), only_spare=True)


class GrowingGangs:
    """Gangs that may ask for room to grow, and for how many members each asks next.

    Args:
        session: after gangs were placed and claims for minima were made.
        waiting: gangs that wait for their minimum and for which others might be evicted.
        victims: of the session.
        tells: whether gangs are told why no room is made for their growth.
        starting: whether they are gangs that start in this session, as they run then.
    """

    def __init__(
        self,
        session: Session,
        waiting: Sequence[Gang],
        victims: Victims,
        *,
        tells: bool = True,
        starting: bool = False,
    ) -> None:
        self._session = session
        self._tells = tells
        self._starting = starting
        queues = list(victims.queues)
        self._only = queues[0] if len(queues) == 1 else ""
        gangs = started_gangs(session).values() if starting else session.gangs
        growing = [gang for gang in gangs if self._can_grow(gang)]
        self._minima = self._waiting_minima(waiting) if growing else {}
        of_queue = Counter(gang.queue for gang in growing)
        self._claimants = {
            gang.key: claimants
            for gang in growing
            if (claimants := self._claimants_for(gang, of_queue[gang.queue]))
        }

    def next_claimants(self) -> list[Gang]:
        """The next claimant of each gang that has got no room yet; none when all have asked."""
        nominations = self._session.nominations
        return [
            claimants.pop(0)
            for claimants in self._claimants.values()
            if claimants and not nominations.has_nomination(claimants[0])
        ]

    @property
    def claimants(self) -> Iterable[Sequence[Gang]]:
        """Claimants of each gang: with all members for which it may ask, then with fewer."""
        return self._claimants.values()

    def may_claim(self, claimant: Gang) -> Verdict:
        """Whether policies let others give members for this one."""
        checks = self._session.hooks.growth_checks
        return first_refusal(checks, claimant, self._minima.get(claimant.queue, NOTHING))

    def _waiting_minima(self, waiting: Sequence[Gang]) -> dict[str, Resources]:
        """What gangs ask for that wait, by queue, where they may claim it: it comes before growth."""
        found: dict[str, Resources] = {}
        checks = self._session.hooks.reclaim_checks
        for gang in waiting:
            if (
                self._session.nominations.has_nomination(gang)
                or first_refusal(checks, gang).refuses
            ):
                continue
            asked = self._session.view.minimum(gang)
            found[gang.queue] = found.get(gang.queue, NOTHING).plus(asked)
        return found

    def _can_grow(self, gang: Gang) -> bool:
        session = self._session
        return bool(
            gang.placed
            and gang.pending
            and gang.queue != self._only
            and not gang.missing_members
            and not gang.expected_count
            and session.outcomes.is_admitted(gang)
            and not session.nominations.has_nomination(gang)
            and (self._starting or not session.placements.assigned(gang))
            and not first_refusal(session.hooks.ready_checks, gang).refuses
        )

    def _claimants_for(self, gang: Gang, alike: int) -> list[Gang]:
        """The gang with the members for which it would ask, then with fewer of them."""
        found = []
        for pod_set in gang.pod_sets:
            if _completes_sub_group(gang, pod_set.sub_group):
                continue
            pods = tuple(pod for pod in pod_set.pods if pod.may_preempt and not is_expected(pod))
            pods = tuple(in_pod_order(pods, self._session.hooks.pod_orders))
            asked = attrs.evolve(pod_set, pods=pods)
            count = self._allowed_members(gang, asked)
            if not count and pods and self._tells:
                self._append_message(gang, self.may_claim(growing_claimant(gang, [(asked, 1)])))
            count = min(count, -(-count // alike))
            while count:
                found.append(growing_claimant(gang, [(asked, count)]))
                count //= 2
        for part in () if gang.parent_groups else gang.sub_groups:
            if _completes_sub_group(gang, part.name) and (
                chosen := members_to_complete(gang, part)
            ):
                claimant = _completed_by(gang, part.name, chosen)
                if not self.may_claim(claimant).refuses:
                    found.append(claimant)
        return found

    def _append_message(self, gang: Gang, verdict: Verdict) -> None:
        """Add to the message why no room is made for its growth, where it waits for room."""
        waits = self._session.outcomes.refusal(gang)
        if waits is not None and waits.reason == Reason.INSUFFICIENT_RESOURCES:
            self._session.outcomes.extend_refusal(gang, verdict.message)

    def _allowed_members(self, gang: Gang, pod_set: PodSet) -> int:
        """How many of these members policies let the gang ask for."""
        low, high = 0, len(pod_set.pods)
        while low < high:
            middle = (low + high + 1) // 2
            refused = self.may_claim(growing_claimant(gang, [(pod_set, middle)])).refuses
            low, high = (low, middle - 1) if refused else (middle, high)
        return low


def _completes_sub_group(gang: Gang, name: str) -> bool:
    """Whether members of this sub-group start with its minimum or not at all, or with others."""
    missing = gang.missing_by_sub_group if gang.sub_groups else {}
    names = [name, *(each.name for each in gang.groups_around(name))] if name in missing else []
    return any(missing.get(each) for each in names)


def growing_claimant(gang: Gang, members: MemberCounts) -> Gang:
    """The gang that lacks exactly these members."""
    count = sum(number for _, number in members)
    requests = NOTHING
    for pod_set, number in members:
        requests = requests.plus(pod_set.pod_class.charged, times=number)
    return attrs.evolve(
        gang, min_member=gang.ready_members + count, min_roles=(), ready_roles=(),
        pod_sets=tuple(
            attrs.evolve(pod_set, pods=pod_set.pods[:number]) for pod_set, number in members
        ),
        pending_requests=requests,
    )  # fmt: skip


def _completed_by(gang: Gang, name: str, members: MemberCounts) -> Gang:
    """The gang that lacks exactly the members with which one more sub-group is complete."""
    complete = [part for part in gang.sub_groups if not gang.missing_in_sub_group(part)]
    parts = tuple(part for part in gang.sub_groups if part in complete or part.name == name)
    return attrs.evolve(
        growing_claimant(gang, members), sub_groups=parts, min_sub_groups=len(complete) + 1
    )
