"""A gang and the session's nodes as a problem of placement, and its answer as moves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import attrs
import numpy as np

from gpusched.api.gang.pod_group import SubGroup
from gpusched.api.pod.pod import Pod
from gpusched.arrays.columns import Bools, Ints
from gpusched.base.classes import frozen
from gpusched.cache.gangs.gang import Gang, PodSet
from gpusched.placement.model.problem import (
    NODES,
    DomainLevel,
    MemberCap,
    Problem,
    Role,
    Solution,
    SubGroupHolder,
    SubGroupMinimum,
)
from gpusched.session.allocate.member_rules.device_mixes import role_mixes
from gpusched.session.allocate.member_rules.own_pod_rules import OwnPodRules
from gpusched.session.allocate.start_members import in_pod_order, start_sizes
from gpusched.session.state.nodes.class_info import PodClassInfo
from gpusched.session.state.nodes.tightness import TIGHTNESS_STEPS
from gpusched.session.state.session import Session
from gpusched.session.state.statement import Statement
from gpusched.topology.levels import HOST


@frozen(slots=True, kw_only=True)
class NodeBounds:
    """Where a gang may be.

    Attributes:
        required: name of the level of which one domain holds it, empty for none.
        rows: only there, shape (nodes,); None for anywhere.
        rules: between its own pods; None where there are none.
    """

    required: str = ""
    rows: Bools | None = None
    rules: OwnPodRules | None = None


def build_problems(session: Session, gang: Gang, bounds: NodeBounds) -> Iterator[Problem]:
    """The problems to try one after another: more than one only where sub-groups come whole.

    Args:
        session: as its bench is looked at.
        gang: with pod sets; roles of the problem are in their order.
        bounds: where it may be.
    """
    base = build_problem(session, gang, bounds)
    for members in start_sizes(gang, base):
        yield base if members == base.members else attrs.evolve(base, members=members)


def build_problem(session: Session, gang: Gang, bounds: NodeBounds) -> Problem:
    """The problem of the members that a gang needs, whether or not so many can start alone."""
    wish = gang.topology
    named = [bounds.required, wish.preferred]
    for part in (*gang.sub_groups, *gang.parent_groups):
        named += [part.topology.required, part.topology.preferred]
    levels = session.cluster_map.problem_levels(*(name for name in named if name))
    columns, roles = _problem_roles(session, gang, bounds)
    caps = () if bounds.rules is None else bounds.rules.build_member_caps(session, levels)
    roles, caps = _with_own_node_caps(roles, caps)
    slotted = sorted({pod_set.pod_class.gpu for pod_set in gang.pod_sets if pod_set.pod_class.gpu})
    states, slots = (
        session.cluster_map.slot_states() if any(role.gpus for role in roles) else (None, None)
    )
    parts, holders, least = _problem_sub_groups(session, gang, levels)
    return Problem(
        free=session.cluster_map.free_amounts(columns, tuple(slotted)),
        roles=roles,
        members=gang.members_at_start,
        minima=tuple(
            (tuple(i for i, pod_set in enumerate(gang.pod_sets) if pod_set.role == role), missing)
            for role, missing in gang.missing_roles
        ),
        parts=parts,
        parts_least=least,
        holders=holders,
        levels=levels,
        required=_level_index(levels, bounds.required),
        placed=_placed_counts(session, gang),
        hope=max(gang.members_at_start, gang.pending),
        states=np.zeros(0, dtype=np.int64) if states is None else states,
        slots=slots,
        caps=caps,
        mixes=role_mixes(session, gang, roles) if len(roles) > 1 else None,
    )


def _problem_roles(
    session: Session, gang: Gang, bounds: NodeBounds
) -> tuple[Ints, tuple[Role, ...]]:
    infos = bounds.rules.infos if bounds.rules else _class_infos(session, gang)
    columns = np.array(
        sorted({c for info in infos for c in info.request.columns.tolist()}), np.int64
    )
    named = {part.name: number for number, part in enumerate(gang.sub_groups)}
    tight = session.cluster_map.domain_tightness()
    roles = []
    for pod_set, info in zip(gang.pod_sets, infos, strict=True):
        ask = np.zeros(len(columns), dtype=np.int64)
        ask[np.searchsorted(columns, info.request.columns)] = info.request.amounts
        fits = np.minimum(info.class_fit.fits, len(pod_set.pods))
        gpus = pod_set.pod_class.gpus
        left = session.cluster_map.pods_by_free_slots(gpus) if gpus else None
        if left is not None:
            fits = np.minimum(fits, left)
        if bounds.rows is not None:
            fits = np.where(bounds.rows, fits, 0)
        roles.append(
            Role(
                request=ask,
                most=len(pod_set.pods),
                fits=fits,
                gpus=gpus,
                part=named.get(pod_set.sub_group, -1),
                price=_node_prices(info.class_fit.row_scores(), tight, fits),
            )
        )
    return columns, tuple(roles)


def _class_infos(session: Session, gang: Gang) -> tuple[PodClassInfo, ...]:
    return tuple(session.class_info(pod_set.pod_class) for pod_set in gang.pod_sets)


def _with_own_node_caps(
    roles: tuple[Role, ...], caps: tuple[MemberCap, ...]
) -> tuple[tuple[Role, ...], tuple[MemberCap, ...]]:
    """Caps of one role on single nodes are part of what fits there; the others stay."""
    fitted = list(roles)
    kept = []
    for cap in caps:
        if cap.level == NODES and len(cap.roles) == 1:
            (number,) = cap.roles
            role = fitted[number]
            fitted[number] = attrs.evolve(role, fits=np.minimum(role.fits, cap.most))
        else:
            kept.append(cap)
    return tuple(fitted), tuple(kept)


def _node_prices(scores: Ints, tight: Ints, fits: Ints) -> Ints | None:
    """The tightest domains first, among these the nodes with the best scores; less is better."""
    possible = fits > 0
    some = int(np.count_nonzero(possible))
    if not some:
        return None
    chosen: slice | Bools = slice(None) if some == len(possible) else possible
    known = scores[chosen]
    best, worst = int(known.max()), int(known.min())
    price = best - scores
    if best - worst >= TIGHTNESS_STEPS:
        price = price * (TIGHTNESS_STEPS - 1) // (best - worst)
    price += tight * TIGHTNESS_STEPS
    price -= int(price[chosen].min())
    price *= possible
    return price


def _level_index(levels: Sequence[DomainLevel], name: str) -> int:
    return next((i for i, level in enumerate(levels) if name and level.name == name), -1)


def _placed_counts(session: Session, gang: Gang) -> Ints:
    rows = placed_rows(session, gang)
    placed = np.zeros(len(session.node_usage.nodes) if rows else 0, dtype=np.int64)
    np.add.at(placed, rows, 1)
    return placed


def placed_rows(session: Session, gang: Gang, sub_group: str | None = None) -> list[int]:
    """Rows of members that have places, inside of a sub-group or (None) of all; one row for each."""
    row_of = session.snapshot.nodes.row
    names = None if sub_group is None else gang.pod_groups_below.get(sub_group, frozenset())
    rows = [
        row_of[each.node]
        for each in gang.placed
        if each.node in row_of and (names is None or each.pod.sub_group in names)
    ]
    kept = session.placements.assigned(gang)
    return rows + [place.row for place in kept if names is None or place.pod.sub_group in names]


def _problem_sub_groups(
    session: Session, gang: Gang, levels: Sequence[DomainLevel]
) -> tuple[tuple[SubGroupMinimum, ...], tuple[SubGroupHolder, ...], int]:
    """Sub-groups of members, those that hold others, and how many at the top must be completed."""
    counted = next(
        (
            each.name
            for each in reversed(session.levels)
            if each.label != HOST and each.names and not each.on_request
        ),
        "",
    )
    ordered = sorted(gang.parent_groups, key=lambda each: len(gang.groups_around(each.name)))
    number = {holder.name: at for at, holder in enumerate(ordered)}
    parts = tuple(
        SubGroupMinimum(
            least=gang.missing_in_sub_group(part),
            parent=number.get(part.parent, -1),
            **_sub_group_places(
                session, gang, part, levels, preferred=part.topology.preferred or counted
            ),
        )
        for part in gang.sub_groups
    )
    holders = tuple(
        SubGroupHolder(
            least=missing_inside(gang, each.name, each.min_sub_groups),
            parent=number.get(each.parent, -1),
            **_sub_group_places(session, gang, each, levels, preferred=each.topology.preferred),
        )
        for each in ordered
    )
    return parts, holders, missing_inside(gang, "", gang.min_sub_groups)


def missing_inside(gang: Gang, name: str, needed: int) -> int:
    """How many of the sub-groups in one, or (no name) in the gang, must be completed."""
    inside = gang.sub_groups_in.get(name, ())
    return max(0, needed - sum(not gang.missing_in_sub_group(each) for each in inside))


def _sub_group_places(
    session: Session, gang: Gang, part: SubGroup, levels: Sequence[DomainLevel], *, preferred: str
) -> dict[str, Any]:
    """Level that a sub-group requires, level that it prefers, and where its members are."""
    level = _level_index(levels, part.topology.required)
    wished = _level_index(levels, preferred)
    around = [
        _level_index(levels, each.topology.required) for each in gang.groups_around(part.name)
    ]
    if not part.topology.preferred and wished <= max(around, default=level):
        wished = -1  # it is in one domain anyway
    rows = placed_rows(session, gang, part.name) if max(level, wished) >= 0 else []
    homes, near = (
        tuple(sorted({int(levels[each].domain[row]) for row in rows})) if each >= 0 else ()
        for each in (level, wished)
    )
    return {"level": level, "preferred": wished, "homes": homes, "near": near}


# -- the answer as moves -----------------------------------------------------------------------
def apply_solution(
    session: Session,
    gang: Gang,
    statement: Statement,
    problem: Problem,
    solution: Solution,
    *,
    bounds: NodeBounds | None = None,
) -> bool:
    """Place members as the answer says: ranks follow the topology, so that neighbours are near.

    Args:
        session: as its bench was when the problem was made.
        gang: whose pod sets are the problem's roles.
        statement: takes the places.
        problem: that was solved.
        solution: with counts.
        bounds: of the problem; where there are rules between pods each place is asked about again.

    Returns:
        False where rules between pods refuse a place, with those before it in the statement.
    """
    rules = None if bounds is None else bounds.rules
    used = np.flatnonzero(solution.counts.any(axis=0))
    walk = rows_in_topology_order(problem, used, named=rules is None)
    sizes = _sizes_by_row(gang, solution)
    beside = _rows_by_rank(session, gang)
    for pod_set, counts in zip(gang.pod_sets, solution.counts, strict=True):
        request = session.class_info(pod_set.pod_class).request
        pods = _first_pods(session, pod_set, int(counts.sum()))
        rows = np.repeat(walk, counts[walk])
        if beside:
            rows = _rows_beside_ranks(problem, pods, rows, beside)
        for pod, row in zip(pods, rows.tolist(), strict=True):
            then = sizes.get(row, [])
            if pod_set.pod_class.gpus:
                then.remove(pod_set.pod_class.gpus)
            if rules is not None and not session.pod_info(pod).class_fit.fits[row]:
                return False
            if pod_set.pod_class.claims and not session.devices.can_take(pod, row):
                return False
            statement.assign(pod, row, request, then=tuple(then))
    return True


def _rows_by_rank(session: Session, gang: Gang) -> dict[int, int]:
    """Rows of members with ranks that have places; of equal ranks any one's."""
    row_of = session.snapshot.nodes.row
    found = {
        each.pod.rank: row_of[each.node]
        for each in gang.placed
        if each.pod.rank >= 0 and each.node in row_of
    }
    assigned = session.placements.assigned(gang)
    return found | {place.pod.rank: place.row for place in assigned if place.pod.rank >= 0}


def _rows_beside_ranks(
    problem: Problem, pods: Sequence[Pod], rows: Ints, beside: dict[int, int]
) -> Ints:
    """The rows, one for each pod, so that a pod is near those with the ranks next to its own.

    Args:
        problem: whose levels say what is near.
        pods: in the order of their ranks.
        rows: as the walk through the domains comes by.
        beside: rows by rank of members that have places; takes in these.
    """
    left = rows.copy()
    found: list[int] = []
    for pod in pods:
        near = beside.get(pod.rank - 1, beside.get(pod.rank + 1, -1)) if pod.rank >= 0 else -1
        chosen = 0
        if near >= 0:
            shared = np.zeros(len(left), dtype=np.int64)
            for level in problem.levels:
                shared += level.domain[left] == level.domain[near]
            chosen = int((2 * shared + (left == near)).argmax())
        found.append(int(left[chosen]))
        left = np.delete(left, chosen)
        if pod.rank >= 0:
            beside[pod.rank] = found[-1]
    return np.array(found, dtype=np.int64)


def _sizes_by_row(gang: Gang, solution: Solution) -> dict[int, list[int]]:
    """What members take of each row's slots, largest first: they are chosen together."""
    sizes: dict[int, list[int]] = {}
    for pod_set, counts in zip(gang.pod_sets, solution.counts, strict=True):
        if pod_set.pod_class.gpus:
            for row in np.flatnonzero(counts).tolist():
                each = sizes.setdefault(row, [])
                each += [pod_set.pod_class.gpus] * int(counts[row])
                each.sort(reverse=True)
    return sizes


def rows_in_topology_order(problem: Problem, rows: Ints, *, named: bool = True) -> Ints:
    """Rows in the order in which a walk through the domains comes by.

    Args:
        problem: whose levels count.
        rows: ascending.
        named: whether domains go by their names; else the one of the first row comes first.
    """
    keys = [level.domain[rows] for level in reversed(problem.levels)]
    if not named:
        keys = [
            np.unique(each, return_index=True)[1][np.unique(each, return_inverse=True)[1]]
            for each in keys
        ]
    return rows[np.lexsort(keys)] if keys else rows


def _first_pods(session: Session, pod_set: PodSet, count: int) -> Sequence[Pod]:
    return in_pod_order(pod_set.pods, session.hooks.pod_orders)[:count]
