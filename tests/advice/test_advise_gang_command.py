"""``gpusched advise KIND NAME`` as people type it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpusched.cli.main import main
from tests.advice.clusters import GPU, gang, node, priority, queue, write_file

DOCUMENT = Path(__file__).parents[2] / "docs/advice.md"


@pytest.fixture
def cluster(tmp_path):
    """The cluster of docs/advice.md: two racks of two nodes, nearly full, and a gang of four that wants a rack."""
    nodes = [node(f"gpu-{each}", rack=f"rack-{each // 2}") for each in range(4)]
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
    runs = [
        *gang("llm", 8, 1, on=["gpu-0"] * 8, expectedDuration="2h", priorityClassName="training"),
        *gang("eval", 4, 1, on=["gpu-2"] * 4, priorityClassName="training"),
    ]
    waits = gang(
        "train", 4, 4, topology={"required": "rack"}, minRuntime="1h", priorityClassName="training"
    )
    classes = [priority("training", 100), priority("urgent", 1000)]
    limited = queue("a", capability={GPU: "32"})
    return write_file(tmp_path / "cluster.json", [space, *classes, limited, *nodes, *runs, *waits])


def test_the_document_shows_what_is_printed(cluster, capsys):
    assert main(["advise", "podgroup", "train", "-n", "team", "--snapshot", str(cluster)]) == 0
    shown = DOCUMENT.read_text().split("```\n$ gpusched advise podgroup train -n team\n")[1]
    assert capsys.readouterr().out == shown.split("```")[0]


def test_the_same_for_programs(cluster, capsys):
    words = ["advise", "podgroup/train", "-n", "team", "--snapshot", str(cluster), "-o", "json"]
    assert main(words) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["gang"] == {"kind": "PodGroup", "namespace": "team", "name": "train", "queue": "a"}
    assert told["never"] is None
    first = told["suggestions"][0]
    assert (first["change"], first["start"]["kind"]) == ("topology", "now")
    assert first["objects"][0]["becomes"]["spec"]["topology"] == {}
    assert told["decisions"] > 5


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["podgroup", "gone"], "no gang of podgroup/gone waits in namespace team"),
        (["podgroup"], "podgroup which? Give KIND NAME"),
        (["cow", "x"], "unknown kind 'cow'"),
        (["podgroup", "a", "b"], "advise takes one gang at a time"),
        (["mig", "x"], "advise mig takes no name"),
    ],
)
def test_what_cannot_be_asked_is_one_sentence(cluster, capsys, words, why):
    assert main(["advise", *words, "-n", "team", "--snapshot", str(cluster)]) == 2
    said = capsys.readouterr().err
    assert why in said
    assert said.count("\n") == 1


def test_a_pod_and_its_job_are_the_gang_that_they_belong_to(cluster, capsys):
    assert main(["advise", "pod", "train-0", "-n", "team", "--snapshot", str(cluster)]) == 0
    assert capsys.readouterr().out.startswith("PodGroup team/train in queue a\n")
