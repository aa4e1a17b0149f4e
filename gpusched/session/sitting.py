"""Who sits on which node: gangs of ours, by row."""

from __future__ import annotations

from gpusched.cache.snapshot import Snapshot
from gpusched.objects.meta import GangKey
from gpusched.objects.pod import PodClass

Sitting = dict[int, dict[GangKey, list[PodClass]]]
"""By row and gang the classes of its members there."""


def sitting(snapshot: Snapshot) -> Sitting:
    """Who sits on which row, gangs of ours only."""
    found: Sitting = {}
    row_of = snapshot.nodes.row
    for key, gang in snapshot.active.items():
        for member in gang.placed:
            row = row_of.get(member.node, -1)
            if row >= 0:
                found.setdefault(row, {}).setdefault(key, []).append(member.pod.pod_class)
    return found
