"""Compares what the cache has of pods and nodes with what the API server lists, now and then.

A watch that loses an event tells nobody. So the leader lists these kinds every ten minutes, in
pages with pauses between them, and holds each object against the cache by UID and version. What
differs and was not touched by any event since the list began, nor for a while after it, was
lost on the way: the listed object is applied as that event would have been, and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from gpusched import errors, limits
from gpusched.clock import Clock
from gpusched.io.logs import Log
from gpusched.io.watched import Page
from gpusched.objects.meta import ObjectKey, older

_NAMED_MAX: Final = 5
_log = Log(__name__)


class AuditedReader(Protocol):
    """What we ask of a reflector."""

    @property
    def lists(self) -> int:
        """Full lists that have reached the sink."""

    @property
    def resource_version(self) -> str:
        """The version up to which the sink knows all changes."""

    async def page(self, limit: int, token: str) -> Page[Any]:
        """One page of a consistent list."""


class AuditedSink(Protocol):
    """What we ask of a sink."""

    touched: set[ObjectKey] | None
    """Keys of objects that an event was about; None to collect none."""

    def key_of(self, item: Any) -> ObjectKey:
        """The item's key."""

    def knows(self, item: Any) -> bool:
        """Whether the cache has the object in just this version."""

    def keys(self) -> Sequence[ObjectKey]:
        """Of all objects that the cache has."""

    def apply(self, event_type: str, item: Any) -> None:
        """As an event would."""

    def drop(self, key: ObjectKey) -> None:
        """As a DELETED event would."""


class AuditTelemetry(Protocol):
    """What is counted."""

    def events_lost(self, resource: str, change: str) -> None:
        """An event was lost between the API server and the cache, and made up for."""


class Auditor:
    """See the module; ``run`` never returns.

    Args:
        audited: name of the kind, its reflector and its sink.
        wanted: whether this process should look at all: standbys read everything again anyway
            before they write.
        clock: time.
        telemetry: counts.
    """

    def __init__(
        self,
        audited: Sequence[tuple[str, AuditedReader, AuditedSink]],
        *,
        wanted: Callable[[], bool],
        clock: Clock,
        telemetry: AuditTelemetry,
    ) -> None:
        self._audited = tuple(audited)
        self._wanted = wanted
        self._clock = clock
        self._telemetry = telemetry

    async def run(self) -> None:
        """Audit until cancelled."""
        while True:
            await self._clock.sleep(limits.AUDIT_PERIOD_S)
            for kind, reader, sink in self._audited:
                if self._wanted():
                    await self.audit(kind, reader, sink)

    async def audit(self, kind: str, reader: AuditedReader, sink: AuditedSink) -> int:
        """One look at one kind; how many differences were repaired."""
        sink.touched = set()
        lists = reader.lists
        try:
            listed, differing = await self._read(reader, sink)
            # What was on its way when the list was made has come by then.
            await self._clock.sleep(limits.AUDIT_GRACE_S)
            if reader.lists != lists:
                return 0  # everything was listed and compared meanwhile
            return self._repair(kind, sink, listed, differing)
        except errors.GpuschedError as error:
            _log.info("an audit was not finished", resource=kind, why=error)
            return 0
        finally:
            sink.touched = None

    async def _read(
        self, reader: AuditedReader, sink: AuditedSink
    ) -> tuple[set[ObjectKey], list[Any]]:
        listed: set[ObjectKey] = set()
        differing: list[Any] = []
        token = ""
        while True:
            page = await reader.page(limits.LIST_PAGE, token)
            if older(page.resource_version, reader.resource_version):
                raise errors.GpuschedError("the list is older than what is known")
            for item in page.items:
                listed.add(sink.key_of(item))
                if not sink.knows(item):
                    differing.append(item)
            token = page.continue_token
            if not token:
                return listed, differing
            await self._clock.sleep(limits.AUDIT_PAUSE_S)

    def _repair(
        self, kind: str, sink: AuditedSink, listed: set[ObjectKey], differing: Sequence[Any]
    ) -> int:
        touched = sink.touched or set()
        had = set(sink.keys())
        names: list[str] = []
        for item in differing:
            key = sink.key_of(item)
            if key in touched or sink.knows(item):
                continue
            change = "MODIFIED" if key in had else "ADDED"
            sink.apply(change, item)
            self._telemetry.events_lost(kind, change)
            names.append(str(key))
        for key in had - listed - touched:
            sink.drop(key)
            self._telemetry.events_lost(kind, "DELETED")
            names.append(str(key))
        if names:
            _log.warning(
                "the watch had lost events; the objects were put right",
                resource=kind, objects=len(names), first=", ".join(sorted(names)[:_NAMED_MAX]),
            )  # fmt: skip
        return len(names)
