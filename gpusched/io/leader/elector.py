"""Drives ``leader/lease_machine.py`` against the Lease in the API server.

One task, one call under way at a time, on a client of its own so that a renewal never queues
behind bindings. Each call is cut off at the moment the logic gives, whatever the server does.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, Final

import attrs

from gpusched.api.meta.identity import is_older_version
from gpusched.api.serializer.seal import KEY, is_seal_key
from gpusched.base import errors, limits
from gpusched.base.clock import Clock
from gpusched.config.model import LeaderElectionConfig
from gpusched.io.client.api_client import ApiClient
from gpusched.io.client.missing_rights import explain_denied
from gpusched.io.client.responses import ApiResponse, api_error
from gpusched.io.leader.seal_key_copy import SealKeyCopy
from gpusched.io.observe.logs import Logger
from gpusched.leader.lease_machine import LeaseMachine
from gpusched.leader.lease_state import (
    LEADER,
    CallLease,
    ClockReading,
    Event,
    LeaseCallFailed,
    LeaseDoubted,
    LeaseMissing,
    LeaseOperation,
    LeasePhase,
    LeaseRecord,
    LeaseRefused,
    LeaseSeen,
    LeaseTiming,
    LeaseWritten,
    StartLeading,
    StepDown,
    StopRequested,
    TimerFired,
    check_timing,
)

_API_VERSION: Final = "coordination.k8s.io/v1"
_ROLE: Final = "Role gpusched-leader (manifests/rbac.yaml)"
_RENEWALS_KEPT: Final = 15
"""More than can be unanswered: a lease lasts for fewer retry periods."""
_COUNT_MAX: Final = 2**31 - 1
"""Largest count of changes of hands that the server stores."""
_COUNT_STEP_S: Final = 2
"""Seconds for which a new Lease counts one up: it hardly changes hands more often."""
_log = Logger(__name__)


def _valid_count(value: object) -> int | None:
    """The count of changes of hands that a Lease holds; None where none can follow it."""
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value < _COUNT_MAX else None


def lease_timing(election: LeaderElectionConfig) -> LeaseTiming:
    """The times of a Lease as the configuration has them."""
    return LeaseTiming(
        lease_s=election.lease_duration_s,
        deadline_s=election.renew_deadline_s,
        retry_s=election.retry_period_s,
    )


class Elector:
    """Takes, keeps and gives back the right to write.

    ``run`` is one task; ``may_act`` is asked before each write, ``acquired`` waits for the
    right, ``doubt`` is told when a write was fenced, ``stop`` begins the orderly end.

    Args:
        api: a client that nothing else uses.
        identity: new for each process: pod name, pod UID and something random.
        namespace: of the Lease.
        name: of the Lease.
        timing: durations; checked here.
        clock: monotonic, boot and wall time.
        create_if_missing: True only outside a cluster; inside, the manifest makes the Lease.
        on_restored: told in a sentence that the Lease went back in time.
        patience_s: seconds for which a Lease that nobody holds is left to others.
        create_namespace: makes the namespace of the Lease, where it is missing.
        new_key: makes a key for ``api.serializer.seal``, as text; the first leader keeps it in the
            Lease, where all later leaders find it.
        known_key: the key that this process saw in terms before; empty for none.
        key_copy: where the key is found when the Lease was lost.
        on_refused: told after each look at the Lease that did not make us the leader.

    Raises:
        ConfigError: with these durations two leaders could overlap.
    """

    def __init__(
        self,
        api: ApiClient,
        *,
        identity: str,
        namespace: str,
        name: str,
        timing: LeaseTiming,
        clock: Clock,
        create_if_missing: bool = False,
        on_restored: Callable[[str], None] = lambda _sentence: None,
        new_key: Callable[[], str] | None = None,
        known_key: str = "",
        key_copy: SealKeyCopy | None = None,
        create_namespace: Callable[[], Awaitable[None]] | None = None,
        on_refused: Callable[[], None] = lambda: None,
        patience_s: float = 0.0,
        manifests: str = "manifests/",
    ) -> None:
        check_timing(timing)
        self._create_namespace = create_namespace
        self._on_refused = on_refused
        self._manifests = manifests
        self._new_key = new_key
        self._key = known_key
        self._key_copy = key_copy
        self._on_restored = on_restored
        self._renewed: list[str] = []
        """Times in our last answered write and in those after it: one of them is in the Lease."""
        self._api = api
        self._clock = clock
        self._namespace = namespace
        self._name = name
        self._collection = f"/apis/{_API_VERSION}/namespaces/{namespace}/leases"
        self._duration_s = math.ceil(timing.lease_s)
        self._logic = LeaseMachine(
            identity=identity,
            timing=timing,
            create_if_missing=create_if_missing,
            patience_s=patience_s,
        )
        self._state = self._logic.first_state(self._now())
        self._object: dict[str, Any] = {}
        self._uncounted = LeaseRecord(version="", holder="", transitions=0, duration_s=0.0)
        """The Lease without a count of changes of hands that was read last, with its beginning."""
        self._wake = asyncio.Event()
        self._leads = asyncio.Event()
        self._stopping = False
        self._doubting = False
        self._told = ""
        self._holder_told = ""

    @property
    def leading(self) -> bool:
        """Whether we hold the lease as far as we know; ``may_act`` says whether to write."""
        return self._state.phase in LEADER

    @property
    def fence(self) -> str:
        """``holder/transitions`` of our leadership; empty while we do not lead."""
        return self._logic.fence(self._state) if self.leading else ""

    @property
    def holder(self) -> str:
        """Identity that holds the lease as last seen; empty for none."""
        return self._state.record.holder if self._state.record is not None else ""

    @property
    def version(self) -> str:
        """The Lease's resourceVersion as last seen; empty when it was not seen yet."""
        return self._state.record.version if self._state.record is not None else ""

    @property
    def error(self) -> str:
        """Why the lease cannot be read or written now; empty when it can."""
        return self._state.why

    @property
    def seal_key(self) -> str:
        """The key of our seal as the Lease has it; empty until we lead."""
        return self._key if self.leading else ""

    @property
    def known_key(self) -> str:
        """The key that was last seen, in whichever term; empty for none."""
        return self._key

    @property
    def lease_uid(self) -> str:
        """UID of the Lease as last seen; empty when it was not seen yet."""
        return str((self._object.get("metadata") or {}).get("uid") or "")

    def may_act(
        self, now_mono: float, now_boot: float, needs_s: float = limits.BIND_TIMEOUT_CLIENT_S
    ) -> bool:
        """Whether a write that may last ``needs_s`` seconds can begin at this moment.

        Args:
            now_mono: monotonic seconds.
            now_boot: boot-time seconds, which go on while the process or machine is suspended.
            needs_s: longest time until the write is over.
        """
        return not self._doubting and self._logic.may_act(
            self._state, ClockReading(now_mono, now_boot), needs_s
        )

    async def acquired(self) -> str:
        """Wait until we lead; the fence."""
        await self._leads.wait()
        return self.fence

    def doubt(self) -> None:
        """A write was refused: do nothing more until a renewal proves the lease."""
        self._doubting = True
        self._wake.set()

    def stop(self) -> None:
        """Give the lease back and let ``run`` end; call it when everything else has ended."""
        self._stopping = True
        self._wake.set()

    async def run(self) -> str:
        """Take part until the lease is lost or given back; why it ended, in one sentence.

        A process whose ``run`` ended must not write any more, and must not take part again
        under the same identity.
        """
        while not self._ended:
            await self._pause()
            if self._doubting:
                self._doubting = False
                self._feed(LeaseDoubted(self._now()))
            call = self._feed(
                StopRequested(self._now()) if self._stopping else TimerFired(self._now())
            )
            while call is not None:
                call = self._feed(await self._answer(call))
            if not self.leading:
                self._on_refused()
        return self._state.why

    @property
    def _ended(self) -> bool:
        return self._state.phase is LeasePhase.ENDED

    def _feed(self, event: Event) -> CallLease | None:
        """One step of the logic; the call it asks for, if any."""
        self._state, effects = self._logic.advance_lease(self._state, event)
        call: CallLease | None = None
        for effect in effects:
            match effect:
                case StartLeading():
                    self._leads.set()
                    _log.info("leading", lease=self._lease, fence=effect.fence)
                case StepDown():
                    self._leads.clear()
                    say = _log.info if self._stopping else _log.error
                    say(f"no longer leading: {effect.why}", lease=self._lease)
                case CallLease():
                    call = effect
        self._report()
        return call

    async def _pause(self) -> None:
        """Wait until the next step is due or is asked for."""
        self._wake.clear()
        delay = self._state.next_at - self._clock.monotonic()
        if self._stopping or self._doubting or delay <= 0:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay):
                await self._wake.wait()

    def _report(self) -> None:
        """Say what keeps us from the lease, once per cause."""
        why = self._state.why
        if not self._ended and why != self._told:
            if why:
                _log.warning("lease cannot be used", lease=self._lease, why=why)
            self._told = why
        if self._state.phase is LeasePhase.STANDBY and self.holder != self._holder_told:
            self._holder_told = self.holder
            if self.holder:
                _log.info("standing by", lease=self._lease, leader=self.holder)

    # -- calls ------------------------------------------------------------------------------

    async def _answer(self, call: CallLease) -> Event:
        """Do the call; whatever happens becomes an event within its time."""
        try:
            if call.op in {LeaseOperation.TAKE, LeaseOperation.CREATE}:
                async with asyncio.timeout(call.timeout_s):
                    await self._settle_key(new_lease=call.op is LeaseOperation.CREATE)
            async with asyncio.timeout(call.timeout_s):
                answer = await self._request(call)
        except TimeoutError:
            why = f"{self._lease} did not answer within {call.timeout_s:.1f} s"
            return LeaseCallFailed(self._now(), why)
        except (errors.ClusterUnreachable, errors.ApiError) as error:
            return LeaseCallFailed(self._now(), str(error))
        return self._verdict(call, answer)

    async def _request(self, call: CallLease) -> ApiResponse:
        path = f"{self._collection}/{self._name}"
        if call.op is LeaseOperation.READ:
            return await self._api.request("GET", path, timeout_s=call.timeout_s)
        body = json.dumps(self._body(call)).encode()
        if call.op is LeaseOperation.CREATE:
            answer = await self._create(body, call.timeout_s)
            if answer.status == 404 and self._create_namespace is not None:
                # Its namespace is gone too: a person, or a restore of etcd, took it away.
                await self._create_namespace()
                answer = await self._create(body, call.timeout_s)
            return answer
        return await self._api.request("PUT", path, body=body, timeout_s=call.timeout_s)

    async def _create(self, body: bytes, timeout_s: float) -> ApiResponse:
        return await self._api.request("POST", self._collection, body=body, timeout_s=timeout_s)

    def _verdict(self, call: CallLease, answer: ApiResponse) -> Event:
        now = self._now()
        if answer.ok:
            record = self._read(answer.body)
            if record is None:
                return LeaseCallFailed(now, f"the answer for {self._lease} is not a Lease")
            if call.op is LeaseOperation.READ:
                self._is_restored_lease(record)
                return LeaseSeen(now, record)
            del self._renewed[:-1]
            return LeaseWritten(now, record)
        if answer.status == 404:
            why = f"{self._lease} does not exist: run kubectl apply -k {self._manifests}"
            return LeaseMissing(now, why, self._beginning())
        if answer.status == 409 and call.op is not LeaseOperation.READ:
            return LeaseRefused(now)
        doing = f"{call.op.name.lower()} {self._lease}"
        error = api_error(answer, doing=doing)
        return LeaseCallFailed(
            now, str(explain_denied(error, _ROLE) if isinstance(error, errors.Denied) else error)
        )

    def _is_restored_lease(self, record: LeaseRecord) -> None:
        """Whether the Lease is older than what we know: it is written every few seconds, so that
        hardly any backup of an etcd fails to show in it.
        """
        before, ours = self._state.record, self._state.phase in LEADER
        time = str(self._object["spec"].get("renewTime"))
        if before is not None and is_older_version(record.version, before.version):
            went = f"its version from {before.version} to {record.version}"
        elif ours and record.holder == self._logic.identity and time not in self._renewed:
            went = f"its last renewal from {self._renewed[0]} to {time}"
        else:
            return
        self._on_restored(f"{self._lease} went back, {went}: etcd was restored from a backup")

    def _read(self, body: bytes) -> LeaseRecord | None:
        """The record in a Lease; fields of a wrong type count as absent."""
        try:
            parsed = json.loads(body)
            version = parsed["metadata"]["resourceVersion"]
        except (ValueError, KeyError, TypeError, RecursionError):
            return None
        spec = parsed.get("spec")
        spec = spec if isinstance(spec, dict) else {}
        self._object = {**parsed, "spec": spec}
        if not self.leading:
            self._key = self._found_key() or self._key
        holder = spec.get("holderIdentity")
        transitions = _valid_count(spec.get("leaseTransitions"))
        duration = spec.get("leaseDurationSeconds")
        record = LeaseRecord(
            version=str(version),
            holder="" if holder is None else str(holder),
            transitions=self._beginning() if transitions is None else transitions,
            duration_s=float(duration) if isinstance(duration, int) else 0.0,
        )
        if transitions is not None:
            return record
        # The beginning goes on with the clock: a Lease that nobody writes must stay the same, or
        # a standby would take each reading for a renewal and never take over from a dead holder.
        if attrs.evolve(record, transitions=self._uncounted.transitions) != self._uncounted:
            self._uncounted = record
        return self._uncounted

    def _beginning(self) -> int:
        """Where a Lease that was never held begins to count: half the seconds since 1970.

        That fits into 32 bits until 2106, and the count goes on where a Lease is deleted and made
        again: what its last holder has under way is older for the policy gpusched-fence. A server
        may know the old one for ever: once no policy with a parameter of this kind is left,
        Kubernetes 1.36 never watches the kind again until it is restarted.
        """
        return int(self._clock.now() // _COUNT_STEP_S)

    def _body(self, call: CallLease) -> dict[str, Any]:
        """What to write: what was read, with our fields in it, so that labels survive."""
        now = datetime.fromtimestamp(self._clock.now(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        if call.op is LeaseOperation.CREATE:
            metadata: dict[str, Any] = {"name": self._name, "namespace": self._namespace}
            spec: dict[str, Any] = {}
        else:
            metadata = {**self._object["metadata"], "resourceVersion": call.version}
            metadata.pop("managedFields", None)
            spec = dict(self._object["spec"])
        self._add_key(metadata)
        releasing = call.op is LeaseOperation.RELEASE
        spec.update(
            holderIdentity="" if releasing else self._logic.identity,
            leaseDurationSeconds=self._duration_s,
            leaseTransitions=call.transitions,
            renewTime=now,
        )
        self._renewed = [*self._renewed[-_RENEWALS_KEPT:], now]
        if call.op in {LeaseOperation.TAKE, LeaseOperation.CREATE}:
            spec["acquireTime"] = now
        return {"apiVersion": _API_VERSION, "kind": "Lease", "metadata": metadata, "spec": spec}

    async def _settle_key(self, *, new_lease: bool) -> None:
        """The key for a term that begins: the Lease's, else that of its copy, else a new one.

        Raises:
            ApiError: the copy cannot be read, so that it is not known whether there is a key.
        """
        if new_lease or not self._found_key():
            new = self._new_key or (lambda: "")
            known = self._key
            self._key = (
                await self._key_copy.settle_key(known, new) if self._key_copy else known or new()
            )

    def _found_key(self) -> str:
        """The key in the Lease as it was read last; empty for none."""
        notes = (self._object.get("metadata") or {}).get("annotations")
        found = notes.get(KEY) if isinstance(notes, dict) else None
        return str(found) if is_seal_key(found) else ""

    def _add_key(self, metadata: dict[str, Any]) -> None:
        """Keep the key in the Lease: ours comes first, so that one term seals its bindings alike."""
        notes = metadata.get("annotations")
        notes = dict(notes) if isinstance(notes, dict) else {}
        if self._key:
            metadata["annotations"] = {**notes, KEY: self._key}

    @property
    def _lease(self) -> str:
        return f"lease {self._namespace}/{self._name}"

    def _now(self) -> ClockReading:
        return ClockReading(self._clock.monotonic(), self._clock.boottime())


class Leadership:
    """The lease as it is now, over all terms of this process."""

    def __init__(self) -> None:
        self.elector: Elector | None = None
        self.others: list[Elector] = []
        """Of Leases that were taken in this term beside: one that is lost ends all writing."""

    @property
    def fence(self) -> str:
        """``holder/transitions`` of our leadership; empty while we do not lead."""
        return self.elector.fence if self.elector else ""

    @property
    def leading(self) -> bool:
        """Whether we hold the lease as far as we know."""
        return self.elector is not None and self.elector.leading

    def may_act(self, now_mono: float, now_boot: float, needs_s: float) -> bool:
        """Whether a write that may last ``needs_s`` seconds can begin at this moment."""
        return self.elector is not None and all(
            each.may_act(now_mono, now_boot, needs_s) for each in (self.elector, *self.others)
        )

    def doubt(self) -> None:
        """A write was refused: do nothing more until a renewal proves the lease."""
        if self.elector is not None:
            self.elector.doubt()
