"""One kind of a real cluster as a scenario sees it: all its objects, and every change of them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from gpusched.base.classes import frozen
from gpusched.base.clock import Clock
from gpusched.base.errors import UndecodableObject
from gpusched.io.client.api_client import ApiClient
from gpusched.io.watch.reflector import KindSpec, Reflector
from gpusched.lab.scenario.target_cluster.interface import Obj
from gpusched.lab.scenario.target_cluster.real_discovery import DiscoveredKind

Key: TypeAlias = tuple[str, str]
"""Namespace and name."""
Heed: TypeAlias = Callable[[str, Obj, bool], None]
"""Given the kind, the object and whether it went."""


@frozen
class _ListPage:
    items: tuple[Obj, ...]
    resource_version: str
    continue_token: str


@frozen
class _WatchEvent:
    type: str
    item: Obj | None
    resource_version: str
    code: int = 0
    message: str = ""


@frozen
class _ObjectDecoder:
    """Bytes to objects as they are."""

    served: DiscoveredKind

    def decode_page(self, body: bytes) -> _ListPage:
        """One page of a list, as ``Codec`` demands."""
        whole = _mapping(json.loads(body))
        head = {"apiVersion": self.served.api_version, "kind": self.served.kind}
        metadata = _mapping(whole.get("metadata"))
        items = tuple({**head, **each} for each in whole.get("items") or ())
        return _ListPage(
            items, str(metadata.get("resourceVersion", "")), str(metadata.get("continue", ""))
        )

    def decode_event(self, line: bytes) -> _WatchEvent:
        """One line of a watch, as ``Codec`` demands."""
        whole = _mapping(json.loads(line))
        kind, obj = str(whole.get("type", "")), _mapping(whole.get("object"))
        if kind == "ERROR":
            return _WatchEvent(
                kind, None, "", int(obj.get("code") or 0), str(obj.get("message", ""))
            )
        version = str(_mapping(obj.get("metadata")).get("resourceVersion", ""))
        return _WatchEvent(kind, None if kind == "BOOKMARK" else obj, version)


def _mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UndecodableObject("is no JSON object")
    return value


class _NoMetrics:
    """Counts nothing: a scenario has no metrics."""

    def relisted(self, resource: str) -> None:
        """Nothing is counted when a resource is listed anew."""

    def watch_transition(self, resource: str, reason: str) -> None:
        """Nothing is counted when a watch changes its state."""


class KindWatch:
    """The objects of one kind, kept up to date while ``run`` runs.

    Args:
        api: shared.
        served: the kind.
        clock: for waits.
        heed: given every change, in the loop.
    """

    def __init__(
        self, api: ApiClient, served: DiscoveredKind, *, clock: Clock, observe_change: Heed
    ) -> None:
        self.served = served
        self._heed = observe_change
        self._objects: dict[Key, Obj] = {}
        # Jitter of waits only: what happens on a real cluster repeats anyway never exactly.
        rng = random.Random(served.name)  # noqa: S311
        self._reflector: Reflector[Obj] = Reflector(
            api,
            KindSpec(served.name, served.collection(), optional=True),
            codec=_ObjectDecoder(served),
            sink=self,
            clock=clock,
            rng=rng,
            telemetry=_NoMetrics(),
        )

    @property
    def synced(self) -> bool:
        """Whether everything was listed once, or may not be."""
        return self._reflector.synced or self._reflector.refused

    @property
    def refused(self) -> bool:
        """Whether we may not read it."""
        return self._reflector.refused

    async def run(self) -> None:
        """Follow the kind until cancelled; outages are waited out."""
        await self._reflector.run()

    def objects(self) -> list[Obj]:
        """As last seen, in the order of their names."""
        return [self._objects[key] for key in sorted(self._objects)]

    def get(self, namespace: str, name: str) -> Obj | None:
        """One object as last seen."""
        return self._objects.get((namespace if self.served.namespaced else "", name))

    # -- sink --------------------------------------------------------------------------------
    def replace(self, items: Sequence[Obj]) -> None:
        """Take a whole list: tells what differs from what was known.

        After an outage much is told as of one moment. What ended is told first: what came after
        it may have its place by now.
        """
        there = {_key(obj): obj for obj in items}
        for key in sorted(self._objects.keys() - there.keys()):
            self._heed(self.served.kind, self._objects.pop(key), True)
        for key, obj in sorted(there.items(), key=lambda each: (not _is_over(each[1]), each[0])):
            known = self._objects.get(key)
            self._objects[key] = obj
            if known is None or _version(known) != _version(obj):
                self._heed(self.served.kind, obj, False)

    def apply(self, event_type: str, item: Obj) -> None:
        """Tell the change that an event of a watch stands for."""
        key = _key(item)
        gone = event_type == "DELETED"
        if gone:
            self._objects.pop(key, None)
        else:
            self._objects[key] = item
        self._heed(self.served.kind, item, gone)


def _key(obj: Obj) -> Key:
    metadata = obj["metadata"]
    return (metadata.get("namespace", ""), metadata["name"])


def _is_over(obj: Obj) -> bool:
    return (obj.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def _version(obj: Obj) -> Any:
    return obj["metadata"].get("resourceVersion")
