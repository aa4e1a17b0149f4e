"""What controllers do in a simulated cluster: Jobs make pods and complete, and pods that left are made anew.

A pod that was made to leave is no failure of its Job: as if the Job's podFailurePolicy ignored
disruptions. Pods of other controllers are made anew under another name; pods without a controller
are gone for good.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from typing import Any, Final

from gpusched.api.jobs.job import Job
from gpusched.api.meta.identity import UID, ObjectKey
from gpusched.engine.job_records import CLASS_LABEL, LiveJob, LivePod
from gpusched.engine.objects import (
    Obj,
    key_of,
    plural_of,
    with_condition,
    with_status,
)
from gpusched.engine.pods import SimulatedPods
from gpusched.engine.run_record import LifeEnd
from gpusched.engine.world import SimulatedWorld

_REMADE_S: Final = 0.1
"""From the end of an evicted pod until its controller has made another: a session may come between."""
_INDEX: Final = "batch.kubernetes.io/job-completion-index"
_JOB_NAME: Final = "batch.kubernetes.io/job-name"
_WRITTEN: Final = frozenset(
    {"gpusched.io/slots", "gpusched.io/plan", "gpusched.io/fence", "gpusched.io/rank",
     "gpusched.io/proof", "gpusched.io/seal", "gpusched.io/numa",
     "gpusched.io/charged"}
)  # fmt: skip


class SimulatedControllers:
    """The controllers of a simulated cluster: Jobs and the pods they make."""

    def __init__(self, world: SimulatedWorld) -> None:
        self._world = world
        self.pods = SimulatedPods(world, entered=self._pod_entered, ended=self._pod_ended)
        self._live: dict[str, dict[UID, LivePod]] = {}
        self._finished: dict[str, list[LivePod]] = {}
        """Pods of Jobs, by the UID of the Job."""
        self._made: dict[ObjectKey, int] = {}
        """Pods made so far for each Job, for their names."""

    # -- coming ------------------------------------------------------------------------------
    def begin(self, objects: Iterable[Obj]) -> None:
        """Everything that is there from the beginning: Jobs may have their pods already."""
        objects = list(objects)
        for obj in objects:
            self._enter(obj)
        for obj in objects:
            if plural_of(obj) == "jobs":
                self.reconcile(key_of(obj))

    def create(self, obj: Obj) -> None:
        """Any object comes into being."""
        self._enter(obj)
        if plural_of(obj) == "jobs":
            self.reconcile(key_of(obj))

    def _enter(self, obj: Obj) -> None:
        plural, world = plural_of(obj), self._world
        if plural == "pods":
            self.pods.create(obj)
            return
        made = world.objects.create(obj, now=world.now)
        key = key_of(made)
        if plural == "jobs":
            job = world.cache.jobs.items.get(key)
            if job is not None and not job.finished:
                self._enter_job(job, made)
        elif plural == "podgroups":
            self._enter_group(key)

    def _enter_job(self, job: Job, obj: Obj) -> None:
        template = obj["spec"].get("template") or {}
        labels = {
            **((template.get("metadata") or {}).get("labels") or {}),
            **(obj["metadata"].get("labels") or {}),
        }
        name = (template.get("spec") or {}).get("priorityClassName") or ""
        named = self._world.cache.priorities.items.get(ObjectKey("", name))
        space = self._world.cache.namespaces.items.get(ObjectKey("", job.namespace))
        if job.group:
            return  # its pods are members of the PodGroup
        self._world.lives.enter(
            LiveJob(
                identity=("Job", job.namespace, job.name),
                uid=job.uid,
                queue=job.queue or (space.queue if space else "") or "default",
                klass=labels.get(CLASS_LABEL) or name or "job",
                priority=named.value if named else 0,
                min_member=max(1, job.gang_size),
                created=self._world.now,
                size=job.full_parallelism or job.parallelism,
                gpus=job.parallelism * job.template.pod_class.gpu_thousandths
                if job.template
                else 0,
                succeeded=job.succeeded,
            )
        )

    def _enter_group(self, key: ObjectKey) -> None:
        group = self._world.cache.groups.items.get(key)
        if group is None:
            return
        named = self._world.cache.priorities.items.get(ObjectKey("", group.priority_class))
        labels = self._world.objects.get("podgroups", key) or {"metadata": {}}
        klass = (labels["metadata"].get("labels") or {}).get(CLASS_LABEL)
        self._world.lives.enter(
            LiveJob(
                identity=("PodGroup", *key),
                uid=group.uid,
                queue=group.queue,
                klass=klass or group.priority_class or "podgroup",
                priority=named.value if named else 0,
                min_member=group.min_member,
                created=self._world.now,
            )
        )

    # -- Jobs --------------------------------------------------------------------------------
    def switched(self, key: ObjectKey) -> None:
        """A Job was suspended or started."""
        job = self._world.cache.jobs.items.get(key)
        live = self._world.lives.jobs.get(("Job", *key))
        if job is None:
            return
        if job.suspended:
            for pod in [*self._live.get(job.uid, {}).values()]:
                self.pods.tell(pod)
        elif live is not None:
            live.min_member = min(live.min_member, job.gang_size)  # it may be started with less
            live.admitted = self._world.now if live.admitted is None else live.admitted
        self.reconcile(key)

    def reconcile(self, key: ObjectKey) -> None:
        """Make the pods that a Job lacks."""
        world = self._world
        job, obj = world.cache.jobs.items.get(key), world.objects.get("jobs", key)
        if job is None or obj is None or job.suspended or job.finished:
            return
        mine = [pod for pod in self._live.get(job.uid, {}).values() if pod.told is None]
        wanted = job.parallelism
        if job.completions is not None:
            wanted = min(wanted, job.completions - job.succeeded)
        missing = wanted - len(mine)
        if missing <= 0:
            return
        world.ending = False
        taken = {pod.rank for pod in mine} | _done(obj)
        free = [index for index in range(missing + len(taken)) if index not in taken]
        for index in free[:missing]:
            self.pods.create(self._pod(job, obj, index))
        if not (obj.get("status") or {}).get("startTime"):
            world.objects.write_known(with_status(obj, startTime=world.stamp))

    def _pod(self, job: Job, obj: Obj, index: int) -> Obj:
        template = obj["spec"]["template"]
        metadata = template.get("metadata") or {}
        labels = {**(metadata.get("labels") or {}), _JOB_NAME: job.name}
        stem = job.name
        if job.indexed:
            labels[_INDEX] = str(index)
            stem = f"{job.name}-{index}"
        owner = {
            "apiVersion": "batch/v1", "kind": "Job", "name": job.name, "uid": job.uid,
            "controller": True,
        }  # fmt: skip
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": self._new_pod_name(job, stem),
                "namespace": job.namespace,
                "labels": labels,
                "annotations": metadata.get("annotations") or {},
                "ownerReferences": [owner],
            },
            "spec": template["spec"],
        }

    def _new_pod_name(self, job: Job, stem: str) -> str:
        while True:
            number = self._made[job.key] = self._made.get(job.key, 0) + 1
            name = f"{stem}-{number:05d}"
            if not self._is_taken(job.namespace, name):
                return name

    def _is_taken(self, namespace: str, name: str) -> bool:
        """Whether a pod has the name: those of the beginning may come from a simulation that names them alike."""
        return self._world.objects.get("pods", ObjectKey(namespace, name)) is not None

    # -- going -------------------------------------------------------------------------------
    def _pod_entered(self, pod: LivePod) -> None:
        kind, _, uid = pod.owner
        if kind == "Job":
            self._live.setdefault(uid, {})[pod.uid] = pod

    def _pod_ended(self, pod: LivePod) -> None:
        kind, name, uid = pod.owner
        if kind == "Job":
            self._live.get(uid, {}).pop(pod.uid, None)
            if pod.end is LifeEnd.SUCCEEDED:
                self._finished.setdefault(uid, []).append(pod)
            obj = self._world.objects.get("jobs", ObjectKey(pod.key.namespace, name))
            if obj is not None and obj["metadata"]["uid"] == uid:
                self._job_pod_ended(pod, obj)
            if pod.job.identity[0] == "Job":
                return
        if pod.again is not None and pod.end is LifeEnd.EVICTED:
            old = dict(pod.again)
            self._world.agenda.at(self._world.now + _REMADE_S, lambda: self._remake(old))
        elif not pod.job.live and (kind != "Job" or pod.end is LifeEnd.SUCCEEDED):
            pod.job.ended, pod.job.end = self._world.now, pod.end

    def _another_name(self, pod: ObjectKey) -> str:
        """Name of the pod that comes in place of one that was evicted."""
        stem = pod.name.rpartition("-")[0] or pod.name
        names = (f"{stem}-{number:05x}" for number in count(len(self._world.lives.pods)))
        return next(name for name in names if not self._is_taken(pod.namespace, name))

    def _remake(self, old: Obj) -> None:
        self.pods.create(_recreated_pod(old, self._another_name(key_of(old))))

    def _job_pod_ended(self, pod: LivePod, obj: Obj) -> None:
        world, key = self._world, key_of(obj)
        if pod.end is not LifeEnd.SUCCEEDED:
            world.agenda.at(world.now + _REMADE_S, lambda: self.reconcile(key))
            return
        status = obj.get("status") or {}
        succeeded = status.get("succeeded", 0) + 1
        more: dict[str, Any] = {"succeeded": succeeded}
        if pod.rank >= 0:
            more["completedIndexes"] = [*status.get("completedIndexes", ()), pod.rank]
        done = with_status(obj, **more)
        wanted = obj["spec"].get("completions")
        if succeeded >= (obj["spec"].get("parallelism", 1) if wanted is None else wanted):
            condition = {"type": "Complete", "status": "True", "lastTransitionTime": world.stamp}
            done = with_condition(with_status(done, completionTime=world.stamp), condition)
            world.objects.write(done)
            if pod.job.identity[0] == "Job":
                pod.job.ended, pod.job.end = world.now, LifeEnd.SUCCEEDED
            ttl_s = obj["spec"].get("ttlSecondsAfterFinished")
            if ttl_s is not None:
                at = world.now + ttl_s
                world.agenda.at(at, lambda: self._clear(key, pod.owner[2]), aside=True)
            return
        world.objects.write_known(done, succeeded=succeeded)
        self.reconcile(key)

    def _clear(self, key: ObjectKey, uid: str) -> None:
        """A finished Job has been there for long enough; its pods go with it."""
        world = self._world
        obj = world.objects.get("jobs", key)
        if obj is None or obj["metadata"]["uid"] != uid:
            return
        world.muted = True
        for pod in self._finished.pop(uid, ()):
            self.pods.clear(pod)
        self._live.pop(uid, None)
        world.objects.remove("jobs", key)
        world.muted = False
        self._made.pop(key, None)


def _done(obj: Obj) -> set[int]:
    """Indexes of a Job's pods that succeeded."""
    return set((obj.get("status") or {}).get("completedIndexes") or ())


def _recreated_pod(obj: Obj, name: str) -> Obj:
    """A pod's manifest as its controller would make it anew, with another name."""
    metadata = obj["metadata"]
    notes = {
        name: text
        for name, text in (metadata.get("annotations") or {}).items()
        if name not in _WRITTEN
    }
    kept = {name: metadata[name] for name in ("namespace", "labels", "ownerReferences")
            if name in metadata}  # fmt: skip
    spec = {name: value for name, value in obj["spec"].items() if name != "nodeName"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**kept, "name": name, "annotations": notes},
        "spec": spec,
    }
