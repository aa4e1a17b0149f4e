"""Who holds the room that a gang lacks: which gangs, by what their leaving would free."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np

from gpusched.api.meta.identity import GangKey
from gpusched.api.pod.pod import PodClass
from gpusched.arrays.columns import Bools, Ints, RequestVector, how_many_fit, request_vector
from gpusched.cache.gangs.gang import PodSet
from gpusched.cache.snapshot import Snapshot
from gpusched.session.framework.reasons import shorten
from gpusched.session.state.session import Session

_NAMED_MAX: Final = 2


class _GangsByRow:
    """Classes of the members of our gangs on each row, by row and gang, as the snapshot has them."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.classes: dict[int, dict[GangKey, list[PodClass]]] = {}
        row_of = snapshot.nodes.row
        for key, gang in snapshot.placed_gangs.items():
            for member in gang.placed:
                row = row_of.get(member.node, -1)
                if row >= 0:
                    here = self.classes.setdefault(row, {})
                    here.setdefault(key, []).append(member.pod.pod_class)


def gangs_in_the_way_text(
    session: Session, pod_set: PodSet, inside: Bools, *, lacking: int, claimant: GangKey
) -> str:
    """``2 held by team-b/llm-7, 1 by team-c/old``; empty when no gang holds what is missing.

    Args:
        session: as its bench is looked at.
        pod_set: whose members would sit there.
        inside: rows that are looked at, shape (nodes,).
        lacking: how many find no place there; no gang is said to hold more than these.
        claimant: the gang that asks, which does not stand in its own way.
    """
    info = session.class_info(pod_set.pod_class)
    ask = info.request.with_whole_gpus
    if ask.missing or lacking <= 0:
        return ""
    gains: Counter[GangKey] = Counter()
    by_row = session.cycle_state.get_or_make(
        _GangsByRow, lambda: _GangsByRow(session.snapshot)
    ).classes
    for row in np.flatnonzero(inside & info.class_fit.allowed).tolist():
        for key, classes in by_row.get(row, {}).items():
            if key == claimant:
                continue
            free = session.node_usage.free_on(row, ask.columns) + _freed_by_leaving(
                session, classes, ask
            )
            fits = int(how_many_fit(free[np.newaxis], ask.amounts)[0])
            gains[key] += max(0, fits - int(info.class_fit.fits[row]))
    ranked = sorted((-min(gain, lacking), key) for key, gain in gains.items() if gain)
    return ", ".join(
        f"{-gain} {'' if number else 'held '}by {shorten(key.namespace)}/{shorten(key.name)}"
        for number, (gain, key) in enumerate(ranked[:_NAMED_MAX])
    )


def _freed_by_leaving(session: Session, classes: Sequence[PodClass], ask: RequestVector) -> Ints:
    """What the leaving of such pods would free of what is asked, shape (resources asked,)."""
    freed = np.zeros(len(session.node_usage.nodes.columns), dtype=np.int64)
    for pod_class in classes:
        held = request_vector(pod_class.requests, session.node_usage.nodes.columns)
        freed[held.columns] += held.amounts
    return freed[ask.columns]
