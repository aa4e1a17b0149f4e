"""A copy that is changed again and again is what one made anew would be."""

from __future__ import annotations

import random

import pytest

from benchmarks.advice.large_cluster import make_large_cluster
from benchmarks.advice.random_clusters import RandomCluster, make_node
from benchmarks.advice.share_started import trial_of
from gpusched.advice.trial import edit_away, edit_to
from gpusched.api.meta.gpu_resources import gpu_resources_in_force
from gpusched.config.model import DEFAULT
from gpusched.engine.objects import key_of, plural_of
from tests.populations import one_of

ARRAYS = ("allocatable", "used", "leaving", "foreign")


def random_edits(draw, trial, objects):
    """Nodes come and go, change their type, and pods end."""
    nodes = [obj for obj in objects if obj["kind"] == "Node"]
    running = [obj for obj in objects if obj["kind"] == "Pod" and "nodeName" in obj["spec"]]
    held = {obj["spec"]["nodeName"] for obj in running}
    empty = [obj for obj in nodes if obj["metadata"]["name"] not in held]
    yield [edit_to(make_node(900 + draw.randrange(50)))]
    yield [edit_to({**make_node(0), "metadata": make_node(950)["metadata"] | {"name": "a-first"}})]
    yield [
        edit_away(plural_of(obj), key_of(obj)) for obj in draw.sample(running, 3)
    ] + [edit_to(make_node(901))]  # fmt: skip
    other = trial.objects.get("nodes", key_of(draw.choice(nodes)))
    labels = {**other["metadata"]["labels"], "nvidia.com/gpu.product": "another"}
    yield [edit_to({**other, "metadata": {**other["metadata"], "labels": labels}})]
    for obj in empty[:1]:
        yield [edit_away("nodes", key_of(obj))]


@pytest.mark.parametrize("seed", one_of(2, range(3)))
def test_each_change_is_decided_as_on_a_copy_made_for_it(seed):
    """Given changes one after the other, then arrays and plans equal those of a cluster that was so from the start."""
    draw = random.Random(seed)
    cluster = make_large_cluster(seed, nodes=10, waiting=20)
    with gpu_resources_in_force(DEFAULT.gpu_resources):
        trial = trial_of(cluster)
        first = trial.decide().plan
        for edits in random_edits(draw, trial, cluster.objects):
            with trial.changed(edits):
                anew = trial_of_edited(cluster, edits)
                kept, made = trial.take_snapshot().nodes, anew.take_snapshot().nodes
                assert [each.name for each in kept.nodes] == [each.name for each in made.nodes]
                assert kept.free_slots == made.free_slots
                for name in ARRAYS:
                    assert (getattr(kept, name) == getattr(made, name)).all(), name
                assert said(trial.decide()) == said(anew.decide())
        assert trial.decide().plan.binds == first.binds


def test_pods_that_are_made_later_are_none_of_those_that_there_are():
    """Given objects of a simulation of the same epoch, most of them gone, then a new one has a UID of its own."""
    cluster = make_large_cluster(0, nodes=10, waiting=20)
    with gpu_resources_in_force(DEFAULT.gpu_resources):
        last = [*trial_of(cluster).objects.all("pods")][-1]
        few = trial_of(RandomCluster((last,), cluster.now)).objects
    made = [few.create(make_node(each), now=0.0) for each in range(3000)]
    uids = {each["metadata"]["uid"] for each in (last, *made)}
    assert len(uids) == len(made) + 1


def trial_of_edited(cluster, edits):
    """A copy of the cluster that is made as it is after the change."""
    anew = trial_of(cluster)
    changed = {(edit.plural, edit.key): edit.becomes for edit in edits}
    objects = {(plural_of(obj), key_of(obj)): obj for obj in cluster.objects}
    objects.update(changed)
    left = [obj for obj in objects.values() if obj is not None]
    ordered = sorted(left, key=lambda obj: obj["kind"] == "Pod")
    return type(anew)(ordered, DEFAULT, now=cluster.now, clock=anew._clock)


def said(decision):
    """Who gets which nodes, who leaves, and why others wait."""
    plan = decision.plan
    return (
        [(each.gang, sorted(bind.node for bind in each.binds)) for each in plan.binds],
        [(each.gang, [stop.gang for stop in each.stops]) for each in plan.preemptions],
        [(each.gang, each.scheduled) for each in plan.gangs],
    )
