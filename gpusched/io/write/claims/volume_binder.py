"""Volumes before pods: a gang is bound when all claims of all its members have their volumes.

A claim that waited for a pod to get its node is told the node, or is given a volume that is
there; then the provisioner has a bounded time. A gang whose volumes do not
come in time gives its places back and is decided again; claims keep the node they were told, so
that the next decision, or the next leader's, goes on where this one stopped.

Gangs without such claims pass through at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from gpusched.api.meta.identity import UID, GangKey, ObjectKey
from gpusched.api.volumes.volume import PersistentVolumeClaim
from gpusched.base import limits
from gpusched.base.clock import Clock
from gpusched.base.errors import Fenced
from gpusched.cache.cache import Cache
from gpusched.cache.gangs.gang import Gang
from gpusched.commit.awaited_devices import AwaitedDevices
from gpusched.config.model import LimitsConfig, default_limits
from gpusched.io.leader.lease import Lease
from gpusched.io.observe.logs import Logger
from gpusched.io.workers.work_queue import OnContained, OnFault, log_contained_fault
from gpusched.io.write.binder import Binder
from gpusched.io.write.claims.binding_conditions import BindingConditions
from gpusched.io.write.claims.device_claims import DeviceClaims, has_claims
from gpusched.io.write.claims.rival_claims import RivalClaims
from gpusched.io.write.claims.unbound_claims import UnboundClaims
from gpusched.io.write.preemption_calls import PreemptionCalls
from gpusched.session.state.plan import GangBind, PodBind, Undo

_log = Logger(__name__)


class VolumeBinder:
    """Stands before the binder. Everything is called in the event loop.

    Args:
        binder: takes gangs whose volumes are there.
        calls: writes to claims and volumes.
        cache: what the watches show; told when places are given back.
        lease: a gang decided under another leadership is not bound.
        clock: time.
        on_fault: told of a crash.
        on_contained: told of a gang that failed by our own doing.
        on_failed: told which gang that was: it is to be left out.
        limits_in_force: ``limits`` of the configuration, with the time for volumes.
    """

    def __init__(
        self,
        binder: Binder,
        calls: PreemptionCalls,
        cache: Cache,
        *,
        lease: Lease,
        clock: Clock,
        on_fault: OnFault,
        on_contained: OnContained = log_contained_fault,
        on_failed: Callable[[GangKey, Exception], None] = lambda _gang, _error: None,
        limits_in_force: Callable[[], LimitsConfig] = default_limits,
    ) -> None:
        self._limits = limits_in_force
        self._binder = binder
        self._calls = calls
        self._cache = cache
        self._lease = lease
        self._clock = clock
        self._on_fault = on_fault
        self._contained = on_contained
        self._on_failed = on_failed
        self._under_way: dict[asyncio.Task[None], GangBind] = {}
        self._devices = DeviceClaims(calls, cache, binder.server_now)
        self._conditions = BindingConditions(cache, clock, binder.server_now)
        self._rivals = RivalClaims(cache, clock)
        self._unbound = UnboundClaims(
            self._devices,
            cache,
            clock=clock,
            server_now=binder.server_now,
            fence=lambda: lease.fence,
            has_open_commit=self.has_open_commit,
        )
        self._changed = asyncio.Event()
        cache.storage.listeners.append(self._changed.set)

    # -- what the cycle asks of a binder -----------------------------------------------------
    @property
    def queued(self) -> int:
        """Bindings that wait to be sent."""
        return self._binder.queued

    def has_open_commit(self, gang: GangKey) -> bool:
        """Whether the gang waits for volumes, or a commit of it is under way."""
        return self._binder.has_open_commit(gang) or any(
            each.gang == gang for each in self._under_way.values()
        )

    def server_now(self) -> float:
        """Seconds since the epoch by the API server's clock."""
        return self._binder.server_now()

    @property
    def kept_by_budgets(self) -> Mapping[UID, str]:
        """See ``Evictor.blocked_by_budget``."""
        return self._binder.evictor.blocked_by_budget

    @property
    def awaited_devices(self) -> Mapping[GangKey, AwaitedDevices]:
        """See ``BindingConditions.awaited``."""
        return self._conditions.awaited

    def undo_partial(self, undo: Undo) -> None:
        """Undo a gang that never became whole, see ``Binder.undo_partial``."""
        self._binder.undo_partial(undo)

    def submit(self, gang: GangBind) -> None:
        """Bind a gang, once its volumes and devices are there; the cache has just assumed it."""
        devices = has_claims(gang)
        if devices:
            self._devices.assume_claims(gang)
        elif not any(self._open_claims(bind) for bind in gang.binds):
            self._binder.submit(gang)
            return
        carry = self._carry_gang(gang, self._lease.fence)
        task = asyncio.get_running_loop().create_task(carry, name="volumes")
        self._under_way[task] = gang
        task.add_done_callback(self._end_task)

    def release_leftovers(self, gangs: Sequence[Gang]) -> None:
        """Take devices back from claims of pods that are not bound, see ``UnboundClaims``."""
        self._unbound.release_unbound(gangs)

    async def drain(self, timeout_s: float) -> bool:
        """Wait for no volume any more, and let bindings come to rest; see ``Binder.drain``."""
        await self._leave_gangs()
        return await self._binder.drain(timeout_s)

    async def abandon(self) -> None:
        """Leave everything as it is; see ``Binder.abandon``."""
        await self._leave_gangs()
        await self._binder.abandon()

    async def _leave_gangs(self) -> None:
        await self._unbound.drain()
        waiting = list(self._under_way)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    # -- one gang ----------------------------------------------------------------------------
    async def _carry_gang(self, gang: GangBind, fence: str) -> None:
        why = "given up"
        try:
            why = await self._prepare_volumes(gang, fence)
            if not why:
                self._binder.submit(gang)
        except Exception:
            why = why or "it could not be submitted"
            raise
        finally:
            # Also when cancelled: places that are not used must not be held.
            if why:
                self._devices.forget(gang)
                for bind in gang.binds:
                    self._forget(bind)
        if why:
            _log.warning("a gang gets no volumes or devices", gang=gang.gang, why=why)

    def _forget(self, bind: PodBind) -> None:
        try:
            self._cache.forget(bind.uid)
        except Exception as error:  # noqa: BLE001 - the other places must be given back
            self._contained("volumes", error, bind.key)

    def _end_task(self, task: asyncio.Task[None]) -> None:
        gang = self._under_way.pop(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception) and not isinstance(error, Fenced):
            self._contained("volumes", error, gang.gang)  # its places were given back
            self._on_failed(gang.gang, error)
        elif error is not None:
            self._on_fault(error)

    async def _prepare_volumes(self, gang: GangBind, fence: str) -> str:
        """Empty when all volumes are there, else why not."""
        taken: set[str] = set()
        open_nodes = self._open_nodes(gang)
        for bind in gang.binds:
            for claim in self._open_claims(bind):
                why = await self._choose_volume(claim, bind, taken, fence=fence)
                if why:
                    return why
        timeout_s = self._limits().volume_timeout_s
        deadline = self._clock.monotonic() + timeout_s
        while True:
            self._changed.clear()
            if self._lease.fence != fence:
                return "another leads"
            why, waits_for = self._claim_progress(gang)
            if not why and not waits_for:
                return await self._give_devices(gang, fence) or self._cordoned_node(open_nodes)
            if why:
                return why
            left_s = deadline - self._clock.monotonic()
            if left_s <= 0:
                return f"{waits_for} got no volume within {timeout_s:g} s"
            try:
                async with asyncio.timeout(min(left_s, limits.VOLUMES_LOOK_S)):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def _give_devices(self, gang: GangBind, fence: str) -> str:
        """Empty when all claims have their devices and nobody else has them, else why not."""
        if not has_claims(gang):
            return ""
        return (
            await self._unbound.wait_for_open(gang)
            or await self._rivals.taken_before(gang)
            or await self._devices.write(gang, fence)
            or await self._rivals.taken_since(gang)
            or await self._conditions.wait_until_ready(gang, lambda: self._stop_reason(gang, fence))
            or self._claim_progress(gang)[0]  # pods may have gone meanwhile
        )

    def _open_nodes(self, gang: GangBind) -> list[str]:
        """Nodes of a gang that are not cordoned: members may tolerate those that are."""
        known = {bind.node: self._cache.rows.get(bind.node) for bind in gang.binds}
        return [name for name, node in known.items() if node and not node.unschedulable]

    def _cordoned_node(self, nodes: Sequence[str]) -> str:
        """Which of these nodes was cordoned since; empty for none."""
        for name in nodes:
            node = self._cache.rows.get(name)
            if node is not None and node.unschedulable:
                return f"node {name} was cordoned"
        return ""

    def _stop_reason(self, gang: GangBind, fence: str) -> str:
        """Why a gang is not bound any more, whatever its devices become; empty while it is."""
        return "another leads" if self._lease.fence != fence else self._claim_progress(gang)[0]

    async def _choose_volume(
        self, claim: PersistentVolumeClaim, bind: PodBind, taken: set[str], *, fence: str
    ) -> str:
        if claim.selected_node:
            if claim.selected_node == bind.node:
                return ""
            return f"claim {claim.key} gets its volume for node {claim.selected_node}"
        node = self._cache.rows.get(bind.node)
        if node is None:
            return f"node {bind.node} is gone"
        volume = self._cache.storage.build_catalog().match(claim, node, taken)
        if volume is None:
            return await self._calls.select_node(claim, bind.node, fence=fence)
        taken.add(volume.name)
        return await self._calls.give_volume(volume, claim, fence=fence)

    def _claim_progress(self, gang: GangBind) -> tuple[str, str]:
        """What went wrong; and a claim that still waits, as words."""
        waits_for = ""
        for bind in gang.binds:
            pod = self._cache.find_pod(bind.uid)
            if pod is None or pod.deleting or pod.node:
                return f"pod {bind.key} is gone or bound", ""
            for claim in self._open_claims(bind):
                waits_for = f"claim {claim.key}"
            for name in pod.claims:
                if ObjectKey(pod.namespace, name) not in self._cache.storage.claims.items:
                    return f"claim {pod.namespace}/{name} is gone", ""
        return "", waits_for

    def _open_claims(self, bind: PodBind) -> list[PersistentVolumeClaim]:
        """Claims of the pod that have no volume yet."""
        pod = self._cache.find_pod(bind.uid)
        if pod is None or not pod.claims:
            return []
        claims = self._cache.storage.claims.items
        found = (claims.get(ObjectKey(pod.namespace, name)) for name in pod.claims)
        return [claim for claim in found if claim is not None and not claim.bound]
