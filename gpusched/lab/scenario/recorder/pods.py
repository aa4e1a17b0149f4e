"""Lives of pods, and what they mean for the workload that each belongs to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from gpusched.api.meta.gpu_resources import gpu_resources
from gpusched.engine.run_record import EvictionRecord, LifeEnd
from gpusched.lab.scenario.model.scenario import CLASS_LABEL
from gpusched.lab.scenario.recorder import object_fields
from gpusched.lab.scenario.recorder.object_fields import Obj
from gpusched.lab.scenario.recorder.open_lives import OpenPod, OpenWorkload
from gpusched.lab.scenario.recorder.workloads import WorkloadRecorder
from gpusched.lab.scenario.target_cluster.interface import ObjectChange

_BY_SCHEDULER: Final = "PreemptionByScheduler"
_OVER: Final = {"Succeeded": LifeEnd.SUCCEEDED, "Failed": LifeEnd.FAILED}
_SETTLED_BY_PODS: Final = frozenset({"Pod", "PodGroup"})
"""Kinds that say nothing of their end: it is that of their pods."""


class PodRecorder:
    """All pods.

    Args:
        works: whose pods they are.
        schedulers: our names.
        node: labels of a node.
        levels: how many domains of each level nodes are in.
    """

    def __init__(
        self,
        works: WorkloadRecorder,
        schedulers: Sequence[str],
        *,
        node: Callable[[str], Mapping[str, str]],
        levels: Callable[[Sequence[str]], tuple[tuple[str, int], ...]],
    ) -> None:
        self.evictions: list[EvictionRecord] = []
        self._works = works
        self._schedulers = frozenset(schedulers)
        self._node = node
        self._levels = levels
        self._pods: dict[str, OpenPod] = {}
        self._running: dict[str, OpenPod] = {}
        self._paused: dict[str, list[OpenPod]] = {}
        works.on_pause, works.on_stop = self._pause, self._stop

    def all(self) -> Iterator[OpenPod]:
        """Every pod that ever was, in the order they came."""
        yield from self._pods.values()

    def find(self, uid: str) -> OpenPod | None:
        """A pod by its UID."""
        return self._pods.get(uid)

    def running(self) -> Iterator[OpenPod]:
        """Those that hold a node and end by themselves."""
        yield from self._running.values()

    def see(self, change: ObjectChange) -> bool:
        """Take in one change of a pod; whether anything happened that others may wait for."""
        pod, at = change.obj, change.at
        body = self._pods.get(pod["metadata"]["uid"])
        came = body is None
        if body is None:
            body = self._came(pod, at)
        status = pod.get("status") or {}
        moved = came
        if body.bound is None and pod["spec"].get("nodeName"):
            self._bound(body, pod, at)
            moved = True
        if body.bound is None:
            self._why(body, pod, at)
        phase = status.get("phase")
        if body.running is None and phase == "Running":
            body.running = at
            self._count(body.work, at, runs=1)
        if not body.why or body.told is None:
            self._note_disruption(body, pod, at)
        if body.ended is None and (phase in _OVER or change.gone):
            self._ended(body, pod, at, phase=phase or "")
            moved = True
        if change.gone:
            body.gone = at
            body.work.pods.pop(body.uid, None)
            moved = True
        return moved

    # -- steps of a life ---------------------------------------------------------------------
    def _came(self, pod: Obj, at: float) -> OpenPod:
        meta = pod["metadata"]
        said = object_fields.labels_and_annotations(pod)
        work, of_job = self._works.of_pod(pod, said, at)
        asked = object_fields.pod_gpu_request(pod, gpu_memory=0)
        ours = pod["spec"].get("schedulerName") in self._schedulers
        body = OpenPod(
            name=meta["name"],
            namespace=meta.get("namespace", ""),
            uid=meta["uid"],
            work=work,
            queue=object_fields.queue_of(said),
            asked=asked,
            created=at,
            endless=object_fields.is_endless(pod, of_job=of_job),
            ours=ours or asked.gpus > 0,
            gpus=asked.gpus,
        )
        self._pods[body.uid] = work.pods[body.uid] = body
        work.ours = body.ours or (work.ours and bool(work.alive))
        work.alive += 1
        work.queue = work.queue or body.queue
        work.labelled = work.labelled or said.get(CLASS_LABEL, "")
        work.grade = work.grade or pod["spec"].get("priorityClassName", "")
        work.priority = max(work.priority, pod["spec"].get("priority", 0))
        if work.kind in _SETTLED_BY_PODS or not work.size:
            work.size = max(work.size, work.alive)
        work.live_gpus += body.gpus
        work.gpus = max(work.gpus, work.live_gpus)
        if work.ended is not None and work.kind in _SETTLED_BY_PODS and not work.backing:
            work.ended, work.end = None, LifeEnd.NONE
            self._works.over(work)
        return body

    def _bound(self, body: OpenPod, pod: Obj, at: float) -> None:
        body.bound, body.node = at, pod["spec"]["nodeName"]
        body.slots = object_fields.recorded_slots(pod)
        before = body.gpus
        memory = self._node(body.node).get(gpu_resources().main.memory_label, "")
        if (
            memory.isdigit()
            and body.asked.share
            and object_fields.GPU_MEMORY in object_fields.labels_and_annotations(pod)
        ):
            body.asked = object_fields.pod_gpu_request(pod, gpu_memory=int(memory))
            body.gpus = body.asked.gpus
        if not body.gpus and body.slots:  # claimed, not asked for in the pod itself
            body.gpus = 1000 * len(body.slots)
        body.work.live_gpus += body.gpus - before
        body.work.gpus = max(body.work.gpus, body.work.live_gpus)
        if not body.endless:
            self._running[body.uid] = body
        self._count(body.work, at, bound=1)

    def _why(self, body: OpenPod, pod: Obj, at: float) -> None:
        """Of a workload without a PodGroup its pods tell why it waits."""
        if body.work.kind == "PodGroup" or body.ended is not None:
            return
        said = object_fields.find_condition(pod, "PodScheduled")
        if said is not None and said.get("status") == "False" and said.get("message"):
            body.work.say(at, said.get("reason", ""), said["message"])

    def _pause(self, work: OpenWorkload, at: float) -> None:
        """Its Job was suspended: its pods with a node are evicted, the reason comes later."""
        self._paused[work.key] = held = [
            body for body in work.pods.values() if body.bound is not None and body.ended is None
        ]
        for body in held:
            body.told = at if body.told is None else body.told

    def _stop(self, work: OpenWorkload, why: str) -> None:
        """The scheduler says that it suspended a Job: what its pods lost is an eviction's loss."""
        for body in self._paused.pop(work.key, ()):
            assert body.told is not None, "it was told to go"
            body.why = body.why or why
            self._evicted(body, body.told)
            if body.ended is not None and body.end is LifeEnd.DELETED:
                body.end = LifeEnd.EVICTED

    def _note_disruption(self, body: OpenPod, pod: Obj, at: float) -> None:
        if not body.why:
            said = object_fields.find_condition(pod, "DisruptionTarget")
            if said and said.get("status") == "True" and said.get("reason") == _BY_SCHEDULER:
                body.why = said.get("message", "") or "told to go"
        if body.told is None and pod["metadata"].get("deletionTimestamp"):
            body.told = at
        if body.why and body.told is not None:
            self._evicted(body, at)

    def _evicted(self, body: OpenPod, at: float) -> None:
        """Record the eviction once the pod goes: a plan that is dropped evicts nothing."""
        if body.counted or body.bound is None:
            return
        body.counted = True
        since = body.running if body.running is not None else at
        worked = max(0.0, at - since)
        if body.work.checkpoint_s:
            worked %= body.work.checkpoint_s
        self.evictions.append(
            EvictionRecord(
                at=at,
                pod=f"{body.namespace}/{body.name}",
                job=body.work.key,
                queue=body.queue or body.work.queue or object_fields.DEFAULT_QUEUE,
                why=body.reason(),
                sentence=body.why,
                lost=round(worked * body.gpus),
            )
        )

    def _ended(self, body: OpenPod, pod: Obj, at: float, *, phase: str) -> None:
        body.ended = at
        if body.why and phase != "Succeeded":
            body.told = at if body.told is None else body.told
            self._evicted(body, at)
        body.end = _OVER.get(phase, LifeEnd.DELETED)
        if body.end is not LifeEnd.SUCCEEDED:
            if body.counted or object_fields.is_true(pod, "DisruptionTarget"):
                body.end = LifeEnd.EVICTED
            elif pod["metadata"].get("deletionTimestamp"):
                body.end = LifeEnd.DELETED
        body.exit_code = object_fields.exit_code(pod) if body.end is LifeEnd.FAILED else 0
        self._running.pop(body.uid, None)
        work = body.work
        work.live_gpus -= body.gpus
        work.alive -= 1
        if body.end is LifeEnd.SUCCEEDED:
            work.succeeded += 1
        else:
            work.evicted += body.end is LifeEnd.EVICTED
            self._count(
                work, at, bound=-int(body.bound is not None), runs=-int(body.running is not None)
            )
        self._settle(work, at, body.end)

    # -- what it means for the workload ------------------------------------------------------
    def _count(self, work: OpenWorkload, at: float, *, bound: int = 0, runs: int = 0) -> None:
        work.bound += bound
        work.runs += runs
        if work.started is None and work.bound >= work.min_member:
            work.started = at
            nodes = sorted({each.node for each in work.pods.values() if each.node})
            work.levels = self._levels(nodes)
        if work.ready is None and work.runs >= work.min_member:
            work.ready = at
        if bound > 0 and work.bound >= work.min_member and work.kind != "PodGroup":
            work.say(at, "", "")

    def _settle(self, work: OpenWorkload, at: float, last: LifeEnd) -> None:
        """The end of a workload that is nothing but its pods."""
        if work.kind not in _SETTLED_BY_PODS or work.backing or work.ended is not None:
            return
        if work.alive:
            return
        work.ended = at
        if work.succeeded >= work.min_member:
            work.end = LifeEnd.SUCCEEDED
        elif work.evicted:
            work.end = LifeEnd.EVICTED
        else:
            work.end = last
        work.say(at, "", "")
        self._works.over(work)
