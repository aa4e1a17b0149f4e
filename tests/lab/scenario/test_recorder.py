"""The recorder makes a record of changes, and of nothing else."""

from __future__ import annotations

from typing import Any

from gpusched.engine.run_record import LifeEnd, RunRecord
from gpusched.lab.scenario.play.invariants import InvariantWatch
from gpusched.lab.scenario.recorder.recorder import RunRecorder
from gpusched.lab.scenario.target_cluster.interface import ObjectChange

Obj = dict[str, Any]


def pod(name: str, *, gpus: int = 8, owner: str = "", group: str = "", **more: Any) -> Obj:
    meta: Obj = {"name": name, "namespace": "default", "uid": f"uid-{name}", "labels": {}}
    if group:
        meta["labels"]["gpusched.io/pod-group"] = group
    if owner:
        meta["ownerReferences"] = [{"kind": "Job", "name": owner, "uid": "job", "controller": True}]
    if "slots" in more:
        meta["annotations"] = {"gpusched.io/slots": more["slots"], "gpusched.io/plan": "p"}
    limits = {"cpu": "1", "nvidia.com/gpu": str(gpus)}
    spec: Obj = {
        "schedulerName": "gpusched",
        "restartPolicy": "Never",
        "containers": [{"name": "a", "resources": {"limits": limits}}],
    }
    if "node" in more:
        spec["nodeName"] = more["node"]
    status: Obj = {"phase": more.get("phase", "Pending"), "conditions": more.get("conditions", [])}
    if more.get("going"):
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return {"kind": "Pod", "metadata": meta, "spec": spec, "status": status}


def node(name: str, *, gpus: int = 8, ready: bool = True) -> Obj:
    return {
        "kind": "Node",
        "metadata": {"name": name, "labels": {"gpusched.io/rack": "r"}},
        "status": {
            "allocatable": {"cpu": "96", "memory": "1Gi", "nvidia.com/gpu": str(gpus), "pods": "9"},
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        },
    }


def group(name: str, minimum: int, *, scheduled: str = "", **status: Any) -> Obj:
    said = {"type": "Scheduled", "status": scheduled, "reason": "NoFeasibleNode", "message": "why"}
    return {
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default", "uid": f"group-{name}"},
        "spec": {"minMember": minimum, "queue": "a"},
        "status": {"conditions": [said] if scheduled else [], **status},
    }


class Story:
    """Changes told one after another to a recorder and a watch."""

    def __init__(self) -> None:
        self.recorder = RunRecorder()
        self.watch = InvariantWatch(self.recorder)

    def tell(self, at: float, obj: Obj, *, gone: bool = False) -> None:
        """One change."""
        change = ObjectChange(at, obj["kind"], obj, gone=gone)
        self.recorder.see(change)
        self.watch.see(change)

    def record(self, seconds: float) -> RunRecord:
        """What came of it."""
        return self.recorder.record(name="x", ground="embedded", seed=1, seconds=seconds, epoch=0.0)

    @property
    def broken(self) -> list[str]:
        """What the watch found."""
        return [f"{each.invariant}: {each.sentence}" for each in self.watch.broken]


def test_a_gang_is_started_with_its_minimum_and_over_with_its_last_pod() -> None:
    """Moments of a PodGroup with bare pods are those of its pods."""
    story = Story()
    story.tell(0, node("n0"))
    story.tell(1, group("g", 2, scheduled="False"))
    for number in (0, 1):
        story.tell(2, pod(f"p{number}", gpus=4, group="g"))
    for number, slots in ((0, "0,1,2,3"), (1, "4,5,6,7")):
        story.tell(3 + number, pod(f"p{number}", gpus=4, group="g", node="n0", slots=slots))
    story.tell(5, group("g", 2, scheduled="True"))
    for number in (0, 1):
        for at, phase in ((6, "Running"), (8 + number, "Succeeded")):
            told = pod(f"p{number}", gpus=4, group="g", node="n0", slots="0", phase=phase)
            story.tell(at, told)

    (job,) = story.record(10).jobs
    assert (job.key, job.kind, job.queue, job.size, job.gpus) == (
        "default/g", "PodGroup", "a", 2, 8000,
    )  # fmt: skip
    assert (job.started, job.ready, job.ended, job.end) == (4, 6, 9, LifeEnd.SUCCEEDED)
    assert [(each.at, each.reason) for each in job.reasons] == [(1, "NoFeasibleNode"), (5, "")]
    assert job.levels == (("rack", 1), ("host", 1)), "only levels of which they have a label"
    assert story.broken == []


def test_who_is_told_to_go_by_the_scheduler_is_an_eviction_with_its_lost_work() -> None:
    """GPU-seconds since it ran, once, and only when it goes."""
    story = Story()
    story.tell(0, node("n0"))
    why = {
        "type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler",
        "message": "reclaimed for default/other: it is due",
    }  # fmt: skip
    slots = {"node": "n0", "slots": "0,1,2,3,4,5,6,7", "phase": "Running"}
    story.tell(1, pod("p"))
    story.tell(2, pod("p", **slots))
    story.tell(10, pod("p", conditions=[why], **slots))
    assert story.record(10).evictions == ()
    story.tell(12, pod("p", conditions=[why], going=True, **slots))
    story.tell(13, pod("p", conditions=[why], going=True, **{**slots, "phase": "Failed"}))
    story.tell(13, pod("p", conditions=[why], going=True, **slots), gone=True)

    record = story.record(20)
    (told,) = record.evictions
    assert (told.at, told.why, told.lost) == (12, "Reclaimed", 80_000)
    (life,) = record.pods
    assert (life.told, life.ended, life.gone, life.end) == (12, 13, 13, LifeEnd.EVICTED)


def job(name: str, *, suspend: bool) -> Obj:
    return {
        "kind": "Job",
        "metadata": {
            "name": name, "namespace": "default", "uid": "job",
            "labels": {"gpusched.io/queue": "a"},
        },
        "spec": {
            "suspend": suspend, "parallelism": 1, "completions": 1,
            "template": {"metadata": {}, "spec": {"containers": []}},
        },
    }  # fmt: skip


def test_pods_of_a_job_that_the_scheduler_pauses_are_evictions() -> None:
    """Nobody evicts them by name: their Job is suspended, and an event says for whom."""
    story = Story()
    story.tell(0, node("n0"))
    story.tell(1, job("j", suspend=False))
    slots = {"node": "n0", "slots": "0,1,2,3,4,5,6,7", "phase": "Running", "owner": "j"}
    story.tell(2, pod("j-0", **slots))
    story.tell(12, job("j", suspend=True))
    story.tell(13, pod("j-0", going=True, **{**slots, "phase": "Failed"}), gone=True)
    assert story.record(13).evictions == (), "a user may have suspended it"
    event = {
        "kind": "Event", "metadata": {}, "action": "Reclaiming", "reason": "Reclaimed",
        "regarding": {"kind": "Job", "namespace": "default", "name": "j"},
        "note": "reclaimed for default/other: it is due",
    }  # fmt: skip
    story.tell(14, event)

    record = story.record(20)
    (told,) = record.evictions
    assert (told.at, told.job, told.why, told.lost) == (12, "default/j", "Reclaimed", 80_000)
    assert [life.end for life in record.pods] == [LifeEnd.EVICTED]


def test_what_a_node_offers_is_told_in_spans() -> None:
    """A node that fails and returns has three spans, the last up to the end."""
    story = Story()
    for at, ready in ((0, True), (5, False), (9, True)):
        story.tell(at, node("n0", ready=ready))

    (machine,) = story.record(12).nodes
    assert [(each.since, each.until, each.usable) for each in machine.spans] == [
        (0, 5, True), (5, 9, False), (9, 12, True),
    ]  # fmt: skip


def test_a_gpu_that_is_given_twice_is_told_with_both_pods() -> None:
    """The watch has books of its own: slots, room, quota and gangs."""
    story = Story()
    story.tell(0, node("n0"))
    story.tell(0, {"kind": "Queue", "metadata": {"name": "default"},
                   "spec": {"capability": {"nvidia.com/gpu": 4}}})  # fmt: skip
    for name in ("p", "q"):
        story.tell(20, pod(name))
        story.tell(20, pod(name, node="n0", slots="0,1,2,3,4,5,6,7"))
    story.tell(20, group("half", 2))
    story.tell(20, pod("h", gpus=0, group="half", node="n0", slots=""))
    story.watch.look(100)
    assert not any(each.startswith("gangs") for each in story.broken)
    story.watch.look(141)

    said = "\n".join(story.broken)
    assert "slots: GPU 0 of n0 was given to default/q while default/p has it" in said
    assert "room: node n0 offers 8 nvidia.com/gpu, its pods ask for 16 with default/q" in said
    assert "quota: queue default holds 16 nvidia.com/gpu with default/q" in said
    assert "gangs: 1 of 2 pods of default/half have been bound since 20 s" in said
