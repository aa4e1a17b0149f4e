"""Files that are no manifests, and manifests that the API server would refuse: one sentence each, with file and line."""

from __future__ import annotations

import json

import pytest

from gpusched.advice.submission.manifests import DOCUMENTS_MAX, MANIFEST_BYTES_MAX, read_manifests
from gpusched.base.errors import ConfigError
from tests.advice.clusters import NOW, gang, node, priority, queue, trial_of
from tests.advice.submission.device_manifests import device_class
from tests.advice.submission.manifests import ask, group, job, manifest, only_gang, template

BOMB = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join([f'*{below}'] * 10)}]\n"
    for below, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"", "job.yaml: holds no manifest"),
        (b"---\n# nothing\n---\n", "job.yaml: holds no manifest"),
        (b"\x7fELF\x02\x01\x00\x00\xff", "holds a character that YAML does not allow"),
        (b"kind: Job\n  name: [x", "job.yaml:2: is not YAML"),
        (f"apiVersion: v1\nkind: X\nmetadata: {{name: x}}\nspec:\n  {BOMB.replace(chr(10), chr(10) + '  ')}".encode(),
         "its aliases stand for more than 500,000 values"),
        (b"- kind: Job\n", "job.yaml:1: a manifest must be a mapping with apiVersion and kind, not a list"),
        (b"hello\n", 'a manifest must be a mapping with apiVersion and kind, not "hello"'),
        (b"kind: Job\n", "a manifest needs apiVersion, which says what it is"),
        (b"apiVersion: v1\nkind: [Pod]\n", "a manifest needs kind, which says what it is"),
        (b"apiVersion: v1\nkind: Pod\n", "Pod has no metadata.name"),
        (b"apiVersion: v1\nkind: Pod\nmetadata: {name: 7}\n", "Pod has no metadata.name"),
        (b"apiVersion: v1\nkind: Pod\nmetadata: {name: Big_One}\n", 'Pod has metadata.name "Big_One"'),
        (b"apiVersion: v1\nkind: Pod\nmetadata: {name: x, labels: {a: 1}}\n", "metadata.labels[a] 1: a text is needed"),
        (b"apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: 5\n", "Pod x has spec 5: a mapping is needed"),
        (b"apiVersion: v1\nkind: List\nitems: [7]\n", "items[0] of List is 7, no manifest"),
        (b"a: 1\na: 2\n", 'duplicate key "a"'),
        (b"a: *b\n", "alias *b: nothing before it has this anchor"),
        (b"[" * 100, "nesting is deeper than 64 levels"),
        (b"x" * (MANIFEST_BYTES_MAX + 1), "is larger than 4 MiB"),
        (b"apiVersion: v1\nkind: Pod\nmetadata: {name: x}\n---\n" * (DOCUMENTS_MAX + 1), "more than 1,000"),
    ],
)  # fmt: skip
def test_a_file_that_holds_no_manifests_is_one_sentence(raw, why):
    with pytest.raises(ConfigError) as raised:
        read_manifests(raw, "job.yaml")
    assert why in raised.value.problems[0]
    assert "\n" not in raised.value.problems[0]


def test_what_kubectl_takes_is_taken():
    """Given anchors, merges, octal numbers, lists and generated names, then they mean what they mean there."""
    raw = b"""
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Pod
  metadata: {generateName: x-, labels: &labels {a: b}}
  spec: &spec {nodeName: null, hostIPC: yes, mode: 0644, hex: 0x10, time: 1:30}
- apiVersion: v1
  kind: Pod
  metadata: {name: y, labels: {<<: *labels, c: d}}
  spec: *spec
"""
    first, second = (each.obj for each in read_manifests(raw, "job.yaml"))
    assert first["metadata"]["name"] == "x-00001"
    assert first["spec"] == {
        "nodeName": None,
        "hostIPC": True,
        "mode": 420,
        "hex": 16,
        "time": "1:30",
    }
    assert second["metadata"]["labels"] == {"a": "b", "c": "d"}
    assert second["spec"] == first["spec"]


@pytest.mark.parametrize(
    ("documents", "why"),
    [
        ([manifest("Cow", "v1", {})], "what pods a Cow of v1 makes is not known here"),
        ([manifest("Job", "batch.example.com/v1", {})], "Job of batch.example.com/v1 is not known; Job of batch, batch.volcano.sh is"),
        ([manifest("Node", "v1", {})], "nodes are not submitted"),
        ([job(-1)], "parallelism must be a number from 0 to 10,000"),
        ([job(2, template_={"spec": "x"})], "spec must be a mapping"),
        ([job(2, template_=template(scheduler="other"))], 'its pods name scheduler "other"'),
        ([job(2, template_={"spec": {"schedulerName": "gpusched"}})], "its pods have no containers"),
        ([job(2, template_=template(priorityClassName="hihg"))], 'no PriorityClass with name hihg was found; there are high; did you mean "high"'),
        ([job(1, template_=template("many"))], "many"),
        ([manifest("Pod", "v1", template()["spec"], namespace="taem")], 'namespace "taem" does not exist; create it or name one of: team; did you mean "team"'),
        ([manifest("TrainJob", "trainer.kubeflow.org/v1alpha1", {"runtimeRef": {"name": "torch"}})], "ClusterTrainingRuntime torch, which is not read from the cluster: give it with -f, too"),
        ([manifest("PyTorchJob", "kubeflow.org/v1", {})], "it has no replica specs"),
    ],
)  # fmt: skip
def test_what_the_api_server_would_refuse_is_refused_in_one_sentence(documents, why):
    trial = trial_of(queue("a"), node("n0"), priority("high", 100))
    answer = ask(trial, *documents)
    (found,) = answer.refused
    assert why in found.message
    assert "\n" not in found.message
    assert found.place.startswith("job.yaml:")
    assert not answer.starts_sometime


def test_a_name_that_exists_is_refused_and_the_rest_is_answered():
    trial = trial_of(
        queue("a"),
        node("n0"),
        [group(1, name="there") | {"metadata": {"name": "there", "namespace": "team"}}],
    )
    answer = ask(trial, group(1, name="there"), manifest("Pod", "v1", template()["spec"]))
    (found,) = answer.refused
    assert "PodGroup there exists already" in found.message
    assert [each.name for each in answer.gangs] == ["new"]


def test_a_queue_that_does_not_exist_is_told_with_the_one_that_was_meant():
    trial = trial_of(queue("alpha"), node("n0"))
    pods = job(1, template_=template(labels={"gpusched.io/pod-group": "new"}))
    answer = ask(trial, group(1, queue="alhpa"), pods)
    assert "did you mean alpha?" in answer.gangs[0].never
    assert not answer.starts_sometime


def test_what_can_never_start_says_which_demands_cannot_hold_together():
    trial = trial_of(queue("a"), node("n0"))
    answer = ask(trial, manifest("Pod", "v1", template(9)["spec"]))
    assert (
        answer.gangs[0].never
        == "never, even on an empty cluster: 9 nvidia.com/gpu in a container cannot be given"
    )


def test_documents_without_pods_are_no_gangs():
    trial = trial_of(queue("a"), node("n0"))
    answer = ask(trial, manifest("ConfigMap", "v1", {}), manifest("Service", "v1", {}))
    assert (answer.gangs, answer.refused) == ((), ())
    assert answer.starts_sometime


def test_a_queue_of_the_same_file_counts():
    trial = trial_of(node("n0"))
    made = json.loads(json.dumps(queue("a")))
    answer = ask(trial, manifest("Pod", "v1", template()["spec"]), made)
    assert [each.queue for each in answer.gangs] == ["a"]
    assert answer.starts_sometime
    assert trial.take_snapshot().queues.get("a") is None


def quota(name, hard, used, **spec):
    """A ResourceQuota of namespace ``team``."""
    head = {"name": name, "namespace": "team"}
    status = {"hard": hard, "used": used}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": head, "spec": {"hard": hard, **spec}, "status": status}  # fmt: skip


def test_a_quota_that_does_not_admit_all_pods_is_told_as_the_server_does():
    """Given 4 of 16 GPUs in use, then two pods of 8 are too many and one is not; what a quota does not cover is free."""
    name = "requests.nvidia.com/gpu"
    trial = trial_of(
        queue("a"), node("n0"), node("n1"), quota("gpus", {name: "16", "pods": "9"}, {name: "4"}),
        quota("scoped", {"pods": "0"}, {}, scopes=["NotBestEffort"]),
    )  # fmt: skip
    (refused,) = ask(trial, job(2)).refused
    assert refused.message == (
        f"exceeded quota: gpus, requested: {name}=16, used: {name}=4, limited: {name}=16: "
        "not all of its pods are made before others end or the quota is raised"
    )
    assert not ask(trial, job(1)).refused


URGENT = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "urgent"}, "value": 9}  # fmt: skip
AFAR = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
    {"topologyKey": "rack", "labelSelector": {}, "namespaces": ["other"]},
]}}  # fmt: skip
CPU = {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}


def in_class(operator, *values):
    """The scopes of a quota for pods of priority classes."""
    term = {"scopeName": "PriorityClass", "operator": operator}
    return {
        "scopeSelector": {"matchExpressions": [term | ({"values": [*values]} if values else {})]}
    }


@pytest.mark.parametrize(
    ("scopes", "pod", "covered"),
    [
        ({"scopes": ["Terminating"]}, {"activeDeadlineSeconds": 60}, True),
        ({"scopes": ["Terminating"]}, {}, False),
        ({"scopes": ["NotTerminating"]}, {}, True),
        ({"scopes": ["NotTerminating"]}, {"activeDeadlineSeconds": 60}, False),
        ({"scopes": ["BestEffort"]}, {}, True),  # GPUs make no class of service
        ({"scopes": ["BestEffort"]}, CPU, False),
        ({"scopes": ["NotBestEffort", "Terminating"]}, CPU, False),
        ({"scopes": ["CrossNamespacePodAffinity"]}, {"affinity": AFAR}, True),
        ({"scopes": ["CrossNamespacePodAffinity"]}, {}, False),
        (in_class("In", "urgent"), {"priorityClassName": "urgent"}, True),
        (in_class("In", "urgent"), {}, False),
        (in_class("NotIn", "urgent"), {}, True),
        (in_class("Exists"), {"priorityClassName": "urgent"}, True),
        (in_class("DoesNotExist"), {"priorityClassName": "urgent"}, False),
        ({"scopes": ["OfTomorrow"]}, {}, False),
    ],
)
def test_a_quota_with_scopes_counts_the_pods_within_them(scopes, pod, covered):
    """Given a quota of no pods at all, then those that it covers are refused in the words of the server."""
    trial = trial_of(queue("a"), node("n0"), URGENT, quota("none", {"pods": "0"}, {}, **scopes))
    answer = ask(trial, job(1, template_=template(1, **pod)))
    told = ["exceeded quota: none, requested: pods=1, used: pods=0, limited: pods=0"]
    assert [each.message.partition(": not all")[0] for each in answer.refused] == told * covered


def test_the_default_priority_class_counts_for_scopes_of_quotas():
    """Given pods that name no class and one that is everybody's, then a quota of that class covers them."""
    scoped = quota("none", {"pods": "0"}, {}, **in_class("In", "urgent"))
    trial = trial_of(queue("a"), node("n0"), {**URGENT, "globalDefault": True}, scoped)
    assert ask(trial, job(1)).refused


def test_a_job_that_waits_for_somebody_to_resume_it_is_told():
    """Given a suspended Job without a queue, which nothing of ours starts, then a remark says so."""
    made = job(1, suspend=True, template_=template(scheduler="other"))
    del made["metadata"]["labels"]
    answer = ask(trial_of(queue("a"), node("n0")), made)
    assert answer.remarks == ("Job team/new has no pods now: it is suspended, or asks for none",)


def test_a_cluster_that_was_read_while_it_changed_is_answered_of_its_moment():
    """Given pods on a node that is gone and of a group that is gone, then the answer says of when it is."""
    torn = [each for each in gang("lost", 2, 1, on=["gone"] * 2) if each["kind"] == "Pod"]
    trial = trial_of(queue("a"), node("n0"), torn)
    answer = ask(trial, manifest("Pod", "v1", template()["spec"]))
    assert (answer.as_of, answer.gangs[0].starting) == (NOW, 1)


def test_a_template_of_claims_that_is_not_there_is_told():
    """Given pods whose claims come from a template that does not exist, then they never start, and why."""
    claims = [{"name": "gpu", "resourceClaimTemplateName": "one"}]
    made = manifest("Pod", "v1", template(1, resourceClaims=claims)["spec"])
    found = only_gang(ask(trial_of(queue("a"), node("n0"), device_class()), made, better=False))
    assert found.never == "pod new names ResourceClaimTemplate one, which is not there"
