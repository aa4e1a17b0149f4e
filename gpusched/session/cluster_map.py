"""The session's nodes as problems of placement see them: levels, and rows that are kept free."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from gpusched.arrays.columns import Bools, Ints
from gpusched.arrays.workbench import Workbench
from gpusched.cache.gangs import Gang
from gpusched.objects.units import GPU_RESOURCES
from gpusched.placement.problem import Level
from gpusched.session.slot_states import SlotStates
from gpusched.session.topology_hooks import Spare
from gpusched.topology.domain import HOST
from gpusched.topology.domain import Level as Labelled
from gpusched.topology.slot_costs import SlotTables

STEPS: Final = 256
"""In so many steps tightness and scores are compared: they are the last thing that counts."""


class ClusterMap:
    """See the module.

    Args:
        bench: of the session.
        labelled: levels, widest first.
        spares: what policies keep free.
    """

    def __init__(
        self, bench: Workbench, labelled: Sequence[Labelled], spares: Sequence[Spare]
    ) -> None:
        self._bench = bench
        self._labelled = labelled
        self._spares = spares
        self._states = SlotStates(bench)
        self._made: dict[str, Level] = {}

    def levels(self, *names: str) -> tuple[Level, ...]:
        """Levels of problems, widest first: all but hosts, and those of these names anyway."""
        return tuple(
            self._level(each)
            for each in self._labelled
            if each.name in names or (each.label != HOST and len(each.names))
        )

    def _level(self, labelled: Labelled) -> Level:
        made = self._made.get(labelled.name)
        if made is None:
            real = len(labelled.names)
            domain = labelled.domain.copy()
            nowhere = np.flatnonzero(domain < 0)
            domain[nowhere] = real + np.arange(len(nowhere))
            domain.setflags(write=False)
            made = self._made[labelled.name] = Level(name=labelled.name, domain=domain, real=real)
        return made

    def slots_left(self) -> Ints | None:
        """Free slots by number, very many on nodes that have none; None as ``slot_states``."""
        states, slots = self.slot_states()
        if states is None or slots is None:
            return None
        left = np.array([slots.left(number) for number in range(len(slots.states))], dtype=np.int64)
        found: Ints = left[states]
        return found

    def slot_states(self) -> tuple[Ints | None, SlotTables | None]:
        """The state of each node's free slots, shape (nodes,), and what it costs to take some.

        None for both while one looks at what will be: which slots are free then is not known.
        """
        return (None, None) if self._bench.later else self._states.now()

    def tightness(self) -> Ints:
        """How much room each node's domains have, coarsely; less is tighter, shape (nodes,).

        Free GPUs of the node's domain, added up over all levels and brought down to a few steps.
        """
        nodes = self._bench.nodes
        columns = [nodes.columns[name] for name in GPU_RESOURCES if name in nodes.columns]
        free = np.maximum(nodes.allocatable[:, columns] - self._bench.used[:, columns], 0)
        free = free.sum(axis=1)
        total = np.zeros(len(nodes), dtype=np.int64)
        for level in self.levels():
            room = np.zeros(int(level.domain.max(initial=-1)) + 1, dtype=np.int64)
            np.add.at(room, level.domain, free)
            total += room[level.domain]
        values, steps = np.unique(total, return_inverse=True)
        return steps * STEPS // max(1, len(values)) if len(values) > STEPS else steps

    def spare_rows(self, gang: Gang) -> Bools | None:
        """Rows on which the gang may not start because they are kept for others; None for none.

        Members of gangs that run in a domain are whom its spare nodes are for; so are pods
        without GPUs no danger to them.
        """
        if not self._spares or gang.placed or not any(task.pod_class.gpu for task in gang.tasks):
            return None
        nodes = self._bench.nodes
        columns = [nodes.columns[name] for name in GPU_RESOURCES if name in nodes.columns]
        has = nodes.allocatable[:, columns].sum(axis=1) > 0
        empty = np.flatnonzero(has & ~(self._bench.used[:, columns] > 0).any(axis=1))
        kept = np.zeros(len(nodes), dtype=np.bool_)
        for spare in self._spares:
            level = next((each for each in self._labelled if each.name == spare.level), None)
            if level is not None:
                kept[_last_of_each(level.domain[empty], empty, spare.nodes)] = True
        return kept


def _last_of_each(domains: Ints, rows: Ints, count: int) -> Ints:
    """The last so many rows of each domain; rows without a domain are not kept."""
    chosen: list[int] = []
    for domain in np.unique(domains[domains >= 0]).tolist():
        chosen += rows[domains == domain][-count:].tolist() if count else []
    return np.array(chosen, dtype=np.int64)
