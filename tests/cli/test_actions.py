"""Commands that change gangs, against an embedded cluster over HTTP: what is written, told and refused."""

from __future__ import annotations

import json

import pytest

from gpusched.cli.main import main

GROUPS = "/apis/scheduling.gpusched.io/v1alpha1/namespaces/default/podgroups"
QUEUES = "/apis/scheduling.gpusched.io/v1alpha1/queues"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
PODS = "/api/v1/namespaces/default/pods"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
HOLD = "gpusched.io/hold"
OURS = "scheduling.gpusched.io/v1alpha1"


def make_job(live, name, *, labels=None, template_labels=None, **spec):
    """A Job of one pod of ours."""
    pod = {"schedulerName": "gpusched", "restartPolicy": "Never"}
    pod["containers"] = [{"name": "c", "image": "busybox"}]
    template = {"metadata": {"labels": template_labels or {}}, "spec": pod}
    body = {
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"template": template, **spec},
    }
    return live.send("POST", JOBS, body)


def make_group(live, name, **spec):
    """A PodGroup of ours."""
    return live.send(
        "POST",
        GROUPS,
        {"apiVersion": OURS, "kind": "PodGroup", "metadata": {"name": name}, "spec": spec},
    )


def make_queue(live, name, **spec):
    """A Queue."""
    made = {"apiVersion": OURS, "kind": "Queue", "metadata": {"name": name}, "spec": spec}
    live.send("POST", QUEUES, made)


def make_pod(live, name, *, owner=None, node="n1", **labels):
    """A pod of ours on a node."""
    spec = {"schedulerName": "gpusched", "containers": [{"name": "c", "image": "busybox"}]}
    if node:
        spec["nodeName"] = node
    owners = []
    if owner is not None:
        owners = [
            {
                "apiVersion": "batch/v1", "kind": "Job", "controller": True,
                "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"],
            }
        ]  # fmt: skip
    metadata = {"name": name, "labels": labels, "ownerReferences": owners}
    made = live.send("POST", PODS, {"metadata": metadata, "spec": spec})
    if node:
        ready = [{"type": "Ready", "status": "True"}, {"type": "PodScheduled", "status": "True"}]
        live.send(
            "PATCH", f"{PODS}/{name}/status", {"status": {"phase": "Running", "conditions": ready}},
            kind="application/merge-patch+json",
        )  # fmt: skip
    return made


def hold_of(live, path):
    """The annotation of an object, None when it is not there."""
    return (live.get(path)["metadata"].get("annotations") or {}).get(HOLD)


def test_hold_and_release(live, capsys):
    """Given a Job and a PodGroup, when both are held, then each says who and why; released, none does."""
    make_job(live, "train")
    make_group(live, "eval")
    assert main(["hold", "job/train", "podgroup/eval", "--reason", "waits  for\ndata"]) == 0
    assert capsys.readouterr().out == (
        "job.batch/train held\npodgroup.scheduling.gpusched.io/eval held\n"
    )
    who = live.send("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews",
        {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"})  # fmt: skip
    name = who["status"]["userInfo"]["username"]
    for path in (f"{JOBS}/train", f"{GROUPS}/eval"):
        assert hold_of(live, path) == f"{name}: waits for data"
    assert main(["release", "job", "train"]) == 0
    assert main(["release", "gpg", "default/eval"]) == 0
    for path in (f"{JOBS}/train", f"{GROUPS}/eval"):
        assert hold_of(live, path) is None
    assert main(["release", "job", "train"]) == 1
    assert "job.batch/train is not held" in capsys.readouterr().err


def test_a_dry_run_changes_nothing(live, capsys):
    """Given ``--dry-run``, then the line says so and the object is as it was."""
    make_job(live, "train")
    for words in (["--dry-run"], ["--dry-run=server"]):
        assert main(["hold", "job", "train", *words]) == 0
        assert capsys.readouterr().out == "job.batch/train held (dry run)\n"
    assert hold_of(live, f"{JOBS}/train") is None


def test_what_could_not_be_done_is_told_after_the_rest_is(live, capsys):
    """Given several names, one of which is missing, then the others are done and the status is 1."""
    make_job(live, "b")
    assert main(["hold", "job", "a", "b", "-o", "name"]) == 1
    told = capsys.readouterr()
    assert told.out == "job.batch/b\n"
    assert told.err == "gpusched: there is no job/a in namespace default\n"


def test_objects_as_data(live, capsys):
    """Given ``-o json`` and ``-o yaml``, then the objects as they are afterwards."""
    make_job(live, "a")
    make_job(live, "b")
    assert main(["hold", "jobs", "a", "b", "-o", "json"]) == 0
    items = json.loads(capsys.readouterr().out)["items"]
    assert [HOLD in each["metadata"]["annotations"] for each in items] == [True, True]
    assert main(["release", "job.batch/a", "-o", "yaml"]) == 0
    assert "kind: Job" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["sheep", "x"], "unknown kind 'sheep': known are"),
        (["job"], "job which? Give KIND NAME"),
        (["job", "A B"], "is no name of a job"),
        (["job/"], "is no name of a job"),
    ],
)
def test_names_that_make_no_sense(live, capsys, words, says):
    """Given what is no kind or no name, then one sentence and the status of a wrong call."""
    assert main(["hold", *words]) == 2
    assert says in capsys.readouterr().err


def test_who_may_not_is_told_the_role(live, capsys):
    """Given a user who may read Jobs and not change them, then 77; one who may nothing, too."""
    make_job(live, "train")
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    subject = {"kind": "User", "name": "bob", "apiGroup": "rbac.authorization.k8s.io"}
    rule = {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get"]}
    live.send("POST", f"{rbac}/clusterroles", {"metadata": {"name": "reader"}, "rules": [rule]})
    reference = {"kind": "ClusterRole", "name": "reader", "apiGroup": "rbac.authorization.k8s.io"}
    live.send("POST", f"{rbac}/clusterrolebindings",
        {"metadata": {"name": "bob"}, "roleRef": reference, "subjects": [subject]})  # fmt: skip
    assert main(["hold", "job", "train", "--as", "bob"]) == 77
    assert "cannot patch resource" in capsys.readouterr().err
    assert main(["hold", "job", "train", "--as", "eve"]) == 77
    assert "cannot get resource" in capsys.readouterr().err
    assert hold_of(live, f"{JOBS}/train") is None


def test_suspend_and_resume(live, capsys):
    """Given a Job without a queue, then its own field is written, and written back."""
    make_job(live, "train")
    assert main(["suspend", "job", "train"]) == 0
    assert live.get(f"{JOBS}/train")["spec"]["suspend"] is True
    assert main(["suspend", "job", "train"]) == 1
    assert main(["resume", "job", "train"]) == 0
    assert live.get(f"{JOBS}/train")["spec"]["suspend"] is False
    assert main(["resume", "job", "train"]) == 1
    told = capsys.readouterr()
    assert told.out == "job.batch/train suspended\njob.batch/train resumed\n"
    assert "is suspended already" in told.err
    assert "is not suspended" in told.err


def test_a_job_in_a_queue_is_held_as_well(live, capsys):
    """Given a Job that its queue would start again, then it is held, and resuming leaves the rest to the queue."""
    make_job(live, "train", labels={"gpusched.io/queue": "default"})
    assert main(["suspend", "job", "train"]) == 0
    found = live.get(f"{JOBS}/train")
    assert found["spec"]["suspend"] is True
    assert found["metadata"]["annotations"][HOLD].endswith("suspended")
    assert main(["resume", "job", "train"]) == 0
    found = live.get(f"{JOBS}/train")
    assert found["spec"]["suspend"] is True
    assert HOLD not in (found["metadata"].get("annotations") or {})
    assert capsys.readouterr().out.splitlines()[-1].endswith("its queue resumes it in its turn")


def test_what_cannot_be_suspended_says_what_can_be_done(live, capsys):
    """Given a PodGroup, then the sentence names the commands that work on it."""
    make_group(live, "eval")
    assert main(["suspend", "podgroup", "eval"]) == 1
    told = capsys.readouterr().err
    assert "a PodGroup has no field for it: gpusched hold" in told


def test_requeue_evicts_what_runs(live, capsys):
    """Given a Job with two pods on nodes, when it is requeued and held, then both are evicted."""
    job = make_job(live, "train", parallelism=2, completions=2)
    for number in range(2):
        make_pod(live, f"train-{number}", owner=job, **{"batch.kubernetes.io/job-name": "train"})
    assert main(["requeue", "job", "train", "--hold", "--dry-run"]) == 0
    assert len(live.get(PODS)["items"]) == 2
    assert main(["requeue", "job", "train", "--hold"]) == 0
    told = capsys.readouterr()
    assert told.out.splitlines()[-1] == "job.batch/train requeued and held (2 pods evicted)"
    assert all("deletionTimestamp" in each["metadata"] for each in live.get(PODS)["items"])
    assert hold_of(live, f"{JOBS}/train").endswith("requeued")


def test_requeue_respects_budgets(live, capsys):
    """Given a budget that protects a pod, then it stays, and the sentence is the budget's."""
    job = make_job(live, "train")
    make_pod(live, "train-0", owner=job, team="a", **{"batch.kubernetes.io/job-name": "train"})
    live.send("POST", BUDGETS,
        {"metadata": {"name": "safe"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"team": "a"}}}},
    )  # fmt: skip
    assert main(["requeue", "job", "train"]) == 1
    assert "disruption budget" in capsys.readouterr().err
    assert "deletionTimestamp" not in live.get(f"{PODS}/train-0")["metadata"]


def pods_of(live, job, count, **labels):
    """Pods of a Job that run on a node."""
    for number in range(count):
        make_pod(live, f"{job['metadata']['name']}-{number}", owner=job, **labels)


def test_requeue_suspends_what_a_queue_starts_again(live, capsys):
    """Given a Job in a queue with more pods than failures are allowed, then it is suspended and none fails."""
    job = make_job(live, "train", labels={"gpusched.io/queue": "new"}, parallelism=8, completions=8)
    pods_of(live, job, 8)
    assert main(["requeue", "job", "train"]) == 0
    told = capsys.readouterr()
    assert (told.out, told.err) == ("job.batch/train requeued (8 pods ended)\n", "")
    train = live.get(f"{JOBS}/train")
    assert train["spec"]["suspend"] is True
    assert HOLD not in train["metadata"].get("annotations", {})


def test_requeue_suspends_nothing_that_a_budget_keeps(live, capsys):
    """Given a budget that lets one of two pods go, then the Job goes on, as suspending it would end both."""
    job = make_job(live, "train", labels={"gpusched.io/queue": "new"}, parallelism=2, completions=2)
    pods_of(live, job, 2, team="a")
    live.send("POST", BUDGETS,
        {"metadata": {"name": "safe"}, "spec": {"minAvailable": 2, "selector": {"matchLabels": {"team": "a"}}}},
    )  # fmt: skip
    assert main(["requeue", "job", "train"]) == 1
    told = capsys.readouterr().err
    assert "job.batch/train is not suspended: disruption budget safe lets 0 of 2 pods go" in told
    assert not live.get(f"{JOBS}/train")["spec"]["suspend"]


def test_requeue_fails_no_job_for_good(live, capsys):
    """Given a Job without a queue and more pods than failures are allowed, then nothing is evicted."""
    job = make_job(live, "train", parallelism=4, completions=4, backoffLimit=3)
    pods_of(live, job, 4)
    assert main(["requeue", "job", "train"]) == 1
    told = capsys.readouterr().err
    assert "counts as a failure of Job default/train, and 4 after 0 would end it for good" in told
    assert "gpusched suspend job train" in told
    assert all("deletionTimestamp" not in each["metadata"] for each in live.get(PODS)["items"])


def test_requeue_ends_nothing_that_nobody_makes_again(live, capsys):
    """Given a pod without a controller, then it is not evicted; one that waits has nothing to evict."""
    make_pod(live, "alone")
    make_pod(live, "waits", node="")
    assert main(["requeue", "pod", "alone", "waits"]) == 1
    told = capsys.readouterr().err
    assert "no controller makes pod alone again" in told
    assert "pod/waits has no pod on a node" in told
    assert len(live.get(PODS)["items"]) == 2


def test_a_pod_with_a_node_is_not_held(live, capsys):
    """Given a pod that runs, then a hold would do nothing, and the sentence says what would."""
    make_pod(live, "runs")
    assert main(["hold", "pod", "runs"]) == 1
    assert "gpusched requeue" in capsys.readouterr().err


def test_move_writes_the_queue_where_each_kind_names_it(live, capsys):
    """Given a PodGroup, a Job and a pod, then field or label are written."""
    for name in ("old", "new"):
        make_queue(live, name)
    make_group(live, "eval", queue="old")
    make_job(live, "train")
    make_pod(live, "alone", node="")
    assert main(["move", "podgroup/eval", "job/train", "po/alone", "--queue", "new"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "podgroup.scheduling.gpusched.io/eval moved from old to queue new",
        "job.batch/train moved to queue new",
        "pod/alone moved to queue new",
    ]
    assert live.get(f"{GROUPS}/eval")["spec"]["queue"] == "new"
    for path in (f"{JOBS}/train", f"{PODS}/alone"):
        assert live.get(path)["metadata"]["labels"]["gpusched.io/queue"] == "new"


def test_moves_that_make_no_sense_say_what_does(live, capsys):
    """Given no such queue, a gang that has started, or a member of another object, then a sentence each."""
    make_queue(live, "new")
    make_queue(live, "above")
    make_queue(live, "below", parent="above")
    make_group(live, "eval", queue="default")
    live.send(
        "PATCH",
        f"{GROUPS}/eval/status",
        {"status": {"phase": "Running"}},
        kind="application/merge-patch+json",
    )
    job = make_job(live, "train", template_labels={"gpusched.io/pod-group": "eval"})
    make_pod(live, "member", node="", owner=job)
    refused = {
        ("podgroup/eval", "nowhere"): "there is no queue nowhere: known are below, default, new",
        (
            "podgroup/eval",
            "above",
        ): "queue above has child queues, and jobs go to leaves only: below, default, new",
        ("podgroup/eval", "new"): "gpusched requeue podgroup eval --hold, then move",
        ("podgroup/eval", "default"): "is in queue default already",
        ("job/train", "new"): "makes pods of PodGroup eval",
        ("pod/member", "new"): "belongs to Job train",
    }
    for (name, queue), sentence in refused.items():
        assert main(["move", name, "--queue", queue]) == 1
        assert sentence in capsys.readouterr().err
