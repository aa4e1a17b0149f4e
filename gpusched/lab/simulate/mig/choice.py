"""Which layout each idle node gets: a small integer program, solved to the end or told as bounded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ortools.sat.python import cp_model

from gpusched.base.classes import frozen
from gpusched.lab.simulate.mig.demand import MigDemand, MigGang, MigNode
from gpusched.lab.simulate.mig.layouts import MigLayout, size_of

_DETERMINISTIC_S: Final = 20.0


@frozen
class NodeLayout:
    """What a node is to be partitioned into."""

    node: MigNode
    layout: MigLayout
    provides: Mapping[str, int]


@frozen
class LayoutChoice:
    """Layouts for nodes, and what they do.

    Attributes:
        changes: nodes that get another layout than they have, by name.
        served: gangs that find room, by name.
        served_size, usual_size: compute slices of what waits, and of what usually runs and finds
            room beside it, in sevenths of a GPU.
        proven: whether no other choice is better.
    """

    changes: tuple[NodeLayout, ...]
    served: tuple[str, ...]
    served_size: int
    usual_size: int
    proven: bool


def choose_layouts(demand: MigDemand, *, may_change: bool = True) -> LayoutChoice:
    """The best layouts of nodes that may change.

    Best serves the most of what waits, whole gangs, measured in compute slices; then leaves the most
    room for what usually runs; then changes the fewest nodes. Pieces are counted by profile over
    all nodes; where a pod lies is not modelled but that one node provides all that it asks for.

    Args:
        demand: nodes and what is asked of them.
        may_change: False for what the layouts of today serve.
    """
    model = _LayoutModel(demand, may_change=may_change)
    proven = model.solve(model.served_size)
    proven &= model.solve(model.usual_size)
    proven &= model.solve(-model.changed)
    return model.read(proven=proven)


class _LayoutModel:
    """Numbers of nodes of each sort by layout, and of gangs of each sort that are served."""

    def __init__(self, demand: MigDemand, *, may_change: bool) -> None:
        self._model = cp_model.CpModel()
        self._solver = cp_model.CpSolver()
        self._demand = demand
        self._sorts: dict[object, list[MigNode]] = {}
        for node in demand.nodes:
            if not node.keeps:
                key = (node.product, node.gpus, node.config, tuple(node.provides.items()))
                self._sorts.setdefault(key, []).append(node)
        self._counts: list[list[tuple[NodeLayout, cp_model.IntVar]]] = []
        self._kept: list[tuple[MigNode, cp_model.IntVar]] = []
        for nodes in self._sorts.values():
            self._add_nodes(nodes, may_change=may_change)
        self._gangs = _alike(demand.waiting)
        self._served = [
            self._model.new_int_var(0, len(each), f"served{number}")
            for number, each in enumerate(self._gangs)
        ]
        self.served_size = sum(
            _size(each[0].needs) * served
            for each, served in zip(self._gangs, self._served, strict=True)
        )
        self.changed = sum(count for row in self._counts for _, count in row)
        self.usual_size = self._add_supply()
        self._refuse_too_large()

    def _add_nodes(self, nodes: Sequence[MigNode], *, may_change: bool) -> None:
        first = nodes[0]
        kept = self._model.new_int_var(0, len(nodes), f"kept {first.name}")
        row = []
        for layout, provides in first.layouts if may_change else ():
            if layout.name != first.config:
                count = self._model.new_int_var(0, len(nodes), f"{layout.name} {first.name}")
                row.append((NodeLayout(first, layout, provides), count))
        self._model.add(kept + sum(count for _, count in row) == len(nodes))
        self._counts.append(row)
        self._kept.append((first, kept))

    def _supply(self, profile: str) -> cp_model.LinearExprT:
        counts = [kept for _, kept in self._kept]
        pieces = [node.provides.get(profile, 0) for node, _ in self._kept]
        counts += [count for row in self._counts for _, count in row]
        pieces += [each.provides.get(profile, 0) for row in self._counts for each, _ in row]
        there = cp_model.LinearExpr.weighted_sum(counts, pieces)
        return cp_model.LinearExpr.affine(there, 1, self._demand.free.get(profile, 0))

    def _add_supply(self) -> cp_model.LinearExprT:
        """Nothing is used that is not there; what is left for what usually runs."""
        usual, sizes = [], []
        asked = {name for gang in self._demand.waiting for name in gang.needs}
        for profile in sorted(asked | set(self._demand.usual)):
            needs = [gangs[0].needs.get(profile, 0) for gangs in self._gangs]
            used = cp_model.LinearExpr.weighted_sum(self._served, needs)
            most = self._demand.usual.get(profile, 0)
            again = self._model.new_int_var(0, most, f"again {profile}")
            self._model.add(cp_model.LinearExpr.sum([used, again]) <= self._supply(profile))
            usual.append(again)
            sizes.append(size_of(profile))
        return cp_model.LinearExpr.weighted_sum(usual, sizes)

    def _refuse_too_large(self) -> None:
        """A gang whose pod finds all that it asks for on no node is not served."""
        kinds = [node.provides for node in self._demand.nodes]
        kinds += [each.provides for row in self._counts for each, _ in row]
        for gangs, served in zip(self._gangs, self._served, strict=True):
            largest = gangs[0].largest
            # Nodes without MIG may hold whole GPUs beyond those of the nodes that are modelled.
            if len(largest) == 1 and "" in largest:
                continue
            if not any(all(has.get(k, 0) >= n for k, n in largest.items()) for has in kinds):
                self._model.add(served == 0)

    def solve(self, objective: cp_model.LinearExprT) -> bool:
        """Maximise, and hold to what was reached from then on; whether it is proven."""
        if isinstance(objective, int):
            return True
        self._model.maximize(objective)
        parameters = self._solver.parameters
        parameters.num_workers = 1
        parameters.random_seed = 0
        parameters.max_deterministic_time = _DETERMINISTIC_S
        status = self._solver.solve(self._model)
        if status in {cp_model.OPTIMAL, cp_model.FEASIBLE}:
            self._model.add(objective >= round(self._solver.objective_value))
        return bool(status == cp_model.OPTIMAL)

    def read(self, *, proven: bool) -> LayoutChoice:
        """What the last solution says."""
        value = self._solver.value
        changes: list[NodeLayout] = []
        for nodes, row in zip(self._sorts.values(), self._counts, strict=True):
            left = iter(nodes)
            changes += [
                NodeLayout(next(left), each.layout, each.provides)
                for each, count in row
                for _ in range(value(count))
            ]
        served = [
            gang.name
            for gangs, count in zip(self._gangs, self._served, strict=True)
            for gang in gangs[: value(count)]
        ]
        return LayoutChoice(
            changes=tuple(sorted(changes, key=lambda each: each.node.name)),
            served=tuple(sorted(served)),
            served_size=int(value(self.served_size)),
            usual_size=int(value(self.usual_size)),
            proven=proven,
        )


def _alike(gangs: Sequence[MigGang]) -> list[list[MigGang]]:
    """Gangs that ask for the same, together."""
    found: dict[object, list[MigGang]] = {}
    for each in gangs:
        found.setdefault((tuple(each.needs.items()), tuple(each.largest.items())), []).append(each)
    return list(found.values())


def _size(needs: Mapping[str, int]) -> int:
    return sum(size_of(profile) * count for profile, count in needs.items())
