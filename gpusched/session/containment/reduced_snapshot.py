"""A snapshot without some of its objects, as if they were not there.

What a gang holds stays charged: its pods count in the used room of their nodes, in what their
queues hold and among the residents. Of a node nothing is left, as nothing may be placed there.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Set as AbstractSet

import attrs
import numpy as np

from gpusched.api.meta.identity import GangKey
from gpusched.api.pod.pod import Pod
from gpusched.arrays.columns import Ints, NodeColumns
from gpusched.cache.gangs.gang import Gang
from gpusched.cache.nodes.pods_by_node import NodePods
from gpusched.cache.queues.tree import QueueTree
from gpusched.cache.snapshot import Snapshot
from gpusched.session.containment.suspects import (
    Suspect,
    SuspectKind,
    budget_suspect,
    pod_suspect,
    reservation_suspect,
    topology_suspect,
)


def reduced_snapshot(snapshot: Snapshot, aside: Collection[Suspect]) -> Snapshot:
    """The same moment, but for these objects.

    A queue goes with the queues below it and with all their gangs.
    """
    if not aside:
        return snapshot
    of: dict[SuspectKind, set[GangKey]] = {}
    for suspect in aside:
        of.setdefault(suspect.what, set()).add(suspect.key)
    queues, gone = _without_queues(
        snapshot.queues, {key.name for key in of.get(SuspectKind.QUEUE, ())}
    )
    keys = of.get(SuspectKind.GANG, set())

    def stays(gang: Gang) -> bool:
        return gang.key not in keys and gang.queue not in gone

    moves = of.get(SuspectKind.MOVE, set())
    parted = (
        {key for key, gang in snapshot.placed_gangs.items() if not stays(gang)} if gone else keys
    )
    parted = parted | {gang.key for gang in snapshot.gangs if gang.queue in gone}
    smaller = attrs.evolve(
        snapshot,
        gangs=tuple(gang for gang in snapshot.gangs if stays(gang)),
        placed_gangs={key: gang for key, gang in snapshot.placed_gangs.items() if stays(gang)},
        queues=queues,
        topologies=tuple(
            each for each in snapshot.topologies if topology_suspect(each.name) not in aside
        ),
        reservations=tuple(
            each for each in snapshot.reservations if reservation_suspect(each.name) not in aside
        ),
        budgets=tuple(each for each in snapshot.budgets if budget_suspect(each) not in aside),
        move_records=tuple(
            (key, move)
            for key, move in snapshot.move_records
            if key not in moves and key not in parted
        ),
    )
    if SuspectKind.POD in of:
        smaller = _without_pods(smaller, aside)
    if SuspectKind.NODE in of:
        smaller = _without_nodes(smaller, {key.name for key in of[SuspectKind.NODE]})
    return smaller


def _without_queues(tree: QueueTree, names: AbstractSet[str]) -> tuple[QueueTree, AbstractSet[str]]:
    if not names:
        return tree, frozenset()
    gone = {name for name, node in tree.queues.items() if not names.isdisjoint(node.path)} | names
    left = {name: node for name, node in tree.queues.items() if name not in gone}
    below = {
        name: tuple(each for each in those if each not in gone)
        for name, those in tree.below.items()
        if name not in gone
    }
    return QueueTree(left, {name: those for name, those in below.items() if those}), gone


def _without_pods(snapshot: Snapshot, aside: Collection[Suspect]) -> Snapshot:
    def left(pods: tuple[Pod, ...]) -> tuple[Pod, ...]:
        return tuple(pod for pod in pods if pod_suspect(pod) not in aside)

    here = snapshot.pods_by_node
    residents = NodePods(
        pods=tuple(left(pods) for pods in here.pods),
        apart=tuple(left(pods) for pods in here.apart),
        generation=here.generation,
    )
    return attrs.evolve(
        snapshot,
        pods_by_node=residents,
        nominated_foreign_pods=left(snapshot.nominated_foreign_pods),
    )


def _without_nodes(snapshot: Snapshot, names: AbstractSet[str]) -> Snapshot:
    nodes, here = snapshot.nodes, snapshot.pods_by_node
    rows = [row for row, node in enumerate(nodes.nodes) if node.name not in names]
    if len(rows) == len(nodes):
        return snapshot
    picked = np.array(rows, dtype=np.int64)
    smaller = NodeColumns(
        nodes=tuple(nodes.nodes[row] for row in rows),
        row={nodes.nodes[row].name: number for number, row in enumerate(rows)},
        columns=nodes.columns,
        allocatable=_read_only(nodes.allocatable[picked]),
        used=_read_only(nodes.used[picked]),
        leaving=_read_only(nodes.leaving[picked]),
        foreign=_read_only(nodes.foreign[picked]),
        free_slots=tuple(nodes.free_slots[row] for row in rows),
        generation=_read_only(nodes.generation[picked]),
        epoch=nodes.epoch,
        shared={
            number: nodes.shared[row] for number, row in enumerate(rows) if row in nodes.shared
        },
    )
    residents = NodePods(
        pods=tuple(here.pods[row] for row in rows),
        apart=tuple(here.apart[row] for row in rows),
        generation=_read_only(here.generation[picked]),
    )
    return attrs.evolve(snapshot, nodes=smaller, pods_by_node=residents)


def _read_only(array: Ints) -> Ints:
    array.setflags(write=False)
    return array
