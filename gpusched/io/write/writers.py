"""Everything that writes to the API in one term, put together: all share one rate limiter."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from gpusched.api.meta.identity import GangKey
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


@attrs.frozen(kw_only=True)
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


@attrs.frozen(kw_only=True)
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
    status = StatusWriter(
        api,
        rate_limiter,
        cache,
        lease=leadership,
        clock=clock,
        telemetry=telemetry,
        on_fault=listeners.on_fault,
        on_contained=listeners.on_contained,
        instance=instance,
        limits_in_force=limits_in_force,
    )
    binder = Binder(
        api,
        rate_limiter,
        cache,
        leadership,
        clock=clock,
        telemetry=telemetry,
        on_fault=listeners.on_fault,
        on_contained=listeners.on_contained,
        on_settled=lambda settled: listeners.on_settled(status, settled),
        on_broken=listeners.on_broken,
        on_failed=listeners.on_failed,
        on_known=listeners.on_known,
        group_path=lambda gang: group_path(cache, gang),
        seal=lambda: cache.seal,
        watched=watched,
        limits_in_force=limits_in_force,
    )

    def stopped(stop: GangStop) -> None:
        status.stops.stopped(stop)
        listeners.on_stopped(stop)

    preemption_executor = PreemptionExecutor(
        api,
        rate_limiter,
        cache,
        evictor=binder.evictor,
        lease=leadership,
        clock=clock,
        telemetry=telemetry,
        on_fault=listeners.on_fault,
        on_contained=listeners.on_contained,
        on_stopped=stopped,
        on_switched=status.stops.switched,
        limits_in_force=limits_in_force,
    )
    calls = PreemptionCalls(
        api,
        rate_limiter,
        cache,
        lease=leadership,
        clock=clock,
        telemetry=telemetry,
        limits_in_force=limits_in_force,
    )
    volumes = VolumeBinder(
        binder,
        calls,
        cache,
        lease=leadership,
        clock=clock,
        on_fault=listeners.on_fault,
        on_contained=listeners.on_contained,
        on_failed=listeners.on_failed,
        limits_in_force=limits_in_force,
    )
    return Writers(
        rate_limiter=rate_limiter,
        status=status,
        binder=binder,
        preemption_executor=preemption_executor,
        volumes=volumes,
    )
