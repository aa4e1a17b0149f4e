"""How the engine plays stages: restarts, retries, order of steps, what it leaves alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from gpusched.devcluster.apimachinery.seeded_random import KeyedRandom
from gpusched.devcluster.apimachinery.status import failure
from gpusched.devcluster.stages import load
from gpusched.devcluster.stages.engine import StageEngine


def stage(name: str, kind: str = "Pod", **spec: Any) -> Any:
    spec.setdefault("selector", {})
    return load.read_stage(
        {"metadata": {"name": name}, "spec": {"resourceRef": {"kind": kind}, **spec}}
    )


def phase_is(value: str) -> dict[str, Any]:
    test = {"key": ".status.phase", "operator": "In", "values": [value]}
    return {"matchExpressions": [test]}


RUN = {"statusTemplate": "phase: Running"}


@pytest.fixture
async def play(start: Any) -> AsyncIterator[Callable[..., Any]]:
    """Starts a cluster with one fake node and an engine that plays the given stages."""
    tasks: list[asyncio.Task[None]] = []

    async def one(*stages: Any, client: Callable[[Any], Any] = lambda real: real) -> Any:
        cluster = await start()
        cluster.node("a")
        engine = StageEngine(
            client(cluster.client), stages, clock=cluster.clock, rng=KeyedRandom(1, "stages")
        )
        tasks.append(asyncio.create_task(engine.run()))
        await cluster.clock.settle()
        return cluster

    yield one
    for task in tasks:
        task.cancel()
        outcome = await asyncio.gather(task, return_exceptions=True)
        assert isinstance(outcome[0], asyncio.CancelledError), outcome


def bound(cluster: Any, name: str = "p", **metadata: Any) -> None:
    cluster.pod(name, **metadata)
    cluster.client.bind("n", name, "a")


def phase(cluster: Any, name: str = "p") -> str:
    return str(cluster.client.get("pods", "n", name)["status"]["phase"])


async def test_unrelated_writes_restart_a_relative_delay(play: Any) -> None:
    """A delay counts from the last event of the object, as on KWOK."""
    delay = {"durationMilliseconds": 5000}
    cluster = await play(stage("run", selector=phase_is("Pending"), delay=delay, next=RUN))
    bound(cluster)
    await cluster.clock.advance(4)
    cluster.client.patch("pods", "n", "p", {"metadata": {"labels": {"a": "b"}}})
    await cluster.clock.advance(4)
    assert phase(cluster) == "Pending"
    await cluster.clock.advance(1.5)
    assert phase(cluster) == "Running"


async def test_matching_nothing_leaves_the_pending_job(play: Any) -> None:
    """A stage that was chosen is played although the object no longer matches."""
    delay = {"durationMilliseconds": 5000}
    cluster = await play(stage("run", selector=phase_is("Pending"), delay=delay, next=RUN))
    bound(cluster)
    await cluster.clock.advance(1)
    cluster.client.patch("pods", "n", "p", {"status": {"phase": "Unknown"}}, subresource="status")
    await cluster.clock.advance(5)
    assert phase(cluster) == "Running"


async def test_deleted_object_loses_its_job(play: Any) -> None:
    """Nothing is played on an object of the same name that came later."""
    delay = {"durationMilliseconds": 5000}
    cluster = await play(stage("run", selector=phase_is("Pending"), delay=delay, next=RUN))
    bound(cluster)
    await cluster.clock.advance(1)
    cluster.client.delete("pods", "n", "p", grace_s=0)
    cluster.pod("p")
    await cluster.clock.advance(10)
    assert phase(cluster) == "Pending"


async def test_steps_in_order(play: Any) -> None:
    """Event, finalizers, patches and deletion are carried out in that order."""
    patches = [
        {"root": "metadata", "template": 'annotations: {node: "{{ .spec.nodeName }}"}'},
        {"subresource": "status", "root": "status", "template": "phase: Running"},
    ]
    steps = {
        "event": {"reason": "Started", "message": "hello"},
        "finalizers": {"add": [{"value": "example.com/a"}]},
        "patches": patches,
        "delete": True,
    }
    cluster = await play(stage("all", selector=phase_is("Pending"), next=steps))
    bound(cluster)
    await cluster.clock.advance(1)
    pod = cluster.client.get("pods", "n", "p")
    assert "Started" in cluster.reasons
    assert pod["metadata"]["finalizers"] == ["example.com/a"]
    assert pod["metadata"]["annotations"] == {"node": "a"}
    assert pod["status"]["phase"] == "Running"
    assert pod["metadata"]["deletionTimestamp"]


async def test_finalizers_are_emptied(play: Any) -> None:
    """A stage can let go what finalizers hold."""
    selector = {"matchExpressions": [{"key": ".metadata.deletionTimestamp", "operator": "Exists"}]}
    cluster = await play(stage("go", selector=selector, next={"finalizers": {"empty": True}}))
    bound(cluster, finalizers=["example.com/a"])
    cluster.client.delete("pods", "n", "p", grace_s=0)
    await cluster.clock.advance(1)
    assert cluster.pods() == []


async def test_json_patch_and_steps(play: Any) -> None:
    """The newer form with steps, and a JSON patch, work as well."""
    add = '- {op: add, path: /metadata/labels, value: {x: "y"}}'
    steps = [{"patch": {"type": "json", "template": add}}]
    cluster = await play(stage("label", selector=phase_is("Pending"), steps=steps))
    bound(cluster)
    await cluster.clock.advance(1)
    assert cluster.client.get("pods", "n", "p")["metadata"]["labels"] == {"x": "y"}


async def test_immediate_next_stage(play: Any) -> None:
    """The outcome of a stage is matched at once."""
    first = stage("first", selector=phase_is("Pending"), next=RUN, immediateNextStage=True)
    end = {"statusTemplate": "phase: Succeeded"}
    cluster = await play(first, stage("second", selector=phase_is("Running"), next=end))
    bound(cluster)
    await cluster.clock.advance(1)
    assert phase(cluster) == "Succeeded"


class Refusing:
    """A client whose patches are refused a few times."""

    def __init__(self, real: Any, code: int, times: int) -> None:
        self._real = real
        self._code = code
        self.left = times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def patch(self, *arguments: Any, **options: Any) -> Any:
        """Refuse, or pass on."""
        if self.left:
            self.left -= 1
            raise failure(self._code, "Refused", "not now")
        return self._real.patch(*arguments, **options)


@pytest.mark.parametrize(("code", "arrives"), [(429, True), (503, True), (500, False)])
async def test_refused_steps(play: Any, code: int, *, arrives: bool) -> None:
    """Overload and unavailability are tried again, later each time; other refusals end the stage."""
    stages = [stage("run", selector=phase_is("Pending"), next=RUN)]
    cluster = await play(*stages, client=lambda real: Refusing(real, code, 2))
    bound(cluster)
    await cluster.clock.advance(0.9)
    assert phase(cluster) == "Pending"
    await cluster.clock.advance(3)
    assert (phase(cluster) == "Running") is arrives


async def test_fault_of_a_template_is_told_and_dropped(play: Any, caplog: Any) -> None:
    """A template that does not fit an object stops neither the engine nor other objects."""
    template = {"statusTemplate": "phase: {{ index .spec.initContainers 0 }}"}
    cluster = await play(stage("odd", selector=phase_is("Pending"), next=template))
    bound(cluster)
    await cluster.clock.advance(1)
    assert phase(cluster) == "Pending"
    assert "stage odd on p is dropped: index:" in caplog.text


async def test_unserved_kind_is_refused(start: Any) -> None:
    """A Stage for a kind that the cluster does not serve is refused with a sentence."""
    cluster = await start()
    odd = stage("odd", kind="Widget")
    with pytest.raises(load.StageError, match="does not serve that kind"):
        StageEngine(cluster.client, [odd], clock=cluster.clock, rng=KeyedRandom(1, "stages"))
