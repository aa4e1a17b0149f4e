"""One kind of object, listed and watched: the cluster's state as a stream of typed items.

::

    list ---> watch <-+            window over, stall, broken stream: from the last version
      ^         |     |            410, ERROR event, bad line, disorder, a version that went
      |         +-----+            back: list again
      +---------+

A stream that ended before its time may have been that of a server whose etcd is restored from a
backup: one object is listed before the next stream, and a version lower than ours means that
what the sink knows is of another history. So does a whole window without a word.

Every failure, and every stream shorter than 5 s, is followed by a growing wait; only a long
stream resets it. The sink is called in the event loop and must not wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, TypeVar

import attrs

from gpusched.api.meta.codec import ListedHead, ObjectPage
from gpusched.api.meta.identity import is_older_version
from gpusched.base import errors, limits
from gpusched.base.classes import frozen
from gpusched.base.clock import Clock
from gpusched.io.client.api_client import ApiClient, WatchLines, WatchLineTooLong
from gpusched.io.client.missing_rights import DAEMON_ROLE, explain_denied
from gpusched.io.client.responses import ApiResponse, api_error
from gpusched.io.observe.logs import Logger
from gpusched.io.observe.text import one_line
from gpusched.io.watch.installed import is_installed
from gpusched.io.watch.kind_spec import (
    KindSpec,
    ResourceEventHandler,
    WatchedCodec,
    WatchedPage,
    WatchMetrics,
)
from gpusched.io.watch.list_pages import DecodedBeside, ListPages
from gpusched.io.workers.backoff import RetryBackoff
from gpusched.io.workers.work_queue import OnContained, log_contained_fault

__all__ = ["KindSpec", "Reflector"]

Item = TypeVar("Item")

_RESTORED: Final = "restored"
_UNREACHABLE: Final = "unreachable"
_BROKEN: Final = "broken"
_OUTAGE: Final = (_UNREACHABLE, _BROKEN)
_CHANGES: Final = frozenset({"ADDED", "MODIFIED", "DELETED"})

_log = Logger(__name__)


@frozen
class _WatchEnd:
    """Why a list or a stream ended, and what follows."""

    reason: str
    says: str = ""
    relist: bool = False
    retry_after_s: float = 0.0
    fault: bool = True


class Reflector(Generic[Item]):
    """Keeps ``sink`` equal to what the API server has of one kind; ``run`` never returns.

    Args:
        api: shared with everything but the lease.
        kind: what to follow.
        codec: bytes to items.
        sink: gets them.
        clock: monotonic time.
        rng: jitter; a stream of its own.
        telemetry: counts.
        drop_missing: drops what the sink has and is not among all items. With it the first list is
            taken in page by page, while the next page is on its way; nothing may be decided before.
        beside: where pages of a long list may be decoded, see ``ListPages``.
    """

    def __init__(
        self,
        api: ApiClient,
        kind: KindSpec,
        *,
        codec: WatchedCodec[Item],
        sink: ResourceEventHandler[Item],
        clock: Clock,
        rng: random.Random,
        telemetry: WatchMetrics,
        drop_missing: Callable[[Sequence[Item]], None] | None = None,
        beside: Callable[[], DecodedBeside] | None = None,
    ) -> None:
        self._drop_missing = drop_missing
        self._api = api
        self.kind = kind
        self._codec = codec
        self.pages = ListPages(api, kind, codec, beside)
        self._sink = sink
        self._clock = clock
        self._rng = rng
        self._telemetry = telemetry
        self._backoff = RetryBackoff(rng)
        self._version = ""
        self._lists_begun = 0
        self._lists_done = 0
        self._list_wanted = True
        self._least = ""
        self._least_until = 0.0
        self._list_done = asyncio.Condition()
        self._lines: WatchLines | None = None
        self._open = False
        self._streams = 0
        self._opened_at = 0.0
        self._broken_at = 0.0
        self._cause = ""
        self._settling: asyncio.TimerHandle | None = None
        self.on_refused: Callable[[], None] = _ignore
        """Called when an optional kind turns out to be refused, or not to be any more."""
        self.on_restored: Callable[[str], None] = _ignore_message
        """Told in a sentence that the server's versions went back."""
        self.on_contained: OnContained = log_contained_fault
        """Told of what failed by our own doing; the kind is listed again."""
        self.on_cut: Callable[[], None] = _ignore
        """Called when a stream ended before its time."""
        self._cut_off = False
        self._refused_list = 0
        self._given_up_list = 0
        self._missing_since = 0.0
        """When the kind was first not there, monotonic seconds; 0.0 when it is."""

    @property
    def refused(self) -> bool:
        """Whether the rest goes on without the kind, as its last list was refused or not there."""
        return self._refused_list > self._lists_done

    @property
    def synced(self) -> bool:
        """Whether everything was listed at least once."""
        return self._lists_done > 0

    @property
    def resource_version(self) -> str:
        """The version up to which the sink knows all changes; empty before the first list."""
        return self._version

    @property
    def following(self) -> int:
        """Number of the stream that is open now, 0 for none; a list begins a new one."""
        return self._streams if self._open else 0

    @property
    def error(self) -> str:
        """Why there is no stream now, in one sentence; empty when all is well."""
        return self._cause

    def is_fresh(self, now: float, staleness_s: float = limits.CACHE_STALENESS_MAX_S) -> bool:
        """Whether decisions may rest on what the sink knows.

        Args:
            now: monotonic seconds.
            staleness_s: for which a broken stream is bridged.
        """
        if not self.synced:
            return False
        return self._open or now - self._broken_at < staleness_s

    def require(self, least: str) -> None:
        """Take no list of an older resourceVersion, which is of a replica that is behind: it is
        asked for again, for a minute at most.
        """
        self._least = least
        self._least_until = self._clock.monotonic() + limits.LIST_BEHIND_MAX_S

    def ask_relist(self, least: str = "") -> Callable[[], Awaitable[None]]:
        """Have it listed again now; what waits until a list begun after this call has reached the sink.

        Args:
            least: see ``require``.
        """
        self.require(least)
        wanted = self._lists_begun + 1
        self._list_wanted = True
        if self._lines is not None:
            self._lines.close()

        async def listed() -> None:
            async with self._list_done:
                await self._list_done.wait_for(
                    lambda: max(self._lists_done, self._given_up_list) >= wanted
                )

        return listed

    async def run(self) -> None:
        """Follow the kind until cancelled."""
        try:
            await self._follow()
        finally:
            self._api.outage.note_return(self.kind.name)

    async def _follow(self) -> None:
        while True:
            try:
                end = await self._list_all() if self._list_wanted else await self._watch()
            except errors.Fenced:
                raise
            except Exception as error:  # noqa: BLE001 - a defect of ours ends no daemon: list again
                end = self._broke_off(error)
            if end is None:
                continue
            self._list_wanted = self._list_wanted or end.relist
            if not end.fault:
                continue
            await self._clock.sleep(max(end.retry_after_s, self._backoff.failed()))

    def _note_defect(self, error: errors.GpuschedError) -> None:
        """Count a fault of ours where it is handled as an answer that failed."""
        if errors.is_defect(error):
            self.on_contained("following", error, self.kind.name)

    def _broke_off(self, error: Exception) -> _WatchEnd:
        self._close_stream()
        self.on_contained("following", error, self.kind.name)
        says = f"following {self.kind.name} failed: {type(error).__name__}: {one_line(str(error))}"
        self._tell_transition("defect", says)
        return _WatchEnd("defect", says, relist=True)

    # -- list -------------------------------------------------------------------------------

    async def _list_all(self) -> _WatchEnd | None:
        self._lists_begun += 1
        number = self._lists_begun
        self._list_wanted = False
        if number > 1:
            self._telemetry.relisted(self.kind.name)
        drop_missing = None if self.synced else self._drop_missing
        items: list[Item] = []
        try:
            version = await self._read_pages(items, at_once=drop_missing is not None)
        except errors.GpuschedError as error:
            return await self._page_failed(number, error)
        if isinstance(version, _WatchEnd):
            return version
        if is_older_version(version, self._version):
            end = await self._version_went_back()
            if end is None:  # a replica that lags: its past must not replace what is known
                return self._list_failed(
                    errors.GpuschedError(f"a list of {self.kind.name} was older than the last one")
                )
            if end.reason != _RESTORED:
                return attrs.evolve(end, relist=True)
            self._tell_transition(end.reason, end.says)
        if drop_missing is None:
            self._sink.replace(items)
        else:
            drop_missing(items)
        self._version = version
        self._cut_off = False
        self._missing_since = 0.0
        was_refused, self._lists_done = self.refused, number
        if was_refused and self.kind.optional:
            self.on_refused()
        self._broken_at = self._clock.monotonic()
        self._tell_transition("listed", f"listed {len(items)} {self.kind.name}", quiet=number > 1)
        async with self._list_done:
            self._list_done.notify_all()
        return None

    async def _read_pages(self, items: list[Item], *, at_once: bool) -> str | _WatchEnd:
        """Read a list into ``items``, and into the sink where that is to happen at once; its version.

        Raises:
            GpuschedError: a page cannot be had.
        """
        version = ""
        async with contextlib.aclosing(self.pages.all()) as pages:
            async for page in pages:
                version = page.resource_version
                if (behind := self._is_behind(version)) is not None:
                    return behind
                items.extend(page.items)
                if len(items) > limits.OBJECTS_PER_KIND_MAX:
                    return self._list_failed(
                        errors.GpuschedError(
                            f"there are more than {limits.OBJECTS_PER_KIND_MAX} {self.kind.name},"
                            " which is as many as gpusched holds"
                        )
                    )
                for item in page.items if at_once else ():
                    self._sink.apply("ADDED", item)
        return version

    async def _page_failed(self, number: int, error: errors.GpuschedError) -> _WatchEnd:
        """What broke off is not a list: the sink keeps what it has."""
        self._note_defect(error)
        missing = self.kind.from_our_manifests and isinstance(error, errors.NotFound)
        if self.kind.optional and not missing:
            await self._give_up(number, error)
        elif missing and await self._is_not_installed():
            return await self._go_on_without(number)
        return self._list_failed(error)

    async def _is_not_installed(self) -> bool:
        """Whether our CRD of this kind is missing, and not just being made or a moment's 404.

        A kind whose objects were read once is waited for: its CRD may be on its way back.
        """
        now = self._clock.monotonic()
        if not self.kind.from_our_manifests or self._version:
            return False
        if not self._missing_since:
            self._missing_since = now
        if now - self._missing_since < limits.NOT_INSTALLED_S:
            return False
        try:
            return not await is_installed(self._api, self.kind)
        except errors.GpuschedError:
            return False

    async def _go_on_without(self, number: int) -> _WatchEnd:
        """There are no objects of a kind that is not installed; it is looked for again and again."""
        self._sink.replace([])
        self._refused_list = self._given_up_list = number
        async with self._list_done:
            self._list_done.notify_all()
        says = (
            f"{self.kind.name} is not installed in this cluster: going on without; "
            "kubectl apply -k manifests/ brings it, and it counts from then on"
        )
        self._tell_transition("not-installed", says)
        return _WatchEnd(
            "not-installed", says, relist=True, retry_after_s=limits.DISCOVERY_PERIOD_S
        )

    def _is_behind(self, version: str) -> _WatchEnd | None:
        """A new leader's lists show no less than what there was when it took the Lease.

        Else what its predecessor bound could be missing. Versions of two kinds can be compared
        while one etcd keeps both; where it does not, that is found out by waiting.
        """
        if not is_older_version(version, self._least):
            self._least = ""
            return None
        if self._clock.monotonic() < self._least_until:
            says = (
                f"a list of {self.kind.name} has version {version}, the Lease {self._least}: the API "
                "server's replica is behind, and is asked again"
            )
            self._tell_transition("behind", says)
            return _WatchEnd("behind", says, relist=True)
        _log.warning(
            "lists stay older than the Lease: what they show is believed now",
            resource=self.kind.name, version=version, lease=self._least,
        )  # fmt: skip
        self._least = ""
        return None

    async def _give_up(self, number: int, error: errors.GpuschedError) -> None:
        """No start waits for this list of an optional kind any more."""
        self._given_up_list = number
        if isinstance(error, errors.Denied | errors.NotFound):
            was_refused, self._refused_list = self.refused, number
            if not was_refused:
                self.on_refused()
        async with self._list_done:
            self._list_done.notify_all()

    async def page(
        self, limit: int, token: str, *, is_known: Callable[[ListedHead], bool] | None = None
    ) -> WatchedPage[Item] | ObjectPage[ListedHead]:
        """One page of a consistent list; see ``ListPages.one``.

        Raises:
            GpuschedError: there is none.
        """
        return await self.pages.one(limit, token, is_known=is_known)

    def _list_failed(self, error: errors.GpuschedError) -> _WatchEnd:
        says = str(error)
        if isinstance(error, errors.NotFound) and self.kind.from_our_manifests:
            says = (
                f"{self.kind.name} is not installed in this cluster:"
                " run kubectl apply -k manifests/"
            )
        if isinstance(error, errors.Denied) and not self.kind.optional:
            says = str(explain_denied(error, DAEMON_ROLE))
        reason = {
            errors.ClusterUnreachable: _UNREACHABLE,
            errors.Gone: "expired",
            errors.Denied: "denied",
            errors.NotFound: "not-found",
            errors.Throttled: "throttled",
            errors.UndecodableObject: "bad-list",
        }.get(type(error), "list-failed")
        self._tell_transition(reason, says)
        wait = error.retry_after_s if isinstance(error, errors.Throttled) else 0.0
        return _WatchEnd(reason, says, relist=True, retry_after_s=wait)

    # -- watch ------------------------------------------------------------------------------

    async def _watch(self) -> _WatchEnd:
        if self._cut_off:
            doubt = await self._version_went_back()
            if doubt is not None:
                self._tell_transition(doubt.reason, doubt.says)
                return doubt
            self._cut_off = False
        window = self._rng.uniform(limits.WATCH_WINDOW_MIN_S, limits.WATCH_WINDOW_MAX_S)
        query = {
            **self.kind.query,
            "watch": "1",
            "resourceVersion": self._version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(int(window)),
        }
        events = 0
        try:
            async with self._api.stream(
                self.kind.path, query=query, read_timeout_s=window + limits.WATCH_GRACE_S
            ) as (status, lines):
                if status != 200:
                    end = await self._refuse_stream(status, lines)
                else:
                    self._open_stream(lines)
                    events, end = await self._follow_stream(lines)
        except WatchLineTooLong as error:
            end = _WatchEnd("line-too-long", str(error), relist=True)
        except errors.ClusterUnreachable as error:
            end = _WatchEnd(_BROKEN, str(error))
        lasted_s = self._close_stream()
        self._cut_off = lasted_s < int(window) - 1
        if self._cut_off and lasted_s:
            self.on_cut()
        if self._list_wanted:
            end = _WatchEnd("relist-asked", relist=True, fault=False)
        elif lasted_s >= limits.WATCH_SHORT_S:
            end = attrs.evolve(end, fault=end.retry_after_s > 0)
            if events == 0 and not end.relist and not self._cut_off:
                end = await self._version_went_back() or end
        self._tell_transition(end.reason, end.says, quiet=not end.fault and not end.relist)
        return end

    async def _refuse_stream(self, status: int, lines: WatchLines) -> _WatchEnd:
        body = b"".join([line async for line in lines])
        error = api_error(ApiResponse(status, lines.headers, body), doing=f"watch {self.kind.name}")
        if isinstance(error, errors.Throttled):
            return _WatchEnd("throttled", str(error), retry_after_s=error.retry_after_s)
        # 404: the kind was removed; 400: the version means nothing to this server.
        relist = status in {400, 404, 410}
        if isinstance(error, errors.Denied) and not self.kind.optional:
            return _WatchEnd("denied", str(explain_denied(error, DAEMON_ROLE)))
        return _WatchEnd("expired" if status == 410 else "refused", str(error), relist=relist)

    async def _follow_stream(self, lines: WatchLines) -> tuple[int, _WatchEnd]:
        """Apply events until the stream ends; how many there were, and why it ended."""
        events = 0
        try:
            async for line in lines:
                end = self._apply(line)
                if end is not None:
                    return events, end
                events += 1
                if events % limits.WATCH_EVENTS_PER_TURN == 0:
                    await asyncio.sleep(0)  # noqa: TID251 - a turn, no time
        except errors.ClusterUnreachable as error:
            return events, _WatchEnd(_BROKEN, str(error))
        return events, _WatchEnd("window-over")

    def _apply(self, line: bytes) -> _WatchEnd | None:
        """One event; None while the stream can be followed further."""
        try:
            event = self._codec.decode_event(line)
        except (errors.UndecodableObject, ValueError, RecursionError) as error:
            says = f"a watch event of {self.kind.name} cannot be read: {one_line(str(error))}"
            return _WatchEnd("bad-line", says, relist=True)
        if event.type == "ERROR":
            reason = "expired" if event.code == 410 else "error-event"
            says = f"watch of {self.kind.name} ended with code {event.code}: "
            return _WatchEnd(reason, says + one_line(event.message), relist=True)
        if event.type not in _CHANGES and event.type != "BOOKMARK":
            self._telemetry.watch_transition(self.kind.name, "unknown-event")
            return None
        if not event.resource_version or is_older_version(event.resource_version, self._version):
            says = f"a {event.type} event of {self.kind.name} went back in version"
            return _WatchEnd("disorder", says, relist=True)
        if event.type != "BOOKMARK":
            if event.item is None:
                return _WatchEnd("bad-line", f"a {event.type} event holds no object", relist=True)
            self._sink.apply(event.type, event.item)
        self._version = event.resource_version
        return None

    async def _version_went_back(self) -> _WatchEnd | None:
        """Whether the server's version went back; None when it did not.

        A restored etcd looks exactly like a quiet cluster. What one answer says may be the past
        of a replica that lags, so it is asked twice.
        """
        try:
            for tries in range(2):
                if tries:
                    await self._clock.sleep(limits.RESTORE_LOOK_S)
                page = await self.page(1, "")
                if not is_older_version(page.resource_version, self._version):
                    return None
        except errors.GpuschedError as error:
            self._note_defect(error)
            return _WatchEnd(_BROKEN, str(error))
        says = (
            f"the server's version of {self.kind.name} went back from {self._version} to "
            f"{page.resource_version}: its etcd was restored from a backup"
        )
        self._version = ""  # the next list is believed as the first one was
        self.on_restored(says)
        return _WatchEnd(_RESTORED, says, relist=True, fault=False)

    # -- state ------------------------------------------------------------------------------

    def _open_stream(self, lines: WatchLines) -> None:
        if self._list_wanted:  # asked for while we were connecting
            lines.close()
        self._lines = lines
        self._open = True
        self._streams += 1
        self._opened_at = self._clock.monotonic()
        loop = asyncio.get_running_loop()
        self._settling = loop.call_later(limits.WATCH_SHORT_S, self._forget_failures)

    def _forget_failures(self) -> None:
        """The stream has lasted: what went wrong before is over."""
        self._backoff.succeeded()
        lost = self._api.outage.note_return(self.kind.name)
        if lost is not None and lost > 1:
            _log.info("the API server can be reached again", watches=lost)
        elif self._cause and lost != 0:
            _log.info("watch works again", resource=self.kind.name)
        self._cause = ""

    def _close_stream(self) -> float:
        """Seconds for which the stream was open; 0 if it never was."""
        self._lines = None
        if self._settling is not None:
            self._settling.cancel()
            self._settling = None
        if not self._open:
            return 0.0
        self._open = False
        self._broken_at = self._clock.monotonic()
        return self._broken_at - self._opened_at

    def _tell_transition(self, reason: str, says: str, *, quiet: bool = False) -> None:
        """Count; log, but the same cause only once."""
        self._telemetry.watch_transition(self.kind.name, reason)
        if reason == "listed":
            write = _log.debug if quiet else _log.info
            write(says, resource=self.kind.name, version=self._version)
            return
        if quiet or reason == "relist-asked":
            _log.debug("watch ended", resource=self.kind.name, reason=reason)
            return
        says = says or f"the watch of {self.kind.name} ended at once"
        if says == self._cause:
            return
        self._cause = says
        cause = says.removeprefix(self.kind.path)
        told = reason in _OUTAGE and not self._api.outage.note_loss(self.kind.name, cause)
        write = _log.debug if told else _log.warning
        write(says, resource=self.kind.name, reason=reason)


def _ignore() -> None:
    """Nobody wants to know."""


def _ignore_message(_sentence: str) -> None:
    """The same with a sentence."""
