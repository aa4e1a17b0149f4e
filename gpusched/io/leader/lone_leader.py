"""Whether a daemon without shards leads beside those of shards: both would place pods on the same nodes."""

from __future__ import annotations

import json

from gpusched.base import limits
from gpusched.base.classes import define
from gpusched.base.clock import Clock
from gpusched.io.client.api_client import ApiClient


@define(eq=False)
class LoneLeader:
    """Looks at the Lease of a daemon without shards, which is held by nobody where all have shards.

    Attributes:
        api: the client of the leader election.
        namespace, name: of the Lease.
        lease_s: seconds after which a holder that does not renew it is gone.
        clock: monotonic time.
    """

    api: ApiClient
    namespace: str
    name: str
    lease_s: float
    clock: Clock
    _version: str = ""
    _since: float = 0.0

    async def __call__(self) -> str:
        """Who leads by it; empty for nobody.

        Raises:
            GpuschedError: it cannot be read.
        """
        path = f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases/{self.name}"
        answer = await self.api.request("GET", path, timeout_s=limits.REQUEST_TIMEOUT_S)
        if not answer.ok:
            return ""
        try:
            lease = json.loads(answer.body)
            holder = str((lease.get("spec") or {}).get("holderIdentity") or "")
            version = str(lease["metadata"]["resourceVersion"])
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return ""
        now = self.clock.monotonic()
        if version != self._version:
            self._version, self._since = version, now
        return holder if now - self._since < self.lease_s else ""
