"""Machines that sleep, replicas that share a name, nodes that are made again: whole daemons."""

from __future__ import annotations

from gpusched.base.clock import EPOCH, LoopClock


class SleepyClock(LoopClock):
    """Of a machine that was suspended: only its boot-time clock counts that."""

    def __init__(self):
        super().__init__(EPOCH)
        self.slept_s = 0.0

    def boottime(self):
        """Seconds since the boot, those asleep included."""
        return super().boottime() + self.slept_s


def fences(w, group):
    """Under which leaderships the pods of a gang were bound."""
    return {pod["metadata"]["annotations"]["gpusched.io/fence"] for pod in w.bound(group)}


def test_a_leader_whose_machine_slept_binds_nothing_under_its_old_lease(play):
    """A minute asleep is not seen by timers: the lease is over, and is won again first."""

    async def scenario(w):
        w.check_journal = False
        await w.start(nodes=2)
        clock = SleepyClock()
        daemon = w.daemon(clock=clock)
        await w.until(lambda: daemon.leading)
        w.gang("a", 1)
        await w.until(lambda: len(w.running("a")) == 1)
        before = daemon.app.leadership.fence
        assert fences(w, "a") == {before}
        clock.slept_s += 60.0
        w.gang("b", 1)
        await w.until(lambda: len(w.running("b")) == 1)
        assert before not in fences(w, "b")
        assert not daemon.task.done()

    play(scenario)


def test_two_replicas_with_one_identity(play):
    """A copied Deployment: each process adds a random part, so one leads and one stands by."""

    async def scenario(w):
        await w.start(nodes=3)
        both = [w.daemon(identity="same"), w.daemon(identity="same")]
        w.gang("a", 2)
        await w.until(lambda: w.condition("a").get("status") == "True")
        assert sorted(each.leading for each in both) == [False, True]
        assert [each.writes for each in both if not each.leading] == [0]
        (leader,) = [each for each in both if each.leading]
        await w.clock.sleep(5)
        holders = {each.app.leadership.elector.holder for each in both}
        assert len(holders) == 1
        leader.kill()
        w.gang("b", 1)
        await w.until(lambda: len(w.running("b")) == 1)
        assert len(fences(w, "a") | fences(w, "b")) == 2
        assert not any(each.task.done() for each in both if each is not leader)

    play(scenario)


def replace(w, name, gpus):
    """The node is removed and added again, with another number of GPUs."""
    w.client.delete("nodes", None, name)
    w.node(name, gpus=gpus)


def test_a_grant_on_a_node_that_was_made_again_is_dead(play):
    """Between decision and binding the node is replaced by one with fewer GPUs."""

    async def scenario(w):
        await w.start(nodes=1)

        def slow(method, path):
            if method == "GET" and path.endswith("/podgroups/a"):
                replace(w, "node-0", 4)
                daemon.fault = lambda _method, _path: ""
                return "slow"
            return ""

        daemon = w.daemon(fault=slow)
        await w.until(lambda: daemon.leading)
        w.gang("a", 1)
        await w.clock.sleep(30)
        assert daemon.fault is not slow
        assert w.bound() == []
        w.gang("b", 1, gpus=4)
        await w.until(lambda: len(w.running("b")) == 1)
        w.node("node-1")
        await w.until(lambda: len(w.running("a")) == 1)

    play(scenario)


def test_slots_of_a_node_that_was_made_again_are_new(play):
    """Its pods are gone with it; the slots are given once, to who comes next."""

    async def scenario(w):
        await w.start(nodes=1)
        daemon = w.daemon()
        w.pod("old")
        await w.until(lambda: len(w.running()) == 1)
        replace(w, "node-0", 8)
        w.pod("new")
        await w.clock.sleep(5)
        assert [each["metadata"]["name"] for each in w.bound()] == ["old"]
        w.client.delete("pods", "default", "old")
        await w.until(lambda: [p["metadata"]["name"] for p in w.running()] == ["new"])
        assert not daemon.task.done()

    play(scenario)
