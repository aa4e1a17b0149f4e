"""The lives of pods: they start some time after their binding, run, end, and go when they are told."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from gpusched.api.devices.gpu_types import (
    FULL_SPEED,
    gpu_type_of,
    named_value,
    parse_gpu_types,
)
from gpusched.api.meta.gpu_resources import gpu_resources
from gpusched.api.meta.identity import UID, ObjectKey
from gpusched.api.pod.pod import Pod, PodPhase
from gpusched.engine.job_records import (
    CLASS_LABEL,
    Identity,
    LiveJob,
    LivePod,
    amounts_of,
)
from gpusched.engine.objects import Obj, with_condition, with_status
from gpusched.engine.resource_claims import SimulatedClaims
from gpusched.engine.run_record import EvictionRecord, LifeEnd
from gpusched.engine.world import (
    RUN_FOR,
    RUN_SPEEDS,
    START_AFTER,
    STOP_AFTER,
    SimulatedWorld,
    running_since,
    seconds_of,
)
from gpusched.session.backfill.walltimes import end_when_late_s

_ENDLESS: Final = frozenset({"ReplicaSet", "Deployment", "StatefulSet", "DaemonSet"})
"""Whose pods run until they are told to go."""
_GRACE_S: Final = 30.0


class SimulatedPods:
    """Lives of the pods of a simulated cluster.

    Args:
        world: everything else.
        entered: told of each pod that came, before its controller is asked for anything.
        ended: told of each pod that succeeded or is gone.
    """

    def __init__(
        self,
        world: SimulatedWorld,
        *,
        entered: Callable[[LivePod], None],
        ended: Callable[[LivePod], None],
    ) -> None:
        self._world = world
        self._entered = entered
        self._ended = ended
        self.claims = SimulatedClaims(world)
        self._done: dict[tuple[Identity, int], float] = {}
        """Seconds of work saved by members that left, by job and rank."""

    # -- coming ------------------------------------------------------------------------------
    def create(self, obj: Obj) -> LivePod | None:
        """A pod comes into being; None for one that is not ours or cannot be believed."""
        world = self._world
        made = world.objects.create(world.priority_of(obj), now=world.now)
        made = self.claims.make_for(made)
        pod = world.cache.find_pod(UID(made["metadata"]["uid"]))
        if pod is None or pod.scheduler not in world.cache.schedulers:
            return None  # what is not ours stays where it is
        live = self._enter(pod, made)
        self._entered(live)
        if pod.holds:
            self._was_bound(live, pod, made)
        return live

    def _enter(self, pod: Pod, obj: Obj) -> LivePod:
        world = self._world
        job = self._job_of(pod)
        gpus, cpu, memory = amounts_of(pod)
        run_s = seconds_of(obj, RUN_FOR)
        if run_s is None and job.identity[0] not in _ENDLESS:
            run_s = world.pace.assume_s
        start_s, stop_s = seconds_of(obj, START_AFTER), seconds_of(obj, STOP_AFTER)
        grace_s = obj["spec"].get("terminationGracePeriodSeconds", _GRACE_S)
        live = LivePod(
            key=pod.key,
            uid=pod.uid,
            job=job,
            rank=pod.rank,
            queue=job.queue,
            gpus=gpus,
            cpu=cpu,
            memory=memory,
            created=world.now,
            run_s=run_s,
            done_s=self._done.pop((job.identity, pod.rank), 0.0),
            start_s=world.pace.start_s if start_s is None else start_s,
            stop_s=min(grace_s, world.pace.stop_s if stop_s is None else stop_s),
            checkpoint_s=self._checkpoint_s(pod),
            speeds=_speeds_of(obj),
        )
        if pod.owner is not None:
            live.owner = (pod.owner.kind, pod.owner.name, pod.owner.uid)
            live.again = None if pod.owner.kind == "Job" else obj
        world.lives.pods[pod.uid] = live
        job.live[pod.uid] = live
        job.size = max(job.size, len(job.live))
        job.gpus = max(job.gpus, sum(each.gpus for each in job.live.values()))
        return live

    def _checkpoint_s(self, pod: Pod) -> float:
        group = self._world.cache.groups.items.get(ObjectKey(pod.namespace, pod.group))
        return group.terms.checkpoint_ns / 1e9 if pod.group and group is not None else 0.0

    def _job_of(self, pod: Pod) -> LiveJob:
        identity = self._identity(pod)
        known = self._world.lives.jobs.get(identity)
        if known is not None and (known.ended is None or identity[0] != "Pod"):
            return known
        job = LiveJob(
            identity=identity,
            uid=pod.owner.uid if pod.owner else pod.uid,
            queue=self._queue_of(pod),
            klass=pod.labels.get(CLASS_LABEL) or pod.priority_class or identity[0].lower(),
            priority=pod.priority,
            min_member=max(1, pod.hints.min_member),
            created=self._world.now,
        )
        self._world.lives.enter(job)
        return job

    def _identity(self, pod: Pod) -> Identity:
        if pod.group:
            return ("PodGroup", pod.namespace, pod.group)
        if pod.family is not None:
            return (pod.family.kind, pod.namespace, pod.family.owner or pod.family.name)
        if pod.owner is None:
            return ("Pod", pod.namespace, pod.name)
        if pod.owner.kind == "ReplicaSet":
            above = self._world.objects.other("ReplicaSet", pod.namespace, pod.owner.name)
            owners = above["metadata"].get("ownerReferences") or () if above else ()
            for each in owners:
                if each.get("controller"):
                    return (each["kind"], pod.namespace, each["name"])
        return (pod.owner.kind, pod.namespace, pod.owner.name)

    def _queue_of(self, pod: Pod) -> str:
        space = self._world.cache.namespaces.items.get(ObjectKey("", pod.namespace))
        return pod.queue or (space.queue if space else "") or "default"

    def _was_bound(self, live: LivePod, pod: Pod, obj: Obj) -> None:
        """It ran before the beginning: in the record from now on; what is left of its work is done."""
        world = self._world
        began = min(world.now, pod.scheduled - world.epoch)
        live.bound = live.running = world.now
        live.before_s = world.now - began
        live.node, live.slots = pod.node, pod.slots
        self._count(live, bound=1, running=1)
        if pod.deleting:
            live.told = world.now
            world.agenda.at(world.now + live.stop_s, lambda: self._gone(live))
        elif live.run_s is not None:
            ran_s = world.now - min(world.now, max(began, running_since(obj) - world.epoch))
            left = live.run_s - live.done_s - ran_s
            if left < world.pace.start_s:  # what should be over by now ends soon
                soon = end_when_late_s(int(-left), int(live.run_s)) or 0
                left = max(world.pace.start_s, soon)
            world.agenda.at(world.now + left, lambda: self._succeed(live))

    # -- running -------------------------------------------------------------------------------
    def bound(self, live: LivePod, node: str, slots: int) -> None:
        """It has its place."""
        world = self._world
        live.bound, live.node, live.slots = world.now, node, slots
        self._count(live, bound=1)
        world.agenda.at(world.now + live.start_s, lambda: self._start(live))

    def _count(self, live: LivePod, *, bound: int = 0, running: int = 0) -> None:
        job = live.job
        job.bound += bound
        job.running += running
        have = job.bound + job.succeeded
        if job.started is None and have >= job.min_member and bound > 0:
            job.started = live.bound
            job.tell(self._world.now, "", "")
        if job.ready is None and job.running + job.succeeded >= job.min_member and running > 0:
            job.ready = live.running

    def _start(self, live: LivePod) -> None:
        world = self._world
        if live.told is not None or live.ended is not None:
            return
        live.running = world.now
        self._count(live, running=1)
        live.speed = self._speed_of(live)
        if live.run_s is not None:
            left = max(0.0, live.run_s - live.done_s) * FULL_SPEED / live.speed
            world.agenda.at(world.now + left, lambda: self._succeed(live))

    def _speed_of(self, live: LivePod) -> int:
        """How fast its gang works where its members are now: as fast as the slowest of them."""
        if not live.speeds:
            return FULL_SPEED
        speeds = []
        for each in live.job.live.values():
            node = self._world.cache.rows.find_any(each.node) if each.gpus else None
            if node is not None:
                named = named_value(each.speeds, gpu_type_of(node.labels, gpu_resources()))
                speeds.append(named[1] if named is not None else FULL_SPEED)
        return min(speeds, default=FULL_SPEED)

    def _succeed(self, live: LivePod) -> None:
        if live.told is not None or live.ended is not None:
            return
        world = self._world
        self._over(live, LifeEnd.SUCCEEDED)
        live.job.succeeded += 1
        obj = world.objects.get("pods", live.key)
        assert obj is not None
        world.ending = True
        world.objects.write_known(with_status(obj, phase="Succeeded"), phase=PodPhase.SUCCEEDED)
        self._ended(live)
        world.ending = False

    def _over(self, live: LivePod, end: LifeEnd) -> None:
        live.ended, live.end = self._world.now, end
        live.job.live.pop(live.uid, None)
        if live.bound is not None:
            live.job.bound -= 1
            self._world.lives.released(live.queue, live.gpus, at=self._world.now)
        if live.running is not None:
            live.job.running -= 1
        obj = self._world.objects.get("pods", live.key)
        if obj is not None:
            self.claims.release(obj)

    # -- going ---------------------------------------------------------------------------------
    def evict(self, live: LivePod, *, why: str, sentence: str) -> None:
        """The scheduler makes it leave."""
        if live.told is not None or live.ended is not None:
            return
        self._record_eviction(live, why=why, sentence=sentence)
        self.tell(live)

    def lose(self, live: LivePod, *, why: str, sentence: str) -> None:
        """It vanishes with its node, without any grace."""
        if live.ended is not None:
            return
        if live.told is None:
            self._record_eviction(live, why=why, sentence=sentence)
            live.told = self._world.now
            live.kept_s = live.work_at(self._world.now)[1]
        self._gone(live)

    def on_nodes(self, nodes: Collection[str]) -> list[LivePod]:
        """Pods that have a place on one of these nodes and have not ended, in the order in which they came."""
        return [
            live for live in self._world.lives.pods.values()
            if live.node in nodes and live.ended is None
        ]  # fmt: skip

    def _record_eviction(self, live: LivePod, *, why: str, sentence: str) -> None:
        world = self._world
        done, saved = live.work_at(world.now)
        world.lives.evictions.append(
            EvictionRecord(
                at=world.now,
                pod=str(live.key),
                job=live.job.key,
                queue=live.queue,
                why=why,
                sentence=sentence,
                lost=round((done - saved) * live.gpus),
            )
        )
        live.end = LifeEnd.EVICTED

    def tell(self, live: LivePod) -> None:
        """It is to go: at once where it has no place, else when its grace is over."""
        if live.told is not None or live.ended is not None:
            return
        world = self._world
        live.told = world.now
        live.kept_s = live.work_at(world.now)[1]
        obj = world.objects.get("pods", live.key)
        assert obj is not None
        if live.bound is None:
            self._gone(live)
            return
        metadata = {**obj["metadata"], "deletionTimestamp": world.stamp}
        gone = {**obj, "metadata": metadata}
        if live.end is LifeEnd.EVICTED:
            gone = with_condition(
                gone,
                {
                    "type": "DisruptionTarget",
                    "status": "True",
                    "reason": "PreemptionByScheduler",
                    "lastTransitionTime": world.stamp,
                },
            )
        world.objects.write(gone)
        world.agenda.at(world.now + live.stop_s, lambda: self._gone(live))

    def _gone(self, live: LivePod) -> None:
        if live.gone is not None:
            return
        world = self._world
        if live.kept_s and live.rank >= 0:
            self._done[live.job.identity, live.rank] = live.kept_s
        live.gone = world.now
        self._over(live, live.end if live.end is LifeEnd.EVICTED else LifeEnd.DELETED)
        world.objects.remove("pods", live.key)
        self._ended(live)

    def clear(self, live: LivePod) -> None:
        """A pod that has ended is removed, which changes nothing for other pods."""
        if live.gone is None:
            live.gone = self._world.now
            self._world.objects.remove("pods", live.key)


def _speeds_of(obj: Obj) -> tuple[tuple[str, int], ...]:
    """Speeds that the manifest tells the simulation; none where it tells none, or nonsense."""
    text = (obj["metadata"].get("annotations") or {}).get(RUN_SPEEDS, "")
    return parse_gpu_types(f'{{"speeds":{text}}}'.encode(), field=RUN_SPEEDS).speeds if text else ()
