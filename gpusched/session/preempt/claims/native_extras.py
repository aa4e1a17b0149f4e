"""Members beyond ``minCount`` of Kubernetes' own groups, for which others of lower priority may leave.

In Kubernetes such pods preempt as any pod does. Here they do so for spare members of other gangs and
for gangs of one pod: no gang is broken or ended for an extra of another one. A group or a pod with
preemptionPolicy Never takes no part.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from gpusched.cache.gangs.expected_pods import is_expected
from gpusched.cache.gangs.gang import Gang
from gpusched.session.allocate.start_members import in_pod_order
from gpusched.session.framework.verdict import first_refusal
from gpusched.session.preempt.claims.claimants import preempt_rules
from gpusched.session.preempt.claims.growing_gangs import growing_claimant
from gpusched.session.preempt.victim_selection import VictimRules
from gpusched.session.state.session import Session


def extras_rules() -> tuple[VictimRules, VictimRules]:
    """Rules to be tried one after another: gangs of one pod, then spare members."""
    rules = preempt_rules()

    def is_single(claimant: Gang, victim: Gang) -> bool:
        return len(victim.placed) == 1 and rules.may_be_victim(claimant, victim)

    return attrs.evolve(rules, may_be_victim=is_single), attrs.evolve(rules, only_spare=True)


def extras_of_native_groups(
    session: Session, has_victims: Callable[[Gang], bool]
) -> list[list[Gang]]:
    """Groups that run and lack members, each with those members that ask next: all, then half.

    Args:
        session: after claims for minima were made.
        has_victims: whether there may be a victim for a gang; asked first.
    """
    return [
        claimants
        for gang in session.pending_gangs
        if _can_grow(session, gang)
        and has_victims(gang)
        and (claimants := _claimants_for(session, gang))
    ]


def _can_grow(session: Session, gang: Gang) -> bool:
    native = gang.pod_group is not None and gang.pod_group.native is not None
    return bool(
        native
        and gang.placed
        and not gang.sub_groups
        and not gang.missing_members
        and not gang.expected_count
        and session.outcomes.is_admitted(gang)
        and not session.nominations.has_nomination(gang)
        and not session.placements.assigned(gang)
        and not first_refusal(session.hooks.ready_checks, gang).refuses
    )


def _claimants_for(session: Session, gang: Gang) -> list[Gang]:
    found = []
    for pod_set in gang.pod_sets:
        pods = tuple(pod for pod in pod_set.pods if pod.may_preempt and not is_expected(pod))
        asked = attrs.evolve(pod_set, pods=tuple(in_pod_order(pods, session.hooks.pod_orders)))
        count = len(pods)
        while count:
            found.append(growing_claimant(gang, [(asked, count)]))
            count //= 2
    return found
