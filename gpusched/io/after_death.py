"""How a process begins after others died in their sessions: without the suspect, or plainer."""

from __future__ import annotations

import attrs

from gpusched import limits
from gpusched.cache.snapshot import Snapshot
from gpusched.io.session_mark import Death, Memory
from gpusched.session.containment import FULL, Containment, Mode
from gpusched.session.culprits import next_mode
from gpusched.session.suspects import Fault, of_gang


def begin_after(
    memory: Memory, death: Death | None, containment: Containment, snapshot: Snapshot
) -> str:
    """Set aside and make plainer what the first session needs.

    Args:
        memory: of deaths, the last one included.
        death: the last one; None when the last process ended in order.
        containment: of the first session.
        snapshot: of the first session.

    Returns:
        A sentence for log and event; empty when nothing died.
    """
    if not memory.deaths:
        return ""
    explained = 0
    names = []
    for suspect in memory.suspects:
        if suspect.times >= limits.DEATHS_OF_GANG_MAX:
            explained += suspect.times
            names.append(f"{suspect.kind} {suspect.key}")
            fault = Fault(
                kind="ProcessDeath",
                says=f"{suspect.times} processes died with it in hand",
                stage=suspect.stage or "open",
                place="process",
                suspects=(of_gang(suspect.key),),
                story="",
            )
            containment.begin_without(snapshot, of_gang(suspect.key), fault)
    mode = _mode(memory.deaths - explained, memory.stage)
    told = death.sentence if death is not None else "earlier processes died in their sessions"
    told = f"{told}, the last of {memory.deaths} in a row"
    if mode != FULL:
        containment.begin_plainer(
            mode, now=snapshot.now, why=told, times=memory.deaths - explained - 1
        )
    if names:
        told = f"{told}; set aside: {', '.join(names)}"
    if mode != FULL:
        told = f"{told}; sessions go without {', '.join(mode.off)} for a while"
    return told


def _mode(deaths: int, stage: str) -> Mode:
    """One step plainer for each death that no gang explains, the first one excepted."""
    mode = FULL
    for _ in range(deaths - 1):
        plainer = next_mode(mode, stage)
        if plainer is not None:
            mode = plainer
        elif mode.together:
            mode = attrs.evolve(mode, together=False)
        else:
            mode = attrs.evolve(mode, decides=False)
    return mode
