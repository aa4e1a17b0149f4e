"""What the machine's outcomes mean to the ledger; the cache offers it."""

from __future__ import annotations

from typing import Protocol

from gpusched.api.meta.identity import UID
from gpusched.api.pod.pod import Pod


class CommitLedger(Protocol):
    """What the ledger is told; all in the loop, all at once."""

    def find_pod(self, uid: UID) -> Pod | None:
        """The pod as last seen."""

    def forget(self, uid: UID) -> None:
        """The assumption about this pod is void; nothing when there is none."""

    def confirm_binding(self, uid: UID, node: str, slots: int, plan: str) -> None:
        """The pod is bound, although the watch may not have shown it yet."""

    def placement_error(self, node: str, node_uid: UID) -> str:
        """Why a pod must not be bound to a node that was decided on; empty when it may."""
