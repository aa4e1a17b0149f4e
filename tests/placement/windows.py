"""Tiny windows of gangs and the oracle that tries everything."""

from __future__ import annotations

import random
from itertools import chain, combinations

import attrs
import numpy as np

from gpusched.arrays.columns import Ints, how_many_fit
from gpusched.placement.admission.model import (
    AdmissionBatch,
    AdmissionCandidate,
    AdmissionLimit,
    amounts_used_by,
)
from gpusched.placement.model.problem import DomainLevel, Problem, Role, SubGroupMinimum
from tests.placement.brute import answers
from tests.placement.tiny import tree


def tiny_window(rng: random.Random, *, parts: bool = False, must: bool = False) -> AdmissionBatch:
    """Two to four gangs of one or two roles on two to four nodes of two resources."""
    nodes = rng.randint(2, 4)
    levels = tree(rng, nodes)
    free = np.array([[rng.randint(0, 6), rng.randint(2, 8)] for _ in range(nodes)], dtype=np.int64)
    contenders = tuple(
        AdmissionCandidate(
            problem=_gang(rng, free, levels, parts=parts),
            weight=rng.randint(1, 9),
            must=must or rng.random() < 0.1,
        )
        for _ in range(rng.randint(2, 4))
    )
    quotas = ()
    if rng.random() < 0.3:
        amounts = tuple(each.problem.members for each in contenders)
        quotas = (AdmissionLimit(amounts=amounts, most=rng.randint(2, 8)),)
    return AdmissionBatch(free=free, contenders=contenders, quotas=quotas)


def _gang(
    rng: random.Random, free: Ints, levels: tuple[DomainLevel, ...], *, parts: bool
) -> Problem:
    subs: tuple[SubGroupMinimum, ...] = ()
    if parts and rng.random() < 0.6:
        subs = tuple(
            SubGroupMinimum(least=0, level=rng.randint(-1, len(levels) - 1))
            for _ in range(rng.randint(1, 2))
        )
    roles = tuple(_role(rng, free, len(subs)) for _ in range(rng.choice((1, 1, 2))))
    return Problem(
        free=free,
        roles=roles,
        members=sum(role.most for role in roles),
        parts=subs,
        levels=levels,
        required=rng.randint(-1, len(levels) - 1),
    )


def _role(rng: random.Random, free: Ints, parts: int) -> Role:
    ask = np.array([rng.choice((0, 1, 2, 2, 3, 4)), rng.choice((0, 1, 2, 3))], dtype=np.int64)
    if not ask.any():
        ask[1] = 1
    most = rng.randint(1, 3)
    wanted = np.flatnonzero(ask)
    fits = np.minimum(how_many_fit(free[:, wanted], ask[wanted]), most)
    if rng.random() < 0.15:
        fits = np.minimum(fits, 1)
    allowed = np.array([rng.random() < 0.9 for _ in range(len(free))], dtype=np.int64)
    part = rng.randint(-1, parts - 1)
    return Role(request=ask, most=most, fits=fits * allowed, gpus=int(ask[0]), part=part)


def best_weight(window: AdmissionBatch) -> int | None:
    """What the best set is worth; None when those who must start cannot."""
    used = [_ways(window, number) for number in range(len(window.contenders))]
    everybody = range(len(window.contenders))
    sets = chain.from_iterable(combinations(everybody, n) for n in range(len(everybody) + 1))
    worth = [
        window.total_weight(chosen)
        for chosen in sets
        if set(window.required_numbers) <= set(chosen)
        and window.is_allowed(chosen)
        and _together(window, [used[number] for number in chosen])
    ]
    return max(worth, default=None)


def _ways(window: AdmissionBatch, number: int) -> list[Ints]:
    problem = window.contenders[number].problem
    found = {amounts_used_by(problem, counts).tobytes(): None for counts in answers(problem)}
    shape = window.free.shape
    return [np.frombuffer(each, dtype=np.int64).reshape(shape) for each in found]


def _together(window: AdmissionBatch, used: list[list[Ints]]) -> bool:
    sums = {np.zeros_like(window.free).tobytes()}
    shape = window.free.shape
    for ways in used:
        after: set[bytes] = set()
        for held in sums:
            base = np.frombuffer(held, dtype=np.int64).reshape(shape)
            after.update(
                (base + way).tobytes() for way in ways if (base + way <= window.free).all()
            )
        sums = after
    return bool(sums)


def divisible(rng: random.Random) -> AdmissionBatch:
    """GPUs alone bind and sizes divide each other: pools are exact there."""
    window = tiny_window(rng)
    free = np.stack([rng_ints(rng, len(window.free), 9), rng_ints(rng, len(window.free), 1)], 1)
    free[:, 1] = 0
    contenders = []
    for each in window.contenders:
        roles = []
        for role in each.problem.roles:
            gpus = rng.choice((1, 2, 4, 8))
            ask = np.array([gpus, 0], dtype=np.int64)
            fits = np.minimum(free[:, 0] // gpus, role.most)
            roles.append(attrs.evolve(role, request=ask, fits=fits, gpus=gpus))
        problem = attrs.evolve(each.problem, free=free, roles=tuple(roles))
        contenders.append(attrs.evolve(each, problem=problem))
    return attrs.evolve(window, free=free, contenders=tuple(contenders))


def rng_ints(rng: random.Random, count: int, below: int) -> Ints:
    """Random ints, shape (count,)."""
    return np.array([rng.randrange(below) for _ in range(count)], dtype=np.int64)
