"""Kinds of other projects: followed while the API server serves them, and no longer.

What is served is asked at the start and again every so often, so that a CRD may come and go. A
kind that may not be read is said once and does without: its gangs are then known by their pods.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec

from gpusched.api.devices import published_devices
from gpusched.api.devices.dynamic import decode as dynamic_devices
from gpusched.api.foreign import kinds, pod_groups, queues, workload_decode
from gpusched.api.foreign.kinds import ForeignKind, ServedForeignKind
from gpusched.api.gang.native_terms import COMPOSITE
from gpusched.api.meta.identity import Rejected
from gpusched.base import errors, limits
from gpusched.base.classes import frozen
from gpusched.base.clock import Clock
from gpusched.cache.cache import Cache
from gpusched.io.client.api_client import ApiClient
from gpusched.io.client.responses import api_error
from gpusched.io.observe.logs import Logger
from gpusched.io.observe.telemetry import Telemetry
from gpusched.io.observe.text import one_line
from gpusched.io.watch.cache_comparer import Compared
from gpusched.io.watch.informers import KindEventHandler, make_foreign_event_handler
from gpusched.io.watch.kind_spec import KindSpec
from gpusched.io.watch.reflector import Reflector
from gpusched.io.watch.user_policy import find_users_doubt
from gpusched.io.workers.backoff import RetryBackoff
from gpusched.io.workers.work_queue import OnContained, log_contained_fault

_log = Logger(__name__)


class _WireApiVersion(msgspec.Struct):
    version: str = ""


class _WireApiGroup(msgspec.Struct):
    name: str = ""
    versions: list[_WireApiVersion] = []


class _WireApiGroupList(msgspec.Struct):
    groups: list[_WireApiGroup] = []


class _WireApiResource(msgspec.Struct):
    name: str = ""
    verbs: list[str] = []
    kind: str = ""
    namespaced: bool = True


class _WireApiResourceList(msgspec.Struct):
    resources: list[_WireApiResource] = []


_GROUPS: Final = msgspec.json.Decoder(_WireApiGroupList)
_RESOURCES: Final = msgspec.json.Decoder(_WireApiResourceList)


@frozen(slots=True, eq=False)
class _Followed:
    """A kind that is followed.

    Attributes:
        task: runs the reflector.
    """

    kind: ForeignKind
    served: ServedForeignKind
    reflector: Reflector[Any]
    sink: KindEventHandler
    task: asyncio.Task[None]


class KindDiscovery:
    """See the module. ``run`` never returns.

    Args:
        api: shared with everything but the lease.
        cache: where everything goes.
        clock: monotonic time.
        rng: jitter.
        telemetry: counts.
        reject: told the name of a kind and an object of it that cannot be believed.
        on_contained: told of what failed by our own doing.
    """

    def __init__(
        self,
        api: ApiClient,
        cache: Cache,
        *,
        clock: Clock,
        rng: random.Random,
        telemetry: Telemetry,
        reject: Callable[[str, Rejected], None],
        on_contained: OnContained = log_contained_fault,
    ) -> None:
        self._api = api
        self._cache = cache
        self._clock = clock
        self._rng = rng
        self._telemetry = telemetry
        self._reject = reject
        self._on_contained = on_contained
        self._running: dict[str, _Followed] = {}
        self._strange: set[tuple[str, str]] = set()
        self._looked = asyncio.Event()
        self._lists: list[Callable[[], Awaitable[None]]] = []
        """Wait for what was asked for last, and for the first lists of kinds found since."""
        self._least = ""
        self._trouble = "looking which kinds are served"

    def unready(self) -> str:
        """Empty when decisions can be made, else why not."""
        if not self._looked.is_set():
            return f"kinds of other projects are not known yet: {self._trouble}"
        for reflector in (each.reflector for each in self._running.values()):
            # One that fails stops nobody else: who depends on its objects waits for them.
            if not reflector.synced and not reflector.error:
                return f"{reflector.kind.name} have not been listed yet"
        return ""

    def compared_kinds(self) -> list[Compared]:
        """Kinds of devices that are followed: a lost event of one could give a device twice, or to nobody."""
        return [
            (each.kind.name, each.reflector, each.sink)
            for each in self._running.values()
            if each.kind.kind in kinds.DYNAMIC_DEVICE_KINDS and not each.reflector.refused
        ]

    def ask_relist(self, least: str = "") -> Callable[[], Awaitable[None]]:
        """Have everything listed again; what waits until that is done, or has failed.

        Args:
            least: lists of an older resourceVersion are of a replica that is behind, of kinds that
                are found later too.
        """
        self._least = least
        self._lists = [each.reflector.ask_relist(least) for each in self._running.values()]

        async def listed() -> None:
            await self._looked.wait()
            await asyncio.gather(*(wait() for wait in self._lists))

        return listed

    async def run(self) -> None:
        """Follow what is served until cancelled."""
        backoff = RetryBackoff(self._rng)
        async with asyncio.TaskGroup() as group:
            while True:
                try:
                    await self._follow_kinds(await self._discover_kinds(), group)
                    await self._look_for_user_policy()
                except Exception as error:  # noqa: BLE001 - a defect of ours ends no daemon
                    if errors.is_defect(error):
                        self._on_contained("discovery", error, "other projects' kinds")
                        self._note_failure(f"{type(error).__name__}: {error}")
                    else:
                        self._note_failure(str(error))
                    pause_s = backoff.failed()
                else:
                    backoff.succeeded()
                    pause_s = limits.DISCOVERY_PERIOD_S
                await self._clock.sleep(pause_s)

    def _note_failure(self, why: str) -> None:
        """Without an answer what was followed is followed on; the same is said only once."""
        if why != self._trouble:
            _log.warning("which kinds are served cannot be found out", why=why)
        self._trouble = why

    async def _look_for_user_policy(self) -> None:
        """Find out whether names of users are true, where a queue limits users."""
        families = self._cache.families
        doubt = ""
        if families.limits_users and families.believes_users:
            doubt = await find_users_doubt(self._api)
        if doubt != families.users_doubt:
            families.users_doubt = doubt
            self._cache.request_status()
            if doubt:
                _log.warning("names of users cannot be believed", why=doubt)

    # -- discovery --------------------------------------------------------------------------

    async def _discover_kinds(self) -> dict[str, ServedForeignKind]:
        """Where each kind is, by its name; only those that can be listed and watched."""
        listed = await self._get("/apis", _GROUPS)
        versions = {
            group.name: {each.version for each in group.versions}
            for group in (listed.groups if listed else ())
        }
        found: dict[str, ServedForeignKind] = {}
        known: dict[str, Mapping[str, _WireApiResource]] = {}
        for kind in kinds.ALL:
            for version in kind.versions:
                if version not in versions.get(kind.group, ()):
                    continue
                api_version = f"{kind.group}/{version}"
                if api_version not in known:
                    page = await self._get(f"/apis/{api_version}", _RESOURCES)
                    known[api_version] = {
                        each.name: each for each in (page.resources if page else ())
                    }
                resources = known[api_version]
                if self._can_follow(kind, api_version, resources.get(kind.plural)):
                    status = f"{kind.plural}/status" in resources
                    found[kind.name] = ServedForeignKind(api_version, kind.plural, status)
                    break
        return found

    def _can_follow(
        self, kind: ForeignKind, api_version: str, found: _WireApiResource | None
    ) -> bool:
        """Whether it can be listed and watched, and is what this kind is: a name can be taken."""
        if found is None or not {"list", "watch"} <= set(found.verbs):
            return False
        if (found.kind or kind.kind, found.namespaced) == (kind.kind, kind.namespaced):
            return True
        if (kind.name, api_version) not in self._strange:
            self._strange.add((kind.name, api_version))
            _log.warning(
                "not followed: somebody else's kind has this name", resource=kind.name,
                version=api_version, kind=found.kind, namespaced=found.namespaced,
            )  # fmt: skip
        return False

    async def _get(self, path: str, decoder: msgspec.json.Decoder[Any]) -> Any:
        """The answer; None when it is not there, or from the start may not be read.

        Raises:
            GpuschedError: no answer, or none that can be read.
        """
        answer = await self._api.request("GET", path, timeout_s=limits.REQUEST_TIMEOUT_S)
        if not answer.ok:
            error = api_error(answer, doing=f"read {path}")
            if isinstance(error, errors.NotFound):
                return None
            if isinstance(error, errors.Denied) and not self._looked.is_set():
                self._note_failure(str(error))
                return None
            raise error
        try:
            return decoder.decode(answer.body)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise errors.UndecodableObject(
                f"what is served at {path} cannot be read: {one_line(str(error))}"
            ) from error

    # -- following --------------------------------------------------------------------------

    async def _follow_kinds(
        self, found: Mapping[str, ServedForeignKind], group: asyncio.TaskGroup
    ) -> None:
        """Begin and end so that exactly what was found is followed."""
        for kind in kinds.ALL:
            running, served = self._running.get(kind.name), found.get(kind.name)
            if running is not None and running.served != served:
                await self._end(kind, running.task, gone=served is None)
            if served is not None and kind.name not in self._running:
                self._begin(kind, served, group)
        self._looked.set()
        self._note_read()

    def _begin(
        self, kind: ForeignKind, served: ServedForeignKind, group: asyncio.TaskGroup
    ) -> None:
        _log.info("following", resource=kind.name, version=served.api_version)
        if kind.source:
            self._cache.foreign.served[kind.kind, kind.source] = served
        if kind.kind == "ResourceClaim":
            self._cache.devices.api_version = served.api_version
        sink = make_foreign_event_handler(self._cache, kind, self._reject)
        reflector: Reflector[Any] = Reflector(
            self._api,
            KindSpec(kind.name, served.path, optional=True),
            codec=foreign_codec(kind),
            sink=sink,
            clock=self._clock,
            rng=self._rng,
            telemetry=self._telemetry,
            drop_missing=sink.drop_missing,
        )
        reflector.on_refused = self._note_read
        self._lists.append(reflector.ask_relist(self._least))
        task = group.create_task(reflector.run(), name=kind.name)
        self._running[kind.name] = _Followed(kind, served, reflector, sink, task)

    async def _end(self, kind: ForeignKind, task: asyncio.Task[None], *, gone: bool) -> None:
        """The kind is served no more, or in a better version, in which the same objects are listed."""
        del self._running[kind.name]
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        if not gone:
            return
        _log.info("not served any more", resource=kind.name)
        make_foreign_event_handler(self._cache, kind, self._reject).replace([])
        self._cache.foreign.served.pop((kind.kind, kind.source), None)

    def _note_read(self) -> None:
        """Tell the cache which controllers' objects it may wait for."""
        self._cache.foreign.set_read(
            frozenset(
                kind
                for kind, foreign in kinds.WORKLOADS.items()
                if foreign.name in self._running
                and not self._running[foreign.name].reflector.refused
            )
        )


def foreign_codec(kind: ForeignKind) -> Any:
    """Reads a foreign kind."""
    if kind.kind in kinds.DYNAMIC_DEVICE_KINDS:
        return dynamic_devices.CODECS[kind.kind]
    if kind.kind in kinds.DEVICE_KINDS:
        return published_devices.CODECS[kind.kind]
    if not kind.source:
        return workload_decode.CODECS[kind.kind]
    if kind.kind == COMPOSITE:
        return pod_groups.COMPOSITES
    if kind.kind == "PodGroup":
        return pod_groups.CODECS[kind.source]
    return queues.CODECS[kind.source]
