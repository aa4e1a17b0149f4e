"""Lends idle nodes to a shard in which a gang waits that needs more room than there is in any one shard.

A node is in one shard at a time: that of its labels, or the one that the board names. As with gangs only the holder of
the shard that a node is in may pass it on, and it places nothing there any more before it writes that. Only nodes on
which nothing of ours runs and nothing is promised are passed on, so that nobody has to wait for what was decided there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

import attrs
import msgspec

from gpusched.api.meta.identity import GangKey
from gpusched.api.node.node import Node
from gpusched.arrays.columns import NodeColumns, how_many_fit, pod_class_vector
from gpusched.base.classes import define
from gpusched.cache.gangs.gang import Gang, PodSet
from gpusched.cache.snapshot import Snapshot
from gpusched.session.state.plan import Plan
from gpusched.shards.board import Board, MemberNeeds, NodeWish
from gpusched.shards.nodes import ShardNodes

ASKED_AFTER_S: Final = 20.0
"""For which a gang has lacked room in a shard before nodes of others are asked for: twice what it takes to be passed on."""
RETURNED_AFTER_S: Final = 60.0
"""After which a node that was lent and on which nothing runs is given back."""
ASKED_AGAIN_AFTER_S: Final = 600.0
"""For which nothing is asked for a gang that did not use what was lent for it."""
ASKED_MAX: Final = 64
"""Nodes that are asked for at a time."""
NEEDS_BYTES_MAX: Final = 4096
"""Longest text of what members need: tenants write it, and the board has room for a megabyte."""


def node_wish(gang: Gang, digits: str, columns: NodeColumns, *, lent: int) -> NodeWish | None:
    """What a gang that waits lacks; None where more nodes would not help or cannot be described.

    Args:
        gang: of which no member has a place.
        digits: its hash.
        columns: nodes of its shard.
        lent: how many of them are of other shards.
    """
    if (
        gang.placed
        or gang.topology.required
        or any(each.pod_class.claims for each in gang.pod_sets)
    ):
        return None
    parts = _members_at_start(gang)
    needs = {pod_set.pod_class.digest: _needs(pod_set) for pod_set, _ in parts}
    if len(msgspec.json.encode(needs)) > NEEDS_BYTES_MAX:
        return None
    needed = sum(
        _nodes_lacking(pod_set, count, needs[pod_set.pod_class.digest], columns)
        for pod_set, count in parts
    )
    if not needed:
        return None
    return NodeWish(
        gang=digits, since=gang.created, nodes=min(needed, ASKED_MAX), lent=lent,
        members=tuple(needs.values()),
    )  # fmt: skip


def _members_at_start(gang: Gang) -> list[tuple[PodSet, int]]:
    """Members that it starts with by class, those with most GPUs first."""
    left, parts = gang.members_at_start, []
    for pod_set in sorted(gang.pod_sets, key=lambda each: each.pod_class.gpus, reverse=True):
        count = min(left, len(pod_set.pods))
        left -= count
        if count:
            parts.append((pod_set, count))
    return parts


def _nodes_lacking(pod_set: PodSet, count: int, needs: MemberNeeds, columns: NodeColumns) -> int:
    """Nodes like those of the shard that its members need beside what is free now."""
    request = pod_class_vector(pod_set.pod_class, columns.columns)
    if request.missing or not len(columns):
        return count
    asked = request.columns
    usable = [row for row, node in enumerate(columns.nodes) if suits(needs, node)]
    free = (columns.allocatable - columns.used)[usable][:, asked]
    here = min(count, int(how_many_fit(free, request.amounts).clip(max=count).sum()))
    each = int(how_many_fit(columns.allocatable[:, asked], request.amounts).max(initial=0))
    return -(-(count - here) // max(1, each))


def _needs(pod_set: PodSet) -> MemberNeeds:
    pod_class = pod_set.pod_class
    return MemberNeeds(
        amounts=dict(pod_class.requests.items),
        selector=dict(pod_class.node_selector),
        affinity=pod_class.affinity,
        tolerations=pod_class.tolerations,
    )


def suits(needs: MemberNeeds, node: Node) -> bool:
    """Whether a member could be on a node that is empty."""
    return (
        not node.not_ready
        and not node.unschedulable
        and all(node.labels.get(key) == value for key, value in needs.selector.items())
        and (
            needs.affinity is None
            or any(term.matches(node.labels, name=node.name) for term in needs.affinity)
        )
        and all(any(each.tolerates(taint) for each in needs.tolerations) for taint in node.taints)
        and all(node.allocatable.get(name) >= amount for name, amount in needs.amounts.items())
    )


def idle_nodes(snapshot: Snapshot, plan: Plan, promised: Collection[str]) -> list[Node]:
    """Nodes on which no pod is but those of DaemonSets, and for which none is on its way, sorted by name.

    Args:
        snapshot: that was decided on.
        plan: that came of it.
        promised: names of nodes that are kept for somebody.
    """
    taken = {bind.node for gang in plan.binds for bind in gang.binds}
    taken |= {node for status in plan.gangs for _, node in status.nominated}
    taken |= {*promised}
    return [
        node
        for node, pods in zip(snapshot.nodes.nodes, snapshot.pods_by_node.pods, strict=True)
        if node.name not in taken
        and all(pod.owner is not None and pod.owner.kind == "DaemonSet" for pod in pods)
    ]


@define(eq=False)
class NodeLending:
    """What one daemon asks for and lends.

    Attributes:
        nodes: of its shards.
        wishes: of its shards, by shard.
        idle: numbers of nodes that its shards would lend, by shard.
    """

    nodes: ShardNodes
    wishes: dict[str, NodeWish] = attrs.Factory(dict)
    idle: dict[str, int] = attrs.Factory(dict)
    _idle_since: dict[str, float] = attrs.Factory(dict)
    _in_vain: dict[str, float] = attrs.Factory(dict)

    def ask(
        self,
        shard: str,
        lacking: Iterable[tuple[Gang, str]],
        since: Mapping[GangKey, float],
        snapshot: Snapshot,
        board: Board,
    ) -> None:
        """Ask for nodes for the gang that has waited longest for room in a shard, if that would help it.

        Those of the shard that are lent and idle are asked back at once, others when it has waited for a while.

        Args:
            shard: that is held.
            lacking: gangs that wait for room in it, with their hashes.
            since: when each of them came to lack room here.
            snapshot: that was decided on.
            board: as it was read last.
        """
        self.wishes.pop(shard, None)
        others = (each for each in self.nodes.layout.shards if each.name != shard)
        has_lent = self._has_lent(shard, board)
        if not any(each.lends_nodes for each in others) and not has_lent:
            return
        # Those that the board has just named are not counted in what is free.
        rows = snapshot.nodes.row
        lent = sum(name in rows for name in self.nodes.lent_to(shard, board))
        for gang, digits in sorted(lacking, key=lambda each: (each[0].created, each[0].key)):
            home = snapshot.now - since.get(gang.key, snapshot.now) < ASKED_AFTER_S
            if home and not has_lent:
                continue
            if snapshot.now - self._in_vain.get(digits, float("-inf")) < ASKED_AGAIN_AFTER_S:
                continue
            wish = node_wish(gang, digits, snapshot.nodes, lent=lent)
            if wish is not None:
                self.wishes[shard] = msgspec.structs.replace(wish, home=home)
                return

    def _has_lent(self, shard: str, board: Board) -> bool:
        return any(self.nodes.home(name) == shard != to for name, to in board.nodes.items())

    def concerns(self, board: Board, held: frozenset[str]) -> bool:
        """Whether another shard asks for nodes, or these shards have some that are lent."""
        asked = (entry.wish for shard, entry in board.shards.items() if shard not in held)
        return any(each is not None for each in asked) or not held.isdisjoint(board.nodes.values())

    def pass_on(
        self, idle: list[Node], board: Board, held: Collection[str], now: float
    ) -> list[str]:
        """Give back what is not used, and lend to who waits; the names of the nodes that go.

        Args:
            idle: nodes on which nothing is.
            board: as it was read last.
            held: shards.
            now: seconds since the epoch.
        """
        given = self._give_back(idle, board, held, now)
        mine = [
            node
            for node in idle
            if node.name not in board.nodes
            and node.name not in self.nodes.given
            and self.nodes.layout.lends(self.nodes.home(node.name))
        ]
        self.idle = dict.fromkeys(held, 0)
        for node in mine:
            self.idle[self.nodes.home(node.name)] += 1
        wishes = [
            (entry.wish, shard)
            for shard, entry in board.shards.items()
            if entry.wish is not None and shard not in held and not entry.wish.home
        ]
        for wish, shard in sorted(wishes, key=lambda each: (each[0].since, each[0].gang)):
            if self._older_wish(wish):
                break
            count = self._part_of(wish, shard, board, held)
            fit = [node for node in mine if any(suits(needs, node) for needs in wish.members)]
            for node in fit[:count]:
                self.nodes.given[node.name] = shard
                given.append(node.name)
                mine.remove(node)
        return given

    def call_back(
        self,
        nodes: Iterable[Node],
        board: Board,
        held: frozenset[str],
        *,
        idle: Collection[Node] = (),
    ) -> frozenset[str]:
        """Close nodes that were lent to these shards to what is new, as a gang waits for them where they belong.

        What runs there ends as it would; then the node goes back. A gang of these shards that lacks nodes and is older
        comes first.

        Args:
            nodes: of these shards.
            board: as it was read last.
            held: shards.
            idle: nodes on which nothing is.

        Returns:
            Names of the nodes that are closed now and were not, or the other way round.
        """
        before, closed = self.nodes.closed, set[str]()
        unused = {node.name for node in idle}
        lent = [node for node in nodes if board.nodes.get(node.name) in held]
        for shard, entry in board.shards.items():
            wish = entry.wish
            if wish is None or shard in held or self._older_wish(wish):
                continue
            own = [
                node
                for node in lent
                if self.nodes.home(node.name) == shard
                and (not wish.home or node.name in unused)
                and (node.name in before or any(suits(needs, node) for needs in wish.members))
            ]
            own.sort(key=lambda node: (node.name not in before, node.name))
            closed.update(node.name for node in own[: wish.nodes])
        self.nodes.closed = frozenset(closed)
        return before ^ self.nodes.closed

    def _older_wish(self, wish: NodeWish) -> bool:
        """Whether a gang of one's own lacks nodes and came before the one of the wish."""
        return any((own.since, own.gang) < (wish.since, wish.gang) for own in self.wishes.values())

    def _part_of(self, wish: NodeWish, shard: str, board: Board, held: Collection[str]) -> int:
        """How many nodes these shards lend for a wish: those that the shards asked before them have not got.

        None where all that lend have too few together: parts would help nobody.
        """
        names = self.nodes.layout.names
        start = names.index(shard)
        given = (name for name, to in self.nodes.given.items() if to == shard)
        under_way = len({*self.nodes.lent_to(shard, board), *given}) - wish.lent
        left = wish.nodes - max(0, under_way)
        free = {
            name: self.idle[name] if name in held else board.shards[name].idle
            for name in (*names[start + 1 :], *names[:start])
            if name in held or name in board.shards
        }
        if left <= 0 or sum(free.values()) < left:
            return 0
        mine = 0
        for name, count in free.items():
            part = min(count, left)
            left -= part
            mine += part if name in held else 0
        return mine

    def _give_back(
        self, idle: list[Node], board: Board, held: Collection[str], now: float
    ) -> list[str]:
        names = {node.name for node in idle}
        given: list[str] = []
        there = board.nodes.keys()
        self._idle_since = {name: at for name, at in self._idle_since.items() if name in there}
        for name, shard in board.nodes.items():
            home = self.nodes.home(name)
            if shard not in held or not home or name not in names or name in self.nodes.given:
                self._idle_since.pop(name, None)
            elif (closed := name in self.nodes.closed) or (
                now - self._idle_since.setdefault(name, now) >= RETURNED_AFTER_S
            ):
                if (wish := self.wishes.get(shard)) is not None and not closed:
                    self._in_vain[wish.gang] = now
                self.nodes.given[name] = home
                given.append(name)
        self._in_vain = {
            gang: at for gang, at in self._in_vain.items() if now - at < ASKED_AGAIN_AFTER_S
        }
        return given
