"""``get history``: runs and sums from the daemon's file, as tables and for other programs."""

from __future__ import annotations

import csv
import io
import json
import sys

import pytest
import yaml

from gpusched.api.meta.identity import UID, GangKey
from gpusched.base.clock import SystemClock
from gpusched.cli.main import main
from gpusched.io.history.gang_run import GangRun, run_as_row
from gpusched.io.history.history_store import HistoryStore

HOUR = 3600.0


def make_run(name, began_ago, *, namespace="team-a", **changes):
    """A run of two hours on four GPUs, after a wait of one."""
    since = SystemClock().now() - began_ago * HOUR
    terms = {
        "queue": "research", "priority": 0, "min_member": 2, "members": 2, "gpus": 4_000,
        "created": since, "since": since, "admitted": since, "started": since + HOUR,
        "ended": since + 3 * HOUR, "outcome": "Succeeded", "gpu_seconds": {"H100": 8 * HOUR},
    }  # fmt: skip
    return GangRun(
        gang=GangKey("PodGroup", namespace, name), uid=UID(name), seen=since, **(terms | changes)
    )


@pytest.fixture
def file(tmp_path, monkeypatch):
    """Runs of two namespaces, and a kubeconfig whose namespace is team-a."""
    kubeconfig = {
        "apiVersion": "v1", "kind": "Config", "current-context": "here", "users": [],
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "", "namespace": "team-a"}}],
    }  # fmt: skip
    (tmp_path / "kubeconfig").write_text(json.dumps(kubeconfig))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    store = HistoryStore(tmp_path / "history.db")
    runs = [
        make_run("train", 100),
        make_run(
            "sweep", 50, outcome="Preempted", evictions=2, repeated_evictions=3, lost_gpu_seconds=2 * HOUR,
            ended_by="Job team-b/urgent", reason="preempted for team-b/urgent",
        ),
        make_run("other", 20, namespace="team-b", gpu_seconds={"A100": HOUR, "H100": HOUR}),
        make_run("evil", 10, namespace="team-b", queue="x", reason="a\x1b[31m\u202eb"),
    ]  # fmt: skip
    store.put([run_as_row(run) for run in runs])
    store.close()
    return str(tmp_path / "history.db")


def printed(capsys, *words):
    """What a good call prints."""
    assert main(["get", "history", *words]) == 0
    return capsys.readouterr().out


def test_a_table_of_ones_own_namespace(file, capsys):
    """Given no scope, then the runs of the context's namespace, by their ends."""
    header, train, sweep = printed(capsys, "--file", file).splitlines()
    assert header.split() == [
        "NAME", "KIND", "QUEUE", "STATE", "PODS", "GPUS", "SINCE", "WAIT", "RUN", "EVICTIONS",
        "GPU-HOURS", "ENDED-BY",
    ]  # fmt: skip
    assert train.split()[:6] == ["train", "PodGroup", "research", "Succeeded", "2", "4"]
    assert train.split()[7:] == ["1h", "2h", "0", "8.00"]
    assert sweep.endswith("2           8.00        Job team-b/urgent")


def test_wide_has_how_often_a_gang_was_evicted_before(file, capsys):
    """Given a gang that was evicted for the fourth time, then 3 stands beside its evictions; JSON and CSV have it."""
    header, train, sweep = printed(capsys, "--file", file, "-o", "wide").splitlines()
    place = header.index("REPEATED")
    assert [line[place:].split()[0] for line in (train, sweep)] == ["0", "3"]
    rows = csv.DictReader(io.StringIO(printed(capsys, "--file", file, "-o", "csv")))
    assert [row["repeatedEvictions"] for row in rows] == ["0", "3"]


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["-A"], ["train", "sweep", "other", "evil"]),
        (["-n", "team-b"], ["other", "evil"]),
        (["-A", "--state", "Preempted"], ["sweep"]),
        (["-A", "--queue", "x"], ["evil"]),
        (["-A", "--since", "2d"], ["sweep", "other", "evil"]),
        (["-A", "--since", "60h", "--until", "18h"], ["sweep", "other"]),
        (["-A", "--sort-by", "evictions"], ["sweep", "train", "other", "evil"]),
        (["-A", "--sort-by", "name"], ["sweep", "train", "evil", "other"]),
        (["-A", "--created-by", "somebody"], []),
    ],
)
def test_runs_are_selected_and_sorted(file, capsys, words, names):
    """Given a filter or an order, then JSON holds these runs in this order."""
    found = json.loads(printed(capsys, "--file", file, "-o", "json", *words))
    assert [each["metadata"]["name"] for each in found["items"]] == names


def test_the_latest_are_shown_and_that_there_are_more(file, capsys):
    """Given a limit, then the runs with the latest ends, and a word about the others."""
    assert main(["get", "history", "--file", file, "-A", "--limit", "1", "-o", "csv"]) == 0
    told = capsys.readouterr()
    assert [row["name"] for row in csv.DictReader(io.StringIO(told.out))] == ["evil"]
    assert "only the latest 1 runs are shown; --limit 0 shows all" in told.err


def test_sums_by_gpu_type_split_a_run_on_several(file, capsys):
    """Given a run on two types, then each has its hours."""
    found = yaml.safe_load(printed(capsys, "--file", file, "-A", "--by", "gpu-type", "-o", "yaml"))
    hours = {each["name"]: (each["runs"], each["gpuHours"]) for each in found["items"]}
    assert hours == {"A100": (1, 1.0), "H100": (4, 25.0)}
    lines = printed(capsys, "--file", file, "-A", "--by", "queue").splitlines()
    assert lines[0].split()[:3] == ["QUEUE", "RUNS", "STARTED"]
    assert lines[1].split() == ["research", "3", "3", "1h", "1h", "2h", "2", "18.0", "2.00"]


def test_foreign_text_does_not_reach_a_terminal_raw(file, capsys):
    """Given control characters and marks of direction, then tables, CSV and YAML are without."""
    for how in ("wide", "csv", "yaml", "json"):
        shown = printed(capsys, "--file", file, "-A", "-o", how)
        assert "\x1b" not in shown
        assert "\u202e" not in shown


def test_parquet_has_typed_columns(file, capfdbinary, monkeypatch):
    """Given pyarrow, then times are times and hours are numbers; nothing at all is a table, too."""
    parquet = pytest.importorskip("pyarrow.parquet")
    for words, rows in ((["-A"], 4), (["--queue", "none"], 0)):
        out = io.TextIOWrapper(io.BytesIO())
        monkeypatch.setattr(sys, "stdout", out)
        assert main(["get", "history", "--file", file, "-o", "parquet", *words]) == 0
        found = parquet.read_table(io.BytesIO(out.buffer.getvalue()))
        assert found.num_rows == rows
        assert str(found.schema.field("started").type) == "timestamp[ms, tz=UTC]"
        assert str(found.schema.field("gpuHours").type) == "double"


def test_without_pyarrow_one_sentence_says_what_to_do(file, capsys, monkeypatch):
    """Given a bare installation, then the extra is named."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert main(["get", "history", "--file", file, "-o", "parquet"]) == 78
    assert "pip install 'gpusched[history]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "status", "sentence"),
    [
        (["history"], 69, "--file FILE reads the file of gpusched run --history"),
        (["history", "--file", "/nowhere/h.db"], 78, "/nowhere/h.db: there is no history"),
        (["history", "--since", "soon", "--file", "x"], 2, "--since takes a time such as"),
        (["history", "--since", "1h", "--until", "2h", "--file", "x"], 2, "must be before --until"),
        (["history", "--limit", "-1", "--file", "x"], 2, "--limit takes a number from 0, not -1"),
        (["history", "--start", "--file", "x"], 2, "--start is for jobs"),
        (["queues", "--by", "queue"], 2, "--by is for history"),
        (["nodes", "-o", "csv"], 2, "-o csv is for history"),
        (["jobs", "--sort-by", "gpu-hours"], 2, "jobs are sorted by name, queue"),
    ],
)
def test_what_cannot_be_is_one_sentence(file, capsys, words, status, sentence):
    """Given what means nothing, then the sentence says what to do."""
    assert main(["get", *words]) == status
    told = capsys.readouterr().err
    assert sentence in told
    assert told.count("\n") == 1


def test_without_a_kubeconfig_there_is_one_sentence(tmp_path, monkeypatch, capfd):
    """Given no kubeconfig anywhere and a file that is no history: nothing is said beside that."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    (tmp_path / "text").write_text("no history")
    assert main(["get", "history", "--file", str(tmp_path / "text")]) == 78
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1)
