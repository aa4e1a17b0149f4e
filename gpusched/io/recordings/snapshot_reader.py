"""Reads a cluster for a snapshot: every kind the daemon reads, less what nothing decides on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from gpusched import __version__
from gpusched.api.meta.wire import ListMeta
from gpusched.base import limits
from gpusched.base.classes import frozen
from gpusched.base.errors import ClusterUnreachable, ConfigError, Denied, Gone, NotFound
from gpusched.io.client.api_client import ApiClient, ApiResponse, api_error
from gpusched.io.client.missing_rights import DAEMON_ROLE
from gpusched.io.client.missing_rights import explain_denied as with_remedy
from gpusched.io.recordings.pseudonyms import Pseudonyms
from gpusched.io.recordings.recorded_kinds import RECORDED, RecordedKind
from gpusched.io.recordings.snapshot_file import Json, MissingKind, SnapshotFile

_TRIES: Final = 3
"""Of one list: the version that its pages are of may be forgotten in the middle."""


class _SnapshotPage(msgspec.Struct):
    metadata: ListMeta
    items: list[Json] | None


_PAGE: Final = msgspec.json.Decoder(_SnapshotPage)
_ENCODER: Final = msgspec.json.Encoder(order="sorted")


@frozen(kw_only=True)
class ClusterRecording:
    """What ``write_snapshot`` takes.

    Attributes:
        header: a snapshot without objects.
        lines: objects as JSON by plural name, in the order of the file.
    """

    header: SnapshotFile
    lines: Mapping[str, list[bytes]]


async def take_snapshot(
    api: ApiClient,
    *,
    now: float,
    pseudonyms: Pseudonyms | None = None,
    tell: Callable[[str, int], None] = lambda _resource, _count: None,
) -> ClusterRecording:
    """Read everything.

    Args:
        api: how to reach the cluster.
        now: seconds since the epoch, where the server does not say what time it is.
        pseudonyms: instead of names; None leaves names.
        tell: told a plural name and how many objects of it were read so far.

    Raises:
        ClusterUnreachable: no answer, or none of an API server.
        Denied: nothing may be read at all.
        ApiError: the server refused for another reason.
        ConfigError: the cluster is larger than a snapshot may be.
    """
    version = await api.server_version()
    readers = [_KindReader(api, kind, pseudonyms, tell) for kind in RECORDED]
    found = await asyncio.gather(*(reader.read() for reader in readers), return_exceptions=True)
    for each in found:
        if isinstance(each, BaseException):
            raise each
    missing = tuple(each for each in found if isinstance(each, MissingKind))
    denied = [each for each in missing if each.served]
    if denied and len(missing) == len(RECORDED):
        why = Denied(f"nothing of this cluster may be read: {denied[0].why}", status=403)
        raise with_remedy(why, DAEMON_ROLE)
    times = [reader.server_time for reader in readers if reader.server_time is not None]
    header = SnapshotFile(
        path="",
        taken_at=min(times, default=now),
        server=version,
        recorder=__version__,
        anonymized=pseudonyms is not None,
        missing=missing,
        objects={},
    )
    lines = {
        kind.resource: each
        for kind, each in zip(RECORDED, found, strict=True)
        if isinstance(each, list)
    }
    return ClusterRecording(header=header, lines=lines)


class _KindReader:
    """Reads all pages of one kind."""

    def __init__(
        self,
        api: ApiClient,
        kind: RecordedKind,
        pseudonyms: Pseudonyms | None,
        tell: Callable[[str, int], None],
    ) -> None:
        self._api = api
        self._kind = kind
        self._pseudonyms = pseudonyms
        self._tell = tell
        self.server_time: float | None = None

    async def read(self) -> list[bytes] | MissingKind:
        """Lines sorted by namespace and name, or why there are none."""
        kind = self._kind
        for api_version, path in kind.places:
            try:
                found = await self._list(api_version, path)
            except NotFound:
                continue
            except Denied as error:
                if error.status == 401:
                    raise with_remedy(error, DAEMON_ROLE) from error
                # The server's sentence names who asked.
                why = str(error) if self._pseudonyms is None else "they may not be read"
                return MissingKind(kind.resource, why)
            return [found[key] for key in sorted(found)]
        why = f"the API server does not serve {kind.resource}"
        return MissingKind(kind.resource, why, served=False)

    async def _list(self, api_version: str, path: str) -> dict[tuple[str, str], bytes]:
        for left in reversed(range(_TRIES)):
            try:
                return await self._pages(api_version, path)
            except Gone:
                if not left:
                    raise
        raise AssertionError("the last try returns or raises")

    async def _pages(self, api_version: str, path: str) -> dict[tuple[str, str], bytes]:
        found: dict[tuple[str, str], bytes] = {}
        query = {"limit": str(limits.LIST_PAGE)}
        while True:
            answer = await self._api.request(
                "GET", path, query=query, timeout_s=limits.REQUEST_TIMEOUT_S
            )
            page = self._page(answer)
            if self.server_time is None:
                self.server_time = answer.server_time()
            for item in page.items or ():
                key, line = self._line(item, api_version)
                found[key] = line
            self._tell(self._kind.resource, len(found))
            if len(found) > limits.OBJECTS_PER_KIND_MAX:
                raise ConfigError(
                    f"there are more than {limits.OBJECTS_PER_KIND_MAX:,} {self._kind.resource}, "
                    "which no snapshot holds"
                )
            if not page.metadata.continue_token:
                return found
            query["continue"] = page.metadata.continue_token

    def _page(self, answer: ApiResponse) -> _SnapshotPage:
        if not answer.ok:
            raise api_error(answer, doing=f"read {self._kind.resource}")
        try:
            return _PAGE.decode(answer.body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise self._strange() from error

    def _line(self, item: Json, api_version: str) -> tuple[tuple[str, str], bytes]:
        """The object's place in the file, and what is recorded of it."""
        whole = {**item, "apiVersion": api_version, "kind": self._kind.kind}
        kept: Any = self._kind.shape(whole)
        if self._pseudonyms is not None:
            kept = self._pseudonyms.of_object(kept)
        meta = kept.get("metadata")
        name = meta.get("name") if isinstance(meta, dict) else None
        if not isinstance(meta, dict) or not isinstance(name, str):
            raise self._strange()
        return (str(meta.get("namespace", "")), name), _ENCODER.encode(kept)

    def _strange(self) -> ClusterUnreachable:
        return ClusterUnreachable(
            f"{self._api.host} does not answer as an API server when asked for "
            f"{self._kind.resource}"
        )
