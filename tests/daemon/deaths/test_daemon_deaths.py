"""Whatever moment the daemon dies at: in the end no gang in part, no slot and no write twice."""

from __future__ import annotations

import pytest

from tests.populations import one_of

WRITES = 14
"""More than the scenario makes: the last ones show that nothing is left to die at."""
DEATHS = [(at, at % 2 == way) for at in range(1, WRITES + 1) for way in (0, 1)]
"""Each write, and whether it is done when the daemon dies; every second of these alternates."""


@pytest.mark.parametrize(("kill_at", "answered"), one_of(3, DEATHS))
def test_death_at_any_write(play, kill_at, answered):
    """The successor completes what was begun: every pod is bound once, and both gangs run."""

    async def scenario(w):
        await w.start(nodes=4)
        w.check_journal = False  # status may be said again by who does not know it was said
        first = w.daemon(kill_at=kill_at, answered=answered)
        w.gang("a", 2)
        w.gang("b", 3, gpus=4)
        w.gang("never", 9)
        await w.until(lambda: first.dead or len(w.running()) >= 5)
        await w.clock.sleep(2)
        if first.task.done() is False:
            first.kill()
        second = w.daemon()
        await w.until(lambda: second.leading)
        await w.until(lambda: w.condition("a").get("status") == "True")
        await w.until(lambda: w.condition("b").get("status") == "True")
        await w.until(lambda: w.condition("never").get("status") == "False")
        assert set(second.bindings) <= {201}  # 409: bound already
        await w.until(lambda: len(w.running()) == 5)

    play(scenario)


def test_death_with_a_gang_that_cannot_be_completed(play):
    """Bound in part by one that died, and its room is gone: what was bound is taken back."""

    async def scenario(w):
        await w.start(nodes=2)
        w.gang("a", 2)
        first = w.daemon(kill_at=2, kill_on="/binding")
        await w.until(lambda: first.dead)
        (bound,) = w.bound("a")
        used = bound["spec"]["nodeName"]
        (free,) = {"node-0", "node-1"} - {used}
        w.client.delete("nodes", None, free)
        second = w.daemon()
        await w.until(lambda: second.leading)
        await w.until(
            lambda: all(p["metadata"]["uid"] != bound["metadata"]["uid"] for p in w.bound("a")),
            within=200,
        )
        w.node("late")
        await w.until(lambda: len(w.running("a")) == 2, within=200)

    play(scenario)


def test_two_daemons_one_leads(play):
    """The other stands by, and takes over when the first is gone without a word."""

    async def scenario(w):
        await w.start(nodes=3)
        first = w.daemon()
        await w.until(lambda: first.leading)
        second = w.daemon()
        w.gang("a", 1)
        await w.until(lambda: len(w.running("a")) == 1)
        assert second.writes == 0
        assert not second.leading
        first.kill()
        w.gang("b", 1)
        await w.until(lambda: len(w.running("b")) == 1)
        assert second.leading
        (pod,) = w.pods("b")
        assert pod["metadata"]["annotations"]["gpusched.io/fence"].startswith("d-1")

    play(scenario)


def test_two_daemons_start_at_once(play):
    """Only one of them ever writes."""

    async def scenario(w):
        await w.start(nodes=2)
        both = [w.daemon(), w.daemon()]
        w.gang("a", 2)
        await w.until(lambda: w.condition("a").get("status") == "True")
        assert sorted(daemon.leading for daemon in both) == [False, True]
        assert [d.writes for d in both if not d.leading] == [0]

    play(scenario)


def test_a_leader_that_loses_its_lease_stops_writing(play):
    """Somebody else holds the lease: the old leader stands by and does not fight."""

    async def scenario(w):
        await w.start(nodes=2)
        first = w.daemon()
        await w.until(lambda: first.leading)
        lease = w.client.list("leases.coordination.k8s.io", "gpusched-system")[0]
        spec = {**lease["spec"], "holderIdentity": "other", "leaseTransitions": 99}
        w.client.update("leases.coordination.k8s.io", {**lease, "spec": spec})
        await w.until(lambda: not first.leading)
        w.gang("a", 1)
        await w.clock.sleep(5)
        assert w.bound() == []
        await w.until(lambda: len(w.running("a")) == 1)  # the other never renews

    play(scenario)
