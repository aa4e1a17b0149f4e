"""The project's Stages in a running cluster: whole lives of pods and nodes."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any


def asked(**texts: str) -> dict[str, str]:
    return {f"gpusched.io/{key.replace('_', '-')}": text for key, text in texts.items()}


def found(cluster: Any, name: str = "p") -> Any:
    return cluster.client.get("pods", "n", name)


def ready(cluster: Any) -> str:
    conditions = cluster.client.get("nodes", None, "a")["status"]["conditions"]
    return str(next(c["status"] for c in conditions if c["type"] == "Ready"))


def taints(cluster: Any) -> set[tuple[str, str]]:
    spec = cluster.client.get("nodes", None, "a")["spec"]
    return {(t["key"].partition("/")[2], t["effect"]) for t in spec.get("taints") or ()}


async def begun(start: Any, *, node: dict[str, str] | None = None, **pod: Any) -> Any:
    cluster = await start(stages=True)
    cluster.node("a", annotations=node or {})
    cluster.pod("p", **pod)
    cluster.bind_all("a")
    await cluster.clock.settle()
    return cluster


async def test_evicted_pod_keeps_its_condition_and_uses_its_grace(start: Any) -> None:
    """An evicted pod says so to its end, stops when its grace is over, and is then gone."""
    cluster = await begun(start, annotations=asked(stop_after="1h"))
    await cluster.clock.advance(5)
    seen: list[Any] = []

    async def watch() -> None:
        async for item in cluster.client.watch("pods"):
            seen.append(item.object["status"])  # noqa: PERF401 - it never ends by itself

    watching = asyncio.create_task(watch())
    cluster.client.evict("n", "p", grace_s=20)
    await cluster.clock.advance(19)
    assert found(cluster)["status"]["phase"] == "Running"
    await cluster.clock.advance(2)
    assert found(cluster) is None
    watching.cancel()
    ended = seen[-1]
    assert ended["phase"] == "Failed"
    conditions = {c["type"]: c["status"] for c in ended["conditions"]}
    assert conditions["DisruptionTarget"] == "True"
    assert conditions["Ready"] == "False"
    assert ended["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 137


async def test_finalizers_hold_a_stopped_pod(start: Any) -> None:
    """A deleted pod with a finalizer is Failed and stays until the finalizer goes."""
    cluster = await begun(start, finalizers=["x.io/hold"])
    await cluster.clock.advance(5)
    cluster.client.delete("pods", "n", "p")
    await cluster.clock.advance(60)
    assert found(cluster)["status"]["phase"] == "Failed"
    terminated = found(cluster)["status"]["containerStatuses"][0]["state"]["terminated"]
    assert terminated["exitCode"] == 143
    cluster.client.patch("pods", "n", "p", {"metadata": {"finalizers": None}})
    await cluster.clock.settle()
    assert found(cluster) is None


async def test_writes_do_not_move_the_end(start: Any) -> None:
    """However often a pod is written to, it ends when it was to end."""
    cluster = await begun(start, annotations=asked(run_for="60s", pull_for="10s"))
    for number in range(14):
        await cluster.clock.advance(5)
        cluster.client.patch("pods", "n", "p", {"metadata": {"labels": {"n": str(number)}}})
    assert found(cluster)["status"]["phase"] == "Running"
    await cluster.clock.advance(2)
    assert found(cluster)["status"]["phase"] == "Succeeded"
    assert "Pulling" in cluster.reasons


async def test_node_fails_drives_its_pods_out_and_returns(start: Any) -> None:
    """At the time told the node is NotReady and tainted, pods leave by their tolerations, it returns."""
    times = asked(fail_at="2027-01-15T08:10:00Z", return_at="2027-01-15T08:20:00Z")
    patience = {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}
    spec = {"tolerations": [{**patience, "tolerationSeconds": 60}]}
    cluster = await begun(start, node=times, spec=spec)
    await cluster.clock.advance(599)
    assert ready(cluster) == "True"
    await cluster.clock.advance(10)
    assert ready(cluster) == "False"
    assert taints(cluster) == {("not-ready", "NoSchedule"), ("not-ready", "NoExecute")}
    assert found(cluster)["status"]["phase"] == "Running"
    await cluster.clock.advance(62)
    assert found(cluster) is None
    await cluster.clock.advance(531)
    assert ready(cluster) == "True"
    assert taints(cluster) == set()
    await cluster.clock.advance(3600)
    assert ready(cluster) == "True"


async def test_lost_node_is_unreachable(start: Any) -> None:
    """A lost node gets the taints of an unreachable one; removing the annotation brings it back."""
    cluster = await begun(start, node=asked(failure="lost"))
    failed = {"metadata": {"annotations": asked(node_failed="true")}}
    cluster.client.patch("nodes", None, "a", failed)
    await cluster.clock.advance(6)
    assert ready(cluster) == "Unknown"
    assert taints(cluster) == {("unreachable", "NoSchedule"), ("unreachable", "NoExecute")}
    cluster.client.patch(
        "nodes", None, "a", {"metadata": {"annotations": {"gpusched.io/node-failed": None}}}
    )
    await cluster.clock.advance(1)
    assert (ready(cluster), taints(cluster)) == ("True", set())


async def test_node_with_a_mean_life_fails_and_returns_again_and_again(start: Any) -> None:
    """About half the time is spent failed when repairs take as long."""
    cluster = await begun(start, node=asked(mtbf="10m", mttr="10m"))
    seen = []
    for _ in range(60):
        await cluster.clock.advance(600)
        seen.append(ready(cluster))
    assert 15 <= seen.count("True") <= 45
    assert sum(a != b for a, b in itertools.pairwise(seen)) > 10


async def test_gpus_leave_and_come_back(start: Any) -> None:
    """Lost GPUs leave allocatable until the annotation is gone; a reserve of the node's stays."""
    cluster = await begun(start)

    def gpus() -> tuple[str, str]:
        status = cluster.client.get("nodes", None, "a")["status"]
        return status["capacity"]["nvidia.com/gpu"], status["allocatable"]["nvidia.com/gpu"]

    async def lose(text: str | None) -> None:
        patch = {"metadata": {"annotations": {"gpusched.io/gpus-lost": text}}}
        cluster.client.patch("nodes", None, "a", patch)
        await cluster.clock.settle()

    await lose("3")
    assert gpus() == ("8", "5")
    await lose(None)
    assert gpus() == ("8", "8")
    held = {"status": {"allocatable": {"nvidia.com/gpu": "7"}}}
    cluster.client.patch("nodes", None, "a", held, subresource="status")
    await cluster.clock.advance(1500)
    assert gpus() == ("8", "7")
