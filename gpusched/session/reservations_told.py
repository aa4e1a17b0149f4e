"""What is said about reservations: by whom room is held, from when on, and why."""

from __future__ import annotations

from gpusched.cache.gangs import Gang
from gpusched.objects.meta import format_time
from gpusched.session.reasons import cut, members, nodes
from gpusched.session.reservations import Reservations
from gpusched.session.reservations_holders import Holder, Strict
from gpusched.session.reservations_lengths import UNKNOWN


def held_for(reservations: Reservations, gang: Gang, holder: Holder | Strict) -> str:
    """The sentence for a gang that would fit, were it not for another's reservation."""
    other = holder.gang
    if isinstance(holder, Strict):
        queue = gang.queue
        return cut(
            f"{other.key} is before it in queue {queue}, which is StrictFifo, and needs the same "
            f"nodes for {members(other.at_once)}"
        )
    length = reservations.lengths.of(gang)
    runs = "for an unknown time" if length >= UNKNOWN else f"for {length} s"
    count = _are(len(holder.hold.rows))
    if holder.due or holder.hold.start <= reservations.lengths.now:
        since = "now"
    else:
        since = format_time(holder.hold.start)
    return cut(
        f"fits now and would run {runs}, but {count} held from {since} on for {other.key}, "
        f"which needs room for {members(other.at_once)}"
    )


def reserved_for_it(reservations: Reservations, holder: Holder) -> str:
    """What a holder is told behind the reason why it does not start now."""
    count = _are(len(holder.hold.rows))
    if holder.due:
        return f"{count} held for it until preemption has decided"
    if holder.hold.start <= reservations.lengths.now:
        return f"it has waited too long, so {count} held for it until they suffice"
    basis = holder.basis
    when = f"held for it from {format_time(holder.hold.start)} on"
    if basis is None:
        return f"{count} {when}"
    if basis in reservations.lengths.overruns:
        return f"{count} held for it as soon as {basis} ends, which is over its walltime"
    return f"{count} {when}, when {basis} is to have ended"


def _are(count: int) -> str:
    return f"{nodes(count)} {'is' if count == 1 else 'are'}"
