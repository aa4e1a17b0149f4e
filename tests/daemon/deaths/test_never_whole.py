"""A gang that never was whole is taken back, though the member that it lacks was made anew."""

from __future__ import annotations

import pytest

from gpusched.base import limits


def without_places(w):
    """Names of the pods that have no node yet."""
    return [p["metadata"]["name"] for p in w.pods() if not p["spec"].get("nodeName")]


async def bound_in_part(w, grouped):
    """A gang of two, of which one is bound as its daemon dies; the other's node is gone."""
    await w.start(nodes=2)
    if grouped:
        w.gang("a", 2)
    else:
        w.job("a", 2)
    first = w.daemon(kill_at=2, kill_on="/binding")
    await w.until(lambda: first.dead)
    (bound,) = w.bound()
    (free,) = {"node-0", "node-1"} - {bound["spec"]["nodeName"]}
    w.client.delete("nodes", None, free)
    return bound


@pytest.mark.parametrize("grouped", [True, False], ids=["pod group", "job"])
def test_the_missing_member_is_made_anew_under_the_same_daemon(play, grouped):
    """What the daemon saw of the old member counts."""

    async def scenario(w):
        bound = await bound_in_part(w, grouped)
        second = w.daemon()
        await w.until(lambda: second.leading)
        await w.clock.sleep(10)
        (left,) = without_places(w)
        w.client.delete("pods", "default", left)
        await w.until(lambda: without_places(w) not in ([], [left]))
        uid = bound["metadata"]["uid"]
        await w.until(
            lambda: uid not in [p["metadata"]["uid"] for p in w.bound()],
            within=limits.GANG_RECOVERY_MAX_S + 30,
        )

    play(scenario)


def test_the_missing_member_is_made_anew_while_no_daemon_runs(play):
    """The PodGroup's status says how it stood before."""

    async def scenario(w):
        bound = await bound_in_part(w, grouped=True)
        second = w.daemon()
        await w.until(lambda: second.leading)
        await w.until(lambda: (w.groups()[0].get("status") or {}).get("scheduled") == 1)
        second.kill()
        (left,) = without_places(w)
        w.client.delete("pods", "default", left)
        await w.until(lambda: without_places(w) not in ([], [left]))
        w.daemon()
        uid = bound["metadata"]["uid"]
        await w.until(
            lambda: uid not in [p["metadata"]["uid"] for p in w.bound()],
            within=limits.GANG_RECOVERY_MAX_S + 60,
        )

    play(scenario)


def test_a_gang_that_ran_is_not_taken_for_one_that_never_was_whole(play):
    """It lost a member that was made anew, and its room is gone: it has the time of gangs that ran."""

    async def scenario(w):
        await w.start(nodes=2)
        w.gang("a", 2)
        first = w.daemon()
        await w.until(lambda: w.groups()[0].get("status", {}).get("phase") == "Running")
        await w.clock.sleep(limits.GANG_RECOVERY_MAX_S)
        first.kill()
        lost, kept = w.bound("a")
        w.client.delete("nodes", None, lost["spec"]["nodeName"])
        w.client.delete("pods", "default", lost["metadata"]["name"])
        second = w.daemon()
        await w.until(lambda: second.leading)
        await w.clock.sleep(40)
        assert kept["metadata"]["uid"] in [p["metadata"]["uid"] for p in w.bound("a")]
        await w.until(lambda: not w.bound("a"))
        assert "StaleGang" in [each["reason"] for each in w.client.list("events")]

    play(scenario)
