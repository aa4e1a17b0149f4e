"""What every model of a gang says above its nodes: counts of roles, sub-groups and domains.

Nothing here imports the solver: the module that does hands a model in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from gpusched.arrays.columns import Ints
from gpusched.base.classes import define, frozen
from gpusched.placement.cpsat.flows import (
    IdenticalSubGroups,
    MemberFlow,
    MemberFlows,
    roles_of_sub_group,
    sub_group_of_flow,
)
from gpusched.placement.cpsat.patterns import CellPatterns, kinds_of_cap
from gpusched.placement.model.problem import NODES, Problem, SubGroupHolder, SubGroupMinimum


@define(eq=False, kw_only=True)
class GangModel:
    """Variables and expressions of one model.

    Attributes:
        model: of the solver.
        cells: numbers of the cells that take part, ascending.
        flow: variables by (number of the flow, cell), only where a member fits.
        held: members of a kind in a cell: by (kind, cell).
        used: by (level, domain): whether it is used; constants are no variables here.
        filled: by (alike, domain): how many of the sub-groups it holds.
        given: how many get a place, by number of each role that shares its flow.
        active: whether a sub-group that is placed apart gets members, by its number.
        holding: whether sub-groups in a sub-group get members, by its number; if so it is complete.
        home: by (number of such a sub-group, domain of its level): whether its members are there.
        terms: (name of ``verify.names`` without what costs inside nodes, expression).
    """

    model: Any
    cells: tuple[int, ...]
    flow: dict[tuple[int, int], Any]
    held: dict[tuple[int, int], Any]
    used: dict[tuple[int, int], Any]
    filled: dict[tuple[int, int], Any]
    given: dict[int, Any]
    active: dict[int, Any]
    holding: dict[int, Any]
    home: dict[tuple[int, int], Any]
    terms: list[tuple[str, Any]]

    @property
    def variables(self) -> Iterator[Any]:
        """All variables that a model without nodes is decided by."""
        for each in (
            self.flow, self.used, self.filled, self.given, self.active, self.holding, self.home,
        ):  # fmt: skip
            yield from each.values()


def build_gang_model(
    model: Any,
    *,
    field: CellPatterns,
    flows: MemberFlows,
    room: Ints,
    cells: tuple[int, ...],
    fewest: Mapping[int, int] | None = None,
    loose: bool = False,
) -> GangModel:
    """Variables and rows of everything but what fits into nodes.

    Args:
        model: a new model of the solver.
        field: the nodes.
        flows: of its members.
        room: how many of each kind alone each cell hosts, shape (kinds, cells).
        cells: that may be used, ascending.
        fewest: domains of its preferred level that a sub-group needs at least, where known.
        loose: whether fewer members than needed will do; the only term is how many are missing.
    """
    made = GangModel(
        model=model,
        cells=cells,
        flow={},
        held={},
        used={},
        filled={},
        given={},
        active={},
        holding={},
        home={},
        terms=[],
    )
    _add_domains(made, field)
    _add_flows(made, field, flows=flows, room=room)
    _constrain_domain_caps(made, field)
    spread = _constrain_tied_sub_groups(made, field, flows=flows, fewest=fewest or {})
    for number in range(len(field.problem.holders)):
        spread += _holder_apart(made, field, flows=flows, number=number)
    total = _add_totals(made, field, flows)
    if loose:
        _leave_room_for_bound_roles(made, problem=field.problem, total=total)
    else:
        _require_minima(made, field.problem, flows=flows, total=total)
        if any(group.preferred >= 0 for group in field.problem.sub_groups):
            made.terms.append(("parts", sum(spread)))
    return made


def opened_domains(problem: Problem, level: int) -> list[int]:
    """Domains of a level with placed members."""
    found: list[int] = np.unique(problem.levels[level].domain[problem.open_rows]).tolist()
    return found


def _add_domains(made: GangModel, field: CellPatterns) -> None:
    problem, model = field.problem, made.model
    for level, each in enumerate(problem.levels):
        already = set(opened_domains(problem, level))
        domains = sorted({int(field.at[level, cell]) for cell in made.cells} - already)
        variables = {domain: model.new_bool_var(f"u{level}_{domain}") for domain in domains}
        for domain, variable in variables.items():
            made.used[level, domain] = variable
        made.terms.append((f"domains:{each.name}", sum(variables.values()) + len(already)))
    for level in range(1, len(problem.levels)):
        parents = {
            int(field.at[level, cell]): int(field.at[level - 1, cell]) for cell in made.cells
        }
        for domain, parent in sorted(parents.items()):
            child, above = made.used.get((level, domain)), made.used.get((level - 1, parent))
            if child is not None and above is not None:
                model.add_implication(child, above)


def _add_flows(made: GangModel, field: CellPatterns, *, flows: MemberFlows, room: Ints) -> None:
    problem, model = field.problem, made.model
    into: dict[tuple[int, int], list[int]] = {}
    for at, member_flow in enumerate(flows.items):
        for cell in made.cells:
            if room[member_flow.kind, cell] > 0 and _may_flow(field, member_flow, flows, cell):
                into.setdefault((member_flow.kind, cell), []).append(at)
    for (kind, cell), ats in sorted(into.items()):
        cap = min(int(room[kind, cell]), problem.members)
        for at in ats:
            made.flow[at, cell] = model.new_int_var(
                0, min(cap, flows.items[at].most), f"s{at}_{cell}"
            )
        total = made.flow[ats[0], cell]
        if len(ats) > 1:
            total = model.new_int_var(0, cap, f"z{kind}_{cell}")
            model.add(sum(made.flow[at, cell] for at in ats) == total)
        made.held[kind, cell] = total
        if problem.levels:
            used = made.used.get((len(problem.levels) - 1, int(field.at[-1, cell])))
            if used is not None:
                model.add(total <= min(cap, sum(flows.items[at].most for at in ats)) * used)


def _constrain_domain_caps(made: GangModel, field: CellPatterns) -> None:
    """No domain takes more members than rules between them allow."""
    for cap in field.problem.caps:
        if cap.level == NODES:
            continue  # patterns say it
        kinds = kinds_of_cap(field.kinds, cap)
        for domain, cells in _by_domain(field, cap.level, made.cells).items():
            inside = [
                made.held[kind, cell]
                for kind in kinds
                for cell in cells
                if (kind, cell) in made.held
            ]
            if inside:
                made.model.add(sum(inside) <= int(cap.most[domain]))


def _may_flow(field: CellPatterns, member_flow: MemberFlow, flows: MemberFlows, cell: int) -> bool:
    part = sub_group_of_flow(member_flow, flows)
    if part < 0:
        return True
    return all(_allows_cell(field, group, cell) for group in field.problem.groups_around(part))


def _allows_cell(field: CellPatterns, group: SubGroupMinimum | SubGroupHolder, cell: int) -> bool:
    """Whether a cell is in a domain in which members of a sub-group may be."""
    if group.level < 0:
        return True
    domain = int(field.at[group.level, cell])
    homes = set(group.homes) or {domain}
    return homes == {domain} and domain < field.problem.levels[group.level].real


def _by_domain(field: CellPatterns, level: int, cells: Iterable[int]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for cell in cells:
        found.setdefault(int(field.at[level, cell]), []).append(cell)
    return dict(sorted(found.items()))


def _constrain_tied_sub_groups(
    made: GangModel, field: CellPatterns, *, flows: MemberFlows, fewest: Mapping[int, int]
) -> list[Any]:
    """Sub-groups that are tied to places; returns what they add to the term ``parts``."""
    problem, model = field.problem, made.model
    spread: list[Any] = []
    for at, alike in enumerate(flows.alikes):
        mine = [s for s, member_flow in enumerate(flows.items) if member_flow.alike == at]
        for domain, cells in _by_domain(field, alike.level, made.cells).items():
            if domain >= problem.levels[alike.level].real:
                continue
            number = model.new_int_var(0, len(alike.parts), f"m{at}_{domain}")
            made.filled[at, domain] = number
            inside = {
                flows.items[s].kind: [made.flow[s, c] for c in cells if (s, c) in made.flow]
                for s in mine
            }
            _constrain_identical_sub_groups(model, alike, inside=inside, number=number)
        if alike.preferred:
            spread += [v for (which, _), v in made.filled.items() if which == at]
    for number in range(len(problem.parts)):
        mine = [s for s, member_flow in enumerate(flows.items) if member_flow.part == number]
        if mine:
            adds = _one_apart(made, field, number=number, mine=mine)
            if adds:
                model.add(sum(adds) >= fewest.get(number, 0) * made.active[number])
            spread += adds
    return spread


def _constrain_identical_sub_groups(
    model: Any, alike: IdenticalSubGroups, *, inside: dict[int, list[Any]], number: Any
) -> None:
    """Members by kind of so many equal sub-groups in one domain."""
    floors = dict(alike.floors)
    for kind, amount in alike.amounts:
        if alike.rigid:
            model.add(sum(inside[kind]) == amount * number)
            continue
        model.add(sum(inside[kind]) <= amount * number)
        if kind in floors:
            model.add(sum(inside[kind]) >= floors[kind] * number)
    if not alike.rigid:
        model.add(sum(each for kind in inside.values() for each in kind) >= alike.least * number)


def _one_apart(made: GangModel, field: CellPatterns, *, number: int, mine: list[int]) -> list[Any]:
    problem, model = field.problem, made.model
    part = problem.parts[number]
    active = model.new_bool_var(f"a{mine[0]}")
    flow = [made.flow[s, c] for s in mine for c in made.cells if (s, c) in made.flow]
    most = problem.members
    model.add(sum(flow) >= part.least * active)
    model.add(sum(flow) <= most * active)
    made.active[number] = active
    if part.level >= 0:
        chosen = []
        for domain, cells in _by_domain(field, part.level, made.cells).items():
            inside = [made.flow[s, c] for s in mine for c in cells if (s, c) in made.flow]
            if inside:
                here = model.new_bool_var(f"b{mine[0]}_{domain}")
                chosen.append(here)
                model.add(sum(inside) <= most * here)
        model.add(sum(chosen) <= 1)
    if part.preferred < 0:
        return []
    homes = set(part.near)
    spread: list[Any] = []
    for domain, cells in _by_domain(field, part.preferred, made.cells).items():
        inside = [made.flow[s, c] for s in mine for c in cells if (s, c) in made.flow]
        if inside and domain not in homes:
            here = model.new_bool_var(f"v{mine[0]}_{domain}")
            spread.append(here)
            model.add(sum(inside) <= most * here)
    return spread + [active] * len(homes)


def _holder_apart(
    made: GangModel, field: CellPatterns, *, flows: MemberFlows, number: int
) -> list[Any]:
    """All members inside of a sub-group of sub-groups: in one domain of its level, or in few."""
    problem, model = field.problem, made.model
    holder = problem.holders[number]
    inside = set(problem.parts_in_holder(number))
    mine = [s for s, each in enumerate(flows.items) if sub_group_of_flow(each, flows) in inside]
    flow = [made.flow[s, c] for s in mine for c in made.cells if (s, c) in made.flow]
    active = made.holding[number] = model.new_bool_var(f"h{number}")
    model.add(sum(flow) <= problem.members * active)
    if holder.level >= 0:
        for domain, cells in _by_domain(field, holder.level, made.cells).items():
            here = [made.flow[s, c] for s in mine for c in cells if (s, c) in made.flow]
            if here:
                made.home[number, domain] = model.new_bool_var(f"d{number}_{domain}")
                model.add(sum(here) <= problem.members * made.home[number, domain])
        model.add(sum(v for (n, _), v in made.home.items() if n == number) <= active)
        _whole_ones_at_home(made, field, flows=flows, number=number, inside=inside)
    if holder.preferred < 0:
        return []
    homes = set(holder.near)
    spread: list[Any] = []
    for domain, cells in _by_domain(field, holder.preferred, made.cells).items():
        here = [made.flow[s, c] for s in mine for c in cells if (s, c) in made.flow]
        if here and domain not in homes:
            used = model.new_bool_var(f"w{number}_{domain}")
            spread.append(used)
            model.add(sum(here) <= problem.members * used)
    return spread + [active] * len(homes)


def _whole_ones_at_home(
    made: GangModel, field: CellPatterns, *, flows: MemberFlows, number: int, inside: set[int]
) -> None:
    """Equal sub-groups are only where the one around them is: said in whole ones it is tighter."""
    level = field.problem.holders[number].level
    for (at, domain), filled in made.filled.items():
        alike = flows.alikes[at]
        if alike.parts[0] not in inside or alike.level < level:
            continue
        cells = _by_domain(field, alike.level, made.cells)[domain]
        around = made.home.get((number, int(field.at[level, cells[0]])))
        if around is not None:
            made.model.add(filled <= len(alike.parts) * around)


@frozen(eq=False, kw_only=True)
class _Totals:
    """How many get a place: of each role, as expressions, and of equal sub-groups."""

    by_role: dict[int, list[Any]]
    alike: list[Any]


def _add_totals(made: GangModel, field: CellPatterns, flows: MemberFlows) -> _Totals:
    problem, model = field.problem, made.model
    by_role: dict[int, list[Any]] = {}
    numbers: list[Any] = []
    for s, member_flow in enumerate(flows.items):
        inside = [made.flow[s, cell] for cell in made.cells if (s, cell) in made.flow]
        if member_flow.alike >= 0:
            continue
        if len(member_flow.roles) == 1:
            by_role[member_flow.roles[0]] = inside
            model.add(sum(inside) <= member_flow.most)
            continue
        for role in member_flow.roles:
            given = model.new_int_var(0, problem.roles[role].most, f"t{role}")
            made.given[role] = given
            by_role[role] = [given]
        model.add(sum(inside) == sum(made.given[role] for role in member_flow.roles))
    for at, alike in enumerate(flows.alikes):
        filled = [v for (which, _), v in made.filled.items() if which == at]
        count = model.new_int_var(0, len(alike.parts), f"n{at}")
        model.add(sum(filled) == count)
        numbers.append(count)
    return _Totals(by_role=by_role, alike=numbers)


def _leave_room_for_bound_roles(made: GangModel, *, problem: Problem, total: _Totals) -> None:
    """No role takes places that others are bound to need."""
    needed = {roles[0]: least for roles, least in problem.minima if len(roles) == 1}
    every = sum(needed.values())
    for role, parts in total.by_role.items():
        made.model.add(sum(parts) <= problem.members - every + needed.get(role, 0))
    made.model.add(sum(made.flow.values()) <= problem.members)
    made.terms[:] = [("missing", problem.members - sum(made.flow.values()))]


def _require_minima(
    made: GangModel, problem: Problem, *, flows: MemberFlows, total: _Totals
) -> None:
    """All members, the minima, and as many complete sub-groups as are needed."""
    model = made.model
    model.add(sum(made.flow.values()) == problem.members)
    for alike, number in zip(flows.alikes, total.alike, strict=True):
        if alike.forced:
            model.add(number == len(alike.parts))
    for roles, least in problem.minima:
        parts: list[Any] = [each for role in roles for each in total.by_role.get(role, [])]
        for at, (alike, number) in enumerate(zip(flows.alikes, total.alike, strict=True)):
            shares = [
                sum(
                    problem.roles[role].most
                    for role in roles_of_sub_group(problem, part)
                    if role in roles
                )
                for part in alike.parts
            ]
            if all(shares) and not alike.rigid:
                parts += _flows_of_roles(made, flows, at, set(roles))
            elif all(shares):
                parts.append(shares[0] * number)
            elif any(shares):  # a minimum of one of equal ones holds for all of them
                parts.append(min(sum(shares), least))
        model.add(sum(parts) >= least)
    completed = _completed_sub_groups(made, problem, flows=flows, total=total)
    _complete_holders(made, problem, completed)
    model.add(sum(completed.get(-1, ())) >= problem.parts_least)


def _completed_sub_groups(
    made: GangModel, problem: Problem, *, flows: MemberFlows, total: _Totals
) -> dict[int, list[Any]]:
    """What counts the sub-groups of members that are completed, by the one that they are in."""
    model = made.model
    completed: dict[int, list[Any]] = {}
    for alike, number in zip(flows.alikes, total.alike, strict=True):
        holder = problem.parts[alike.parts[0]].parent
        completed.setdefault(holder, []).append(number)
        if holder >= 0:
            model.add(number <= len(alike.parts) * made.holding[holder])
    tied = {part for alike in flows.alikes for part in alike.parts}
    for number, part in enumerate(problem.parts):
        roles_of = roles_of_sub_group(problem, number)
        if number in tied or not roles_of:
            continue
        given = [each for role in roles_of for each in total.by_role[role]]
        if part.least:
            active = _sub_group_active(made, problem, number=number, total=given)
            completed.setdefault(part.parent, []).append(active)
        if part.parent >= 0:
            model.add(sum(given) <= problem.members * made.holding[part.parent])
    return completed


def _complete_holders(made: GangModel, problem: Problem, completed: dict[int, list[Any]]) -> None:
    """A sub-group of sub-groups in which any gets members is complete, and so is the one around it.

    Args:
        made: with its variables.
        problem: whose sub-groups they are.
        completed: by the sub-group that they are in, what counts those that are completed.
    """
    for number, holder in reversed(list(enumerate(problem.holders))):
        active = made.holding[number]
        made.model.add(sum(completed.get(number, ())) >= holder.least * active)
        if holder.least:
            completed.setdefault(holder.parent, []).append(active)
        if holder.parent >= 0:
            made.model.add_implication(active, made.holding[holder.parent])


def _flows_of_roles(made: GangModel, flows: MemberFlows, alike: int, roles: set[int]) -> list[Any]:
    """Members of equal sub-groups that are of these roles."""
    kept = {
        s
        for s, member_flow in enumerate(flows.items)
        if member_flow.alike == alike and set(member_flow.roles) & roles
    }
    return [variable for (s, _), variable in made.flow.items() if s in kept]


def _sub_group_active(made: GangModel, problem: Problem, *, number: int, total: list[Any]) -> Any:
    """Whether a sub-group that is not counted with others gets members."""
    if number in made.active:
        return made.active[number]
    active = made.model.new_bool_var(f"p{number}")
    made.model.add(sum(total) >= problem.parts[number].least * active)
    made.model.add(sum(total) <= problem.members * active)
    return active
