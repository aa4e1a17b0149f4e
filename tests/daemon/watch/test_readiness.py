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


def test_what_a_new_leader_listed_after_it_led_is_not_listed_again(play):
    """The Lease is free: given a daemon that starts, each kind is listed once before it decides."""

    async def scenario(w):
        await w.start(nodes=1)
        asked: list[str] = []

        def note(method: str, path: str) -> str:
            asked.append(f"{method} {path}")
            return ""

        w.daemon(fault=note)
        w.gang("a", 1)
        await w.until(lambda: len(w.running()) == 1)
        lease = next(number for number, each in enumerate(asked) if each.startswith("POST"))
        nodes = [number for number, each in enumerate(asked) if each == "GET /api/v1/nodes"]
        assert lease < nodes[0]
        assert (asked.count("GET /api/v1/pods"), len(nodes)) == (1, 1)

    play(scenario)


def test_a_standby_lists_beside_a_leader_that_stays(play):
    """The Lease is another's: given a second daemon, it knows everything although it cannot lead."""

    async def scenario(w):
        await w.start(nodes=1)
        w.daemon()
        w.gang("a", 1)
        await w.until(lambda: len(w.running()) == 1)
        second = w.daemon()
        await w.clock.sleep(3)
        assert second.app.readiness() == (True, "standby")

    play(scenario)


def test_a_first_list_of_several_pages_is_taken_in_whole(play):
    """Given 1,100 pods, each page is asked for once, one of them before the page before is read."""

    async def scenario(w):
        await w.start(nodes=1)
        w.gang("large", 1_100)
        asked: list[str] = []

        def note(_method: str, path: str) -> str:
            asked.append(path)
            return ""

        daemon = w.daemon(fault=note)
        await w.clock.sleep(5)
        assert daemon.app.readiness() == (True, "leader")
        assert len(daemon.app.cache.by_uid) == 1_100
        assert asked.count("/api/v1/pods") == 3

    play(scenario)
