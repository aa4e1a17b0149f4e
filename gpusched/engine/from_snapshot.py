"""A recorded cluster as the beginning of a simulation."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import attrs

from gpusched.engine.objects import Obj
from gpusched.io.recordings.snapshot_file import SnapshotFile

_ASSUMED = ("expectedDuration", "gpusched.io/expected-duration")
_RUN_FOR = "gpusched.io/run-for"


@attrs.frozen(kw_only=True)
class SimulationStart:
    """Objects, and what they do not tell.

    Attributes:
        objects: in the order of the file.
        epoch: when the cluster was recorded, seconds since the Unix epoch.
        remarks: what a reader of the results should know, one sentence each.
        told, guessed, untold: running pods whose end an object tells, is guessed, and is not known.
    """

    objects: tuple[Obj, ...]
    epoch: float
    remarks: tuple[str, ...]
    told: int = 0
    guessed: int = 0
    untold: int = 0


def _guess_nothing(_obj: Obj) -> str:
    return ""


def start_from_snapshot(
    snapshot: SnapshotFile, *, guess: Callable[[Obj], str] = _guess_nothing
) -> SimulationStart:
    """What a snapshot holds, ready to be simulated.

    Pods run for the time that their own, their Job's or their group's expected duration tells; others for
    what is guessed, or as long as the simulation is told to assume. Pods that have ended are left out.

    Args:
        snapshot: of the cluster.
        guess: how long a pod, or the pods of a Job, run from their start; empty where it cannot tell.
    """
    lengths = dict(_lengths(snapshot))
    objects: list[Obj] = []
    told = guessed = untold = 0
    for obj in snapshot:
        if obj.get("kind") != "Pod":
            objects.append(_job_of(obj, guess) if obj.get("kind") == "Job" else obj)
            continue
        if (obj.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
            continue
        runs = bool((obj.get("spec") or {}).get("nodeName"))
        length = _length_of(obj, lengths)
        if length or (obj["metadata"].get("annotations") or {}).get(_RUN_FOR):
            told += runs
        elif length := guess(obj):
            guessed += runs
        else:
            untold += runs
        objects.append(_running(obj, length) if length else obj)
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
        guessed=guessed, untold=untold,
    )  # fmt: skip


def _lengths(snapshot: SnapshotFile) -> Iterator[tuple[tuple[str, str, str], str]]:
    """Expected durations of groups and Jobs, by kind, namespace and name."""
    for obj in snapshot:
        metadata, kind = obj["metadata"], obj.get("kind")
        key = (str(kind), metadata.get("namespace", ""), metadata["name"])
        notes = metadata.get("annotations") or {}
        said = notes.get(_ASSUMED[1])
        if kind == "PodGroup":
            said = (obj.get("spec") or {}).get(_ASSUMED[0]) or said
        if said and kind in ("PodGroup", "Job"):
            yield key, said


def _length_of(pod: Obj, lengths: dict[tuple[str, str, str], str]) -> str:
    metadata = pod["metadata"]
    notes, labels = metadata.get("annotations") or {}, metadata.get("labels") or {}
    if notes.get(_RUN_FOR):
        return ""  # it says so itself
    space = metadata.get("namespace", "")
    group = labels.get("gpusched.io/pod-group", "")
    found = notes.get(_ASSUMED[1]) or lengths.get(("PodGroup", space, group), "")
    for owner in metadata.get("ownerReferences") or ():
        if owner.get("kind") == "Job" and owner.get("controller"):
            found = found or lengths.get(("Job", space, owner["name"]), "")
    return str(found)


def _running(pod: Obj, length: str) -> Obj:
    metadata = pod["metadata"]
    notes = {**(metadata.get("annotations") or {}), _RUN_FOR: length}
    return {**pod, "metadata": {**metadata, "annotations": notes}}


def _job_of(job: Obj, guess: Callable[[Obj], str]) -> Obj:
    """A Job whose pods, made in the simulation, run for the time that it expects."""
    said = (job["metadata"].get("annotations") or {}).get(_ASSUMED[1]) or guess(job)
    template = (job.get("spec") or {}).get("template")
    if not said or not template:
        return job
    metadata = template.get("metadata") or {}
    notes = {_RUN_FOR: said, **(metadata.get("annotations") or {})}
    inner = {**template, "metadata": {**metadata, "annotations": notes}}
    return {**job, "spec": {**job["spec"], "template": inner}}
