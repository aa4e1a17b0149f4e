"""Everything that writes to the API in one term, put together: all share one rate limiter."""

from __future__ import annotations

from collections.abc import Callable

from gpusched.api.meta.identity import GangKey
from gpusched.base.classes import frozen
from gpusched.base.clock import Clock
from gpusched.cache.cache import Cache
from gpusched.config.model import LimitsConfig
from gpusched.io.client.api_client import ApiClient
from gpusched.io.leader.elector import Leadership
from gpusched.io.observe.device_events import LayoutEvents, SlotEvents
from gpusched.io.observe.telemetry import Telemetry
from gpusched.io.workers.rate_limiter import RateLimiter
from gpusched.io.workers.work_queue import OnContained, OnFault
from gpusched.io.write.bind_calls import group_path
from gpusched.io.write.binder import Binder, SettledGang
from gpusched.io.write.claims.volume_binder import VolumeBinder
from gpusched.io.write.preemption_calls import PreemptionCalls
from gpusched.io.write.preemption_executor import PreemptionExecutor
from gpusched.io.write.status.status_writer import StatusWriter
from gpusched.session.state.plan import GangStop


@frozen(kw_only=True)
class WriterListeners:
    """What the daemon is told by its writers.

    Attributes:
        on_fault: told when a task crashed.
        on_contained: told of a write that failed by our own doing.
        on_settled: told how the commit of a gang came out.
        on_broken: told the gang whose commit broke first.
        on_failed: told of a commit that failed by our own doing.
        on_known: told that what became of such a commit is known.
        on_stopped: told of each stop whose first member was made to leave.
    """

    on_fault: OnFault
    on_contained: OnContained
    on_settled: Callable[[StatusWriter, SettledGang], None]
    on_broken: Callable[[GangKey], None]
    on_failed: Callable[[GangKey, Exception], None]
    on_known: Callable[[GangKey], None]
    on_stopped: Callable[[GangStop], None]


@frozen(kw_only=True)
class Writers:
    """The writers of one term.

    Attributes:
        rate_limiter: gives all of them turns.
        status: writes conditions and events.
        binder: binds gangs.
        preemption_executor: evicts and nominates.
        volumes: binds the volumes of a gang, then hands it to ``binder``.
    """

    rate_limiter: RateLimiter
    status: StatusWriter
    binder: Binder
    preemption_executor: PreemptionExecutor
    volumes: VolumeBinder

    def listen_to(self, cache: Cache, telemetry: Telemetry) -> None:
        """What the watches show goes to the writers that wait for it, or warn about it."""
        cache.on_pod.append(self.binder.observe)
        cache.on_pod.append(self.status.observe)
        cache.on_pod_gone.append(self.binder.observe_gone)
        cache.on_pod_gone.append(self.status.observe_gone)
        cache.families.on_gone.append(self.status.gang_gone)
        cache.families.on_gone.append(self.preemption_executor.gang_gone)
        cache.rows.on_doubt.append(LayoutEvents(self.status.events, telemetry.rejected).record)
        cache.slot_doubts.listeners.append(
            SlotEvents(self.status.events, telemetry.rejected).record
        )


def build_writers(
    api: ApiClient,
    cache: Cache,
    leadership: Leadership,
    listeners: WriterListeners,
    *,
    clock: Clock,
    telemetry: Telemetry,
    rate_limiter: RateLimiter,
    instance: str,
    watched: Callable[[], bool],
    limits_in_force: Callable[[], LimitsConfig],
) -> Writers:
    """The writers of one term, which write nothing before they are told to.

    Args:
        api: shared by all.
        cache: what the API showed last.
        leadership: without it nothing is written.
        listeners: what the daemon is told.
        clock: time.
        telemetry: counts what was written.
        rate_limiter: shared by all.
        instance: of the process, for events.
        watched: tells whether the watches show what takes room on nodes.
        limits_in_force: gives the bounds of the configuration.
    """
    shared = _SharedByWriters(
        api=api,
        cache=cache,
        leadership=leadership,
        listeners=listeners,
        clock=clock,
        telemetry=telemetry,
        rate_limiter=rate_limiter,
        limits_in_force=limits_in_force,
    )
    status = shared.build_status_writer(instance)
    binder = shared.build_binder(status, watched)
    return Writers(
        rate_limiter=rate_limiter,
        status=status,
        binder=binder,
        preemption_executor=shared.build_preemption_executor(status, binder),
        volumes=shared.build_volume_binder(binder),
    )


def _count_repeats(stop: GangStop, telemetry: Telemetry) -> None:
    """Metrics of an eviction that repeats others, or follows from others."""
    count = stop.count
    if count is None:
        return
    newest = count.newest[-1]
    if count.times > 1:
        queue = stop.evictions[0].queue
        telemetry.evicted_again(newest.action, queue, newest.gpu_seconds)
    if count.chain.length > 1:
        telemetry.eviction_chain(count.chain.length, is_cycle=count.chain.is_cycle)


@frozen(kw_only=True)
class _SharedByWriters:
    """What all writers of a term are made with; see ``build_writers``."""

    api: ApiClient
    cache: Cache
    leadership: Leadership
    listeners: WriterListeners
    clock: Clock
    telemetry: Telemetry
    rate_limiter: RateLimiter
    limits_in_force: Callable[[], LimitsConfig]

    def build_status_writer(self, instance: str) -> StatusWriter:
        """Make the writer of conditions and events, which name the process."""
        return StatusWriter(
            self.api,
            self.rate_limiter,
            self.cache,
            lease=self.leadership,
            clock=self.clock,
            telemetry=self.telemetry,
            on_fault=self.listeners.on_fault,
            on_contained=self.listeners.on_contained,
            instance=instance,
            limits_in_force=self.limits_in_force,
        )

    def build_binder(self, status: StatusWriter, watched: Callable[[], bool]) -> Binder:
        """Make the binder; what comes of its gangs is told with the writer of their status."""
        return Binder(
            self.api,
            self.rate_limiter,
            self.cache,
            self.leadership,
            clock=self.clock,
            telemetry=self.telemetry,
            on_fault=self.listeners.on_fault,
            on_contained=self.listeners.on_contained,
            on_settled=lambda settled: self.listeners.on_settled(status, settled),
            on_broken=self.listeners.on_broken,
            on_failed=self.listeners.on_failed,
            on_known=self.listeners.on_known,
            group_path=lambda gang: group_path(self.cache, gang),
            seal=lambda: self.cache.seal,
            watched=watched,
            limits_in_force=self.limits_in_force,
        )

    def build_preemption_executor(self, status: StatusWriter, binder: Binder) -> PreemptionExecutor:
        """Make the executor of preemptions, which shares the binder's evictor."""

        def tell_stopped(stop: GangStop) -> None:
            status.stops.stopped(stop)
            _count_repeats(stop, self.telemetry)
            self.listeners.on_stopped(stop)

        return PreemptionExecutor(
            self.api,
            self.rate_limiter,
            self.cache,
            evictor=binder.evictor,
            lease=self.leadership,
            clock=self.clock,
            telemetry=self.telemetry,
            on_fault=self.listeners.on_fault,
            on_contained=self.listeners.on_contained,
            on_stopped=tell_stopped,
            on_switched=status.stops.switched,
            limits_in_force=self.limits_in_force,
        )

    def build_volume_binder(self, binder: Binder) -> VolumeBinder:
        """Make the binder of volumes and devices, which hands gangs on to the binder."""
        calls = PreemptionCalls(
            self.api,
            self.rate_limiter,
            self.cache,
            lease=self.leadership,
            clock=self.clock,
            telemetry=self.telemetry,
            limits_in_force=self.limits_in_force,
        )
        return VolumeBinder(
            binder,
            calls,
            self.cache,
            lease=self.leadership,
            clock=self.clock,
            on_fault=self.listeners.on_fault,
            on_contained=self.listeners.on_contained,
            on_failed=self.listeners.on_failed,
            limits_in_force=self.limits_in_force,
        )
