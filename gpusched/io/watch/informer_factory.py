"""All that is read of the cluster: our own and the usual kinds, and those of other projects."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from gpusched.api.meta.identity import Rejected
from gpusched.base.clock import Clock
from gpusched.cache.cache import Cache
from gpusched.config.model import LimitsConfig, default_limits
from gpusched.io.client.api_client import ApiClient
from gpusched.io.observe.telemetry import Telemetry
from gpusched.io.watch.cache_comparer import CacheComparer
from gpusched.io.watch.discovery import KindDiscovery
from gpusched.io.watch.informers import ROOM, make_reflectors
from gpusched.io.watch.reflector import Reflector
from gpusched.io.workers.work_queue import OnContained, log_contained_fault


class InformerFactory:
    """See the module.

    Args:
        api: shared with everything but the lease.
        cache: where everything goes.
        clock: time.
        rng: jitter.
        telemetry: counts.
        reject: told the name of a kind and an object of it that cannot be believed.
        restored: told in a sentence that the server's etcd was restored from a backup.
        leading: whether this process leads: then lost events are looked for.
        refused: told the name of a kind that may not be read, or (False) that it may again.
        limits_in_force: of the configuration.
        on_contained: told of what failed by our own doing, and costs one object, kind or audit.
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
        restored: Callable[[str], None],
        leading: Callable[[], bool],
        refused: Callable[[str, bool], None],
        limits_in_force: Callable[[], LimitsConfig] = default_limits,
        on_contained: OnContained = log_contained_fault,
    ) -> None:
        self._limits = limits_in_force
        self._clock = clock
        self._on_refused = refused
        self._usual, audited = make_reflectors(
            api,
            cache,
            clock=clock,
            rng=rng,
            telemetry=telemetry,
            reject=reject,
            restored=restored,
            on_contained=on_contained,
        )
        for each in self._usual:
            each.on_restored = restored
            each.on_refused = partial(self._note_refused, each)
        room = [each for each in audited if each[0] in ROOM]
        others = [each for each in audited if each[0] not in ROOM]
        self._adapters = KindDiscovery(
            api,
            cache,
            clock=clock,
            rng=rng,
            telemetry=telemetry,
            reject=reject,
            on_contained=on_contained,
        )
        self._auditors = [
            CacheComparer(
                kinds,
                wanted=leading,
                restored=restored,
                clock=clock,
                telemetry=telemetry,
                limits_in_force=limits_in_force,
                on_contained=on_contained,
            )
            for kinds in (lambda: room, lambda: [*others, *self._adapters.compared_kinds()])
        ]
        self._room = tuple(reflector for _, reflector, _ in room)
        for reflector in self._room:
            reflector.on_cut = self._auditors[0].look_soon

    def unready(self) -> str:
        """Empty when decisions can be made on what the cache holds, else why not."""
        followed = [each for each in self._usual if not each.refused]
        for each in followed:
            if not each.synced:
                return f"{each.kind.name} have not been listed yet: {each.error or 'listing'}"
        now, staleness_s = self._clock.monotonic(), self._limits().cache_staleness_s
        for each in followed:
            if not each.kind.optional and not each.is_fresh(now, staleness_s):
                return f"{each.kind.name} are out of date: {each.error}"
        return self._adapters.unready()

    def follows_room(self) -> bool:
        """Whether the watches of pods and of nodes are open now."""
        return all(each.following for each in self._room)

    @property
    def not_installed(self) -> str:
        """Kinds of ours without which decisions go on, as their CRDs are missing; empty for none."""
        missing = [
            each.kind.name for each in self._usual if each.kind.from_our_manifests and each.refused
        ]
        return ", ".join(missing)

    def ask_relist(self, least: str = "") -> Callable[[], Awaitable[None]]:
        """Have everything listed again by lists that begin from now on; what waits for them.

        Args:
            least: lists of an older resourceVersion are of a replica that is behind.
        """
        waits = [
            self._adapters.ask_relist(least),
            *(each.ask_relist(least) for each in self._usual),
        ]

        async def listed() -> None:
            await asyncio.gather(*(wait() for wait in waits))

        return listed

    def start(self, group: asyncio.TaskGroup) -> list[asyncio.Task[None]]:
        """Read until the tasks are cancelled."""
        tasks = [group.create_task(each.run(), name=each.kind.name) for each in self._usual]
        return [
            *tasks,
            group.create_task(self._adapters.run(), name="adapters"),
            *(group.create_task(each.run(), name="audit") for each in self._auditors),
        ]

    def _note_refused(self, reader: Reflector[Any]) -> None:
        self._on_refused(reader.kind.name, reader.refused)
