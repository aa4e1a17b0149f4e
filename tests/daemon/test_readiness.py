"""Readiness tells of a server that hangs, although its streams are open."""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace

from gpusched import limits
from gpusched.app import App, AppOptions
from gpusched.config.model import DEFAULT
from gpusched.simulate.loop import run_virtual


def test_a_lease_that_cannot_be_read_for_long_makes_unready() -> None:
    """For a moment it is forgiven; longer than caches may be stale it is not; then it heals."""

    async def live(clock) -> list[tuple[bool, str]]:
        app = App(AppOptions(config=DEFAULT, clock=clock, rng=random.Random(1), inline=True))
        elector = SimpleNamespace(trouble="", leading=False)
        app.leadership.elector = elector
        seen = [app.readiness()]
        elector.trouble = "no answer within 2 s"
        seen.append(app.readiness())
        await asyncio.sleep(limits.STALENESS_MAX_S + 1)
        seen.append(app.readiness())
        elector.trouble = ""
        seen.append(app.readiness())
        return seen

    assert run_virtual(live) == [
        (True, "standby"),
        (True, "standby"),
        (False, "the lease cannot be read: no answer within 2 s"),
        (True, "standby"),
    ]
