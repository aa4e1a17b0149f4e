"""Whatever happens to the pods of a Job, its counts stay true and it comes to an end."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gpusched.devcluster.controllers import pod_state
from gpusched.devcluster.controllers.jobs import pods
from gpusched.devcluster.controllers.jobs.reconcile import finished_condition

from .test_job_reconcile import World

SPECS = st.fixed_dictionaries(
    {
        "completionMode": st.sampled_from(["Indexed", "NonIndexed"]),
        "parallelism": st.integers(1, 4),
        "completions": st.integers(1, 5),
        "backoffLimit": st.integers(0, 6),
        "backoffLimitPerIndex": st.one_of(st.none(), st.integers(0, 2)),
        "podReplacementPolicy": st.sampled_from(["TerminatingOrFailed", "Failed"]),
    }
)


def disturb(world: World, rng: random.Random, true: dict[str, int]) -> None:
    """One thing happens: a pod runs, ends or is deleted, or the Job is changed."""
    alive = [n for n, p in world.pods.items() if pod_state.is_active(p)]
    match rng.choice(["run", "succeed", "fail", "delete", "suspend", "resize", "vanish"]):
        case "run" if alive:
            pod = world.pods[rng.choice(alive)]
            pod["spec"]["nodeName"] = "node"
            pod["status"] = {"phase": "Running"}
        case "succeed" if alive:
            world.end("Succeeded", rng.choice(alive))
        case "fail" if alive:
            world.end("Failed", rng.choice(alive))
            true["failed"] += 1
        case "delete" if alive:
            world.delete(rng.choice(alive))
        case "suspend":
            world.job["spec"]["suspend"] = not world.job["spec"]["suspend"]
        case "resize":
            world.job["spec"]["parallelism"] = rng.randint(0, 4)
        case _:
            stop_deleted(world)


def stop_deleted(world: World) -> None:
    """What runs on nodes obeys: deleted pods fail, uncounted-for ones are gone."""
    for name, pod in list(world.pods.items()):
        if pod_state.is_deleting(pod):
            if pods.is_tracked(pod):
                if not pod_state.is_terminal(pod):
                    pod["status"] = {"phase": "Failed"}
            else:
                del world.pods[name]


def check(world: World, true: dict[str, int]) -> None:
    """What must hold after every turn."""
    status: dict[str, Any] = world.job["status"]
    alive = [p for p in world.pods.values() if pod_state.is_active(p)]
    assert status.get("active", 0) == len(alive)
    if finished_condition(world.job) is None:
        assert len(alive) <= world.job["spec"]["parallelism"]
    if world.job["spec"]["completionMode"] == "Indexed":
        indexes = [pods.completion_index(p) for p in alive]
        assert len(set(indexes)) == len(indexes)
        done = pods.read_indexes(status.get("completedIndexes", ""), 10)
        assert len(done) == status.get("succeeded", 0)
        assert not done & set(indexes)
    assert status.get("failed", 0) >= 0
    assert true["failed"] <= status.get("failed", 0) + sum(
        pod_state.pod_phase(p) == "Failed" and pods.is_tracked(p) for p in world.pods.values()
    )


@settings(max_examples=60, deadline=None)
@given(spec=SPECS, seed=st.integers(0, 2**32))
def test_job_survives_anything(spec: dict[str, Any], seed: int) -> None:
    """Given any order of starts, ends, deletions and changes, the Job ends with true counts."""
    rng = random.Random(seed)
    world = World(**spec)
    true = {"failed": 0}
    world.settle()
    for _ in range(15):
        disturb(world, rng, true)
        world.settle()
        if finished_condition(world.job) is None:
            check(world, true)
        world.now += rng.choice([0, 1, 700])
    world.job["spec"]["suspend"] = False
    world.job["spec"]["parallelism"] = 2
    for _ in range(40):
        world.settle()
        if finished_condition(world.job) is not None:
            break
        stop_deleted(world)
        world.end("Succeeded")
        world.now += 700
    assert finished_condition(world.job) is not None
    world.settle()
    assert not any(pod_state.is_active(p) for p in world.pods.values())
    assert not any(pods.is_tracked(p) for p in world.pods.values())
