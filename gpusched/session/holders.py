"""Who sits where a gang would go: gangs whose leaving would give it most."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np

from gpusched.arrays.columns import Bools, Demand, Ints, demand, how_many_fit
from gpusched.cache.gangs import Task
from gpusched.objects.meta import GangKey
from gpusched.objects.pod import PodClass
from gpusched.session.reasons import short
from gpusched.session.session import Session

_NAMED_MAX: Final = 2


def holders(session: Session, task: Task, inside: Bools, *, lacking: int, claimant: GangKey) -> str:
    """``2 held by team-b/llm-7, 1 by team-c/old``; empty when no gang holds what is missing.

    Args:
        session: as its bench is looked at.
        task: whose members would sit there.
        inside: rows that are looked at, shape (nodes,).
        lacking: how many find no place there; nobody is said to hold more than these.
        claimant: the gang that asks, which does not stand in its own way.
    """
    seat = session.seat(task.pod_class)
    ask = seat.ask.rough
    if ask.missing or lacking <= 0:
        return ""
    gains: Counter[GangKey] = Counter()
    for row in np.flatnonzero(inside & seat.board.allowed).tolist():
        for key, classes in session.sitting.get(row, {}).items():
            if key == claimant:
                continue
            free = session.bench.free_on(row, ask.columns) + _freed(session, classes, ask)
            fits = int(how_many_fit(free[np.newaxis], ask.amounts)[0])
            gains[key] += max(0, fits - int(seat.board.fits[row]))
    ranked = sorted((-min(gain, lacking), key) for key, gain in gains.items() if gain)
    return ", ".join(
        f"{-gain} {'' if number else 'held '}by {short(key.namespace)}/{short(key.name)}"
        for number, (gain, key) in enumerate(ranked[:_NAMED_MAX])
    )


def _freed(session: Session, classes: Sequence[PodClass], ask: Demand) -> Ints:
    """What the leaving of such pods would free of what is asked, shape (resources asked,)."""
    freed = np.zeros(len(session.bench.nodes.columns), dtype=np.int64)
    for pod_class in classes:
        held = demand(pod_class.requests, session.bench.nodes.columns)
        freed[held.columns] += held.amounts
    return freed[ask.columns]
