"""``gpusched simulate`` from the command line: inputs, settings side by side, and what is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpusched import API_VERSION
from gpusched.api.meta.identity import parse_time
from gpusched.base.errors import ConfigError, UsageError
from gpusched.cli.lab.simulate.settings import settings
from gpusched.cli.lab.simulate.simulation_report import trouble_lines
from gpusched.cli.main import main
from gpusched.config.model import DEFAULT
from gpusched.engine.from_snapshot import start_from_snapshot
from gpusched.engine.simulation import SimulationCase, run_simulation
from gpusched.io.recordings.snapshot_file import SnapshotFile, write_snapshot
from gpusched.lab.simulate.variations import (
    Variations,
    changeable_names,
    vary_objects,
    wrong_changes,
)

JOBS = """submit_s,duration_s,gpus,queue
0,600,16,a
10,300,8,b
20,60,1,b
"""


@pytest.fixture
def jobs(tmp_path: Path) -> str:
    """Three jobs: the first fills two nodes, the second has to wait or to take its share."""
    path = tmp_path / "jobs.csv"
    path.write_text(JOBS)
    return str(path)


def told(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """What was printed as JSON."""
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_configurations_are_compared_side_by_side(
    jobs: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A queue's share decides who is evicted; the first configuration is what others differ from."""
    # Given two queues that deserve by their use, and one configuration in which all goes to one
    args = ["simulate", "--csv", jobs, "--nodes", "2x8", "-o", "json"]
    more = ["--set", "greedy:placement.solver=greedy", "--set", "greedy:queue.a.deserved=16"]
    more += ["--set", "greedy:queue.b.deserved=0", "--set", "line:fifo=true"]
    # When they are simulated
    assert main([*args, *more, "--report", str(tmp_path / "out")]) == 0
    # Then b's jobs wait under it, as they do in one line
    answer = told(capsys)
    assert [each["name"] for each in answer["configurations"]] == ["now", "greedy", "line"]
    waits = {each["name"]: each["meanWaitByClass"]["5-8-GPUs"] for each in answer["configurations"]}
    assert waits["greedy"] == pytest.approx(591, abs=2)
    assert waits["line"] == pytest.approx(591, abs=2)
    assert waits["now"] < 60
    assert answer["configurations"][0]["evictions"] == 2
    assert answer["configurations"][2]["evictions"] == 0
    assert answer["changedJobs"][0]["job"].startswith("trace/job-")
    page = (tmp_path / "out" / "index.html").read_text()
    assert "greedy" in page
    assert (tmp_path / "out" / "data" / "line" / "jobs.csv").exists()


def test_a_step_gathers_what_comes_within_it(jobs: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Fewer sessions decide; nobody starts later by more than the step."""
    args = ["simulate", "--csv", jobs, "--nodes", "4x8", "-o", "json"]
    assert main(args) == 0
    at_once = told(capsys)["configurations"][0]
    assert main([*args, "--step", "5m"]) == 0
    out = capsys.readouterr()
    gathered = json.loads(out.out)["configurations"][0]
    assert at_once["meanWaitByClass"]["5-8-GPUs"] < 2
    assert at_once["meanWaitByClass"]["5-8-GPUs"] < gathered["meanWaitByClass"]["5-8-GPUs"] <= 302
    assert "starts come up to 5m later than a daemon's" in out.err


def test_a_trace_whose_rows_are_too_far_apart_is_told_in_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One row in seconds since 1970 among rows that count from 0: nobody wants to see half a century pass."""
    path = tmp_path / "jobs.csv"
    path.write_text(JOBS + "1790000000,60,1,a\n")
    assert main(["simulate", "--csv", str(path), "--nodes", "4x8"]) == 78
    said = capsys.readouterr().err
    assert said.startswith(
        f"gpusched: {path}: its rows come over 57 years, from second 0 to second 1790000000,"
    )
    assert "correct the earliest or the latest" in said


@pytest.mark.parametrize("step", ["2h", "soon", "5"])
def test_a_step_that_is_none_is_told_in_one_sentence(
    jobs: str, step: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is read."""
    assert main(["simulate", "--csv", jobs, "--nodes", "4x8", "--step", step]) == 2
    assert capsys.readouterr().err.startswith("gpusched: --step")


def test_a_step_says_nothing_to_a_fill(capsys: pytest.CaptureFixture[str]) -> None:
    """Pods without times are not gathered: the option is refused, not passed over."""
    assert main(["simulate", "--openb", "nodes", "pods", "--fill", "--step", "5m"]) == 2
    assert "--step does not go with --fill" in capsys.readouterr().err


def test_the_table_names_statistics_and_the_bound(
    jobs: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One configuration: waits by class and queue, and the ideal FIFO beside them."""
    assert main(["simulate", "--csv", jobs, "--nodes", "4x8"]) == 0
    out = capsys.readouterr().out
    assert "3 jobs on 4 nodes with 32 GPUs" in out
    assert "wait of an ideal FIFO, mean" in out
    assert "class 1-GPU" in out
    assert "queue b" in out


def test_rows_that_are_passed_over_are_told_and_strictly_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first of each reason with its line, and how many there are; 78 where none is allowed."""
    path = tmp_path / "jobs.csv"
    path.write_text(JOBS + "30,,1,a\n40,,1,a\n")
    assert main(["simulate", "--csv", str(path), "--nodes", "2x8"]) == 0
    assert f"{path}:5: duration_s is missing (and 1 more" in capsys.readouterr().err
    assert main(["simulate", "--csv", str(path), "--nodes", "2x8", "--strict"]) == 78
    assert f"{path}:5: duration_s is missing" in capsys.readouterr().err


def test_queues_that_are_renamed_are_told_and_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The root's name too, and one that is the line's under fifo."""
    path = tmp_path / "jobs.csv"
    path.write_text("submit_s,duration_s,gpus,queue\n0,60,1,root\n0,60,1,fifo\n")
    args = ["simulate", "--csv", str(path), "--nodes", "1x8", "--set", "line:fifo=true"]
    assert main([*args, "-o", "json"]) == 0
    out = capsys.readouterr()
    assert "note: renamed, as an earlier name" in out.err
    answer = json.loads(out.out)
    assert 'queue "root" is root-2' in answer["remarks"][0]
    assert [each["neverStarted"] for each in answer["configurations"]] == [0, 0]
    assert [each["rejectedObjects"] for each in answer["configurations"]] == [0, 0]


def test_objects_that_cannot_be_believed_are_named() -> None:
    """The first few with the reason, and how many more there are."""

    def said(count: int) -> list[str]:
        objects = [
            {"apiVersion": "scheduling.gpusched.io/v1alpha1", "kind": "Queue",
             "metadata": {"name": f"q{number}"}, "spec": {"weight": -1}}
            for number in range(count)
        ]  # fmt: skip
        record = run_simulation(SimulationCase(name="t", config=DEFAULT, objects=objects, until=10))
        return list(trouble_lines([record]))

    (one,) = said(1)
    assert one.startswith("1 object cannot be believed, the daemon would do without: Queue q0: ")
    (five,) = said(5)
    assert five.startswith("5 objects cannot be believed")
    assert "Queue q2: " in five
    assert five.endswith("; and 2 more")


@pytest.mark.parametrize(
    ("args", "status", "says"),
    [
        (["--csv", "nowhere.csv", "--nodes", "2x8"], 78, "nowhere.csv: cannot be read"),
        (["--csv", "JOBS"], 2, "--csv needs --nodes"),
        (["--csv", "JOBS", "--nodes", "many"], 2, "--nodes takes COUNTxGPUS"),
        (
            ["--csv", "JOBS", "--nodes", "2x8", "--set", "x:queue.c.weight=2"],
            78,
            "gpusched: --set x:queue.c.weight=2: there is no such queue; there are a, b",
        ),
        (
            ["--csv", "JOBS", "--nodes", "2x8/1", "--set", "x:topology.required=racks"],
            78,
            "gpusched: --set x:topology.required=racks: the nodes have no such level; there are rack, host",
        ),
        (
            ["--csv", "JOBS", "--nodes", "2x8", "--set", "x:topology.preferred=rack"],
            78,
            "the nodes have no such level; there are host",
        ),
        (
            ["--csv", "JOBS", "--nodes", "2x8", "--set", "x:placement.solver=best"],
            78,
            "gpusched: --set x: solver must be one of",
        ),
        (
            ["--csv", "JOBS", "--nodes", "2x8", "--set", "x:queue.a.priority=99999999999"],
            2,
            "priority is a whole number from 0 to 999,999,999",
        ),
        (
            ["--csv", "JOBS", "--nodes", "2x8", "--set", "x:walltimes=foo"],
            2,
            "gpusched: --set x:walltimes=foo: walltimes is truth or nothing",
        ),
        (
            ["--csv", "JOBS", "--nodes", "2x8", "--set", "x:fifo=yes"],
            2,
            "gpusched: --set x:fifo=yes: fifo is true or false",
        ),
        (["--csv", "JOBS", "--nodes", "2x8", "--config", "a=nowhere.yaml"], 78, "nowhere.yaml"),
        (["--csv", "JOBS", "--nodes", "2x8", "--for", "soon"], 2, "is not a duration"),
        (
            ["--csv", "JOBS", "--nodes", "2x8", "--for", "2000000h"],
            2,
            "--for 2000000h: at most 3,660 days",
        ),
        (["--csv", "JOBS", "--nodes", "2x8", "--jobs", "10"], 2, "--jobs goes with --generate"),
        (["--csv", "JOBS", "--nodes", "2x8", "--days", "3"], 2, "--days goes with --generate"),
        (["--csv", "JOBS", "--nodes", "2x8", "--grace", "3s"], 2, "--grace goes with --snapshot"),
        (
            ["--csv", "JOBS", "--nodes", "2x8", "--assume-duration", "1h"],
            2,
            "--assume-duration goes with --snapshot",
        ),
        (
            ["--csv", "JOBS", "--nodes", "2x8", "--seed", "5"],
            2,
            "--seed goes with --generate or --fill",
        ),
        (
            ["--snapshot", "JOBS", "--suspend"],
            2,
            "--suspend goes with --csv or --philly or --generate",
        ),
        (["--generate", "m6", "--strict"], 2, "--strict goes with --csv or --philly or --openb"),
        (["--openb", "JOBS", "JOBS", "--fill", "--strict"], 2, "--strict does not go with --fill"),
        (["--openb", "JOBS", "JOBS", "--fill", "--first", "3"], 2, "do not go with --fill"),
        (
            ["--csv", "JOBS", "--nodes", "2x8", "--report", ""],
            2,
            "an empty text names no file or folder",
        ),
        (["--snapshot", "JOBS"], 78, "is no snapshot"),
        (
            ["--generate", "philly", "--jobs", "0"],
            2,
            "--jobs takes a number from 1 to 1,000,000, not 0",
        ),
        (
            ["--generate", "philly", "--jobs", "9" * 20],
            2,
            "--jobs takes a number from 1 to 1,000,000",
        ),
        (["--generate", "m6", "--jobs", "9" * 20], 2, "--jobs takes a number from 1 to 1,000,000"),
        (
            ["--generate", "philly", "--days", "nan"],
            2,
            "--days takes a number above 0 and up to 3,660, not nan",
        ),
        (["--generate", "m6", "--days", "inf"], 2, "up to 3,660, not inf"),
        (["--generate", "philly", "--days", "1e300"], 2, "up to 3,660, not 1e+300"),
        (["--generate", "philly", "--days", "-1"], 2, "up to 3,660, not -1"),
        ([], 2, "one of the arguments"),
    ],
)
def test_mistakes_are_one_sentence(
    jobs: str, args: list[str], status: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the exit status of the contract."""
    words = [jobs if word == "JOBS" else word for word in args]
    try:
        found = main(["simulate", *words])
    except SystemExit as ended:
        found = int(ended.code or 0)
    assert found == status
    assert says in capsys.readouterr().err


def test_a_level_is_one_of_the_cluster_or_a_label_of_its_nodes() -> None:
    """Of several Topology objects the one that counts says which levels there are."""

    def topology(name: str, *levels: str) -> dict[str, Any]:
        spec = {"levels": [{"name": each, "nodeLabel": f"x/{each}"} for each in levels]}
        return {
            "apiVersion": API_VERSION,
            "kind": "Topology",
            "metadata": {"name": name},
            "spec": spec,
        }

    node = {"kind": "Node", "metadata": {"name": "n", "labels": {"x/hall": "1"}}}
    foreign = {**topology("aa", "pod"), "apiVersion": "kai.scheduler/v1alpha1"}
    assert changeable_names([node, foreign]).levels == ("host",)
    names = changeable_names(
        [node, foreign, topology("a", "rack"), topology("default", "row", "seat")]
    )
    assert names.levels == ("row", "seat")
    wrong = [
        [*wrong_changes(Variations(topology={"required": level}), names)]
        for level in ("seat", "x/hall", "rack")
    ]
    assert wrong[:2] == [[], []]
    assert wrong[2] == [("topology.required", "the nodes have no such level; there are row, seat")]


@pytest.mark.parametrize(
    "text",
    ["greedy", ":a=b", "x:", "x:queue.a=3", "x:queue.a.size=3", "x:queue.a.deserved=much",
     "x:queue.a.ordering=Random", "x:colour=red", "x:walltimes=maybe", "x:queue.a.maxWait=soon"],
)  # fmt: skip
def test_settings_that_cannot_be_understood_are_refused(text: str) -> None:
    """The sentence quotes what was given."""
    with pytest.raises(UsageError, match=r"--set"):
        settings([], [text])


def test_a_policy_can_be_changed_under_a_file_that_names_none(tmp_path: Path) -> None:
    """A configuration without tiers has the shipped ones, so that their arguments can be set."""
    file = tmp_path / "rest.yaml"
    file.write_text("limits: {reservationWindow: 7m}\n")
    base, changed = settings([f"base={file}"], ["x:plugins.nodeorder.strategy=spread"])
    shipped, same = settings([], ["now:fifo=false", "x:plugins.nodeorder.strategy=spread"])
    assert base.config.tiers == shipped.config.tiers
    assert changed.config.tiers == same.config.tiers != base.config.tiers
    assert changed.config.limits == base.config.limits != shipped.config.limits


def test_settings_change_what_they_name_and_nothing_else() -> None:
    """Dotted keys of the configuration, arguments of plugins, actions; wrong ones are told."""
    first, other = settings(
        [],
        ["x:placement.solver=greedy", "x:plugins.nodeorder.strategy=spread",
         "x:actions=enqueue,allocate", "x:queue.team.a.deserved=16", "x:topology.required=rack"],
    )  # fmt: skip
    assert first.name == "now"
    assert other.config.placement.solver == "greedy"
    assert other.config.actions == ("enqueue", "allocate")
    choices = {
        each.name: dict(each.arguments) for tier in other.config.tiers for each in tier.plugins
    }
    assert choices["nodeorder"] == {"strategy": "spread"}
    assert other.changes.queues == (("team.a", "deserved", 16),)
    assert other.changes.topology == {"required": "rack"}
    with pytest.raises(ConfigError, match="solver"):
        settings([], ["x:placement.solver=best"])
    with pytest.raises(UsageError, match="more than the 6"):
        settings([], [f"c{number}:fifo=true" for number in range(7)])


def cluster(path: Path) -> None:
    """A recorded cluster: one node full, one job that waits and one that runs for an hour more."""
    offer = {"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": "8"}

    def meta(name: str, number: int, **more: Any) -> dict[str, Any]:
        base = {
            "name": name, "uid": f"{number:08d}-0000-4000-8000-000000000000",
            "resourceVersion": str(number), "creationTimestamp": "2026-11-21T11:00:00Z",
        }  # fmt: skip
        return {**base, **more}

    container = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": "8"},
                 "requests": {"nvidia.com/gpu": "8"}}}  # fmt: skip
    spec = {"schedulerName": "gpusched", "containers": [container]}

    def job(name: str, number: int, *, suspend: bool) -> dict[str, Any]:
        notes = {"gpusched.io/expected-duration": "2h"}
        return {
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": meta(name, number, namespace="team", annotations=notes,
                             labels={"gpusched.io/queue": "q"}),
            "spec": {"parallelism": 1, "completions": 1, "completionMode": "Indexed",
                     "suspend": suspend, "template": {"spec": spec}},
        }  # fmt: skip

    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "old", "controller": True,
             "uid": "00000003-0000-4000-8000-000000000000"}  # fmt: skip
    pod = {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": meta("old-0", 5, namespace="team", ownerReferences=[owner],
                         labels={"batch.kubernetes.io/job-completion-index": "0"},
                         annotations={"gpusched.io/slots": "0,1,2,3,4,5,6,7", "gpusched.io/fence": "a/1"}),
        "spec": {**spec, "nodeName": "n-0"},
        "status": {"phase": "Running", "conditions": [
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-11-21T11:00:00Z"}
        ]},
    }  # fmt: skip
    objects: dict[str, list[dict[str, Any]]] = {
        "queues.scheduling.gpusched.io": [{
            "apiVersion": "scheduling.gpusched.io/v1alpha1", "kind": "Queue",
            "metadata": meta("q", 1), "spec": {"deserved": {"nvidia.com/gpu": "8"}},
        }],
        "nodes": [{
            "apiVersion": "v1", "kind": "Node", "metadata": meta("n-0", 2),
            "status": {"allocatable": offer, "capacity": offer,
                       "conditions": [{"type": "Ready", "status": "True"}]},
        }],
        "jobs.batch": [job("old", 3, suspend=False), job("new", 4, suspend=True)],
        "pods": [pod],
    }  # fmt: skip
    header = SnapshotFile(
        path="",
        taken_at=parse_time("2026-11-21T12:00:00Z"),
        server="v1.36.1",
        recorder="test",
        objects={},
    )
    lines = {kind: [json.dumps(each).encode() for each in items] for kind, items in objects.items()}
    with path.open("wb") as file:
        write_snapshot(file, header, lines)


def test_a_recorded_cluster_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Who runs ends when it is expected to; who waits starts then; more nodes would start it now."""
    path = tmp_path / "cluster.json"
    cluster(path)
    assert main(["simulate", "--snapshot", str(path), "--for", "2h"]) == 0
    out = capsys.readouterr().out
    assert "1 jobs start, 0 wait at the end, 0 pods are evicted" in out
    assert "starts   team/new   after 1h" in out
    assert main(["simulate", "--snapshot", str(path), "--for", "30m"]) == 0
    out = capsys.readouterr().out
    assert "0 jobs start, 1 wait at the end" in out
    assert "waits   team/new   InsufficientResources: needs 1 pod with 8 nvidia.com/gpu" in out


def test_pods_that_say_how_long_they_run_are_told() -> None:
    """A remark counts those of whom nothing tells when they end, and nobody else."""
    objects = {"pods": tuple(
        {"kind": "Pod", "metadata": {"name": name, "annotations": notes},
         "spec": {"nodeName": "n"}, "status": {"phase": "Running"}}
        for name, notes in (("told", {"gpusched.io/run-for": "30m"}), ("untold", {}))
    )}  # fmt: skip
    recorded = SnapshotFile(path="", taken_at=0.0, server="", recorder="", objects=objects)
    (remark,) = start_from_snapshot(recorded).remarks
    assert remark.startswith("of 1 running pods nothing tells when they end")


@pytest.mark.parametrize("deadline", ["soon", {}, -5, [3]])
def test_a_deadline_that_is_none_ends_nothing(deadline: Any) -> None:
    """Given a pod and its Job of a file that somebody wrote by hand, then it runs as if neither had one."""
    owner = {"kind": "Job", "name": "train", "controller": True}
    pod = {
        "kind": "Pod", "metadata": {"name": "p", "namespace": "a", "ownerReferences": [owner]},
        "spec": {"nodeName": "n", "activeDeadlineSeconds": deadline}, "status": {"phase": "Running"},
    }  # fmt: skip
    job = {
        "kind": "Job", "metadata": {"name": "train", "namespace": "a"},
        "spec": {"activeDeadlineSeconds": 60, "template": None},
    }  # fmt: skip
    file = SnapshotFile(path="", taken_at=0.0, server="", recorder="", objects={"all": (pod, job)})
    assert start_from_snapshot(file).untold == 0
    job["spec"]["activeDeadlineSeconds"] = deadline
    assert start_from_snapshot(file).untold == 1


@pytest.mark.parametrize(
    ("value", "job", "group"), [("truth", "5m", "3m"), ("nothing", None, None), (None, "2m", "3m")]
)
def test_walltimes_are_those_of_the_setting_or_as_the_input_has_them(
    value: str | None, job: str | None, group: str | None
) -> None:
    """Given a Job and a PodGroup that tell their run times, as those of experiment M6 do, then nothing is told where that is asked for."""
    key, template = "gpusched.io/expected-duration", {"gpusched.io/run-for": "5m"}
    made = {
        "kind": "Job", "metadata": {"name": "j", "annotations": {key: "2m"}},
        "spec": {"template": {"metadata": {"annotations": template}}},
    }  # fmt: skip
    grouped = {
        "kind": "PodGroup", "metadata": {"name": "g"}, "spec": {"expectedDuration": "3m"}
    }  # fmt: skip
    (setting,) = settings([], [f"now:walltimes={value}"] if value else [])
    one, other = vary_objects([made, grouped], setting.changes)
    assert one["metadata"]["annotations"].get(key) == job
    assert other["spec"].get("expectedDuration") == group
