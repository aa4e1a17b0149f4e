"""Restarts of the server while its process and port stay, and states to go back to.

A restart drops every connection. What the server then remembers is the caller's choice: all of
it; all but the watch window, as a real server after its start; nothing, as after a lost etcd; or
an older state, as after a restored one, where versions go back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from gpusched.base.classes import frozen
from gpusched.devcluster.apimachinery.limits import SNAPSHOTS_MAX
from gpusched.devcluster.apiserver.server_state import ServerState
from gpusched.devcluster.storage.store import Frozen


class UnknownSnapshot(Exception):
    """No snapshot has that name."""


@frozen(kw_only=True)
class RestartableParts:
    """What a restart needs of the program around it.

    Attributes:
        drop: cut every connection; given True, also stop listening.
        listen: listen again on the same port.
        stop, start: end and begin the controllers, which know only the state they began with.
        refill: fill an empty store with what a new cluster holds.
        adopt: take into service what the store now defines.
    """

    drop: Callable[[bool], Awaitable[None]]
    listen: Callable[[], Awaitable[None]]
    stop: Callable[[], Awaitable[None]]
    start: Callable[[], None]
    refill: Callable[[], None]
    adopt: Callable[[], None]


class Restarts:
    """Restarts one cluster and holds its snapshots."""

    def __init__(self, core: ServerState, parts: RestartableParts) -> None:
        self._core = core
        self._parts = parts
        self._snapshots: dict[str, Frozen] = {}
        self._away: asyncio.Task[None] | None = None

    def snapshots(self) -> dict[str, int]:
        """Return the version of each snapshot."""
        return {name: state.version for name, state in self._snapshots.items()}

    def take(self, name: str) -> bool:
        """Remember the present state, in place of an older one of that name; False when full."""
        if name not in self._snapshots and len(self._snapshots) >= SNAPSHOTS_MAX:
            return False
        self._snapshots[name] = self._core.store.freeze()
        return True

    def drop(self, name: str) -> None:
        """Forget a snapshot; raises UnknownSnapshot."""
        if self._snapshots.pop(name, None) is None:
            raise UnknownSnapshot(name)

    def cut(self) -> int:
        """Let no watch begin before now; return the version of now. Open watches go on."""
        self._core.store.open_window()
        return self._core.store.version

    async def restart(self, memory: str, snapshot: str = "", *, down_s: float = 0.0) -> int:
        """Restart; return the version it begins with.

        Args:
            memory: kept, cut, empty or snapshot.
            snapshot: its name.
            down_s: seconds of the clients' time for which no connection is accepted.

        Raises:
            UnknownSnapshot: there is no such snapshot.
        """
        state = self._state(memory, snapshot)
        await self._parts.drop(down_s > 0)
        if memory == "cut":
            self.cut()
        elif state is not None:
            await self._parts.stop()
            self._core.store.reset(state)
            self._parts.adopt()
            if memory == "empty":
                self._parts.refill()
            self._parts.start()
        if down_s > 0:
            if self._away is not None:
                self._away.cancel()
            self._away = asyncio.create_task(self._return(down_s), name="devcluster is down")
        return self._core.store.version

    async def close(self) -> None:
        """Give up coming back."""
        if self._away is not None:
            self._away.cancel()
            await asyncio.wait([self._away])

    def _state(self, memory: str, snapshot: str) -> Frozen | None:
        if memory == "empty":
            return Frozen(version=0, collections={})
        if memory != "snapshot":
            return None
        found = self._snapshots.get(snapshot)
        if found is None:
            raise UnknownSnapshot(snapshot)
        return found

    async def _return(self, seconds: float) -> None:
        # Real time: a paused clock of the cluster could never be asked to go on.
        await asyncio.sleep(seconds)  # noqa: TID251
        await self._parts.listen()
