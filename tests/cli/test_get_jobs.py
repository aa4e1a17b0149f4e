"""``get jobs``, over real HTTP against canned answers: all that waits and runs, whatever made it."""

from __future__ import annotations

import json

import pytest

from gpusched.cli.main import main
from tests.cli.canned_objects import (
    API,
    NATIVE,
    SENTENCE,
    group,
    native_group,
    serve_native_groups,
)

OF_TEAM = "namespaces/team-a"


def member(
    name, *, node="", labels=None, said="", scheduler="gpusched", namespace="team-a", **more
):
    """A pod of one GPU, with a node or with the sentence why it has none."""
    conditions = [{"type": "PodScheduled", "status": "False", "reason": "NoRoom", "message": said}]
    amounts = {"nvidia.com/gpu": "1", "cpu": "1"}
    return {
        "metadata": {
            "name": name, "namespace": namespace, "uid": f"uid-{name}", "resourceVersion": "1",
            "labels": labels or {}, "creationTimestamp": "2001-01-01T00:00:00Z", **more,
        },
        "spec": {
            "schedulerName": scheduler,
            "containers": [{"name": "c", "resources": {"requests": amounts, "limits": amounts}}],
            **({"nodeName": node} if node else {}),
        },
        "status": {
            "phase": "Running" if node else "Pending", "conditions": conditions if said else [],
        },
    }  # fmt: skip


def of_group(name, number, **more):
    """A member of a PodGroup of ours."""
    return member(f"{name}-{number}", labels={"gpusched.io/pod-group": name}, **more)


def whole(made):
    """A PodGroup with what the server adds to it."""
    made["metadata"] |= {"uid": f"uid-{made['metadata']['name']}", "resourceVersion": "1"}
    return made


@pytest.fixture
def filled(cluster):
    """A gang that runs, one that waits, a lone pod that waits, and pods of another scheduler."""
    waits = {"type": "Scheduled", "status": "False", "reason": "NoRoom", "message": SENTENCE}
    cluster.objects |= {
        "/api/v1/namespaces": [], f"{API}/queues": [],
        "/apis/scheduling.k8s.io/v1/priorityclasses": [],
        f"/apis/batch/v1/{OF_TEAM}/jobs": [], "/apis": {"groups": []},
        f"{API}/{OF_TEAM}/podgroups": [
            whole(group("runs")),
            whole(
                group(
                    "waits", conditions=[waits], queuePosition=3,
                    estimatedStartTime="2030-01-01T10:00:00Z",
                )
            ),
        ],
        f"/api/v1/{OF_TEAM}/pods": [
            *(of_group("runs", number, node=f"n{number}") for number in range(4)),
            *(of_group("waits", number, said=SENTENCE) for number in range(4)),
            member("alone", said="needs 1 pod"),
            member("theirs", scheduler="default-scheduler"),
        ],
    }  # fmt: skip
    return cluster


def shown(capsys):
    """Lines of a table, each by the titles of its columns."""
    header, *lines = capsys.readouterr().out.splitlines()
    starts = [header.index(title) for title in header.split()]
    ends = [*starts[1:], None]
    return [
        {
            title: line[start:end].strip()
            for title, start, end in zip(header.split(), starts, ends, strict=True)
        }
        for line in lines
    ]


def test_everything_that_waits_and_runs_has_a_line(filled, capsys):
    """Given gangs of several makes, then each has a line, and pods of other schedulers have none."""
    assert main(["get", "jobs"]) == 0
    lines = {each["NAME"]: each for each in shown(capsys)}
    assert [*lines] == ["alone", "runs", "waits"]
    assert (lines["runs"]["STATE"], lines["runs"]["PODS"]) == ("Running", "4/4")
    assert (lines["runs"]["KIND"], lines["runs"]["GPUS"]) == ("PodGroup", "4")
    assert (lines["waits"]["STATE"], lines["waits"]["REASON"]) == ("Waiting", "NoRoom")
    assert (lines["waits"]["PODS"], lines["waits"]["MIN"]) == ("0/4", "4")
    assert (lines["alone"]["KIND"], lines["alone"]["QUEUE"]) == ("Pod", "default")
    assert lines["alone"]["REASON"] == "NoRoom"


def test_when_gangs_may_start(filled, capsys):
    """Given ``--start``, then those that wait by their estimates, the unknown ones last."""
    assert main(["get", "jobs", "--start", "-o", "wide"]) == 0
    first, last = shown(capsys)
    assert (first["NAME"], first["POSITION"]) == ("waits", "3")
    assert (first["START"], first["MESSAGE"]) == ("2030-01-01T10:00:00Z", SENTENCE)
    assert (last["NAME"], last["START"]) == ("alone", "")


def test_jobs_are_sorted_as_asked(filled, capsys):
    """Given ``--sort-by gpus``, then the largest come first, equal ones by name."""
    assert main(["get", "jobs", "--sort-by", "gpus"]) == 0
    assert [each["NAME"] for each in shown(capsys)] == ["runs", "waits", "alone"]


def test_jobs_as_json(filled, capsys):
    """Names as in the API, times as in the API."""
    assert main(["get", "jobs", "-o", "json"]) == 0
    items = json.loads(capsys.readouterr().out)["items"]
    found = next(each for each in items if each["metadata"]["name"] == "waits")
    assert found["metadata"] == {"namespace": "team-a", "name": "waits", "uid": "uid-waits"}
    assert (found["gangKind"], found["queue"], found["minMember"]) == ("PodGroup", "research", 4)
    assert found["since"] == "2001-01-01T00:00:00Z"
    assert found["message"] == SENTENCE


def test_gangs_of_kubernetes_itself_are_there(filled, capsys):
    """Given a native group, then its pods are one gang, with the reason on the group."""
    serve_native_groups(filled, whole(native_group("llm")))
    filled.objects[f"/api/v1/{OF_TEAM}/pods"] = [
        {**each, "spec": {**each["spec"], "schedulingGroup": {"podGroupName": "llm"}}}
        for each in (member("llm-0"), member("llm-1"))
    ]
    assert main(["get", "jobs"]) == 0
    (line,) = shown(capsys)
    assert (line["NAME"], line["PODS"], line["MIN"]) == ("llm", "0/2", "4")
    assert line["REASON"] == "InsufficientResources"


def test_what_may_not_be_listed_is_said_and_the_rest_is_shown(filled, capsys):
    """Given a tenant without rights on the cluster's kinds, then gangs are listed all the same."""
    filled.objects |= {f"{API}/queues": 403, "/api/v1/namespaces": 403, f"{NATIVE}": 403}
    assert main(["get", "jobs"]) == 0
    told = capsys.readouterr()
    assert "queues are not looked at: this user may not list them" in told.err
    assert "namespaces are not looked at" in told.err
    assert len(told.out.splitlines()) == 4


def test_a_hostile_sentence_stays_on_its_line(filled, capsys):
    """Given control characters where the API has a text, then none reaches the terminal."""
    filled.objects[f"/api/v1/{OF_TEAM}/pods"] = [member("alone", said="a\x1b[31m\nb\u202ec")]
    filled.objects[f"{API}/{OF_TEAM}/podgroups"] = []
    assert main(["get", "jobs", "-o", "wide"]) == 0
    (line,) = shown(capsys)
    assert line["MESSAGE"] == "a?[31m?b?c"


def test_pods_that_cannot_be_read_or_are_gated_wait_too(filled, capsys):
    """Given a pod with a bad annotation and one with a gate, then both have a line that says why."""
    gated = member("gated")
    gated["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
    filled.objects[f"/api/v1/{OF_TEAM}/pods"] = [
        member("bad", annotations={"gpusched.io/min-member": "x"}), gated,
    ]  # fmt: skip
    filled.objects[f"{API}/{OF_TEAM}/podgroups"] = []
    assert main(["get", "jobs", "-o", "wide"]) == 0
    bad, waits = shown(capsys)
    assert (bad["NAME"], bad["STATE"], bad["REASON"]) == ("bad", "Waiting", "InvalidSpec")
    assert "gpusched.io/min-member" in bad["MESSAGE"]
    assert "'x' is not a whole number" in bad["MESSAGE"]
    assert (waits["NAME"], waits["REASON"]) == ("gated", "Gated")


def test_a_held_gang_says_so_at_once(filled, capsys):
    """Given a hold that the daemon has not told of yet, then the reason is the hold, not the one before."""
    groups = filled.objects[f"{API}/{OF_TEAM}/podgroups"]
    groups[1]["metadata"]["annotations"] = {"gpusched.io/hold": "ana"}
    assert main(["get", "jobs", "-o", "wide"]) == 0
    line = next(each for each in shown(capsys) if each["NAME"] == "waits")
    assert (line["STATE"], line["REASON"]) == ("Waiting", "Held")
    assert line["MESSAGE"].startswith("PodGroup waits is held (ana)")


def test_where_nothing_waits_that_is_said(filled, capsys):
    """Given an empty namespace, then one sentence, with the scheduler that was looked for."""
    filled.objects[f"/api/v1/{OF_TEAM}/pods"] = []
    filled.objects[f"{API}/{OF_TEAM}/podgroups"] = []
    assert main(["get", "jobs"]) == 0
    assert capsys.readouterr().out == (
        "Nothing waits or runs in namespace team-a for scheduler gpusched.\n"
    )


def test_groups_and_jobs_that_wait_for_their_pods_are_there(filled, capsys):
    """Given a PodGroup and Jobs without pods, then those that are ours and not over have a line that says it."""

    def job(name, *, scheduler="gpusched", over=False, **spec):
        conditions = [{"type": "Complete", "status": "True"}] if over else []
        return {
            "metadata": {
                "name": name, "namespace": "team-a", "uid": f"uid-{name}", "resourceVersion": "1",
                "creationTimestamp": "2001-01-01T00:00:00Z", "labels": {"team": "a"},
            },
            "spec": {
                "parallelism": 2, "completions": 2,
                "template": {"spec": {"schedulerName": scheduler}}, **spec,
            },
            "status": {"conditions": conditions},
        }  # fmt: skip

    filled.objects[f"/api/v1/{OF_TEAM}/pods"] = []
    filled.objects[f"{API}/{OF_TEAM}/podgroups"][1:] = []
    filled.objects[f"/apis/batch/v1/{OF_TEAM}/jobs"] = [
        job("again"), job("over", over=True), job("theirs", scheduler="default-scheduler"),
        job("later", suspend=True), job("none", parallelism=0),
    ]  # fmt: skip
    assert main(["get", "jobs", "-o", "wide"]) == 0
    again, runs = shown(capsys)
    assert (again["NAME"], again["KIND"], again["STATE"], again["PODS"]) == (
        "again",
        "Job",
        "Waiting",
        "0/0",
    )
    assert (again["REASON"], again["MIN"]) == ("NotEnoughMembers", "2")
    assert again["MESSAGE"] == "Job again has no pods: its controller is to make 2 pods"
    assert (runs["NAME"], runs["STATE"]) == ("runs", "Waiting")
    assert runs["MESSAGE"] == "needs 4 pods together; 0 pods can run"
    assert main(["get", "jobs", "-l", "team=a", "-o", "name"]) == 0
    assert capsys.readouterr().out == "job.batch/again\n"


def test_what_is_for_jobs_alone_is_refused_elsewhere(filled, capsys):
    """Given ``--start`` for queues, then one sentence and the exit status of a wrong call."""
    assert main(["get", "queues", "--start"]) == 2
    assert "--start is for jobs" in capsys.readouterr().err
