"""Holds the shards of this daemon: stands for their Leases, and keeps the board and what is decided in step.

A daemon leads its first shard as a daemon without shards leads the cluster. The others that it is told to care for
it takes when nobody has held them for as long as a Lease lasts, and gives back when a daemon asks that leads them
before others. A Lease that is lost ends the term for all of them: everything is read again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final

import attrs
import msgspec

from gpusched import __version__
from gpusched.base.classes import define
from gpusched.base.clock import Clock
from gpusched.base.errors import Conflict, GpuschedError
from gpusched.io.leader.dead_terms import DeadTerms
from gpusched.io.leader.elector import Elector, Leadership
from gpusched.io.leader.shard_board import BoardStore
from gpusched.io.observe.logs import Logger
from gpusched.shards.board import READ_EVERY_S, WRITES_APART_S, Board, ShardEntry
from gpusched.shards.layout import stray_node_message
from gpusched.shards.nodes import REST_S
from gpusched.shards.part import STRAYS_TOLD, ShardPart

_log = Logger(__name__)
_TERM_ENDS_WITHIN: Final = 2
"""Times a Lease lasts, after which a shard is taken although its holder before goes on in another one."""


@define(eq=False, kw_only=True)
class ShardKeeper:
    """See the module.

    Attributes:
        part: what the cache of this term asks.
        store: of the board.
        preferred: shards that this daemon cares for, the one first that it leads before others.
        elector_of: makes the candidate for the Lease of a shard.
        leadership: of this daemon.
        relist: reads everything again, at least as of a version.
        use_part: has the cache take over what is held.
        changed: told that something may be started which could not be before.
        lost: told that a Lease was lost.
        give_back: told that the term is to end in order, so that another daemon gets a shard.
        lone_leader: who leads by the Lease of a daemon without shards; empty for nobody.
        dead_terms: of daemons that held a shard beside their first and are gone.
        gone_shards: of shards on the board that the configuration in force does not have, those whose daemon is gone.
        measured: told, for metrics, of nodes and waiting gangs by shard that is held, and of how many nodes belong
            to no shard or several.
        failed: told of a defect.
    """

    part: ShardPart
    store: BoardStore
    preferred: tuple[str, ...]
    elector_of: Callable[[str], Elector]
    leadership: Leadership
    clock: Clock
    relist: Callable[[str], Awaitable[None]]
    use_part: Callable[[], None]
    changed: Callable[[], None]
    lost: Callable[[], None]
    give_back: Callable[[], None]
    lone_leader: Callable[[], Awaitable[str]]
    dead_terms: DeadTerms
    gone_shards: Callable[[Collection[str]], Awaitable[frozenset[str]]]
    measured: Callable[[Mapping[str, tuple[int, int]], int], None]
    failed: Callable[[str, Exception], None]
    why: str = "the board of shards was not read yet"
    """Why nothing is decided; empty when all is well."""
    _electors: list[Elector] = attrs.Factory(list)
    _tasks: list[asyncio.Task[None]] = attrs.Factory(list)
    _nudged: asyncio.Event = attrs.Factory(asyncio.Event)
    _turn: asyncio.Lock = attrs.Factory(asyncio.Lock)
    _based_on: str = ""
    _told: set[str] = attrs.Factory(set)
    _in_step: bool = False
    _rests_until: float = 0.0
    """Until when nothing is decided as the board was made anew, monotonic seconds."""
    _listed: bool = False
    """Whether everything was listed since nobody decides who knows no shards, or others than these."""

    def nudge(self) -> None:
        """What is on the board may have to change."""
        self._nudged.set()

    async def stand_by(self, elector: Elector) -> None:
        """Ask for the first shard while a daemon holds it that leads another one before it."""
        while not elector.leading:
            await self.clock.sleep(2 * READ_EVERY_S)
            try:
                await self._ask_back(elector)
            except Conflict:
                continue
            except GpuschedError as error:
                self._say(str(error))

    async def _ask_back(self, elector: Elector) -> None:
        board = await self.store.read()
        await self._watch_other_terms(board)
        first = self.preferred[0]
        entry = board.shards.get(first)
        if entry is None or not elector.holder or elector.leading:
            return
        ours = entry.layout == self.part.layout.digest and entry.holder == elector.holder
        if ours and entry.first != first and not entry.wanted:
            entry = msgspec.structs.replace(entry, wanted=self.part.identity)
            await self.store.write(
                msgspec.structs.replace(board, shards={**board.shards, first: entry})
            )

    async def lead(self) -> None:
        """Hold the first shard, and others as they are left; until cancelled."""
        await self._take(self.preferred[0])
        self._listed = self.part.in_force
        self._tasks = [
            asyncio.create_task(self._follow(shard), name=f"lease of shard {shard}")
            for shard in self.preferred[1:]
        ]
        while True:
            await self._once()
            await self._pause()

    async def _pause(self) -> None:
        await self.clock.sleep(WRITES_APART_S)
        try:
            async with asyncio.timeout(READ_EVERY_S - WRITES_APART_S):
                await self._nudged.wait()
        except TimeoutError:
            pass
        self._nudged.clear()

    async def release(self) -> None:
        """Give back the Leases of all shards but the first."""
        for elector in self._electors:
            elector.stop()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def cancel(self) -> None:
        """End at once; Leases run out."""
        for task in self._tasks:
            task.cancel()

    # -- holding ----------------------------------------------------------------------------
    async def _follow(self, shard: str) -> None:
        """Stand for another shard, and hold it once it is taken."""
        elector = self.elector_of(shard)
        self._electors.append(elector)
        running = asyncio.create_task(elector.run(), name=f"elector of shard {shard}")
        acquired = asyncio.create_task(elector.acquired())
        try:
            await asyncio.wait({running, acquired}, return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                return
            self.leadership.others.append(elector)
            _log.info("taking over a shard that nobody holds", shard=shard)
            await self.relist(elector.version)
            await self._take(shard)
            if self._in_step:
                self.use_part()
                self.changed()
            await running
            self.lost()
        finally:
            acquired.cancel()
            running.cancel()

    async def _watch_other_terms(self, board: Board) -> None:
        """Look after the first shards of those who hold one beside it that may be taken over here."""
        held = self.part.held
        entries = {name: board.shards.get(name, ShardEntry()) for name in self.preferred}
        firsts = {
            each.first
            for name, each in entries.items()
            if name not in held and each.first not in {"", name, *held}
        }
        try:
            await self.dead_terms.watch(firsts)
        except GpuschedError as error:
            self._say(str(error))

    async def _end_term_before(self, shard: str) -> None:
        """Wait until nothing is in force any more that the holder before sent under the Lease of another shard."""
        until = self.clock.monotonic() + _TERM_ENDS_WITHIN * self.dead_terms.lease_s
        while self.clock.monotonic() < until:
            try:
                async with self._turn:
                    board = await self.store.read()
                    self._begin_from(board)
                entry = board.shards.get(shard, ShardEntry())
                if entry.first in {"", shard, *self.part.held} or await self.dead_terms.end(
                    entry.first, entry.holder
                ):
                    return
            except GpuschedError as error:
                self.why = str(error)
                self._say(self.why)
            await self.clock.sleep(READ_EVERY_S)
        _log.warning("the daemon that held a shard goes on in another one", shard=shard)

    async def _take(self, shard: str) -> None:
        """Write on the board who holds the shard: what its holder before had under way fails after that."""
        await self._end_term_before(shard)
        while True:
            try:
                async with self._turn:
                    board = await self.store.read()
                    self._begin_from(board)
                    entry = msgspec.structs.replace(self.part.claim(shard), wanted="")
                    claimed = msgspec.structs.replace(board, shards={**board.shards, shard: entry})
                    await self.store.write(claimed)
                    self._begin_from(claimed)
                    self.part.held |= {shard}
            except Conflict:
                continue
            except GpuschedError as error:
                self.why = str(error)
                self._say(self.why)
                await self.clock.sleep(READ_EVERY_S)
            else:
                return

    def _begin_from(self, board: Board) -> None:
        """Take over what was read; writes of ours before it are done, or fail from now on."""
        if self.store.version != self._based_on:
            self.part.sent.clear()
            self._based_on = self.store.version
        self.part.read(board)

    # -- the board --------------------------------------------------------------------------
    async def _once(self) -> None:
        """Read the board, follow it, and write what has changed here."""
        try:
            async with self._turn:
                lone = await self.lone_leader()
                await self._sync()
            await self._watch_other_terms(self.part.board)
            await self._judge(lone)
        except Conflict:
            self.nudge()
        except GpuschedError as error:
            self.why = str(error)
            self._say(self.why)
        except Exception as error:  # noqa: BLE001 - a term without shards would be worse
            self.why = "the board of shards cannot be followed by a fault of this daemon, which its log tells"
            self.failed("shards", error)

    async def _sync(self) -> None:
        board = await self.store.read()
        before = self.part.board
        if any(board.holder_of(name) != self.part.identity for name in self.part.held):
            # Owners of gangs and lent nodes are forgotten: what was decided by them is to be seen by all before.
            self._rests_until = self.clock.monotonic() + REST_S
            self._in_step = self._listed = False
        self._begin_from(board)
        self.part.gone = await self.gone_shards(self.part.unknown_shards)
        proposal = self.part.proposal(self.clock.now())
        if proposal != board:
            self.part.sent.append(proposal)
            try:
                await self.store.write(proposal)
            except Conflict:
                self.part.sent.remove(proposal)
                raise
            self._begin_from(proposal)
        board = self.part.board
        if board.grants != before.grants or board.lending != before.lending:
            self.changed()
        self._tell_lent_nodes(before)

    def _tell_lent_nodes(self, before: Board) -> None:
        for name in sorted({*before.nodes, *self.part.board.nodes}):
            whose = self.part.nodes.shard_of(name, before)
            now = self.part.nodes.shard_of(name, self.part.board)
            if whose != now and not {whose, now}.isdisjoint(self.part.held):
                _log.info("a node is lent or given back", node=name, of=whose, to=now)

    async def _judge(self, lone: str) -> None:
        """Whether all is as it must be for anything to be decided."""
        part = self.part
        self._tell_others()
        held = {name: part.board.shards[name] for name in part.held & part.board.shards.keys()}
        self.measured(
            {name: (each.nodes, each.waiting) for name, each in held.items()},
            len(part.nodes.strays),
        )
        if lone:
            self.why = f"a daemon without shards leads ({lone}): end it, or take shards out of the configuration of all"
        elif not part.in_force:
            others = sorted(
                name
                for name, each in part.board.shards.items()
                if each.layout != part.layout.digest
            )
            self.why = (
                f"the configuration of shards differs from that of the daemons of {', '.join(others)}: "
                "give all daemons the same, and where shards were taken out end all daemons and delete the "
                "ConfigMap of the board"
            )
        elif self.clock.monotonic() < self._rests_until:
            self.why = (
                "the board of shards was made anew: nothing is decided for half a minute, until what was decided by the "
                "old one is seen by all"
            )
        else:
            await self._get_in_step()
            return
        self._in_step = self._listed = False
        self._say(self.why)

    async def _get_in_step(self) -> None:
        if not self._in_step:
            if not self._listed:
                await self.relist("")
                self._listed = True
            self._in_step = True
            self.part.nodes.end_rests(self.clock.now())
            self.use_part()
            self.changed()
            _log.info("deciding about shards", shards=", ".join(sorted(self.part.held)))
        elif self.part.nodes.end_rests(self.clock.now()):
            self.use_part()
            self.changed()
        if self.why:  # it could not be told how things stand, and now it can
            self.why = ""
            self.changed()
        wanted = [
            name
            for name in sorted(self.part.held - {self.part.first})
            if self.part.board.shards[name].wanted
        ]
        if wanted:
            _log.info("a shard is given back to the daemon that leads it first", shard=wanted[0])
            self.give_back()

    def _tell_others(self) -> None:
        """Say once what is unusual: daemons of other versions, nodes without a shard."""
        for name, entry in sorted(self.part.board.shards.items()):
            if entry.version not in {"", __version__}:
                self._say(
                    f"shard {name} is held by version {entry.version} and this daemon is {__version__}: both go "
                    "on, as the board has one format; upgrade the older one"
                )
        strays = sorted(self.part.nodes.strays.items())
        for name, matching in strays[:STRAYS_TOLD]:
            self._say(stray_node_message(name, matching))
        if len(strays) > STRAYS_TOLD:
            self._say(f"{len(strays) - STRAYS_TOLD} more nodes belong to no shard or to several")

    def _say(self, sentence: str) -> None:
        if sentence not in self._told:
            self._told.add(sentence)
            _log.warning("shards", why=sentence)
