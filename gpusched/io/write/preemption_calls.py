"""The calls that make room, each repeated where that is harmless; nothing is decided here.

A promise and a switch carry the version they were made for, so that they never undo what
somebody else did meanwhile; a conflict is met with the version that the watch shows by then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final
from urllib.parse import quote

import attrs

from gpusched import API_VERSION
from gpusched.api.gang.eviction_record import (
    EVICTIONS,
    GangEvictions,
    format_evictions,
    parse_evictions,
)
from gpusched.api.gang.move_record import format_move
from gpusched.api.gang.turn_record import TURN, TurnRecord, format_turn, parse_turn
from gpusched.api.meta.identity import UID, ObjectKey
from gpusched.api.serializer import patches
from gpusched.api.serializer.seal import SEAL
from gpusched.api.volumes.volume import PersistentVolume, PersistentVolumeClaim
from gpusched.base import errors, limits
from gpusched.base.classes import frozen
from gpusched.base.clock import Clock
from gpusched.cache.cache import Cache
from gpusched.config.model import LimitsConfig, default_limits
from gpusched.io.client.api_client import MERGE_PATCH, STRATEGIC_MERGE_PATCH, ApiClient
from gpusched.io.client.responses import api_error
from gpusched.io.client.transport import JSON
from gpusched.io.leader.lease import Lease
from gpusched.io.observe.telemetry import Telemetry
from gpusched.io.workers.rate_limiter import RateLimiter, TrafficClass
from gpusched.io.write.bind_calls import CALL_S, pod_path
from gpusched.session.allocate.suspended_jobs import ADMITTED_ANNOTATION
from gpusched.session.framework.reasons import Reason
from gpusched.session.state.plan import Eviction, GangStop, JobSuspendChange, MoveOrder

NOT_LEADING: Final = "the leadership that decided it is over"
_NOT_FOUND: Final = 404
Body = Callable[[], bytes | str]
"""The body of the next try, or as text why there is none."""


@frozen(slots=True)
class PatchOutcome:
    """What became of a patch after all its tries.

    Attributes:
        why: it was not done; empty where it was, or where there was nothing to do.
        answer: the object as the API server returned it, empty without success.
        status: HTTP status of the last answer, 0 for none.
        uncertain: whether a try without an answer may have been carried out, or may still be.
    """

    why: str
    answer: bytes = b""
    status: int = 0
    uncertain: bool = False


class PreemptionCalls:
    """See the module. Every call returns an empty text, or why it was not done.

    Args:
        api: shared with everything but the lease.
        rate_limiter: gives turns, as for evictions.
        cache: what the API showed last.
        lease: asked before each write.
        clock: time.
        telemetry: counts 429 answers.
        limits_in_force: of the configuration, asked once.
    """

    def __init__(
        self,
        api: ApiClient,
        rate_limiter: RateLimiter,
        cache: Cache,
        *,
        lease: Lease,
        clock: Clock,
        telemetry: Telemetry,
        limits_in_force: Callable[[], LimitsConfig] = default_limits,
    ) -> None:
        self._api = api
        self._rate_limiter = rate_limiter
        self._cache = cache
        self._lease = lease
        self._clock = clock
        self._telemetry = telemetry
        self._turns = asyncio.Semaphore(limits_in_force().binds_in_flight)

    async def nominate_pod(
        self, key: ObjectKey, uid: UID, node: str, *, message: str, since: float, fence: str
    ) -> str:
        """Promise a waiting pod room on a node."""

        def body() -> bytes | str:
            pod = self._cache.find_pod(uid)
            if pod is None or pod.node or pod.deleting or pod.gated or pod.finished:
                return f"pod {key} does not wait any more"
            return patches.nomination_patch(
                uid,
                pod.resource_version,
                node=node,
                reason=Reason.PREEMPTION_IN_PROGRESS,
                message=message,
                since=since,
            )

        path = f"{pod_path(key)}/status"
        return await self._patch_object(path, STRATEGIC_MERGE_PATCH, body, fence=fence)

    async def mark_disruption_target(self, victim: Eviction, *, since: float, fence: str) -> str:
        """Say on a victim that it is about to be evicted; a pod that is gone needs none."""

        def body() -> bytes | str:
            if self._cache.find_pod(victim.uid) is None:
                return ""
            return patches.disruption_patch(victim.uid, message=victim.message, since=since)

        path = f"{pod_path(victim.key)}/status"
        return await self._patch_object(
            path, STRATEGIC_MERGE_PATCH, body, fence=fence, or_gone=True
        )

    async def record(self, order: MoveOrder, *, fence: str, undo: bool = False) -> str:
        """Write where a gang is moved to on its PodGroup or Job, or take that off again."""
        gang = order.gang
        place = f"namespaces/{quote(gang.namespace)}"
        path = f"/apis/batch/v1/{place}/jobs/{quote(gang.name)}"
        if gang.kind != "Job":
            path = f"/apis/{API_VERSION}/{place}/podgroups/{quote(gang.name)}/status"

        def body() -> bytes | str:
            seal = self._cache.seal.of_move(order.uid, order.move)
            text = "" if undo else format_move(order.move, seal=seal)
            return patches.move_record_patch(order.uid, text, on_status=gang.kind != "Job")

        return await self._patch_object(path, MERGE_PATCH, body, fence=fence)

    async def record_turn(self, stop: GangStop, turn: TurnRecord, *, fence: str) -> str:
        """Write the turns that a gang has had on its PodGroup or Job, before it leaves."""
        gang, on_job = stop.gang, stop.gang.kind == "Job"
        place = f"namespaces/{quote(gang.namespace)}"
        path = f"/apis/{API_VERSION}/{place}/podgroups/{quote(gang.name)}/status"
        if on_job:
            path = f"/apis/batch/v1/{place}/jobs/{quote(gang.name)}"

        def body() -> bytes | str:
            seal = self._cache.seal.of_turn(stop.uid, turn)
            return patches.turn_record_patch(stop.uid, turn, seal=seal, on_job=on_job)

        return await self._patch_object(path, MERGE_PATCH, body, fence=fence)

    async def record_evictions(self, stop: GangStop, record: GangEvictions, *, fence: str) -> str:
        """Write the last evictions of a gang, with the one to come, on its PodGroup or Job."""
        gang, on_job = stop.gang, stop.gang.kind == "Job"
        place = f"namespaces/{quote(gang.namespace)}"
        path = f"/apis/{API_VERSION}/{place}/podgroups/{quote(gang.name)}/status"
        if on_job:
            path = f"/apis/batch/v1/{place}/jobs/{quote(gang.name)}"

        def body() -> bytes | str:
            seal = self._cache.seal.of_evictions(stop.uid, record)
            return patches.evictions_patch(stop.uid, record, seal=seal, on_job=on_job)

        return await self._patch_object(path, MERGE_PATCH, body, fence=fence)

    def _sealed_annotations(self, switch: JobSuspendChange) -> tuple[tuple[str, str], ...]:
        """Its annotations, each with its seal, and that over the time of the start where it is one of them."""
        notes = dict(switch.annotations)
        turn = parse_turn(notes.get(TURN))
        if turn is not None:
            notes[TURN] = format_turn(turn, seal=self._cache.seal.of_turn(switch.uid, turn))
        evictions = parse_evictions(notes.get(EVICTIONS))
        if evictions.past:
            seal = self._cache.seal.of_evictions(switch.uid, evictions)
            notes[EVICTIONS] = format_evictions(evictions, seal=seal)
        if ADMITTED_ANNOTATION not in notes:
            return tuple(sorted(notes.items()))
        admitted = notes[ADMITTED_ANNOTATION]
        seal = self._cache.seal.of_start(switch.uid, admitted) if admitted else ""
        return tuple(sorted({**notes, SEAL: seal}.items()))

    async def switch_job(self, switch: JobSuspendChange, *, fence: str) -> str:
        """Pause or start a Job."""
        key = switch.key

        def body() -> bytes | str:
            job = self._cache.jobs.items.get(key)
            if job is None or job.uid != switch.uid:
                return f"Job {key} is gone"
            return patches.job_suspend_patch(
                switch.uid,
                job.resource_version,
                suspend=switch.suspend,
                parallelism=switch.parallelism,
                node_selector=switch.node_selector,
                annotations=self._sealed_annotations(switch),
            )

        path = f"/apis/batch/v1/namespaces/{quote(key.namespace)}/jobs/{quote(key.name)}"
        return await self._patch_object(path, MERGE_PATCH, body, fence=fence)

    async def select_node(self, claim: PersistentVolumeClaim, node: str, *, fence: str) -> str:
        """Tell the volume's provisioner on which node the claim is to be used."""
        path = f"/api/v1/namespaces/{quote(claim.namespace)}/persistentvolumeclaims"

        def body() -> bytes | str:
            known = self._cache.storage.claims.items.get(claim.key)
            if known is None or known.uid != claim.uid:
                return f"claim {claim.key} is gone"
            return patches.selected_node_patch(known.uid, known.resource_version, node=node)

        return await self._patch_object(
            f"{path}/{quote(claim.name)}", MERGE_PATCH, body, fence=fence
        )

    async def give_volume(
        self, volume: PersistentVolume, claim: PersistentVolumeClaim, *, fence: str
    ) -> str:
        """Promise a volume that is there to a claim; the cluster's controller binds the two."""

        def body() -> bytes | str:
            known = self._cache.storage.volumes.items.get(ObjectKey("", volume.name))
            if known is None or known.uid != volume.uid:
                return f"volume {volume.name} is gone"
            return patches.volume_claim_ref_patch(
                known.uid, known.resource_version, claim=claim.key, claim_uid=claim.uid
            )

        path = f"/api/v1/persistentvolumes/{quote(volume.name)}"
        return await self._patch_object(path, MERGE_PATCH, body, fence=fence)

    async def patch_claim(self, path: str, body: Body, *, fence: str) -> PatchOutcome:
        """Send a merge patch of a claim for devices, made anew for each try."""
        return await self._try_until_answered(
            path, MERGE_PATCH, body, fence=fence, traffic=TrafficClass.BIND
        )

    async def send_claim(self, method: str, path: str, body: Body, *, fence: str) -> PatchOutcome:
        """Make (``POST``) or delete (``DELETE``) a claim for devices, with a body made anew for each try."""
        return await self._try_until_answered(
            path, JSON, body, fence=fence, traffic=TrafficClass.BIND, method=method
        )

    async def _patch_object(
        self, path: str, content_type: str, body: Body, *, fence: str, or_gone: bool = False
    ) -> str:
        outcome = await self._try_until_answered(path, content_type, body, fence=fence)
        return "" if or_gone and outcome.status == _NOT_FOUND else outcome.why

    async def _try_until_answered(
        self,
        path: str,
        content_type: str,
        body: Body,
        *,
        fence: str,
        traffic: TrafficClass = TrafficClass.EVICT,
        method: str = "PATCH",
    ) -> PatchOutcome:
        outcome, uncertain = PatchOutcome(""), False
        async with self._turns:
            for tries in range(limits.PREEMPTION_TRIES_MAX):
                if tries:
                    await self._clock.sleep(limits.PREEMPTION_RETRY_S * tries)
                await self._rate_limiter.turn(traffic)
                made = body()
                if isinstance(made, str):
                    return PatchOutcome(made, uncertain=uncertain)
                now, boot = self._clock.monotonic(), self._clock.boottime()
                if self._lease.fence != fence or not self._lease.may_act(now, boot, CALL_S):
                    return PatchOutcome(NOT_LEADING, uncertain=uncertain)
                outcome, again = await self._try_once(method, path, content_type, made)
                uncertain |= outcome.uncertain
                if not again:
                    break
        return attrs.evolve(outcome, uncertain=uncertain and bool(outcome.why))

    async def _try_once(
        self, method: str, path: str, content_type: str, body: bytes
    ) -> tuple[PatchOutcome, bool]:
        """What became of one try, and whether to try again."""
        try:
            async with asyncio.timeout(CALL_S):
                answer = await self._api.request(
                    method, path, body=body, content_type=content_type, timeout_s=CALL_S
                )
        except errors.ClusterUnreachable as unsent:
            return PatchOutcome(str(unsent)), True
        except errors.OutcomeUnknown as unanswered:
            return PatchOutcome(str(unanswered), uncertain=True), True
        except TimeoutError:
            why = f"{method.lower()} {path}: no answer within {CALL_S:g} s"
            return PatchOutcome(why, uncertain=True), True
        if answer.ok:
            return PatchOutcome("", answer.body, answer.status), False
        error = api_error(answer, doing=f"{method.lower()} {path}", write=True)
        unknown = isinstance(error, errors.OutcomeUnknown)
        refusal = PatchOutcome(str(error), status=answer.status, uncertain=unknown)
        if isinstance(error, errors.Throttled):
            self._telemetry.throttled()
            self._rate_limiter.throttled(error.retry_after_s)
        elif isinstance(error, errors.Denied):
            self._lease.doubt()
            return refusal, False
        return refusal, unknown or isinstance(error, errors.Throttled | errors.Conflict)
