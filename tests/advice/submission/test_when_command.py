"""``gpusched when -f FILE`` as people type it."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
import yaml

from gpusched.cli.main import main
from tests.advice.clusters import GPU, gang, node, priority, queue, write_file

DOCUMENT = Path(__file__).parents[3] / "docs/when.md"


def manifest_of_document():
    """The file job.yaml as docs/when.md shows it."""
    return DOCUMENT.read_text().split("```yaml\n# job.yaml\n")[1].split("```")[0]


@pytest.fixture
def cluster(tmp_path):
    """The cluster of docs/when.md: two racks of two nodes, one and a half of them in use."""
    nodes = [node(f"gpu-{each}", rack=f"rack-{each // 2}") for each in range(4)]
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
    runs = [
        *gang("llm", 8, 1, on=["gpu-0"] * 8, expectedDuration="2h", priorityClassName="training"),
        *gang("eval", 4, 1, on=["gpu-2"] * 4, priorityClassName="training"),
    ]
    classes = [priority("training", 100), priority("urgent", 1000)]
    queues = [queue("a", capability={GPU: "32"}), queue("b")]
    return write_file(tmp_path / "cluster.json", [space, *classes, *queues, *nodes, *runs])


@pytest.fixture
def job(tmp_path):
    """The file of docs/when.md."""
    path = tmp_path / "job.yaml"
    path.write_text(manifest_of_document())
    return path


def ask(cluster, *words):
    """The exit status of the command in namespace ``team`` of a cluster."""
    return main(["when", "-n", "team", "--snapshot", str(cluster), *words])


@pytest.mark.parametrize("words", ["", " --queue a,b --level rack,none"])
def test_the_document_shows_what_is_printed(cluster, job, capsys, words):
    assert ask(cluster, "-f", str(job), *words.split()) == 0
    shown = DOCUMENT.read_text().split(f"```\n$ gpusched when -f job.yaml -n team{words}\n")[1]
    assert capsys.readouterr().out == shown.split("```")[0]


def test_what_never_starts_is_status_1_and_told_for_programs(cluster, job, capsys):
    job.write_text(job.read_text().replace("queue: a", "queue: aa"))
    assert ask(cluster, "-f", str(job), "-o", "json") == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["asOf"], told["starts"]) == ("2027-01-15T08:00:00Z", False)
    (only,) = told["gangs"]
    assert (only["kind"], only["name"], only["pods"]) == ("PodGroup", "train", 2)
    assert only["start"]["kind"] == "never"
    assert "did you mean a?" in only["start"]["message"]


def test_standard_input_a_folder_and_several_files_are_read(
    cluster, job, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(job.read_bytes())))
    assert ask(cluster, "-f", "-", "-o", "yaml") == 0
    one = yaml.safe_load(capsys.readouterr().out)
    folder = tmp_path / "jobs"
    folder.mkdir()
    (folder / "a.yml").write_bytes(job.read_bytes())
    (folder / "notes.txt").write_text("no manifest")
    assert ask(cluster, "-f", str(folder), "-o", "yaml") == 0
    assert yaml.safe_load(capsys.readouterr().out) == one
    other = tmp_path / "other.yaml"
    other.write_text(job.read_text().replace("train", "other"))
    assert ask(cluster, "-f", str(job), "-f", str(other), "-o", "yaml") == 0
    both = yaml.safe_load(capsys.readouterr().out)
    assert [each["name"] for each in both["gangs"]] == ["train", "other"]


@pytest.mark.parametrize(
    ("content", "status", "why"),
    [
        ("", 78, "job.yaml: holds no manifest"),
        ("[1]", 78, "job.yaml:1: a manifest must be a mapping"),
        (None, 78, "job.yaml: cannot be read: No such file or directory"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_sentence(cluster, job, capsys, *, content, status, why):
    job.unlink()
    if content is not None:
        job.write_text(content)
    assert ask(cluster, "-f", str(job)) == status
    said = capsys.readouterr().err
    assert why in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--queue", ","], "--queue names nothing"),
        (["--members", "x"], '--members "x": a number from 1 to 10,000 is needed'),
        (["--level", "blok"], "the nodes have no such level; there are rack, host, none"),
    ],
)
def test_variants_that_mean_nothing_are_wrong_usage(cluster, job, capsys, words, why):
    assert ask(cluster, "-f", str(job), *words) == 2
    assert why in capsys.readouterr().err


def test_no_variant_that_ever_starts_is_status_1(cluster, job, capsys):
    assert ask(cluster, "-f", str(job), "--queue", "x,y", "-o", "json") == 1
    told = json.loads(capsys.readouterr().out)
    assert [each["options"] for each in told["variants"]] == [{"queue": "x"}, {"queue": "y"}]
    assert not any(each["best"] for each in told["variants"])


def without_kind(cluster, resource):
    """The file as who may not read a kind records it."""
    header, *lines = cluster.read_text().splitlines()
    told = json.loads(header)
    count = told["counts"].pop(resource)
    told["missing"] = [{"resource": resource, "why": "they may not be read", "served": True}]
    before = sum([told["counts"][each] for each in _before(json.loads(header), resource)])
    kept = [*lines[:before], *lines[before + count :]]
    cluster.write_text("\n".join([json.dumps(told), *kept]) + "\n")


def _before(header, resource):
    names = list(header["counts"])
    return names[: names.index(resource)]


def test_what_may_not_be_read_is_told_and_nothing_is_decided_without_nodes(cluster, job, capsys):
    without_kind(cluster, "priorityclasses.scheduling.k8s.io")
    assert ask(cluster, "-f", str(job)) == 0
    said = capsys.readouterr()
    assert "priorityclasses.scheduling.k8s.io are left out: they may not be read" in said.err
    without_kind(cluster, "nodes")
    assert ask(cluster, "-f", str(job)) == 78
    assert "nothing can be decided without nodes: they may not be read" in capsys.readouterr().err


def test_without_a_file_the_usage_is_told(cluster, capsys):
    with pytest.raises(SystemExit) as ended:
        ask(cluster)
    assert ended.value.code == 2
    assert "-f/--filename" in capsys.readouterr().err
