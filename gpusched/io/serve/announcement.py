"""Where the view is served, told in a Lease that people may read: ``NAME-view``.

The leader writes its address there; daemons that stand by pass requests on to it, and commands
find it. Only the daemon may write this Lease, so that nobody can have tokens sent elsewhere. It
is not the Lease of the leadership: that one holds the key of the seal, which people must not read.
"""

from __future__ import annotations

import json
import socket
from typing import Any, Final

from yarl import URL

from gpusched.base import limits
from gpusched.base.addresses import is_loopback
from gpusched.base.clock import Clock
from gpusched.base.errors import GpuschedError, NotFound
from gpusched.io.client.api_client import ApiClient
from gpusched.io.client.responses import api_error
from gpusched.io.observe.logs import Logger

ADDRESS: Final = "gpusched.io/view"
"""Annotation of the Lease: ``scheme://host:port``."""
MACHINE: Final = "gpusched.io/view-machine"
"""Annotation beside it: the host name of the machine, for addresses that mean another one elsewhere."""
_API_VERSION: Final = "coordination.k8s.io/v1"
_LOOK_S: Final = 2.0
_READ_EACH: Final = 5
"""The Lease is looked at every fifth beat: it may be another's, or have been made anew."""
_log = Logger(__name__)


def view_lease(lease: str) -> str:
    """The name of the Lease that tells where the view is served."""
    return f"{lease}-view"


def view_lease_path(namespace: str, lease: str) -> str:
    """Its path on the API server."""
    return f"/apis/{_API_VERSION}/namespaces/{namespace}/leases/{view_lease(lease)}"


def announced_address(lease: Any) -> tuple[str, str]:
    """The address that a Lease tells, and the machine on which that is; empty for none."""
    metadata = lease.get("metadata") if isinstance(lease, dict) else None
    notes = metadata.get("annotations") if isinstance(metadata, dict) else None
    notes = notes if isinstance(notes, dict) else {}
    found, machine = str(notes.get(ADDRESS) or ""), str(notes.get(MACHINE) or "")
    return (found, machine) if found.startswith(("http://", "https://")) else ("", "")


class ViewAnnouncement:
    """Keeps the Lease as it should be while we lead, and reads it while we do not.

    Args:
        api: of the cluster.
        namespace, lease: of the leadership.
        clock: time.
        create_if_missing: True only outside a cluster; inside, the manifest makes it.

    Attributes:
        leader: address of the view of the one that leads, as it was read last.
    """

    def __init__(
        self, api: ApiClient, *, namespace: str, lease: str, clock: Clock, create_if_missing: bool
    ) -> None:
        self._api = api
        self._namespace = namespace
        self._name = view_lease(lease)
        self._path = view_lease_path(namespace, lease)
        self._clock = clock
        self._create_if_missing = create_if_missing
        self._told = ""
        self._trouble = ""
        self.leader = ""

    async def beat(self, number: int, *, leading: bool, url: str) -> None:
        """One look, every two seconds: tell where the view is, or find it out.

        Args:
            number: of the look, from 0.
            leading: whether it is ours to tell.
            url: of our view, empty while there is none.
        """
        if not leading:
            self._told = ""
        asks = number % _READ_EACH == 0 or (leading and url != self._told)
        if not asks or (leading and not url):
            return
        try:
            if leading:
                await self._write_address(url)
                self._told = url
            else:
                self.leader = await self._read()
        except (GpuschedError, ValueError) as error:
            if str(error) != self._trouble:
                self._trouble = str(error)
                _log.warning("people cannot find the view by its Lease", why=self._trouble)
        else:
            self._trouble = ""

    async def wait_for_next_look(self) -> None:
        """Wait for the next look."""
        await self._clock.sleep(_LOOK_S)

    async def _read(self) -> str:
        """Where the leader's is; nothing where that address would be this machine's, and is not."""
        address, machine = announced_address(await self._lease())
        host = URL(address).host or ""
        return "" if is_loopback(host) and machine != socket.gethostname() else address

    async def _lease(self) -> dict[str, Any] | None:
        answer = await self._api.request("GET", self._path, timeout_s=limits.REQUEST_TIMEOUT_S)
        if answer.status == 404:
            return None
        if not answer.ok:
            raise api_error(answer, doing=f"read Lease {self._namespace}/{self._name}")
        found = json.loads(answer.body)
        return found if isinstance(found, dict) else None

    async def _write_address(self, url: str) -> None:
        lease = await self._lease()
        if announced_address(lease) == (url, socket.gethostname()):
            return
        if lease is None and not self._create_if_missing:
            raise NotFound(
                f"there is no Lease {self._namespace}/{self._name}: apply the manifests of this version"
            )
        method, path = "PUT", self._path
        if lease is None:
            method, path = "POST", self._path.rpartition("/")[0]
            names = {"name": self._name, "namespace": self._namespace}
            lease = {"apiVersion": _API_VERSION, "kind": "Lease", "metadata": names, "spec": {}}
        metadata = lease["metadata"]
        told = {ADDRESS: url, MACHINE: socket.gethostname()}
        metadata["annotations"] = {**(metadata.get("annotations") or {}), **told}
        answer = await self._api.request(
            method,
            path,
            body=json.dumps(lease).encode(),
            timeout_s=limits.REQUEST_TIMEOUT_S,
        )
        if not answer.ok:
            raise api_error(answer, doing=f"write Lease {self._namespace}/{self._name}")
