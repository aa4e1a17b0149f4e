"""The live view that ``top`` shows: the daemon's where one serves it, else what the API shows, looked at again and again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from gpusched import __version__
from gpusched.api.meta.identity import format_time
from gpusched.base.clock import Clock
from gpusched.base.errors import ApiError, GpuschedError
from gpusched.base.limits import EVICTION_WINDOW_S
from gpusched.cli.inspect.live.api_view import ApiView
from gpusched.cli.inspect.live.screen.picture import ClusterPicture
from gpusched.config.model import LeaderElectionConfig
from gpusched.io.client.api_client import ApiClient
from gpusched.io.serve.followed_view import FollowedView
from gpusched.io.serve.view_client import NoView, ViewRoute, find_view
from gpusched.view.gang_story import GangStory
from gpusched.view.model import AboutView
from gpusched.view.store import ViewStore

LOOK_S: Final = 5.0
"""Between two looks at the API."""
_NOT_READ: Final = AboutView(version="")


class FollowedCluster:
    """``read`` once, then ``run`` is its life; ``picture`` is how things stand.

    Args:
        api: of the cluster.
        election: names the Lease beside which the daemon's view is announced.
        api_view: looks at the API where no daemon serves a view.
        clock: time.
        source: ``daemon`` or ``api``; empty for the daemon where there is one.

    Attributes:
        changed: called after each change.
    """

    def __init__(
        self,
        api: ApiClient,
        election: LeaderElectionConfig,
        api_view: ApiView,
        clock: Clock,
        *,
        source: str = "",
    ) -> None:
        self._api = api
        self._election = election
        self._api_view = api_view
        self._clock = clock
        self._source = source
        self.changed: Callable[[], None] = lambda: None
        self._daemon = FollowedView(self._find, clock, self._note_change)
        self._of_daemon = False
        self._store = ViewStore()
        self._about = _NOT_READ
        self._note = ""
        self._lost, self._lost_at = "", 0.0

    async def read(self) -> None:
        """Read everything once.

        Raises:
            NoView: the daemon's view is asked for, and there is none.
            Denied: this user may not list what the API is asked for.
            ClusterUnreachable: no cluster.
        """
        if not await self._read_daemon():
            await self._read_api_changes()

    async def run(self) -> None:
        """Keep it as things are until cancelled; a daemon that comes is asked from then on."""
        while not self._of_daemon:
            await self._clock.sleep(LOOK_S)
            try:
                if await self._read_daemon():
                    break
                await self._read_api_changes()
            except GpuschedError as error:
                self._lost_at = self._lost_at if self._lost else self._clock.now()
                self._lost = str(error)
            self.changed()
        await self._daemon.run()

    async def story(self, gang: str) -> GangStory | None:
        """One gang with its pods and decisions, by ``NAMESPACE/KIND/NAME``; None where it is not known.

        Raises:
            GpuschedError: the daemon cannot be asked.
        """
        if self._of_daemon:
            return await self._daemon.story(gang)
        view = self._store.gangs.get(gang)
        if view is None:
            return None
        told = {**msgspec.structs.asdict(view), "members": self._store.members(gang)}
        return GangStory(**told)

    def picture(self) -> ClusterPicture:
        """How things stand."""
        daemon = self._daemon
        store = daemon.store if self._of_daemon else self._store
        return ClusterPicture(
            about=daemon.about if self._of_daemon else self._about,
            told=daemon.told if self._of_daemon else self._api.host,
            note=self._note,
            lost=daemon.lost if self._of_daemon else self._lost,
            lost_at=daemon.lost_at if self._of_daemon else self._lost_at,
            now=self._clock.now(),
            gangs=[store.gangs[key] for key in sorted(store.gangs)],
            nodes=list(store.node_page()),
            queues=[store.queues[name] for name in sorted(store.queues)],
            decisions=list(store.decisions),
        )

    def _note_change(self) -> None:
        self.changed()

    async def _find(self) -> ViewRoute:
        election = self._election
        return await find_view(
            self._api, namespace=election.lease_namespace, lease=election.lease_name
        )

    async def _read_daemon(self) -> bool:
        """Whether the daemon's view is there and shows this user something."""
        if self._source == "api":
            self._note = "as --source api says"
            return False
        try:
            await self._daemon.read()
        except (NoView, ApiError) as error:
            if self._source == "daemon":
                raise
            self._note = str(error)
            return False
        about = self._daemon.about
        if not about.namespaces and not about.nodes and not about.queues:
            self._note = "the daemon shows this user nothing"
            if self._source == "daemon":
                raise NoView(self._note)
            return False
        self._of_daemon = True
        return True

    async def _read_api_changes(self) -> None:
        for frame in await self._api_view.changes():
            self._store.take(frame)
        access, head = self._api_view.access, self._store.head
        seen = access.namespaces
        self._about = AboutView(
            version=__version__,
            scheduler_names=head.scheduler_names if head is not None else (),
            source="api",
            now=format_time(self._store.now),
            namespaces="all" if seen is None else tuple(sorted(seen)),
            nodes=access.nodes,
            queues=access.queues,
            gpu_totals=head.gpu_totals if head is not None else None,
            gangs_evicted_again=self._store.count_evicted_again(
                access, since=format_time(self._store.now - EVICTION_WINDOW_S)
            ),
        )
        self._lost = ""
