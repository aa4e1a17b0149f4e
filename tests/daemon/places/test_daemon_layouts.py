"""Slots of whole daemons' bindings against the layouts of nodes, whoever says what they are."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest
import yaml

HALVES = [[0, 1, 2, 3], [4, 5, 6, 7]]
PAIRS = [[0, 1], [2, 3], [4, 5], [6, 7]]
ALL = [[0, 1, 2, 3, 4, 5, 6, 7]]
CROSSED = [[0, 2, 4, 6], [1, 3, 5, 7]]


def node(w: Any, node_name: str, *, gpus: int = 8, layout: str = "", **labels: str) -> None:
    """A fake node that says what it is told to say about its GPUs."""
    amounts = {"cpu": "96", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": str(gpus)}
    notes = {"kwok.x-k8s.io/node": "fake"}
    if layout:
        notes["gpusched.io/gpu-layout"] = layout
    w.client.create(
        "nodes",
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": node_name, "annotations": notes, "labels": labels},
            "status": {
                "capacity": amounts,
                "allocatable": amounts,
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        },
    )


def device_slice(w: Any, name: str, roots: list[int]) -> None:
    """What a driver publishes: one GPU a PCIe root number, in order."""
    devices = [
        {
            "name": f"gpu-{number}",
            "attributes": {
                "resource.kubernetes.io/pcieRoot": {"string": f"pci0000:{root:02x}"},
                "type": {"string": "gpu"},
                "uuid": {"string": f"GPU-{number}"},
            },
        }
        for number, root in enumerate(roots)
    ]
    w.client.create(
        "resourceslices.resource.k8s.io",
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": f"{name}-gpus"},
            "spec": {
                "driver": "gpu.nvidia.com",
                "nodeName": name,
                "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
                "devices": devices,
            },
        },
    )


def slots(pod: Any) -> set[int]:
    """The annotation of a bound pod."""
    text = pod["metadata"].get("annotations", {}).get("gpusched.io/slots", "")
    return {int(each) for each in text.split(",")} if text else set()


def spans(islands: list[list[int]], taken: set[int]) -> int:
    """How many islands some slots lie in."""
    return sum(1 for island in islands if taken & set(island))


def taker(w: Any, name: str, node_name: str, taken: str) -> None:
    """A pod that was bound long ago and holds these slots."""
    w.pod(
        name,
        gpus=len(taken.split(",")),
        spec={"nodeName": node_name},
        annotations={"gpusched.io/slots": taken, "gpusched.io/fence": "1"},
    )


async def placed(w: Any, name: str, node_name: str, gpus: int) -> tuple[set[int], set[int]]:
    """Bind a pod to a node: the slots that were free, and those that it got."""
    before = [pod for pod in w.pods() if pod["spec"].get("nodeName") == node_name and slots(pod)]
    free = set(range(8)).difference(*map(slots, before))
    w.pod(name, gpus=gpus, spec={"nodeSelector": {"name": node_name}})
    await w.until(lambda: w.client.get("pods", "default", name)["spec"].get("nodeName"))
    return free, slots(w.client.get("pods", "default", name))


SOURCES: dict[str, tuple[dict[str, Any], list[list[int]]]] = {
    "annotated": ({"layout": str(PAIRS)}, PAIRS),
    "labelled": ({"gpusched.io/gpu-layout": "nvlink-pairs"}, PAIRS),
    "known": ({"nvidia.com/gpu.product": "Tesla-V100-SXM2-32GB"}, HALVES),
    "unknown": ({"nvidia.com/gpu.product": "Acme-1"}, ALL),
    "silent": ({}, ALL),
    "published": ({"layout": str(PAIRS)}, CROSSED),
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("taken", ["", "1,6", "0,3,5"])
def test_pods_get_slots_that_sit_together(play, source, taken):
    """1, 2, 4 and 3 GPUs, on whole and on fragmented nodes: as few islands as there can be."""
    said, islands = SOURCES[source]

    async def scenario(w: Any) -> None:
        await w.start(nodes=0, stages=False)
        node(w, "n", **{"name": "n", **said})
        if source == "published":
            device_slice(w, "n", [0, 1, 0, 1, 0, 1, 0, 1])
        if taken:
            taker(w, "old", "n", taken)
        w.daemon()
        for number, gpus in enumerate((1, 2, 4, 3)):
            room = 8 - sum(len(slots(pod)) for pod in w.pods())
            if gpus > room:
                continue
            free, got = await placed(w, f"p{number}", "n", gpus)
            assert len(got) == gpus
            assert got <= free
            fewest = min(spans(islands, set(some)) for some in combinations(sorted(free), gpus))
            assert spans(islands, got) == fewest

    play(scenario)


BAD = {
    "six of eight": str([[0, 1, 2], [3, 4, 5]]),
    "overlapping": str([[0, 1, 2, 3, 4], [4, 5, 6, 7]]),
    "gap": str([[0, 1, 2, 3], [4, 5, 6, 8]]),
    "no slots": str([[], [0, 1, 2, 3, 4, 5, 6, 7]]),
    "mixed": str([[0, 1], 2, 3, 4, 5, 6, 7]),
    "no JSON": "[[0,1,2,3],[4,5",
    "words": '[["a"]]',
    "huge": str([[number] for number in range(3000)]),
}


@pytest.mark.parametrize("bad", BAD)
def test_a_layout_that_cannot_be_believed_is_told_and_left_out(play, bad):
    """The next source counts, pods are bound all the same, the node's event says why."""

    async def scenario(w: Any) -> None:
        await w.start(nodes=0, stages=False)
        labels = {"name": "n", "gpusched.io/gpu-layout": "nvlink-quads"}
        node(w, "n", layout=BAD[bad], **labels)
        taker(w, "old", "n", "1,6,7")
        w.daemon()
        for number, gpus in enumerate((3, 2)):
            free, got = await placed(w, f"p{number}", "n", gpus)
            assert got <= free
            assert spans(HALVES, got) == 1
        await w.until(lambda: events(w, "n"))
        assert "metadata.annotations[gpusched.io/gpu-layout]" in events(w, "n")[0]

    play(scenario)


def events(w: Any, name: str) -> list[str]:
    """What is told of a node."""
    found = w.client.list("events")
    return [e["message"] for e in found if e["involvedObject"]["name"] == name]


def test_an_unknown_name_in_the_label_is_told(play):
    """The label names what no catalogue has: one flat group, and an event with the name."""

    async def scenario(w: Any) -> None:
        await w.start(nodes=0, stages=False)
        node(w, "n", **{"name": "n", "gpusched.io/gpu-layout": "no-such"})
        w.daemon()
        _, got = await placed(w, "p", "n", 8)
        assert got == set(range(8))
        await w.until(lambda: events(w, "n"))
        assert "'no-such', which is not in gpu-layouts.yaml" in events(w, "n")[0]

    play(scenario)


@pytest.mark.parametrize("gpus", [3, 5, 7])
def test_odd_requests_on_nodes_of_every_layout(play, gpus):
    """3, 5 and 7 GPUs: as many pods as fit, disjoint slots, as few islands as there can be."""

    async def scenario(w: Any) -> None:
        await w.start(nodes=0, stages=False)
        for number, islands in enumerate((HALVES, PAIRS, ALL, CROSSED)):
            node(w, f"n{number}", layout=str(islands), name=f"n{number}")
        w.daemon()
        for number, islands in enumerate((HALVES, PAIRS, ALL, CROSSED)):
            for turn in range(8 // gpus):
                free, got = await placed(w, f"p{number}-{turn}", f"n{number}", gpus)
                fewest = min(spans(islands, set(some)) for some in combinations(sorted(free), gpus))
                assert (len(got), spans(islands, got)) == (gpus, fewest)

    play(scenario)


def test_slices_that_change_count_at_once(play):
    """A driver publishes other roots, or nothing any more: the next pod is placed by that."""

    async def scenario(w: Any) -> None:
        await w.start(nodes=0, stages=False)
        node(w, "n", name="n", layout=str(HALVES))
        device_slice(w, "n", [0, 1, 0, 1, 0, 1, 0, 1])
        w.daemon()
        _, got = await placed(w, "p0", "n", 2)
        assert spans(CROSSED, got) == 1
        w.client.delete("resourceslices.resource.k8s.io", None, "n-gpus")
        await w.clock.sleep(1.0)
        _, got = await placed(w, "p1", "n", 4)
        assert spans(HALVES, got) == 1

    play(scenario)


def test_a_catalogue_beside_the_configuration_counts_and_is_reloaded(play, tmp_path):
    """Products of its own; a bad change is refused and the old one stays, a good one counts."""
    config, catalogue = tmp_path / "gpusched.yaml", tmp_path / "gpu-layouts.yaml"
    config.write_text("{}")
    catalogue.write_text(yaml.safe_dump({"Acme-1": PAIRS}))

    async def scenario(w: Any) -> None:
        await w.start(nodes=0, stages=False)
        node(w, "n", **{"name": "n", "nvidia.com/gpu.product": "Acme-1"})
        daemon = w.daemon(config_file=str(config))
        taker(w, "old", "n", "0,3")
        _, got = await placed(w, "p0", "n", 2)
        assert spans(PAIRS, got) == 1
        catalogue.write_text("Acme-1: [[0, 1], [1, 2]]\n")
        await w.clock.sleep(10.0)
        assert daemon.app.cache.rows.get("n").layout == tuple(map(tuple, PAIRS))
        catalogue.write_text(yaml.safe_dump({"Acme-1": CROSSED}))
        await w.until(lambda: daemon.app.cache.rows.get("n").layout == tuple(map(tuple, CROSSED)))
        for gone in ("p0", "old"):
            w.client.delete("pods", "default", gone, grace_s=0)
        await w.until(lambda: not w.pods())
        _, got = await placed(w, "p1", "n", 4)
        assert spans(CROSSED, got) == 1

    play(scenario)
