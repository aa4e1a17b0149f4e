"""The best place of one gang, found a second time: a model of pods on nodes that shares no code.

Nothing of ``gpusched.placement`` is imported. A question names nodes, what is free on them and one
gang with its rules; ``best`` is the value of the best places by the list of docs/placement.md:
members placed, then domains of each level from the widest to the narrowest, then domains used by
each sub-group, then nodes. ``worth`` is the value of given places, ``broken`` the rule they break.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import attrs
from ortools.sat.python import cp_model

HOST = -1
"""Stands for single nodes where a level is named."""

Places = Sequence[tuple[int, int]]
"""One pair of kind and machine for each pod."""


@attrs.frozen
class Machine:
    """A node: its labels from the widest level to the narrowest, and what is free."""

    name: str
    path: tuple[str, ...]
    gpus: int
    cpu: int


@attrs.frozen
class Kind:
    """Equal pods of one sub-group: those that wait, and how many have to start at least."""

    pods: int
    gpus: int
    cpu: int = 1
    least: int = 0
    part: int = -1


@attrs.frozen
class Part:
    """A sub-group: its own minimum, the level that must hold it, the level whose domains count."""

    least: int
    required: int | None = None
    counted: int | None = None


@attrs.frozen(kw_only=True)
class Question:
    """One gang on one cluster.

    Attributes:
        machines: with their free amounts.
        levels: how many labels each machine has.
        kinds: of pods that wait.
        least: members without which none starts.
        required: level of which one domain holds all; None for none.
        most: pairs of level (or ``HOST``) and how many members one domain takes at most.
        spread: pairs of level (or ``HOST``) and by how many members domains may differ.
        parts: sub-groups, and how many of them must be complete.
        running: members on each machine already, by number of the machine.
    """

    machines: tuple[Machine, ...]
    levels: int
    kinds: tuple[Kind, ...]
    least: int
    required: int | None = None
    most: tuple[tuple[int, int], ...] = ()
    spread: tuple[tuple[int, int], ...] = ()
    parts: tuple[Part, ...] = ()
    parts_least: int = 0
    running: Mapping[int, int] = attrs.field(factory=dict)

    def domain(self, machine: int, level: int) -> tuple[str, ...] | int:
        """The domain of a machine; a machine is its own at ``HOST``."""
        return machine if level == HOST else self.machines[machine].path[: level + 1]

    def domains(self, level: int) -> dict[object, list[int]]:
        """Machines of each domain."""
        found: dict[object, list[int]] = {}
        for number in range(len(self.machines)):
            found.setdefault(self.domain(number, level), []).append(number)
        return found


# -- given places ---------------------------------------------------------------------------
def worth(question: Question, places: Places) -> tuple[int, ...]:
    """Members left out, domains of each level, domains of sub-groups, nodes that got members."""
    used = {machine for _, machine in places} | set(question.running)
    found = [sum(kind.pods for kind in question.kinds) - len(places)]
    found += [len({question.domain(n, level) for n in used}) for level in range(question.levels)]
    by_part = 0
    for number, part in enumerate(question.parts):
        inside = {n for kind, n in places if question.kinds[kind].part == number}
        if part.counted is not None:
            by_part += len({question.domain(n, part.counted) for n in inside})
    return (*found, by_part, len({machine for _, machine in places}))


def broken(question: Question, places: Places) -> str:
    """The first rule that these places break, empty for none."""
    on: Counter[int] = Counter(machine for _, machine in places)
    for number, machine in enumerate(question.machines):
        mine = [question.kinds[kind] for kind, n in places if n == number]
        if sum(k.gpus for k in mine) > machine.gpus or sum(k.cpu for k in mine) > machine.cpu:
            return f"{machine.name} is over full"
    if 0 < len(places) < question.least:
        return f"{len(places)} members start, {question.least} are needed"
    every = {*on, *question.running}
    if question.required is not None and places:
        inside = {question.domain(n, question.required) for n in every}
        if len(inside) > 1:
            return f"{len(inside)} domains of the required level are used"
    for level, most in question.most:
        for domain, machines in question.domains(level).items():
            if sum(on[n] + question.running.get(n, 0) for n in machines) > most:
                return f"more than {most} members are in {domain}"
    for level, skew in question.spread:
        sums = [
            sum(on[n] + question.running.get(n, 0) for n in machines)
            for machines in question.domains(level).values()
        ]
        if max(sums) - min(sums) > skew:
            return f"domains hold {max(sums)} and {min(sums)} members"
    return _broken_part(question, places)


def _broken_part(question: Question, places: Places) -> str:
    complete = 0
    for number, part in enumerate(question.parts):
        inside = [n for kind, n in places if question.kinds[kind].part == number]
        if 0 < len(inside) < part.least:
            return f"sub-group {number} has {len(inside)} of {part.least}"
        complete += len(inside) >= part.least
        if part.required is not None:
            domains = {question.domain(n, part.required) for n in inside}
            if len(domains) > 1:
                return f"sub-group {number} is in {len(domains)} domains"
    if places and complete < question.parts_least:
        return f"{complete} sub-groups are complete, not {question.parts_least}"
    return ""


# -- the best -------------------------------------------------------------------------------
def best(question: Question) -> tuple[int, ...] | None:
    """The least ``worth`` of any places, None when not even the minimum has any.

    Raises:
        RuntimeError: the model was not solved to the end.
    """
    model = cp_model.CpModel()
    count = {
        (kind, n): model.new_int_var(0, spec.pods, f"x{kind}_{n}")
        for kind, spec in enumerate(question.kinds)
        for n in range(len(question.machines))
    }
    _fit(model, question, count)
    _rules(model, question, count)
    terms = [sum(kind.pods for kind in question.kinds) - sum(count.values())]
    for level in range(question.levels):
        used = _used(model, question, count, level, tuple(range(len(question.kinds))))
        terms.append(sum(used))
    by_part = []
    for number, part in enumerate(question.parts):
        mine = tuple(i for i, kind in enumerate(question.kinds) if kind.part == number)
        if part.counted is not None:
            by_part += _used(model, question, count, part.counted, mine, running=False)
    terms.append(sum(by_part))
    kinds = tuple(range(len(question.kinds)))
    terms.append(sum(_used(model, question, count, HOST, kinds, running=False)))
    values = []
    for term in terms:
        if isinstance(term, int):
            values.append(term)
            continue
        model.minimize(term)
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        status = solver.solve(model)
        if status == cp_model.INFEASIBLE:
            return None
        if status != cp_model.OPTIMAL:
            raise RuntimeError("the oracle was not solved to the end")
        values.append(round(solver.objective_value))
        model.add(term == values[-1])
    return tuple(values)


def _fit(model: cp_model.CpModel, question: Question, count: dict) -> None:
    for n, machine in enumerate(question.machines):
        for asked, free in (("gpus", machine.gpus), ("cpu", machine.cpu)):
            total = sum(getattr(kind, asked) * count[i, n] for i, kind in enumerate(question.kinds))
            model.add(total <= free)
    for i, kind in enumerate(question.kinds):
        total = sum(count[i, n] for n in range(len(question.machines)))
        model.add(total <= kind.pods)
        model.add(total >= kind.least)
    model.add(sum(count.values()) >= question.least)


def _rules(model: cp_model.CpModel, question: Question, count: dict) -> None:
    kinds = range(len(question.kinds))

    def held(machines: Sequence[int]) -> object:
        new = sum(count[i, n] for i in kinds for n in machines)
        return new + sum(question.running.get(n, 0) for n in machines)

    if question.required is not None:
        used = _used(model, question, count, question.required, tuple(kinds))
        model.add(sum(used) <= 1)
    for level, most in question.most:
        for machines in question.domains(level).values():
            model.add(held(machines) <= most)
    for level, skew in question.spread:
        least = model.new_int_var(0, 10_000, f"least{level}")
        for machines in question.domains(level).values():
            model.add(held(machines) >= least)
            model.add(held(machines) <= least + skew)
    complete = []
    for number, part in enumerate(question.parts):
        mine = [i for i in kinds if question.kinds[i].part == number]
        total = sum(count[i, n] for i in mine for n in range(len(question.machines)))
        active = model.new_bool_var(f"active{number}")
        complete.append(active)
        model.add(total >= part.least).only_enforce_if(active)
        model.add(total == 0).only_enforce_if(active.negated())
        if part.required is not None:
            used = _used(model, question, count, part.required, tuple(mine), running=False)
            model.add(sum(used) <= 1)
    if question.parts:
        model.add(sum(complete) >= question.parts_least)


def _used(
    model: cp_model.CpModel,
    question: Question,
    count: dict,
    level: int,
    kinds: tuple[int, ...],
    *,
    running: bool = True,
) -> list:
    """A bool for each domain of a level that holds members of these kinds."""
    found = []
    for domain, machines in question.domains(level).items():
        here = model.new_bool_var(f"used{level}_{domain}_{kinds}")
        inside = [count[i, n] for i in kinds for n in machines]
        most = sum(question.kinds[i].pods for i in kinds)
        model.add(sum(inside) <= most * here)
        if running and any(n in question.running for n in machines):
            model.add(here == 1)
        found.append(here)
    return found
