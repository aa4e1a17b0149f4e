"""What the judge knows of the cluster: each object as it is now, found by name in one step.

Fed with changes, so that a question costs as much as the objects it is about, not as the cluster.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, TypeAlias

import attrs

from gpusched.api.pod.gang_annotations import GROUP_LABEL
from gpusched.api.serializer.requests import REASON
from gpusched.base.classes import define
from gpusched.lab.scenario.model.scenario import Target
from gpusched.lab.scenario.target_cluster.interface import ObjectChange

Obj: TypeAlias = Mapping[str, Any]
Key: TypeAlias = tuple[str, str]
WORKLOADS: Final = ("PodGroup", "Job", "Deployment", "Pod")
"""Kinds that an expectation on a job may mean; the first that is there tells its minimum."""
_NUMBERS: Final = re.compile(r"[0-9]+")
HASH_LABEL: Final = "pod-template-hash"


@lru_cache(maxsize=4096)
def name_pattern(text: str) -> re.Pattern[str]:
    """Names with ``*`` for anything; an empty text is any name."""
    return re.compile(".*".join(re.escape(part) for part in (text or "*").split("*")), re.DOTALL)


def is_pattern(text: str) -> bool:
    """Whether it may mean more than one name."""
    return not text or "*" in text


def name_matches(text: str, name: str) -> bool:
    """Whether a name, or a text that may hold ``*``, means this one."""
    return text == name or (is_pattern(text) and name_pattern(text).fullmatch(name) is not None)


@define
class WorkloadObjects:
    """The objects of one name that make a workload together, with its pods.

    Attributes:
        objects: kind to object, of those that are there.
        last: the same of those that went, as they were last.
        pods: of all of them, by UID.
        refused: the last event on it that says why it waits.
        told: sentence without its numbers to the contract's reason, of all such events on it and
            its pods; the pods' own condition may only say ``Unschedulable``.
    """

    namespace: str
    name: str
    objects: dict[str, Obj] = attrs.Factory(dict)
    last: dict[str, Obj] = attrs.Factory(dict)
    pods: dict[str, Obj] = attrs.Factory(dict)
    refused: Obj | None = None
    told: dict[str, str] = attrs.Factory(dict)


class ObjectIndex:
    """Objects by kind, namespace and name, and workloads with their pods."""

    def __init__(self) -> None:
        """An index without any object."""
        self.objects: dict[str, dict[Key, Obj]] = {}
        self.ever: set[tuple[str, Key]] = set()
        self.workloads: dict[Key, WorkloadObjects] = {}

    def observe_change(self, change: ObjectChange) -> None:
        """Take in one change."""
        obj = change.obj
        key = key_of(obj)
        there = self.objects.setdefault(change.kind, {})
        if change.gone:
            there.pop(key, None)
        else:
            there[key] = obj
        self.ever.add((change.kind, key))
        if change.kind == "Pod":
            self._pod(obj, gone=change.gone)
        elif change.kind in WORKLOADS:
            self._workload(change.kind, obj, gone=change.gone)
        elif change.kind == "Event" and not change.gone:
            self._event(obj)

    def matching(self, target: Target) -> list[Obj]:
        """Objects that a target means, in the order of their names."""
        there = self.objects.get(target.kind, {})
        spaces = (target.namespace, "")
        if not is_pattern(target.name) and not is_pattern(target.namespace):
            keys = [key for space in spaces if (key := (space, target.name)) in there]
        else:
            keys = sorted(key for key in there if _is_targeted(target, key))
        return [obj for key in keys if _matches_object(obj := there[key], target)]

    def seen(self, target: Target) -> bool:
        """Whether anything that it means was ever there."""
        return any(kind == target.kind and _is_targeted(target, key) for kind, key in self.ever)

    def workloads_of(self, namespace: str, name: str) -> Iterator[WorkloadObjects]:
        """Workloads by name or pattern, in the order of their names."""
        if not is_pattern(name) and not is_pattern(namespace):
            if found := self.workloads.get((namespace, name)):
                yield found
            return
        for key in sorted(self.workloads):
            if name_matches(namespace, key[0]) and name_matches(name, key[1]):
                yield self.workloads[key]

    def _at(self, key: Key) -> WorkloadObjects:
        found = self.workloads.get(key)
        if found is None:
            found = self.workloads[key] = WorkloadObjects(*key)
        return found

    def _workload(self, kind: str, obj: Obj, *, gone: bool) -> None:
        mine = self._at(key_of(obj))
        if gone:
            mine.objects.pop(kind, None)
            mine.last[kind] = obj
        else:
            mine.objects[kind] = obj

    def _pod(self, pod: Obj, *, gone: bool) -> None:
        names = workloads_of_pod(pod)
        uid = pod["metadata"]["uid"]
        space = pod["metadata"].get("namespace", "")
        if not names:
            self._workload("Pod", pod, gone=gone)
            names = (pod["metadata"]["name"],)
        for name in names:
            # Its owner may be told of later: the pods are kept until then.
            pods = self._at((space, name)).pods
            if gone:
                pods.pop(uid, None)
            else:
                pods[uid] = pod

    def _event(self, event: Obj) -> None:
        about = event_subject(event)
        if event.get("reason") != "FailedScheduling" or about.get("kind") not in WORKLOADS:
            return
        key = about.get("namespace", ""), about.get("name", "")
        names: tuple[str, ...] = ()
        if about["kind"] == "Pod" and (pod := self.objects.get("Pod", {}).get(key)):
            names = workloads_of_pod(pod)
        for name in names or (key[1],):
            found = self.workloads.get((key[0], name))
            if found is None:
                continue
            if not names:
                found.refused = event
            if reason := reason_of(event):
                found.told[text_without_numbers(event_message(event))] = reason


def workloads_of_pod(pod: Obj) -> tuple[str, ...]:
    """Names of the PodGroup, Job and Deployment that a pod belongs to; none for a lone pod."""
    meta = pod["metadata"]
    labels = meta.get("labels") or {}
    names = [labels[GROUP_LABEL]] if labels.get(GROUP_LABEL) else []
    owners = meta.get("ownerReferences") or ()
    owner: Obj = next((each for each in owners if each.get("controller")), {})
    kind, name = owner.get("kind", ""), owner.get("name", "")
    if kind == "ReplicaSet" and HASH_LABEL in labels:
        kind, name = "Deployment", name.removesuffix(f"-{labels[HASH_LABEL]}")
    if name and name not in names:
        names.append(name)
    return tuple(names)


def key_of(obj: Obj) -> Key:
    """Namespace, empty for none, and name."""
    meta = obj["metadata"]
    return meta.get("namespace", ""), meta["name"]


def event_subject(event: Obj) -> Obj:
    """What an Event is about, in both of its groups."""
    found: Obj = event.get("regarding") or event.get("involvedObject") or {}
    return found


def event_message(event: Obj) -> str:
    """The sentence of an Event, in both of its groups."""
    return str(event.get("note") or event.get("message") or "")


def reason_of(event: Obj) -> str:
    """The contract's reason that an Event carries; empty for none."""
    return str((event["metadata"].get("annotations") or {}).get(REASON, ""))


def text_without_numbers(sentence: str) -> str:
    """A sentence without its numbers: the same news with others is told only once."""
    return _NUMBERS.sub("0", sentence)


def _is_targeted(target: Target, key: Key) -> bool:
    space, name = key
    return name_matches(target.name, name) and (not space or name_matches(target.namespace, space))


def _matches_object(obj: Obj, target: Target) -> bool:
    if target.api_version and obj.get("apiVersion") != target.api_version:
        return False
    if not target.labels:
        return True
    labels = obj["metadata"].get("labels") or {}
    return all(labels.get(key) == value for key, value in target.labels.items())
