"""``gpusched advise mig`` as an admin types it."""

from __future__ import annotations

import json

import pytest

from gpusched.cli.main import main
from tests.lab.simulate.mig.clusters import node, pod, slices, write_file


@pytest.fixture
def cluster(tmp_path):
    """Two idle nodes of whole GPUs, and pods that wait for partitions and a GPU."""
    waiting = [pod(f"small-{n}", *slices("1g.10gb")) for n in range(9)]
    return write_file(
        tmp_path / "cluster.json",
        [node("a", 2), node("b", 2), *waiting, pod("big", "nvidia.com/gpu", 2)],
    )


def test_the_proposed_layouts_start_what_waits(cluster, capsys):
    assert main(["advise", "mig", "--snapshot", str(cluster)]) == 0
    told = capsys.readouterr().out
    assert (
        "10 gangs wait for GPUs or partitions: today's layouts have room for 1, the best ones for 10"
        in told
    )
    assert "kubectl label node b nvidia.com/mig.config=all-1g.10gb --overwrite" in told or (
        "kubectl label node a nvidia.com/mig.config=all-1g.10gb --overwrite" in told
    )
    (started,) = [line.split() for line in told.splitlines() if line.startswith("gangs started")]
    assert started[2:] == ["1", "10"]
    assert "assumed: the MIG manager carries a layout out at once" in told


def test_the_same_for_programs(cluster, capsys):
    assert main(["advise", "mig", "--snapshot", str(cluster), "-o", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [each["proposed"] for each in told["changes"]] == ["all-1g.10gb"]
    assert told["changes"][0]["provides"] == {"nvidia.com/mig-1g.10gb": 14}
    assert told["simulated"]["today"]["started"] == 1
    assert told["simulated"]["proposed"]["started"] == 10
    assert told["simulated"]["today"]["broken"] == told["simulated"]["proposed"]["broken"] == []
    assert told["proven"]


def test_nothing_to_change_is_told(tmp_path, capsys):
    file = write_file(tmp_path / "c.json", [node("a", 2), pod("big", "nvidia.com/gpu", 2)])
    assert main(["advise", "mig", "--snapshot", str(file)]) == 0
    assert "no layout would serve more: nothing to change" in capsys.readouterr().out


def test_a_cluster_without_such_gpus_is_one_sentence(tmp_path, capsys):
    file = write_file(tmp_path / "c.json", [pod("big", "nvidia.com/gpu", 2)])
    assert main(["advise", "mig", "--snapshot", str(file)]) == 0
    assert capsys.readouterr().out.startswith("no node has GPUs that can be partitioned")


@pytest.mark.parametrize(
    ("words", "status", "why"),
    [
        (["--for", "soon"], 2, "--for: 'soon'"),
        (["--for", "0"], 2, "--for takes a duration above 0"),
        (["--layouts", "no-such-file"], 78, "no-such-file cannot be read"),
    ],
)
def test_options_that_cannot_be_used_are_one_sentence(cluster, capsys, words, status, why):
    assert main(["advise", "mig", "--snapshot", str(cluster), *words]) == status
    said = capsys.readouterr().err
    assert why in said
    assert said.count("\n") == 1
