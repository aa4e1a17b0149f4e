"""Node pools: as many fake nodes of one shape as asked for, now and after every change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from gpusched.cli.main import main
from gpusched.devcluster.stages.node_pools import NodePoolError, nodes_of

POOLS = "nodepools.devcluster.gpusched.io"
FILE = Path(__file__).parents[3] / "kwok-scenarios" / "pools" / "h100.yaml"
SHIPPED: list[dict[str, Any]] = list(yaml.safe_load_all(FILE.read_text()))


def pool(replicas: int = 2, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "devcluster.gpusched.io/v1alpha1",
        "kind": "NodePool",
        "metadata": {"name": "p"},
        "spec": {
            "replicas": replicas,
            "template": {"metadata": metadata, "status": {"capacity": {"nvidia.com/gpu": "8"}}},
        },
    }


def names(cluster: Any) -> list[str]:
    return [node["metadata"]["name"] for node in cluster.client.list("nodes")]


def test_labels_follow_the_number_of_the_node() -> None:
    """Texts of the template are rendered with the node's number: racks, blocks, zones."""
    nodes = nodes_of(SHIPPED[0], replicas=200)
    assert [node["metadata"]["name"] for node in nodes[7:9]] == ["h100-r1-n8", "h100-r2-n1"]
    labels = nodes[199]["metadata"]["labels"]
    assert labels["gpusched.io/rack"] == "rack-25"
    assert labels["gpusched.io/block"] == "block-7"
    assert labels["topology.kubernetes.io/zone"] == "zone-2"
    assert labels["kubernetes.io/hostname"] == nodes[199]["metadata"]["name"]
    assert nodes[0]["status"]["allocatable"] == nodes[0]["status"]["capacity"]


def test_two_nodes_of_one_name_are_refused() -> None:
    """A name without the number in it fits one node only."""
    with pytest.raises(NodePoolError, match=r"would be the name of two nodes.*Index"):
        nodes_of(pool(name="same"))
    with pytest.raises(NodePoolError, match="node 0: function 'nope' is not known"):
        nodes_of(pool(name="{{ nope }}"))


async def test_pool_scales_up_and_down(start: Any) -> None:
    """Nodes come and go with the replicas, the highest numbers first, and are Ready and driven."""
    cluster = await start(stages=True)
    cluster.client.create(POOLS, pool(3))
    await cluster.clock.settle()
    assert names(cluster) == ["p-0", "p-1", "p-2"]
    node = cluster.client.get("nodes", None, "p-0")
    assert any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"]["conditions"])
    scale = {"spec": {"replicas": 1}}
    cluster.client.patch(POOLS, None, "p", scale, subresource="scale")
    await cluster.clock.settle()
    assert names(cluster) == ["p-0"]
    assert cluster.client.get(POOLS, None, "p")["status"]["replicas"] == 1
    cluster.client.patch(POOLS, None, "p", {"spec": {"replicas": 212}})
    await cluster.clock.settle()
    await cluster.clock.settle()
    assert len(names(cluster)) == 212
    (condition,) = cluster.client.get(POOLS, None, "p")["status"]["conditions"]
    assert condition["reason"] == "Filled"
    cluster.client.delete(POOLS, None, "p")
    await cluster.clock.advance(1)
    assert names(cluster) == []


async def test_node_that_vanishes_comes_back(start: Any) -> None:
    """A node that somebody deletes is made anew."""
    cluster = await start(stages=True)
    cluster.client.create(POOLS, pool(2))
    await cluster.clock.settle()
    before = cluster.client.get("nodes", None, "p-1")["metadata"]["uid"]
    cluster.client.delete("nodes", None, "p-1")
    await cluster.clock.settle()
    assert cluster.client.get("nodes", None, "p-1")["metadata"]["uid"] != before


async def test_pool_that_cannot_be_filled_says_why(start: Any) -> None:
    """A name that is taken, or a template that does not render, is told on the pool."""
    cluster = await start(stages=True)
    cluster.node("p-0")
    cluster.client.create(POOLS, pool(2))
    await cluster.clock.settle()
    (condition,) = cluster.client.get(POOLS, None, "p")["status"]["conditions"]
    assert condition["status"] == "False"
    assert condition["message"] == 'nodes "p-0" already exists'
    assert names(cluster) == ["p-0", "p-1"]
    bad = {"spec": {"template": {"metadata": {"name": "{{ Index"}}}}
    cluster.client.patch(POOLS, None, "p", bad)
    await cluster.clock.settle()
    (condition,) = cluster.client.get(POOLS, None, "p")["status"]["conditions"]
    assert "NodePool 'p', node 0:" in condition["message"]
    events = [e["reason"] for e in cluster.client.list("events", "default")]
    assert events.count("NodesRefused") == 2


async def test_printed_nodes_are_those_of_the_pool(
    start: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """``gpusched nodes`` prints what the embedded cluster makes, apart from the owner."""
    assert main(["nodes", str(FILE), "--replicas", "3"]) == 0
    printed = list(yaml.safe_load_all(capsys.readouterr().out))
    cluster = await start(stages=True)
    for one in SHIPPED:
        cluster.client.create(POOLS, {**one, "spec": {**one["spec"], "replicas": 3}})
    await cluster.clock.settle()
    assert len(printed) == 6
    for want in printed:
        made = cluster.client.get("nodes", None, want["metadata"]["name"])
        assert made["metadata"]["labels"] == want["metadata"]["labels"]
        assert made["spec"].get("taints") == (want.get("spec") or {}).get("taints")
        assert made["status"]["capacity"] == want["status"]["capacity"]
        assert made["status"]["allocatable"] == want["status"]["allocatable"]


@pytest.mark.parametrize(
    ("text", "status"), [("kind: Pod", 78), ("a: [", 78), (None, 78), ("kind: NodePool", 2)]
)
def test_files_that_hold_no_pool_are_refused(tmp_path: Path, text: str | None, status: int) -> None:
    """What cannot be read, holds no pool, or a number out of range ends with a sentence."""
    file = tmp_path / "f.yaml"
    if text is not None:
        file.write_text(text)
    assert main(["nodes", str(file), *(["--replicas", "-1"] if status == 2 else [])]) == status


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("3", "spec: Invalid value"),
        ("{replicas: '3', template: {}}", "spec.replicas: Invalid value"),
        ("{replicas: 100001, template: {}}", "spec.replicas: Invalid value"),
        ("{template: [1]}", "spec.template: Invalid value"),
        ("{template: {metadata: {labels: [a]}}}", "spec.template: json: cannot unmarshal array"),
        ("{template: {metadata: {name: {a: b}}}}", "spec.template: json: cannot unmarshal object"),
        ("{template: {status: {capacity: 5}}}", "node 0: json: cannot unmarshal number"),
        ("{devices: [{kind: car}], template: {}}", "spec.devices[0].kind: Unsupported value"),
        ("&a {template: {status: *a}}", "holds an alias of something inside that very thing"),
    ],
)
def test_a_pool_of_which_no_nodes_can_be_made_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], spec: str, said: str
) -> None:
    """Given a file that the embedded cluster would refuse, then one sentence says what is wrong, and nothing is printed."""
    file = tmp_path / "f.yaml"
    file.write_text(f"kind: NodePool\nmetadata: {{name: p}}\nspec: {spec}\n")
    assert main(["nodes", str(file)]) == 78
    printed, told = capsys.readouterr()
    assert printed == ""
    assert told.count("\n") == 1
    assert said in told


async def test_a_template_that_is_no_node_is_told_by_the_pool(start: Any) -> None:
    """Given parts of a template that the definition leaves open, then its status tells them, and other pools go on."""
    cluster = await start(stages=True)
    bad = pool(1)
    bad["spec"]["template"]["metadata"] = {"labels": ["a"]}
    cluster.client.create(POOLS, bad)
    good = pool(1)
    good["metadata"] = {"name": "q"}
    cluster.client.create(POOLS, good)
    await cluster.clock.settle()
    (condition,) = cluster.client.get(POOLS, None, "p")["status"]["conditions"]
    assert condition["status"] == "False"
    assert "NodePool 'p': spec.template: json: cannot unmarshal" in condition["message"]
    assert names(cluster) == ["q-0"]
