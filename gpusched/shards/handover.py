"""Passes a gang on to another shard where it cannot start, or has waited while another has room."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Sequence
from typing import Final

import msgspec

from gpusched.api.devices.gpu_types import named_value
from gpusched.api.meta.identity import GangKey
from gpusched.api.meta.resources import Resources
from gpusched.api.pod.pod import PodClass
from gpusched.arrays.columns import NodeColumns
from gpusched.base.classes import frozen
from gpusched.cache.gangs.gang import Gang
from gpusched.session.framework.reasons import Reason
from gpusched.session.state.nodes.gpu_types import NodeGpuTypes
from gpusched.session.state.plan import GangBind
from gpusched.shards.board import Amounts, Board, ShardEntry
from gpusched.shards.layout import ShardLayout

PATIENCE_S: Final = 10.0
"""For which a gang waits in one shard before another one is asked that has room for it."""
LACKS_ROOM: Final = frozenset(
    {
        Reason.INSUFFICIENT_RESOURCES,
        Reason.NO_FEASIBLE_NODE,
        Reason.TOPOLOGY_UNSATISFIABLE,
        Reason.WAITING_FOR_TOPOLOGY,
        Reason.RESERVED,
    }
)
LACKS_GRANTS: Final = frozenset(
    {Reason.QUOTA_EXCEEDED, Reason.WAITING_FOR_QUOTA, Reason.USER_LIMIT}
)
"""Reasons of gangs that may wait for what their queue, or their user, is granted in the shard."""


LOOKED_AT: Final = 256
"""Gangs that wait, the oldest of a shard, whose starts are not counted as free for gangs of other shards."""


def with_amounts(
    entry: ShardEntry,
    columns: NodeColumns,
    rows: Sequence[int],
    waiting: Collection[Gang],
    *,
    starts: Resources,
    types: NodeGpuTypes,
) -> ShardEntry:
    """The entry of a shard with what its nodes have, what of it is used, and what is free for gangs of others.

    Args:
        entry: of the shard.
        columns: nodes of one moment.
        rows: of the shard's nodes.
        waiting: gangs that wait in it.
        starts: what was decided to start on these nodes since that moment.
        types: of the GPUs of all nodes.
    """
    there, used = (each[rows].sum(axis=0) for each in (columns.allocatable, columns.used))
    names = columns.columns
    held = {name: int(used[column]) + starts.get(name) for name, column in names.items()}
    left = {name: int(there[column]) - held[name] for name, column in names.items()}
    for gang in heapq.nsmallest(LOOKED_AT, waiting, key=lambda each: (each.created, each.key)):
        asked = smallest_start(gang)
        if fits_amounts(asked, left):
            left = {name: amount - asked.get(name) for name, amount in left.items()}
    return msgspec.structs.replace(
        entry,
        nodes=len(rows),
        waiting=len(waiting),
        total={name: int(there[column]) for name, column in names.items()},
        used=held,
        free=left,
        gpu_types=tuple(
            types.names[number] for number in sorted({*types.of_row[rows].tolist()} - {-1})
        ),
    )


def requests_of_starts(
    gangs: Iterable[Gang], binds: Collection[GangBind]
) -> dict[GangKey, Resources]:
    """What the members request that are bound, by gang.

    Args:
        gangs: that were decided about.
        binds: that came of it.
    """
    starting = {each.gang: {bind.uid for bind in each.binds} for each in binds}
    found = {}
    for gang in gangs:
        uids = starting.get(gang.key)
        if not uids:
            continue
        asked = Resources()
        for pod_set in gang.pod_sets:
            count = sum(pod.uid in uids for pod in pod_set.pods)
            asked = asked.plus(pod_set.pod_class.charged, times=count) if count else asked
        found[gang.key] = asked
    return found


def smallest_start(gang: Gang) -> Resources:
    """What the members request, at most, that a gang starts with."""
    left, asked = gang.members_at_start, Resources()
    sets = sorted(gang.pod_sets, key=lambda each: each.pod_class.gpus, reverse=True)
    for pod_set in sets:
        count = min(left, len(pod_set.pods))
        asked = asked.plus(pod_set.pod_class.charged, times=count) if count else asked
        left -= count
    return asked


def fits_amounts(asked: Resources, amounts: Amounts) -> bool:
    """Whether amounts cover what is asked for, by sums over nodes alone."""
    return all(amount <= amounts.get(name, 0) for name, amount in asked.items)


def next_shard(
    gang: Gang,
    here: str,
    layout: ShardLayout,
    board: Board,
    *,
    free: dict[str, Amounts],
    began: str,
    waited_s: float = 0.0,
    evicts: bool = False,
) -> str:
    """The shard that a gang is passed on to; empty where it stays.

    Rather than evict others it goes at once to one with room that comes after this one in the order that begins with
    its first: each is asked once, however often their sums promise room that the gang cannot use.

    Args:
        gang: that waits for room, and has no member with a place.
        here: the shard that it is in.
        layout: all shards.
        board: as it was read last.
        free: of each shard, in base units; what is promised to the gang is taken off.
        began: the shard that it was in first.
        waited_s: seconds for which it has waited here.
        evicts: whether others would be evicted for it here.
    """
    start = _WantedStart.of_gang(gang)
    asked = start.asked
    possible = _may_fit(start, board.shards.get(here), here, layout)
    for shard in _in_order(here, start.classes, layout):
        if not _may_be_asked(start, shard, layout, board):
            continue
        if not possible:
            return shard
        at_once = evicts and layout.turn(shard, began) > layout.turn(here, began)
        if (at_once or waited_s >= PATIENCE_S) and fits_amounts(asked, free.get(shard, {})):
            free[shard] = {name: amount - asked.get(name) for name, amount in free[shard].items()}
            return shard
    return ""


def shard_without(gang: Gang, here: str, layout: ShardLayout, board: Board) -> str:
    """The shard for a gang that cannot be in the one in which it begins, by selectors or types of GPUs; empty where it can.

    Args:
        gang: that no shard has been asked for yet.
        here: the shard that it is in.
        layout: all shards.
        board: as it was read last.
    """
    classes = [each.pod_class for each in gang.pod_sets]
    if not (layout.excludes(here, classes) or _lacks_types(gang, board.shards.get(here))):
        return ""
    start = _WantedStart.of_gang(gang)
    return next(
        (
            shard
            for shard in _in_order(here, classes, layout)
            if _may_be_asked(start, shard, layout, board)
        ),
        "",
    )


def preferred_shard(
    gang: Gang, here: str, layout: ShardLayout, board: Board, *, free: dict[str, Amounts]
) -> str:
    """The shard that a gang prefers to the one in which it begins, and that has room for it; empty for none.

    Args:
        gang: that no shard has been asked for yet.
        here: the shard that it is in.
        layout: all shards.
        board: as it was read last.
        free: of each shard, in base units; what is promised to the gang is taken off.
    """
    classes = [each.pod_class for each in gang.pod_sets]
    if not any(each.preferred for each in classes):
        return ""
    start, least = _WantedStart.of_gang(gang), layout.preference(here, classes)
    asked = start.asked
    for shard in _in_order(here, classes, layout):
        if layout.preference(shard, classes) <= least:
            return ""
        room = free.get(shard, {})
        if fits_amounts(asked, room) and _may_be_asked(start, shard, layout, board):
            free[shard] = {name: amount - asked.get(name) for name, amount in room.items()}
            return shard
    return ""


def _in_order(here: str, classes: Sequence[PodClass], layout: ShardLayout) -> list[str]:
    """The other shards, those first that are preferred most; else the next ones of the configuration."""
    start = layout.names.index(here)
    others = (*layout.names[start + 1 :], *layout.names[:start])
    return sorted(others, key=lambda shard: -layout.preference(shard, classes))


def fits_nowhere(gang: Gang, layout: ShardLayout, board: Board) -> bool:
    """Whether no shard could hold a gang even if it were empty and had its lent nodes back; False while some shard is not known."""
    if any(shard not in board.shards for shard in layout.names):
        return False
    start = _WantedStart.of_gang(gang)
    return not any(
        _may_fit(start, _with_lent_nodes(shard, board), shard, layout) for shard in layout.names
    )


@frozen(slots=True)
class _WantedStart:
    """A gang as shards see it that are asked for it.

    Attributes:
        asked: what the members request, at most, that it starts with.
        classes: of its pods.
    """

    gang: Gang
    asked: Resources
    classes: Sequence[PodClass]

    @classmethod
    def of_gang(cls, gang: Gang) -> _WantedStart:
        """The gang that waits."""
        return cls(gang, smallest_start(gang), [each.pod_class for each in gang.pod_sets])


def _may_be_asked(start: _WantedStart, shard: str, layout: ShardLayout, board: Board) -> bool:
    """Whether somebody holds the shard, and the gang could be there."""
    entry = board.shards.get(shard)
    held = entry is not None and bool(entry.holder)
    return held and _may_fit(start, entry, shard, layout)


def _may_fit(
    start: _WantedStart, entry: ShardEntry | None, shard: str, layout: ShardLayout
) -> bool:
    """Whether an empty shard could hold the gang, by its selectors, its sums and its types of GPUs."""
    total = entry.total if entry is not None else {}
    if not fits_amounts(start.asked, total) or _lacks_types(start.gang, entry):
        return False
    return not layout.excludes(shard, start.classes)


def _lacks_types(gang: Gang, entry: ShardEntry | None) -> bool:
    """Whether a gang takes GPUs of some types alone, and the shard is known to have none of these."""
    speeds = gang.terms.gpu_types.speeds
    if not speeds or entry is None or entry.gpu_types is None:
        return False
    if any(named_value(speeds, product) is not None for product in entry.gpu_types):
        return False
    classes = (each.pod_class for each in gang.pod_sets)
    return any(each.gpu or each.share is not None for each in classes)


def _with_lent_nodes(shard: str, board: Board) -> ShardEntry:
    """The entry of a shard with all that shards have that were lent nodes: which of these are its own is not told."""
    entry = board.shards[shard]
    for other in sorted({*board.nodes.values()} - {shard}):
        more = board.shards.get(other, ShardEntry())
        names = entry.total.keys() | more.total.keys()
        entry = msgspec.structs.replace(
            entry,
            total={name: entry.total.get(name, 0) + more.total.get(name, 0) for name in names},
            gpu_types=None
            if entry.gpu_types is None or more.gpu_types is None
            else (*entry.gpu_types, *more.gpu_types),
        )
    return entry
