"""Compares what the cache has with what the API server lists, now and then.

A watch that loses an event says nothing. So the leader lists what it reads every ten minutes, in
pages with pauses between them, and holds each object against the cache by UID and version. What
differs and was not touched by any event since the list began, nor for a while after it, was
lost on the way: the listed object is applied as that event would have been, and counted.

Soon after a stream was cut off pods and nodes are listed too. The server may have been restored
from a backup and written past our versions since: then what differs, or is listed older than it
is known, shows that the server's past is another, and everything is to be read again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from gpusched.api.meta.identity import ObjectKey, is_older_version
from gpusched.base import errors, limits
from gpusched.base.clock import Clock
from gpusched.config.model import LimitsConfig, default_limits
from gpusched.io.observe.logs import Logger
from gpusched.io.watch.kind_spec import WatchedPage
from gpusched.io.workers.work_queue import OnContained, log_contained_fault

_NAMED_MAX: Final = 5
_log = Logger(__name__)


class ComparedReader(Protocol):
    """What we ask of a reflector."""

    @property
    def following(self) -> int:
        """Number of the stream that is open now, 0 for none."""

    @property
    def resource_version(self) -> str:
        """The version up to which the sink knows all changes."""

    async def page(
        self, limit: int, token: str, *, is_known: Callable[[Any], bool] | None = None
    ) -> WatchedPage[Any]:
        """One page of a consistent list; of one whose objects are all known, what ``is_known`` is asked about."""


class ComparedStore(Protocol):
    """What we ask of a sink."""

    touched: set[ObjectKey] | None
    """Keys of objects that an event was about; None to collect none."""

    def key_of(self, item: Any) -> ObjectKey:
        """Key of the item in the cache."""

    def knows(self, item: Any) -> bool:
        """Whether the cache has the object in just this version."""

    def fails(self, item: Any) -> bool:
        """Whether the cache has this version as one that we failed to read or to take in."""

    def knows_newer(self, item: Any) -> bool:
        """Whether the cache has it in a newer version."""

    def keys(self) -> Sequence[ObjectKey]:
        """Of all objects that the cache has."""

    def apply(self, event_type: str, item: Any) -> None:
        """As an event would."""

    def drop(self, key: ObjectKey) -> None:
        """As a DELETED event would."""


Compared = tuple[str, ComparedReader, ComparedStore]
"""Name of a kind, its reflector and its sink."""


class ComparerMetrics(Protocol):
    """Counters of the comparer's findings."""

    def events_lost(self, resource: str, change: str) -> None:
        """An event was lost between the API server and the cache, and made up for."""


class CacheComparer:
    """See the module; ``run`` never returns.

    Args:
        audited: gives name, reflector and sink of each kind that is followed now.
        wanted: whether this process should look at all: standbys read everything again anyway
            before they write.
        restored: told in a sentence that the server's past is another.
        clock: time.
        telemetry: counts.
        on_contained: told of an audit that failed by our own doing.
        limits_in_force: of the configuration.
    """

    def __init__(
        self,
        audited: Callable[[], Sequence[Compared]],
        *,
        wanted: Callable[[], bool],
        restored: Callable[[str], None],
        clock: Clock,
        telemetry: ComparerMetrics,
        on_contained: OnContained = log_contained_fault,
        limits_in_force: Callable[[], LimitsConfig] = default_limits,
    ) -> None:
        self._limits = limits_in_force
        self._audited = audited
        self._wanted = wanted
        self._restored = restored
        self._cut = asyncio.Event()
        self._clock = clock
        self._telemetry = telemetry
        self._on_contained = on_contained

    def look_soon(self) -> None:
        """A stream was cut off."""
        self._cut.set()

    async def run(self) -> None:
        """Compare all kinds until the task is cancelled."""
        rested_s = 0.0
        while True:
            cut = await self._pause_until(self._limits().audit_period_s - rested_s)
            async with asyncio.TaskGroup() as group:
                for kind, reader, sink in self._audited() if self._wanted() else ():
                    group.create_task(self.audit(kind, reader, sink, after_cut=cut))
            longest_s = self._limits().audit_period_s
            rested_s = min(limits.COMPARE_CUT_PAUSE_S, longest_s) if cut else 0.0
            await self._clock.sleep(rested_s)

    async def _pause_until(self, longest_s: float) -> bool:
        """Whether a stream was cut off; else so much time has passed."""
        try:
            async with asyncio.timeout(longest_s):
                await self._cut.wait()
        except TimeoutError:
            return False
        await self._clock.sleep(limits.WATCH_SHORT_S)  # the other streams are cut off as well
        self._cut.clear()
        return True

    async def audit(
        self, kind: str, reader: ComparedReader, sink: ComparedStore, *, after_cut: bool = False
    ) -> None:
        """One look at one kind, and another where its stream was renewed meanwhile."""
        for _ in range(limits.COMPARE_TRIES_MAX):
            if await self._look_contained(kind, reader, sink, after_cut=after_cut):
                return
            if after_cut:
                self._cut.set()
                return

    async def _look_contained(
        self, kind: str, reader: ComparedReader, sink: ComparedStore, *, after_cut: bool
    ) -> bool:
        """See ``_compare_kind``; what raises in it costs this kind this audit."""
        try:
            return await self._compare_kind(kind, reader, sink, after_cut=after_cut)
        except errors.Fenced:
            raise
        except Exception as error:  # noqa: BLE001 - other kinds, and the next audit, go on
            self._on_contained("audit", error, kind)
            return True

    async def _compare_kind(
        self, kind: str, reader: ComparedReader, sink: ComparedStore, *, after_cut: bool
    ) -> bool:
        """Whether events came all the time, so that the look says something."""
        stream = await self._await_events(reader)
        sink.touched = set()
        try:
            listed, differing, failing = await self._read(reader, sink)
            # What was on its way when the list was made has come by then.
            await self._clock.sleep(limits.COMPARE_GRACE_S)
            if not stream or reader.following != stream:
                return False  # what differs may just not have come yet
            differing, gone = _still_differing(sink, listed, differing)
            back = sum(map(sink.knows_newer, differing))
            if back or (after_cut and (differing or gone)):
                self._restored(
                    f"{len(differing) + len(gone)} of the {kind} that the server lists are not "
                    f"as its watch told, {back} of them older: its etcd was restored from a backup"
                )
            else:
                self._repair_cache(kind, sink, differing, gone)
                for item in failing:
                    if sink.key_of(item) not in sink.touched and sink.fails(item):
                        sink.apply("MODIFIED", item)
        except errors.GpuschedError as error:
            if errors.is_defect(error):
                raise
            _log.info("an audit was not finished", resource=kind, why=error)
        finally:
            sink.touched = None
        return True

    async def _await_events(self, reader: ComparedReader) -> int:
        """Wait until events come, for as long as is waited between two tries to get them."""
        until = self._clock.monotonic() + limits.BACKOFF_MAX_S
        while not reader.following and self._clock.monotonic() < until:
            await self._clock.sleep(1.0)
        return reader.following

    async def _read(
        self, reader: ComparedReader, sink: ComparedStore
    ) -> tuple[set[ObjectKey], list[Any], list[Any]]:
        listed: set[ObjectKey] = set()
        differing: list[Any] = []
        failing: list[Any] = []
        """What made us fail may have passed, such as a lack of memory: tried again."""
        token = ""

        def is_known(item: Any) -> bool:
            return sink.knows(item) and not sink.fails(item)

        while True:
            page = await reader.page(limits.LIST_PAGE, token, is_known=is_known)
            if is_older_version(page.resource_version, reader.resource_version):
                raise errors.GpuschedError("the list is older than what is known")
            for item in page.items:
                listed.add(sink.key_of(item))
                if not sink.knows(item):
                    differing.append(item)
                elif sink.fails(item):
                    failing.append(item)
            token = page.continue_token
            if not token:
                return listed, differing, failing
            await self._clock.sleep(limits.COMPARE_PAUSE_S)

    def _repair_cache(
        self, kind: str, sink: ComparedStore, differing: Sequence[Any], gone: Sequence[ObjectKey]
    ) -> None:
        had = set(sink.keys())
        for item in differing:
            change = "MODIFIED" if sink.key_of(item) in had else "ADDED"
            sink.apply(change, item)
            self._telemetry.events_lost(kind, change)
        for key in gone:
            sink.drop(key)
            self._telemetry.events_lost(kind, "DELETED")
        names = sorted(str(key) for key in (*map(sink.key_of, differing), *gone))
        if names:
            _log.warning(
                "the watch had lost events; the objects were put right",
                resource=kind, objects=len(names), first=", ".join(names[:_NAMED_MAX]),
            )  # fmt: skip


def _still_differing(
    sink: ComparedStore, listed: set[ObjectKey], differing: Sequence[Any]
) -> tuple[list[Any], list[ObjectKey]]:
    """What still differs although no event was about it: objects, and keys of which none is."""
    touched = sink.touched or set()
    still = [
        item for item in differing if sink.key_of(item) not in touched and not sink.knows(item)
    ]
    return still, sorted(set(sink.keys()) - listed - touched)
