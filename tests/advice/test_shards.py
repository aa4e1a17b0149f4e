"""When something starts in a cluster that is in shards: a daemon for each of them is played."""

from __future__ import annotations

import attrs
import pytest

from gpusched.advice.service.waiting_starts import play_waiting_starts
from gpusched.advice.start_answer import StartKind
from gpusched.advice.submission.answer import answer_submission
from gpusched.advice.submission.manifests import read_manifests
from gpusched.api.affinity.selector import Requirement, Selector
from gpusched.config.model import DEFAULT, ShardConfig
from tests.advice.clusters import NOW, gang, node, queue, trial_of

MINUTE_S = 60
NEW = """
apiVersion: scheduling.gpusched.io/v1alpha1
kind: PodGroup
metadata: {name: new, namespace: team}
spec: {queue: a, minMember: %d}
---
apiVersion: batch/v1
kind: Job
metadata: {name: new, namespace: team}
spec:
  parallelism: %d
  completions: %d
  completionMode: Indexed
  template:
    metadata: {labels: {gpusched.io/pod-group: new}}
    spec:
      schedulerName: gpusched
      restartPolicy: Never
      containers: [{name: c, image: i, resources: {limits: {nvidia.com/gpu: 8}}}]
"""


def in_halls(*objects, halls, lends=False):
    """A trial in which each hall is a shard, with so many nodes."""
    nodes = []
    for hall, count in halls.items():
        for number in range(count):
            made = node(f"{hall}-{number}")
            made["metadata"]["labels"]["hall"] = hall
            nodes.append(made)
    shards = tuple(
        ShardConfig(hall, Selector((Requirement("hall", "In", (hall,)),)), lends_nodes=lends)
        for hall in halls
    )
    return trial_of(queue("a"), nodes, *objects, config=attrs.evolve(DEFAULT, shards=shards))


def when(trial, pods):
    """The answer about a gang of so many pods that take a node each."""
    documents = read_manifests((NEW % (pods, pods, pods)).encode(), "a test")
    (answer,) = answer_submission(trial, documents, namespace="team").gangs
    return answer


@pytest.mark.parametrize("pods", [1, 2])
def test_a_gang_starts_where_one_shard_has_room_for_it(pods):
    """Given two halls of two nodes, one of them half full, then it starts in one of them, all of it."""
    trial = in_halls(gang("runs", 1, 8, on=["south-0"]), halls={"north": 2, "south": 2})
    answer = when(trial, pods)
    assert answer.start.kind in (StartKind.NOW, StartKind.EXPECTED)
    assert answer.start.at <= NOW + MINUTE_S
    halls = {share.name.partition("-")[0] for share in answer.shares}
    assert len(halls) == 1
    assert pods == 1 or halls == {"north"}


def test_a_gang_starts_now_in_a_cluster_in_which_nothing_runs():
    """Given empty halls, of which each has room for it, then it starts now, though the play is over after one session."""
    answer = when(in_halls(halls={"north": 2, "south": 2}), 2)
    assert answer.start.kind is StartKind.NOW
    assert answer.starts_sometime
    assert answer.starting == 2


def test_a_gang_for_which_no_shard_has_room_is_not_told_to_start():
    """Given two halls with a free node each, then a gang of two nodes never starts, and is told why."""
    answer = when(in_halls(halls={"north": 1, "south": 1}), 2)
    assert answer.start.kind is StartKind.UNKNOWN
    assert not answer.shares
    assert not answer.starting
    assert "no shard has room for it: gangs do not span shards" in answer.start.message
    assert answer.never.startswith("no shard has room for it even when it is empty")
    assert not answer.starts_sometime


def test_of_a_gang_whose_shard_is_full_for_ever_nothing_tells_the_start():
    """Given halls full of what announces no end, then a gang may start some time, and nothing tells when."""
    runs = [*gang("runs", 2, 8, on=["north-0", "north-1"]), *gang("more", 1, 8, on=["south-0"])]
    answer = when(in_halls(runs, halls={"north": 2, "south": 2}), 2)
    assert answer.start.kind is StartKind.UNKNOWN
    assert answer.starts_sometime
    assert "it had not started by" in answer.known_by


def test_a_gang_starts_on_nodes_that_shards_lend():
    """Given the same halls that lend idle nodes, then it starts when they have: within two minutes, on both."""
    answer = when(in_halls(halls={"north": 1, "south": 1}, lends=True), 2)
    assert answer.start.kind is StartKind.EXPECTED
    assert 10 < answer.start.at - NOW < 2 * MINUTE_S
    assert [share.name for share in answer.shares] == ["north-0", "south-0"]


def test_a_gang_waits_for_the_end_of_others_in_its_shard():
    """Given halls full but for a node each, then a gang of two starts when one that runs in a hall has ended."""
    runs = gang("runs", 1, 8, on=["north-0"], expectedDuration="1h")
    other = gang("other", 1, 8, on=["south-0"], expectedDuration="3h")
    answer = when(in_halls(runs, other, halls={"north": 2, "south": 2}), 2)
    assert answer.start.kind is StartKind.EXPECTED
    assert abs(answer.start.at - NOW - 60 * MINUTE_S) < 2 * MINUTE_S
    assert [share.name for share in answer.shares] == ["north-0", "north-1"]


@pytest.mark.parametrize("lends", [False, True])
def test_starts_of_who_waits_are_those_of_shards(lends):
    """Given a gang that waits and is larger than each shard, then its start is told only where nodes are lent."""
    trial = in_halls(gang("waits", 2, 8), halls={"north": 1, "south": 1}, lends=lends)
    (at,) = play_waiting_starts(trial).starts.values()
    assert bool(at) is lends
