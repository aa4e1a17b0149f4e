"""How members that leave are judged: those above the minimum one by one, the rest as a whole."""

from __future__ import annotations

from gpusched.cache.gangs import Gang, Placed
from gpusched.objects.resources import total
from gpusched.session.proposal import Chunk
from gpusched.session.victim_pool import Leaving


def chunks_of(part: Leaving) -> list[Chunk]:
    """The steps in which a part of a choice goes, the last in rank first."""
    leaving = sorted((seat.member for seat in part.seats), key=_last_first)
    spare = min(len(leaving), _surplus(part.gang))
    steps = [leaving[number : number + 1] for number in range(spare)]
    if leaving[spare:]:
        steps.append(leaving[spare:])
    return [
        Chunk(part.gang, total(member.pod.pod_class.requests for member in step)) for step in steps
    ]


def _surplus(gang: Gang) -> int:
    """Members that the gang can lose and still run."""
    if gang.terms.disruption == "Group":
        return 0
    return max(0, gang.ready - gang.min_member)


def _last_first(member: Placed) -> tuple[int, str]:
    return -member.pod.rank, member.pod.uid
