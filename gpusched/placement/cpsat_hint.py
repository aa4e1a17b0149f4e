"""An answer that is known, told to a model as where to look first."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpusched.arrays.columns import Ints
from gpusched.placement.cpsat_frame import Frame
from gpusched.placement.cpsat_patterns import Packing
from gpusched.placement.patterns import Field
from gpusched.placement.streams import Streams, members_of


def hint(
    made: Frame, field: Field, *, flows: Streams, counts: Ints, packed: Packing | None = None
) -> None:
    """Hint every variable that an answer says something about; an answer outside is left out.

    Args:
        made: variables above the nodes.
        field: the nodes.
        flows: its streams.
        counts: members by role and node.
        packed: variables inside the nodes, if the model has them.
    """
    wanted: dict[int, tuple[Any, int]] = {}
    used = np.flatnonzero(counts.sum(axis=0))
    if not np.isin(field.cell[used], np.array(made.cells, dtype=np.int64)).all():
        return
    by_cell = np.zeros((len(counts), len(field.rows)), dtype=np.int64)
    np.add.at(by_cell.T, field.cell[used], counts[:, used].T)

    def says(variable: Any, value: int) -> None:
        wanted[variable.index] = (variable, int(value))

    for (kind, cell), variable in made.held.items():
        says(variable, by_cell[list(field.kinds[kind].roles), cell].sum())
    for (stream, cell), variable in made.flow.items():
        says(variable, by_cell[list(flows.streams[stream].roles), cell].sum())
    for (level, domain), variable in made.used.items():
        says(variable, bool((field.problem.levels[level].domain[used] == domain).any()))
    for role, variable in made.given.items():
        says(variable, counts[role].sum())
    for part, variable in made.active.items():
        says(variable, bool(counts[members_of(field.problem, part)].any()))
    for (at, domain), variable in made.filled.items():
        alike = flows.alikes[at]
        inside = field.problem.levels[alike.level].domain == domain
        parts = [members_of(field.problem, part) for part in alike.parts]
        says(variable, sum(bool(counts[roles][:, inside].any()) for roles in parts))
    if packed is not None:
        _inside(says, field, counts=counts, packed=packed)
    for variable, value in wanted.values():
        made.model.add_hint(variable, value)


def _inside(says: Any, field: Field, *, counts: Ints, packed: Packing) -> None:
    by_kind = np.stack([counts[list(kind.roles)].sum(axis=0) for kind in field.kinds])
    for (kind, row), variable in packed.single.items():
        says(variable, by_kind[kind, row])
    if field.patterns is None:
        return
    number = {tuple(pattern): at for at, pattern in enumerate(field.patterns.tolist())}
    for at, group in enumerate(packed.groups):
        chosen = [number.get(tuple(by_kind[:, row].tolist()), -1) for row in group.rows]
        for place, pattern in enumerate(group.patterns):
            says(packed.takes[at, place], chosen.count(pattern))
