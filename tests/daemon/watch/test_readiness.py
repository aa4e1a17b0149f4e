"""Readiness tells of a server that hangs, although its streams are open."""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace

from gpusched.app import App, AppOptions
from gpusched.base import limits
from gpusched.config.model import DEFAULT
from gpusched.lab.virtual_time.loop import run_virtual


def test_a_lease_that_cannot_be_read_for_long_makes_unready() -> None:
    """For a moment it is forgiven; longer than caches may be stale it is not; then it heals."""

    async def live(clock) -> list[tuple[bool, str]]:
        app = App(AppOptions(config=DEFAULT, clock=clock, rng=random.Random(1), inline=True))
        elector = SimpleNamespace(error="", leading=False)
        app.leadership.elector = elector
        seen = [app.readiness()]
        elector.error = "no answer within 2 s"
        seen.append(app.readiness())
        await asyncio.sleep(limits.CACHE_STALENESS_MAX_S + 1)
        seen.append(app.readiness())
        elector.error = ""
        seen.append(app.readiness())
        return seen

    assert run_virtual(live) == [
        (True, "standby"),
        (True, "standby"),
        (False, "the lease cannot be read: no answer within 2 s"),
        (True, "standby"),
    ]


def test_a_right_that_is_missing_is_named_and_waited_for(play, caplog):
    """Nodes may not be listed: the daemon stays, says which role has the right, and goes on."""

    async def scenario(w):
        await w.start(nodes=1)
        refused = {"/api/v1/nodes"}
        daemon = w.daemon(fault=lambda _method, path: "403" if path in refused else "")
        await w.clock.sleep(30)
        ready, why = daemon.app.readiness()
        assert not ready
        assert why == (
            "nodes have not been listed yet: could not list nodes: made by the test; ClusterRole "
            "gpusched (manifests/rbac.yaml) has this right: bind it to this user, or ask an "
            "administrator to"
        )
        assert any("ClusterRole gpusched" in each.message for each in caplog.records)
        refused.clear()
        w.gang("a", 1)
        await w.until(lambda: len(w.running()) == 1)

    play(scenario)
