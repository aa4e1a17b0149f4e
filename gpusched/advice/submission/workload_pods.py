"""What a submitted workload becomes, and how its controllers write pods: the parts that all kinds share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import attrs

from gpusched.api.meta.identity import ObjectKey
from gpusched.base.classes import define
from gpusched.base.limits import GANG_PODS_MAX
from gpusched.engine.objects import Obj

INDEX: Final = "batch.kubernetes.io/job-completion-index"


class RefusedManifest(Exception):
    """A manifest of which nothing can come to be; ``str()`` is one sentence."""


@define
class ExpandedWorkload:
    """One document and what comes to be of it.

    Attributes:
        kind, namespace, name: of the document.
        objects: that exist then, in the order in which they can be applied; the document's own among them.
        pods: names of the pods among them.
        remarks: what is not looked at, one sentence each.
    """

    kind: str
    namespace: str
    name: str
    place: str
    objects: list[Obj] = attrs.field(factory=list)
    pods: list[ObjectKey] = attrs.field(factory=list)
    remarks: list[str] = attrs.field(factory=list)

    @property
    def title(self) -> str:
        """Kind, namespace and name, for sentences."""
        space = f"{self.namespace}/" if self.namespace else ""
        return f"{self.kind} {space}{self.name}"


class Expander:
    """Makes the objects of one document.

    Args:
        workload: that is filled.
        document: the manifest, with its namespace.
        number: of the document among all that are submitted; UIDs are made of it.
    """

    def __init__(self, workload: ExpandedWorkload, document: Obj, *, number: int) -> None:
        self.workload = workload
        self.document = document
        self.name: str = document["metadata"]["name"]
        self.namespace: str = document["metadata"].get("namespace", "")
        self.spec: Obj = document.get("spec") or {}
        self.number = number
        self._made = 0

    def add_own(self) -> Obj:
        """The document itself."""
        return self.add(self.document)

    def add(self, obj: Obj) -> Obj:
        """An object with a UID.

        Raises:
            RefusedManifest: it would be one pod too many.
        """
        self._made += 1
        if self._made > 2 * GANG_PODS_MAX:
            raise RefusedManifest(f"it makes more than {GANG_PODS_MAX:,} pods")
        metadata = {
            key: value
            for key, value in obj["metadata"].items()
            if key
            not in ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields")
        }
        metadata["uid"] = f"{self.number:08x}-0000-4000-9000-{self._made:012x}"
        made = {key: value for key, value in obj.items() if key != "status"}
        made["metadata"] = metadata
        self.workload.objects.append(made)
        if made["kind"] == "Pod":
            self.workload.pods.append(ObjectKey(metadata.get("namespace", ""), metadata["name"]))
        return made

    def add_pod(
        self,
        template: Any,
        name: str,
        *,
        owner: Obj | None,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        **spec: Any,
    ) -> Obj:
        """A pod of a template, as a controller makes it.

        Args:
            template: with metadata and spec.
            name: of the pod.
            owner: the controller's object; None for none.
            labels: that the controller adds.
            annotations: that the controller adds.
            spec: fields that it sets.
        """
        head = mapping_at(template, "metadata")
        metadata: Obj = {
            "name": name[-253:].lstrip("-."),
            "namespace": self.namespace,
            "labels": {**mapping_at(head, "labels"), **(labels or {})},
            "annotations": {**mapping_at(head, "annotations"), **(annotations or {})},
        }
        if owner is not None:
            metadata["ownerReferences"] = [owner_reference(owner)]
        return self.add({
            "apiVersion": "v1", "kind": "Pod", "metadata": metadata,
            "spec": {**mapping_at(template, "spec"), **spec},
        })  # fmt: skip

    def add_job_pods(self, job: Obj) -> None:
        """The pods that the Job controller makes at once; none of a Job that is suspended."""
        spec = mapping_at(job, "spec")
        if spec.get("suspend"):
            return
        template, name = mapping_at(spec, "template"), job["metadata"]["name"]
        for index in range(parallel_pods(spec)):
            labels = {"batch.kubernetes.io/job-name": name, "job-name": name}
            notes = {}
            if spec.get("completionMode") == "Indexed":
                labels[INDEX] = notes[INDEX] = str(index)
            self.add_pod(template, f"{name}-{index}", owner=job, labels=labels, annotations=notes)


def parallel_pods(spec: Obj) -> int:
    """Pods that a Job of this spec runs at a time."""
    parallelism = count_at(spec, "parallelism", 1)
    completions = spec.get("completions")
    if completions is None:
        return parallelism
    return min(parallelism, count_at(spec, "completions", 1))


def owner_reference(owner: Obj) -> Obj:
    """The reference of a controller to what it made an object for."""
    metadata = owner["metadata"]
    return {
        "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": metadata["name"],
        "uid": metadata["uid"], "controller": True, "blockOwnerDeletion": True,
    }  # fmt: skip


def controller_uid(obj: Obj, api_version: str) -> str:
    """The UID of an object's controller of that API version; empty where it has none."""
    for each in obj["metadata"].get("ownerReferences") or ():
        if each.get("controller") and each.get("apiVersion") == api_version:
            return str(each.get("uid") or "")
    return ""


def mapping_at(value: Any, *path: str) -> Obj:
    """The mapping at a path; an empty one where there is none.

    Raises:
        RefusedManifest: something else stands there.
    """
    for number, key in enumerate(path, 1):
        value = value.get(key)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise RefusedManifest(f"{'.'.join(path[:number])} must be a mapping")
    return dict(value)


def mappings_at(value: Obj, key: str) -> Iterator[Obj]:
    """The mappings of the list at a key; none where there is no list.

    Raises:
        RefusedManifest: something else stands there.
    """
    found = value.get(key)
    if found is None:
        return
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise RefusedManifest(f"{key} must be a list of mappings")
    yield from found


def count_at(value: Obj, key: str, default: int) -> int:
    """A number of pods or the like.

    Raises:
        RefusedManifest: it is none, or more than any gang may have.
    """
    found = value.get(key)
    if found is None:
        return default
    if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found <= GANG_PODS_MAX:
        raise RefusedManifest(f"{key} must be a number from 0 to {GANG_PODS_MAX:,}")
    return found
