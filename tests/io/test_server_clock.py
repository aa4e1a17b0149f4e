"""Wall time follows the API server, whatever the machine's own clock does."""

from __future__ import annotations

from email.utils import formatdate

import attrs

from gpusched.base import limits
from gpusched.io.client.responses import ApiResponse
from gpusched.io.client.server_clock import ServerClock

DAY = 86_400.0


@attrs.define
class Machine:
    """A machine whose wall clock somebody sets."""

    wall: float = 1_000_000.0
    boot: float = 50.0

    def now(self) -> float:
        """Wall time."""
        return self.wall

    def monotonic(self) -> float:
        """Since boot."""
        return self.boot

    def boottime(self) -> float:
        """Since boot."""
        return self.boot

    async def sleep(self, seconds: float) -> None:
        """Time passes."""
        self.pass_by(seconds)

    def pass_by(self, seconds: float) -> None:
        """Both clocks go on."""
        self.wall += seconds
        self.boot += seconds


def answer(server: float | None) -> ApiResponse:
    return ApiResponse(
        200, {} if server is None else {"Date": formatdate(server, usegmt=True)}, b""
    )


async def test_the_machines_clock_is_set_and_time_goes_on():
    """A day forward, two days back: time runs as before."""
    machine = Machine()
    clock = ServerClock(machine)
    machine.wall += DAY
    assert clock.now() == 1_000_000.0
    await clock.sleep(10)
    machine.wall -= 2 * DAY
    assert clock.now() == 1_000_010.0
    assert (clock.monotonic(), clock.boottime()) == (60.0, 60.0)


def test_a_machine_that_is_wrong_from_the_start_is_put_right():
    """The first answer shows it; ages are right from then on."""
    machine = Machine(wall=1_000_000.0 + DAY)
    clock = ServerClock(machine)
    clock.observe_answer(answer(1_000_000.0), asked_at=50.0)
    assert clock.now() == 1_000_000.0
    machine.pass_by(3600)
    clock.observe_answer(answer(1_003_600.0), asked_at=3650.0)
    assert clock.now() == 1_003_600.0


def test_seconds_of_difference_and_slow_answers_change_nothing():
    """Within the slack our own time stays; an answer may be as old as its request."""
    machine = Machine()
    clock = ServerClock(machine)
    machine.pass_by(40)
    clock.observe_answer(answer(1_000_000.0 - limits.CLOCK_SLACK_S), asked_at=50.0)
    assert clock.now() == 1_000_040.0
    machine.pass_by(2)
    clock.observe_answer(answer(None), asked_at=90.0)
    assert clock.now() == 1_000_042.0


def test_it_listens_once_a_second():
    """Thousands of answers a second cost nothing."""
    machine = Machine()
    clock = ServerClock(machine)
    clock.observe_answer(answer(1_000_000.0), asked_at=50.0)
    machine.pass_by(0.5)
    clock.observe_answer(answer(1_000_000.0 + DAY), asked_at=50.5)
    assert clock.now() == 1_000_000.5
    machine.pass_by(0.5)
    clock.observe_answer(answer(1_000_001.0 + DAY), asked_at=51.0)
    assert clock.now() == 1_000_001.0 + DAY
