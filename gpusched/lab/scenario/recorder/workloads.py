"""Lives of workloads: Jobs, PodGroups, Deployments and pods that belong to none of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from gpusched.api.meta.duration import parse_duration
from gpusched.api.meta.identity import InvalidObject
from gpusched.api.serializer.requests import REASON
from gpusched.engine.run_record import LifeEnd
from gpusched.lab.scenario.model.scenario import CLASS_LABEL
from gpusched.lab.scenario.recorder import object_fields
from gpusched.lab.scenario.recorder.object_fields import Obj
from gpusched.lab.scenario.recorder.open_lives import OpenWorkload
from gpusched.lab.scenario.target_cluster.interface import ObjectChange

OURS: Final = "scheduling.gpusched.io/"
_STOPS: Final = frozenset({"Preempting", "Reclaiming", "Moving", "Stopping"})
"""Actions of events about Jobs that the scheduler suspends."""
_ADMITTED: Final = ("Admitted", "QuotaReserved")
_WAITS: Final = "FailedScheduling"


class WorkloadRecorder:
    """All workloads; one that is made anew after its end has another life.

    Attributes:
        kinds: kind of object to what heeds its changes; each tells whether something happened.
    """

    def __init__(self) -> None:
        self.kinds: Mapping[str, Callable[[ObjectChange], bool]] = {
            "PodGroup": self._group,
            "Job": self._job,
            "Deployment": self._deployment,
            "ReplicaSet": self._replica_set,
            "PriorityClass": self._priority,
            "Event": self._event,
        }
        self._works: dict[str, OpenWorkload] = {}
        self._older: list[OpenWorkload] = []
        self._live: dict[str, OpenWorkload] = {}
        self._deployments: dict[str, str] = {}
        self._groups: dict[str, str] = {}
        self._priorities: dict[str, int] = {}
        self.on_pause: Callable[[OpenWorkload, float], None] = _nothing
        """A Job of a queue was suspended."""
        self.on_stop: Callable[[OpenWorkload, str], None] = _nothing
        """The scheduler told why it suspended a Job."""

    def all(self) -> Iterator[OpenWorkload]:
        """Every life, in no order."""
        yield from self._older
        yield from self._works.values()

    def find(self, key: str) -> OpenWorkload | None:
        """The workload of a name that lives, or lived last."""
        return self._works.get(key)

    def waiting(self) -> Iterator[OpenWorkload]:
        """Those of ours that are not over and not held back."""
        for work in self._live.values():
            if work.ended is None and work.ours and not work.held and _is_finite(work):
                yield work

    def over(self, work: OpenWorkload) -> None:
        """It ended, or lives again: look at it no more, or anew."""
        if work.ended is None:
            self._live[work.key] = work
        else:
            self._live.pop(work.key, None)

    def of_pod(self, pod: Obj, said: Mapping[str, str], at: float) -> tuple[OpenWorkload, bool]:
        """Whose pod it is, and whether that is a Job."""
        meta = pod["metadata"]
        place = meta.get("namespace", "")
        owner = object_fields.controller_reference(pod)
        of_job = owner is not None and owner.get("kind") == "Job"
        group = object_fields.group_of(said)
        if group:
            return self._at(f"{place}/{group}", "PodGroup", "", at), of_job
        if owner is None:
            return self._at(f"{place}/{meta['name']}", "Pod", meta["uid"], at), False
        kind, name = owner["kind"], owner["name"]
        if kind == "ReplicaSet":
            deployment = self._deployments.get(f"{place}/{name}")
            if deployment:
                kind, name, owner = "Deployment", deployment, {}
        return self._at(f"{place}/{name}", kind, owner.get("uid", ""), at), of_job

    def _at(self, key: str, kind: str, uid: str, at: float) -> OpenWorkload:
        """The life of this name; another one where the last is over and this is another object."""
        work = self._works.get(key)
        if work is not None and work.kind == "Pod" and kind != "Pod":
            work.kind = kind
        if work is not None and uid and work.uid and work.uid != uid and work.kind == kind:
            self._older.append(work)
            self._live.pop(key, None)
            work = None
        if work is None:
            work = self._works[key] = OpenWorkload(key=key, kind=kind, uid=uid, created=at)
            self._live[key] = work
        elif uid and not work.uid:
            work.uid = uid
        return work

    # -- objects -----------------------------------------------------------------------------
    def _group(self, change: ObjectChange) -> bool:
        obj = change.obj
        work = self._at(
            object_fields.object_name(obj), "PodGroup", obj["metadata"]["uid"], change.at
        )
        if change.gone:
            return self._went(work, change.at)
        spec = obj.get("spec") or {}
        work.queue = (
            spec.get("queue")
            or object_fields.queue_of(object_fields.labels_and_annotations(obj))
            or work.queue
        )
        work.min_member = max(1, spec.get("minMember", 1))
        work.size = max(work.size, work.min_member)
        work.checkpoint_s = _seconds((spec.get("disruption") or {}).get("checkpointInterval"))
        self._class(work, obj, spec.get("priorityClassName", ""))
        if work.admitted is None and any(object_fields.is_true(obj, each) for each in _ADMITTED):
            work.admitted = change.at
        self._why(work, obj, change.at)
        return False

    def _why(self, work: OpenWorkload, obj: Obj, at: float) -> None:
        """The condition that tells why it waits: that of the queue first, else of the place."""
        scheduled = object_fields.find_condition(obj, "Scheduled")
        if scheduled is None:
            return
        if scheduled.get("status") == "True":
            work.say(at, "", "")
            return
        admitted = object_fields.find_condition(obj, "Admitted")
        said = scheduled
        if admitted is not None and admitted.get("status") == "False":
            said = admitted
        work.say(at, said.get("reason", ""), said.get("message", ""))

    def _job(self, change: ObjectChange) -> bool:
        obj = change.obj
        meta, spec = obj["metadata"], obj.get("spec") or {}
        template = spec.get("template") or {"spec": {"containers": []}}
        said = object_fields.labels_and_annotations({"metadata": template.get("metadata") or {}})
        group = object_fields.group_of(said)
        if group:
            key = f"{meta['namespace']}/{group}"
            return self._backs(self._at(key, "PodGroup", "", change.at), change)
        work = self._at(object_fields.object_name(obj), "Job", meta["uid"], change.at)
        if change.gone:
            return self._went(work, change.at)
        new = not work.queue and not work.size
        own = object_fields.labels_and_annotations(obj)
        parallel = spec.get("parallelism", 1)
        completions = spec.get("completions")
        gang = spec.get("completionMode") == "Indexed" or parallel == completions
        work.size = parallel if completions is None else min(parallel, completions)
        stated = own.get(object_fields.MIN_MEMBER) or said.get(object_fields.MIN_MEMBER)
        least = int(stated) if stated and stated.isdigit() else (work.size if gang else 1)
        work.min_member = max(1, least)
        work.queue = object_fields.queue_of(own) or object_fields.queue_of(said)
        self._class(work, obj, (template.get("spec") or {}).get("priorityClassName", ""))
        work.labelled = work.labelled or said.get(CLASS_LABEL, "")
        if new and template["spec"].get("containers"):
            each = object_fields.pod_gpu_request({"metadata": template.get("metadata") or {},
                                   "spec": template["spec"]}, gpu_memory=0)  # fmt: skip
            work.gpus = each.gpus * work.size
        suspended = bool(spec.get("suspend"))
        if work.suspended and not suspended and work.admitted is None:
            work.admitted = change.at
        if suspended and not work.suspended and work.queue:
            self.on_pause(work, change.at)
        moved = new or work.suspended != suspended
        work.suspended = suspended
        work.held = suspended and not work.queue
        return self._ends(work, obj, change.at) or moved

    def _ends(self, work: OpenWorkload, obj: Obj, at: float) -> bool:
        if work.ended is not None:
            return False
        for kind, end in (("Complete", LifeEnd.SUCCEEDED), ("Failed", LifeEnd.FAILED)):
            if object_fields.is_true(obj, kind):
                work.ended, work.end = at, end
                work.say(at, "", "")
                self.over(work)
                return True
        return False

    def _backs(self, work: OpenWorkload, change: ObjectChange) -> bool:
        """A Job whose pods are a PodGroup's: with the last such Job the group is over."""
        uid = change.obj["metadata"]["uid"]
        was = work.backing.get(uid)
        now = was or LifeEnd.NONE
        if not now:
            for kind, end in (("Complete", LifeEnd.SUCCEEDED), ("Failed", LifeEnd.FAILED)):
                if object_fields.is_true(change.obj, kind):
                    now = end
        if change.gone and not now:
            now = LifeEnd.DELETED
        work.backing[uid] = now
        work.suspended = bool((change.obj.get("spec") or {}).get("suspend")) and not change.gone
        if work.ended is None and now and all(work.backing.values()):
            ends = set(work.backing.values())
            work.ended = change.at
            work.end = next(
                end for end in (LifeEnd.FAILED, LifeEnd.DELETED, LifeEnd.SUCCEEDED) if end in ends
            )
            work.say(change.at, "", "")
            self.over(work)
        return was != now

    def _deployment(self, change: ObjectChange) -> bool:
        obj = change.obj
        work = self._at(
            object_fields.object_name(obj), "Deployment", obj["metadata"]["uid"], change.at
        )
        if change.gone:
            return self._went(work, change.at)
        spec = obj.get("spec") or {}
        template = spec.get("template") or {}
        said = object_fields.labels_and_annotations({"metadata": template.get("metadata") or {}})
        work.size = spec.get("replicas", 1)
        stated = said.get(object_fields.MIN_MEMBER, "")
        work.min_member = max(1, int(stated)) if stated.isdigit() else 1
        work.queue = object_fields.queue_of(
            object_fields.labels_and_annotations(obj)
        ) or object_fields.queue_of(said)
        self._class(work, obj, (template.get("spec") or {}).get("priorityClassName", ""))
        work.labelled = work.labelled or said.get(CLASS_LABEL, "")
        return False

    def _replica_set(self, change: ObjectChange) -> bool:
        owner = object_fields.controller_reference(change.obj)
        if owner is not None and owner.get("kind") == "Deployment":
            self._deployments[object_fields.object_name(change.obj)] = owner["name"]
        return False

    def _priority(self, change: ObjectChange) -> bool:
        self._priorities[change.obj["metadata"]["name"]] = change.obj.get("value", 0)
        return False

    def _event(self, change: ObjectChange) -> bool:
        """Why a suspended Job waits, which has neither pods nor conditions of ours; why it was."""
        obj = change.obj
        about = obj.get("regarding") or obj.get("involvedObject") or {}
        if about.get("kind") != "Job":
            return False
        work = self._works.get(f"{about.get('namespace', '')}/{about.get('name', '')}")
        if work is not None and obj.get("action") in _STOPS:
            self.on_stop(work, obj.get("note") or obj.get("message") or "")
        if obj.get("reason") != _WAITS:
            return False
        if work is not None and work.suspended and work.ended is None:
            note = obj.get("note") or obj.get("message") or ""
            reason = (obj["metadata"].get("annotations") or {}).get(REASON, _WAITS)
            work.say(change.at, reason, note)
        return False

    # -- shared ------------------------------------------------------------------------------
    def _class(self, work: OpenWorkload, obj: Obj, priority: str) -> None:
        work.labelled = (obj["metadata"].get("labels") or {}).get(CLASS_LABEL, "") or work.labelled
        if priority:
            work.grade = priority
            work.priority = self._priorities.get(priority, work.priority)

    def _went(self, work: OpenWorkload, at: float) -> bool:
        if work.ended is None:
            work.ended, work.end = at, LifeEnd.DELETED
            self.over(work)
        return True


def _nothing(_work: OpenWorkload, _what: object) -> None:
    """Listener of a recorder that nothing reads."""


def _is_finite(work: OpenWorkload) -> bool:
    """Whether it ends by itself: a Job, or what has a pod that does not run until it is deleted."""
    if work.kind == "Job" or work.backing:
        return True
    return any(body.ended is None and not body.endless for body in work.pods.values())


def _seconds(text: str | None) -> float:
    if not text:
        return 0.0
    try:
        return parse_duration(text) / 1e9
    except InvalidObject:
        return 0.0
