"""Counts of patterns on classes of equal nodes: exact, for packing chosen racks and as a checker.

Nodes of a cell that can take the same patterns at the same cost are one class; a variable says
how many of them take which pattern. Where patterns are too many, members are counted by node.
"""

from __future__ import annotations

from typing import Any, Final

import attrs
import numpy as np

from gpusched.arrays.columns import Ints
from gpusched.base.classes import define, frozen
from gpusched.base.errors import SolverFault
from gpusched.placement.cpsat.gang_model import GangModel
from gpusched.placement.cpsat.patterns import CellPatterns, kinds_of_mixes, node_caps
from gpusched.placement.cpsat.solver import SEARCH_STOPPER, configure_solver
from gpusched.placement.model.problem import NO_COUNTS, Effort, Problem, SearchOutcome

_WEIGHT_MAX: Final = 2**50
_AMOUNT_MAX: Final = 2**40
EXACT_MAX: Final = 15_000
"""With more variables a model of patterns takes too long to build."""
INSIDE: Final = ("span", "nodes", "fragmentation", "price")


@define(kw_only=True)
class SolverBudget:
    """What solving may cost, and did.

    Attributes:
        effort: how hard to try.
        work: deterministic seconds that were spent.
        seconds: as the solver measured them.
    """

    effort: Effort
    work: float = 0.0
    seconds: float = 0.0

    @property
    def seconds_left(self) -> float:
        """Deterministic seconds that may still be spent; none once searches are to end."""
        if SEARCH_STOPPER.stopped:
            return 0.0
        return max(0.0, self.effort.budget_s - self.work)

    def split_share(self, share: float) -> SolverBudget:
        """A book of its own for some of what is left; ``add_spent`` its work when it is closed."""
        return SolverBudget(effort=attrs.evolve(self.effort, budget_s=self.seconds_left * share))

    def add_spent(self, other: SolverBudget) -> None:
        """Adds what another one spent."""
        self.work += other.work
        self.seconds += other.seconds

    def solve_model(self, model: Any, *, most: float) -> tuple[SearchOutcome, Any]:
        """Run the solver.

        Args:
            model: of it.
            most: deterministic seconds, if so many are left.

        Returns:
            OPTIMAL, FEASIBLE, INFEASIBLE or UNKNOWN, and the solver that knows the values.

        Raises:
            SolverFault: the model was refused.
        """
        from ortools.sat.python import cp_model  # noqa: PLC0415 - half a second, only when needed

        solver = cp_model.CpSolver()
        limit = min(most, self.seconds_left)
        if limit <= 0:
            return SearchOutcome.UNKNOWN, solver
        configure_solver(solver, budget_s=limit, workers=self.effort.workers, seed=self.effort.seed)
        status = solver.solve(model)
        self.work += solver.response_proto.deterministic_time
        self.seconds += solver.wall_time
        if status == cp_model.MODEL_INVALID:
            raise SolverFault(f"the solver refused its model: {model.validate()[:200]}")
        known = {
            cp_model.OPTIMAL: SearchOutcome.OPTIMAL,
            cp_model.FEASIBLE: SearchOutcome.FEASIBLE,
            cp_model.INFEASIBLE: SearchOutcome.INFEASIBLE,
        }
        return known.get(status, SearchOutcome.UNKNOWN), solver


@frozen(eq=False, kw_only=True)
class EqualNodes:
    """Nodes of one cell that are equal in all that matters.

    Attributes:
        rows: the nodes, ascending.
        patterns: numbers of what each can take, without the empty one.
        costs: of these, by the terms of ``INSIDE``, shape (patterns, 4).
    """

    rows: tuple[int, ...]
    patterns: tuple[int, ...]
    costs: Ints


@frozen(eq=False, kw_only=True)
class PatternModel:
    """How cells are filled, in variables.

    Attributes:
        groups: by number.
        takes: by (group, place in its patterns): how many nodes take it.
        single: by (kind, node), where patterns are too many.
        cost: the terms of ``INSIDE`` from the first on, as one expression.
        ranges: by which the terms in it differ at most, as a product of weights.
        exact: whether ``cost`` has all terms of ``INSIDE``.
        lossless: whether no amount was rounded: only then nothing that fits is lost.
    """

    groups: tuple[EqualNodes, ...]
    takes: dict[tuple[int, int], Any]
    single: dict[tuple[int, int], Any]
    cost: Any
    exact: bool
    lossless: bool = True


def pattern_model_size(field: CellPatterns, cells: tuple[int, ...]) -> int:
    """How many variables the model of these cells has, roughly."""
    if field.patterns is None:
        return sum(len(field.rows[cell]) for cell in cells) * len(field.kinds)
    many = field.able.sum(axis=1)
    return sum(int(many[np.unique(field.sign[field.rows[cell]])].sum()) for cell in cells)


def build_pattern_model(
    field: CellPatterns, made: GangModel, *, cover: bool = False
) -> PatternModel:
    """Adds to a frame what fits into the nodes of its cells.

    Args:
        field: the nodes.
        made: variables above them.
        cover: whether only patterns to which nothing can be added are used, of which members may
            be left out: nothing that fits is lost, and there are far fewer. Costs are not told.
    """
    if field.patterns is None:
        return _single_patterns(field, made)
    patterns = field.patterns
    groups = _equal_node_groups(field, made)
    if cover:
        groups = _fullest_groups(field, groups)
    takes: dict[tuple[int, int], Any] = {}
    by_held: dict[tuple[int, int], tuple[list[Any], list[int]]] = {
        key: ([], []) for key in made.held
    }
    model = made.model
    for number, group in enumerate(groups):
        cell = int(field.cell[group.rows[0]])
        mine = []
        for place, pattern in enumerate(group.patterns):
            variable = model.new_int_var(0, len(group.rows), f"y{number}_{pattern}")
            takes[number, place] = variable
            mine.append(variable)
            for kind in np.flatnonzero(patterns[pattern]).tolist():
                variables, counts = by_held[kind, cell]
                variables.append(variable)
                counts.append(int(patterns[pattern, kind]))
        model.add(sum(mine) <= len(group.rows))
    for key, (variables, counts) in by_held.items():
        total = sum(count * each for count, each in zip(counts, variables, strict=True))
        model.add(total >= made.held[key] if cover else total == made.held[key])
    if cover:
        return PatternModel(groups=groups, takes=takes, single={}, cost=0, exact=False)
    cost, exact = _weigh_terms(field.problem, groups, takes)
    return PatternModel(groups=groups, takes=takes, single={}, cost=cost, exact=exact)


def _equal_node_groups(field: CellPatterns, made: GangModel) -> tuple[EqualNodes, ...]:
    problem = field.problem
    prices = [kind.price for kind in field.kinds if kind.price is not None]
    assert field.patterns is not None
    groups = []
    known: dict[tuple[int, int], tuple[int, int] | None] = {}
    for cell in made.cells:
        absent = [kind for kind in range(len(field.kinds)) if (kind, cell) not in made.held]
        usable = field.patterns.any(axis=1) & (field.patterns[:, absent].sum(axis=1) == 0)
        by_key: dict[tuple[int, ...], list[int]] = {}
        for row in field.rows[cell].tolist():
            state = int(problem.states[row]) if problem.slots is not None else 0
            key = (int(field.sign[row]), state, *(int(price[row]) for price in prices))
            by_key.setdefault(key, []).append(row)
        for key, rows in sorted(by_key.items()):
            able = np.flatnonzero(field.able[key[0]] & usable)
            if not able.size:
                continue
            if problem.slots is not None:
                for pattern in able.tolist():
                    if (key[1], pattern) not in known:
                        known[key[1], pattern] = _slot_cost(field, key[1], pattern)
                able = able[[known[key[1], pattern] is not None for pattern in able.tolist()]]
            costs = np.zeros((len(able), len(INSIDE)), dtype=np.int64)
            costs[:, 1] = 1
            for kind_number, kind in enumerate(field.kinds):
                if kind.price is not None:
                    costs[:, 3] += field.patterns[able, kind_number] * kind.price[rows[0]]
            for place, pattern in enumerate(able.tolist()):
                costs[place, 0], costs[place, 2] = known.get((key[1], pattern)) or (0, 0)
            groups.append(EqualNodes(rows=tuple(rows), patterns=tuple(able.tolist()), costs=costs))
    return tuple(groups)


def _fullest_groups(field: CellPatterns, groups: tuple[EqualNodes, ...]) -> tuple[EqualNodes, ...]:
    """Groups of one cell that can take the same as one, with their maximal patterns only."""
    assert field.patterns is not None
    rows: dict[tuple[int, tuple[int, ...]], list[int]] = {}
    for group in groups:
        key = (int(field.cell[group.rows[0]]), maximal_patterns(field.patterns, group.patterns))
        rows.setdefault(key, []).extend(group.rows)
    return tuple(
        EqualNodes(rows=tuple(sorted(mine)), patterns=patterns, costs=NO_COUNTS)
        for (_, patterns), mine in rows.items()
    )


def maximal_patterns(patterns: Ints, able: tuple[int, ...]) -> tuple[int, ...]:
    """Numbers of those patterns of which no other one has as many of each kind.

    Args:
        patterns: all, shape (patterns, kinds).
        able: numbers of those to look at.
    """
    order = sorted(able, key=lambda number: (-int(patterns[number].sum()), number))
    kept: Ints = np.zeros((0, patterns.shape[1]), dtype=np.int64)
    found = []
    for number in order:
        if not (kept >= patterns[number]).all(axis=1).any():
            kept = np.vstack([kept, patterns[number]])
            found.append(number)
    return tuple(sorted(found))


def _slot_cost(field: CellPatterns, state: int, pattern: int) -> tuple[int, int] | None:
    """None where a node has fewer free slots than its free amount says."""
    assert field.patterns is not None
    assert field.problem.slots is not None
    sizes = sorted(
        (
            kind.gpus
            for kind, count in zip(field.kinds, field.patterns[pattern].tolist(), strict=True)
            for _ in range(count)
            if kind.gpus
        ),
        reverse=True,
    )
    if not sizes:
        return 0, 0
    try:
        return field.problem.slots.slot_cost(state, tuple(sizes))
    except ValueError:
        return None


def _weigh_terms(
    problem: Problem, groups: tuple[EqualNodes, ...], takes: dict[tuple[int, int], Any]
) -> tuple[Any, bool]:
    """The terms as one expression in which no later one outweighs a step of an earlier one."""
    if not groups:
        return 0, True
    every = np.concatenate([group.costs for group in groups])
    nodes = min(problem.members, sum(len(group.rows) for group in groups))
    spans = [nodes * (max(0, int(column.max())) - min(0, int(column.min()))) for column in every.T]
    kept = len(INSIDE)
    while kept > 1 and _product(spans[:kept]) > _WEIGHT_MAX:
        kept -= 1
    weights = [0] * len(INSIDE)
    step = 1
    for term in reversed(range(kept)):
        weights[term] = step
        step *= spans[term] + 1
    costs = {
        (number, place): int(cost)
        for number, group in enumerate(groups)
        for place, cost in enumerate((group.costs @ np.array(weights, dtype=np.int64)).tolist())
    }
    return sum(costs[key] * variable for key, variable in takes.items()), kept == len(INSIDE)


def _product(spans: list[int]) -> int:
    total = 1
    for span in spans:
        total *= span + 1
    return total


def _single_patterns(field: CellPatterns, made: GangModel) -> PatternModel:
    """Members by kind and node; what slots cost is left out."""
    model = made.model
    single: dict[tuple[int, int], Any] = {}
    used = []
    lossless = True
    caps = node_caps(field.problem, field.kinds)
    for cell in made.cells:
        kinds = [kind for kind in range(len(field.kinds)) if (kind, cell) in made.held]
        for row in field.rows[cell].tolist():
            here = model.new_bool_var(f"n{row}")
            used.append(here)
            for kind in kinds:
                limit = int(field.kinds[kind].limit[row])
                if limit:
                    single[kind, row] = model.new_int_var(0, limit, f"w{kind}_{row}")
                    model.add(single[kind, row] <= limit * here)
            lossless = _limit_amounts(field, model, row, single) and lossless
            for mine, most in caps:
                inside = [single[kind, row] for kind in mine if (kind, row) in single]
                model.add(sum(inside) <= int(most[row]))
            _one_mix(field, model, row, single)
        for kind in kinds:
            inside = [
                single[kind, row] for row in field.rows[cell].tolist() if (kind, row) in single
            ]
            model.add(sum(inside) == made.held[kind, cell])
    return PatternModel(
        groups=(), takes={}, single=single, cost=sum(used), exact=False, lossless=lossless
    )


def _one_mix(field: CellPatterns, model: Any, row: int, single: dict[tuple[int, int], Any]) -> None:
    """A node takes no more of the roles that compete than one of its maximal vectors has."""
    mixes = field.problem.mixes
    state = -1 if mixes is None else int(mixes.state[row])
    if mixes is None or state < 0:
        return
    table = mixes.tables[state]
    chosen = [model.new_bool_var(f"m{row}_{at}") for at in range(len(table))]
    if chosen:
        model.add_exactly_one(chosen)
    for place, kinds in enumerate(kinds_of_mixes(mixes, field.kinds)):
        inside = [single[kind, row] for kind in kinds if (kind, row) in single]
        if inside:
            most = sum(vector[place] * each for vector, each in zip(table, chosen, strict=True))
            model.add(sum(inside) <= most)


def _limit_amounts(
    field: CellPatterns, model: Any, row: int, single: dict[tuple[int, int], Any]
) -> bool:
    """No resource of a node is over full; False when amounts had to be rounded."""
    mine = [kind for kind in range(len(field.kinds)) if (kind, row) in single]
    lossless = True
    if len(mine) < 2:
        return True
    for column in range(field.problem.free.shape[1]):
        asks = [int(field.kinds[kind].request[column]) for kind in mine]
        if not any(asks):
            continue
        free = int(field.problem.free[row, column])
        unit = int(np.gcd.reduce([ask for ask in asks if ask]))
        asks = [ask // unit for ask in asks]
        scale = max(1, -(-max(asks) // _AMOUNT_MAX))
        demand = sum(
            ask * int(field.kinds[kind].limit[row]) for ask, kind in zip(asks, mine, strict=True)
        )
        free = min(free // unit, demand)
        lossless = lossless and scale == 1
        total = sum(
            -(-ask // scale) * single[kind, row]
            for ask, kind in zip(asks, mine, strict=True)
            if ask
        )
        model.add(total <= free // scale)
    return lossless
