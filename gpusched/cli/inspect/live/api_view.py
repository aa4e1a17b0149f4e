"""Looks at the API again and again, where no daemon serves a view."""

from __future__ import annotations

from typing import Final

from gpusched import __version__
from gpusched.base.clock import Clock
from gpusched.config.model import Config
from gpusched.io.client.api_client import ApiClient
from gpusched.view.access import ViewAccess
from gpusched.view.frames import (
    GangPut,
    NodePut,
    PartsGone,
    QueuePut,
    ViewFrame,
    ViewHead,
    ViewMoment,
)

_LOOK_TIMEOUT_S: Final = 15.0


class ApiView:
    """Looks at the API; ``changes`` tells what is another than the last time.

    Args:
        api: of the cluster.
        config: which schedulers' pods are ours.
        clock: time.
        namespace: that is looked at where not all may be.

    Attributes:
        access: what was found to be allowed.
    """

    def __init__(self, api: ApiClient, config: Config, clock: Clock, namespace: str) -> None:
        self._namespace = namespace
        self._api = api
        self._names = config.scheduler_names
        self._clock = clock
        self._shown: dict[str, ViewFrame] = {}
        self._head: ViewHead | None = None
        self.access = ViewAccess(namespaces=frozenset(), nodes=False, queues=False)

    async def changes(self) -> list[ViewFrame]:
        """Frames of one look.

        Raises:
            ClusterUnreachable: no answer.
            ApiError: the server refused to list pods.
        """
        # Half a second's modules, which who asks a daemon does not need.
        from gpusched.cli.inspect.listing.api_objects import read_objects  # noqa: PLC0415
        from gpusched.cli.inspect.listing.view_of_api import all_gpu_totals, view_frames  # noqa: PLC0415

        now = self._clock.now()
        scope = await self._scope()
        found = await read_objects(self._api, scope, schedulers=self._names, now=now, nodes=True)
        self.access = ViewAccess(
            namespaces=None if not scope else frozenset({scope.rpartition("/")[2]}),
            nodes="nodes" not in found.refused,
            queues="queues" not in found.refused,
        )
        frames: dict[str, ViewFrame] = {_key(frame): frame for frame in view_frames(found)}
        changed = [frame for key, frame in frames.items() if self._shown.get(key) != frame]
        gone = sorted(self._shown.keys() - frames.keys())
        self._shown = frames
        if gone:
            changed.append(
                PartsGone(
                    gangs=tuple(key[2:] for key in gone if key.startswith("g ")),
                    nodes=tuple(key[2:] for key in gone if key.startswith("n ")),
                    queues=tuple(key[2:] for key in gone if key.startswith("q ")),
                )
            )
        sees_all = self.access.namespaces is None and self.access.nodes
        head = ViewHead(
            version=__version__,
            daemon="",
            leading=True,
            scheduler_names=tuple(self._names),
            gpu_totals=all_gpu_totals(found.snapshot) if sees_all else None,
        )
        if self._head != head:
            self._head = head
            changed.insert(0, head)
        return [*changed, ViewMoment(now=now)]

    async def _scope(self) -> str:
        """All namespaces, else the one of the context, where pods may be listed."""
        answer = await self._api.request(
            "GET", "/api/v1/pods", query={"limit": "1"}, timeout_s=_LOOK_TIMEOUT_S
        )
        if answer.status in {401, 403}:
            return f"/namespaces/{self._namespace}"
        return ""


def _key(frame: GangPut | NodePut | QueuePut) -> str:
    if isinstance(frame, GangPut):
        return f"g {frame.view.key}"
    if isinstance(frame, NodePut):
        return f"n {frame.view.metadata.name}"
    return f"q {frame.view.metadata.name}"
