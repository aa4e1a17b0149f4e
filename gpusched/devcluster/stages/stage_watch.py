"""Stage objects of the API, loaded into the engine as they are written, changed and deleted.

Each Stage carries the condition ``Loaded``: True once the engine plays it, else False with one
sentence that says why it is not played, which is also a Warning event of the Stage.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from gpusched.base.clock import Clock
from gpusched.devcluster.apimachinery.status import StatusError
from gpusched.devcluster.apimachinery.times import rfc3339
from gpusched.devcluster.apiserver.client.local_client import LocalClient, Obj
from gpusched.devcluster.stages import load
from gpusched.devcluster.stages.engine import StageEngine
from gpusched.devcluster.stages.model import StageError

STAGES: Final = "stages.kwok.x-k8s.io"
_DEFINITIONS: Final = "customresourcedefinitions.apiextensions.k8s.io"
LOADED: Final = "Loaded"


class StageWatch:
    """Loads the Stage objects of a cluster into its engine.

    Args:
        client: the cluster, which must serve Stages.
        engine: plays what is loaded.
        clock: time of conditions.
    """

    def __init__(self, client: LocalClient, engine: StageEngine, clock: Clock) -> None:
        self._client = client
        self._engine = engine
        self._clock = clock
        self._seen: dict[str, tuple[str, int]] = {}
        self._refused: dict[str, None] = {}

    async def run(self) -> None:
        """Load, follow and play until cancelled."""
        for obj in self._client.list(STAGES):
            self._load(obj)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._engine.run())
            group.create_task(self._follow())
            group.create_task(self._follow_definitions())

    async def _follow(self) -> None:
        async for item in self._client.watch(STAGES):
            name: str = item.object["metadata"]["name"]
            if item.type == "DELETED":
                self._seen.pop(name, None)
                self._refused.pop(name, None)
                self._engine.remove(name)
            else:
                self._load(item.object)

    async def _follow_definitions(self) -> None:
        """Load refused Stages again when kinds are added: they may refer to one."""
        async for _ in self._client.watch(_DEFINITIONS):
            for name in list(self._refused):
                obj = self._client.get(STAGES, None, name)
                if obj is not None:
                    self._seen.pop(name, None)
                    self._load(obj)

    def _load(self, obj: Obj) -> None:
        metadata = obj["metadata"]
        name: str = metadata["name"]
        identity = (metadata["uid"], metadata["generation"])
        if self._seen.get(name) == identity:
            return
        self._seen[name] = identity
        try:
            stage = load.read_stage(obj)
            if stage is not None:
                self._engine.add_stage(stage)
        except StageError as fault:
            self._engine.remove(name)
            self._refused[name] = None
            self._write_condition(obj, "False", "Refused", str(fault))
            return
        self._refused.pop(name, None)
        if stage is None:
            self._engine.remove(name)
            self._write_condition(
                obj, "True", "MatchesNothing", "without spec.selector no object matches"
            )
        else:
            self._write_condition(obj, "True", "Played", "")

    def _write_condition(self, obj: Obj, value: str, reason: str, message: str) -> None:
        name = obj["metadata"]["name"]
        have = (obj.get("status") or {}).get("conditions") or []
        before: Obj = next((c for c in have if c["type"] == LOADED), {})
        facts = {"status": value, "reason": reason, "message": message}
        if all(before.get(key) == fact for key, fact in facts.items()):
            return
        since = before.get("lastTransitionTime") if before.get("status") == value else None
        condition: dict[str, Any] = {
            "type": LOADED,
            **facts,
            "observedGeneration": obj["metadata"]["generation"],
            "lastTransitionTime": since or rfc3339(self._clock.now()),
        }
        others = [c for c in have if c["type"] != LOADED]
        status = {"conditions": [*others, condition]}
        try:
            self._client.patch(STAGES, None, name, {"status": status}, subresource="status")
        except StatusError as refusal:
            if refusal.code != 404:  # deleted meanwhile
                raise
            return
        if value == "False":
            self._client.event(obj, "StageRefused", message, "Warning", component="kwok")
