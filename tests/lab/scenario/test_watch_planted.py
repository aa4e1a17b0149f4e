"""The watch finds what is planted, and nothing in histories in which all is well."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusched.lab.scenario.play.invariants import PATIENCE_S, STATUS_S, InvariantWatch
from gpusched.lab.scenario.recorder.recorder import RunRecorder
from gpusched.lab.scenario.target_cluster.interface import ObjectChange
from gpusched.testing.invariants import RECOVERY_S, check

Obj = dict[str, Any]
GPU = "nvidia.com/gpu"


def node(name: str = "n0", *, gpus: int = 4, cpu: str = "8") -> Obj:
    allocatable = {"cpu": cpu, "memory": "8Gi", GPU: str(gpus), "pods": "99"}
    return {
        "kind": "Node",
        "metadata": {"name": name, "labels": {}},
        "status": {
            "allocatable": allocatable, "conditions": [{"type": "Ready", "status": "True"}],
        },
    }  # fmt: skip


def pod(
    name: str, slots: Sequence[int] = (), *, node: str = "n0", gpus: int | None = None, **more: Any
) -> Obj:
    """A pod that we bound to a node with these GPUs."""
    share = more.get("share", "")
    limits = {"cpu": more.get("cpu", "1")}
    wanted = len(slots) if gpus is None else gpus
    if wanted and not share:
        limits[GPU] = str(wanted)
    notes = {"gpusched.io/slots": ",".join(map(str, slots)), "gpusched.io/plan": "p"}
    if share:
        notes["gpusched.io/gpu-fraction"] = share
    labels = {"gpusched.io/queue": more.get("queue", "a")}
    if "group" in more:
        labels["gpusched.io/pod-group"] = more["group"]
    meta: Obj = {
        "name": name, "namespace": "default", "uid": f"uid-{name}", "labels": labels,
        "annotations": notes if node else {},
    }  # fmt: skip
    if more.get("going"):
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    spec: Obj = {
        "schedulerName": more.get("scheduler", "gpusched"),
        "containers": [{"name": "a", "resources": {"limits": limits}}],
    }
    if node:
        spec["nodeName"] = node
    if more.get("gated"):
        spec["schedulingGates"] = [{"name": "wait"}]
    return {
        "kind": "Pod", "metadata": meta, "spec": spec,
        "status": {"phase": more.get("phase", "Pending")},
    }  # fmt: skip


def queue(name: str, gpus: int | None = None, *, parent: str = "root") -> Obj:
    spec: Obj = {"parent": parent}
    if gpus is not None:
        spec["capability"] = {GPU: gpus}
    return {"kind": "Queue", "metadata": {"name": name}, "spec": spec}


def group(name: str, minimum: int, *, phase: str = "Pending", scheduled: str = "False") -> Obj:
    said = {"type": "Scheduled", "status": scheduled, "reason": "Scheduled", "message": "why"}
    return {
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default", "uid": f"group-{name}"},
        "spec": {"minMember": minimum},
        "status": {"phase": phase, "conditions": [said]},
    }


class Story:
    """Changes, and what the watch says of them."""

    def __init__(self) -> None:
        self.recorder = RunRecorder()
        self.watch = InvariantWatch(self.recorder)

    def tell(self, at: float, *objects: Obj, gone: bool = False) -> Story:
        """Objects came, changed or went."""
        for obj in objects:
            change = ObjectChange(at, obj["kind"], obj, gone=gone)
            self.recorder.see(change)
            self.watch.see(change)
        self.watch.look(at)
        return self

    def look(self, at: float) -> Story:
        """Time went by."""
        self.watch.look(at)
        return self

    @property
    def broken(self) -> list[str]:
        """Invariants that broke, in order."""
        return [each.invariant for each in self.watch.broken]

    @property
    def said(self) -> str:
        """All sentences."""
        return "\n".join(each.sentence for each in self.watch.broken)


def test_a_share_beside_a_whole_gpu_and_shares_above_one_are_found() -> None:
    """A GPU is given once, or in parts that are one together at most."""
    story = Story().tell(0, node())
    story.tell(1, pod("a", [0], share="0.5"), pod("b", [0], share="0.5"))
    assert story.broken == []
    story.tell(2, pod("c", [0], share="0.25"))
    assert story.broken == ["slots"]
    story.tell(3, pod("d", [1]), pod("e", [1], share="0.1"))
    assert "GPU 1 of n0 was given to default/e while default/d has it" in story.said


def test_a_node_that_is_over_what_it_offers_is_found() -> None:
    """Of any resource; what ended gave its room back."""
    story = Story().tell(0, node(cpu="8"))
    story.tell(1, pod("a", cpu="5"), pod("b", cpu="3"))
    assert story.broken == []
    story.tell(2, pod("c", cpu="1"))
    assert story.said == "node n0 offers 8000 cpu, its pods ask for 9000 with default/c"
    story = Story().tell(0, node(cpu="8")).tell(1, pod("a", cpu="5"))
    story.tell(2, pod("a", cpu="5", phase="Succeeded")).tell(3, pod("b", cpu="8"))
    assert story.broken == []


def test_a_queue_above_its_capability_is_found() -> None:
    """Its own, and that of each above it; only for what is newly bound."""
    story = Story().tell(0, node(gpus=9), queue("top", 4), queue("a", 3, parent="top"))
    story.tell(0, queue("b", parent="top"))
    story.tell(20, pod("p0", [0, 1]), pod("p1", [2], queue="a"), pod("p2", [3], queue="b"))
    assert story.broken == []
    story.tell(21, pod("p3", [4], queue="b"))
    assert story.broken == ["quota"]
    assert story.said == ("queue top holds 5 nvidia.com/gpu with default/p3, its capability is 4")
    story.tell(30, queue("a", 1, parent="top")).tell(50, pod("p0", [0, 1], phase="Running"))
    assert story.broken == ["quota"], "who was bound before the cut may stay"


def test_a_queue_that_was_just_cut_is_given_time() -> None:
    """A binding under way is no breach, nor is one into the room of a pod that was told to go."""
    story = Story().tell(0, node(gpus=9), queue("a", 4)).tell(20, pod("p0", [0, 1, 2, 3]))
    story.tell(21, queue("a", 2)).tell(21 + PATIENCE_S / 2, pod("p1", [4]))
    assert story.broken == []
    story.tell(40, pod("p2", [5]))
    assert story.broken == ["quota"]
    story = Story().tell(0, node(gpus=9), queue("a", 2)).tell(20, pod("p0", [0, 1]))
    story.tell(21, pod("p0", [0, 1], going=True)).tell(21, pod("p1", [2, 3]))
    assert story.broken == []


def test_a_gang_that_stays_in_part_is_found() -> None:
    """After the time of a recovery; one that becomes whole in time is none."""
    story = Story().tell(0, node(gpus=9), group("g", 2)).tell(1, pod("p0", [0], group="g"))
    assert story.look(1 + RECOVERY_S).broken == []
    assert story.look(2 + RECOVERY_S).broken == ["gangs"]
    assert story.said == "1 of 2 pods of default/g have been bound since 1 s"
    story = Story().tell(0, node(gpus=9), group("g", 2)).tell(1, pod("p0", [0], group="g"))
    assert story.tell(90, pod("p1", [1], group="g")).look(500).broken == []


def test_a_gang_that_starts_anew_must_be_whole_anew() -> None:
    """Evicted and started in part; one that lost a member and has the others is another matter."""
    whole = [pod("p0", [0], group="g"), pod("p1", [1], group="g")]
    story = Story().tell(0, node(gpus=9), group("g", 2)).tell(1, *whole)
    story.tell(5, pod("p1", [1], group="g", phase="Failed"))
    assert story.look(500).broken == []
    story.tell(600, pod("p0", [0], group="g", phase="Failed"))
    story.tell(700, pod("p2", [0], group="g")).look(701 + RECOVERY_S)
    assert story.broken == ["gangs"]


def test_what_is_not_ours_to_bind_is_found() -> None:
    """Pods of another scheduler, and pods behind a gate; pods that others bound are theirs."""
    story = Story().tell(0, node()).tell(1, pod("a", scheduler="default-scheduler"))
    story.tell(2, pod("b", gated=True))
    assert story.broken == ["ours", "ours"]
    foreign = pod("c", scheduler="default-scheduler")
    del foreign["metadata"]["annotations"]["gpusched.io/plan"]
    assert Story().tell(0, node()).tell(1, foreign).broken == []


def test_a_group_that_is_said_to_run_without_its_members_is_found() -> None:
    """Once the status had time to follow."""
    false = group("g", 2, phase="Running", scheduled="True")
    story = Story().tell(0, node(), group("g", 2)).tell(1, pod("p1", node="", gpus=1, group="g"))
    story.tell(2, pod("p0", [0], group="g")).tell(3, false)
    assert story.look(3 + STATUS_S / 2).broken == []
    assert story.look(3 + STATUS_S).broken == ["honest"]
    story = Story().tell(0, node(), group("g", 2)).tell(1, pod("p1", node="", gpus=1, group="g"))
    story.tell(2, pod("p0", [0], group="g")).tell(3, false).tell(5, group("g", 2))
    assert story.look(20).broken == []


@pytest.mark.parametrize("slots", [[], [0], [0, 1, 2]])
def test_a_pod_has_as_many_gpus_as_it_asks_for(slots: list[int]) -> None:
    """Neither more nor fewer."""
    assert Story().tell(0, node()).tell(1, pod("a", slots, gpus=2)).broken == ["slots"]


BINDINGS = st.lists(
    st.tuples(
        st.sampled_from(["n0", "n1"]),
        st.one_of(
            st.lists(st.integers(0, 3), unique=True, max_size=3).map(lambda slots: (slots, "")),
            st.tuples(st.integers(0, 3).map(lambda slot: [slot]), st.sampled_from(["0.3", "0.5"])),
        ),
        st.sampled_from(["1", "2", "500m"]),
        st.booleans(),
    ),
    max_size=9,
)


@settings(max_examples=100, deadline=None)
@given(BINDINGS)
def test_books_find_what_counting_afresh_finds(
    bindings: list[tuple[str, tuple[list[int], str], str, bool]],
) -> None:
    """After each binding the books and a whole count of the cluster agree, up to the first breach."""
    nodes = [node("n0", cpu="6"), node("n1", cpu="6")]
    story, there = Story().tell(0, *nodes), dict[str, Obj]()
    for number, (where, (slots, share), cpu, ends) in enumerate(bindings):
        name = f"p{number}"
        there[name] = pod(name, slots, node=where, share=share, cpu=cpu)
        story.tell(20 + number, there[name])
        wrong = check({"pods": list(there.values()), "nodes": nodes})
        assert bool(wrong) == bool(story.broken), (wrong, story.said)
        if wrong:
            return
        if ends:
            there[name]["status"]["phase"] = "Succeeded"
            story.tell(20 + number, there[name])
