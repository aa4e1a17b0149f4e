"""``gpusched what-if`` as an admin types it: the document's example, and what cannot be asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpusched.cli.main import main
from tests.advice.clusters import gang, write_file
from tests.lab.whatif.cases import answer_of, example_objects, write_example

DOCUMENT = Path(__file__).parents[3] / "docs/what-if.md"


@pytest.fixture
def example(tmp_path, monkeypatch):
    """The cluster of docs/what-if.md, as the file that the document names."""
    monkeypatch.chdir(tmp_path)
    write_example(tmp_path / "cluster.json")


def test_the_document_shows_what_is_printed(example, capsys):
    # Given the command that the document shows
    shown = DOCUMENT.read_text().split("```\n$ gpusched ")[1].split("```")[0]
    command, _, printed = shown.partition("\n")
    # When it is run, its answer is what the document prints
    assert main(command.split()) == 0
    assert capsys.readouterr().out == printed


def test_a_drain_empties_nodes_and_gives_them_back(example, capsys):
    """The same for programs: pods are evicted at the moment, and nothing starts there before the end."""
    words = ["--drain", "gpu-1,gpu-2", "--from", "+1h", "--for", "30m", "-o", "json"]
    assert main(["what-if", "--snapshot", "cluster.json", *words]) == 0
    told = answer_of(capsys)
    assert told["changes"] == [
        "gpu-1, gpu-2 are drained from 2027-01-15T09:00:00Z until 2027-01-15T09:30:00Z"
    ]
    assert [(gang["gang"], gang["why"]) for gang in told["evicted"]] == [("team/eval", "Reserved")]
    assert told["evicted"][0]["lostGpuHours"] == pytest.approx(4.0)
    figures = {row["name"]: (row["asItIs"], row["changed"]) for row in told["figures"]}
    assert figures["pods evicted for windows"] == (0, 1)
    assert figures["gangs that start"][0] == 3


def test_more_nodes_let_gangs_start_earlier(example, capsys):
    words = ["--add-nodes", "2", "like", "gpu-0", "rack=r8", "-o", "json"]
    assert main(["what-if", "--snapshot", "cluster.json", *words]) == 0
    told = answer_of(capsys)
    assert told["changes"] == ["2 nodes are added like gpu-0, rack=r8"]
    starts = {gang["gang"]: gang for gang in told["starts"]}
    assert starts["team/rank"]["changed"] == "2027-01-15T08:00:00Z"
    assert all(gang["laterSeconds"] < 0 for gang in told["starts"])
    assert any("etter for queue prod" in each for each in told["sentences"])


def test_lost_nodes_take_their_pods_along(example, capsys):
    words = ["--lose", "gpu-0", "--at", "+2h", "-o", "json"]
    assert main(["what-if", "--snapshot", "cluster.json", *words]) == 0
    told = answer_of(capsys)
    assert [(gang["gang"], gang["why"], gang["lostGpuHours"]) for gang in told["evicted"]] == [
        ("team/llm", "NodeLost", 16.0)
    ]
    # What ran there is made anew by its Job and runs elsewhere.
    figures = {row["name"]: (row["asItIs"], row["changed"]) for row in told["figures"]}
    assert figures["gangs that wait at the end"] == (0, 0)


def test_gangs_that_find_no_place_again_wait_at_the_end(example, capsys):
    """Given nodes that are drained for good, then a gang that may run on these alone waits from its eviction on."""
    objects = example_objects()
    for each in objects:
        if each["kind"] in ("Job", "Pod") and each["metadata"]["name"].startswith("eval"):
            spec = each["spec"] if each["kind"] == "Pod" else each["spec"]["template"]["spec"]
            spec["nodeSelector"] = {"gpusched.io/rack": "r7"}
    write_file(Path("bound.json"), objects)
    words = ["--snapshot", "bound.json", "--drain", "rack=r7", "--from", "+1h", "-o", "json"]
    assert main(["what-if", *words]) == 0
    told = answer_of(capsys)
    figures = {row["name"]: (row["asItIs"], row["changed"]) for row in told["figures"]}
    assert figures["gangs that wait at the end"] == (0, 1)
    lost = "worse for queue research: gangs lose their places and still wait at the end: team/eval"
    assert lost in told["sentences"]


@pytest.mark.parametrize(("phase", "waiting"), [("Completed", 0), ("Pending", 1)])
def test_groups_whose_work_is_done_do_not_wait(example, capsys, phase, waiting):
    """Given PodGroups that stay when their pods have ended, then those count alone that have not run."""
    objects = [*example_objects(), *gang("past", 1, 8, queue="prod")]
    group, pod = objects[-2:]
    group["status"], pod["status"] = {"phase": phase}, {"phase": "Succeeded"}
    write_file(Path("past.json"), objects)
    words = ["--snapshot", "past.json", "--set", "queue/prod.weight=2", "-o", "json"]
    assert main(["what-if", *words]) == 0
    told = answer_of(capsys)
    figures = {row["name"]: (row["asItIs"], row["changed"]) for row in told["figures"]}
    assert figures["gangs that wait at the end"] == (waiting, waiting)
    assert (figures["wait, longest"][0] == 24 * 3600) == bool(waiting)


def test_a_group_that_is_done_and_used_again_waits_again(example, capsys):
    """Given a Job for a PodGroup whose members had ended, then its start is looked for."""
    objects = [*example_objects(), *gang("past", 1, 8, queue="prod")]
    objects[-2]["status"] = {"phase": "Completed"}
    write_file(Path("past.json"), objects)
    words = ["--snapshot", "past.json", "--set", "queue/prod.weight=2", "-o", "json"]
    assert main(["what-if", *words]) == 0
    figures = {row["name"]: row["asItIs"] for row in answer_of(capsys)["figures"]}
    assert figures["gangs that start"] == 4


def test_nodes_that_are_lost_at_once_break_no_invariant(example, capsys):
    """What ran there had its minimum until then."""
    assert main(["what-if", "--snapshot", "cluster.json", "--lose", "gpu-3", "-o", "json"]) == 0
    assert [gang["gang"] for gang in answer_of(capsys)["evicted"]] == ["team/serve"]


def test_no_change_in_effect_is_told_as_none(example, capsys):
    words = ["--set", "queue/research.deserved=16", "--top", "3"]
    assert main(["what-if", "--snapshot", "cluster.json", *words]) == 0
    out = capsys.readouterr().out
    assert "deserved.nvidia.com/gpu is 16 (now 16)" in out
    assert "Each of the 6 gangs of both starts when it would anyway, within a minute." in out


def test_what_the_daemon_will_say_of_a_queue_is_told(example, capsys):
    """A parent that is not there is accepted by the API server, and freezes the queue."""
    words = ["--set", "queue/research.parent=labs", "-o", "json"]
    assert main(["what-if", "--snapshot", "cluster.json", *words]) == 0
    told = answer_of(capsys)
    (remark,) = [each for each in told["changes"] if each.startswith("the daemon will say")]
    assert "parent queue 'labs' of 'research' does not exist; create it" in remark
    figures = {row["name"]: (row["asItIs"], row["changed"]) for row in told["figures"]}
    assert figures["gangs that wait at the end"] == (0, 2)


def test_queues_in_a_ring_end_the_play_as_they_stop_the_daemon_from_serving_them(example, capsys):
    """What ran in them gives back its GPUs, and what waits there goes on waiting."""
    ring = ["--set", "queue/research.parent=prod", "--set", "queue/prod.parent=research"]
    # Given queues that become each other's parents, while gangs of both run and end
    assert main(["what-if", "--snapshot", "cluster.json", *ring, "-o", "json"]) == 0
    told = answer_of(capsys)
    # When it is played, then it comes to its end, and says what the daemon will
    assert any("queues form a cycle" in each for each in told["changes"])
    figures = {row["name"]: (row["asItIs"], row["changed"]) for row in told["figures"]}
    assert figures["gangs that start"] == (3, 0)


def test_a_tenants_load_doubles_what_comes(example, tmp_path, capsys):
    """Jobs of a file come in both; where it is changed, one queue has twice as many of them."""
    (tmp_path / "jobs.csv").write_text(
        "submit_s,duration_s,gpus,queue\n60,600,8,research\n120,600,4,prod\n130,600,4,gone\n"
    )
    words = ["--arrivals", "jobs.csv", "--load", "queue/research*2", "-o", "json"]
    assert main(["what-if", "--snapshot", "cluster.json", *words]) == 0
    told = answer_of(capsys)
    assert told["arrivals"] == {"asItIs": 3, "changed": 4}
    lost = "1 of the jobs that arrive wait for ever, in queues that are not there or have child queues: gone"
    assert lost in told["assumptions"]
    assert "2 times the load of queue research (1 jobs become 2)" in told["changes"]
    assert any(each.startswith("1 gangs are there that are not") for each in told["sentences"])


def test_the_page_has_the_question_and_both_clusters(example, tmp_path, capsys):
    words = ["--drain", "rack=r7", "--report", str(tmp_path / "out")]
    assert main(["what-if", "--snapshot", "cluster.json", *words]) == 0
    page = (tmp_path / "out" / "index.html").read_text()
    for text in (
        "What if gpu-2, gpu-3 are drained",
        "What is assumed",
        "Who held which GPU when",
        "idle while a gang waits",
    ):
        assert text in page
    assert (tmp_path / "out" / "data" / "changed" / "jobs.csv").exists()
    assert "report:" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([], "what if what? Name a change"),
        (["--drain", "gpu-9"], 'there is no node "gpu-9"; did you mean "gpu-'),
        (["--drain", "rak=r7"], 'no node has a label "rak"; levels are rack, host; did you mean "rack"'),
        (["--drain", "rack=r9"], "no node has gpusched.io/rack=r9; values are r6, r7"),
        (["--drain", "rack=r7", "--drain", "gpu-2"], "node gpu-2 is drained twice"),
        (["--lose", "gpu-1", "--drain", "gpu-1", "--from", "+1h"], "it is lost at 2027-01-15T08:00:00Z"),
        (["--lose", "gpu-1", "--lose", "gpu-*"], "node gpu-1 is lost twice"),
        (["--drain", "gpu-1", "--from", "2020-01-01T00:00:00Z"], "has passed: the cluster is of"),
        (["--drain", "gpu-1", "--from", "25:00"], "--from takes a time such as 22:00"),
        (["--drain", "gpu-1", "--for", "soon"], "is not a duration"),
        (["--drain", "gpu-1", "--from", "+2d", "--until", "1d"], "is before a change at"),
        (["--drain", "gpu-1", "--until", "9000d"], "up to a year can be played"),
        (["--from", "22:00"], "--from 22:00: of which change?"),
        (["--lose", "gpu-1", "--for", "2h"], "a --lose takes --at"),
        (["--add-nodes", "many"], "--add-nodes takes COUNT:like=NODE"),
        (["--add-nodes", "9" * 30, "like", "gpu-0"], "from 1 to 10,000 nodes"),
        (["--add-nodes", "4:like=gpu-7"], 'there is no node "gpu-7"'),
        (["--gpu-type", "gpu-0"], "--gpu-type takes NODES=PRODUCT"),
        (["--gpu-type", "gpu-0=A", "--gpu-type", "gpu-*=B"], "gets GPUs of type A and B"),
        (["--set", "queue/resarch.deserved=1"], 'no queue "resarch"; did you mean "research"'),
        (["--set", "queue/research.wieght=1"], 'no field "wieght"'),
        (["--set", "queue/research.deserved=-1"], "the API server refuses it: spec.deserved"),
        (["--set", "queue/research.weight=1" + "0" * 30], "a number of 31 digits"),
        (["--set", "queue/research.capability=8"], "deserved must not exceed capability"),
        (["--set", "podgroup/team/x.minMember=1"], 'no podgroup "team/x"'),
        (["--set", "node/gpu-0.x=1"], "kinds are queue and podgroup"),
        (["--set", "queue/prod.weight=2", "--set", "queue/prod.weight=3"], "contradicts --set"),
        (["--load", "queue/prod*2"], "nothing arrives that could be more"),
        (["--new-config", "nowhere.yaml", "--drain", "gpu-1"], "nowhere.yaml"),
        (["--drain", "gpu-1", "--history", "nowhere.db"], "there is no history"),
    ],
)  # fmt: skip
def test_what_cannot_be_asked_is_one_sentence(example, capsys, words, why):
    assert main(["what-if", "--snapshot", "cluster.json", *words]) in (2, 69, 78)
    said = capsys.readouterr().err
    assert why in said
    assert said.count("\n") == 1


def test_a_cluster_that_cannot_be_read_is_told(tmp_path, capsys):
    (tmp_path / "none.json").write_text("{}")
    assert main(["what-if", "--snapshot", str(tmp_path / "none.json"), "--drain", "gpu-1"]) == 78
    assert "is no snapshot" in capsys.readouterr().err
