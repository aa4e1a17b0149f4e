"""Which nodes are in the shards that one daemon holds: by their labels, unless the board says that they are lent."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Final

import attrs

from gpusched.api.node.node import Node
from gpusched.base.classes import define
from gpusched.shards.board import Board
from gpusched.shards.layout import ShardLayout

REST_S: Final = 30.0
"""For which nothing is placed on a node whose labels came to name another shard: what was decided there before is
seen by then. A node that is lent needs no rest: who lends it has nothing on it."""
NODE_GONE_S: Final = 60.0
"""After which a node that is gone is taken off the board."""


@define(eq=False)
class ShardNodes:
    """See the module.

    Attributes:
        layout: of the configuration.
        strays: shards of nodes that belong to none or several, by name.
        given: nodes that are passed on, and to which shard, until the board has it.
        closed: nodes that were lent to these shards and are wanted back: nothing new is placed on them.
    """

    layout: ShardLayout
    strays: dict[str, tuple[str, ...]] = attrs.Factory(dict)
    given: dict[str, str] = attrs.Factory(dict)
    closed: frozenset[str] = frozenset()
    _home: dict[str, str] = attrs.Factory(dict)
    _resting: dict[str, float] = attrs.Factory(dict)
    _gone_since: dict[str, float] = attrs.Factory(dict)
    _now: float = 0.0

    def takes(self, node: Node, held: Collection[str], boards: Iterable[Board]) -> bool:
        """Whether the node is in a shard that is held, and in no other.

        Args:
            node: as it is now.
            held: shards.
            boards: as it was read last, and those of which it is not known whether they were written.
        """
        name, matching = node.name, self.layout.matching(node.labels)
        self.strays.pop(name, None)
        if len(matching) != 1:
            self.strays[name] = matching
            return False
        before, self._home[name] = self._home.get(name, matching[0]), matching[0]
        if before != matching[0]:
            self._resting[name] = self._now + REST_S
        if name in self._resting or name in self.given:
            return False
        return all(self.shard_of(name, board) in held for board in boards)

    def forget(self, name: str) -> None:
        """A node is gone."""
        for known in (self.strays, self._home, self._resting, self.given):
            known.pop(name, None)

    @property
    def are_resting(self) -> bool:
        """Whether some may not be used yet as they came from other shards."""
        return bool(self._resting)

    def end_rests(self, now: float) -> bool:
        """Whether nodes may be used from now on that came from other shards.

        Args:
            now: seconds since the epoch; rests of nodes that came before it was first told begin then.
        """
        if not self._now:
            self._resting = dict.fromkeys(self._resting, now + REST_S)
        self._now = now
        over = [name for name, until in self._resting.items() if until <= now]
        for name in over:
            del self._resting[name]
        return bool(over)

    def home(self, name: str) -> str:
        """The shard that a node belongs to by its labels; empty where that is not known."""
        return self._home.get(name, "")

    def shard_of(self, name: str, board: Board) -> str:
        """The shard that a node is in; empty where that is not known."""
        lent = board.nodes.get(name, "")
        return lent if lent in self.layout.names else self.home(name)

    def lent_to(self, shard: str, board: Board) -> Iterator[str]:
        """Names of the nodes of other shards that a shard has."""
        return (name for name, to in board.nodes.items() if to == shard and self.home(name) != to)

    def note_board(self, before: Board, board: Board) -> list[str]:
        """Take in what another board says of nodes; the names of those that are in another shard by it, sorted."""
        names = {*before.nodes, *board.nodes}
        moved = [
            name for name in names if self.shard_of(name, before) != self.shard_of(name, board)
        ]
        for name in moved:
            self.given.pop(name, None)
        return sorted(moved)

    def rows(self, board: Board, held: Collection[str], now: float) -> dict[str, str]:
        """What the board should say of nodes: what it says, and what is to be changed of one's own."""
        rows = dict(board.nodes)
        for name, to in self.given.items():
            if self.shard_of(name, board) not in held:
                continue
            if to == self.home(name):
                rows.pop(name, None)
            else:
                rows[name] = to
        for name, shard in board.nodes.items():
            known = name in self._home
            if known or shard not in held:
                self._gone_since.pop(name, None)
            elif now - self._gone_since.setdefault(name, now) >= NODE_GONE_S:
                rows.pop(name, None)
            if known and shard == self.home(name):
                rows.pop(name, None)  # its labels have come to say the same
        return dict(sorted(rows.items()))
