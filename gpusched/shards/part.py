"""The part of a cluster that a daemon decides about which holds the Leases of some shards.

Its nodes are those of these shards, its gangs those that the board says are in them, and of each queue it uses what
these shards are granted. Whatever the daemon is about to write on the board binds it before the write is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

import attrs
import msgspec

from gpusched import __version__
from gpusched.api.foreign.kinds import WORKLOADS
from gpusched.api.meta.identity import GangKey
from gpusched.api.meta.resources import Resources, total
from gpusched.api.node.node import Node
from gpusched.api.policy.reservation import AdvanceReservation
from gpusched.api.queue.queue import Queue
from gpusched.base.classes import define
from gpusched.cache.cache import Cache
from gpusched.cache.gangs.foreign.pod_grouper import STAGE
from gpusched.cache.gangs.gang import Gang
from gpusched.cache.part import ClusterPart, PlacedPods
from gpusched.cache.queues.queues_here import QueuesHere
from gpusched.cache.snapshot import Snapshot
from gpusched.session.framework.reasons import Reason, truncate_message
from gpusched.session.state.nodes.gpu_types import GpuTypeCache
from gpusched.session.state.plan import PendingReason, Plan
from gpusched.shards.account_grants import AccountGrants, lasting_here, used_elsewhere, users_here
from gpusched.shards.accounts import is_kept_in_one_shard
from gpusched.shards.asking_gangs import AskingGangs, free_of
from gpusched.shards.board import (
    COUNTS_NOT_PREEMPTIBLE,
    Board,
    ForeignQueuePart,
    ShardEntry,
)
from gpusched.shards.handover import (
    LACKS_ROOM,
    fits_nowhere,
    next_shard,
    preferred_shard,
    requests_of_starts,
    shard_without,
    with_amounts,
)
from gpusched.shards.last_resort import claiming_gangs, may_be_lent, without_claims
from gpusched.shards.layout import ShardLayout, gang_hash, stray_node_message
from gpusched.shards.lending import NodeLending, idle_nodes
from gpusched.shards.nodes import ShardNodes
from gpusched.shards.queue_parts import QueueParts, foreign_parts

TOLD_WITH_SHARD: Final = LACKS_ROOM | {Reason.WAITING_FOR_QUOTA, Reason.USER_LIMIT}
"""Reasons whose amounts are those of a shard, or are granted to it."""
FORGOTTEN_S: Final = 60.0
"""After which a gang that is gone is taken off the board."""
STRAYS_TOLD: Final = 4
"""Nodes that belong to no shard or to several, of which the board has a sentence each."""
_NONE: Final[frozenset[str]] = frozenset()


def _nothing_moved(_keys: Iterable[GangKey]) -> None:
    return


def _no_node_moved(_names: Iterable[str]) -> None:
    return


def gang_family(key: GangKey) -> GangKey:
    """The key of all stages of a gang: they are in one shard."""
    if key.kind in WORKLOADS and STAGE in key.name:
        return key._replace(name=key.name.partition(STAGE)[0])
    return key


@define(eq=False)
class ShardPart(ClusterPart):
    """See the module.

    Attributes:
        layout: of the configuration.
        identity: of the daemon.
        held: shards of which it holds the Leases, and that it decides about.
        first: the shard that it leads before others.
        board: as it was read last.
        sent: boards of which it is not known whether they were written.
        gone: shards of no configuration in force whose daemon is gone: they go from the board.
        counted: shards in which what queues use was counted since the layout is in force.
        nodes: which are in these shards.
        lending: of nodes between shards.
        moved: told of gangs that came here or went away.
        nodes_moved: told of nodes by name that did so.
        knows: whether a gang exists.
    """

    layout: ShardLayout
    identity: str = ""
    first: str = ""
    held: frozenset[str] = _NONE
    board: Board = attrs.Factory(Board)
    sent: list[Board] = attrs.Factory(list)
    gone: frozenset[str] = _NONE
    counted: frozenset[str] = _NONE
    nodes: ShardNodes = attrs.Factory(lambda self: ShardNodes(self.layout), takes_self=True)
    lending: NodeLending = attrs.Factory(lambda self: NodeLending(self.nodes), takes_self=True)
    moved: Callable[[Iterable[GangKey]], None] = _nothing_moved
    nodes_moved: Callable[[Iterable[str]], None] = _no_node_moved
    knows: Callable[[GangKey], bool] = lambda _key: True
    _keys: dict[str, GangKey] = attrs.Factory(dict)
    _hashes: dict[GangKey, str] = attrs.Factory(dict)
    _grants: AccountGrants = attrs.Factory(AccountGrants)
    _entries: dict[str, ShardEntry] = attrs.Factory(dict)
    _undivided: set[str] = attrs.Factory(set)
    _foreign: frozenset[str] = _NONE
    """Queues of other projects."""
    _queue_parts: Mapping[str, ForeignQueuePart] = attrs.Factory(dict)
    """What these have here."""
    _asking: AskingGangs = attrs.Factory(AskingGangs)
    _gpu_types: GpuTypeCache = attrs.Factory(GpuTypeCache)
    _ungranted: set[GangKey] = attrs.Factory(set)
    """Those of these that what is granted to another shard held here would be enough for."""
    _told: set[str] = attrs.Factory(set)
    """Reservations whose status is told here."""
    _too_large: set[GangKey] = attrs.Factory(set)
    _lacking: list[Gang] = attrs.Factory(list)
    _since: dict[GangKey, float] = attrs.Factory(dict)
    _passed_on: dict[str, str] = attrs.Factory(dict)
    _gone_since: dict[str, float] = attrs.Factory(dict)
    _looked: float = 0.0

    # -- what the cache asks ----------------------------------------------------------------
    @property
    def _first_held(self) -> str:
        return next((name for name in self.layout.names if name in self.held), "")

    def takes_node(self, node: Node) -> bool:
        """Whether the node is in a shard that is held, and in no other."""
        return self.nodes.takes(node, self.held, (self.board, *self.sent))

    def closes_node(self, name: str) -> bool:
        """Whether the shard to which the node was lent places nothing new on it, as it is wanted back."""
        return name in self.nodes.closed

    def forget_node(self, name: str) -> None:
        """A node is gone."""
        self.nodes.forget(name)

    def takes_gang(self, key: GangKey) -> bool:
        """Whether the gang is in a shard that is held, and is not being passed on."""
        return self._is_here(self._hash(key))

    def _hash(self, key: GangKey) -> str:
        key = gang_family(key)
        digits = self._hashes.get(key)
        if digits is None:
            digits = self._hashes[key] = gang_hash(key)
            self._keys[digits] = key
        return digits

    def _is_here(self, digits: str) -> bool:
        if digits in self._passed_on:
            return False
        return all(self._owner(board, digits) in self.held for board in (self.board, *self.sent))

    def _owner(self, board: Board, digits: str) -> str:
        owner = board.owners.get(digits, "")
        return owner if owner in self.layout.names else self.layout.first_owner(digits)

    def _forget_gang(self, digits: str) -> None:
        key = self._keys.pop(digits, None)
        if key is not None:
            del self._hashes[key]

    def shard_of_gang(self, key: GangKey) -> str:
        """The shard that a gang is in, as far as is known."""
        return self._owner(self.board, self._hash(key))

    @property
    def tells_cluster(self) -> bool:
        """Whether the first shard of the configuration is held."""
        return self.layout.names[0] in self.held

    def reservation_here(self, reservation: AdvanceReservation) -> AdvanceReservation | None:
        """What a Reservation keeps of these shards: its nodes that are here, and some where it chooses them here."""
        told = self._tells_reservation(reservation)
        (self._told.add if told else self._told.discard)(reservation.name)
        if reservation.chooses and not told:
            return None
        if not reservation.node_names:
            return reservation
        names = tuple(
            name
            for name in reservation.node_names
            if not (shard := self.nodes.shard_of(name, self.board)) or shard in self.held
        )
        return attrs.evolve(reservation, node_names=names) if names else None

    def _tells_reservation(self, reservation: AdvanceReservation) -> bool:
        """Whether its nodes are chosen here, where it does, and its status is told."""
        homes = (self.nodes.home(name) for name in reservation.node_names)
        named = next((home for home in homes if home), "")
        labels = dict(reservation.node_selector)
        return (named or self.layout.shard_of_labels(labels)) in self.held

    def queues_here(self, queues: Collection[Queue]) -> QueuesHere:
        """What is to be had of queues in the shards that are held."""
        return QueuesHere(
            shares=self._parts.shares(queues),
            capped_elsewhere={
                queue.name: self._grants.held_elsewhere(queue, self._boards, self.held)
                for queue in queues
                if queue.capability or queue.pool_capability
            },
            users=users_here(queues, self._boards, self.held),
            lasting=lasting_here(queues, self._boards, self.held) if self._divides_lasting else {},
            used_elsewhere=used_elsewhere(self.board, self.held),
            held_elsewhere=self._parts.held_elsewhere(queues),
            total_elsewhere=self._parts.total_elsewhere(),
            free_elsewhere=self._parts.free_elsewhere(queues),
            tells_cluster=self.tells_cluster,
        )

    def bound_not_preemptible(self, *, within_deserved: bool) -> None:
        """Whether gangs that are not preemptible stay within what queues deserve, from the next snapshot on."""
        self._grants.accounts.bounds_not_preemptible = within_deserved

    @property
    def _divides_lasting(self) -> bool:
        """Whether what queues deserve is granted to such gangs by shard: where all daemons count what they hold."""
        others = [name for name in self.layout.names if name not in self.held]
        entries = [self.board.shards.get(name, ShardEntry()) for name in others]
        return self._grants.accounts.bounds_not_preemptible and all(
            entry.counts >= COUNTS_NOT_PREEMPTIBLE for entry in entries
        )

    @property
    def _parts(self) -> QueueParts:
        return QueueParts(self.layout.names, self.held, self.board)

    @property
    def _boards(self) -> tuple[Board, ...]:
        """Boards that may be the one in force, that which was read last before others."""
        return (self.board, *self.sent)

    def note_snapshot(self, snapshot: Snapshot) -> None:
        """Count what queues and users hold in each shard, before anything more is started."""
        tree = snapshot.queues.queues
        self._foreign = frozenset(name for name, node in tree.items() if node.queue.source)
        first = self.board.shards.get(self.layout.names[0], ShardEntry())
        counts = COUNTS_NOT_PREEMPTIBLE if self.tells_cluster else first.counts
        undivided = {
            name for name, node in tree.items() if is_kept_in_one_shard(node.queue, counts)
        }
        self._undivided = {name for name, node in tree.items() if undivided & {*node.path}}
        self._grants.count_used(snapshot, self.held, self.shard_of_gang)
        self._pass_before_placed(snapshot)

    def _pass_before_placed(self, snapshot: Snapshot) -> None:
        """Pass gangs on, before they are placed, that have been in no other shard and cannot be here, or prefer another."""
        free = {shard: dict(entry.free) for shard, entry in self.board.shards.items()}
        moved = []
        for gang in snapshot.gangs:
            digits, here = self._hash(gang.key), self.shard_of_gang(gang.key)
            if digits in self.board.owners or digits in self._passed_on or here not in self.held:
                continue
            if not gang.pod_sets or not _may_move(gang) or gang.queue in self._undivided:
                continue
            to = shard_without(gang, here, self.layout, self.board)
            to = to or preferred_shard(gang, here, self.layout, self.board, free=free)
            if to:
                self._passed_on[digits] = to
                moved.append(gang.key)
        self.moved(moved)

    def start_gang(self, gang: GangKey, path: tuple[str, ...], pods: PlacedPods) -> str:
        """Count the start of a gang; why it must not start now, empty when it is counted."""
        if not self.takes_gang(gang):
            return f"{gang} is passed on to another shard"
        shard = self.shard_of_gang(gang)
        if shard != self.layout.names[0] and path and path[0] in self._undivided:
            return f"gangs of queue {path[0]} start in shard {self.layout.names[0]} alone"
        charges = dict(self._grants.accounts.charges(gang, path, pods))
        error = self._grants.start_error(
            charges, shard, self._boards, divides_lasting=self._divides_lasting
        )
        if error:
            self._ungranted.add(gang)
        else:
            self._ungranted.discard(gang)
        return error

    def take_effect(self, cache: Cache) -> None:
        """Have the cache decide about what is held now, which is more, or less, than before."""
        cache.part = self
        self._grants.accounts.find_node = cache.rows.find_any
        cache.families.takes_gang = self.takes_gang
        cache.rows.use_part(self.takes_node, self.closes_node, self.forget_node)
        cache.families.mark_all_seen()

    # -- after a session --------------------------------------------------------------------
    def without_needless_claims(self, snapshot: Snapshot, plan: Plan) -> Plan:
        """The plan without evictions for gangs that are passed on to a shard with room, or may be lent nodes."""
        free = {shard: dict(entry.free) for shard, entry in self.board.shards.items()}
        why: dict[GangKey, str] = {}
        passed = []
        for gang in claiming_gangs(snapshot, plan):
            digits, here = self._hash(gang.key), self.shard_of_gang(gang.key)
            waited_s = snapshot.now - self._since.get(gang.key, snapshot.now)
            to = ""
            if gang.queue not in self._undivided and _may_move(gang):
                to = next_shard(
                    gang, here, self.layout, self.board, free=free,
                    began=self.layout.first_owner(digits), evicts=True,
                )  # fmt: skip
            if to:
                self._passed_on[digits] = to
                passed.append(gang.key)
                why[gang.key] = (
                    f"passed on to shard {to}, which has as much free as it starts with: nobody is evicted for it"
                )
            elif may_be_lent(gang, here, snapshot, self.layout, self.board, waited_s=waited_s):
                why[gang.key] = "waits for nodes of other shards before others are evicted for it"
        self.moved(passed)
        return without_claims(plan, why) if why else plan

    def note_decisions(
        self, snapshot: Snapshot, plan: Plan, *, promised: Collection[str] = ()
    ) -> None:
        """What queues lack in these shards, which gangs and nodes are passed on, and how the shards are.

        Args:
            snapshot: that was decided on.
            plan: that came of it.
            promised: names of nodes that are kept for somebody.
        """
        self._ungranted &= {gang.key for gang in snapshot.gangs if gang.pod_sets}
        started = {each.gang for each in plan.binds} - self._ungranted
        waiting = [gang for gang in snapshot.gangs if gang.pod_sets and gang.key not in started]
        self._asking.note_session({gang.key for gang in waiting}, plan, self._ungranted)
        binds = [each for each in plan.binds if each.gang in started]
        self._note_entries(snapshot, waiting, requests_of_starts(snapshot.gangs, binds))
        free = {shard: free_of(entry) for shard, entry in self._entries.items()}
        asking = self._asking.find(
            waiting,
            lambda gang: free.get(self.shard_of_gang(gang.key), {}),
            lambda gang: self._grants.lacks_pool(gang, self.shard_of_gang(gang.key), self._boards),
            snapshot.now,
        )
        self._grants.note_needs(
            waiting, asking, self.held, self.shard_of_gang, self.board,
            promised=self._asking.promised,
        )  # fmt: skip
        self.counted = self.held
        self._pass_on(waiting, plan, snapshot.now)
        self._lend_nodes(snapshot, plan, promised)

    def _note_entries(
        self, snapshot: Snapshot, waiting: list[Gang], starts: Mapping[GangKey, Resources]
    ) -> None:
        columns, strays, several = snapshot.nodes, self.nodes.strays, len(self.held) > 1
        for shard in self.held:
            rows = [
                row
                for row, node in enumerate(columns.nodes)
                if not several or self.nodes.shard_of(node.name, self.board) == shard
            ]
            own = [gang for gang in waiting if self.shard_of_gang(gang.key) == shard]
            entry = ShardEntry(
                holder=self.identity,
                first=self.first,
                layout=self.layout.digest,
                version=__version__,
                counts=COUNTS_NOT_PREEMPTIBLE,
                pools=self._grants.accounts.totals(rows),
                queues=dict(self._queue_parts) if shard == self._first_held else {},
                strays=len(strays),
                stray_nodes=[
                    stray_node_message(*each) for each in sorted(strays.items())[:STRAYS_TOLD]
                ],
            )
            here = (each for gang, each in starts.items() if self.shard_of_gang(gang) == shard)
            self._entries[shard] = with_amounts(
                entry, columns, rows, own,
                starts=total(here), types=self._gpu_types.of_nodes(columns),
            )  # fmt: skip

    def _pass_on(self, waiting: list[Gang], plan: Plan, now: float) -> None:
        lacking = {
            status.gang
            for status in plan.gangs
            if status.scheduled.reason in LACKS_ROOM and not status.nominated
        }
        self._since = {
            gang.key: self._since.get(gang.key, now)
            for gang in waiting
            if gang.key in lacking or gang.key in self._since
        }
        self._lacking = [gang for gang in waiting if gang.key in lacking]
        free = {shard: dict(entry.free) for shard, entry in self.board.shards.items()}
        board, moved = self._board_with_entries(), []
        self._too_large = {
            gang.key
            for gang in waiting
            if gang.key in lacking and fits_nowhere(gang, self.layout, board)
        }
        for gang in waiting:
            here = self.shard_of_gang(gang.key)
            if here not in self.held or not self.takes_gang(gang.key) or not _may_move(gang):
                continue
            to = ""
            if gang.queue in self._undivided:
                to = self.layout.names[0] if here != self.layout.names[0] else ""
            elif gang.key in lacking:
                to = next_shard(
                    gang, here, self.layout, board, free=free,
                    began=self.layout.first_owner(self._hash(gang.key)),
                    waited_s=now - self._since[gang.key],
                )  # fmt: skip
            if to:
                self._passed_on[self._hash(gang.key)] = to
                moved.append(gang.key)
        self.moved(moved)

    def _lend_nodes(self, snapshot: Snapshot, plan: Plan, promised: Collection[str]) -> None:
        if not (self.layout.lends_any or self.board.nodes):
            return
        for shard in self.held:
            lacking = [
                (gang, self._hash(gang.key))
                for gang in self._lacking
                if self.shard_of_gang(gang.key) == shard and self.takes_gang(gang.key)
            ]
            self.lending.ask(shard, lacking, self._since, snapshot, self.board)
        idle = []
        if self.lending.concerns(self.board, self.held):
            idle = idle_nodes(snapshot, plan, promised)
            kept = [
                each
                for each in snapshot.reservations
                if each.current_window(snapshot.now) is not None
            ]
            # What others lent goes home, unless it may have been chosen here.
            idle = [
                node
                for node in idle
                if not any(
                    (each.chooses or node.name not in self.board.nodes)
                    and each.may_keep(node.name, node.labels)
                    for each in kept
                )
            ]
        nodes = snapshot.nodes.nodes
        self.nodes_moved(self.lending.call_back(nodes, self.board, self.held, idle=idle))
        self.nodes_moved(self.lending.pass_on(idle, self.board, self.held, snapshot.now))

    def _board_with_entries(self) -> Board:
        return msgspec.structs.replace(self.board, shards={**self.board.shards, **self._entries})

    def tell_shards(self, plan: Plan) -> Plan:
        """The plan with statuses that say of which shards they are, and where gangs wait for room."""
        self._queue_parts = foreign_parts(plan.queues, self._foreign)
        return attrs.evolve(
            plan,
            topologies=plan.topologies if self.tells_cluster else (),
            reservations=tuple(each for each in plan.reservations if each.name in self._told),
            queues=self._parts.tell(plan.queues, self._foreign, tells_cluster=self.tells_cluster),
            gangs=tuple(
                attrs.evolve(each, scheduled=self._with_shard(each.gang, each.scheduled))
                if each.scheduled.reason in TOLD_WITH_SHARD and self.takes_gang(each.gang)
                else each
                for each in plan.gangs
            ),
        )

    def _with_shard(self, gang: GangKey, reason: PendingReason) -> PendingReason:
        where = f"; in shard {self.shard_of_gang(gang)}"
        if reason.message.endswith("stand in line"):
            return reason  # lines of users go through all shards
        if reason.reason not in LACKS_ROOM:
            if self._asking.was_in_vain(gang):
                where += ", which had no room for it when it was granted enough"
            return attrs.evolve(reason, message=truncate_message(reason.message + where))
        if gang in self._too_large:
            where = "; no shard has room for it: gangs do not span shards"
        wish = self.lending.wishes.get(self.shard_of_gang(gang))
        if wish is not None and wish.gang == self._hash(gang):
            nodes = "node is" if wish.nodes == 1 else "nodes are"
            asked = "asked back, if idle" if wish.home else "asked of other shards"
            where = f"{where}; {wish.nodes} more {nodes} {asked}"
        return attrs.evolve(reason, message=truncate_message(reason.message + where))

    # -- the board --------------------------------------------------------------------------
    @property
    def in_force(self) -> bool:
        """Whether the layout of this daemon is the one that counts."""
        return self.board.layout == self.layout.digest

    @property
    def unknown_shards(self) -> frozenset[str]:
        """Shards on the board that the layout in force does not have: a daemon of another one named them."""
        names = self.board.shards.keys() if self.in_force else ()
        return frozenset(names) - {*self.layout.names}

    def read(self, board: Board) -> None:
        """The board as it is now: gangs and grants follow it."""
        before, self.board = self.board, board
        if self.in_force and before.layout != board.layout:
            self.counted = _NONE
        changed = {
            digits
            for digits in {*before.owners, *board.owners}
            if self._owner(before, digits) != self._owner(board, digits)
        }
        for digits in changed:
            self._passed_on.pop(digits, None)
        self.moved([self._keys[digits] for digits in sorted(changed) if digits in self._keys])
        self.nodes_moved(self.nodes.note_board(before, board))

    def claim(self, shard: str) -> ShardEntry:
        """What is written when a shard was taken, before anything is decided about it."""
        known = self.board.shards.get(shard, ShardEntry())
        return msgspec.structs.replace(
            known,
            holder=self.identity,
            first=self.first,
            layout=self.layout.digest,
            version=__version__,
            counts=COUNTS_NOT_PREEMPTIBLE,
            settled=known.settled and known.layout == self.layout.digest and self.in_force,
        )

    def proposal(self, now: float) -> Board:
        """The board as it should be; what was read where nothing is to be changed."""
        board = self.board
        shards = {**board.shards, **{name: self._entry(name) for name in self.held}}
        if not self.in_force:
            others = [each for each in shards.values() if each.layout != self.layout.digest]
            if others:
                return msgspec.structs.replace(board, shards=shards)
            names = self.layout.names
            owners = {digits: shard for digits, shard in board.owners.items() if shard in names}
            nodes = {name: shard for name, shard in board.nodes.items() if shard in names}
            return Board(layout=self.layout.digest, shards=shards, owners=owners, nodes=nodes)
        for name in self.unknown_shards & self.gone:
            del shards[name]
        if not self.counted:
            return msgspec.structs.replace(board, shards=shards)
        return msgspec.structs.replace(
            board,
            shards=shards,
            grants=self._grants.settled(self._boards, self.counted, self.layout.names),
            owners=self._owners(now),
            nodes=self.nodes.rows(board, self.held, now),
        )

    def _entry(self, shard: str) -> ShardEntry:
        known = self.board.shards.get(shard, ShardEntry())
        entry = self._entries.get(shard) or self.claim(shard)
        return msgspec.structs.replace(
            entry,
            idle=self.lending.idle.get(shard, 0),
            wish=self.lending.wishes.get(shard),
            settled=self.in_force and (shard in self.counted or known.settled),
            wanted="" if shard == self.first else known.wanted,
        )

    def _owners(self, now: float) -> dict[str, str]:
        if now - self._looked >= FORGOTTEN_S:
            self._looked = now
            for digits in [digits for digits, key in self._keys.items() if not self.knows(key)]:
                self._forget_gang(digits)
        owners = dict(self.board.owners)
        owners.update(
            {
                digits: shard
                for digits, shard in self._passed_on.items()
                if self._owner(self.board, digits) in self.held
            }
        )
        for digits, shard in self.board.owners.items():
            key = self._keys.get(digits)
            if shard not in self.held or (key is not None and self.knows(key)):
                self._gone_since.pop(digits, None)
            elif now - self._gone_since.setdefault(digits, now) >= FORGOTTEN_S:
                del owners[digits], self._gone_since[digits]
                self._forget_gang(digits)
        return owners


def _may_move(gang: Gang) -> bool:
    """Whether nothing of a gang is placed, leaving or being started."""
    started = gang.job is not None and not gang.suspended and gang.expected_count
    return not (gang.placed or gang.leaving or started)
