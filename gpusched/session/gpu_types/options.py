"""Types of GPUs that a gang may get, as it names them, and why it may get none."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from gpusched.api.devices.gpu_types import FULL_SPEED, GpuTypeRequest, named_value
from gpusched.api.meta.gpu_resources import gpu_resources
from gpusched.api.pod.pod import PodClass
from gpusched.base.classes import frozen
from gpusched.cache.gangs.gang import Gang, PodSet
from gpusched.session.framework.reasons import Reason, pods_text, shorten, truncate_message
from gpusched.session.state.nodes.gpu_types import (
    GPU_TYPES_NAMED_MAX,
    NodeGpuTypes,
    list_gpu_types,
)
from gpusched.session.state.session import Session


@frozen(slots=True, kw_only=True)
class GpuTypeOption:
    """One type of GPUs as a gang sees it: what one name of its speeds means, or one product.

    Attributes:
        types: numbers of the products, see ``NodeGpuTypes``.
        name: for sentences.
        speed: relative to the gang's fastest type in the cluster, in thousandths.
    """

    types: tuple[int, ...]
    name: str
    speed: int = FULL_SPEED


@frozen(slots=True)
class GpuTypeRefusal:
    """Why a gang gets no place on the types of GPUs that were tried."""

    reason: Reason
    message: str


def takes_gpus(pod_class: PodClass) -> bool:
    """Whether pods of a class request GPUs, slices or shares of them."""
    return bool(pod_class.gpu) or pod_class.share is not None


def chooses_gpu_types(session: Session, gang: Gang) -> bool:
    """Whether types of GPUs make a difference for a gang."""
    request = gang.terms.gpu_types
    if not request.speeds:
        same = request.same_type
        if not session.gpu_types.has_several_types:
            return False
        if not (session.hooks.topology.one_gpu_type if same is None else same):
            return False
    return any(takes_gpus(pod_set.pod_class) for pod_set in gang.pod_sets)


def gpu_type_options(session: Session, gang: Gang) -> tuple[GpuTypeOption, ...] | GpuTypeRefusal:
    """The types that a gang takes, by number; or why there is none.

    A type that the node selectors of no member with GPUs admit is none of them.
    """
    types, request = session.gpu_types, gang.terms.gpu_types
    named = _types_by_name(types, request)
    if not named:
        return GpuTypeRefusal(Reason.NO_FEASIBLE_NODE, _unknown_types_message(types, request))
    admitted = set[int]()
    for pod_set in gang.pod_sets:
        if takes_gpus(pod_set.pod_class):
            admitted.update(admitted_types(session, pod_set.pod_class))
    options = relative_options(types, request, admitted)
    if options:
        return options
    if not admitted and not request.speeds:
        return GpuTypeRefusal(Reason.NO_FEASIBLE_NODE, _none_admitted_message(gang, list(named)))
    there = list_gpu_types([types.type_text(number) for number in sorted(admitted)]) or "none"
    return GpuTypeRefusal(
        Reason.INVALID_SPEC if admitted else Reason.NO_FEASIBLE_NODE,
        truncate_message(
            f"node selectors admit no GPU type that it takes ({list_gpu_types(list(named))}), but "
            f"{there}; change one of them"
        ),
    )


def _none_admitted_message(gang: Gang, there: Sequence[str]) -> str:
    """That selectors of a gang that takes any GPUs admit no node that has some."""
    wanted = {
        f"{key}={value}"
        for pod_set in gang.pod_sets
        if takes_gpus(pod_set.pod_class)
        for key, value in pod_set.pod_class.node_selector
    }
    named = f" ({', '.join(sorted(wanted))})" if wanted else ""
    return truncate_message(
        f"its node selectors and affinities{named} admit no node with GPUs; nodes have "
        f"{list_gpu_types(there)}"
    )


def relative_options(
    types: NodeGpuTypes, request: GpuTypeRequest, admitted: Collection[int]
) -> tuple[GpuTypeOption, ...]:
    """The types among some that a gang takes, with speeds relative to the fastest of them."""
    named = _types_by_name(types, request)
    open_to = {
        name: (speed, tuple(number for number in numbers if number in admitted))
        for name, (speed, numbers) in named.items()
    }
    open_to = {name: each for name, each in open_to.items() if each[1]}
    fastest = max((speed for speed, _ in open_to.values()), default=FULL_SPEED)
    return tuple(
        GpuTypeOption(types=numbers, name=name, speed=max(1, speed * FULL_SPEED // fastest))
        for name, (speed, numbers) in open_to.items()
    )


def _types_by_name(
    types: NodeGpuTypes, request: GpuTypeRequest
) -> dict[str, tuple[int, list[int]]]:
    """Speed and numbers of the products by the name of each type that the gang takes."""
    found: dict[str, tuple[int, list[int]]] = {}
    for number, product in enumerate(types.names):
        if not request.speeds:
            found[types.type_text(number)] = (FULL_SPEED, [number])
            continue
        named = named_value(request.speeds, product)
        if named is not None:
            found.setdefault(named[0], (named[1], []))[1].append(number)
    return found


class _AdmittedTypes:
    """Types that selectors of pod classes admit, by digest, for the length of a session."""

    def __init__(self) -> None:
        self.known: dict[str, tuple[int, ...]] = {}


def admitted_types(session: Session, pod_class: PodClass) -> tuple[int, ...]:
    """Types of GPUs of the nodes that node selector and affinity of a class admit, ascending."""
    cached = session.cycle_state.get_or_make(_AdmittedTypes, _AdmittedTypes).known
    known = cached.get(pod_class.digest)
    if known is None:
        types = session.gpu_types
        rows = session.cache.node_pools.candidate_rows(pod_class, session.snapshot.nodes)
        every = tuple(range(len(types.names)))
        known = every if rows is None else types.types_on(np.flatnonzero(rows).tolist())
        cached[pod_class.digest] = known
    return known


def _unknown_types_message(types: NodeGpuTypes, request: GpuTypeRequest) -> str:
    named = list_gpu_types([name for name, _ in request.speeds])
    there = list_gpu_types([types.type_text(number) for number in range(len(types.names))])
    known = f"nodes have {there}" if there else "no node has GPUs"
    return truncate_message(f"no node has a GPU type that gpuTypes.speeds names ({named}); {known}")


def start_gpus(gang: Gang) -> int:
    """GPUs that a gang starts with, in thousandths: of as many members as it needs, largest first."""
    left = gang.members_at_start
    total = 0
    for pod_set in gang.pod_sets:
        count = min(left, len(pod_set.pods))
        total += count * pod_set.pod_class.gpu_thousandths
        left -= count
    return total


def must_be_of_one_type(session: Session, gang: Gang, options: Sequence[GpuTypeOption]) -> bool:
    """Whether a gang waits for one type rather than to be mixed.

    One that tells its speeds does, as far as some type has as many GPUs at all: of several it would be as
    fast as on the slowest.
    """
    request = gang.terms.gpu_types
    if request.same_type is not None or not request.speeds:
        return bool(request.same_type)
    nodes = session.snapshot.nodes
    columns = [nodes.columns[name] for name in gpu_resources().names if name in nodes.columns]
    gpus = nodes.allocatable[:, columns].sum(axis=1)
    needed = start_gpus(gang)
    return any(
        int(gpus[session.gpu_types.rows_of_types(each.types)].sum()) >= needed for each in options
    )


def find_contradiction(
    session: Session, gang: Gang, options: tuple[GpuTypeOption, ...]
) -> GpuTypeRefusal | None:
    """Why a gang that must be of one type cannot be, whatever room there is; None when it can.

    Only node selectors and affinities are asked: nodes that are not ready or tainted come back.
    """
    if not gang.terms.gpu_types.same_type:
        return None
    open_to = [_members_by_option(session, pod_set, options) for pod_set in gang.pod_sets]
    needed = gang.members_at_start
    for number in range(len(options)):
        if _enough_members(gang, [each[number] for each in open_to], needed):
            return None
    words = []
    for pod_set, counts in zip(gang.pod_sets, open_to, strict=True):
        if takes_gpus(pod_set.pod_class):
            names = [each.name for each, count in zip(options, counts, strict=True) if count]
            role = f" of role {shorten(pod_set.role)}" if pod_set.role else ""
            where = list_gpu_types(names) or "none of them"
            words.append(f"{pods_text(len(pod_set.pods))}{role} may run on {where}")
    return GpuTypeRefusal(
        Reason.INVALID_SPEC,
        truncate_message(
            f"gpuTypes.sameType: node selectors admit no GPU type to all {pods_text(needed)} that "
            f"start together: {'; '.join(words[:GPU_TYPES_NAMED_MAX])}"
        ),
    )


def _enough_members(gang: Gang, counts: list[int], needed: int) -> bool:
    """Whether as many members could run as the gang and its roles need."""
    if sum(counts) < needed:
        return False
    for role, missing in gang.missing_roles:
        there = sum(
            count
            for pod_set, count in zip(gang.pod_sets, counts, strict=True)
            if pod_set.role == role
        )
        if there < missing:
            return False
    return True


def _members_by_option(
    session: Session, pod_set: PodSet, options: tuple[GpuTypeOption, ...]
) -> list[int]:
    """Members of a pod set that selectors let run on each type; all of them without GPUs."""
    if not takes_gpus(pod_set.pod_class):
        return [len(pod_set.pods)] * len(options)
    admitted = set(admitted_types(session, pod_set.pod_class))
    return [0 if admitted.isdisjoint(each.types) else len(pod_set.pods) for each in options]


def placed_gpu_rows(session: Session, gang: Gang) -> list[int]:
    """Rows of members with GPUs that have places, one row for each."""
    row_of = session.snapshot.nodes.row
    rows = [
        row_of[each.node]
        for each in gang.placed
        if each.node in row_of and takes_gpus(each.pod.pod_class)
    ]
    assigned = session.placements.assigned(gang)
    return rows + [each.row for each in assigned if takes_gpus(each.pod.pod_class)]


@contextmanager
def on_types_of_members(session: Session, gang: Gang) -> Iterator[None]:
    """Inside, pods with GPUs fit the types that members of a gang have already, where types matter to it."""
    placed = placed_gpu_rows(session, gang) if chooses_gpu_types(session, gang) else []
    types = session.gpu_types.types_on(placed)
    if not types:
        yield
        return
    with session.confined_to_gpu_types(types):
        yield


def types_to_start_on(session: Session, gang: Gang) -> list[tuple[int, ...]]:
    """Sets of types on each of which alone a gang could start, the best first; () for all nodes.

    More than one only where it must be of one type; none where it takes no type that is there.
    """
    if not chooses_gpu_types(session, gang):
        return [()]
    request = gang.terms.gpu_types
    if not request.same_type and not request.speeds:
        return [()]  # it is mixed where there is no other way
    options = gpu_type_options(session, gang)
    if isinstance(options, GpuTypeRefusal):
        return []
    if not must_be_of_one_type(session, gang, options):
        return [tuple(sorted(number for each in options for number in each.types))]
    members = session.gpu_types.types_on(placed_gpu_rows(session, gang))
    if members:
        return [members]
    return [each.types for each in sorted(options, key=lambda each: (-each.speed, each.types))]
