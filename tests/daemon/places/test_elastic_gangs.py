"""Elastic gangs on the whole daemon: placed as a whole, and the proof says for whom it holds."""

from __future__ import annotations

import random

from tests.placement.whole.clusters import LABELS, elastic
from tests.placement.whole.oracle import Machine, Question, best, worth

PROOF = "gpusched.io/proof"
GPU = "nvidia.com/gpu"


def make_nodes(world, machines):
    """Nodes with as many GPUs and cores as the machines have free."""
    for machine in machines:
        labels = dict(zip(LABELS, machine.path, strict=True))
        amounts = {"cpu": str(machine.cpu), "memory": "1Ti", "pods": "110"}
        amounts |= {GPU: str(machine.gpus)} if machine.gpus else {}
        world.client.create("nodes", {
            "apiVersion": "v1", "kind": "Node",
            "metadata": {
                "name": machine.name,
                "annotations": {"kwok.x-k8s.io/node": "fake"},
                "labels": labels | {"kubernetes.io/hostname": machine.name},
            },
            "status": {"capacity": amounts, "allocatable": amounts},
        })  # fmt: skip


def make_pods(world, group, first, count, *, gpus, cpu=1):
    """Members of a gang, which run long."""
    amounts = {"cpu": str(cpu), GPU: str(gpus)}
    spec = {
        "schedulerName": "gpusched",
        "containers": [
            {"name": "c", "image": "i", "resources": {"requests": amounts, "limits": amounts}}
        ],
    }
    for number in range(first, first + count):
        world.pod(
            f"{group}-{number}", spec=spec,
            labels={"gpusched.io/pod-group": group},
            annotations={"gpusched.io/run-for": "100h", "gpusched.io/rank": str(number)},
        )  # fmt: skip


def proofs(world, group):
    """What each bound pod says, by name."""
    return {
        pod["metadata"]["name"]: pod["metadata"]["annotations"].get(PROOF, "")
        for pod in world.bound(group)
    }


def test_seven_racks_for_a_possible_one(play):
    """Eight pods of four GPUs, two needed; one rack is entirely free, others have a node each."""

    async def scenario(world):
        await world.start(nodes=0)
        machines = [Machine(f"n{n}", ("z", "b", f"r{n}"), 4, 64) for n in range(7)]
        machines += [Machine(f"free{n}", ("z", "b", "r9"), 8, 64) for n in range(4)]
        make_nodes(world, machines)
        world.daemon()
        world.group("g", minMember=2)
        make_pods(world, "g", 0, 8, gpus=4)
        await world.clock.sleep(6)
        assert {pod["spec"]["nodeName"] for pod in world.bound("g")} == {
            "free0", "free1", "free2", "free3"
        }  # fmt: skip
        assert set(proofs(world, "g").values()) == {"optimal"}
        make_pods(world, "g", 8, 1, gpus=4)
        await world.clock.sleep(6)
        assert proofs(world, "g")["g-8"] == "optimal for 1 pod beside 8"
        assert world.condition("g")["message"] == (
            "9 pods placed, 2 needed, no more compact place existed for 8 pods and 1 pod beside 8"
        )

    play(scenario)


def test_random_elastic_gangs_get_what_the_oracle_says(play):
    """Twelve random clusters one after another, judged by what the API shows."""

    async def scenario(world):
        await world.start(nodes=0)
        world.daemon()
        for seed in range(12):
            await one_cluster(world, seed)

    play(scenario)


async def one_cluster(world, seed):
    """Make nodes and a gang, judge what became of it, and remove them again."""
    asked: Question = elastic(random.Random(f"daemon-{seed}"))
    (kind,) = asked.kinds
    make_nodes(world, asked.machines)
    levels = ("zone", "block", "rack")
    wish = {} if asked.required is None else {"topology": {"required": levels[asked.required]}}
    name = f"g{seed}"
    world.group(name, minMember=asked.least, **wish)
    make_pods(world, name, 0, kind.pods, gpus=kind.gpus, cpu=kind.cpu)
    await world.clock.sleep(6)
    row = {machine.name: number for number, machine in enumerate(asked.machines)}
    places = [(0, row[pod["spec"]["nodeName"]]) for pod in world.bound(name)]
    possible = best(asked)
    assert (worth(asked, places) if places else None) == possible, (seed, places, possible)
    for pod in world.pods(name):
        world.client.delete("pods", "default", pod["metadata"]["name"])
    world.client.delete("podgroups.scheduling.gpusched.io", "default", name)
    await world.clock.sleep(2)
    for machine in asked.machines:
        world.client.delete("nodes", "", machine.name)
