"""Gangs that have lost members get them back before others start, and their room waits for them."""

from __future__ import annotations

from collections.abc import Sequence

from gpusched import limits
from gpusched.cache.gangs import Gang
from gpusched.session.broken import broken_since, completed, is_broken
from gpusched.session.placing import place_minimum
from gpusched.session.session import Session
from gpusched.session.verdict import first_refusal


def repairs_first(session: Session, ready: Sequence[Gang]) -> tuple[list[Gang], list[Gang]]:
    """Split into gangs that are served before all others, and those that are ready otherwise.

    A broken gang holds GPUs that do no work, so it goes before what waits in other queues too;
    but not before a gang of higher priority in its own. Broken gangs whose members nobody has
    made again yet are among the first as well: room is held for them.
    """
    broken = [gang for gang in session.gangs if is_broken(gang) and gang.key in session.admitted]
    if not broken:
        return [], list(ready)
    highest: dict[str, int] = {}
    for gang in ready:
        highest[gang.queue] = max(highest.get(gang.queue, gang.priority), gang.priority)
    waiting = {gang.key for gang in ready}
    first = [
        gang
        for gang in broken
        if (gang.pending < gang.need or gang.key in waiting)
        and gang.priority >= highest.get(gang.queue, gang.priority)
    ]
    keys = {gang.key for gang in first}
    return first, [gang for gang in ready if gang.key not in keys]


def hold_for_repair(session: Session, gang: Gang) -> None:
    """Keep room free for members that a gang has lost and that nobody has made again yet.

    Room of a member that is still ending counts: its successor is likely to come to it.
    """
    since = broken_since(gang)
    whole = completed(gang)
    if since and session.snapshot.now - since > limits.REPAIR_HOLD_MAX_S:
        return
    if whole.pending < gang.need or gang.key in session.promises:
        return
    with session.looking_later():
        statement = session.statement()
        if (
            first_refusal(session.hooks.quota_checks, whole).refuses
            or place_minimum(session, whole, statement) is not None
        ):
            statement.discard()
        else:
            session.hold(gang, statement)
