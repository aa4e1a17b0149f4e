"""A recorded cluster as the beginning of a simulation."""

from __future__ import annotations

from collections.abc import Iterator

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
    """

    objects: tuple[Obj, ...]
    epoch: float
    remarks: tuple[str, ...]


def start_from_snapshot(snapshot: SnapshotFile) -> SimulationStart:
    """What a snapshot holds, ready to be simulated.

    Pods run for the time that their own, their Job's or their group's expected duration tells; others as
    long as the simulation is told to assume. Pods that have ended are left out.
    """
    lengths = dict(_lengths(snapshot))
    objects: list[Obj] = []
    untold = 0
    for obj in snapshot:
        if obj.get("kind") != "Pod":
            objects.append(_job_of(obj) if obj.get("kind") == "Job" else obj)
            continue
        if (obj.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
            continue
        length = _length_of(obj, lengths)
        told = length or (obj["metadata"].get("annotations") or {}).get(_RUN_FOR)
        untold += not told and bool((obj.get("spec") or {}).get("nodeName"))
        objects.append(_running(obj, length) if length else obj)
    remarks = [
        f"{each.resource} are not in it: {each.why}" for each in snapshot.missing if each.served
    ]
    if untold:
        remarks.append(
            f"of {untold} running pods nothing tells when they end; --assume-duration says it for "
            "those of Jobs and groups"
        )
    return SimulationStart(objects=tuple(objects), epoch=snapshot.taken_at, remarks=tuple(remarks))


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


def _job_of(job: Obj) -> Obj:
    """A Job whose pods, made in the simulation, run for the time that it expects."""
    said = (job["metadata"].get("annotations") or {}).get(_ASSUMED[1])
    template = (job.get("spec") or {}).get("template")
    if not said or not template:
        return job
    metadata = template.get("metadata") or {}
    notes = {_RUN_FOR: said, **(metadata.get("annotations") or {})}
    inner = {**template, "metadata": {**metadata, "annotations": notes}}
    return {**job, "spec": {**job["spec"], "template": inner}}
