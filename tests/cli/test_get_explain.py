"""get and explain, over real HTTP against canned answers."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from gpusched.cli.main import main

API = "/apis/scheduling.gpusched.io/v1alpha1"
SENTENCE = "needs 4 nodes with 8 free GPUs; 2 have them"


def group(name, **status):
    return {
        "metadata": {
            "name": name, "namespace": "team-a", "creationTimestamp": "2001-01-01T00:00:00Z",
            "uid": f"uid-{name}", "resourceVersion": "1",
        },
        "spec": {"queue": "research", "minMember": 4},
        "status": status,
    }  # fmt: skip


def pod(name, *, labels=None, said=None, **spec):
    container = {"resources": {"limits": {"nvidia.com/gpu": "8"}, "requests": {"cpu": "500m"}}}
    conditions = []
    if said:
        conditions = [
            {"type": "PodScheduled", "status": "False", "reason": "NoRoom", "message": said}
        ]
    return {
        "metadata": {
            "name": name,
            "namespace": "team-a",
            "uid": f"uid-{name}",
            "resourceVersion": "1",
            "labels": labels or {},
            "creationTimestamp": "2001-01-01T00:00:00Z",
        },
        "spec": {"schedulerName": "gpusched", "containers": [container], **spec},
        "status": {"phase": "Pending", "conditions": conditions},
    }


def refused(reason, message):
    return {
        "type": "Scheduled", "status": "False", "reason": reason, "message": message,
        "lastTransitionTime": "2001-01-01T00:00:00Z",
    }  # fmt: skip


def event(kind, name, message):
    return {
        "involvedObject": {"kind": kind, "name": name},
        "type": "Warning",
        "reason": "NoRoom",
        "message": message,
        "lastTimestamp": "2001-01-01T00:00:00Z",
    }


def test_get_queues(cluster, capsys):
    """Given no daemon, then a queue without status shows nothing where nothing is known, and ``default`` is counted."""
    cluster.objects["/api/v1/pods"] = []
    cluster.objects[f"{API}/queues"] = [
        {
            "metadata": {"name": "research"},
            "spec": {"parent": "root", "weight": 3, "capability": {"nvidia.com/gpu": "64"}},
            "status": {
                "state": "Open", "running": 2, "allocated": {"nvidia.com/gpu": "16"},
                "fairShare": {"nvidia.com/gpu": "24"}, "requested": {"nvidia.com/gpu": "40"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        },
        {"metadata": {"name": "odd\x1b[31m"}, "spec": "nonsense"},
    ]  # fmt: skip
    assert main(["get", "gq", "-o", "wide"]) == 0
    told = capsys.readouterr()
    header, built_in, second, first = told.out.splitlines()
    assert built_in.split() == [
        "default",
        "root",
        "Open",
        "1",
        "0",
        "0",
        "0",
        "0",
        "<unknown>",
        "0",
        "0",
        "Priority",
        "True",
    ]
    assert told.err == (
        "gpusched: read from the API, not from the daemon: this user logs in without a token, which the "
        "daemon's view asks for\n"
    )
    assert header.split() == [
        "NAME",
        "PARENT",
        "STATE",
        "WEIGHT",
        "RUNNING",
        "INQUEUE",
        "PENDING",
        "GPUS",
        "DESERVED",
        "AGE",
        "FAIRSHARE",
        "BORROWED",
        "REQUESTED",
        "LIMIT",
        "ORDERING",
        "READY",
        "MESSAGE",
    ]
    shown = "research root Open 3 2 0 0 16 <unknown> 24 0 40 64 True"
    assert first.split() == shown.split()
    assert second.split() == ["odd?[31m", "<unknown>"]


def test_get_counts_the_gpu_resources_of_the_configuration(cluster, capsys, tmp_path):
    """Given a configuration with NPUs, then the columns of GPUs count them, and all kinds together."""
    file = tmp_path / "gpusched.yaml"
    file.write_text("gpuResources: [{name: example.com/npu}, {name: nvidia.com/gpu}]\n")
    amounts = {"example.com/npu": "16", "cpu": "4"}
    cluster.objects[f"{API}/queues"] = [
        {"metadata": {"name": "npus"}, "status": {"state": "Open", "allocated": amounts}},
        {
            "metadata": {"name": "both"},
            "status": {"state": "Open", "allocated": {**amounts, "nvidia.com/gpu": "500m"}},
        },
    ]
    assert main(["get", "queues", "--config", str(file)]) == 0
    _, both, _, npus = capsys.readouterr().out.splitlines()
    assert npus.split() == ["npus", "Open", "0", "0", "0", "16", "<unknown>"]
    assert both.split() == ["both", "Open", "0", "0", "0", "16500m", "<unknown>"]
    assert main(["get", "queues"]) == 0
    npus = capsys.readouterr().out.splitlines()[3]
    assert npus.split() == ["npus", "Open", "0", "0", "0", "0", "<unknown>"]


def test_the_queue_default_is_listed_once(cluster, capsys):
    """Given no object of that name, and then one, there is one row for it."""
    for queues in ([], [{"metadata": {"name": "default"}, "status": {"running": 2}}]):
        cluster.objects[f"{API}/queues"] = queues
        assert main(["get", "queues"]) == 0
        (row,) = capsys.readouterr().out.splitlines()[1:]
        assert row.split()[0] == "default"


def test_a_configuration_with_a_mistake_is_told_in_one_sentence(cluster, capsys, tmp_path):
    """By get as by explain, before the cluster is asked for anything."""
    file = tmp_path / "gpusched.yaml"
    file.write_text("gpuResources: [{name: npu}]\n")
    for command in (["get", "queues"], ["explain", "podgroup", "team-a/x"]):
        assert main([*command, "--config", str(file)]) == 78
        assert capsys.readouterr().err == (
            f"gpusched: {file}:1: name must be an extended resource such as nvidia.com/gpu, "
            'not "npu"\n'
        )
    assert cluster.asked == []


def test_get_podgroups_of_the_contexts_namespace(cluster, capsys):
    """Without -n it is the context's namespace; pages are joined."""
    cluster.objects[f"{API}/namespaces/team-a/podgroups"] = [
        group("a", phase="Inqueue", scheduled=0, conditions=[refused("NoRoom", SENTENCE)]),
        group("b"),
        group("c"),
    ]
    assert main(["get", "podgroups"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == [
        "NAME",
        "QUEUE",
        "PHASE",
        "MIN",
        "SCHEDULED",
        "RUNNING",
        "REASON",
        "AGE",
    ]
    assert lines[1].split()[:6] == ["a", "research", "Inqueue", "4", "0", "NoRoom"]
    assert [line.split()[0] for line in lines[1:]] == ["a", "b", "c"]
    pages = [query.get("continue") for path, query in cluster.asked if path.endswith("/podgroups")]
    assert pages == [None, "2"]


def test_get_podgroups_elsewhere(cluster, capsys):
    """-A shows namespaces, -n asks for one; nothing found is said."""
    cluster.objects[f"{API}/podgroups"] = [group("a")]
    cluster.objects[f"{API}/namespaces/other/podgroups"] = []
    assert main(["get", "gpg", "-A"]) == 0
    assert capsys.readouterr().out.startswith("NAMESPACE   NAME")
    assert main(["get", "gpg", "-n", "other"]) == 0
    assert capsys.readouterr().out == "There are no podgroups in namespace other.\n"
    assert main(["get", "gpg", "-A", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["items"][0]["metadata"]["name"] == "a"


NATIVE = "/apis/scheduling.k8s.io/v1alpha2"


def serve_native_groups(cluster, *groups, own=True):
    """The kind of Kubernetes' own PodGroups, with these in namespace team-a."""
    cluster.objects |= {
        "/apis": {"groups": [{"name": "scheduling.k8s.io", "versions": [{"version": "v1alpha2"}]}]},
        NATIVE: {"resources": [{"name": "podgroups"}, {"name": "podgroups/status"}]},
        f"{NATIVE}/namespaces/team-a/podgroups": list(groups),
        "/api/v1/namespaces/team-a/events": [],
    }
    for each in groups:
        path = f"{NATIVE}/namespaces/team-a/podgroups/{each['metadata']['name']}"
        cluster.objects[path] = each
    if own:
        cluster.objects[f"{API}/namespaces/team-a/podgroups"] = []


def native_group(name, *, said=SENTENCE, **policy):
    waits = {**refused("InsufficientResources", said), "type": "gpusched.io/Scheduled"}
    return {
        "apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup",
        "metadata": {
            "name": name, "namespace": "team-a", "uid": f"uid-{name}", "resourceVersion": "1",
            "creationTimestamp": "2001-01-01T00:00:00Z", "labels": {"gpusched.io/queue": "research"},
        },
        "spec": {"schedulingPolicy": policy or {"gang": {"minCount": 4}}},
        "status": {"conditions": [waits]},
    }  # fmt: skip


@pytest.mark.parametrize("own", [True, False])
def test_get_podgroups_of_kubernetes_itself(cluster, capsys, own):
    """Native groups stand among ours, in our words; also where none of our kinds is there."""
    serve_native_groups(cluster, native_group("llm"), own=own)
    assert main(["get", "podgroups", "-o", "wide"]) == 0
    header, line = capsys.readouterr().out.splitlines()
    assert line.split()[:5] == ["llm", "research", "Pending", "4", "InsufficientResources"]
    assert "API" in header.split()
    assert "scheduling.k8s.io/v1alpha2" in line
    assert SENTENCE in line


def test_get_podgroups_says_what_may_not_be_listed(cluster, capsys):
    """Given a user without the right to native groups, then ours are shown and that is said."""
    serve_native_groups(cluster)
    cluster.objects[f"{API}/namespaces/team-a/podgroups"] = [group("a")]
    cluster.objects[f"{NATIVE}/namespaces/team-a/podgroups"] = 403
    assert main(["get", "podgroups"]) == 0
    shown = capsys.readouterr()
    assert shown.out.splitlines()[1].split()[0] == "a"
    assert shown.err == (
        "gpusched: podgroups.scheduling.k8s.io are left out: this user may not list them\n"
    )


@pytest.mark.parametrize(
    "asked", [("podgroup", "llm"), ("pod", "llm-1"), ("job", "train"), ("podgroup", "train")]
)
def test_explain_a_group_of_kubernetes_itself(cluster, capsys, asked):
    """By its name, by a member's or by its Job's: needs, members and the reason with numbers."""
    serve_native_groups(cluster, native_group("llm"))
    labels = {"batch.kubernetes.io/job-name": "train"}
    members = [
        pod(f"llm-{index}", labels=labels, schedulingGroup={"podGroupName": "llm"})
        for index in range(4)
    ]
    cluster.objects |= {
        "/api/v1/namespaces/team-a/pods": [*members, pod("other")],
        "/api/v1/namespaces/team-a/pods/llm-1": members[1],
        "/apis/batch/v1/namespaces/team-a/jobs/train": {
            "metadata": {"name": "train", "namespace": "team-a"}, "spec": {"parallelism": 4},
        },
    }  # fmt: skip
    assert main(["explain", *asked]) == 0
    assert capsys.readouterr().out.splitlines()[:5] == [
        "PodGroup team-a/llm: Pending in queue research",
        "  needs   4 pods that start together",
        "  needs   4 waiting pods with cpu 500m, nvidia.com/gpu 8 each",
        "  has     4 pods: 4 pending",
        f"  why     InsufficientResources: {SENTENCE}",
    ]


def test_a_native_group_that_cannot_be_read_tells_its_conditions(cluster, capsys):
    """Given a group of which a field is no number, then what was said of it is shown."""
    bad = native_group("odd", gang={"minCount": "many"})
    serve_native_groups(cluster, bad)
    cluster.objects["/api/v1/namespaces/team-a/pods"] = []
    assert main(["explain", "podgroup", "odd"]) == 0
    assert f"why     InsufficientResources: {SENTENCE}" in capsys.readouterr().out


def test_explain_a_composite_group(cluster, capsys):
    """Its members are the pods of all groups below it; it needs so many of its children."""
    version = "/apis/scheduling.k8s.io/v1alpha3"
    tree, inner = native_group("job", gang={"minGroupCount": 2}), native_group("part")
    inner["spec"] |= {"parentCompositePodGroupName": "job"}
    leaf, alone = native_group("leaf"), native_group("alone")
    leaf["spec"]["parentCompositePodGroupName"] = "part"
    below = f"{version}/namespaces/team-a"
    members = [
        pod(f"p-{name}", schedulingGroup={"podGroupName": name}) for name in ("leaf", "alone")
    ]
    cluster.objects |= {
        "/apis": {"groups": [{"name": "scheduling.k8s.io", "versions": [{"version": "v1alpha3"}]}]},
        version: {"resources": [{"name": "podgroups"}, {"name": "compositepodgroups"}]},
        f"{below}/podgroups": [leaf, alone],
        f"{below}/compositepodgroups": [tree, inner],
        f"{below}/compositepodgroups/job": tree,
        "/api/v1/namespaces/team-a/pods": members,
        "/api/v1/namespaces/team-a/events": [],
    }
    assert main(["explain", "podgroup", "job"]) == 0
    assert capsys.readouterr().out.splitlines()[:4] == [
        "CompositePodGroup team-a/job: Pending in queue research",
        "  needs   2 of its groups at once, each with what it needs itself",
        "  needs   1 waiting pod with cpu 500m, nvidia.com/gpu 8 each",
        "  has     1 pod: 1 pending",
    ]


def serve_a_tree(cluster):
    """Two levels of groups: one that runs in part, one that waits, and one that cannot be read."""
    version = "/apis/scheduling.k8s.io/v1alpha3"
    below = f"{version}/namespaces/team-a"
    top = native_group("job", gang={"minGroupCount": 2})
    inner = native_group("workers", gang={"minGroupCount": 1})
    inner["spec"] |= {"parentCompositePodGroupName": "job"}
    rack = {"topology": [{"key": "example.com/rack"}]}
    leaves = [native_group(name, gang={"minCount": 2}) for name in ("a", "b", "lead")]
    for leaf, parent in zip(leaves, ("workers", "workers", "job"), strict=True):
        leaf["spec"] |= {"parentCompositePodGroupName": parent, "schedulingConstraints": rack}
    odd = native_group("odd", gang={"minCount": "many"})
    odd["spec"]["parentCompositePodGroupName"] = "job"
    runs = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    starts = {"phase": "Pending", "conditions": []}
    pods = [
        *(pod(f"a-{n}", schedulingGroup={"podGroupName": "a"}, nodeName="n") for n in range(3)),
        *(pod(f"b-{n}", schedulingGroup={"podGroupName": "b"}) for n in range(2)),
    ]
    for each, status in zip(pods, (runs, runs, starts), strict=False):
        each["status"] = status
    cluster.objects |= {
        "/apis": {"groups": [{"name": "scheduling.k8s.io", "versions": [{"version": "v1alpha3"}]}]},
        version: {"resources": [{"name": "podgroups"}, {"name": "compositepodgroups"}]},
        f"{below}/podgroups": [*leaves, odd],
        f"{below}/podgroups/b": leaves[1],
        f"{below}/compositepodgroups": [top, inner],
        f"{below}/compositepodgroups/job": top,
        f"{below}/compositepodgroups/workers": inner,
        "/api/v1/namespaces/team-a/pods": pods,
        "/api/v1/namespaces/team-a/events": [],
    }


TREE = """\
GROUP                          NEEDS            PLACED   READY   LEVEL
CompositePodGroup job          2 groups         1 of 3
|- CompositePodGroup workers   1 group          1 of 2
|  |- PodGroup a               2 pods           3 of 3   2       example.com/rack
|  `- PodGroup b               2 pods           0 of 2   0       example.com/rack
|- PodGroup lead               2 pods           0 of 0   0       example.com/rack
`- PodGroup odd                cannot be read   0 of 0   0
"""


@pytest.mark.parametrize("asked", ["job", "workers", "b"])
def test_explain_draws_the_tree_that_a_group_is_in(cluster, capsys, asked):
    """Each group under its parent with what it needs and has, whichever of them is asked about."""
    serve_a_tree(cluster)
    assert main(["explain", "podgroup", asked]) == 0
    assert TREE in capsys.readouterr().out
    assert main(["explain", "podgroup", asked, "-o", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)["tree"]
    assert [(row["name"], row["depth"], row["placed"]) for row in rows] == [
        ("job", 0, 1), ("workers", 1, 1), ("a", 2, 3), ("b", 2, 0), ("lead", 1, 0), ("odd", 1, 0),
    ]  # fmt: skip


def test_groups_that_are_in_each_other_are_drawn_once(cluster, capsys):
    """A circle has no top and no end."""
    serve_a_tree(cluster)
    below = "/apis/scheduling.k8s.io/v1alpha3/namespaces/team-a"
    top = cluster.objects[f"{below}/compositepodgroups"][0]
    top["spec"]["parentCompositePodGroupName"] = "workers"
    assert main(["explain", "podgroup", "job"]) == 0
    out = capsys.readouterr().out
    assert out.count("CompositePodGroup job ") == out.count("CompositePodGroup workers ") == 1


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


def test_no_cluster_is_status_69(cluster, capsys, tmp_path):
    """No kubeconfig, or nobody listening: one sentence."""
    assert main(["get", "gq", "--kubeconfig", str(tmp_path / "absent")]) == 69
    assert "there is no kubeconfig file" in capsys.readouterr().err


COMMANDS_ONE_BY_ONE = """
import json, sys
from gpusched.cli.main import main
for words in json.loads(sys.argv[1]):
    print(main(words), file=sys.stderr)
"""


def test_a_kubeconfig_that_is_no_use_is_one_sentence(tmp_path):
    """Nothing of the client library stands beside it, whatever is wrong with the file."""
    (tmp_path / "empty").write_text("")
    files = ["absent", ".", "absent:gone", "two\nlines", "", "empty"]
    commands = [
        [*command, "--kubeconfig", file]
        for command in (["get", "gq"], ["explain", "podgroup", "a/b"])
        for file in files
    ]
    ran = subprocess.run(
        [sys.executable, "-c", COMMANDS_ONE_BY_ONE, json.dumps(commands)],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert ran.stdout == ""
    lines = ran.stderr.splitlines()
    assert len(lines) == 2 * len(commands)
    for line, status in zip(lines[::2], lines[1::2], strict=True):
        assert status in {"69", "78"}
        assert re.match(
            "gpusched: (there is no kubeconfig file|the kubeconfig empty cannot be used)", line
        )


@pytest.mark.parametrize(
    ("command", "path", "role"),
    [
        (["get", "gq"], f"{API}/queues", "gpusched-queue-view (manifests/rbac-users.yaml)"),
        (
            ["get", "gpg", "-A"],
            f"{API}/podgroups",
            "gpusched-view (manifests/rbac-users.yaml)",
        ),
    ],
)
def test_what_may_not_be_read_is_status_77(cluster, capsys, command, path, role):
    """The server answers: the sentence names the role that has the right."""
    cluster.objects[path] = 403
    assert main(command) == 77
    kind = path.rpartition("/")[2]
    assert capsys.readouterr().err == (
        f'gpusched: could not read {kind}: you may not: User "ann" cannot list resource "{kind}" in API '
        f'group "scheduling.gpusched.io"; ClusterRole {role} has this right: bind it to this user, or '
        "ask an administrator to\n"
    )


def test_credentials_that_nobody_knows_are_status_77(cluster, capsys):
    """Not an outage either."""
    cluster.objects[f"{API}/queues"] = 401
    assert main(["get", "gq"]) == 77
    assert "does not accept these credentials" in capsys.readouterr().err


def test_a_cluster_without_the_resources(cluster, capsys):
    """Before manifests/ are applied the server knows no such kind."""
    for kind in ("queues", "podgroups"):
        assert main(["get", kind]) == 78
        assert capsys.readouterr().err == (
            f"gpusched: this cluster has no {kind}: CustomResourceDefinition {kind}.scheduling.gpusched.io is "
            f"not installed; kubectl apply -f manifests/crds/{kind}.yaml installs it, kubectl apply -k "
            "manifests/ all of gpusched\n"
        )


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
