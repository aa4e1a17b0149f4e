"""What we wrote ourselves begins no session, and a round that goes on comes to its end."""

from __future__ import annotations

QUEUE = "gpusched.io/queue"


def queue_object(name):
    """A queue without limits."""
    kind = {"apiVersion": "scheduling.gpusched.io/v1alpha1", "kind": "Queue"}
    return {**kind, "metadata": {"name": name}, "spec": {"parent": "root"}}


def test_what_a_pod_is_told_begins_no_session(play):
    """Given pods that find no place, when the watch shows what they were told, then it is quiet."""

    async def scenario(w):
        await w.start(nodes=1)
        daemon = w.daemon()
        for number in range(10):
            w.pod(f"large-{number}", gpus=16 + number)
        await w.until(lambda: all(w.told(f"large-{n}") for n in range(10)))
        await w.clock.sleep(1)
        before = daemon.app.cycle.sessions
        for number in range(10):
            pod = w.told(f"large-{number}")
            told = [{**pod, "message": f"told otherwise {number}"}]
            w.client.patch(
                "pods", "default", f"large-{number}", {"status": {"conditions": told}},
                patch_type="strategic", subresource="status",
            )  # fmt: skip
            await w.clock.sleep(0.3)
        # Only the session that comes anyway, and the one in which it is told again.
        assert daemon.app.cycle.sessions - before <= 2

    play(scenario)


def test_a_round_goes_on_until_everybody_was_looked_at(play, tmp_path):
    """Given more gangs than a session looks at, then all are told why they wait, and then it rests."""
    file = tmp_path / "gpusched.yaml"
    file.write_text("limits: {sessionWork: 3000}\n")

    async def scenario(w):
        await w.start(nodes=1)
        daemon = w.daemon(config_file=str(file))
        for number in range(40):
            w.pod(f"large-{number:02d}", gpus=16 + number)
        w.pod("zz-fits", gpus=1, annotations={"gpusched.io/run-for": "10h"})
        await w.until(lambda: len(w.bound()) == 1, within=10)
        await w.until(lambda: all(w.told(f"large-{n:02d}") for n in range(40)), within=20)
        await w.clock.sleep(30)
        before = daemon.app.cycle.sessions
        await w.clock.sleep(60)
        # A round that time begins goes on once a second, not at once.
        assert daemon.app.cycle.sessions - before <= 60

    play(scenario)


def test_rounds_through_lines_of_several_lengths_come_to_an_end(play, tmp_path):
    """Given two queues that each have more than a session looks at, when all were looked at, then it rests."""
    file = tmp_path / "gpusched.yaml"
    file.write_text("limits: {sessionWork: 3000}\n")

    async def scenario(w):
        await w.start(nodes=1)
        daemon = w.daemon(config_file=str(file))
        for queue, count in (("short", 17), ("long", 40)):
            w.client.create("queues.scheduling.gpusched.io", queue_object(queue))
            for number in range(count):
                w.pod(f"{queue}-{number:02d}", gpus=16 + number, labels={QUEUE: queue})
        names = [f"short-{n:02d}" for n in range(17)] + [f"long-{n:02d}" for n in range(40)]
        await w.until(lambda: all(w.told(name) for name in names), within=30)
        await w.clock.sleep(30)
        before = daemon.app.cycle.sessions
        await w.clock.sleep(60)
        assert daemon.app.cycle.sessions - before <= 60
        # And when something changes everybody is looked at again, the last in line as well.
        w.pod("zz-fits", gpus=1, labels={QUEUE: "long"}, annotations={"gpusched.io/run-for": "10h"})
        await w.until(lambda: len(w.bound()) == 1, within=10)

    play(scenario)


def test_a_heartbeat_of_a_node_begins_no_session(play):
    """Given a node whose kubelet says each second that it lives, then sessions are those that come anyway."""

    async def scenario(w):
        await w.start(nodes=2)
        daemon = w.daemon()
        w.pod("large", gpus=16)
        await w.until(lambda: w.told("large"))
        await w.clock.sleep(30)
        before = daemon.app.cycle.sessions
        name = w.names("nodes")[0]
        for number in range(20):
            beat = f"2027-01-01T00:00:{number:02d}Z"
            told = [{"type": "MemoryPressure", "status": "False", "lastHeartbeatTime": beat}]
            w.client.patch(
                "nodes", "", name, {"status": {"conditions": told}},
                patch_type="strategic", subresource="status",
            )  # fmt: skip
            await w.clock.sleep(1)
        assert daemon.app.cycle.sessions - before <= 3
        # And what changes with the next one is seen.
        w.client.patch("nodes", "", name, {"metadata": {"labels": {"seen": "yes"}}})
        await w.clock.sleep(0.5)
        assert daemon.app.cycle.sessions - before >= 3

    play(scenario)


def test_the_end_of_a_job_is_followed_by_four_sessions_at_most(play):
    """Given Jobs that wait, when one ends, then one starts the next, one binds its pods, and the others tell of both."""

    async def scenario(w):
        await w.start(nodes=1)
        daemon = w.daemon()
        for name in ("first", "second", "third"):
            w.job(name, 2, gpus=4, queue="default", suspend=True, run_for="60s")
        await w.until(lambda: len(w.bound()) == 2)
        await w.clock.sleep(45)
        seen = []
        daemon.app.cycle.shown.append(lambda _snapshot, _plan, decision: seen.append(decision))
        await w.until(lambda: len(w.bound()) == 4, within=30)
        await w.clock.sleep(5)
        acting = [number for number, each in enumerate(seen) if each.plan.has_effects]
        starts, binds = acting
        assert seen[binds].ended_early
        assert len(seen[starts:]) <= 4

    play(scenario)
