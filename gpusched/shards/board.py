"""The record that the daemons of all shards share: who holds what, grants of queues, gangs passed on.

It stands in the ConfigMap ``NAME-shards`` beside the Leases, which no tenant may write, and is
replaced as a whole by the version that was read. An entry is changed by the holder of its shard alone.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from gpusched.api.affinity.selector import NodeTerm, Toleration
from gpusched.api.meta.pool_resources import pool_of
from gpusched.api.meta.resources import Resources
from gpusched.base.errors import GpuschedError
from gpusched.base.limits import FOREIGN_TEXT_MAX

FORMAT: Final = 3
"""The last one that is known here; a board of a later format is not touched."""
_WITHOUT_USERS: Final = 2
"""The format of boards on which nothing is granted to users or in node pools: earlier versions would start more."""
_WITHOUT_LENT_NODES: Final = 1
"""The format of boards on which no node is lent: earlier versions would forget who has it."""
COUNTS_USERS_AND_POOLS: Final = 1
"""What a daemon counts that grants users and node pools by shard, beside queues."""
COUNTS_ALL_SHARDS: Final = 2
"""The same, and budgets and lines of users over all shards."""
COUNTS_NOT_PREEMPTIBLE: Final = 3
"""The same, and what gangs hold that are not preemptible, of which queues deserve so much."""
KEY: Final = "board"
READ_EVERY_S: Final = 1.0
"""After which a daemon looks at it again."""
WRITES_APART_S: Final = 0.1
"""Between two looks of a daemon that has something to write."""
_GANG: Final = re.compile("[0-9a-f]{16}")
"""Names of gangs, see ``layout.gang_hash``."""
Amounts = dict[str, int]


class BoardUnreadable(GpuschedError):
    """The board is of a later version, or no board."""

    exit_status = 78


class MemberNeeds(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What members of one class need of a node.

    Attributes:
        amounts: that one member requests, in base units.
        selector: labels that the node must have.
        affinity: terms of which it must satisfy one; None for any node.
        tolerations: of its taints.
    """

    amounts: Amounts = {}
    selector: dict[str, str] = {}
    affinity: tuple[NodeTerm, ...] | None = None
    tolerations: tuple[Toleration, ...] = ()


class NodeWish(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Nodes that a shard lacks for the gang that has waited in it longest.

    Attributes:
        gang: its hash.
        since: seconds since the epoch at which it was made.
        nodes: how many more it needs.
        lent: nodes of other shards that were there when these were counted.
        home: whether it is for nodes of the shard alone that are lent and on which nothing runs.
        members: what its members need, by class.
    """

    gang: str = ""
    since: float = 0.0
    nodes: int = 0
    lent: int = 0
    home: bool = False
    members: tuple[MemberNeeds, ...] = ()


class ForeignQueuePart(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What a queue of another project has in the shards of one daemon.

    Attributes:
        allocated: base units that it holds, with all below it.
        pending, inqueue, running: numbers of gangs, as its status tells them.
    """

    allocated: Amounts = {}
    pending: int = 0
    inqueue: int = 0
    running: int = 0

    @property
    def resources(self) -> Resources:
        """Amounts that it holds."""
        return Resources.of(self.allocated)


class ShardEntry(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What the holder of a shard says of it.

    Attributes:
        holder: identity of the daemon.
        first: the shard that this daemon leads before others.
        layout: digest of the daemon's configuration of shards.
        version: of the daemon's program.
        settled: whether what queues use in it has been counted since the layout is in force.
        wanted: identity of a daemon that leads this shard before others and asks for it.
        nodes, waiting: numbers of nodes and of gangs that wait.
        total, used, free: base units of the nodes, those that pods have, and those that no pod has and no
            gang waits for.
        idle: number of nodes that it would lend.
        wish: for nodes of other shards; None for no.
        pools: base units of the nodes, by dimension that queues count.
        counts: what its daemon counts beside queues: ``COUNTS_USERS_AND_POOLS`` or later ones.
        strays, stray_nodes: number of nodes that belong to no shard or to several, as its holder sees them,
            and sentences about some of them.
        queues: what queues of other projects have in it and in all others of its holder, by name; in the entry of the
            first of these alone.
        gpu_types: products of GPUs that its nodes have, as labels tell them; None where its holder does not say.
    """

    holder: str = ""
    first: str = ""
    layout: str = ""
    version: str = ""
    settled: bool = False
    wanted: str = ""
    nodes: int = 0
    waiting: int = 0
    total: Amounts = {}
    used: Amounts = {}
    free: Amounts = {}
    idle: int = 0
    wish: NodeWish | None = None
    pools: Amounts = {}
    counts: int = 0
    strays: int = 0
    stray_nodes: list[str] = []
    queues: dict[str, ForeignQueuePart] = {}
    gpu_types: tuple[str, ...] | None = None


class GrantRow(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What one shard has of an account, in base units: of a queue, or of a user or group in one.

    Attributes:
        granted: the most that the queue and all below it, or the user, may hold in the shard.
        used: what they hold.
        next: what they would hold with the first gang that waits for a grant.
        wanted: what they would hold with all of them.
        demand: what they would hold with every gang that waits, for whatever reason.
        since: seconds since the epoch at which the first of these was made.
        users: of a queue, for whom of its users rows of their own are counted: see ``accounts.users_counted``.
        lasting: of a queue, names of which is counted in a row of its own what gangs hold that are not preemptible.
    """

    granted: Amounts = {}
    used: Amounts = {}
    next: Amounts = {}
    wanted: Amounts = {}
    demand: Amounts = {}
    since: float = 0.0
    users: str = ""
    lasting: tuple[str, ...] = ()


class Board(msgspec.Struct, frozen=True, kw_only=True):
    """See the module.

    Attributes:
        layout: digest of the layout in force; nobody of another one decides.
        shards: entries by shard.
        grants: rows by account and shard.
        owners: shards of gangs that are not in the one where they began, by hash.
        nodes: shards of nodes that are lent, by name.
    """

    format: int = _WITHOUT_LENT_NODES
    layout: str = ""
    shards: dict[str, ShardEntry] = {}
    grants: dict[str, dict[str, GrantRow]] = {}
    owners: dict[str, str] = {}
    nodes: dict[str, str] = {}

    def holder_of(self, shard: str) -> str:
        """Who holds a shard, as the holder says; empty for nobody."""
        entry = self.shards.get(shard)
        return entry.holder if entry is not None else ""

    @property
    def lending(self) -> dict[str, tuple[NodeWish | None, int]]:
        """Which shards ask for nodes, and how many each would lend."""
        return {shard: (entry.wish, entry.idle) for shard, entry in self.shards.items()}

    def row(self, account: str, shard: str) -> GrantRow:
        """What a shard has of an account."""
        return self.grants.get(account, {}).get(shard, _NO_ROW)


_NO_ROW: Final = GrantRow()


class _AnyFormat(msgspec.Struct):
    format: int = 0


def decode_board(text: str) -> Board:
    """A board as it was read; an empty text is an empty board.

    Raises:
        BoardUnreadable: it is of a later format, or cannot be read.
    """
    if not text:
        return Board()
    try:
        written = msgspec.json.decode(text, type=_AnyFormat).format
        if written > FORMAT:
            raise BoardUnreadable(
                f"the board of shards has format {written}, and this daemon knows formats up to {FORMAT}: "
                "upgrade it, as it does not take part until then"
            )
        board = msgspec.json.decode(text, type=Board)
    except msgspec.DecodeError as error:
        raise _unreadable(str(error)) from None
    for digits in board.owners:
        if not _GANG.fullmatch(digits):
            raise _unreadable(f"no gang is called {digits[:FOREIGN_TEXT_MAX]!r}")
    for account, rows in board.grants.items():
        for row in rows.values():
            amounts = (row.granted, row.used, row.next, row.wanted, row.demand)
            if any(amount < 0 for each in amounts for amount in each.values()):
                raise _unreadable(f"{account[:FOREIGN_TEXT_MAX]!r} has less than nothing")
    return msgspec.structs.replace(board, format=_WITHOUT_LENT_NODES)


def _unreadable(why: str) -> BoardUnreadable:
    return BoardUnreadable(
        f"the board of shards cannot be read ({why}): nothing starts until its ConfigMap is deleted"
    )


def encode_board(board: Board) -> str:
    """The text of a board."""
    written = _WITHOUT_USERS if board.nodes else _WITHOUT_LENT_NODES
    if _grants_users_or_pools(board):
        written = FORMAT
    return msgspec.json.encode(msgspec.structs.replace(board, format=written)).decode()


def _grants_users_or_pools(board: Board) -> bool:
    """Whether every daemon counts users and node pools, and something of them is granted."""
    if any(each.counts < COUNTS_USERS_AND_POOLS for each in board.shards.values()):
        return False
    return any(
        "/" in account or any(amount and pool_of(name) for name, amount in row.granted.items())
        for account, rows in board.grants.items()
        for row in rows.values()
    )
