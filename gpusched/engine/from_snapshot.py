"""A recorded cluster as the beginning of a simulation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from gpusched.api.meta.duration import NANOSECONDS, parse_duration
from gpusched.api.meta.identity import InvalidObject, parse_time
from gpusched.base.classes import frozen
from gpusched.engine.objects import Obj
from gpusched.engine.world import RUN_FOR, running_since
from gpusched.io.recordings.snapshot_file import SnapshotFile
from gpusched.session.backfill.walltimes import end_when_late_s

_EXPECTED: Final = ("expectedDuration", "gpusched.io/expected-duration")
_GROUP: Final = "gpusched.io/pod-group"
_DEADLINE: Final = "activeDeadlineSeconds"
_ENDED: Final = ("Succeeded", "Failed")
_JOB_ENDS: Final = ("Complete", "Failed")


@frozen(kw_only=True)
class SimulationStart:
    """Objects, and what they do not tell.

    Attributes:
        objects: in the order of the file.
        epoch: when the cluster was recorded, seconds since the Unix epoch.
        remarks: what a reader of the results should know, one sentence each.
        told, guessed, untold: running pods whose end an object tells, is guessed, and is not known.
        late: those of ``told`` that should have ended already, and are taken to end within a minute.
    """

    objects: tuple[Obj, ...]
    epoch: float
    remarks: tuple[str, ...]
    told: int = 0
    guessed: int = 0
    untold: int = 0
    late: int = 0


def _guess_nothing(_obj: Obj) -> str:
    return ""


def start_from_snapshot(
    snapshot: SnapshotFile,
    *,
    announce: Callable[[Obj], str] = _guess_nothing,
    guess: Callable[[Obj], str] = _guess_nothing,
    deadlines: bool = True,
) -> SimulationStart:
    """What a snapshot holds, ready to be simulated.

    Pods run for the time that their own, their Job's or their group's expected duration tells; others for
    what is guessed, until their deadline, or as long as the simulation is told to assume. What runs twice its
    time is not believed, as in a session. Pods that have ended are left out, and PodGroups whose work is done.

    Args:
        snapshot: of the cluster.
        announce: how long a pod's gang announces to run, where it is of another kind than a PodGroup or Job.
        guess: how long a pod, or the pods of a Job, run from their start; empty where it cannot tell.
        deadlines: whether what nothing else is known of ends at its deadline.
    """
    lengths = _RunLengths(snapshot, announce, deadlines=deadlines)
    in_use = {group for obj in snapshot for group in _groups_of(obj)}
    objects: list[Obj] = []
    told = guessed = untold = late = 0
    for obj in snapshot:
        if obj.get("kind") == "Job" and _spec(obj).get("template"):
            length = lengths.announced_of_job(obj) or guess(obj) or lengths.deadline(obj)
            objects.append(_job_that_lasts(obj, length) if length else obj)
            continue
        if obj.get("kind") != "Pod":
            if not _is_done_group(obj) or _name(obj) in in_use:
                objects.append(obj)
            continue
        if _status(obj).get("phase") in _ENDED:
            continue
        runs = bool(_spec(obj).get("nodeName"))
        announced, is_late = lengths.announced_of_pod(obj, now=snapshot.taken_at)
        guessed_length = "" if announced else guess(obj)
        length = announced or guessed_length or lengths.deadline(obj)
        objects.append(_pod_that_lasts(obj, length) if length else obj)
        if runs:
            late += is_late
            guessed += bool(guessed_length)
            untold += not length
            told += bool(length and not guessed_length)
    remarks = [
        f"{each.resource} are not in it: {each.why}" for each in snapshot.missing if each.served
    ]
    if untold:
        remarks.append(
            f"of {untold} running pods nothing tells when they end; --assume-duration says it for "
            "those of Jobs and groups"
        )
    return SimulationStart(
        objects=tuple(objects), epoch=snapshot.taken_at, remarks=tuple(remarks), told=told,
        guessed=guessed, untold=untold, late=late,
    )  # fmt: skip


def _is_done_group(obj: Obj) -> bool:
    """Whether it is a PodGroup of ours whose members have ended: nobody waits for another start of it."""
    ours = str(obj.get("apiVersion")).startswith("scheduling.gpusched.io/")
    return ours and obj.get("kind") == "PodGroup" and _status(obj).get("phase") == "Completed"


def _groups_of(obj: Obj) -> Iterator[tuple[str, str]]:
    """Namespace and name of each PodGroup that a pod names which has not ended, or one that a Job will make."""
    pods: list[Obj] = []
    if obj.get("kind") == "Pod" and _status(obj).get("phase") not in _ENDED:
        pods = [obj]
    elif obj.get("kind") == "Job":
        ends = _status(obj).get("conditions") or ()
        if not any(each.get("type") in _JOB_ENDS and each.get("status") == "True" for each in ends):
            pods = [{"metadata": {}, **(_spec(obj).get("template") or {})}]
    for pod in pods:
        name = _labels(pod).get(_GROUP) or _notes(pod).get(_GROUP)
        if name:
            yield _name(obj)[0], str(name)


class _RunLengths:
    """How long pods run, as durations; empty where nothing tells it."""

    def __init__(
        self, snapshot: SnapshotFile, announce: Callable[[Obj], str], *, deadlines: bool
    ) -> None:
        self._announce = announce
        self._deadlines = deadlines
        self._groups: dict[tuple[str, str], str] = {}
        self._jobs: dict[tuple[str, str], Obj] = {}
        for obj in snapshot:
            if obj.get("kind") == "PodGroup":
                said = _spec(obj).get(_EXPECTED[0]) or _notes(obj).get(_EXPECTED[1])
                self._groups[_name(obj)] = str(said or "")
            elif obj.get("kind") == "Job":
                self._jobs[_name(obj)] = obj

    def announced_of_job(self, job: Obj) -> str:
        """What a Job, its template or their group says of the pods that it makes."""
        template = {"metadata": {}, **(_spec(job).get("template") or {})}
        said = _notes(job).get(_EXPECTED[1]) or _notes(template).get(_EXPECTED[1])
        return str(said or self._of_group(template, _name(job)[0]))

    def announced_of_pod(self, pod: Obj, *, now: float) -> tuple[str, bool]:
        """What is said of a pod, where that may be believed; and whether it should have ended already."""
        said = _notes(pod).get(RUN_FOR)
        if said:
            return str(said), False
        job = self._job_of(pod)
        said = _notes(pod).get(_EXPECTED[1]) or self._of_group(pod, _name(pod)[0])
        length = str(said or (self.announced_of_job(job) if job else "") or self._announce(pod))
        late_s = _late_s(pod, length, now) if length else 0
        if late_s <= 0:
            return length, False
        believed = end_when_late_s(late_s, _seconds(length)) is not None
        return (length, True) if believed else ("", False)

    def deadline(self, obj: Obj) -> str:
        """The time after which Kubernetes ends a pod, or the pods of a Job."""
        if not self._deadlines:
            return ""
        inner = _spec(_spec(obj).get("template") or {})
        job = self._job_of(obj) or {}
        found = [_spec(obj).get(_DEADLINE), inner.get(_DEADLINE), _spec(job).get(_DEADLINE)]
        known = [each for each in found if isinstance(each, int) and each > 0]
        return f"{min(known)}s" if known else ""

    def _of_group(self, pod: Obj, space: str) -> str:
        return self._groups.get((space, _labels(pod).get(_GROUP, "")), "")

    def _job_of(self, pod: Obj) -> Obj | None:
        for owner in pod["metadata"].get("ownerReferences") or ():
            if owner.get("kind") == "Job" and owner.get("controller"):
                return self._jobs.get((_name(pod)[0], owner["name"]))
        return None


def _late_s(pod: Obj, length: str, now: float) -> int:
    """Seconds since a running pod's time was over; 0 where it is not, or does not run."""
    conditions = _status(pod).get("conditions") or ()
    bound = [
        each.get("lastTransitionTime")
        for each in conditions
        if each.get("type") == "PodScheduled" and each.get("status") == "True"
    ]
    try:
        began = parse_time(str((bound or [_status(pod).get("startTime")])[0] or ""))
    except InvalidObject:
        return 0  # such a pod is refused
    began = max(began, running_since(pod))
    return max(0, int(now - began) - _seconds(length)) if began else 0


_FOREVER_S: Final = 2**62


def _seconds(length: str) -> int:
    """Whole seconds of a duration; of what is none, for ever."""
    try:
        return parse_duration(length) // NANOSECONDS
    except ValueError:
        return _FOREVER_S


def _spec(obj: Obj) -> Any:
    return obj.get("spec") or {}


def _status(obj: Obj) -> Any:
    return obj.get("status") or {}


def _notes(obj: Obj) -> Any:
    return obj["metadata"].get("annotations") or {}


def _labels(obj: Obj) -> Any:
    return obj["metadata"].get("labels") or {}


def _name(obj: Obj) -> tuple[str, str]:
    """Namespace and name."""
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def _pod_that_lasts(pod: Obj, length: str) -> Obj:
    metadata = pod["metadata"]
    return {**pod, "metadata": {**metadata, "annotations": {**_notes(pod), RUN_FOR: length}}}


def _job_that_lasts(job: Obj, length: str) -> Obj:
    """A Job whose pods, made in the simulation, run for so long, unless its template says it itself."""
    template = job["spec"]["template"]
    metadata = template.get("metadata") or {}
    notes = {RUN_FOR: length, **(metadata.get("annotations") or {})}
    inner = {**template, "metadata": {**metadata, "annotations": notes}}
    return {**job, "spec": {**job["spec"], "template": inner}}
