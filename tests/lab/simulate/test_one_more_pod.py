"""Random draws belong to objects: one more object shifts no other's uid, name or delay."""

from __future__ import annotations

import gc
from typing import Any

from gpusched.devcluster.apimachinery.seeded_random import KeyedRandom, SeededDraws
from gpusched.lab.virtual_time.cluster_run import ClusterRun, SimulationOptions, simulate_cluster

Obj = dict[str, Any]


def test_draws_of_a_key_do_not_depend_on_other_keys():
    """They differ by seed, concern, key and number, and repeat otherwise."""
    alone, beside = SeededDraws(1, "uid"), SeededDraws(1, "uid")
    wanted = [alone.next("a") for _ in range(3)]
    drawn = []
    for number in range(3):
        beside.next(f"b-{number}")
        drawn.append(beside.next("a"))
    assert drawn == wanted
    others = [
        SeededDraws(2, "uid").next("a"),
        SeededDraws(1, "name").next("a"),
        SeededDraws(1, "uid").next("b"),
    ]
    assert len({*wanted, *others}) == 6


def test_uniform_numbers_come_from_the_object_one_draws_about():
    """The numbers of one object are the same whoever drew between them."""
    rng, other = KeyedRandom(1, "delay"), KeyedRandom(1, "delay")
    rng.about("a")
    wanted = [rng.uniform(1.0, 2.0), rng.random()]
    other.about("a")
    first = other.uniform(1.0, 2.0)
    other.about("b")
    other.choices([1, 2], [1, 1])
    other.about("a")
    assert [first, other.random()] == wanted
    assert 1.0 <= first < 2.0


def _scenario(extra: bool) -> Any:
    async def pods(world: ClusterRun) -> dict[str, Obj]:
        for number in range(3):
            marks = {"kwok.x-k8s.io/node": "fake"}
            meta = {"name": f"node-{number}", "annotations": marks}
            world.client.create("nodes", {"apiVersion": "v1", "kind": "Node", "metadata": meta})
        names = ["a", "b", "c", "d", "e"]
        if extra:
            names.insert(2, "more")
        for name in names:
            spec = {"containers": [{"name": "c", "image": "i"}]}
            meta = {"generateName": f"{name}-", "namespace": "default"}
            made = world.client.create(
                "pods", {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
            )
            world.client.bind("default", made["metadata"]["name"], f"node-{ord(name[0]) % 3}")
        await world.clock.sleep(600)
        found = world.client.list("pods", "default")
        return {pod["metadata"]["name"]: pod for pod in found}

    return pods


def test_one_more_pod_shifts_no_other_pods_name_uid_or_times():
    """Everything but versions and addresses of the other pods stays as it was."""
    without = simulate_cluster(_scenario(extra=False), options=SimulationOptions(daemons=0)).value
    beside = simulate_cluster(_scenario(extra=True), options=SimulationOptions(daemons=0)).value
    assert len(beside) == len(without) + 1

    def shape(pod: Obj) -> Obj:
        status = {k: v for k, v in pod["status"].items() if not k.startswith("podIP")}
        uid = pod["metadata"]["uid"]
        return {"uid": uid, "status": status, "created": pod["metadata"]["creationTimestamp"]}

    assert {name: shape(beside[name]) for name in without} == {
        name: shape(pod) for name, pod in without.items()
    }
    assert {pod["status"]["phase"] for pod in without.values()} <= {"Running", "Succeeded"}


def test_a_run_leaves_the_garbage_collector_as_it_was():
    """A run looks for garbage less often than the process it runs in, which does not notice."""
    of_suite, before = gc.get_threshold(), (700, 10, 10)

    async def look(_: ClusterRun) -> tuple[int, int, int]:
        return gc.get_threshold()

    gc.set_threshold(*before)  # as in a fresh process; the suite collects seldom itself
    try:
        within = simulate_cluster(look, options=SimulationOptions(daemons=0)).value
        after = gc.get_threshold()
    finally:
        gc.set_threshold(*of_suite)

    assert within[0] > before[0]
    assert after == before
