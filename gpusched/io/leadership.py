"""The lease over all terms of a process: who writes asks here, whichever elector runs now."""

from __future__ import annotations

from gpusched.io.elector import Elector


class Leadership:
    """The lease as it is now, over all terms of this process."""

    def __init__(self) -> None:
        self.elector: Elector | None = None

    @property
    def fence(self) -> str:
        """See ``io.lease.Lease``."""
        return self.elector.fence if self.elector else ""

    @property
    def leading(self) -> bool:
        """Whether we hold the lease as far as we know."""
        return self.elector is not None and self.elector.leading

    def may_act(self, now_mono: float, now_boot: float, needs_s: float) -> bool:
        """See ``io.lease.Lease``."""
        return self.elector is not None and self.elector.may_act(now_mono, now_boot, needs_s)

    def doubt(self) -> None:
        """See ``io.lease.Lease``."""
        if self.elector is not None:
            self.elector.doubt()
