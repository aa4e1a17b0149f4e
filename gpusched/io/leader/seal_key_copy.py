"""A copy of the seal's key, so that what was bound stays known where the daemon's Lease is lost.

The key of ``api.serializer.seal`` stands in the Lease that the leader renews. Somebody deletes
that Lease, or applies it anew without its annotations: with another key no binding of before
would be sure any more, and shares of GPUs would no longer be known by their slots. So the key
also stands in a second Lease, ``NAME-seal``, that nobody holds or renews; the same rights guard it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from gpusched.api.serializer.seal import KEY, is_seal_key
from gpusched.base import limits
from gpusched.base.clock import Clock
from gpusched.base.errors import ApiError, Denied, GpuschedError
from gpusched.io.client.api_client import ApiClient
from gpusched.io.client.responses import ApiResponse, api_error
from gpusched.io.observe.logs import Logger

_API_VERSION: Final = "coordination.k8s.io/v1"
_RETRY_S: Final = 60.0
_DENIED_S: Final = 30.0
"""A refusal that lasts for less may be the server's own trouble; then there may be a key."""
_log = Logger(__name__)


class SealKeyCopy:
    """Finds the key that leaders before had, and keeps the one that is in force.

    Args:
        api: the client of the leader election.
        namespace: of both Leases.
        lease: name of the one that the leader renews.
        clock: monotonic time.
        create_if_missing: True only outside a cluster; inside, the manifest makes both.
    """

    def __init__(
        self,
        api: ApiClient,
        *,
        namespace: str,
        lease: str,
        clock: Clock,
        create_if_missing: bool,
    ) -> None:
        self._api = api
        self._clock = clock
        self._denied_since: float | None = None
        self._told = ""
        self._namespace = namespace
        self._name = f"{lease}-seal"
        self._collection = f"/apis/{_API_VERSION}/namespaces/{namespace}/leases"
        self._create_if_missing = create_if_missing

    async def settle_key(self, known: str, new: Callable[[], str]) -> str:
        """The key to go on with where the Lease has none: kept before anything is sealed with it.

        Args:
            known: the key that this process saw last; empty for none.
            new: makes a key.

        Raises:
            GpuschedError: it is not known whether there is a key.
        """
        try:
            found = await self._read()
            kept = _key_in(found)
            if kept:
                return kept
            known = known or new()
            await self._write(found, known)
        except _CopyMissing as error:
            self._tell_loss(str(error))
        except Denied as error:
            if not known and not self._denied_for_long():
                raise
            self._tell_loss(str(error))
        return known or new()

    def _denied_for_long(self) -> bool:
        """Whether the right is missing for so long that it was never given."""
        now = self._clock.monotonic()
        if self._denied_since is None:
            self._denied_since = now
        return now - self._denied_since >= _DENIED_S

    def _tell_loss(self, why: str) -> None:
        """Say once, and anew when it changes, that there is no copy."""
        if why != self._told:
            self._told = why
            _log.warning("the key of the seal is kept in the Lease alone", why=why)

    async def keep(self, key: str) -> None:
        """Write the key in force, again every minute until that is done."""
        while True:
            try:
                found = await self._read()
                if _key_in(found) != key:
                    await self._write(found, key)
            except GpuschedError as error:
                self._tell_loss(str(error))
            else:
                return
            await self._clock.sleep(_RETRY_S)

    async def _read(self) -> dict[str, Any] | None:
        """The second Lease; None where there is none."""
        answer = await self._send("GET", f"{self._collection}/{self._name}")
        if answer.status == 404:
            return None
        if not answer.ok:
            raise api_error(answer, doing=f"read {self._lease}")
        try:
            found = json.loads(answer.body)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict) or not isinstance(found.get("metadata"), dict):
            raise ApiError(f"the answer for {self._lease} is not a Lease")
        return found

    async def _write(self, found: dict[str, Any] | None, key: str) -> None:
        if found is None and not self._create_if_missing:
            raise _CopyMissing(f"{self._lease} does not exist: run kubectl apply -k manifests/")
        metadata = dict((found or {}).get("metadata") or {})
        metadata.pop("managedFields", None)
        notes = metadata.get("annotations")
        notes = dict(notes) if isinstance(notes, dict) else {}
        metadata |= {"name": self._name, "namespace": self._namespace}
        metadata["annotations"] = {**notes, KEY: key}
        lease = {**(found or {}), "apiVersion": _API_VERSION, "kind": "Lease", "metadata": metadata}
        method, path = ("POST", "") if found is None else ("PUT", f"/{self._name}")
        answer = await self._send(method, self._collection + path, json.dumps(lease).encode())
        if method == "POST" and answer.status == 404:
            raise _CopyMissing(f"namespace {self._namespace} does not exist")
        if not answer.ok:
            raise api_error(answer, doing=f"write {self._lease}", write=True)

    async def _send(self, method: str, path: str, body: bytes | None = None) -> ApiResponse:
        return await self._api.request(method, path, body=body, timeout_s=limits.REQUEST_TIMEOUT_S)

    @property
    def _lease(self) -> str:
        return f"lease {self._namespace}/{self._name}"


class _CopyMissing(GpuschedError):
    """The second Lease is not there and may not be made by us."""


def _key_in(lease: dict[str, Any] | None) -> str:
    """The key that a Lease holds; empty for none."""
    notes = ((lease or {}).get("metadata") or {}).get("annotations")
    found = notes.get(KEY) if isinstance(notes, dict) else None
    return str(found) if is_seal_key(found) else ""
