"""Shares and slices of GPUs by whole daemons: packed, kept through restarts, never too many."""

from __future__ import annotations

import copy
import random
from collections import Counter
from fractions import Fraction
from typing import Any

import pytest

FRACTION, MEMORY = "gpusched.io/gpu-fraction", "gpusched.io/gpu-memory"
SMALL, LARGE = "nvidia.com/mig-1g.5gb", "nvidia.com/mig-3g.20gb"


def node(w: Any, name: str, amounts: dict[str, str], **labels: str) -> None:
    """A fake node that offers such GPUs or slices."""
    offer = {"cpu": "96", "memory": "1Ti", "pods": "110", **amounts}
    w.client.create(
        "nodes",
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "annotations": {"kwok.x-k8s.io/node": "fake"},
                "labels": labels,
            },
            "status": {
                "capacity": offer,
                "allocatable": offer,
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        },
    )


def share(w: Any, name: str, text: str, **labels: str) -> None:
    """A pod with a share: a fraction, or an amount of memory."""
    key = FRACTION if text.startswith("0") else MEMORY
    w.pod(name, gpus=0, annotations={key: text}, labels=labels)


def sliced(w: Any, name: str, profile: str, count: int) -> None:
    """A pod with slices of one profile."""
    limits = {profile: str(count)}
    container = {"name": "c", "image": "i", "resources": {"limits": limits}}
    w.pod(name, gpus=0, spec={"containers": [container]})


def slot(w: Any, name: str) -> tuple[str, str]:
    """Node and slots of a bound pod."""
    pod = w.client.get("pods", "default", name)
    return pod["spec"]["nodeName"], pod["metadata"]["annotations"]["gpusched.io/slots"]


def test_shares_are_packed_and_whole_gpus_stay_whole(play):
    """Six halves and four quarters are on four GPUs; four pods with a whole GPU have the others."""

    async def scenario(w: Any) -> None:
        await w.start(nodes=0, stages=False)
        node(w, "n0", {"nvidia.com/gpu": "4"})
        node(w, "n1", {"nvidia.com/gpu": "4"})
        w.daemon()
        for number in range(6):
            share(w, f"half-{number}", "0.5")
        for number in range(4):
            share(w, f"quarter-{number}", "0.25")
        await w.until(lambda: len(w.bound()) == 10)
        assert len({slot(w, pod["metadata"]["name"]) for pod in w.pods()}) == 4
        for number in range(4):
            w.pod(f"whole-{number}", gpus=1)
        await w.until(lambda: len(w.bound()) == 14)
        share(w, "late", "0.1")
        await w.until(lambda: w.told("late").get("status") == "False")
        assert "2 have no GPU with room for its share" in w.told("late")["message"]

    play(scenario)


def test_a_gang_of_shares_that_fits_nowhere_waits_as_a_whole(play):
    """Three shares of 0.6 need three GPUs; when one ends, the three start."""

    async def scenario(w: Any) -> None:
        await w.start(nodes=0, stages=False)
        node(w, "n", {"nvidia.com/gpu": "3"})
        w.daemon()
        share(w, "first", "0.5")
        await w.until(w.bound)
        w.group("g", minMember=3)
        for number in range(3):
            share(w, f"g-{number}", "0.6", **{"gpusched.io/pod-group": "g"})
        await w.until(lambda: w.condition("g").get("reason") == "InsufficientResources")
        assert "needs 3 pods with 0.6 nvidia.com/gpu" in w.condition("g")["message"]
        assert not w.bound("g")
        w.client.delete("pods", "default", "first", grace_s=0)
        await w.until(lambda: len(w.bound("g")) == 3)
        assert len({slot(w, f"g-{number}") for number in range(3)}) == 3

    play(scenario)


@pytest.mark.parametrize(("kill_at", "answered"), [(1, True), (3, False), (4, True)])
def test_a_restart_finds_every_share_where_it_is(play, kill_at, answered):
    """The daemon dies in the middle of binding; the next one reads shares back and goes on."""

    async def scenario(w: Any) -> None:
        await w.start(nodes=0, stages=False)
        node(w, "n", {"nvidia.com/gpu": "2"}, **{"nvidia.com/gpu.memory": "40960"})
        for number in range(3):
            share(w, f"third-{number}", "0.3")
            share(w, f"memory-{number}", "8Gi")
        first = w.daemon(kill_at=kill_at, answered=answered, kill_on="/binding")
        await w.until(lambda: first.dead)
        w.daemon()
        await w.until(lambda: len(w.bound()) == 6)
        where = {pod["metadata"]["name"]: slot(w, pod["metadata"]["name"]) for pod in w.pods()}
        assert len(set(where.values())) == 2
        share(w, "rest", "0.4")
        await w.until(lambda: w.told("rest").get("status") in {"False", "True"})

    play(scenario)


@pytest.mark.parametrize("seed", range(2))
def test_any_mix_never_takes_more_than_a_gpu_is(play, seed):
    """Shares by fraction and memory, whole GPUs; pods end, daemons die: each GPU holds one at most."""

    async def scenario(w: Any) -> None:
        chance = random.Random(seed)
        await w.start(nodes=0, stages=False)
        for number in range(3):
            labels = {"nvidia.com/gpu.memory": str(chance.choice((16, 40)) * 1024)}
            node(w, f"n{number}", {"nvidia.com/gpu": str(chance.randint(1, 3))}, **labels)
        daemon = w.daemon()
        for step in range(30):
            kind = chance.choice(("whole", "0.3", "0.5", "0.7", "5Gi", "12Gi", "0.05"))
            if kind == "whole":
                w.pod(f"p{step}", gpus=1)
            else:
                share(w, f"p{step}", kind)
            await w.clock.sleep(chance.choice((0.0, 1.0, 3.0)))
            for pod in w.bound():
                if chance.random() < 0.08:
                    w.client.delete("pods", "default", pod["metadata"]["name"], grace_s=0)
            if chance.random() < 0.1:
                daemon.kill()
                daemon = w.daemon()
            assert fullest(w) <= 1
        await w.clock.sleep(40.0)
        assert fullest(w) <= 1
        assert w.bound()

    play(scenario)


def fullest(w: Any) -> Fraction:
    """The most that is taken of any GPU."""
    memory = {
        each["metadata"]["name"]: int(each["metadata"]["labels"]["nvidia.com/gpu.memory"]) // 1024
        for each in w.client.list("nodes")
    }
    taken: Counter[tuple[str, str]] = Counter()
    for pod in w.bound():
        notes = pod["metadata"].get("annotations", {})
        part = Fraction(notes.get(FRACTION, 1))
        if MEMORY in notes:
            part = Fraction(int(notes[MEMORY].removesuffix("Gi")), memory[pod["spec"]["nodeName"]])
        for number in notes["gpusched.io/slots"].split(","):
            taken[pod["spec"]["nodeName"], number] += part
    return Fraction(max(taken.values(), default=0))


def test_slices_are_slots_of_their_own(play):
    """Behind two whole GPUs three small and two large slices: each pod has what it asks for."""

    async def scenario(w: Any) -> None:
        await w.start(nodes=0, stages=False)
        offer = {"nvidia.com/gpu": "2", SMALL: "3", LARGE: "2"}
        node(w, "n", offer, **{"nvidia.com/mig.strategy": "mixed"})
        first = w.daemon()
        sliced(w, "two", SMALL, 2)
        await w.until(w.bound)
        first.kill()
        w.daemon()
        sliced(w, "large", LARGE, 2)
        w.pod("whole", gpus=2)
        sliced(w, "one", SMALL, 1)
        await w.until(lambda: len(w.bound()) == 4)
        found = {name: slot(w, name) for name in ("two", "one", "large", "whole")}
        assert found == {
            "two": ("n", "2,3"), "one": ("n", "4"), "large": ("n", "5,6"), "whole": ("n", "0,1"),
        }  # fmt: skip
        sliced(w, "more", SMALL, 1)
        await w.until(lambda: w.told("more").get("status") == "False")
        assert f"lacks free {SMALL}" in w.told("more")["message"]

    play(scenario)


def test_one_strategy_makes_slices_of_all_gpus(play):
    """With the single strategy slices are called GPUs: they are given whole, and not shared."""

    async def scenario(w: Any) -> None:
        await w.start(nodes=0, stages=False)
        labels = {
            "nvidia.com/mig.strategy": "single",
            "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb",
        }
        node(w, "n", {"nvidia.com/gpu": "7"}, **labels)
        w.daemon()
        w.pod("three", gpus=3)
        share(w, "half", "0.5")
        await w.until(w.bound)
        assert slot(w, "three") == ("n", "0,1,2")
        await w.until(lambda: w.told("half").get("status") == "False")
        assert "1 has no GPU that can be shared" in w.told("half")["message"]

    play(scenario)


@pytest.mark.parametrize("text", ["1.5", "NaN"])
def test_a_share_that_cannot_be_read_is_told(play, text):
    """Its author is told, and everybody else goes on."""

    async def scenario(w: Any) -> None:
        await w.start(nodes=0, stages=False)
        node(w, "n", {"nvidia.com/gpu": "1"})
        w.pod("bad", gpus=0, annotations={FRACTION: text})
        share(w, "good", "0.5")
        w.daemon()
        await w.until(w.bound)
        await w.until(lambda: events(w, "bad"))
        assert f"metadata.annotations[{FRACTION}]" in events(w, "bad")[0]
        assert not w.client.get("pods", "default", "bad")["spec"].get("nodeName")

    play(scenario)


def events(w: Any, name: str) -> list[str]:
    """What is told of a pod."""
    found = w.client.list("events")
    return [e["message"] for e in found if e["involvedObject"]["name"] == name]


def test_an_annotation_that_is_spoilt_later_frees_nothing(play):
    """A running share becomes unreadable: its GPU is nobody else's until it is gone."""

    async def scenario(w: Any) -> None:
        await w.start(nodes=0, stages=False)
        node(w, "n", {"nvidia.com/gpu": "1"})
        w.daemon()
        share(w, "first", "0.5")
        await w.until(w.bound)
        pod = copy.deepcopy(w.client.get("pods", "default", "first"))
        pod["metadata"]["annotations"][FRACTION] = "much"
        w.client.update("pods", pod)
        await w.clock.sleep(1.0)
        share(w, "second", "0.5")
        await w.until(lambda: w.told("second").get("status") == "False")
        assert len(w.bound()) == 1
        w.client.delete("pods", "default", "first", grace_s=0)
        await w.until(lambda: w.bound() and slot(w, "second") == ("n", "0"))

    play(scenario)
