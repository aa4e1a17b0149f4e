"""The demo: what it draws of a scene, and one whole run of it in virtual time."""

from __future__ import annotations

import asyncio
import io
import xml.etree.ElementTree as ET

import attrs
import pytest
from rich.console import Console

from gpusched.app import App
from gpusched.base.clock import SystemClock
from gpusched.base.errors import GpuschedError, InvariantBroken
from gpusched.cli.demo.observer import DemoObserver
from gpusched.cli.demo.play import DemoOptions, DemoStep, running_demo
from gpusched.cli.demo.scene import (
    ClusterScene,
    DemoOutcome,
    GangPhase,
    GangScene,
    NodeScene,
    fuller_scene,
    queue_scenes,
)
from gpusched.cli.demo.slot_picture import legend, picture, svg
from gpusched.cli.demo.view import finale, news, screen, totals
from gpusched.cli.inspect.live.screen.gpu_map import gang_letter
from gpusched.cli.main import main
from gpusched.lab.virtual_time.loop import run_virtual

WHY = "needs 4 pods with 8 nvidia.com/gpu; 1 fits now; of 2 nodes: 1 lacks free nvidia.com/gpu"


def gang(name, **changes):
    """A gang of two pods with two GPUs each that started after half a second."""
    known = {
        "kind": "PodGroup", "namespace": "default", "name": name, "queue": "research",
        "stand": GangPhase.RUNNING, "min_member": 2, "members": 2, "held": 2, "started": 2,
        "nodes": 1, "gpus": 2, "waited_s": 0.5, "whole_s": 1.5, "spread_ms": 3.0,
        "decided_ms": 2.25,
    }  # fmt: skip
    return GangScene(**{**known, **changes})


def waits(name, **changes):
    """A gang that has not started."""
    known = {"stand": GangPhase.WAITING, "held": 0, "started": 0, "nodes": 0, "whole_s": None}
    known |= {"reason": "InsufficientResources", "sentence": WHY, "decided_ms": None}
    return gang(name, **{**known, **changes})


def scene(*gangs, slots=((0, 0, None, 1), (None, None, None, None)), at_s=2.0):
    """Two nodes in two racks, four GPUs each."""
    nodes = tuple(
        NodeScene(name=f"n{number}", rack=f"rack-{number}", slots=held)
        for number, held in enumerate(slots, start=1)
    )
    queues = queue_scenes(["idle", "research"], gangs, nodes)
    return ClusterScene(at_s=at_s, gangs=gangs, queues=queues, nodes=nodes)


def shown(renderable, *, width=100):
    """What a terminal without colours shows."""
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(renderable)
    return console.file.getvalue()


def test_the_picture_has_a_letter_for_each_slot():
    """Each slot shows its gang's letter or that it is free; racks stand side by side."""
    drawn = picture(scene(gang("a"), gang("b")), width=80).plain
    assert drawn.splitlines() == [
        "rack-1              rack-2",
        "n1   A  A  ·  B     n2   ·  ·  ·  ·",
    ]


def test_a_narrow_picture_puts_racks_below_each_other():
    """No line is longer than the terminal is wide."""
    lines = picture(scene(gang("a"), gang("b")), width=30).plain.splitlines()
    assert lines == ["rack-1", "n1   A  A  ·  B ", "", "rack-2", "n2   ·  ·  ·  ·"]


def test_the_legend_names_those_in_the_picture_and_counts_all_slots():
    """Gangs that hold nothing have no line; held and free slots add up to the cluster."""
    lines = legend(scene(gang("a"), gang("b"), gang("c", held=0))).plain.splitlines()
    assert [line.split()[:2] for line in lines] == [["A", "a"], ["B", "b"], ["·", "free"]]
    assert [int(line.rpartition("=")[2]) for line in lines] == [2, 1, 5]


def test_letters_are_distinct_as_long_as_there_are_letters():
    """52 gangs can be told apart."""
    assert len({gang_letter(number) for number in range(52)}) == 52
    assert gang_letter(52) == gang_letter(1000) == "+"


def test_the_screen_tells_who_waits_and_why():
    """Queues, the daemon's sentence word by word, and who started with its numbers."""
    text = shown(screen(scene(gang("a"), waits("big")), width=180, height=24), width=180)
    assert "3 of 8 GPUs in use" in text
    assert "1 of 2 gangs started" in text
    assert WHY in text
    assert "500 ms" in text
    assert "2.2 ms" in text
    assert "rack-1" not in text


def test_a_tall_terminal_shows_the_picture_all_the_time():
    """The picture comes with the tables where there is room."""
    assert "rack-1" in shown(screen(scene(gang("a"), gang("b")), width=100, height=60))


def test_foreign_names_are_not_read_as_markup():
    """A queue that is called like a style is shown as it is."""
    assert "[red]x" in shown(
        screen(scene(gang("a", queue="[red]x"), slots=()), width=100, height=24)
    )


def test_news_tell_each_thing_once():
    """A start, a wait and an end are one line each, and nothing is told again."""
    first = scene(waits("a"), slots=())
    second = scene(gang("a"), slots=())
    third = scene(gang("a", stand=GangPhase.DONE, held=0), slots=())
    assert [line.split("  ")[-1] for line in news(ClusterScene(at_s=0.0), first)] == [
        f"research/a waits: {WHY}"
    ]
    assert "started: 2 pods x 2 GPU on 1 node after 500 ms" in news(first, second)[0]
    assert news(second, second) == []
    assert [line.endswith("research/a is done") for line in news(second, third)] == [True]


def test_the_fullest_moment_has_most_gpus_then_most_waiting():
    """Of two moments the one worth a picture is kept."""
    empty, full = scene(slots=((None,) * 4,) * 2), scene(gang("a"), gang("b"))
    crowded = scene(gang("a"), gang("b"), waits("big"))
    assert fuller_scene(empty, full) is full
    assert fuller_scene(full, empty) is full
    assert fuller_scene(full, crowded) is crowded


@pytest.mark.parametrize(
    ("members", "told"),
    [
        ((gang("a", started=1, whole_s=None),), "a started in part: 1 of the 2 pods"),
        ((gang("a", early=True),), "a started in part"),
        ((waits("big"),), f"big had not started after 2 s: {WHY}"),
        ((), "no gang was seen at all"),
    ],
)
def test_a_broken_promise_is_a_fault(members, told):
    """A gang in part, one that should have started, and an empty demo each fail it."""
    moment = scene(*members, slots=())
    outcome = DemoOutcome(fullest=moment, last=moment)
    (fault,) = outcome.faults
    assert fault.startswith(told)
    assert "No gang started in part" not in " ".join(totals(outcome))


def test_a_gang_that_never_can_start_is_no_fault():
    """What the daemon calls impossible may wait; everything else in order is a kept promise."""
    moment = scene(gang("a"), gang("b"), waits("moonshot", reason="NoFeasibleNode"))
    outcome = DemoOutcome(fullest=moment, last=moment, bindings=4)
    assert moment.settled
    assert outcome.faults == ()
    assert f"moonshot never can: {WHY}." in totals(outcome)
    assert "No GPU was given twice in 4 bindings." in totals(outcome)


def test_the_drawing_is_complete_in_itself():
    """The SVG is well-formed and loads nothing from elsewhere."""
    moment = scene(gang("a"), gang("b"))
    drawn = svg(finale(DemoOutcome(fullest=moment, last=moment), width=80), title="demo", width=80)
    ET.fromstring(drawn)
    assert "url(http" not in drawn
    assert "rack-1" in drawn


def pod(name, *, node="", slots="", phase="Pending", gpus=2, plan=""):
    """A pod of PodGroup g as the API shows it."""
    return {
        "metadata": {
            "name": name, "namespace": "default", "uid": name,
            "labels": {"gpusched.io/pod-group": "g"},
            "annotations": {"gpusched.io/slots": slots, "gpusched.io/plan": plan},
        },
        "spec": {
            "nodeName": node,
            "containers": [{"resources": {"requests": {"nvidia.com/gpu": str(gpus)}}}],
        },
        "status": {"phase": phase},
    }  # fmt: skip


def witness_of(*pods):
    """A witness that saw a PodGroup of two, then these pods in this order."""
    witness = DemoObserver(SystemClock())
    group = {"metadata": {"name": "g", "namespace": "default"}, "spec": {"minMember": 2}}
    witness.see("groups", group, gone=False)
    for each in pods:
        witness.see("pods", each, gone=False)
    return witness


def test_the_witness_notices_a_member_that_runs_before_its_gang_is_bound():
    """A pod that runs while the minimum is neither bound nor being bound is a gang started in part."""
    for plans, parted in ((("x", "y"), True), (("", ""), True), (("x", "x"), False)):
        early = witness_of(
            pod("a", node="n1", slots="0,1", phase="Running", plan=plans[0]),
            pod("b"),
            pod("b", node="n1", slots="2,3", plan=plans[1]),
        ).scene()
        assert early.gangs[0].early is parted, plans
    fine = witness_of(
        pod("a", node="n1", slots="0,1"), pod("b", node="n1", slots="2,3", phase="Running")
    ).scene()
    assert not fine.gangs[0].early
    assert fine.gangs[0].stand is GangPhase.RUNNING


def test_the_witness_notices_a_slot_that_is_given_twice():
    """Two living pods on one GPU are named; after the first has ended the GPU is free again."""
    twice = witness_of(pod("a", node="n1", slots="0,1"), pod("b", node="n1", slots="1,2"))
    assert twice.double == ["GPU 1 of n1 was given to b and to a pod of g"]
    ended = pod("a", node="n1", slots="0,1", phase="Succeeded")
    again = witness_of(pod("a", node="n1", slots="0,1"), ended, pod("b", node="n1", slots="0,1"))
    assert again.double == []


def test_the_witness_notices_a_pod_without_its_slots():
    """A pod that asked for two GPUs and was bound with one named slot is told."""
    assert witness_of(pod("a", node="n1", slots="0")).double == ["a asked for 2 GPUs and got 1"]


WORKLOAD = """
apiVersion: v1
kind: Node
metadata:
  name: n1
  annotations: {kwok.x-k8s.io/node: fake}
  labels: {gpusched.io/rack: r1}
status:
  capacity: {cpu: "8", memory: 32Gi, pods: "20", nvidia.com/gpu: "4"}
  allocatable: {cpu: "8", memory: 32Gi, pods: "20", nvidia.com/gpu: "4"}
---
apiVersion: scheduling.gpusched.io/v1alpha1
kind: Queue
metadata: {name: team}
"""
GANG = """
---
apiVersion: batch/v1
kind: Job
metadata: {{name: {name}, namespace: default, labels: {{gpusched.io/queue: team}}}}
spec:
  completionMode: Indexed
  completions: {pods}
  parallelism: {pods}
  template:
    metadata: {{annotations: {{gpusched.io/run-for: 5s}}}}
    spec:
      schedulerName: gpusched
      restartPolicy: Never
      containers:
      - {{name: c, image: i, resources: {{limits: {{nvidia.com/gpu: "1"}}}}}}
"""


def play(folder, *files, seconds=60.0, stop_after_s=None):
    """A demo of these (time, text) in virtual time; its outcome."""
    steps = []
    for number, (at_s, text) in enumerate(files):
        file = folder / f"{number}.yaml"
        file.write_text(text)
        steps.append(DemoStep(at_s, file))

    async def run(clock):
        options = DemoOptions(clock=clock, folder=folder, steps=steps, seconds=seconds, inline=True)
        stop = asyncio.Event()
        if stop_after_s is not None:
            asyncio.get_running_loop().call_later(stop_after_s, stop.set)
        async with running_demo(options) as stage:
            return await stage.until_settled(stop)

    return run_virtual(run, limit_s=600.0)


def test_a_whole_demo_in_virtual_time(tmp_path):
    """Given four GPUs, a gang of three runs first and a gang of four waits until it has ended."""
    outcome = play(
        tmp_path,
        (0.0, WORKLOAD),
        (2.0, GANG.format(name="first", pods=3)),
        (4.0, GANG.format(name="second", pods=4)),
    )
    assert outcome.faults == ()
    assert not outcome.interrupted
    first, second = outcome.last.gangs
    assert (first.title, first.stand, second.title, second.started) == (
        "first", GangPhase.DONE, "second", 4,
    )  # fmt: skip
    assert first.waited_s < 1.0
    assert 3.0 < second.waited_s < 10.0
    assert outcome.fullest.used == 4
    assert outcome.bindings == 7


def test_a_demo_out_of_time_says_who_waits(tmp_path):
    """A gang that fits and has not started at the end is a fault, with the daemon's reason."""
    files = (
        (0.0, WORKLOAD),
        (2.0, GANG.format(name="first", pods=3)),
        (3.0, GANG.format(name="second", pods=4)),
        (90.0, WORKLOAD),
    )
    outcome = play(tmp_path, *files, seconds=5.0)
    assert outcome.faults[0] == "there was no time to apply 3.yaml"
    assert outcome.faults[1].startswith("second had not started after 5 s: needs 4 pods")


def test_a_demo_that_is_interrupted_ends_at_once(tmp_path):
    """Ctrl-C before the work is done is told as such, and everything is closed in order."""
    outcome = play(tmp_path, (0.0, WORKLOAD), (50.0, WORKLOAD), stop_after_s=3.0)
    assert outcome.interrupted
    assert outcome.last.at_s < 4.0


def test_a_daemon_that_breaks_breaks_the_demo(tmp_path, monkeypatch):
    """The demo shows nothing without its daemon: the fault comes out as it is."""

    async def break_down(app):
        await app.options.clock.sleep(1.0)
        raise InvariantBroken("two gangs on one GPU")

    monkeypatch.setattr(App, "run", break_down)
    with pytest.raises(InvariantBroken, match="two gangs"):
        play(tmp_path, (0.0, WORKLOAD), (50.0, WORKLOAD))


def test_a_file_that_the_cluster_refuses_ends_the_demo(tmp_path):
    """A refused object is told by name."""
    bad = WORKLOAD.replace("metadata: {name: team}", "metadata: {name: team}\nspec: {weight: -1}")
    with pytest.raises(GpuschedError, match="could not apply Queue team"):
        play(tmp_path, (0.0, bad))


def test_the_picture_survives_a_gang_that_changes_queue():
    """Queues that exist and queues that gangs name are all counted."""
    moment = scene(gang("a"), attrs.evolve(gang("b"), queue="gone"))
    assert [(queue.name, queue.gpus) for queue in moment.queues] == [
        ("idle", 0), ("research", 2), ("gone", 1),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "words", [("--seconds", "0"), ("--svg", "/nowhere/at/all.svg"), ("--svg", "/")]
)
def test_options_that_make_no_sense_are_refused_at_once(words, capsys):
    """Wrong usage is exit status 2 and one sentence."""
    assert main(["demo", *words]) == 2
    assert words[0] in capsys.readouterr().err
