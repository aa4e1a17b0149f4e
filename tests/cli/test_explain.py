"""``explain``, over real HTTP against canned answers: what it needs, what was said, and by whom."""

from __future__ import annotations

import json
import re

import pytest

from gpusched.cli.main import main
from tests.cli.canned_objects import (
    API,
    SENTENCE,
    event,
    group,
    pod,
    refused,
)


def test_explain_a_pod_group(cluster, capsys):
    """Phase, queue, place, needs, what was said, members and events, on one screen."""
    labels = {"gpusched.io/pod-group": "llm"}
    cluster.objects |= {
        f"{API}/namespaces/team-a/podgroups/llm": group(
            "llm",
            phase="Inqueue",
            queuePosition=2,
            estimatedStartTime="2030-01-01T00:00:00Z",
            conditions=[refused("InsufficientResources", SENTENCE)],
        ),
        "/api/v1/namespaces/team-a/pods": [
            *(pod(f"llm-{index}", labels=labels, said=SENTENCE) for index in range(5)),
            pod("llm-5", labels=labels, nodeName="n1"),
            pod("other"),
        ],
        "/api/v1/namespaces/team-a/events": [
            event("PodGroup", "llm", SENTENCE),
            event("PodGroup", "other", "not this one"),
        ],
    }
    assert main(["explain", "podgroup", "team-a/llm"]) == 0
    text = capsys.readouterr().out
    assert text.splitlines()[:7] == [
        "PodGroup team-a/llm: Inqueue in queue research, place 2",
        "  needs    4 pods that start together",
        "  needs    5 waiting pods with cpu 500m, nvidia.com/gpu 8 each",
        "  has      6 pods: 5 pending, 1 starting",
        "  starts   about 2030-01-01T00:00:00Z",
        "  on       n1: 1 pod",
        f"  why      InsufficientResources: {SENTENCE}",
    ]
    assert "llm-0, llm-1, llm-2 and 2 more   NoRoom   (see why)" in text
    assert text.count(SENTENCE) == 1
    assert "PodGroup/llm" in text
    assert "not this one" not in text


def test_when_a_budget_opens_is_no_start(cluster, capsys):
    """Given a gang that waits for the next period of a budget, then the time is told as the earliest, not as a start."""
    told = refused("BudgetExhausted", "queue q has used 8 of its budget of 8 GPU-hours")
    cluster.objects |= {
        f"{API}/namespaces/team-a/podgroups/llm": group(
            "llm", phase="Pending", estimatedStartTime="2030-01-01T00:00:00Z", conditions=[told]
        ),
        "/api/v1/namespaces/team-a/pods": [],
        "/api/v1/namespaces/team-a/events": [],
    }
    assert main(["explain", "podgroup", "team-a/llm"]) == 0
    assert "  starts   not before 2030-01-01T00:00:00Z\n" in capsys.readouterr().out


def test_explain_tells_which_gpus_a_gang_takes(cluster, capsys):
    """By the field of the PodGroup, by the annotation of its pods, and what cannot be read of it."""
    takes = group("llm", phase="Inqueue")
    takes["spec"]["gpuTypes"] = {"sameType": True, "speeds": {"h100": 1.0, "a100": "0.45"}}
    takes["spec"]["devices"] = {"matchAttribute": "dra.net/rail", "requests": ["nic"]}
    bad = pod("odd-0", labels={"gpusched.io/pod-group": "odd"}, said=SENTENCE)
    bad["metadata"]["annotations"] = {
        "gpusched.io/gpu-types": '{"speeds": {"h100": 0}}',
        "gpusched.io/devices": '{"matchAttribute": "rail"}',
    }
    cluster.objects |= {
        f"{API}/namespaces/team-a/podgroups/llm": takes,
        f"{API}/namespaces/team-a/podgroups/odd": group("odd", phase="Inqueue"),
        "/api/v1/namespaces/team-a/pods": [bad],
        "/api/v1/namespaces/team-a/events": [],
    }
    assert main(["explain", "podgroup", "team-a/llm"]) == 0
    text = capsys.readouterr().out
    assert "GPUs of type a100 at speed 0.45, h100 at speed 1\n" in text
    assert "GPUs of one type\n" in text
    assert "devices of all members with one dra.net/rail (requests nic)\n" in text
    assert main(["explain", "podgroup", "team-a/odd"]) == 0
    text = capsys.readouterr().out
    assert "types of GPUs that cannot be read: metadata.annotations[gpusched.io/gpu-types]" in text


def test_explain_tells_who_is_promised_room_and_who_leaves(cluster, capsys):
    """Where room is being freed for waiting pods, and why others of the gang were told to go."""
    labels = {"gpusched.io/pod-group": "llm"}
    waiting = [pod(f"llm-{index}", labels=labels, said=SENTENCE) for index in range(2)]
    for index, each in enumerate(waiting):
        each["status"]["nominatedNodeName"] = f"n{index}"
    victim = pod("llm-2", labels=labels, nodeName="n2")
    victim["status"]["phase"] = "Running"
    victim["status"]["conditions"] = [
        {"type": "DisruptionTarget", "status": "True", "message": "team-b/big needs 8 GPUs"}
    ]
    cluster.objects |= {
        f"{API}/namespaces/team-a/podgroups/llm": group("llm", phase="Running"),
        "/api/v1/namespaces/team-a/pods": [*waiting, victim],
        "/api/v1/namespaces/team-a/events": [],
    }
    assert main(["explain", "podgroup", "team-a/llm"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "  held      room for 2 pods on n0, n1, once it is free" in lines
    assert "  leaving   1 pod: team-b/big needs 8 GPUs" in lines


def test_explain_tells_of_how_many_pods_a_proof_is(cluster, capsys):
    """The first ones, those that joined them, and one of which nothing is known."""
    labels = {"gpusched.io/pod-group": "llm"}
    proofs = ["optimal for 2 pods"] * 2 + ["optimal for 1 pod beside 2", ""]
    members = [pod(f"llm-{n}", labels=labels, nodeName="n1") for n in range(4)]
    for member, proof in zip(members, proofs, strict=True):
        member["metadata"]["annotations"] = {"gpusched.io/proof": proof} if proof else {}
    cluster.objects |= {
        f"{API}/namespaces/team-a/podgroups/llm": group("llm", phase="Running"),
        "/api/v1/namespaces/team-a/pods": members,
        "/api/v1/namespaces/team-a/events": [],
    }
    assert main(["explain", "podgroup", "team-a/llm"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(maxsplit=1)[1] for line in lines if line.startswith("  places")] == [
        "nothing proven of 1 pod",
        "optimal for 1 pod beside 2",
        "optimal for 2 pods",
    ]


def test_explain_tells_what_turns_a_gang_has_had(cluster, capsys):
    """From the status of its PodGroup: why it stands behind gangs that are younger."""
    made = group("llm", phase="Inqueue")
    made["status"]["turn"] = {"ended": "2026-01-01T00:05:00Z", "seconds": 300}
    cluster.objects |= {
        f"{API}/namespaces/team-a/podgroups/llm": made,
        "/api/v1/namespaces/team-a/pods": [],
        "/api/v1/namespaces/team-a/events": [],
    }
    assert main(["explain", "podgroup", "team-a/llm"]) == 0
    told = "300 s in all under maxRuntime; it waits anew since 2026-01-01T00:05:00Z"
    assert told in capsys.readouterr().out


def test_explain_says_the_same_as_json(cluster, capsys):
    """Programs get the same facts."""
    cluster.objects |= {
        f"{API}/namespaces/team-a/podgroups/llm": group("llm", phase="Pending"),
        "/api/v1/namespaces/team-a/pods": [],
        "/api/v1/namespaces/team-a/events": [],
    }
    assert main(["explain", "gpg", "llm", "-o", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["queue"], told["phase"], told["minMember"]) == ("research", "Pending", 4)
    assert told["pods"] == {"total": 0}


def test_explain_a_group_by_annotation(cluster, capsys):
    """Members that only name their group in coscheduling's annotation are found."""
    member = pod("x", said="because")
    member["metadata"]["annotations"] = {"scheduling.k8s.io/group-name": "llm"}
    cluster.objects |= {
        f"{API}/namespaces/team-a/podgroups/llm": group("llm"),
        "/api/v1/namespaces/team-a/pods": [member, pod("y")],
        "/api/v1/namespaces/team-a/events": [],
    }
    assert main(["explain", "podgroup", "llm"]) == 0
    text = capsys.readouterr().out
    assert "1 pod: 1 pending" in text
    assert "why     NoRoom: because" in text


def test_explain_a_derived_gang(cluster, capsys):
    """Without a PodGroup the Job of that name is explained from its pods' conditions."""
    labels = {"batch.kubernetes.io/job-name": "train", "gpusched.io/queue": "research"}
    owner = {
        "apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "uid-train", "controller": True,
    }  # fmt: skip
    members = [pod(f"train-{index}", labels=labels, said=SENTENCE) for index in range(2)]
    for each in members:
        each["metadata"]["ownerReferences"] = [owner]
    cluster.objects |= {
        "/apis/batch/v1/namespaces/team-a/jobs/train": {
            "metadata": {
                "name": "train",
                "namespace": "team-a",
                "uid": "uid-train",
                "resourceVersion": "1",
                "creationTimestamp": "2001-01-01T00:00:00Z",
            },
            "spec": {"parallelism": 2, "completions": 2},
            "status": {},
        },
        "/api/v1/namespaces/team-a/pods": members,
        "/api/v1/namespaces/team-a/events": [event("Pod", "train-1", "from a member")],
    }
    assert main(["explain", "podgroup", "train"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("Job team-a/train: Pending in queue research\n")
    assert "needs   2 pods that start together" in text
    assert f"why     NoRoom: {SENTENCE}" in text
    assert "from a member" in text


def suspended(cluster, *, events, labels=None):
    """A Job without pods, and what was told of it."""
    cluster.objects |= {
        "/apis/batch/v1/namespaces/team-a/jobs/train": {
            "metadata": {"name": "train", "uid": "u2", "labels": labels or {}},
            "spec": {"parallelism": 2, "completions": 2, "suspend": True},
        },
        "/api/v1/namespaces/team-a/pods": [],
        "/api/v1/namespaces/team-a/events": events,
    }


def told(reason, message, *, uid="u2"):
    about = {"kind": "Job", "name": "train", "uid": uid}
    return {**event("Job", "train", message), "reason": reason, "involvedObject": about}


def test_explain_a_suspended_job(cluster, capsys):
    """It has no pods, so its events say why it waits; not those of an earlier Job of its name,
    and not those that its controller writes for each pod.
    """
    events = [
        told("FailedScheduling", "of another Job", uid="u1"),
        *(told("SuccessfulDelete", f"Deleted pod: train-{number}") for number in range(20)),
        told("Preempted", "preempted for default/hi"),
        told("FailedScheduling", SENTENCE),
    ]
    suspended(cluster, events=events, labels={"kueue.x-k8s.io/queue-name": "research"})
    assert main(["explain", "podgroup", "train"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("Job team-a/train: Suspended in queue research\n")
    assert "why     Preempted: preempted for default/hi\n" in text
    assert f"why     FailedScheduling: {SENTENCE}\n" in text
    assert "of another Job" not in text
    assert "Deleted pod" not in text


def test_explain_a_job_that_nobody_starts(cluster, capsys):
    """A suspended Job without a queue is not ours to start, and that is said."""
    suspended(cluster, events=[])
    assert main(["explain", "podgroup", "train"]) == 0
    assert "it is suspended and names no queue" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("labels", "headline", "why"),
    [
        ({}, "Pod team-a/train-0: Pending in queue default", "no daemon leads"),
        (
            {"gpusched.io/pod-group": "gone"},
            "Pod team-a/train-0: Pending in queue default",
            "InvalidSpec: PodGroup team-a/gone does not exist; create it",
        ),
        (
            {"gpusched.io/pod-group": "../../etc"},
            "Pod team-a/train-0: Pending in queue default",
            "InvalidSpec: names the PodGroup '../../etc', and no object can have this name",
        ),
        (
            {"gpusched.io/pod-group": "llm"},
            "PodGroup team-a/llm: not seen yet in queue research",
            "NotEnoughMembers: needs 4 pods together; 1 pod can run",
        ),
    ],
)
def test_explain_a_pod(cluster, capsys, labels, headline, why):
    """A pod is a gang of one, or is explained as the gang it belongs to."""
    member = pod("train-0", labels=labels)
    cluster.objects |= {
        f"{API}/namespaces/team-a/podgroups/llm": group("llm"),
        "/api/v1/namespaces/team-a/pods/train-0": member,
        "/api/v1/namespaces/team-a/pods": [member],
        "/api/v1/namespaces/team-a/events": [],
    }
    assert main(["explain", "podgroup", "train-0"]) == 0
    text = capsys.readouterr().out
    assert text.splitlines()[0] == headline
    assert why in text


def test_explain_pods_of_another_scheduler(cluster, capsys):
    """The commonest reason for waiting for ever is named."""
    cluster.objects |= {
        "/api/v1/namespaces/team-a/pods/x": pod("x", schedulerName="default-scheduler"),
        "/api/v1/namespaces/team-a/events": [],
    }
    assert main(["explain", "podgroup", "x"]) == 0
    assert (
        "its pods are for default-scheduler, and gpusched is served here: set schedulerName in the "
        "pod template" in capsys.readouterr().out
    )


def test_explain_a_misspelt_scheduler(cluster, capsys):
    """Nobody looks at such a pod, whoever leads: the name that was meant is told."""
    cluster.objects |= {
        "/api/v1/namespaces/team-a/pods/x": pod("x", schedulerName="gpushced"),
        "/api/v1/namespaces/team-a/events": [],
    }
    assert main(["explain", "pod", "x"]) == 0
    told = capsys.readouterr().out
    assert "its pods are for gpushced, and gpusched is served here" in told
    assert "did you mean gpusched?" in told


def test_kind_and_name_are_one_word_or_two(cluster, capsys):
    """Given ``job/NAME``, then it is ``job NAME``; a kind that is none, or no name, is one sentence."""
    suspended(cluster, events=[])
    assert main(["explain", "job", "train"]) == 0
    told = capsys.readouterr().out
    assert main(["explain", "job/train"]) == 0
    assert capsys.readouterr().out == told
    for words, sentence in (
        (["jbo/train"], 'did you mean "job"'),
        (["job"], "name what is to be explained: gpusched explain job NAME"),
        (["queue", "x", "-n", "team-a"], "a queue is in no namespace: leave out -n"),
    ):
        assert main(["explain", *words]) == 2
        assert sentence in capsys.readouterr().err


def test_queues_and_nodes_that_there_are_not(cluster, capsys):
    """Given no queue and no node of the name, then one sentence says what lists them."""
    cluster.objects |= {f"{API}/queues": [], "/api/v1/nodes": [], "/api/v1/pods": []}
    for kind in ("queue", "node"):
        assert main(["explain", kind, "nobody"]) == 2
        assert (
            f"there is no {kind} nobody: gpusched get {kind}s lists them" in capsys.readouterr().err
        )


def test_nothing_of_that_name(cluster, capsys):
    """A name that does not exist is wrong usage, with what to do."""
    assert main(["explain", "podgroup", "team-a/nope"]) == 2
    assert capsys.readouterr().err == (
        "gpusched: there is no PodGroup, Job or Pod nope in namespace team-a: "
        "gpusched get jobs -A lists what waits and runs\n"
    )


@pytest.mark.parametrize("name", ["a/b/c", "B", "../x", "x/", ""])
def test_what_can_be_no_name_never_reaches_the_server(cluster, capsys, name):
    """Names are checked before they stand in a path."""
    assert main(["explain", "podgroup", name]) == 2
    assert "is no name of a" in capsys.readouterr().err
    assert not cluster.asked


@pytest.mark.parametrize(
    ("spec", "needs"),
    [
        (
            {"subGroups": [{"name": "a", "minMember": 2}, {"name": "b", "minMember": 3}]},
            ["5 pods that start together", "2 of its 2 sub-groups complete: a with 2, b with 3"],
        ),
        (
            {"subGroups": [{"name": "a", "minMember": 2}, {"name": "b"}], "minSubGroups": 1,
             "minMember": 4},
            ["4 pods that start together", "1 of its 2 sub-groups complete: a with 2, b with 1"],
        ),
        (
            {"subGroups": [{"name": "a", "minSubGroups": 1}, {"name": "b", "parent": "a"}],
             "minMember": 2},
            ["2 pods that start together", "1 of its 1 sub-groups complete: a"],
        ),
        (
            {"minMember": 3, "minTaskMember": {"worker": 2, "leader": 1}},
            ["3 pods that start together", "1 of role leader among them", "2 of role worker among them"],
        ),
        ({"subGroups": "odd", "minTaskMember": 3}, ["1 pod, which starts by itself"]),
    ],
)  # fmt: skip
def test_explain_tells_what_sub_groups_and_roles_need(cluster, capsys, spec, needs):
    """Given a PodGroup in parts, then the pods with which enough of them are complete are needed."""
    made = group("llm", phase="Inqueue")
    made["spec"] = {"queue": "research", **spec}
    cluster.objects |= {
        f"{API}/namespaces/team-a/podgroups/llm": made,
        "/api/v1/namespaces/team-a/pods": [],
        "/api/v1/namespaces/team-a/events": [],
    }
    assert main(["explain", "podgroup", "llm", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["needs"] == needs


LEASE = "/apis/coordination.k8s.io/v1/namespaces/gpusched-system/leases/gpusched"


@pytest.mark.parametrize(
    ("lease", "says"),
    [
        (None, "no daemon leads: Lease gpusched-system/gpusched has no holder"),
        ({"holderIdentity": ""}, "no daemon leads: Lease gpusched-system/gpusched has no holder"),
        (
            {
                "holderIdentity": "d-0",
                "renewTime": "2001-01-01T00:00:00Z",
                "leaseDurationSeconds": 15,
            },
            r"no daemon leads: d-0 renewed Lease gpusched-system/gpusched \d+d ago for the last time",
        ),
        (
            {
                "holderIdentity": "d-0",
                "renewTime": "2999-01-01T00:00:00Z",
                "leaseDurationSeconds": 15,
            },
            "daemon d-0 leads, and has a second or two to look at it",
        ),
        (403, "is the daemon running, and is it the leader\\?"),
    ],
)
def test_what_nobody_said_anything_about_tells_whether_a_daemon_leads(cluster, capsys, lease, says):
    """Given a pod without a word, then the Lease says whether somebody could have said one."""
    made = pod("x")
    cluster.objects |= {
        "/api/v1/namespaces/team-a/pods/x": made,
        "/api/v1/namespaces/team-a/events": [],
    }
    if lease is not None:
        cluster.objects[LEASE] = lease if isinstance(lease, int) else {"spec": lease}
    assert main(["explain", "pod", "x"]) == 0
    why = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  why")]
    assert re.search(f"nothing was said about it yet: {says}$", why[0])


def test_a_job_whose_pods_failed_waits_for_its_controller(cluster, capsys):
    """Given a Job whose pods were evicted, then it has not failed: its controller pauses before it makes more."""
    spec = {"parallelism": 2, "completions": 2}
    job = {"metadata": {"name": "train", "namespace": "team-a", "uid": "j"}, "spec": spec}
    gone = [pod(f"train-{n}", labels={"batch.kubernetes.io/job-name": "train"}) for n in range(2)]
    for each in gone:
        each["status"] = {"phase": "Failed"}
    cluster.objects |= {
        "/api/v1/namespaces/team-a/pods": gone,
        "/apis/batch/v1/namespaces/team-a/jobs/train": job | {"status": {"failed": 2}},
        "/api/v1/namespaces/team-a/events": [],
    }
    assert main(["explain", "job", "train"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0] == "Job team-a/train: Pending"
    assert told[-1] == (
        "  why     no pod of it waits or runs: kube-controller-manager makes its pods, after 2 failures with a "
        "pause: 10 s, doubled by each, at most 10 minutes"
    )
