"""What every writer asks of the lease; the ``Elector`` offers it."""

from __future__ import annotations

from typing import Protocol


class Lease(Protocol):
    """The right to write."""

    @property
    def fence(self) -> str:
        """``holder/transitions`` of our leadership; empty while we do not lead."""

    def may_act(self, now_mono: float, now_boot: float, needs_s: float) -> bool:
        """Whether a write that may last ``needs_s`` seconds can begin at this moment."""

    def doubt(self) -> None:
        """A write was refused as if we did not lead."""
