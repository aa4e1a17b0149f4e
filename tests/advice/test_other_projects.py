"""Gangs that other projects' kinds describe are advised as our own are."""

from __future__ import annotations

from gpusched.advice.advisor import advise_gang
from gpusched.api.meta.identity import ObjectKey
from tests.advice.clusters import GPU, gang, node, queue, trial_of


def volcano_gang(name, pods, gpus):
    """A PodGroup of Volcano and its pods, which wait."""
    _, *members = gang(name, pods, gpus)
    for each in members:
        each["metadata"] = {
            "name": each["metadata"]["name"], "namespace": "team",
            "annotations": {"scheduling.k8s.io/group-name": name},
        }  # fmt: skip
    group = {
        "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "team"}, "spec": {"minMember": pods, "queue": "a"},
    }  # fmt: skip
    return [group, *members]


def waiting(trial):
    """The one gang that waits."""
    (found,) = [each for each in trial.take_snapshot().gangs if each.pod_sets]
    return found


def test_the_emptied_cluster_has_groups_of_other_projects():
    """Given a gang by a PodGroup of Volcano, then it is the same gang in the cluster without all others."""
    trial = trial_of(queue("a"), node("n0"), volcano_gang("new", 3, 8))
    here = waiting(trial)
    assert here.min_member == 3
    there = waiting(trial.emptied({ObjectKey("team", f"new-{each}") for each in range(3)}))
    assert (there.key, there.min_member) == (here.key, here.min_member)


def test_what_can_never_start_is_told_of_a_group_of_another_project():
    trial = trial_of(queue("a"), node("n0"), volcano_gang("new", 3, 8))
    never = advise_gang(trial, waiting(trial)).contradiction
    assert never is not None
    assert f"8 {GPU} in a container" in never.demands


def test_a_start_of_a_group_of_another_project_is_played_forward():
    trial = trial_of(queue("a"), [node(f"n{each}") for each in range(3)], volcano_gang("new", 3, 8))
    assert trial.starts_when_played(waiting(trial).key)
