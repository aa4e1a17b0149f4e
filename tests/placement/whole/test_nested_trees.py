"""Gangs with sub-groups in sub-groups, in sessions: against all answers of an independent model."""

from __future__ import annotations

import random

import pytest

from gpusched.api.gang.pod_group import SubGroup, TopologyRequest
from gpusched.api.pod.pod import PodPhase
from gpusched.testing import entities
from gpusched.testing.given import Given
from tests.placement.whole.clusters import HOST_LABEL
from tests.placement.whole.nested_trees import (
    LEVELS,
    Answer,
    Tree,
    answers,
    broken,
    drawn,
    knots,
    leaves,
    worth,
)
from tests.populations import one_of

pytestmark = pytest.mark.long

LABELS = ("topology.kubernetes.io/zone", "gpusched.io/rack")


def request(level: int | None, preferred: int | None = None) -> TopologyRequest:
    return TopologyRequest(
        "" if level is None else LEVELS[level], "" if preferred is None else LEVELS[preferred]
    )


def cluster(tree: Tree, *, priority: int = 0) -> Given:
    """The machines and the gang; what runs is bound as of old."""
    c = Given()
    runs = dict.fromkeys(range(len(tree.boxes)), 0)
    for leaf in leaves(tree.gang):
        for n in leaf.runs:
            runs[n] += leaf.gpus
    for n, box in enumerate(tree.boxes):
        labels = dict(zip(LABELS, box.path, strict=True)) | {HOST_LABEL: box.name}
        c.node(box.name, gpus=box.gpus + runs[n], cpu=64_000, labels=labels)
    parent = {each.name: knot.name for knot in knots(tree.gang) for each in knot.inside}
    groups = [
        SubGroup(leaf.name, leaf.least, request(leaf.level), parent[leaf.name])
        for leaf in leaves(tree.gang)
    ]
    groups += [
        SubGroup(knot.name, 0, request(knot.level, knot.preferred), parent[knot.name], knot.least)
        for knot in knots(tree.gang)
        if knot.name
    ]
    started = any(leaf.runs for leaf in leaves(tree.gang))
    if priority:
        c.priority_class("high", priority)
    c.group(
        "g", min_member=tree.members, priority_class="high" if priority else "", sub_groups=tuple(groups), min_sub_groups=tree.gang.least,
        topology=request(tree.gang.level), phase="Running" if started else "",
    )  # fmt: skip
    taken = dict.fromkeys(range(len(tree.boxes)), 0)
    for leaf in leaves(tree.gang):
        fields = {"group": "g", "sub_group": leaf.name, "gpus": leaf.gpus, "cpu": 1, "memory": 0}
        c.pods(f"g-{leaf.name}", leaf.pods, **fields)
        for number, n in enumerate(leaf.runs):
            slots = ((1 << leaf.gpus) - 1) << taken[n]
            taken[n] += leaf.gpus
            c.pod(
                f"g-{leaf.name}-old-{number}", node=tree.boxes[n].name, slots=slots, plan="p",
                phase=PodPhase.RUNNING, scheduled=entities.BORN, **fields,
            )  # fmt: skip
    return c


def answer_of(tree: Tree, c: Given) -> Answer:
    """Where the session put the gang's pods."""
    row = {box.name: n for n, box in enumerate(tree.boxes)}
    found = {leaf.name: [0] * len(row) for leaf in leaves(tree.gang)}
    for name, node in c.then.nodes().items():
        found[name.split("-")[1]][row[node]] += 1
    return {name: tuple(way) for name, way in found.items()}


def judged(tree: Tree) -> tuple[str, bool, bool]:
    """What is wrong with what a session does; whether the gang can start; whether it was proven."""
    c = cluster(tree)
    c.when.bound()
    answer = answer_of(tree, c)
    placed = any(map(sum, answer.values()))
    every = list(answers(tree))
    binds = c.then.plan.binds
    proven = bool(binds) and binds[0].proof.startswith("optimal")
    if placed and (wrong := broken(tree, answer)):
        return f"starts though {wrong}: {answer}", bool(every), proven
    if not placed:
        return (f"refused: {c.then.why('g')}" if every else ""), bool(every), False
    value = worth(tree, answer)
    best = min(worth(tree, each) for each in every)
    if proven and binds[0].proof != "optimal":  # of so many pods as it says
        best = min(each for each in (worth(tree, each) for each in every) if each[0] == value[0])
    if proven and value > best:
        return f"{value} is called {binds[0].proof}, and there is {best}", True, True
    return "", True, proven


def with_victims(tree: Tree, rng: random.Random) -> tuple[Given, list[int]]:
    """The same on machines on which gangs of one pod of one GPU run; and what is free of each."""
    c = cluster(tree, priority=9)
    free = []
    for box in tree.boxes:
        free.append(rng.choice((0, 0, 0, 1)))
        for slot in range(box.gpus - min(free[-1], box.gpus)):
            name = f"v-{box.name}-{slot}"
            c.group(name, min_member=1, phase="Running")
            c.pod(
                name, group=name, gpus=1, cpu=1, memory=0, node=box.name, slots=1 << slot, plan="p",
                phase=PodPhase.RUNNING, scheduled=entities.BORN,
            )  # fmt: skip
    return c, [min(some, box.gpus) for some, box in zip(free, tree.boxes, strict=True)]


def test_as_few_leave_as_can_for_a_gang_with_nested_sub_groups() -> None:
    """Of victims that cost the same the fewest, and none where it would not help."""
    wrong, made, seeds = {}, 0, one_of(3, range(60))
    for seed in seeds:
        rng = random.Random(f"victims-{seed}")
        tree = drawn(rng)
        c, free = with_victims(tree, rng)
        c.when.one_session()
        leaving = len(c.then.evicted())
        sizes = {leaf.name: leaf.gpus for leaf in leaves(tree.gang)}

        def lost(answer: Answer, free: list[int] = free, sizes: dict[str, int] = sizes) -> int:
            used = [
                sum(sizes[name] * way[n] for name, way in answer.items()) for n in range(len(free))
            ]
            return sum(max(0, a - b) for a, b in zip(used, free, strict=True))

        fewest = min(map(lost, answers(tree)), default=0)
        if leaving != fewest:
            wrong[seed] = f"{leaving} leave, and {fewest} do: {c.then.why('g')}"
        made += leaving > 0
    assert wrong == {}
    assert made > len(seeds) / 4


@pytest.mark.parametrize("started", [False, True])
def test_no_wrong_start_no_refusal_of_what_fits_and_no_false_proof(started: bool) -> None:
    """Random trees up to four deep: new gangs, and gangs that lost a member or grow."""
    wrong, feasible, proven = {}, 0, 0
    seeds = one_of(3, range(80))
    for seed in seeds:
        tree = drawn(random.Random(f"nested-{started}-{seed}"), started=started)
        said, there, sure = judged(tree)
        if said:
            wrong[seed] = said
        feasible, proven = feasible + there, proven + sure
    assert wrong == {}
    assert len(seeds) * 3 / 8 < feasible < len(seeds)
    assert proven > len(seeds) / 4
