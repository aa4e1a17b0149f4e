"""Reads back what became of bindings whose commit was given up for a fault of ours.

A commit that raises has no machine any more that knows what follows. Its gang is left out by
whoever decides; what is left to do here is the ledger: what was never sent is forgotten at once,
and of everything else the API is asked, after the server must have given up on it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from gpusched.api.meta.identity import GangKey
from gpusched.base import errors, limits
from gpusched.base.clock import Clock
from gpusched.commit.ledger import CommitLedger
from gpusched.commit.model import CommitState, PodRead, PodStage
from gpusched.config.model import LimitsConfig, default_limits
from gpusched.io.leader.lease import Lease
from gpusched.io.workers.work_queue import OnContained
from gpusched.io.write.bind_calls import CALL_S, BindCalls

_UNSENT: Final = frozenset({PodStage.PLANNED, PodStage.ASSUMED})
_VOID: Final = frozenset({PodStage.FORGOTTEN, PodStage.GONE, PodStage.EVICTED})


class BindReadBack:
    """See the module. One per binder.

    Args:
        calls: of the binder.
        cache: is told what became of each assumption.
        lease: under another leadership nothing is read any more: it lists everything.
        clock: time.
        on_contained: told of what fails here too; it is tried again.
        on_known: told of a gang of which nothing is to be read any more.
        limits_in_force: of the configuration, asked once.
    """

    def __init__(
        self, calls: BindCalls, cache: CommitLedger, *, lease: Lease, clock: Clock,
        on_contained: OnContained, on_known: Callable[[GangKey], None],
        limits_in_force: Callable[[], LimitsConfig] = default_limits,
    ) -> None:  # fmt: skip
        self._calls = calls
        self._cache = cache
        self._lease = lease
        self._clock = clock
        self._contained = on_contained
        self._on_known = on_known
        self._open: Counter[GangKey] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self._turns = asyncio.Semaphore(limits_in_force().binds_in_flight)

    def has_unread(self, gang: GangKey) -> bool:
        """Whether something of this gang is still to be read."""
        return gang in self._open

    def begin(self, state: CommitState, indices: Iterable[int]) -> None:
        """Find out about these pods of a commit that was given up."""
        loop = asyncio.get_running_loop()
        for index in indices:
            task = loop.create_task(self._settle_pod(state, index), name="bind read-back")
            self._open[state.gang.gang] += 1
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Leave the rest to the next leader."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _settle_pod(self, state: CommitState, index: int) -> None:
        gang = state.gang.gang
        stage = PodStage(state.stages[index])
        unsent = stage in _UNSENT and not state.tries[index] and not state.calls[index]
        pause_s = limits.READ_RETRY_S
        try:
            if not unsent and stage not in _VOID:
                # Neither this binding nor an earlier try can still be on its way after it.
                await self._clock.sleep(CALL_S)
            while self._lease.fence == state.fence:
                try:
                    if await self._is_known(state, index, void=unsent or stage in _VOID):
                        return
                except errors.Fenced:
                    return  # another leadership lists everything
                except Exception as error:  # noqa: BLE001 - the room must not stay taken for it
                    self._contained("read-back", error, gang)
                await self._clock.sleep(pause_s)
                pause_s = min(2 * pause_s, limits.BACKOFF_MAX_S)
        finally:
            self._open[gang] -= 1
            if not self._open[gang]:
                del self._open[gang]
                self._on_known(gang)

    async def _is_known(self, state: CommitState, index: int, *, void: bool) -> bool:
        """Whether the ledger says now what the API says."""
        bind = state.gang.binds[index]
        pod = self._cache.find_pod(bind.uid)
        if void or pod is None or pod.node:
            self._cache.forget(bind.uid)  # what the watch shows of a bound pod stays
            return True
        async with self._turns:
            read = await self._calls.read_pod(state, index)
        if not isinstance(read, PodRead):
            return False
        facts = read.facts
        if facts is not None and facts.uid == bind.uid and facts.node == bind.node:
            self._cache.confirm_binding(bind.uid, bind.node, bind.slots, state.plan)
        elif facts is None or facts.uid != bind.uid or not facts.node:
            self._cache.forget(bind.uid)
        # Bound elsewhere: the watch will show it, and until then the room is not given away.
        return facts is None or facts.uid != bind.uid or facts.node in {"", bind.node}
