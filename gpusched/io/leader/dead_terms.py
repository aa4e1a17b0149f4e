"""Ends the terms of daemons that are gone and held a shard beside the one that they led first.

What such a daemon sent last may still arrive. It carries the fence of its first shard, so that the policy
gpusched-fence-shards compares it with the Lease of that one, which nobody may take for long. Whoever takes
another shard over frees that Lease first: from then on the fence is out of date.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any, Final

import attrs

from gpusched.base import limits
from gpusched.base.classes import define, frozen
from gpusched.base.clock import Clock
from gpusched.base.errors import ApiError, Denied
from gpusched.io.client.api_client import ApiClient
from gpusched.io.client.responses import api_error
from gpusched.io.observe.logs import Logger

_NOT_FOUND: Final = 404
_CONFLICT: Final = 409
_log = Logger(__name__)


@frozen(slots=True)
class _SeenLease:
    """A Lease as it was read last.

    Attributes:
        since: monotonic seconds at which it was first seen in this version.
    """

    version: str
    since: float
    body: dict[str, Any]

    @property
    def holder(self) -> str:
        """Who has it; empty for nobody."""
        return str(self.body["spec"].get("holderIdentity") or "")

    @property
    def lasts_s(self) -> float:
        """Seconds for which its holder believes in it."""
        told = self.body["spec"].get("leaseDurationSeconds")
        return float(told) if isinstance(told, int) else 0.0


@define(eq=False)
class DeadTerms:
    """See the module.

    Attributes:
        api: the client of the leader election.
        namespace, lease_name: of the Leases; that of a shard has its name behind it.
        lease_s: seconds for which a Lease lasts.
        clock: monotonic time.
    """

    api: ApiClient
    namespace: str
    lease_name: str
    lease_s: float
    clock: Clock
    _seen: dict[str, _SeenLease] = attrs.Factory(dict)

    async def watch(self, shards: Collection[str]) -> None:
        """Read the Leases of these shards, so that it is known for how long nobody has renewed them."""
        self._seen = {shard: seen for shard, seen in self._seen.items() if shard in shards}
        for shard in sorted(shards):
            await self._read(shard)

    async def end(self, shard: str, holder: str) -> bool:
        """Whether a daemon's term in its first shard is over; it is ended here where that daemon is gone.

        Raises:
            GpuschedError: that cannot be found out.
        """
        lease = await self._read(shard)
        if lease is None or lease.holder != holder:
            return True
        patience_s = min(max(self.lease_s, lease.lasts_s), limits.LEASE_MAX_S)
        if self.clock.monotonic() - lease.since < patience_s:
            return False
        freed = {**lease.body, "spec": {**lease.body["spec"], "holderIdentity": ""}}
        answer = await self.api.request(
            "PUT",
            self._path(shard),
            body=json.dumps(freed).encode(),
            timeout_s=limits.REQUEST_TIMEOUT_S,
        )
        if answer.status in {_NOT_FOUND, _CONFLICT}:
            return False
        if not answer.ok:
            error = api_error(answer, doing=f"free the Lease of shard {shard}", write=True)
            if not isinstance(error, Denied):
                raise error
            _log.warning("what a daemon sent that is gone is not fenced", shard=shard, why=error)
            return True
        _log.info("the Lease of a daemon that is gone is free", shard=shard, holder=holder)
        return True

    async def _read(self, shard: str) -> _SeenLease | None:
        """The Lease of a shard; None where there is none."""
        answer = await self.api.request(
            "GET", self._path(shard), timeout_s=limits.REQUEST_TIMEOUT_S
        )
        if answer.status == _NOT_FOUND:
            self._seen.pop(shard, None)
            return None
        if not answer.ok:
            raise api_error(answer, doing=f"read the Lease of shard {shard}")
        try:
            body = json.loads(answer.body)
            version = str(body["metadata"]["resourceVersion"])
            body = {**body, "spec": dict(body.get("spec") or {})}
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise ApiError(f"the answer for the Lease of shard {shard} is no Lease") from None
        before = self._seen.get(shard)
        since = self.clock.monotonic()
        if before is not None and before.version == version:
            since = before.since
        found = self._seen[shard] = _SeenLease(version, since, body)
        return found

    def _path(self, shard: str) -> str:
        leases = f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases"
        return f"{leases}/{self.lease_name}-{shard}"
