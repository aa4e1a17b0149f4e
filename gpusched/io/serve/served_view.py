"""The view of one daemon: what its sessions show, where it is served, and where the leader's is."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence

from gpusched import __version__
from gpusched.api.meta.identity import format_time
from gpusched.base.clock import Clock
from gpusched.base.limits import EVICTION_WINDOW_S
from gpusched.cache.cache import Cache
from gpusched.cache.snapshot import Snapshot
from gpusched.io.decisions.decision_log import DecisionLine
from gpusched.io.history.played_starts import PlayedStarts
from gpusched.io.serve.announcement import ViewAnnouncement
from gpusched.io.serve.publisher import ViewAddress, ViewPublisher
from gpusched.session.decide import Decision
from gpusched.session.state.plan import Plan
from gpusched.session.state.policy import Policy
from gpusched.session.state.session_cache import SessionCache
from gpusched.session.status.foreign_names import HideNames
from gpusched.view.follower import SeenSession
from gpusched.view.frames import ViewHead
from gpusched.view.model import DecisionView, GangOfEvent, GpuTotalsView
from gpusched.view.podless_jobs import podless_job_views


class ServedView:
    """``run`` is its life.

    Args:
        address: where to serve.
        announcement: tells people where that is, and us where the leader's is.
        clock: time.
        daemon: its identity.
        leading: whether it leads now.
        ready: the sentence of ``/readyz``.
        scheduler_names: for whose pods it decides.
        hide: takes names of other namespaces out of a sentence for readers of one.
    """

    def __init__(
        self,
        address: ViewAddress,
        announcement: ViewAnnouncement,
        *,
        clock: Clock,
        daemon: str,
        leading: Callable[[], bool],
        ready: Callable[[], str],
        scheduler_names: Sequence[str],
        hide: HideNames,
    ) -> None:
        self._announcement = announcement
        self._clock = clock
        self._daemon = daemon
        self._leading = leading
        self._ready = ready
        self._scheduler_names = tuple(scheduler_names)
        self._hide = hide
        self._publisher = ViewPublisher(address, clock, self._head)
        self.gpu_totals: Callable[[], GpuTotalsView | None] = lambda: None
        """As they were counted last."""
        self._eviction_window_s = EVICTION_WINDOW_S

    @property
    def url(self) -> str:
        """Where it is served; empty while it is not."""
        return self._publisher.url

    def session(
        self,
        snapshot: Snapshot,
        plan: Plan,
        decision: Decision,
        *,
        cache: Cache,
        policy: Policy,
        session_cache: SessionCache,
    ) -> None:
        """A session under some policy ended, which saw and decided this.

        Args:
            snapshot: that it saw.
            plan: with statuses as they are written.
            decision: whose plan that is.
            cache: of which it was decided.
            policy: in force then.
            session_cache: of that policy.
        """
        rejected = cache.charged.values()
        self._eviction_window_s = snapshot.limits.eviction_window_s
        self._publisher.session(
            SeenSession(
                snapshot=snapshot,
                plan=plan,
                levels=session_cache.topology_levels(
                    snapshot.nodes, snapshot.topologies, snapshot.devices.slices
                ),
                unreadable=[
                    each for each in rejected if each.pending and each.scheduler in cache.schedulers
                ],
                order=decision.order,
                reserved=decision.reserved,
                plugins=policy.plugins,
                podless=lambda: podless_job_views(cache),
                is_there=cache.families.is_active,
            )
        )

    def decided(self, line: DecisionLine) -> None:
        """A line of the log of decisions."""
        why = line.facts.get("why")
        nodes = line.facts.get("nodes")
        rest = f": {why}" if why else f" on {nodes}" if nodes else ""
        about = GangOfEvent(namespace=line.gang.namespace, kind=line.gang.kind, name=line.gang.name)
        self._publisher.decided(
            DecisionView(
                time=format_time(self._clock.now()),
                event=line.event,
                message=self._hide(f"{line.sentence}{rest}", line.gang.namespace),
                gang=about,
            )
        )

    async def play_starts(self) -> PlayedStarts:
        """When gangs that wait start, as a process beside the daemon plays it.

        Raises:
            StartsNotPlayed: it does not.
        """
        return await self._publisher.play_starts()

    def forget(self) -> None:
        """What was shown is of a term that is over."""
        self._publisher.forget()

    async def run(self) -> None:
        """Serve, and keep people told where, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._publisher.run())
            group.create_task(self._announce())

    async def _announce(self) -> None:
        number = 0
        while True:
            await self._announcement.beat(number, leading=self._leading(), url=self.url)
            number += 1
            await self._announcement.wait_for_next_look()

    def _head(self) -> ViewHead:
        return ViewHead(
            version=__version__,
            daemon=self._daemon,
            leading=self._leading(),
            leader=self._announcement.leader,
            ready=self._ready(),
            scheduler_names=self._scheduler_names,
            gpu_totals=self.gpu_totals(),
            eviction_window_s=self._eviction_window_s,
        )


async def end_task(task: asyncio.Task[None]) -> None:
    """Cancel a task and wait for its end."""
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
