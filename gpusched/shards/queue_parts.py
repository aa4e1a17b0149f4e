"""The part that one daemon has of each queue, beside those of other shards: what is due, what is held, what is told.

The status of a Queue has a row for each daemon (``status.shards``), so that all see what the others hold. Queues of
other projects have none in theirs: what they hold stands on the board, and the first shard's daemon writes the sums.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import attrs

from gpusched.api.meta.pool_resources import dimension
from gpusched.api.meta.resources import NOTHING, Resources, total
from gpusched.api.queue.queue import Queue
from gpusched.api.queue.start_errors import NO_START_ERRORS, start_errors_without
from gpusched.base.classes import frozen
from gpusched.session.state.plan import QueueStatus
from gpusched.shards.board import Board, ForeignQueuePart, ShardEntry
from gpusched.shards.grants import divide_by_demand

BETWEEN_SHARDS: Final = ","
"""Between names of shards that one daemon holds."""


def row_name(held: Iterable[str], names: Sequence[str]) -> str:
    """Name of the row of a daemon in the status of queues.

    Args:
        held: shards that it holds.
        names: of all shards, in the order of the configuration.
    """
    mine = {*held}
    return BETWEEN_SHARDS.join(name for name in names if name in mine)


def is_of_others(row: str, others: Collection[str]) -> bool:
    """Whether a row is of shards that are held elsewhere alone."""
    return set(row.split(BETWEEN_SHARDS)) <= set(others)


@frozen
class QueueParts:
    """Queues as a daemon has them.

    Attributes:
        names: of all shards, in the order of the configuration.
        held: shards of the daemon.
        board: as it was read last.
    """

    names: tuple[str, ...]
    held: frozenset[str]
    board: Board

    @property
    def others(self) -> tuple[str, ...]:
        """Names of the shards that are not held here."""
        return tuple(name for name in self.names if name not in self.held)

    # -- what is due ------------------------------------------------------------------------
    def shares(self, queues: Collection[Queue]) -> dict[str, Queue]:
        """Queues with what they deserve and are guaranteed here, and with what was learned here of their starts."""
        own = row_name(self.held, self.names)
        return {queue.name: self._share(queue, own) for queue in queues}

    def _share(self, queue: Queue, own: str) -> Queue:
        learned = next((row.start_errors for row in queue.shard_rows if row.name == own), None)
        learned = NO_START_ERRORS if learned is None else learned
        elsewhere = queue.start_errors
        if learned.tallies:
            elsewhere = start_errors_without(queue.start_errors, learned)
        pools = queue.node_pools
        if queue.pool_deserved:
            pools = tuple(
                attrs.evolve(pool, deserved=self._divided(queue.name, pool.deserved, pool.name))
                for pool in pools
            )
        return attrs.evolve(
            queue,
            deserved=self._divided(queue.name, queue.deserved),
            guarantee=self._divided(queue.name, queue.guarantee),
            node_pools=pools,
            start_errors=learned,
            start_errors_elsewhere=elsewhere,
            own_row=own,
        )

    def _divided(self, queue: str, amounts: Resources, pool: str = "") -> Resources:
        if not amounts:
            return amounts
        here: dict[str, int] = {}
        for resource, amount in amounts.items:
            name = dimension(resource, pool) if pool else resource
            demand = {
                shard: row.demand.get(name, 0)
                for shard, row in self.board.grants.get(queue, {}).items()
            }
            room = {
                shard: (entry.pools if pool else entry.total).get(name, 0)
                for shard, entry in self.board.shards.items()
                if shard in self.names
            }
            unit = 1000 if amount % 1000 == 0 else 1
            parts = divide_by_demand(amount, demand, room, unit=unit)
            here[resource] = sum(part for shard, part in parts.items() if shard in self.held)
        return Resources.of(here)

    # -- what others hold -------------------------------------------------------------------
    def held_elsewhere(self, queues: Collection[Queue]) -> dict[str, Resources]:
        """Amounts that queues hold in shards that are not held here, with all below them, by name."""
        others = self.others
        found = {}
        for queue in queues:
            if queue.source:
                held = total(part.resources for part in self._foreign_parts(queue.name))
            else:
                held = total(
                    row.allocated for row in queue.shard_rows if is_of_others(row.name, others)
                )
            if held:
                found[queue.name] = held
        return found

    def total_elsewhere(self) -> Resources:
        """Allocatable of the nodes of shards that are not held here."""
        return total(Resources.of(entry.total) for entry in self._other_entries())

    def free_elsewhere(self, queues: Collection[Queue]) -> Resources:
        """The part of it that no pod has; nothing while no queue has a guarantee."""
        if not any(queue.guarantee for queue in queues):
            return NOTHING
        return total(
            Resources.of(
                {
                    name: max(0, amount - entry.used.get(name, 0))
                    for name, amount in entry.total.items()
                }
            )
            for entry in self._other_entries()
        )

    def _other_entries(self) -> list[ShardEntry]:
        return [self.board.shards[name] for name in self.others if name in self.board.shards]

    def _foreign_parts(self, queue: str) -> list[ForeignQueuePart]:
        return [entry.queues[queue] for entry in self._other_entries() if queue in entry.queues]

    # -- what is told -----------------------------------------------------------------------
    def tell(
        self, statuses: Iterable[QueueStatus], foreign: Collection[str], *, tells_cluster: bool
    ) -> tuple[QueueStatus, ...]:
        """Statuses that say of which shards they are; of queues of other projects the sums.

        Args:
            statuses: of these shards.
            foreign: names of queues of other projects.
            tells_cluster: whether what concerns the cluster as a whole is told here.
        """
        mine = tuple(name for name in self.names if name in self.held)
        return tuple(
            attrs.evolve(
                self._sum_foreign(each) if each.name in foreign else each,
                shards=mine,
                other_shards=self.others,
                told_elsewhere=not tells_cluster,
            )
            for each in statuses
        )

    def _sum_foreign(self, status: QueueStatus) -> QueueStatus:
        parts = self._foreign_parts(status.name)
        return attrs.evolve(
            status,
            allocated=status.allocated.plus(total(part.resources for part in parts)),
            pending=status.pending + sum(part.pending for part in parts),
            inqueue=status.inqueue + sum(part.inqueue for part in parts),
            running=status.running + sum(part.running for part in parts),
        )


def foreign_parts(
    statuses: Iterable[QueueStatus], foreign: Collection[str]
) -> Mapping[str, ForeignQueuePart]:
    """What queues of other projects have in the shards of a daemon, by name, for the board."""
    return {
        each.name: ForeignQueuePart(
            allocated=dict(each.allocated.items),
            pending=each.pending,
            inqueue=each.inqueue,
            running=each.running,
        )
        for each in statuses
        if each.name in foreign and (each.allocated or each.pending or each.inqueue or each.running)
    }
