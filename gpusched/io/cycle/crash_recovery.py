"""How a process begins after others died in their sessions: without the suspect, or plainer."""

from __future__ import annotations

import attrs

from gpusched.base import limits
from gpusched.cache.snapshot import Snapshot
from gpusched.io.cycle.crash_marker import CrashMemory, ProcessCrash
from gpusched.session.containment.culprit_search import next_reduced_mode
from gpusched.session.containment.set_aside import FULL_MODE, Containment, SessionMode
from gpusched.session.containment.suspects import SessionFault, gang_suspect


def begin_after_crashes(
    memory: CrashMemory, death: ProcessCrash | None, containment: Containment, snapshot: Snapshot
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
        if suspect.times >= limits.CRASHES_OF_GANG_MAX:
            explained += suspect.times
            names.append(f"{suspect.kind} {suspect.key}")
            fault = SessionFault(
                kind="ProcessDeath",
                says=f"{suspect.times} processes died with it in hand",
                stage=suspect.stage or "open",
                place="process",
                suspects=(gang_suspect(suspect.key),),
                story="",
            )
            containment.begin_set_aside(snapshot, gang_suspect(suspect.key), fault)
    mode = _mode_after_deaths(memory.deaths - explained, memory.stage)
    told = death.message if death is not None else "earlier processes died in their sessions"
    told = f"{told}, the last of {memory.deaths} in a row"
    if mode != FULL_MODE:
        containment.begin_reduced(
            mode, now=snapshot.now, why=told, times=memory.deaths - explained - 1
        )
    if names:
        told = f"{told}; set aside: {', '.join(names)}"
    if mode != FULL_MODE:
        told = f"{told}; sessions go without {', '.join(mode.omitted_parts)} for a while"
    return told


def _mode_after_deaths(deaths: int, stage: str) -> SessionMode:
    """One step plainer for each death that no gang explains, the first one excepted."""
    mode = FULL_MODE
    for _ in range(deaths - 1):
        plainer = next_reduced_mode(mode, stage)
        if plainer is not None:
            mode = plainer
        elif mode.together:
            mode = attrs.evolve(mode, together=False)
        else:
            mode = attrs.evolve(mode, decides=False)
    return mode
