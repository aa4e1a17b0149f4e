"""Cheaper victims than the best known, or the proof that there are none: one model for each domain.

One boolean for each bundle, one count of claimants for each row on which a bundle frees anything;
rows on which nobody leaves enter as one number. As in ``placement.cpsat``: one worker, a fixed
seed, a deterministic limit, and nothing that the solver says is believed before it is counted.
"""

from __future__ import annotations

from typing import Any, Final

import attrs

from gpusched.errors import SolverFault
from gpusched.placement.cpsat import tune
from gpusched.placement.problem import Outcome
from gpusched.placement.victim_field import Field
from gpusched.placement.victims import Choice

_COEFFICIENT_MAX: Final = 2**40
BUNDLES_MAX: Final = 4_000
"""Larger models take longer to build than their answer is worth."""


@attrs.frozen(slots=True, eq=False)
class Better:
    """How a search ended.

    Attributes:
        outcome: INFEASIBLE proves that nothing is cheaper; FEASIBLE comes with ``choice``.
        proven: whether ``choice`` is the cheapest.
        seconds: in the solver, for metrics only.
        spent: deterministic seconds.
    """

    outcome: Outcome
    choice: Choice | None = None
    proven: bool = False
    seconds: float = 0.0
    spent: float = 0.0


def cheaper(
    field: Field, need: int, incumbent: Choice, *, budget_s: float, workers: int, seed: int
) -> Better:
    """Search for a choice that costs less, with no bundle of a larger lane.

    Args:
        field: as it stands, without any choice applied.
        need: claimants that must fit.
        incumbent: the best choice known.
        budget_s: deterministic seconds.
        workers: threads.
        seed: of the search.

    Raises:
        SolverFault: the model was refused, or the answer does not hold.
    """
    from ortools.sat.python import cp_model  # noqa: PLC0415 - half a second, only when needed

    numbers = field.alive(incumbent.lane)
    if len(numbers) > BUNDLES_MAX:
        return Better(Outcome.UNKNOWN)
    model = cp_model.CpModel()
    leaves = {number: model.new_bool_var(f"b{number}") for number in numbers}
    _rooms(model, field, leaves, need)
    _limits(model, field, leaves)
    costs = {number: field.cost_of(number) for number in numbers}
    total = sum(costs[number] * leaves[number] for number in numbers)
    model.add(total <= incumbent.cost - 1)
    model.minimize(total)
    solver = cp_model.CpSolver()
    tune(solver, budget_s=budget_s, workers=workers, seed=seed)
    status = solver.solve(model)
    spent = solver.response_proto.deterministic_time
    if status == cp_model.MODEL_INVALID:
        raise SolverFault(f"the solver refused its model: {model.validate()[:200]}")
    if status == cp_model.INFEASIBLE:
        return Better(Outcome.INFEASIBLE, seconds=solver.wall_time, spent=spent)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Better(Outcome.UNKNOWN, seconds=solver.wall_time, spent=spent)
    picked = [number for number in numbers if solver.boolean_value(leaves[number])]
    choice = field.weigh(picked, need)
    if choice is None or choice.cost >= incumbent.cost:
        raise SolverFault("the solver's victims do not hold when they are counted again")
    proven = status == cp_model.OPTIMAL
    return Better(Outcome.FEASIBLE, choice, proven=proven, seconds=solver.wall_time, spent=spent)


def _rooms(model: Any, field: Field, leaves: dict[int, Any], need: int) -> None:
    """So many claimants fit: each row takes as many as what is free and freed on it allows."""
    freed: dict[int, list[tuple[int, list[int]]]] = {}
    for number in leaves:
        for row in field.rows_of(number):
            freed.setdefault(row, []).append((number, field.frees(number, row)))
    counts = []
    for row, parts in sorted(freed.items()):
        free = field.free[row]
        everything = [
            amount + sum(part[column] for _, part in parts) for column, amount in enumerate(free)
        ]
        most = field.count(everything)
        if not most:
            continue
        count = model.new_int_var(0, min(most, need), f"x{row}")
        counts.append(count)
        for column, ask in enumerate(field.ask):
            if free[column] >= ask * most:
                continue
            largest = max(abs(free[column]), ask * most, *(part[column] for _, part in parts))
            scale = max(1, -(-largest // _COEFFICIENT_MAX))
            # Requests round up, room rounds down: a scaled answer always fits.
            model.add(
                -(-ask // scale) * count
                <= free[column] // scale
                + sum(part[column] // scale * leaves[number] for number, part in parts)
            )
    still = sum(fits for row, fits in sorted(field.fits.items()) if row not in freed)
    model.add(sum(counts) >= need - still)


def _limits(model: Any, field: Field, leaves: dict[int, Any]) -> None:
    drawn: dict[int, list[tuple[int, Any]]] = {}
    groups: dict[int, list[int]] = {}
    for number, variable in leaves.items():
        groups.setdefault(field.bundles[number].group, []).append(number)
        for limit, count in field.draws(number).items():
            drawn.setdefault(limit, []).append((count, variable))
    for limit, terms in sorted(drawn.items()):
        model.add(sum(count * variable for count, variable in terms) <= field.left[limit])
    for _, numbers in sorted(groups.items()):
        for number in numbers:
            members = set(field.bundles[number].members)
            if len(members) > 1:
                for other in numbers:
                    if other != number and members.intersection(field.bundles[other].members):
                        model.add_at_most_one([leaves[number], leaves[other]])
