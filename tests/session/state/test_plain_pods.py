"""Pods of which no other object tells anything are counted as all others are, in one go."""

from __future__ import annotations

import random

import attrs
import msgspec
import pytest

from gpusched.api.affinity.selector import Selector, requirement
from gpusched.api.meta.identity import ObjectKey
from gpusched.api.pod.pod import NO_GANG_ANNOTATIONS, GangAnnotations, PodPhase
from gpusched.api.queue.user_limits import UserLimit, UserLimits
from gpusched.cache.gangs.counting.plain_pods import PlainPods
from gpusched.testing import entities
from gpusched.testing.given import Given

HINTS = (
    NO_GANG_ANNOTATIONS,
    GangAnnotations(),
    GangAnnotations(topology_preferred="rack", expected_duration_ns=60 * 10**9),
    GangAnnotations(preemptible=False, min_runtime_ns=10**9),
)


def fill(c: Given, rng: random.Random) -> None:
    c.nodes(4, gpus=8)
    c.queue("a", limits={"capability": {"nvidia.com/gpu": 100}})
    c.queue("b", namespaces=Selector(requirements=(requirement("team", "In", ("b",), field="x"),)))
    c.queue("users", user_limits=UserLimits(per_user=UserLimit(max_running=3)))
    c.namespace("ns-queue", queue="a")
    c.priority_class("firm", value=7, preemptible=False)
    for number in range(120):
        runs = rng.random() < 0.5
        about = {"node": f"node-{rng.randrange(4)}", "plan": rng.choice(("", "p"))} if runs else {}
        pod = entities.pod(
            f"pod-{number:03d}",
            entities.pod_class(gpus=rng.randrange(3)),
            namespace=rng.choice(("default", "ns-queue")),
            queue=rng.choice(("", "a", "b", "users", "none")),
            priority=rng.choice((0, 7, 2_000_000_000)),
            priority_class=rng.choice(("", "firm", "unknown")),
            hints=rng.choice(HINTS),
            role=rng.choice(("", "worker")),
            deleting=rng.random() < 0.1,
            gated=rng.random() < 0.1,
            created=1e9 + rng.randrange(100),
            scheduled=1e9 + 100 if runs else 0.0,
            phase=rng.choice((PodPhase.RUNNING, PodPhase.SUCCEEDED)) if runs else PodPhase.PENDING,
            **about,
        )
        nominated = "" if runs else rng.choice(("", "", "node-1"))
        pod = msgspec.structs.replace(pod, nominated=nominated)
        hold, strange = rng.choice(("", "", "", "somebody")), rng.choice(((), (), ("odd",)))
        c.cache.put_pod(msgspec.structs.replace(pod, hold=hold, strange_keys=strange))


def gangs_of(c: Given) -> list[str]:
    snapshot = c.cache.take_snapshot(now=2e9)
    gangs = {gang.key: gang for gang in (*snapshot.gangs, *snapshot.placed_gangs.values())}
    return [
        f"{gang} {gang.running_kind} {gang.missing_members} {gang.started_at} {gang.pending}"
        f" {gang.members_at_start} {gang.suspended} {gang.has_nominated_pods}"
        for _, gang in sorted(gangs.items())
    ]


@pytest.mark.parametrize("seed", range(10))
def test_plain_pods_are_counted_as_others_are(seed, monkeypatch):
    # given the same pods twice, and more that come when a queue and a class are others
    def story() -> list[list[str]]:
        rng, c, seen = random.Random(seed), Given(), []
        fill(c, rng)
        seen.append(gangs_of(c))
        c.queue("b").namespace("ns-queue", queue="b").priority_class("firm", value=7)
        fill(c, rng)
        seen.append(gangs_of(c))
        return seen

    built = PlainPods.build
    found = []
    monkeypatch.setattr(PlainPods, "build", lambda *about: found.append(built(*about)) or found[-1])
    quick = story()
    # when they are counted as pods of which other objects may tell something
    monkeypatch.setattr(PlainPods, "build", lambda *_: None)
    # then nothing is another
    assert quick == story()
    assert sum(gang is not None for gang in found) > 20


def test_a_pod_is_not_the_job_of_its_name():
    # given a Job that waits for its pods, which the view lists
    c = Given().nodes(1)
    c.job("same", parallelism=1, completions=1, pods=0)
    job = c.cache.jobs.items[ObjectKey("default", "same")]
    c.cache.put_job(job.key, attrs.evolve(job, scheduler="gpusched"))
    c.cache.take_snapshot(now=c.now)
    name = ObjectKey("default", "same")
    assert name in c.cache.families.resting_jobs
    # when a pod of that name comes
    c.pod("same", gpus=1)
    c.cache.take_snapshot(now=c.now)
    # then it waits still
    assert name in c.cache.families.resting_jobs
