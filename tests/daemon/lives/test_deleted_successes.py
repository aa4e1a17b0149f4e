"""Members that succeeded count when somebody has deleted them, as long as their Jobs tell of them."""

from __future__ import annotations

import pytest

JOBS = "jobs.batch"
GROUPS = "podgroups.scheduling.gpusched.io"
SURVIVES = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}
BY_ANNOTATION = {"gpusched.io/min-member": "4"}


def members(w, name):
    """The pods of a Job."""
    return [pod for pod in w.pods() if pod["metadata"]["name"].startswith(f"{name}-")]


def phases(w, name):
    """How many of them are in which phase."""
    found = [pod["status"].get("phase") for pod in members(w, name)]
    return {phase: found.count(phase) for phase in set(found)}


def succeed(w, name, count):
    """So many members are done."""
    for pod in members(w, name)[:count]:
        done = {"status": {"phase": "Succeeded"}}
        w.client.patch("pods", "default", pod["metadata"]["name"], done, subresource="status")


def tidy_up(w):
    """Somebody deletes what has succeeded."""
    for pod in w.pods():
        if pod["status"].get("phase") == "Succeeded":
            w.client.delete("pods", "default", pod["metadata"]["name"])


def work(w, name, *, group="", notes=()):
    """A Job of four members with a node each, of a PodGroup or with annotations of its own."""
    if group:
        w.group(group, minMember=4)
    body = w.job(name, 4, group=group, completionMode="Indexed", podFailurePolicy=SURVIVES)
    if notes:
        w.client.patch(JOBS, "default", name, {"metadata": {"annotations": dict(notes)}})
    return body


@pytest.mark.parametrize("by_group", [True, False], ids=["PodGroup", "annotation"])
def test_a_gang_runs_on_when_its_successes_are_deleted(play, by_group):
    """Given two of four that succeeded, when they are deleted, then nobody stops the other two."""

    async def scenario(w):
        await w.start(nodes=4)
        w.daemon()
        work(w, "a", **({"group": "a"} if by_group else {"notes": BY_ANNOTATION}))
        await w.until(lambda: phases(w, "a") == {"Running": 4})
        await w.clock.sleep(5)

        succeed(w, "a", 2)
        await w.clock.sleep(5)
        tidy_up(w)
        await w.clock.sleep(150)

        assert phases(w, "a") == {"Running": 2}
        if by_group:
            status = w.client.get(GROUPS, "default", "a")["status"]
            assert (status["phase"], status["running"], status["succeeded"]) == ("Running", 2, 2)

    play(scenario)


def test_a_gang_that_is_evicted_needs_only_the_others_again(play):
    """Given two deleted successes, when the rest is evicted, then two pods start again and it is Completed."""

    async def scenario(w):
        await w.start(nodes=4)
        w.daemon()
        work(w, "a", group="a")
        await w.until(lambda: phases(w, "a") == {"Running": 4})
        succeed(w, "a", 2)
        await w.clock.sleep(5)
        tidy_up(w)
        for node in w.names("nodes"):
            w.client.patch("nodes", None, node, {"spec": {"unschedulable": True}})
        for pod in members(w, "a"):
            w.client.delete("pods", "default", pod["metadata"]["name"], grace_s=0)
        await w.until(lambda: phases(w, "a") == {"Pending": 2})

        for node in w.names("nodes")[:2]:
            w.client.patch("nodes", None, node, {"spec": {"unschedulable": False}})
        await w.until(lambda: phases(w, "a") == {"Running": 2})

        succeed(w, "a", 2)
        await w.clock.sleep(5)
        tidy_up(w)
        await w.clock.sleep(30)
        assert w.client.get(GROUPS, "default", "a")["status"]["phase"] == "Completed"

    play(scenario)


def test_the_next_job_of_a_group_starts_as_a_whole(play):
    """Given a PodGroup whose first Job is complete, then of the next one none starts where two have room."""

    async def scenario(w):
        await w.start(nodes=4)
        w.daemon()
        w.group("a", minMember=4)
        w.job("first", 4, group="a", run_for="5s")
        await w.until(lambda: phases(w, "first") == {"Succeeded": 4})
        await w.clock.sleep(5)
        for number in range(2):
            w.pod(f"other-{number}")
        await w.until(lambda: phases(w, "other") == {"Running": 2})

        w.job("second", 4, group="a")
        await w.clock.sleep(30)
        assert phases(w, "second") == {"Pending": 4}
        assert w.condition("a")["message"].startswith("needs 4 pods")

        for number in range(2):
            w.client.delete("pods", "default", f"other-{number}")
        await w.until(lambda: phases(w, "second") == {"Running": 4})

    play(scenario)
