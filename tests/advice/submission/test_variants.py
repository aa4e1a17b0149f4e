"""Variants of a submission side by side: another queue, level, type, number of members."""

from __future__ import annotations

import json

import pytest

from gpusched.advice.start_answer import StartKind
from gpusched.advice.submission.changed_manifests import with_members
from gpusched.advice.submission.manifests import read_manifests
from gpusched.advice.submission.variants import answer_variants
from gpusched.base.errors import UsageError
from tests.advice.clusters import A100, GPU, H100, gang, node, queue, trial_of
from tests.advice.submission.manifests import KINDS, ask, group, job, only_gang, template

GROUPED = [group(2), job(2, template_=template(labels={"gpusched.io/pod-group": "new"}))]
LABELLED = [job(2, template_=template(annotations={"gpusched.io/min-member": "2"}))]


def documents_of(manifests):
    """Manifests as a file has them."""
    return read_manifests("---\n".join(f"{json.dumps(each)}\n" for each in manifests).encode(), "f")


def variants(trial, manifests, **wanted):
    """Options and start of each variant, the best first."""
    found = answer_variants(trial, documents_of(manifests), wanted, namespace="team")
    return [
        ({**each.options}, each.answer.gangs[0].start.kind, each.best) for each in found
    ]  # fmt: skip


@pytest.mark.parametrize("manifests", [GROUPED, LABELLED], ids=["group", "label"])
def test_each_option_is_carried_out_and_the_best_stands_first(manifests):
    """Given one free node in each of two racks, H100 and A100, then what fits starts now."""
    trial = trial_of(
        queue("a", capability={GPU: "8"}), queue("b"), node("n0", rack="r0"),
        node("n1", rack="r1", product=A100),
    )  # fmt: skip
    assert variants(trial, manifests, queue=("a", "b")) == [
        ({"queue": "b"}, StartKind.NOW, True),
        ({"queue": "a"}, StartKind.UNKNOWN, False),
    ]
    roomy = trial_of(queue("a"), node("n0", rack="r0"), node("n1", rack="r1", product=A100))
    assert variants(roomy, manifests, level=("rack", "none")) == [
        ({"level": "none"}, StartKind.NOW, True),
        ({"level": "rack"}, StartKind.UNKNOWN, False),
    ]
    assert variants(roomy, manifests, members=("1", "2", "3")) == [
        ({"members": "2"}, StartKind.NOW, True),
        ({"members": "1"}, StartKind.NOW, True),
        ({"members": "3"}, StartKind.UNKNOWN, False),
    ]
    assert variants(roomy, manifests, gpus=("h100",), members=("1", "2")) == [
        ({"members": "1", "gpus": "h100"}, StartKind.NOW, True),
        ({"members": "2", "gpus": "h100"}, StartKind.UNKNOWN, False),
    ]


def test_a_type_replaces_the_selector_of_the_file():
    chosen = job(1, template_=template(nodeSelector={"nvidia.com/gpu.product": H100}))
    trial = trial_of(queue("a"), node("n0", product=A100))
    assert variants(trial, [chosen], gpus=("a100",)) == [({"gpus": "a100"}, StartKind.NOW, True)]


def test_a_variant_that_can_never_start_is_told_apart_from_one_that_waits():
    """Given one node of eight, then two pods of eight can never start on it, and another one waits."""
    trial = trial_of(queue("a"), node("n0"), gang("run", 8, 1, on=["n0"] * 8))
    found = answer_variants(
        trial, documents_of(GROUPED), {"members": ("1", "2")}, namespace="team"
    )  # fmt: skip
    never = [(each.options["members"], each.answer.gangs[0].never) for each in found]
    assert never == [
        ("1", ""),
        ("2", "never, even on an empty cluster: 8 nvidia.com/gpu in a container and 2 pods at once cannot hold together"),
    ]  # fmt: skip


def test_evicting_fewer_others_is_better():
    """Given a queue that must reclaim and one that has room of its own, then the latter is best."""
    trial = trial_of(
        queue("a", deserved={GPU: "8"}), queue("b", deserved={GPU: "8"}), queue("c"),
        node("n0"), gang("run", 8, 1, on=["n0"] * 8, queue="c"),
    )  # fmt: skip
    found = variants(trial, [group(1), *GROUPED[1:]], queue=("a",), members=("1",))
    assert found == [({"queue": "a", "members": "1"}, StartKind.AFTER_EVICTIONS, True)]


SIZED = [
    "Job", "PodGroup", "Deployment", "StatefulSet", "LeaderWorkerSet", "PyTorchJob", "MPIJob",
    "RayCluster", "RayJob", "RayService", "Volcano Job", "native PodGroup", "coscheduling PodGroup",
]  # fmt: skip


@pytest.mark.parametrize("kind", SIZED)
def test_members_are_those_of_the_gang(kind):
    trial = trial_of(queue("a"), *(node(f"n{each}") for each in range(4)))
    documents = with_members(documents_of(KINDS[kind][0]), 4)
    found = only_gang(ask(trial, *(each.obj for each in documents)))
    assert found.pods == 4
    assert found.min_member == (1 if kind in {"Deployment", "StatefulSet"} else 4)


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        ({"members": ("none",)}, '--members "none": a number from 1 to 10,000 is needed'),
        ({"members": ("0",)}, '--members "0": a number from 1 to 10,000 is needed'),
        ({"queue": ("a", "a")}, '--queue names "a" twice'),
        ({"level": ("rak",)}, '--level "rak": the nodes have no such level; there are rack, host, none; did you mean "rack"'),
        ({"gpus": ("h200",)}, f'--gpus "h200": no node has such GPUs; there are {H100}'),
        ({"queue": tuple("abcde"), "members": tuple("12345")}, "these options make 25 variants, more than 24"),
    ],
)  # fmt: skip
def test_options_that_mean_nothing_here_are_one_sentence(wanted, why):
    trial = trial_of(queue("a"), node("n0"))
    with pytest.raises(UsageError) as raised:
        variants(trial, GROUPED, **wanted)
    assert str(raised.value) == why


@pytest.mark.parametrize(
    ("manifests", "why"),
    [
        ([group(2, minTaskMember={"w": 2}), GROUPED[1]], "PodGroup new has minTaskMember: --members cannot say of which part"),
        ([job(1), job(1, name="other")], "--members is for one gang, and there are several: Job new, Job other"),
        (KINDS["JobSet"][0], "JobSet new has 2 replicatedJobs: --members is for one of them"),
        (KINDS["Pod"][0], "--members is for a workload that says how many pods it has"),
    ],
)  # fmt: skip
def test_members_that_contradict_the_file_are_one_sentence(manifests, why):
    with pytest.raises(UsageError) as raised:
        variants(trial_of(queue("a"), node("n0")), manifests, members=("2",))
    assert str(raised.value) == why
