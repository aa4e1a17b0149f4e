"""What is in the way of a gang that no change lets start: the gangs before it, and who would have what changes give."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from gpusched.advice.proposals.proposal import ChangeProposal, gang_title, joined_names
from gpusched.api.meta.identity import GangKey
from gpusched.base.classes import frozen
from gpusched.cache.gangs.gang import Gang
from gpusched.cache.snapshot import Snapshot

_TOLD_MAX: Final = 3
"""Changes of which it is told which gangs have what they give."""
_IN_LINE: Final = ("Fifo", "StrictFifo")


@frozen
class TakenChange:
    """A change by which a gang would start if no other one waited.

    Attributes:
        takers: gangs that get by it what the gang would have, or keep it, sorted; empty where none is known.
        message: why the gang waits beside them.
    """

    proposal: ChangeProposal
    takers: tuple[GangKey, ...]
    message: str


def what_is_in_the_way(
    gang: Gang, snapshot: Snapshot, turns: Sequence[GangKey], taken: Iterable[TakenChange]
) -> Iterator[str]:
    """One sentence for each thing that keeps all changes from helping.

    Args:
        gang: that waits.
        snapshot: that it is part of.
        turns: gangs that wait, in the order in which they get room.
        taken: changes that help the gang alone, and not beside the others.
    """
    before = turns[: turns.index(gang.key)] if gang.key in turns else ()
    if before:
        yield _line_text(gang, snapshot, before)
    found = sorted(taken, key=lambda each: each.proposal.family)
    for each in found[:_TOLD_MAX]:
        yield f"{each.proposal.message} it would start alone, but {_taker_text(each)}"
    if not found:
        yield "no change that was tried starts it, even if no other gang waited"


def _line_text(gang: Gang, snapshot: Snapshot, before: Sequence[GangKey]) -> str:
    queues = {each.key: each.queue for each in snapshot.gangs}
    mine = [key for key in before if queues.get(key) == gang.queue]
    leaf = snapshot.queues.get(gang.queue)
    ordering = leaf.queue.ordering if leaf is not None else ""
    said = f"{_gangs_text(len(before))} before it in line"
    if mine:
        served = f", which is served {ordering}" if ordering in _IN_LINE else ""
        said += f", {len(mine)} of them of queue {gang.queue}{served}"
    return f"{said}: {joined_names([gang_title(key) for key in before])}"


def _gangs_text(count: int) -> str:
    return f"{count} gangs are" if count > 1 else "1 gang is"


def _taker_text(change: TakenChange) -> str:
    if change.takers:
        names = joined_names([gang_title(key) for key in change.takers])
        return f"{names} would have the room"
    return f"beside the others it would wait: {change.message}"
