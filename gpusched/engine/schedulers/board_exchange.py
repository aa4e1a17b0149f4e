"""The board by which simulated daemons of shards agree, which each reads and writes when its daemon would.

Each holds one shard from the beginning to the end. Every write is taken at once, so that none is ever in doubt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from functools import partial
from math import ceil

import msgspec

from gpusched.api.meta.identity import GangKey
from gpusched.api.pod.gang_membership import gang_key_of
from gpusched.cache.cache import Cache
from gpusched.cache.snapshot import Snapshot
from gpusched.config.model import Config
from gpusched.engine.schedulers.scheduler import SimulatedScheduler
from gpusched.engine.world import EventQueue
from gpusched.session.decide import Decision
from gpusched.session.state.plan import Plan
from gpusched.shards.board import READ_EVERY_S, WRITES_APART_S, Board
from gpusched.shards.layout import ShardLayout, gang_hash
from gpusched.shards.part import ShardPart, gang_family


class ShardMember:
    """One daemon's part in the exchange.

    Args:
        layout: of the configuration.
        shard: that it holds.
        scheduler: that decides about it.
        now: the time in seconds since the beginning.
    """

    def __init__(
        self,
        layout: ShardLayout,
        shard: str,
        scheduler: SimulatedScheduler,
        now: Callable[[], float],
    ) -> None:
        self.scheduler = scheduler
        self.part = ShardPart(
            layout, identity=shard, first=shard, held=frozenset((shard,)),
            knows=scheduler.cache.families.is_known, moved=self._gangs_moved,
            nodes_moved=self._nodes_moved,
        )  # fmt: skip
        self.part.bound_not_preemptible(within_deserved=scheduler.policy.bounds_not_preemptible)
        self.part.take_effect(scheduler.cache)
        self.looked_at = 0.0
        """When it looked at the board last, seconds since the beginning."""
        self.due_at: float | None = None
        """When it looks next, where that was planned."""
        self._now = now

    def _gangs_moved(self, keys: Iterable[GangKey]) -> None:
        if moved := [gang_family(key) for key in keys]:
            self.scheduler.cache.show_again(moved)
            self.scheduler.note_change(self._now())

    def _nodes_moved(self, names: Iterable[str]) -> None:
        if moved := [*names]:
            self.scheduler.cache.rows.look_again(moved)
            self.scheduler.note_change(self._now())

    def end_rests(self, wall: float) -> None:
        """Nodes that came from other shards may be used when they have rested."""
        if self.part.nodes.end_rests(wall):
            self.part.take_effect(self.scheduler.cache)
            self.scheduler.note_change(self._now())


class BoardExchange:
    """See the module.

    Args:
        config: with shards.
        schedulers: one for each of them, in their order.
        agenda: of the simulated cluster.
        now: the time in seconds since the beginning.
        epoch: wall time at second 0.
        known: the board of the daemons, of which grants, and the shards of gangs and of lent nodes, are taken over.
    """

    def __init__(
        self,
        config: Config,
        schedulers: Collection[SimulatedScheduler],
        agenda: EventQueue,
        now: Callable[[], float],
        *,
        epoch: float,
        known: Board | None = None,
    ) -> None:
        layout = ShardLayout.from_config(config)
        self._agenda, self._now, self._epoch = agenda, now, epoch
        self.members = tuple(
            ShardMember(layout, shard, scheduler, now)
            for shard, scheduler in zip(layout.names, schedulers, strict=True)
        )
        entries = {each.part.first: each.part.claim(each.part.first) for each in self.members}
        self.board = Board(layout=layout.digest, shards=entries)
        """As it was written last."""
        self._known = known
        for member in self.members:
            member.part.read(self.board)
            member.part.nodes.end_rests(epoch)

    def follow_places(self) -> None:
        """Let daemons begin as those that were there before: by what they said of gangs and nodes, else by where gangs are."""
        part, cache = self.members[0].part, self.members[0].scheduler.cache
        if self._known is not None and self._known.layout == part.layout.digest:
            self.board = msgspec.structs.replace(
                self.board,
                owners=self._known.owners,
                nodes=self._known.nodes,
                grants=self._known.grants,
            )
        else:
            self._follow_pods(part, cache)
        self._take_effect()
        if cache.ledger.node_names():
            self._count_all()
            self._take_effect()

    def _follow_pods(self, part: ShardPart, cache: Cache) -> None:
        """Put gangs that have places into the shards where most of their pods are, and lend the other nodes of theirs."""
        homes: dict[str, Counter[str]] = {}
        on_node: dict[str, set[str]] = {}
        for pod in cache.pods.values():
            home = part.nodes.home(pod.node)
            if pod.holds and home and pod.scheduler in cache.schedulers:
                digits = gang_hash(gang_family(gang_key_of(pod)))
                homes.setdefault(digits, Counter())[home] += 1
                on_node.setdefault(pod.node, set()).add(digits)
        owners = {
            digits: max(sorted(counts), key=counts.__getitem__) for digits, counts in homes.items()
        }
        nodes = {}
        for node, gangs in sorted(on_node.items()):
            there = {owners[digits] for digits in gangs}
            if len(there) == 1 and part.nodes.home(node) not in there:
                nodes[node] = there.pop()
        first = part.layout.first_owner
        self.board = msgspec.structs.replace(
            self.board,
            nodes=nodes,
            owners={
                digits: shard for digits, shard in sorted(owners.items()) if shard != first(digits)
            },
        )

    def _take_effect(self) -> None:
        for member in self.members:
            member.part.read(self.board)
            member.part.take_effect(member.scheduler.cache)

    def _count_all(self) -> None:
        """Let the board have what all of them count, as that of daemons which were there before has it."""
        for member in self.members:
            snapshot = member.scheduler.cache.take_snapshot(self._wall)
            member.part.note_snapshot(snapshot)
            member.part.note_decisions(snapshot, Plan(revision=snapshot.revision))
            self.board = member.part.proposal(self._wall)
            for each in self.members:
                each.part.read(self.board)

    def note_session(
        self, part: ShardPart, snapshot: Snapshot, told: Plan, decision: Decision
    ) -> None:
        """A session of one of them was held.

        Args:
            part: of its daemon.
            snapshot: that was decided on.
            told: the plan, with what is told of it.
            decision: that came of the session.
        """
        promised = {name for room in decision.reserved for name in room.nodes}
        part.note_decisions(snapshot, told, promised=promised)
        member = next(each for each in self.members if each.part is part)
        if part.nodes.are_resting or part.proposal(self._wall) != self.board:
            self._plan_look(member, max(self._now(), member.looked_at + WRITES_APART_S))

    @property
    def _wall(self) -> float:
        return self._epoch + self._now()

    def _plan_look(self, member: ShardMember, at: float) -> None:
        if member.due_at is None or at < member.due_at:
            member.due_at = at
            self._agenda.at(at, partial(self._look, member, at), news=False)

    def _look(self, member: ShardMember, at: float) -> None:
        """Read the board, follow it, and write what is to be changed."""
        if member.due_at != at:
            return  # it looked before
        member.looked_at, member.due_at = at, None
        before = member.part.board
        member.end_rests(self._wall)
        member.part.read(self.board)
        proposal = member.part.proposal(self._wall)
        if proposal != self.board:
            self.board = proposal
            member.part.read(proposal)
            for other in self.members:
                if other is not member:
                    self._plan_look(other, self._next_read(other))
        board = member.part.board
        if board != before:
            member.scheduler.note_others(self._now())
        if board.grants != before.grants or board.lending != before.lending:
            member.scheduler.note_change(self._now())
        if member.part.nodes.are_resting:
            self._plan_look(member, at + READ_EVERY_S)

    def _next_read(self, member: ShardMember) -> float:
        passed = self._now() - member.looked_at
        return member.looked_at + max(1, ceil(passed / READ_EVERY_S)) * READ_EVERY_S


__all__ = ["BoardExchange"]
