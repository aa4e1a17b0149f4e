"""Claims that have devices for pods which are not bound after all: the devices are taken back.

A gang is refused after some of its claims were written, or a process dies between two writes: whoever leads
then takes the pod out of the claim's ``reservedFor``, and the devices from a claim that nobody else
uses. What was made for the extended resources of a pod is deleted. A group leaves a claim when none of its members has a node. Claims of which a write got no answer
are asked about first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from typing import Final

from gpusched.api.devices.dynamic.claims import ClaimConsumer, ResourceClaim
from gpusched.api.meta.identity import UID, GangKey, ObjectKey
from gpusched.api.pod.pod import Pod
from gpusched.api.serializer.device_claims import claim_release_patch, claim_status_patch
from gpusched.base.classes import frozen
from gpusched.base.clock import Clock
from gpusched.cache.cache import Cache
from gpusched.cache.gangs.gang import Gang
from gpusched.devices.readiness import has_waited, never_ready
from gpusched.io.observe.logs import Logger
from gpusched.io.write.claims.device_claims import DeviceClaims, claims_of, gives_others
from gpusched.io.write.claims.rival_claims import devices_given_twice
from gpusched.session.state.plan import ClaimBind, GangBind

_log = Logger(__name__)
_OPEN_MAX: Final = 64
"""Claims that are written at a time; the rest follows with the next session."""
_RETRY_MAX_S: Final = 60.0
_GO_ON_WITHIN_S: Final = 30.0
"""Seconds within which a gang must be placed again where devices are being made ready for it."""


@frozen(slots=True)
class _Failed:
    """A claim that could not be written.

    Attributes:
        tries: made so far.
        retry_at: monotonic seconds.
    """

    tries: int
    retry_at: float


@frozen(slots=True)
class _Waiting:
    """Whose devices are to be taken back.

    Attributes:
        gang: that the pod or group belongs to.
        group: the PodGroup for which the claim is reserved; None for the pod.
    """

    gang: GangKey
    group: GangKey | None


class UnboundClaims:
    """See the module. Everything is called in the event loop.

    Args:
        devices: sends the patches.
        cache: shows claims and pods.
        clock: time.
        server_now: seconds since the epoch by the API server's clock.
        fence: of the leadership in force, empty for none.
        has_open_commit: whether a gang is being bound.
    """

    def __init__(
        self,
        devices: DeviceClaims,
        cache: Cache,
        *,
        clock: Clock,
        server_now: Callable[[], float],
        fence: Callable[[], str],
        has_open_commit: Callable[[GangKey], bool],
    ) -> None:
        self._devices = devices
        self._cache = cache
        self._clock = clock
        self._server_now = server_now
        self._fence = fence
        self._has_open_commit = has_open_commit
        self._open: dict[ObjectKey, asyncio.Task[None]] = {}
        self._failed: dict[ObjectKey, _Failed] = {}
        self._idle_since: dict[GangKey, float] = {}
        """Monotonic seconds since which gangs have devices that may become ready and are not being bound."""

    def release_unbound(self, gangs: Sequence[Gang]) -> None:
        """Take back what unbound pods of these gangs hold, and ask about writes without an answer."""
        for key in self._devices.unanswered_claims():
            self._begin(key, self._devices.settle_claim)
        claims = self._cache.devices.claims.items
        if not claims:
            return
        leaving: dict[ObjectKey, dict[UID, _Waiting]] = {}
        idle: dict[GangKey, float] = {}
        for gang in gangs:
            held = self._held_by_gang(gang)
            awaited = {
                claim.key for claim, _, _ in held if has_waited(claim) and not claim.extended
            }
            if awaited:
                idle[gang.key] = self._idle_since.get(gang.key, self._clock.monotonic())
                if not self._may_go_on(held, idle[gang.key]):
                    awaited = set()
            for claim, user, group in held:
                if claim.extended and claim.owner == user:
                    self._remove_claim(claim.key, user, gang.key)
                elif claim.key not in awaited:
                    leaving.setdefault(claim.key, {})[user] = _Waiting(gang.key, group)
        self._idle_since = idle
        for key, pods in leaving.items():

            async def take_back(
                key: ObjectKey, fence: str, pods: Mapping[UID, _Waiting] = pods
            ) -> str:
                return await self._take_back(key, pods, fence)

            if not self._cache.devices.is_assumed(key):
                self._begin(key, take_back)

    def _remove_claim(self, key: ObjectKey, pod: UID, gang: GangKey) -> None:
        """Delete what was made for the extended resources of an unbound pod."""

        def stays() -> bool:
            known = self._cache.devices.claims.items.get(key)
            if known is None or self._devices.extended.is_open(key):
                return True
            if not self._is_unbound(pod, None) or self._has_open_commit(gang):
                return True
            # Not while another claim has its devices too, see ``rival_claims``.
            return any(devices_given_twice(self._cache.devices, [known]))

        async def remove(key: ObjectKey, fence: str) -> str:
            return await self._devices.extended.remove_claim(key, stays, fence)

        if not stays():
            self._begin(key, remove)

    def _held_by_gang(self, gang: Gang) -> list[tuple[ResourceClaim, UID, GangKey | None]]:
        """What unbound pods of a gang hold, see ``_held_claims``; nothing while it is being bound."""
        found: list[tuple[ResourceClaim, UID, GangKey | None]] = []
        for pod_set in gang.pod_sets:
            if pod_set.pod_class.claims and not self._has_open_commit(gang.key):
                for pod in pod_set.pods:
                    found += self._held_claims(pod)
        return found

    def _may_go_on(
        self, held: Sequence[tuple[ResourceClaim, UID, GangKey | None]], idle_since: float
    ) -> bool:
        """Whether a gang is to be placed where the devices are that it waits for, as a leader before did."""
        now = self._server_now()
        return self._clock.monotonic() - idle_since < _GO_ON_WITHIN_S and not any(
            never_ready(claim, now) for claim, _, _ in held
        )

    async def wait_for_open(self, gang: GangBind) -> str:
        """Wait until nothing that is being taken back of a gang's claims is unanswered; why something still is, or empty.

        For what is about to be written of them, which rests on whom they are reserved for. Its pods' own claims
        have no other devices afterwards.
        """
        claims = list(claims_of(gang))
        asked = sorted({claim.key for claim, _ in claims})
        writes = [self._open[key] for key in asked if key in self._open]
        if writes:
            await asyncio.wait(writes)
        fence = self._fence()
        why = await self._devices.settle_releases(asked, fence)
        for claim, users in claims:
            why = why or await self._take_others(claim, users, fence)
        return why

    async def _take_others(
        self, claim: ClaimBind, users: Sequence[ClaimConsumer], fence: str
    ) -> str:
        """Take back what an unbound pod's own claim has, where the pod was decided to get other devices.

        A try before, of this leader or another, that was carried out late is seen when the pod's gang is
        being bound already, again and again.
        """
        pods = {each.uid for each in users}

        def leaves(known: ResourceClaim) -> Collection[UID]:
            alone = known.owner in pods and pods.issuperset(each.uid for each in known.reserved_for)
            return pods if alone and known.uid == claim.uid and gives_others(known, claim) else ()

        known = self._cache.devices.claims.items.get(claim.key)
        if claim.extended or known is None or not leaves(known):
            return ""
        return await self._release(claim.key, leaves, fence)

    async def drain(self) -> None:
        """Begin nothing more."""
        waiting = list(self._open.values())
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    def _held_claims(self, pod: Pod) -> Iterator[tuple[ResourceClaim, UID, GangKey | None]]:
        """Claims with devices for the pod or its group, each with the UID of that, and the group."""
        generated = dict(pod.generated_claims)
        for each in pod.pod_class.claims:
            if each.extended:
                own = self._cache.devices.claims.extended_claim(pod.namespace, pod.uid)
                if own is not None:
                    yield own, pod.uid, None
                continue
            made = generated.get(each.name, "") if each.group is None else ""
            key = ObjectKey(pod.namespace, each.claim or made)
            user, group = pod.uid, None
            if each.group is not None:
                user = each.group.uid
                group = GangKey("PodGroup", pod.namespace, each.group.name)
            claim = self._cache.devices.claims.items.get(key)
            if claim is not None and self._devices.is_begun(claim):
                self._begin(key, self._devices.unprotect_claim)
            if (
                claim is not None
                and claim.allocation is not None
                and _is_held_by(claim, user)
                and (group is None or self._is_group_unbound(group))
            ):
                yield claim, user, group

    def _begin(self, key: ObjectKey, write: Callable[[ObjectKey, str], Awaitable[str]]) -> None:
        failed = self._failed.get(key)
        if key in self._open or len(self._open) >= _OPEN_MAX:
            return
        if failed is None or failed.retry_at <= self._clock.monotonic():
            task = asyncio.get_running_loop().create_task(self._run(key, write), name="claims")
            self._open[key] = task

    async def _run(self, key: ObjectKey, write: Callable[[ObjectKey, str], Awaitable[str]]) -> None:
        try:
            why = await write(key, self._fence())
        finally:
            self._open.pop(key, None)
        if not why:
            self._failed.pop(key, None)
            return
        tries = self._failed[key].tries + 1 if key in self._failed else 1
        wait_s = min(_RETRY_MAX_S, 2.0**tries)
        self._failed[key] = _Failed(tries, self._clock.monotonic() + wait_s)
        _log.warning("devices of a claim are not taken back", claim=key, why=why, retry_s=wait_s)

    async def _take_back(self, key: ObjectKey, users: Mapping[UID, _Waiting], fence: str) -> str:
        def leaves(known: ResourceClaim) -> Collection[UID]:
            if self._cache.devices.is_assumed(key):
                return ()
            return {
                user
                for user, waiting in users.items()
                if _is_held_by(known, user)
                and self._is_unbound(user, waiting.group)
                and not self._has_open_commit(waiting.gang)
            }

        return await self._release(key, leaves, fence)

    async def _release(
        self, key: ObjectKey, leaves: Callable[[ResourceClaim], Collection[UID]], fence: str
    ) -> str:
        """Reserve a claim no longer for some, and take its devices back where nobody is left.

        Args:
            key: of the claim.
            leaves: UIDs of those who hold the claim and no longer use it, as it is when the write is sent.
            fence: of the leadership.
        """
        meant: list[UID] = []

        def body() -> bytes | str:
            known = self._cache.devices.claims.items.get(key)
            if known is None or known.allocation is None:
                return ""
            leaving = leaves(known)
            staying = [each for each in known.reserved_for if each.uid not in leaving]
            if not leaving:
                return ""
            if not staying and any(devices_given_twice(self._cache.devices, [known])):
                return ""  # not while another claim has them too, see ``rival_claims``
            if staying and len(staying) == len(known.reserved_for):
                return ""
            meant.append(known.uid)
            if not staying:
                return claim_release_patch(known.uid, known.resource_version)
            return claim_status_patch(
                known.uid, known.resource_version, allocation=None, consumers=staying
            )

        uncertain = True  # also when cancelled
        try:
            outcome = await self._devices.patch_claim(key, "/status", body, fence)
            uncertain = outcome.uncertain
        finally:
            if uncertain and meant:
                self._devices.note_unanswered_release(key, meant[-1])
        return outcome.why

    def _is_unbound(self, uid: UID, group: GangKey | None) -> bool:
        """Whether the pod is there and neither has a node nor is about to get one; of a group, no member."""
        if group is not None:
            return self._is_group_unbound(group)
        pod = self._cache.find_pod(uid)
        return pod is not None and not pod.node and self._cache.ledger.get(uid) is None

    def _is_group_unbound(self, group: GangKey) -> bool:
        """Whether no member of a group has a node, or had one, or is about to get one."""
        members = self._cache.member_pods(group)
        if any(pod.node or self._cache.ledger.get(pod.uid) is not None for pod in members):
            return False
        # A pod that cannot be believed may be a member.
        return not self._cache.families.members_of_others(group) and all(
            key.namespace != group.namespace for key in self._cache.charged
        )


def _is_held_by(claim: ResourceClaim, user: UID) -> bool:
    return claim.owner == user or any(each.uid == user for each in claim.reserved_for)
