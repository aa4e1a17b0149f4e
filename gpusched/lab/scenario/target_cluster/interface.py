"""What a scenario is played on: the embedded cluster in virtual time, or any API server.

Both answer the same calls, so that the player, the recorder and the judges know neither.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

from gpusched.base.classes import frozen
from gpusched.base.clock import Clock
from gpusched.base.errors import GpuschedError

Obj: TypeAlias = dict[str, Any]


class WriteRefused(GpuschedError):
    """The API server did not take a write; the sentence is the server's, with the object's name."""


@frozen
class ObjectChange:
    """One object came, changed or went.

    Attributes:
        at: seconds since the run began.
        kind: ``Pod``, ``Node``, ``Job`` ...
        obj: as it is now; of one that went, as it was last.
        gone: whether it went.
    """

    at: float
    kind: str
    obj: Obj
    gone: bool


class TargetCluster(Protocol):
    """A cluster under a scenario. Objects handed out must not be changed.

    Every call may raise ``ClusterUnreachable``, every write ``Refused``.
    """

    clock: Clock
    embedded: bool

    def begin(self) -> None:
        """The run begins now: changes are told in seconds since this moment."""

    def check(self) -> None:
        """Raises ``ClusterUnreachable`` when the cluster has been silent for too long."""

    async def apply(self, obj: Obj) -> Obj:
        """Server-side apply, forced; creates where ``generateName`` stands instead of a name."""

    async def patch(self, kind: str, namespace: str, name: str, body: Obj, *, status: bool) -> None:
        """Apply a merge patch to an object or its status."""

    async def delete(
        self, kind: str, namespace: str, name: str, *, grace_s: int | None = None
    ) -> None:
        """Delete in the background; what is not there is deleted."""

    async def evict(self, namespace: str, name: str) -> bool:
        """Evict a pod; False when a disruption budget refuses for now."""

    def list(self, kind: str) -> Sequence[Obj]:
        """Objects of a kind that is watched, in the order of their names, as last seen."""

    def on_change(self, listener: Callable[[ObjectChange], None]) -> None:
        """Tell of every change from now on, of what is there now first."""
