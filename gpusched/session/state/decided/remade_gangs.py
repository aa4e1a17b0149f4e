"""A gang of which members leave, as it waits once its controller has made them again."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import msgspec

from gpusched.api.meta.resources import total
from gpusched.api.pod.pod import PodPhase
from gpusched.cache.gangs.gang import Gang, Placed, make_pod_sets
from gpusched.session.framework.accounts.queue_accounts import less


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
    requests = total(pod.pod_class.charged for pod in pods)
    return attrs.evolve(
        gang,
        pod_sets=make_pod_sets([*waiting, *pods]),
        placed=tuple(member for member in gang.placed if member.pod.uid not in gone),
        ready_roles=_remove_names(gang.ready_roles, [pod.role for pod in pods]),
        ready_sub_groups=_remove_names(gang.ready_sub_groups, [pod.sub_group for pod in pods]),
        running=max(0, gang.running - len(pods)),
        allocated=less(gang.allocated, requests),
        pending_requests=gang.pending_requests.plus(requests),
    )


def _remove_names(
    counts: tuple[tuple[str, int], ...], gone: Sequence[str]
) -> tuple[tuple[str, int], ...]:
    """Counts by name, each less by how often the name is among those that are gone."""
    return tuple((name, count - gone.count(name)) for name, count in counts)
