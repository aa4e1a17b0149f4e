"""Gangs that ran as a whole and have lost members: since when, and who would make them whole.

Only what the API shows counts, so that a restart or another leader gives a gang no more time.
"""

from __future__ import annotations

from collections import Counter

import attrs
import msgspec

from gpusched.cache.gangs import Gang, Placed, make_tasks
from gpusched.cache.unborn import mark_unborn
from gpusched.objects.pod import Pod, PodPhase

STARTED = ("Running", "Unknown")
"""Phases of a PodGroup that once had its minimum."""


def is_broken(gang: Gang) -> bool:
    """Whether the gang ran as a whole, still has members, and is below its minimum now.

    A gang that we bound only in part is not broken: it is completed or taken back by the commit.
    Members that somebody else brought to their nodes ran before our time.
    """
    if not gang.placed or not gang.need or gang.credit:
        return False
    if gang.pod_group is not None:
        ours = any(member.pod.plan or not member.confirmed for member in gang.placed)
        return gang.pod_group.phase in STARTED or not ours
    return bool(_replacements(gang))


def broken_since(gang: Gang) -> float:
    """When the gang fell below its minimum, seconds since the epoch; 0.0 when it is not known yet.

    With a PodGroup it is the time at which its condition Scheduled became false; otherwise the
    oldest of the pods that replace lost members tells it.
    """
    if not is_broken(gang):
        return 0.0
    if gang.pod_group is None:
        return min(pod.created for pod in _replacements(gang))
    told = gang.pod_group.condition("Scheduled")
    return told.transition if told is not None and told.status == "False" else 0.0


def _replacements(gang: Gang) -> list[Pod]:
    """Pods that wait, if all of them were made after the members that have places got theirs."""
    last = max((member.pod.scheduled for member in gang.placed), default=0.0)
    waiting = [pod for task in gang.tasks for pod in task.pods]
    return waiting if last and all(pod.created > last for pod in waiting) else []


def completed(gang: Gang) -> Gang:
    """The gang with stand-ins for the members that it lacks and that nobody has made yet.

    Each looks like a member that runs, of the role that is short. Gangs of sub-groups stay as
    they are: which part lost a member is not known.
    """
    missing = gang.need - gang.pending
    if missing <= 0 or gang.sub_groups or not gang.placed:
        return gang
    waiting = [pod for task in gang.tasks for pod in task.pods]
    have = Counter(pod.role for pod in waiting)
    roles: list[str | None] = []
    for role, short in gang.missing_roles:
        roles += [role] * max(0, short - have[role])
    roles += [None] * (missing - len(roles))
    stand_ins = [
        _like(_model(gang, role), gang, number) for number, role in enumerate(roles[:missing])
    ]
    return attrs.evolve(gang, tasks=make_tasks([*waiting, *stand_ins]), unborn=len(stand_ins))


def _model(gang: Gang, role: str | None) -> Placed:
    """A member of that role if there is one, else of the class that most members have."""
    of_role = [member for member in gang.placed if member.pod.role == role] or list(gang.placed)
    counts = Counter(member.pod.pod_class.digest for member in of_role)
    return max(
        of_role,
        key=lambda each: (counts[each.pod.pod_class.digest], each.pod.pod_class.digest),
    )


def _like(model: Placed, gang: Gang, number: int) -> Pod:
    return msgspec.structs.replace(
        model.pod,
        name=f"{gang.key.name}-missing-{number}",
        uid=mark_unborn(gang.uid, number),
        node="",
        slots=0,
        plan="",
        phase=PodPhase.PENDING,
        scheduled=0.0,
        rank=-1,
    )
