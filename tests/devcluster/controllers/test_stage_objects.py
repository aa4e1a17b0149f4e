"""Stage objects of the API: what is written, changed and deleted counts at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpusched.base.errors import ConfigError
from gpusched.devcluster import cluster as app

STAGES = "stages.kwok.x-k8s.io"


def stage(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": name},
        "spec": {"resourceRef": {"apiGroup": "v1", "kind": "Pod"}, **spec},
    }


def hurried(phase: str) -> dict[str, Any]:
    test = {"key": ".status.phase", "operator": "In", "values": ["Running"]}
    template = f"phase: {phase}"
    return stage("hurry", selector={"matchExpressions": [test]}, next={"statusTemplate": template})


def loaded(cluster: Any, name: str) -> dict[str, Any]:
    (condition,) = cluster.client.get(STAGES, None, name)["status"]["conditions"]
    return condition


def phase(cluster: Any) -> str:
    return str(cluster.client.get("pods", "n", "p")["status"]["phase"])


async def running_pod(start: Any) -> Any:
    cluster = await start(stages=True)
    cluster.node("a")
    cluster.pod("p")
    cluster.client.bind("n", "p", "a")
    await cluster.clock.advance(5)
    assert phase(cluster) == "Running"
    return cluster


async def test_own_stages_are_there_to_be_read(start: Any) -> None:
    """The default stages are objects, each loaded."""
    cluster = await start(stages=True)
    names = [found["metadata"]["name"] for found in cluster.client.list(STAGES)]
    assert "gpusched-pod-start" in names
    assert {loaded(cluster, name)["status"] for name in names} == {"True"}


async def test_new_stage_acts_on_what_is_there(start: Any) -> None:
    """A Stage that is created plays on pods that were there before, a deleted one no more."""
    cluster = await running_pod(start)
    cluster.client.create(STAGES, hurried("Succeeded"))
    await cluster.clock.settle()
    assert phase(cluster) == "Succeeded"


async def test_changed_stage_replaces_what_waits(start: Any) -> None:
    """An edit takes the place of what the old text would have done; a deletion cancels it."""
    cluster = await running_pod(start)
    slow = hurried("Failed")
    slow["spec"]["delay"] = {"durationMilliseconds": 60_000}
    cluster.client.create(STAGES, slow)
    await cluster.clock.advance(30)
    cluster.client.delete(STAGES, None, "hurry")
    await cluster.clock.advance(60)
    assert phase(cluster) == "Running"
    cluster.client.create(STAGES, slow)
    await cluster.clock.advance(30)
    cluster.client.patch(
        STAGES, None, "hurry", {"spec": hurried("Succeeded")["spec"] | {"delay": None}}
    )
    await cluster.clock.settle()
    assert phase(cluster) == "Succeeded"


async def test_unrelated_stage_leaves_waiting_objects_alone(start: Any) -> None:
    """A Stage that does not match a waiting object does not restart what it waits for."""
    cluster = await running_pod(start)
    slow = hurried("Failed")
    slow["spec"]["delay"] = {"durationMilliseconds": 60_000}
    cluster.client.create(STAGES, slow)
    await cluster.clock.advance(50)
    other = {"key": ".metadata.name", "operator": "In", "values": ["q"]}
    cluster.client.create(STAGES, stage("other", selector={"matchExpressions": [other]}))
    await cluster.clock.advance(11)
    assert phase(cluster) == "Failed"


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"next": {"statusTemplate": "{{ frob }}"}}, "calls frob"),
        ({"impersonation": {"username": "u"}}, "spec.impersonation is not supported"),
        ({"resourceRef": {"kind": "Widget"}}, "does not serve that kind"),
        ({"delay": {"durationFrom": {"expressionFrom": "((("}}}, "spec.delay.durationFrom"),
    ],
)
async def test_unusable_stage_says_why(start: Any, spec: dict[str, Any], why: str) -> None:
    """What cannot be played is told on the Stage, as a condition and as an event."""
    cluster = await start(stages=True)
    cluster.client.create(STAGES, stage("odd", selector={}, **spec) | {})
    await cluster.clock.settle()
    condition = loaded(cluster, "odd")
    assert (condition["status"], condition["reason"]) == ("False", "Refused")
    assert why in condition["message"]
    (event,) = [
        e for e in cluster.client.list("events", "default") if e["reason"] == "StageRefused"
    ]
    assert event["message"] == condition["message"]
    assert event["type"] == "Warning"


async def test_stage_is_loaded_when_its_kind_comes(start: Any) -> None:
    """A Stage may come before the definition of its kind; it is played once there is one."""
    cluster = await start(stages=True)
    early = stage("early", selector={}, next={"patches": [{"template": "spec: {done: true}"}]})
    early["spec"]["resourceRef"] = {"apiGroup": "x.io/v1", "kind": "Widget"}
    cluster.client.create(STAGES, early)
    await cluster.clock.settle()
    assert loaded(cluster, "early")["status"] == "False"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"kind": "Widget", "plural": "widgets", "singular": "widget", "listKind": "WidgetList"}
    cluster.client.create(
        "customresourcedefinitions.apiextensions.k8s.io",
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "widgets.x.io"},
            "spec": {"group": "x.io", "names": names, "scope": "Cluster", "versions": [version]},
        },
    )
    await cluster.clock.settle()
    assert loaded(cluster, "early")["status"] == "True"
    widget = {"apiVersion": "x.io/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {}}
    cluster.client.create("widgets.x.io", widget)
    await cluster.clock.settle()
    assert cluster.client.get("widgets.x.io", None, "w")["spec"] == {"done": True}


async def test_apply_of_an_unserved_kind_stops_nothing(start: Any) -> None:
    """A step that applies a kind that is not served is told and dropped; the cluster lives on."""
    cluster = await running_pod(start)
    template = "{apiVersion: no/v1, kind: Such, metadata: {name: x}}"
    cluster.client.create(
        STAGES, stage("odd", selector={}, steps=[{"apply": {"template": template}}])
    )
    await cluster.clock.settle()
    cluster.client.delete(STAGES, None, "odd")
    cluster.client.create(STAGES, hurried("Succeeded"))
    await cluster.clock.settle()
    assert phase(cluster) == "Succeeded"


async def test_files_replace_the_default_stages(tmp_path: Path) -> None:
    """Given files are all there is; one that holds no usable Stage ends the start."""
    file = tmp_path / "mine.yaml"
    file.write_text("apiVersion: kwok.x-k8s.io/v1alpha1\nkind: Stage\nmetadata: {name: mine}\n"
                    "spec: {resourceRef: {kind: Pod}, selector: {}, next: {delete: true}}\n")  # fmt: skip
    cluster = await app.start(app.ClusterOptions(stage_files=[file]))
    assert [found["metadata"]["name"] for found in cluster.client.list(STAGES)] == ["mine"]
    await cluster.close()
    file.write_text(file.read_text().replace("delete", "remove"))
    with pytest.raises(ConfigError, match=r"Stage 'mine': spec\.next\.remove is not supported"):
        await app.start(app.ClusterOptions(stage_files=[file]))
    file.write_text("kind: Pod")
    with pytest.raises(ConfigError, match=r"no Stage of kwok\.x-k8s\.io in"):
        await app.start(app.ClusterOptions(stage_files=[file]))
    with pytest.raises(ConfigError, match=r"empty cannot be read"):
        await app.start(app.ClusterOptions(stage_files=[tmp_path / "empty"]))
