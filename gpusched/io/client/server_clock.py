"""Wall time as the API server keeps it: times in the API are read by that clock.

Ages are differences between times in the API and now. If now came from this machine's wall
clock, a jump of it would make running gangs a day older at once: those under ``maxRuntime`` would
be evicted, ``minRuntime`` would protect no pod, nominations and admissions would run out.
"""

from __future__ import annotations

from gpusched.base import limits
from gpusched.base.clock import Clock
from gpusched.io.client.responses import ApiResponse
from gpusched.io.observe.logs import Logger

_log = Logger(__name__)


class ServerClock:
    """A ``Clock`` whose wall time follows the API server's ``Date`` and never the machine's jumps.

    The machine's wall clock is read once, at the start. From then on time runs as its boot time
    does, and is set only when an answer shows that the server's differs by seconds.

    Args:
        machine: monotonic and boot time, sleep, and the first guess of the wall time.
    """

    def __init__(self, machine: Clock) -> None:
        self._machine = machine
        self._base = machine.now() - machine.boottime()
        self._heard_at = float("-inf")
        self._told_at = float("-inf")

    def now(self) -> float:
        """Seconds since the Unix epoch, by the server's clock."""
        return self._base + self._machine.boottime()

    def monotonic(self) -> float:
        """Seconds of the machine's monotonic clock."""
        return self._machine.monotonic()

    def boottime(self) -> float:
        """Seconds since the machine booted, suspended time included."""
        return self._machine.boottime()

    async def sleep(self, seconds: float) -> None:
        """Sleep so many seconds of the machine's time."""
        await self._machine.sleep(seconds)

    def observe_answer(self, answer: ApiResponse, *, asked_at: float) -> None:
        """Compare with the time in an answer, once a second at most.

        Args:
            answer: of the API server.
            asked_at: boot time when it was asked; it said the time between then and now.
        """
        heard_at = self._machine.boottime()
        if heard_at - self._heard_at < 1.0:
            return
        server = answer.server_time()
        if server is None:
            return
        self._heard_at = heard_at
        slack = limits.CLOCK_SLACK_S
        earliest, latest = self._base + asked_at - slack, self._base + heard_at + slack
        if earliest <= server <= latest:
            return
        base = server - asked_at
        if heard_at - self._told_at >= limits.CLOCK_LOG_PERIOD_S:
            self._told_at = heard_at
            _log.warning(
                "time here differs from the API server's, which counts",
                ahead_s=round(self._base - base),
            )
        self._base = base
