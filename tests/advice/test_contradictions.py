"""What is told to contradict itself does: all of it cannot be placed on the empty cluster, less of it can."""

from __future__ import annotations

import random

import pytest

from gpusched.advice.contradiction import find_contradiction
from gpusched.advice.start_answer import StartKind, start_answer
from tests.advice.clusters import A100, API, GPU, H100, gang, node, queue, trial_of, waiting_gang
from tests.advice.submission.manifests import KINDS, ask, only_gang
from tests.populations import one_of

PRODUCT = "nvidia.com/gpu.product"
HOST = "kubernetes.io/hostname"


class DrawnCase:
    """A small cluster that is full, and a gang with constraints, each of which can be left out."""

    def __init__(self, seed):
        draw = random.Random(seed)
        count = draw.randint(1, 5)
        tainted = draw.random() < 0.3
        self.nodes = [
            node(f"n{each}", rack=f"r{each // 2}", product=draw.choice([H100, A100]))
            for each in range(count)
        ]
        for each in self.nodes[:1] if tainted else ():
            each["spec"] = {"taints": [{"key": "pool", "value": "x", "effect": "NoSchedule"}]}
        self.pods, self.gpus = draw.randint(1, 6), draw.choice([2, 4, 8, 8, 16])
        self.cpu = draw.choice([0, 0, 50, 200])
        self.product = draw.choice([None, H100, A100])
        self.rack = draw.random() < 0.5
        self.apart = draw.random() < 0.4
        self.limit = draw.choice([0, 0, 8, 24])
        self.wide_limit = draw.choice([0, 0, 16])
        self.kept = draw.choice([0, 0, 8]) if count > 1 else 0
        self.limits = {"cpu": self.cpu, GPU: self.gpus}
        self.form = lambda group, *pods: [group, *pods]

    def titles(self):
        """How each constraint of the case is told."""
        of = {
            f"{self.gpus} {GPU} in a container": True,
            f"{self.cpu} cpu in a container": self.cpu,
            f"nodes of {PRODUCT}={self.product}": self.product,
            "one rack for all pods": self.rack,
            "its anti-affinity between pods": self.apart,
            f"{self.pods} pods at once": self.pods > 1,
            "tolerations that leave out some nodes' taints": True,
            f"the capability of queue a ({self.limit} {GPU})": self.limit,
            f"the capability of queue above ({self.wide_limit} {GPU})": self.wide_limit,
            f"the guarantee of queue b ({self.kept} {GPU})": self.kept,
        }
        return {title for title, there in of.items() if there}

    def cluster(self, constraints, *, full=False):
        """The cluster with a gang that has these constraints alone.

        Args:
            constraints: by title.
            full: whether other gangs hold all of it.
        """
        has = self.titles().intersection(constraints)
        wide = {"capability": {GPU: str(self.wide_limit)}}
        own = {"capability": {GPU: str(self.limit)}}
        kept = {"guarantee": {"resource": {GPU: str(self.kept)}}, "deserved": {GPU: str(self.kept)}}
        queues = [
            queue("above", **(wide if any("queue above" in each for each in has) else {})),
            queue("a", parent="above", **(own if any("queue a " in each for each in has) else {})),
            queue("b", **(kept if any("queue b" in each for each in has) else {})),
        ]
        others = [
            gang(f"run-{each['metadata']['name']}", 1, 8, on=[each["metadata"]["name"]], queue="b")
            for each in self.nodes
        ]
        return trial_of(queues, self.nodes, *(others if full else ()), self._gang(has))

    def _gang(self, has):
        group, *pods = gang("new", self.pods, self.gpus)
        spec = group["spec"]
        spec["minMember"] = self.pods if f"{self.pods} pods at once" in has else 1
        if "one rack for all pods" in has:
            spec["topology"] = {"required": "rack"}
        for each in pods:
            self._constrain(each["spec"], has)
        return self.form(group, *pods)

    def _constrain(self, spec, has):
        amounts = {
            name: str(amount) for name, amount in self.limits.items()
            if f"{amount} {name} in a container" in has
        }  # fmt: skip
        spec["containers"][0]["resources"] = {"limits": amounts}
        if f"nodes of {PRODUCT}={self.product}" in has:
            spec["nodeSelector"] = {PRODUCT: self.product}
        if "its anti-affinity between pods" in has:
            selector = {"matchLabels": {"gpusched.io/pod-group": "new"}}
            term = {"labelSelector": selector, "topologyKey": HOST}
            spec["affinity"] = {
                "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
            }
        if "tolerations that leave out some nodes' taints" not in has:
            spec["tolerations"] = [{"operator": "Exists"}]

    def is_placeable(self, constraints):
        """Whether the gang with these constraints alone starts on the empty cluster."""
        trial = self.cluster(constraints)
        return start_answer(trial.decide(), waiting_gang(trial, "new").key).starts


@pytest.mark.parametrize("seed", one_of(40, range(800)))
def test_every_part_of_a_contradiction_is_needed_and_all_of_it_is_enough(seed):
    """Given random constraints, then the core alone cannot be placed, and can without any one of it."""
    case = DrawnCase(seed)
    full = case.cluster(case.titles(), full=True)
    told = find_contradiction(full, waiting_gang(full, "new"))
    assert (told is None) == case.is_placeable(case.titles())
    if told is None:
        return
    core = set(told.demands)
    assert core <= case.titles()
    assert len(core) == len(told.demands)
    assert not case.is_placeable(core)
    for each in core:
        assert case.is_placeable(core - {each}), f"{each} is not needed"


def as_job(group, *pods):
    """The gang as a Job that says the same by its size and its annotations."""
    level = group["spec"].get("topology", {}).get("required")
    name, space = group["metadata"]["name"], group["metadata"]["namespace"]
    head = {
        "name": name, "namespace": space, "uid": "uid-of-job", "labels": {"gpusched.io/queue": "a"},
        "annotations": {"gpusched.io/topology-required": level} if level else {},
    }  # fmt: skip
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": name,
        "uid": head["uid"],
        "controller": True,
    }
    for each in pods:
        each["metadata"] = {
            **each["metadata"],
            "labels": head["labels"],
            "ownerReferences": [owner],
        }
    size = {"parallelism": len(pods), "completions": len(pods), "completionMode": "Indexed"}
    template = {"metadata": {"labels": head["labels"]}, "spec": pods[0]["spec"]}
    made = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": head,
        "spec": {**size, "template": template},
    }
    return [made, *pods]


@pytest.mark.parametrize("seed", one_of(20, range(800, 1100)))
def test_a_job_contradicts_itself_as_a_pod_group_that_says_the_same_does(seed):
    case = DrawnCase(seed)
    case.apart = False
    group = case.cluster(case.titles(), full=True)
    told = find_contradiction(group, waiting_gang(group, "new"))
    if case.pods > 1:
        case.form = as_job
        jobs = case.cluster(case.titles(), full=True)
        (job,) = [each for each in jobs.take_snapshot().gangs if each.key.name == "new"]
        assert job.key.kind == "Job"
        assert find_contradiction(jobs, job) == told


SEVERAL = [kind for kind, (_, (_, _, minimum)) in KINDS.items() if minimum > 1]


@pytest.mark.parametrize("kind", SEVERAL)
def test_a_gang_of_any_kind_that_is_too_large_for_the_cluster_is_told_so(kind):
    """Given one empty node, and pods of which any one would start there, then it is their number with their GPUs."""
    documents, (_, _, minimum) = KINDS[kind]
    found = only_gang(ask(trial_of(queue("a"), node("n0")), *documents, better=False))
    assert found.never == (
        f"never, even on an empty cluster: 8 {GPU} in a container and {minimum} pods at once "
        "cannot hold together"
    )


WINDOW = {
    "apiVersion": API, "kind": "Reservation", "metadata": {"name": "course"},
    "spec": {"from": "2027-01-15T07:00:00Z", "duration": "2h", "nodeNames": ["n0"]},
}  # fmt: skip
USED_UP = {"budget": {"gpuHours": 0, "period": "Month"}}


@pytest.mark.parametrize("kind", ["Job", "PodGroup"])
@pytest.mark.parametrize(
    ("spec", "more", "start"),
    [({}, [WINDOW], StartKind.EXPECTED), (USED_UP, [], StartKind.UNKNOWN)],
)
def test_what_passes_with_time_is_no_contradiction(kind, spec, more, start):
    """Given a node that is kept for others until later, or a budget that is used up, then it may start later."""
    trial = trial_of(queue("a", **spec), node("n0"), node("n1"), *more)
    found = only_gang(ask(trial, *KINDS[kind][0]))
    assert (found.start.kind, found.never) == (start, "")


@pytest.mark.parametrize(
    "now",
    [
        {"spec": {"unschedulable": True}},
        {"spec": {"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}]}},
        {"status": {"conditions": [{"type": "Ready", "status": "False"}]}},
    ],
)
def test_a_node_that_may_be_well_again_is_no_contradiction(now):
    other = node("n1")
    for part, fields in now.items():
        other[part] = {**other.get(part, {}), **fields}
    found = only_gang(ask(trial_of(queue("a"), node("n0"), other), *KINDS["Job"][0], better=False))
    assert (found.start.kind, found.never) == (StartKind.UNKNOWN, "")


def test_limits_of_node_pools_are_part_of_the_contradiction():
    pool = {"name": "h", "nodeSelector": {PRODUCT: H100}, "capability": {GPU: "8"}}
    trial = trial_of(queue("a", nodePools=[pool]), node("n0"), node("n1"))
    found = only_gang(ask(trial, *KINDS["Job"][0], better=False))
    assert found.never == (
        f"never, even on an empty cluster: 8 {GPU} in a container, 2 pods at once and "
        "limits of node pools of queue a cannot hold together"
    )


def test_what_is_kept_free_for_another_queue_is_part_of_the_contradiction():
    """Given one node of which half is guaranteed to another queue, then a gang of all of it contradicts that."""
    trial = trial_of(
        queue("a"), queue("b", deserved={GPU: "4"}, guarantee={"resource": {GPU: "4"}}), node("n0"),
        gang("new", 1, 8),
    )  # fmt: skip
    told = find_contradiction(trial, waiting_gang(trial, "new"))
    assert told is not None
    assert set(told.demands) == {f"8 {GPU} in a container", f"the guarantee of queue b (4 {GPU})"}
