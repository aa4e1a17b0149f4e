"""Gangs of a session as candidates of one batch: all gangs of the batch count as not placed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs
import numpy as np

from gpusched.api.gang.pod_group import NO_TOPOLOGY_REQUEST, SubGroup, TopologyRequest
from gpusched.api.meta.gpu_resources import gpu_resources
from gpusched.api.meta.identity import UID
from gpusched.arrays.columns import Bools, Ints, RequestVector, how_many_fit
from gpusched.base.classes import frozen
from gpusched.cache.gangs.gang import Gang, PodSet
from gpusched.placement.admission.model import AdmissionCandidate
from gpusched.placement.model.problem import DomainLevel, Problem, Role, SubGroupMinimum
from gpusched.session.allocate.node_sets import Unschedulable, level_constraint_now
from gpusched.session.allocate.start_members import choose_start_members, in_pod_order
from gpusched.session.allocate.sub_groups import members_to_complete
from gpusched.session.gpu_types.options import (
    GpuTypeRefusal,
    chooses_gpu_types,
    gpu_type_options,
    placed_gpu_rows,
    takes_gpus,
)
from gpusched.session.state.session import Session
from gpusched.session.state.statement import Assignment
from gpusched.topology.levels import HOST


def as_movable(session: Session, gang: Gang) -> Gang | None:
    """A gang that got places in this session, with exactly these members and firmer wishes.

    What it got of its wishes it keeps: where it lies in one domain of a preferred level, it does
    so wherever it moves. None where a preference is met in part: it could only get worse; and for
    sub-groups in sub-groups, which stay where they are.
    """
    if gang.parent_groups:
        return None
    places = session.placements.assigned(gang)
    whole = _required_request(session, gang.topology, places)
    if whole is None:
        return None
    parts: list[SubGroup] = []
    for part in gang.sub_groups:
        own = [place for place in places if place.pod.sub_group == part.name]
        wish = _required_request(session, part.topology, own)
        if wish is None:
            return None
        parts.append(attrs.evolve(part, topology=wish))
    taken = {place.pod.uid for place in places}
    return attrs.evolve(
        gang,
        pod_sets=_tasks_with_pods(gang.pod_sets, taken),
        topology=whole,
        sub_groups=tuple(parts),
    )


def with_start_members(session: Session, gang: Gang) -> Gang | None:
    """A gang with exactly the members it would start with; None where that is not clear.

    Where any members would do, the smallest start: they find room where others do.
    """
    if gang.sub_groups:
        chosen = _sub_group_minima(gang)
    else:
        chosen, _ = choose_start_members(gang, largest_first=False)
    if not chosen:
        return None
    orders = session.hooks.pod_orders
    taken = {
        pod.uid for pod_set, count in chosen for pod in in_pod_order(pod_set.pods, orders)[:count]
    }
    confines = level_constraint_now(session, gang)
    if isinstance(confines, Unschedulable):
        return None
    wish = attrs.evolve(gang.topology, required=confines.required)
    wishes = [wish, *gang.topology_requests]
    named = {name for each in wishes for name in (each.required, each.preferred)}
    if any(level.crosses for level in session.levels if level.name in named):
        return None
    return attrs.evolve(gang, pod_sets=_tasks_with_pods(gang.pod_sets, taken), topology=wish)


def _sub_group_minima(gang: Gang) -> list[tuple[PodSet, int]]:
    """The minima of all sub-groups, where these are what it starts with and no choice is left."""
    lacking = [part for part in gang.sub_groups if gang.missing_in_sub_group(part)]
    several = gang.min_sub_groups < len(gang.sub_groups) or bool(gang.parent_groups)
    if several or gang.missing_roles:
        return []
    chosen = [members_to_complete(gang, part) for part in lacking]
    if not all(chosen) or sum(n for each in chosen for _, n in each) != gang.members_at_start:
        return []
    return [pair for each in chosen for pair in each]


def _tasks_with_pods(pod_sets: Sequence[PodSet], taken: set[UID]) -> tuple[PodSet, ...]:
    """Tasks with these members, those without any left out."""
    kept = [
        attrs.evolve(pod_set, pods=tuple(pod for pod in pod_set.pods if pod.uid in taken))
        for pod_set in pod_sets
    ]
    return tuple(pod_set for pod_set in kept if pod_set.pods)


def _required_request(
    session: Session, wish: TopologyRequest, places: Sequence[Assignment]
) -> TopologyRequest | None:
    required = TopologyRequest(required=wish.required) if wish.required else NO_TOPOLOGY_REQUEST
    if not wish.preferred or not places:
        return required
    names = [each.name for each in session.levels]
    if wish.preferred not in names:
        return None
    number = names.index(wish.preferred)
    if wish.required in names and number <= names.index(wish.required):
        return required
    found = {int(session.levels[number].domain[place.row]) for place in places}
    in_one = len(found) == 1 and -1 not in found
    return TopologyRequest(required=wish.preferred) if in_one else None


# -- as numbers ------------------------------------------------------------------------------
@frozen(eq=False)
class BatchResources:
    """What the problems of one window share.

    Attributes:
        columns: of the nodes' resources, those that a candidate requests.
        free: of these, with no gang of the batch placed, int64, shape (nodes, columns).
        levels: as problems have them.
        names: of the levels, in order.
    """

    columns: Ints
    free: Ints
    levels: tuple[DomainLevel, ...]
    names: tuple[str, ...]


def batch_resources(
    session: Session, gangs: Sequence[Gang], places: Sequence[Assignment]
) -> BatchResources:
    """The ground of a window.

    Args:
        session: as it looks at its nodes.
        gangs: of the window.
        places: of gangs that are placed; they count as free.
    """
    node_usage = session.node_usage
    seats = [session.class_info(pod_set.pod_class) for gang in gangs for pod_set in gang.pod_sets]
    columns = np.unique(np.concatenate([seat.request.columns for seat in seats]))
    free = node_usage.nodes.allocatable - node_usage.used
    add_places(free, places)
    wishes = [gang.topology for gang in gangs]
    wishes += [part.topology for gang in gangs for part in gang.sub_groups]
    pinned = {wish.required for wish in wishes}
    levels = [
        each
        for each in session.levels
        if each.name in pinned or (each.label != HOST and not each.on_request)
    ]
    return BatchResources(
        columns=columns,
        free=np.maximum(free[:, columns], 0),
        levels=tuple(_problem_level(each.name, each.domain, len(each.names)) for each in levels),
        names=tuple(each.name for each in levels),
    )


def add_places(amounts: Ints, places: Iterable[Assignment]) -> None:
    """Add what pods request to rows of an array with all columns of nodes: of a class of pods, of which there are hundreds, at once."""
    rows: dict[int, tuple[RequestVector, list[int]]] = {}
    for place in places:
        request = place.request
        known = rows.get(id(request))
        if known is None:
            known = rows[id(request)] = (request, [])
        known[1].append(place.row)
    for request, those in rows.values():
        if len(those) == 1:
            amounts[those[0], request.columns] += request.amounts
        else:
            np.add.at(amounts, (np.array(those)[:, np.newaxis], request.columns), request.amounts)


def _problem_level(name: str, domain: Ints, real: int) -> DomainLevel:
    """Nodes without a label get a domain of their own."""
    rows = np.arange(len(domain), dtype=np.int64)
    return DomainLevel(name=name, domain=np.where(domain < 0, real + rows, domain), real=real)


def make_candidate(session: Session, gang: Gang, ground: BatchResources) -> AdmissionCandidate:
    """All members of ``gang.pod_sets``, which all must start, on nodes open to it."""
    with session.on_open_nodes(gang):
        return _candidate_on_open_nodes(session, gang, ground)


def _candidate_on_open_nodes(
    session: Session, gang: Gang, ground: BatchResources
) -> AdmissionCandidate:
    names = [part.name for part in gang.sub_groups]
    spare = session.cluster_map.spared_rows(gang)
    usable = np.ones(len(session.node_usage.nodes), dtype=np.bool_) if spare is None else ~spare
    types = types_in_batch(session, gang, ground)
    on_types = usable if types is None else usable & session.gpu_types.rows_of_types(types)
    roles = tuple(
        _problem_role(
            session, pod_set, ground, names, on_types if takes_gpus(pod_set.pod_class) else usable
        )
        for pod_set in gang.pod_sets
    )
    return AdmissionCandidate(
        problem=Problem(
            free=ground.free,
            roles=roles,
            members=sum(role.most for role in roles),
            parts=tuple(
                SubGroupMinimum(least=0, level=_level_number(ground, part.topology.required))
                for part in gang.sub_groups
            ),
            levels=ground.levels,
            required=_level_number(ground, gang.topology.required),
        ),
        must=True,
    )


def types_in_batch(session: Session, gang: Gang, ground: BatchResources) -> tuple[int, ...] | None:
    """Types of GPUs that a gang of the window is held to; None where types make no difference for it.

    A gang that has places stays on their types; a newcomer is held to the one with most free GPUs.
    """
    if not chooses_gpu_types(session, gang):
        return None
    types = session.gpu_types
    placed = types.types_on(placed_gpu_rows(session, gang))
    if placed:
        return placed
    options = gpu_type_options(session, gang)
    if isinstance(options, GpuTypeRefusal):
        return ()
    columns = session.node_usage.nodes.columns
    wanted = {columns[name] for name in gpu_resources().names if name in columns}
    gpus = [number for number, column in enumerate(ground.columns.tolist()) if column in wanted]
    free = ground.free[:, gpus].sum(axis=1)
    return max(
        options, key=lambda each: (int(free[types.rows_of_types(each.types)].sum()), each.speed)
    ).types


def _problem_role(
    session: Session, pod_set: PodSet, ground: BatchResources, parts: Sequence[str], usable: Bools
) -> Role:
    seat = session.class_info(pod_set.pod_class)
    amounts = np.zeros(len(session.node_usage.nodes.columns), dtype=np.int64)
    amounts[seat.request.columns] = seat.request.amounts
    ask: Ints = amounts[ground.columns]
    wants = np.flatnonzero(ask)
    fits = np.where(
        _feasible_rows(session, pod_set) & usable,
        how_many_fit(ground.free[:, wants], ask[wants]),
        0,
    )
    return Role(
        request=ask,
        most=len(pod_set.pods),
        fits=np.minimum(fits, len(pod_set.pods)),
        gpus=pod_set.pod_class.gpus,
        part=parts.index(pod_set.sub_group) if pod_set.sub_group in parts else -1,
    )


def _feasible_rows(session: Session, pod_set: PodSet) -> Bools:
    """Nodes that a pod set's members may use if there is room, shape (nodes,)."""
    seat = session.class_info(pod_set.pod_class)
    if seat.request.missing:
        return np.zeros(len(session.node_usage.nodes), dtype=np.bool_)
    return seat.class_fit.fixed


def _level_number(ground: BatchResources, level: str) -> int:
    return ground.names.index(level) if level else -1
