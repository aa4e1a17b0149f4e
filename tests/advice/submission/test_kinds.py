"""Each kind of workload that is known becomes the gang that its controller would make, and starts where there is room."""

from __future__ import annotations

import pytest

from gpusched.advice.start_answer import StartKind
from gpusched.engine.objects import plural_of
from gpusched.io.watch.informers import KINDS
from tests.advice.clusters import gang, node, priority, queue, trial_of
from tests.advice.submission.manifests import KINDS as DOCUMENTS
from tests.advice.submission.manifests import ask, group, job, only_gang, template


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_a_kind_is_the_gang_that_comes_to_be_and_starts_where_there_is_room(kind):
    documents, (gang_kind, pods, minimum) = DOCUMENTS[kind]
    trial = trial_of(queue("a"), node("n0"), node("n1"))
    found = only_gang(ask(trial, *documents))
    assert (found.kind, found.pods, found.min_member) == (gang_kind, pods, minimum)
    assert found.queue == "a"
    assert found.start.kind is StartKind.NOW
    nodes = ["n0"] if kind == "Pod" else ["n0", "n1"]
    assert [each.name for each in found.shares] == nodes
    assert found.starting == pods


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_a_kind_waits_where_there_is_none_and_the_cluster_stays_as_it_was(kind):
    """Given one node that is full, then nothing starts, and the trial is left without a trace."""
    documents, _ = DOCUMENTS[kind]
    runs = gang("run", 8, 1, on=["n0"] * 8)
    trial = trial_of(queue("a"), node("n0"), runs)
    before = _state(trial)
    found = only_gang(ask(trial, *documents, better=False))
    assert found.start.kind is StartKind.UNKNOWN
    assert found.starting == 0
    assert found.start.message
    assert _state(trial) == before


def _state(trial):
    """What there is, versions aside."""
    objects = [obj for plural in KINDS for obj in trial.objects.all(plural)]
    objects.sort(key=lambda obj: (plural_of(obj), obj["metadata"]["name"]))
    snapshot = trial.take_snapshot()
    return (
        [(plural_of(obj), obj["metadata"]["name"], obj.get("spec", {})) for obj in objects],
        [gang.key for gang in snapshot.gangs if gang.pod_sets],
        sorted(snapshot.placed_gangs),
        trial.cache.families.read,
        trial.objects.rejected,
    )  # fmt: skip


def test_several_gangs_of_one_file_are_answered_together():
    """Given room for one of two, then one starts and the other is told to wait behind it."""
    trial = trial_of(queue("a"), node("n0"))
    documents, _ = DOCUMENTS["Pod"]
    (first,) = documents
    second = {**first, "metadata": {**first["metadata"], "name": "other"}}
    starts = [each.start.kind for each in ask(trial, first, second).gangs]
    assert sorted(starts) == [StartKind.NOW, StartKind.UNKNOWN]


def test_whom_it_evicts_later_is_told_where_it_starts_later():
    """Given a node that is free in an hour and one of a lower priority that would be evicted then, both are told."""
    classes = [priority("low", 1), priority("high", 100)]
    long = gang("long", 8, 1, on=["n0"] * 8, priorityClassName="high", expectedDuration="1h")
    young = gang(
        "young", 8, 1, on=["n1"] * 8, priorityClassName="low", minRuntime="30m", expectedDuration="9h"
    )  # fmt: skip
    trial = trial_of(queue("a"), *classes, node("n0"), node("n1"), long, young)
    wanted = template(labels={"gpusched.io/pod-group": "new"}, priorityClassName="high")
    found = only_gang(
        ask(trial, group(2, priorityClassName="high"), job(2, template_=wanted), better=False)
    )
    assert found.start.kind is StartKind.EXPECTED
    assert found.start.at - trial.now == pytest.approx(3600, abs=60)
    assert [each.name for each in found.start.evicted] == ["young"]


def test_what_stands_in_line_before_it_gets_the_room():
    """Given a gang that waits for the free node, then what is submitted now does not get it."""
    trial = trial_of(queue("a"), node("n0"), gang("first", 8, 1))
    documents, _ = DOCUMENTS["Pod"]
    assert only_gang(ask(trial, *documents)).start.kind is not StartKind.NOW
