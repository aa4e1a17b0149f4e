"""How members that leave are judged: those above the minimum one by one, the rest as a whole."""

from __future__ import annotations

from collections.abc import Sequence

from gpusched.cache.gangs import Gang, Placed
from gpusched.objects.resources import Resources, total
from gpusched.session.node_pools import Pools
from gpusched.session.proposal import Chunk
from gpusched.session.victim_pool import Leaving
from gpusched.session.victims import Seat


def chunks_of(part: Leaving, pools: Pools | None = None) -> list[Chunk]:
    """The steps in which a part of a choice goes, the last in rank first.

    With ``pools``, what is taken there is told beside the rest, by dimension.
    """
    leaving = sorted(part.seats, key=lambda seat: _last_first(seat.member))
    spare = min(len(leaving), _surplus(part.gang))
    steps = [leaving[number : number + 1] for number in range(spare)]
    if leaving[spare:]:
        steps.append(leaving[spare:])
    return [Chunk(part.gang, _taken(step, pools)) for step in steps]


def _taken(seats: Sequence[Seat], pools: Pools | None) -> Resources:
    taken = total(seat.member.pod.pod_class.requests for seat in seats)
    if pools is None:
        return taken
    return taken.plus(total(pools.charge(seat.member.pod.pod_class, seat.row) for seat in seats))


def _surplus(gang: Gang) -> int:
    """Members that the gang can lose and still run."""
    if gang.terms.disruption == "Group":
        return 0
    return max(0, gang.ready - gang.min_member)


def _last_first(member: Placed) -> tuple[int, str]:
    return -member.pod.rank, member.pod.uid
