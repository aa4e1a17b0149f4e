"""Which gangs of a session could make way for one that finds no room."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from gpusched.arrays.columns import Ints
from gpusched.cache.gangs import Gang
from gpusched.limits import JOINT_GANGS_MAX
from gpusched.objects.meta import GangKey
from gpusched.placement.problem import Role
from gpusched.session.contenders import contender, ground_of, mover
from gpusched.session.session import Session

_NEVER: Final = 2**61


def movers(session: Session, gang: Gang, movable: Sequence[Gang]) -> tuple[list[Gang], bool]:
    """Gangs whose moving could make room, in the order of their starts; whether these are all.

    Those in the domains that lack the least come first, and the last to start first among
    equals; then those elsewhere, who may have to make way for the first. Nobody when the gang
    would not fit if all of them were gone.

    Args:
        session: in which they have their places.
        gang: with exactly the members that would start, and the level they need.
        movable: gangs that started in this session and may move, in the order of their starts.
    """
    ranks = _ranks(session, gang, movable)
    if ranks is None:
        return [], True
    order: dict[GangKey, tuple[int, int]] = {}
    for number, each in enumerate(movable):
        rows = [place.row for place in session.kept(each)]
        order[each.key] = (int(ranks[rows].min(initial=_NEVER)), -number)
    chosen: set[GangKey] = set()
    asked = 0
    for each in sorted(movable, key=lambda each: order[each.key]):
        if len(chosen) == JOINT_GANGS_MAX:
            break
        asked += 1
        if mover(session, each) is not None:
            chosen.add(each.key)
    return [each for each in movable if each.key in chosen], asked == len(movable)


def _ranks(session: Session, gang: Gang, movable: Sequence[Gang]) -> Ints | None:
    """By row, the rank of its domain: the less room it lacks, the smaller.

    None when no domain has room for the gang whoever moves.
    """
    places = [place for each in movable for place in session.kept(each)]
    now = contender(session, gang, ground_of(session, [gang], ())).problem
    then = contender(session, gang, ground_of(session, [gang], places)).problem
    rows = len(session.bench.nodes)
    domain: Ints = np.zeros(rows, dtype=np.int64)
    real = 1
    if then.required >= 0:
        level = then.levels[then.required]
        domain, real = level.domain, level.real
    lacks: Ints = np.zeros(real, dtype=np.int64)
    able = np.ones(real, dtype=np.bool_)
    usable = np.zeros(rows, dtype=np.bool_)
    for before, after in zip(now.roles, then.roles, strict=True):
        lacks += np.maximum(0, before.most - _by_domain(before, domain, real))
        able &= _by_domain(after, domain, real) >= after.most
        usable |= after.fits > 0
    if not able.any():
        return None
    rank: Ints = np.full(real, _NEVER, dtype=np.int64)
    ordered = [each for each in np.argsort(lacks, kind="stable").tolist() if able[each]]
    rank[ordered] = np.arange(len(ordered))
    inside = usable & (domain < real)
    ranks: Ints = np.full(rows, _NEVER, dtype=np.int64)
    ranks[inside] = rank[domain[inside]]
    return ranks


def _by_domain(role: Role, domain: Ints, real: int) -> Ints:
    inside = domain < real
    sums: Ints = np.zeros(real, dtype=np.int64)
    np.add.at(sums, domain[inside], role.fits[inside])
    return sums
