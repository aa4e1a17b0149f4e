"""A cluster on exactly KWOK's own stage files, unchanged, as a user of KWOK would start it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

SHARED = Path(os.environ.get("GPUSCHED_SHARED", Path(__file__).parents[4] / "shared"))
KWOK = SHARED / "kwok"
pytestmark = pytest.mark.skipif(
    not KWOK.is_dir(), reason="KWOK's stages are not here (GPUSCHED_SHARED)"
)
FAST = [KWOK / "node" / "fast", KWOK / "node" / "heartbeat", KWOK / "pod" / "fast"]
GENERAL = [KWOK / "node" / "fast", KWOK / "node" / "heartbeat-with-lease", KWOK / "pod" / "general"]
CHAOS = [KWOK / "node" / "chaos", KWOK / "pod" / "chaos"]
READY = {"Initialized": "True", "Ready": "True", "ContainersReady": "True", "PodScheduled": "True"}


def stage_files(folders: list[Path]) -> list[Path]:
    return [file for folder in folders for file in sorted(folder.glob("*.yaml"))]


def conditions(cluster: Any, resource: str, name: str) -> dict[str, str]:
    namespace = "n" if resource == "pods" else None
    obj = cluster.client.get(resource, namespace, name)
    return {c["type"]: c["status"] for c in obj["status"]["conditions"]}


def phase(cluster: Any, name: str = "p") -> str:
    return str(cluster.client.get("pods", "n", name)["status"]["phase"])


def bound(cluster: Any, name: str = "p", **more: Any) -> None:
    cluster.pod(name, **more)
    cluster.client.bind("n", name, "a")


async def begun(start: Any, folders: list[Path]) -> Any:
    cluster = await start(stages=True, stage_files=stage_files(folders))
    cluster.node("a")
    await cluster.clock.settle()
    assert [
        (s["metadata"]["name"], s["status"]["conditions"][0]["message"])
        for s in cluster.client.list("stages.kwok.x-k8s.io")
        if s["status"]["conditions"][0]["status"] != "True"
    ] == []
    return cluster


@pytest.mark.parametrize("folders", [FAST, GENERAL])
async def test_node_becomes_ready_and_beats(start: Any, folders: list[Path]) -> None:
    """A fake node is Ready at once, loses its taint, keeps its GPUs and sends heartbeats."""
    cluster = await begun(start, folders)
    assert conditions(cluster, "nodes", "a") == {
        "Ready": "True",
        "MemoryPressure": "False",
        "DiskPressure": "False",
        "PIDPressure": "False",
        "NetworkUnavailable": "False",
    }
    node = cluster.client.get("nodes", None, "a")
    assert not node["spec"].get("taints")
    assert node["status"]["allocatable"]["nvidia.com/gpu"] == "8"
    assert node["status"]["nodeInfo"]["kubeletVersion"].startswith("kwok-")
    first = node["status"]["conditions"][0]["lastHeartbeatTime"]
    await cluster.clock.advance(615)
    again = cluster.client.get("nodes", None, "a")["status"]["conditions"][0]["lastHeartbeatTime"]
    assert again > first


async def test_fast_pods_run_complete_and_go_at_once(start: Any) -> None:
    """With the fast stages no time passes between binding, running, completion and removal."""
    cluster = await begun(start, FAST)
    bound(cluster)
    cluster.job("j")
    await cluster.clock.settle()
    assert (phase(cluster), conditions(cluster, "pods", "p")) == ("Running", READY)
    cluster.bind_all("a")
    await cluster.clock.advance(1)
    assert {
        c["type"] for c in cluster.client.get("jobs.batch", "n", "j")["status"]["conditions"]
    } == {
        "SuccessCriteriaMet",
        "Complete",
    }
    cluster.client.delete("pods", "n", "p")
    await cluster.clock.settle()
    assert cluster.client.get("pods", "n", "p") is None


async def test_general_pods_take_their_time(start: Any) -> None:
    """With the general stages creation and readiness take 1 to 5 s each, deletion up to the grace."""
    cluster = await begun(start, GENERAL)
    bound(cluster)
    await cluster.clock.advance(0.9)
    assert "podIP" not in cluster.client.get("pods", "n", "p")["status"]
    await cluster.clock.advance(4.2)
    assert conditions(cluster, "pods", "p")["Initialized"] == "True"
    await cluster.clock.advance(5)
    assert (phase(cluster), conditions(cluster, "pods", "p")) == ("Running", READY)
    assert "Created" in cluster.reasons
    cluster.client.delete("pods", "n", "p")
    await cluster.clock.advance(0.9)
    assert cluster.client.get("pods", "n", "p") is not None
    await cluster.clock.advance(29.2)
    assert cluster.client.get("pods", "n", "p") is None


async def test_general_pods_run_their_init_containers(start: Any) -> None:
    """Init containers wait, run and complete before the containers start."""
    cluster = await begun(start, GENERAL)
    init = [{"name": "i", "image": "x"}]
    bound(cluster, spec={"initContainers": init})
    seen: list[str] = []
    for _ in range(100):
        await cluster.clock.advance(0.25)
        for status in cluster.client.get("pods", "n", "p")["status"].get(
            "initContainerStatuses", ()
        ):
            state = next(iter(status["state"]))
            seen += [state] if state not in seen else []
    assert seen == ["waiting", "running", "terminated"]
    assert phase(cluster) == "Running"


async def test_delays_out_of_annotations(start: Any) -> None:
    """KWOK's delay and jitter annotations overrule the times of its general stages."""
    cluster = await begun(start, GENERAL)
    key = "{}.stage.kwok.x-k8s.io/{}".format
    exact = {key("pod-create", "delay"): "60s", key("pod-create", "jitter-delay"): "60s"}
    bound(cluster, annotations=exact)
    await cluster.clock.advance(59)
    assert "podIP" not in cluster.client.get("pods", "n", "p")["status"]
    await cluster.clock.advance(1.5)
    assert "podIP" in cluster.client.get("pods", "n", "p")["status"]
    ready = {key("pod-create", "jitter-delay"): "0s", key("pod-ready", "jitter-delay"): "0s"}
    bound(cluster, "q", annotations=ready)
    await cluster.clock.settle()
    assert phase(cluster, "q") == "Running"


async def test_chaos_labels_fail_pods(start: Any) -> None:
    """The chaos labels make containers and init containers fail as their annotations say."""
    cluster = await begun(start, GENERAL + CHAOS)
    fails = "pod-container-running-failed.stage.kwok.x-k8s.io"
    asked = {f"{fails}/exit-code": "137", f"{fails}/reason": "OOMKilled", f"{fails}/delay": "2s"}
    bound(cluster, labels={fails: "true"}, annotations=asked)
    early = "pod-init-container-running-failed.stage.kwok.x-k8s.io"
    init = [{"name": "i", "image": "x"}]
    bound(cluster, "q", labels={early: "true"}, spec={"initContainers": init})
    await cluster.clock.advance(20)
    (status,) = cluster.client.get("pods", "n", "p")["status"]["containerStatuses"]
    ended = status["state"]["terminated"]
    assert (phase(cluster), ended["exitCode"], ended["reason"]) == ("Failed", 137, "OOMKilled")
    (init_status,) = cluster.client.get("pods", "n", "q")["status"]["initContainerStatuses"]
    assert phase(cluster, "q") == "Failed"
    assert init_status["state"]["terminated"]["exitCode"] == 1


async def test_chaos_label_fails_a_node(start: Any) -> None:
    """A node labelled for failure turns NotReady, is tainted, and loses its pods by tolerations."""
    cluster = await begun(start, GENERAL + CHAOS)
    bound(
        cluster,
        spec={
            "tolerations": [{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}]
        },
    )
    label = {"node-not-ready.stage.kwok.x-k8s.io": "true"}
    cluster.client.patch("nodes", None, "a", {"metadata": {"labels": label}})
    await cluster.clock.advance(10)
    assert conditions(cluster, "nodes", "a")["Ready"] == "False"
    taints = cluster.client.get("nodes", None, "a")["spec"]["taints"]
    assert {(t["key"], t["effect"]) for t in taints} == {
        ("node.kubernetes.io/not-ready", "NoSchedule"),
        ("node.kubernetes.io/not-ready", "NoExecute"),
    }
    await cluster.clock.advance(100)
    assert cluster.client.get("pods", "n", "p") is None
    assert "TaintManagerEviction" in cluster.reasons
