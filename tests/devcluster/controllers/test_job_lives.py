"""Jobs on a cluster with fake nodes, from creation to the end."""

from __future__ import annotations

from typing import Any


def conditions(job: Any) -> list[str]:
    return [c["type"] for c in job["status"].get("conditions", ()) if c["status"] == "True"]


async def test_job_runs_to_its_end(start: Any) -> None:
    """Pods of a Job are made, run once bound, end after their time, and the Job is complete."""
    cluster = await start(stages=True)
    cluster.node("a")
    run_for = {"annotations": {"gpusched.io/run-for": "30s"}}
    cluster.job("j", completions=2, parallelism=2, completionMode="Indexed", template=run_for)
    await cluster.clock.settle()
    assert len(cluster.pods()) == 2

    cluster.bind_all("a")
    await cluster.clock.advance(2)
    assert [p["status"]["phase"] for p in cluster.pods()] == ["Running", "Running"]
    job = cluster.client.get("jobs.batch", "n", "j")
    assert (job["status"]["active"], job["status"]["ready"]) == (2, 2)

    await cluster.clock.advance(28)
    assert {p["status"]["phase"] for p in cluster.pods()} == {"Running"}
    await cluster.clock.advance(2)
    job = cluster.client.get("jobs.batch", "n", "j")
    assert conditions(job) == ["SuccessCriteriaMet", "Complete"]
    assert job["status"]["succeeded"] == 2
    assert job["status"]["completedIndexes"] == "0,1"
    assert cluster.reasons == ["Completed", "SuccessfulCreate", "SuccessfulCreate"]


async def test_suspend_and_resume(start: Any) -> None:
    """A suspended Job has no pods, also when they run; resumed it has them again."""
    cluster = await start(stages=True)
    cluster.node("a")
    cluster.job("j", completions=2, parallelism=2, suspend=True)
    await cluster.clock.settle()
    assert cluster.pods() == []

    cluster.client.patch("jobs.batch", "n", "j", {"spec": {"suspend": False}})
    await cluster.clock.settle()
    cluster.bind_all("a")
    await cluster.clock.advance(2)
    assert len(cluster.pods()) == 2

    cluster.client.patch("jobs.batch", "n", "j", {"spec": {"suspend": True}})
    await cluster.clock.advance(1)
    job = cluster.client.get("jobs.batch", "n", "j")
    assert cluster.pods() == []
    assert conditions(job) == ["Suspended"]
    assert "failed" not in job["status"]


async def test_failing_job(start: Any) -> None:
    """A Job whose pods fail stops at its limit, each new pod after a longer wait."""
    cluster = await start(stages=True)
    cluster.node("a")
    fails = {"annotations": {"gpusched.io/fail-after": "1s"}}
    cluster.job("j", backoffLimit=1, template=fails)
    for _ in range(2):
        await cluster.clock.settle()
        cluster.bind_all("a")
        await cluster.clock.advance(14)
    job = cluster.client.get("jobs.batch", "n", "j")
    assert conditions(job) == ["FailureTarget", "Failed"]
    assert job["status"]["failed"] == 2
    assert "BackoffLimitExceeded" in cluster.reasons


async def test_deleted_job_takes_its_pods_along(start: Any) -> None:
    """Background deletion of a Job removes its pods, bound and unbound (J4)."""
    cluster = await start(stages=True)
    cluster.node("a")
    cluster.job("j", completions=4, parallelism=4)
    await cluster.clock.settle()
    for found in cluster.pods()[:2]:
        cluster.client.bind("n", found["metadata"]["name"], "a")
    await cluster.clock.advance(2)

    cluster.client.delete("jobs.batch", "n", "j", propagation="Background")
    await cluster.clock.advance(1)
    assert cluster.client.get("jobs.batch", "n", "j") is None
    assert cluster.pods() == []


async def test_foreground_deletion_waits_for_the_pods(start: Any) -> None:
    """In the foreground the Job goes after its last pod."""
    cluster = await start(stages=True)
    cluster.node("a")
    cluster.job("j", template={"annotations": {"gpusched.io/stop-after": "5s"}})
    await cluster.clock.settle()
    cluster.bind_all("a")
    await cluster.clock.advance(2)

    cluster.client.delete("jobs.batch", "n", "j", propagation="Foreground")
    await cluster.clock.advance(1)
    assert cluster.client.get("jobs.batch", "n", "j") is not None
    await cluster.clock.advance(5)
    assert cluster.client.get("jobs.batch", "n", "j") is None
    assert cluster.pods() == []


async def test_orphaned_pods_stay(start: Any) -> None:
    """Orphaning a Job leaves its pods without an owner."""
    cluster = await start()
    cluster.job("j")
    await cluster.clock.settle()
    cluster.client.delete("jobs.batch", "n", "j", propagation="Orphan")
    await cluster.clock.settle()
    assert cluster.client.get("jobs.batch", "n", "j") is None
    (left,) = cluster.pods()
    assert "ownerReferences" not in left["metadata"]


async def test_pod_of_a_job_that_never_was_is_collected(start: Any) -> None:
    """An object whose owner does not exist is deleted; one with an unknown kind of owner is not."""
    cluster = await start()

    def owned(kind: str, version: str) -> dict[str, Any]:
        return {"kind": kind, "apiVersion": version, "name": "x", "uid": f"{kind}-uid"}

    cluster.pod("stray", ownerReferences=[owned("Job", "batch/v1")])
    cluster.pod("foreign", ownerReferences=[owned("Widget", "example.com/v1")])
    await cluster.clock.settle()
    assert [p["metadata"]["name"] for p in cluster.pods()] == ["foreign"]


async def test_many_jobs(start: Any) -> None:
    """Thirty Jobs of ten pods are made and finished, each pod once."""
    cluster = await start(stages=True)
    cluster.node("a")
    for at in range(30):
        cluster.job(f"j{at}", completions=10, parallelism=10, completionMode="Indexed")
    await cluster.clock.advance(0.1)
    assert len(cluster.pods()) == 300
    cluster.bind_all("a")
    for _ in range(14):
        await cluster.clock.advance(1)
    jobs = cluster.client.list("jobs.batch", "n")
    assert {tuple(conditions(job)) for job in jobs} == {("SuccessCriteriaMet", "Complete")}
    assert {job["status"]["completedIndexes"] for job in jobs} == {"0-9"}


def pod_group(name: str, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.gpusched.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "n", **metadata},
        "spec": {"minMember": 1},
    }


async def test_custom_owners_and_dependents(start: Any) -> None:
    """Custom objects own and are owned like built-in ones, and go with their namespace."""
    cluster = await start()
    groups = "podgroups.scheduling.gpusched.io"
    owner = cluster.client.create(groups, pod_group("g"))
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": "PodGroup",
        "name": "g",
        "uid": owner["metadata"]["uid"],
    }
    cluster.pod("p", ownerReferences=[reference])
    cluster.client.create(groups, pod_group("child", ownerReferences=[reference]))
    cluster.client.create(groups, pod_group("other"))
    await cluster.clock.settle()
    assert len(cluster.pods()) == 1

    cluster.client.delete(groups, "n", "g")
    await cluster.clock.advance(1)
    assert cluster.pods() == []
    assert [g["metadata"]["name"] for g in cluster.client.list(groups, "n")] == ["other"]

    cluster.client.delete("namespaces", None, "n")
    await cluster.clock.advance(2)
    assert cluster.client.list(groups, "n") == []
    assert cluster.client.get("namespaces", None, "n") is None


async def test_one_owner_of_two_is_enough(start: Any) -> None:
    """A dependent stays as long as one owner does, and loses the reference to the other."""
    cluster = await start()
    uids = {}
    for name in ("one", "two"):
        made = cluster.client.create(
            "configmaps",
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "n"}},
        )
        uids[name] = made["metadata"]["uid"]
    both = [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid}
        for name, uid in uids.items()
    ]
    cluster.pod("p", ownerReferences=both)
    await cluster.clock.settle()
    cluster.client.delete("configmaps", "n", "one")
    await cluster.clock.advance(1)
    (left,) = cluster.pods()
    assert [r["name"] for r in left["metadata"]["ownerReferences"]] == ["two"]
    cluster.client.delete("configmaps", "n", "two")
    await cluster.clock.advance(1)
    assert cluster.pods() == []
