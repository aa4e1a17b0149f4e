"""Proofs by counting that a gang has no place, and how to count them again.

``proof`` makes them from sums over arrays; ``doubt`` goes over the nodes one by one and shares
nothing with it but what an inequality means.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs
import numpy as np

from gpusched.arrays.columns import Bools, Ints
from gpusched.placement.model.bounds import (
    candidate_domains,
    demanded_members,
    members_that_fit,
    members_that_fit_by_domain,
)
from gpusched.placement.model.problem import Certificate, Problem
from gpusched.placement.tree.identical_members import IdenticalMembers

EVERYWHERE: Final = -1


def infeasibility_proof(problem: Problem) -> Certificate | None:
    """A proof by counting that there is no answer; None when counting does not tell."""
    for roles, needed in demanded_members(problem):
        there = min(members_that_fit(problem, roles), problem.members)
        if there < needed:
            resource = _short_of(problem, roles, needed, np.ones(problem.nodes, dtype=np.bool_))
            return Certificate("role", -1, EVERYWHERE, roles, needed, there, resource)
    return None if problem.required < 0 else _no_domain(problem)


def feasible_wider_level(problem: Problem) -> int | None:
    """The narrowest level wider than the required one at which counting finds room.

    Returns:
        Index of the level, -1 for the whole cluster, None when there is no room there either.
        For members that are all alike there is a place then; for several roles there may be.
    """
    for level in range(problem.required - 1, -2, -1):
        if infeasibility_proof(attrs.evolve(problem, required=level)) is None:
            return level
    return None


def _no_domain(problem: Problem) -> Certificate | None:
    """Each domain of the required level has too little room for some demand."""
    level = problem.levels[problem.required]
    wanted = demanded_members(problem)
    shut = np.ones(max(level.real, level.count), dtype=np.bool_)
    shut[list(candidate_domains(problem))] = False
    there = np.stack(
        [members_that_fit_by_domain(problem, roles, level) for roles, _ in wanted]
    )  # (demands, domains)
    there = np.where(shut[None, :], 0, there)[:, : level.real]
    needs = np.array([needed for _, needed in wanted], dtype=np.int64)
    short = there < needs[:, None]
    if not short.any(axis=0).all():
        return None
    if not level.real:
        return Certificate("domain", problem.required, EVERYWHERE, *wanted[0], 0)
    found = tuple(
        (domain, *wanted[which], int(there[which, domain]))
        for domain, which in enumerate(short.argmax(axis=0).tolist())
    )
    # The best is the one that lacks least; in doubt the first.
    best = min(found, key=lambda each: (each[2] - each[3], each[0]))
    resource = _short_of(problem, best[1], best[2], level.domain == best[0])
    domain, roles, needed, fit = best
    return Certificate("domain", problem.required, domain, roles, needed, fit, resource, found)


def _short_of(problem: Problem, roles: Sequence[int], needed: int, rows: Bools) -> int:
    """The resource that alone leaves too little room on these nodes, -1 when none does."""
    found = []
    for column in range(problem.free.shape[1]):
        if any(not problem.roles[role].request[column] for role in roles):
            continue
        there = 0
        for role in (problem.roles[index] for index in roles):
            held = np.minimum(problem.free[rows, column] // role.request[column], role.most)
            there += min(role.most, int(held.sum()))
        if there < needed:
            found.append((there, column))
    return min(found)[1] if found else -1


def tree_search_certificate(one: IdenticalMembers) -> Certificate:
    """What the tree search has proven of members that are all alike: there is no answer."""
    problem = one.problem
    domain, there = max(room_by_domain(one).items(), key=lambda each: (each[1], -each[0]))
    roles = tuple(range(len(problem.roles)))
    return Certificate("table", one.pin, domain, roles, problem.members, there)


def room_by_domain(one: IdenticalMembers) -> dict[int, int]:
    """Members that each domain of the pinned level takes, in whole sub-groups and within caps."""
    problem = one.problem
    held = one.fits
    domain = np.zeros(problem.nodes, dtype=np.int64)
    for number in reversed(range(max(one.pin, 0), len(problem.levels))):
        cap = one.cap_of_level(number)
        if cap is None and number != one.unit_level:
            continue
        level = problem.levels[number]
        inner = level.sum_by_domain(held)
        if number == one.unit_level:
            inner[level.real :] = 0
            inner = inner // one.unit * one.unit
        if cap is not None:
            inner = np.minimum(inner, cap[: len(inner)])
        # Each domain's room is told at one of its nodes.
        held = np.zeros_like(held)
        first = np.unique(level.domain, return_index=True)[1]
        held[first] = inner[level.domain[first]]
    if one.pin < 0:
        return {EVERYWHERE: int(held.sum())}
    domain = problem.levels[one.pin].domain
    able = one.candidate_domains()
    total = np.zeros(len(able), dtype=np.int64)
    np.add.at(total, domain, held)
    around = one.caps_around()
    if around is not None:
        total = np.minimum(total, around)
    found: dict[int, int] = dict(enumerate(np.where(able, total, 0).tolist()))
    return found or {EVERYWHERE: 0}


# -- counting again --------------------------------------------------------------------------
def certificate_errors(problem: Problem, certificate: Certificate) -> str:
    """What is wrong with a proof, empty when it holds; ``search`` cannot be counted again."""
    if certificate.kind == "role":
        return _proof_errors(problem, certificate.roles, certificate.needed, certificate.room, None)
    if certificate.kind != "domain":
        return f"a proof of kind {certificate.kind} cannot be counted again"
    level = problem.levels[problem.required] if problem.required >= 0 else None
    if level is None or certificate.level != problem.required:
        return "the level that is looked at is not required"
    told = sorted(breach[0] for breach in certificate.breaches)
    if told != list(range(level.real)):
        return "it does not tell of each domain of the level"
    for domain, roles, needed, there in certificate.breaches:
        wrong = _proof_errors(problem, roles, needed, there, level.domain == domain)
        if wrong:
            return f"domain {domain}: {wrong}"
    return ""


def _proof_errors(
    problem: Problem,
    roles: Sequence[int],
    needed: int,
    there: int,
    inside: Ints | None,
) -> str:
    asked = len(roles) == len(problem.roles) and needed == problem.members
    if not asked and not any(set(each) == set(roles) and n >= needed for each, n in problem.minima):
        return f"{needed} members of roles {tuple(roles)} are not asked for"
    placed = problem.placed.tolist() or [0] * problem.nodes
    fit = 0
    for role in (problem.roles[index] for index in roles):
        alone = 0
        for row, count in enumerate(role.fits.tolist()):
            if inside is None or inside[row]:
                alone += count
        fit += min(alone, role.most)
    away = inside is not None and any(n and not inside[row] for row, n in enumerate(placed))
    fit = 0 if away else min(fit, problem.members) if inside is None else fit
    if fit != there:
        return f"{fit} members fit, not {there}"
    return "" if there < needed else f"{there} members are enough for {needed}"
