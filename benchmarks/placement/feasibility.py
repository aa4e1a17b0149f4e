"""No gang that fits is refused: small mixed shapes against every answer there is, large planted ones.

Three ways are asked: the quick method alone, the pipeline, and whole sessions on nodes and pods.
Cases are invented, see ``benchmarks.placement.shapes``; what fits is found by going through all
answers, see ``benchmarks.placement.exhaustive``, and by construction for large ones.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final

import attrs
import numpy as np

from benchmarks.figures import Figure
from benchmarks.placement.exhaustive import fits
from benchmarks.placement.shapes import LEVELS, Case, large, small
from gpusched.api.gang.pod_group import NO_TOPOLOGY_REQUEST, SubGroup, TopologyRequest
from gpusched.arrays.columns import Ints
from gpusched.config.model import DEFAULT
from gpusched.placement.model.problem import (
    DomainLevel,
    Effort,
    Problem,
    Role,
    SearchOutcome,
    SubGroupMinimum,
)
from gpusched.placement.model.verify import solution_errors
from gpusched.placement.pipeline.gang_placement import place_gang
from gpusched.testing.entities import GIB, NOW
from gpusched.testing.given import Given

SMALL: Final = 2_000
LARGE: Final = (20, 40, 80, 160, 320)
LARGE_SEEDS: Final = 6
IN_SESSIONS: Final = 500
LARGE_IN_SESSIONS: Final = 2
GPUS: Final = 8


@attrs.frozen
class Tally:
    """Of one kind of cases.

    Attributes:
        cases, feasible: how many, and how many of them fit.
        quick: which of those that fit the quick method refused, by seed.
        missed: which of them were refused with the solver.
        broken: which answers broke a rule, or were given where nothing fits.
        wrong: which that fit were called impossible; None where that was not looked at.
        unsure: of those that do not fit, which were not proven to; None as well.
    """

    cases: int
    feasible: int
    quick: tuple[int, ...]
    missed: tuple[int, ...]
    broken: tuple[int, ...]
    wrong: tuple[int, ...] | None = None
    unsure: tuple[int, ...] | None = None


def measure() -> list[Figure]:
    """Feasible cases, and how many of them each way refuses."""
    seeds = range(SMALL)
    many = [(nodes, seed) for nodes in LARGE for seed in range(LARGE_SEEDS)]
    whole = [(nodes, seed) for nodes in LARGE[:-1] for seed in range(LARGE_IN_SESSIONS)]
    return [
        *_figures("small, pipeline", by_pipeline([small(random.Random(each)) for each in seeds])),
        *_figures("planted, pipeline", by_pipeline([_large(*each) for each in many])),
        *_figures(
            "small, sessions",
            by_sessions([small(random.Random(each)) for each in range(IN_SESSIONS)]),
        ),
        *_figures("planted, sessions", by_sessions([_large(*each) for each in whole])),
    ]


def _large(nodes: int, seed: int) -> Case:
    return large(random.Random(nodes * 1_000 + seed), nodes)


def _figures(name: str, tally: Tally) -> list[Figure]:
    about = f"of {tally.feasible} that fit, {tally.cases} in all"
    zeros = {
        "refused although they fit": tally.missed,
        "answers that break a rule": tally.broken,
    }
    if tally.wrong is not None:
        zeros["called impossible although they fit"] = tally.wrong
    found = [
        Figure(
            name=f"feasibility, {name}: {what}",
            measured=len(seeds),
            unit="gangs",
            spread=about if not seeds else f"{about}; cases {seeds[:10]}",
            raw=len(tally.quick),
            raw_is="greedy refused",
            target="0",
            met=not seeds,
        )
        for what, seeds in zeros.items()
    ]
    many = tally.cases - tally.feasible
    if many and tally.unsure is not None:
        proven = many - len(tally.unsure)
        what = f"feasibility, {name}: proven impossible"
        found.append(
            Figure(name=what, measured=proven, unit="gangs", spread=f"of {many} that do not fit")
        )
    return found


# -- the pipeline ----------------------------------------------------------------------------
def by_pipeline(cases: Sequence[Case]) -> Tally:
    """Ask the pipeline with the usual effort, and the quick method alone."""
    feasible = 0
    sorted_out: dict[str, list[int]] = {
        kind: [] for kind in ("quick", "missed", "wrong", "broken", "unsure")
    }
    for number, case in enumerate(cases):
        problem = problem_of(case)
        there = case.planted or fits(case, exactly=True)
        feasible += there
        if there and not place_gang(problem, Effort(solver=False)).counts.size:
            sorted_out["quick"].append(number)
        found = place_gang(problem, Effort())
        if found.counts.size and (not there or solution_errors(problem, found.counts)):
            sorted_out["broken"].append(number)
        if there and not found.counts.size:
            sorted_out["missed"].append(number)
        if there and found.outcome is SearchOutcome.INFEASIBLE:
            sorted_out["wrong"].append(number)
        if not there and found.outcome is not SearchOutcome.INFEASIBLE:
            sorted_out["unsure"].append(number)
    kinds = {kind: tuple(numbers) for kind, numbers in sorted_out.items()}
    return Tally(cases=len(cases), feasible=feasible, **kinds)


def problem_of(case: Case) -> Problem:
    """The case as a problem of placement."""
    free = np.array(case.free, dtype=np.int64)
    where = np.array(case.where, dtype=np.int64)
    levels = tuple(
        DomainLevel(name=name, domain=where[:, at], real=int(where[:, at].max()) + 1)
        for at, name in enumerate(LEVELS)
    )
    roles = []
    for crew in case.crews:
        ask = np.array(crew.ask, dtype=np.int64)
        asked = np.flatnonzero(ask)
        alone: Ints = np.minimum((free[:, asked] // ask[asked]).min(axis=1), crew.count)
        roles.append(
            Role(request=ask, most=crew.count, fits=alone, gpus=crew.ask[0], part=crew.part)
        )
    return Problem(
        free=free,
        roles=tuple(roles),
        members=case.members,
        minima=tuple(((number,), crew.least) for number, crew in enumerate(case.crews)),
        parts=tuple(
            SubGroupMinimum(
                least=squad.least, level=LEVELS.index(squad.level) if squad.level else -1
            )
            for squad in case.squads
        ),
        parts_least=case.squads_least,
        levels=levels,
        required=LEVELS.index(case.required) if case.required else -1,
    )


# -- whole sessions --------------------------------------------------------------------------
def by_sessions(cases: Sequence[Case]) -> Tally:
    """Decide on nodes and pods with the shipped policies, with and without the solver."""
    feasible = 0
    quick, missed, broken = [], [], []
    for number, case in enumerate(cases):
        there = case.planted or fits(case)
        feasible += there
        if there and not _started(case, solver=False):
            quick.append(number)
        started = _started(case, solver=True)
        if there and not started:
            missed.append(number)
        if started and (not there or not _obeyed(case, started)):
            broken.append(number)
    return Tally(
        cases=len(cases),
        feasible=feasible,
        quick=tuple(quick),
        missed=tuple(missed),
        broken=tuple(broken),
    )


def given(case: Case, *, solver: bool = True) -> Given:
    """The case as nodes, of which something is in use, and pods that wait."""
    placement = attrs.evolve(DEFAULT.placement, solver="cpsat" if solver else "greedy")
    c = Given(config=attrs.evolve(DEFAULT, placement=placement))
    for row, (free, (block, rack)) in enumerate(zip(case.free, case.where, strict=True)):
        labels = {"gpusched.io/block": f"b{block}", "gpusched.io/rack": f"r{rack}"}
        cores, memory = (free[1] + 1) * 1000, (free[2] + 1) * GIB
        c.node(f"n-{row}", gpus=GPUS, cpu=cores, memory=memory, labels=labels)
        about: dict[str, Any] = {"node": f"n-{row}", "plan": "p", "scheduled": NOW - 60}
        taken = GPUS - free[0]
        c.pod(f"there-{row}", gpus=taken, slots=(1 << taken) - 1, cpu=1000, memory=GIB, **about)
    c.group(
        "g",
        min_member=case.members,
        roles={f"c{number}": crew.least for number, crew in enumerate(case.crews) if crew.least},
        topology=TopologyRequest(required=case.required) if case.required else NO_TOPOLOGY_REQUEST,
        sub_groups=tuple(
            SubGroup(f"s{part}", squad.least, TopologyRequest(required=squad.level))
            for part, squad in enumerate(case.squads)
        ),
        min_sub_groups=case.squads_least,
    )
    for number, crew in enumerate(case.crews):
        gpus, cores, gib = crew.ask
        part = {"sub_group": f"s{crew.part}"} if crew.part >= 0 else {}
        about = {"group": "g", "role": f"c{number}", **part}
        about |= {"gpus": gpus, "cpu": cores * 1000, "memory": gib * GIB}
        c.pods(f"c{number}", crew.count, **about)
    return c


def _started(case: Case, *, solver: bool) -> dict[str, str]:
    """Node of each pod that one session binds."""
    c = given(case, solver=solver)
    c.when.one_session()
    return c.then.nodes()


def _obeyed(case: Case, nodes: dict[str, str]) -> bool:
    """Whether what was bound fits, is enough, and is where it has to be; counted anew."""
    left = [list(each) for each in case.free]
    counts = [0] * len(case.crews)
    homes: dict[int, set[int]] = {part: set() for part in range(-1, len(case.squads))}
    for pod, node in nodes.items():
        number, row = int(pod.split("-")[0][1:]), int(node.split("-")[1])
        crew = case.crews[number]
        counts[number] += 1
        left[row] = [have - need for have, need in zip(left[row], crew.ask, strict=True)]
        homes[crew.part].add(row)
    if min(min(each) for each in left) < 0 or sum(counts) < case.members:
        return False
    if any(n < crew.least for n, crew in zip(counts, case.crews, strict=True)):
        return False
    complete = 0
    for part, squad in enumerate(case.squads):
        got = sum(n for n, crew in zip(counts, case.crews, strict=True) if crew.part == part)
        if 0 < got < squad.least or not _in_one(case, homes[part], squad.level):
            return False
        complete += got >= squad.least > 0
    every = set().union(*homes.values())
    return complete >= case.squads_least and _in_one(case, every, case.required)


def _in_one(case: Case, rows: set[int], level: str) -> bool:
    return not level or len({case.where[row][LEVELS.index(level)] for row in rows}) <= 1
