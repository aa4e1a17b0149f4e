"""Whose daemon is gone of shards that stand on the board and that the configuration in force does not have."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Final

import attrs

from gpusched.base import limits
from gpusched.base.classes import define
from gpusched.base.clock import Clock
from gpusched.base.errors import GpuschedError
from gpusched.io.client.api_client import ApiClient

GONE_S: Final = 300.0
"""After which a daemon that has not renewed its Lease does not come back: it was started by mistake, or taken away."""
_LOOKS_APART_S: Final = 60.0


@define(eq=False)
class GoneShards:
    """Looks at the Leases of such shards, once a minute.

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
    _since: dict[str, tuple[str, float]] = attrs.Factory(dict)
    """Version of each Lease, and when it was seen first."""
    _looked: float = 0.0

    async def __call__(self, shards: Collection[str]) -> frozenset[str]:
        """Those of these shards whose Lease nobody has written for long; one that cannot be read is none of them."""
        now = self.clock.monotonic()
        is_new = not self._since.keys() >= {*shards}
        self._since = {name: seen for name, seen in self._since.items() if name in shards}
        if not shards or (not is_new and now - self._looked < _LOOKS_APART_S):
            return frozenset()
        self._looked = now
        for shard in sorted(shards):
            version = await self._version(shard)
            seen, _ = self._since.get(shard, (None, now))
            if version is None or version != seen:
                self._since[shard] = (version or "", now)
        gone_s = max(GONE_S, 2 * self.lease_s)
        return frozenset(name for name, (_, since) in self._since.items() if now - since >= gone_s)

    async def _version(self, shard: str) -> str | None:
        """The version of the Lease; empty where there is none, None where that is not known."""
        name = f"{self.lease_name}-{shard}"
        path = f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases/{name}"
        try:
            answer = await self.api.request("GET", path, timeout_s=limits.REQUEST_TIMEOUT_S)
            if answer.status == 404:
                return ""
            return (
                str(json.loads(answer.body)["metadata"]["resourceVersion"]) if answer.ok else None
            )
        except (GpuschedError, ValueError, KeyError, TypeError, RecursionError):
            return None
