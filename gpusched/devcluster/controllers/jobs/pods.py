"""Pods of Jobs: making them, their completion indexes, and which of them to give up first."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from gpusched.devcluster.controllers import pod_state

Obj = dict[str, Any]

TRACKING: Final = "batch.kubernetes.io/job-tracking"
"""Finalizer of pods that are not counted in their Job's status yet."""
INDEX: Final = "batch.kubernetes.io/job-completion-index"
_DIGITS_MAX: Final = 10
_INDEXES: Final = re.compile(r"(?:^|,)(\d{1,10})(?:-(\d{1,10}))?(?=,|$)", re.ASCII)
_GENERATED_NAME_MAX: Final = 58
"""63 characters of a name less the 5 that the server appends."""


def is_tracked(pod: Obj) -> bool:
    """Whether the pod still has to be counted."""
    return TRACKING in (pod["metadata"].get("finalizers") or ())


def completion_index(pod: Obj) -> int:
    """The pod's completion index, -1 when it has none that can be read."""
    text = (pod["metadata"].get("annotations") or {}).get(INDEX, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX else -1


def dispensable_first(pods: Iterable[Obj]) -> list[Obj]:
    """Pods in the order in which a shrinking Job gives them up: idle, unready, young ones first."""

    def worth(pod: Obj) -> tuple[bool, bool, bool, int]:
        bound = bool(pod["spec"].get("nodeName"))
        return (
            bound,
            pod_state.pod_phase(pod) == "Running",
            pod_state.is_ready(pod),
            -int(pod["metadata"]["resourceVersion"]),
        )

    return sorted(pods, key=worth)


def new_pod(job: Obj, index: int | None) -> Obj:
    """The pod a Job makes; ``index`` is its completion index, None for a NonIndexed Job."""
    metadata, template = job["metadata"], job["spec"]["template"]
    name = metadata["name"]
    given: Obj = template.get("metadata") or {}
    pod: Obj = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": _prefix(name if index is None else f"{name}-{index}"),
            "namespace": metadata["namespace"],
            "labels": dict(given.get("labels") or {}),
            "annotations": dict(given.get("annotations") or {}),
            "finalizers": [*(given.get("finalizers") or ()), TRACKING],
            "ownerReferences": [
                {
                    "apiVersion": "batch/v1",
                    "kind": "Job",
                    "name": name,
                    "uid": metadata["uid"],
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": dict(template.get("spec") or {}),
    }
    if index is not None:
        _give_index(pod, name, index)
    if not pod["metadata"]["annotations"]:
        del pod["metadata"]["annotations"]
    return pod


def _prefix(name: str) -> str:
    return f"{name[: _GENERATED_NAME_MAX - 1]}-"


def _give_index(pod: Obj, job_name: str, index: int) -> None:
    pod["metadata"]["labels"][INDEX] = str(index)
    pod["metadata"]["annotations"][INDEX] = str(index)
    spec = pod["spec"]
    spec.setdefault("hostname", f"{job_name}-{index}")
    variable = {
        "name": "JOB_COMPLETION_INDEX",
        "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.labels['{INDEX}']"}},
    }
    for key in ("initContainers", "containers"):
        if key in spec:
            spec[key] = [_with_variable(container, variable) for container in spec[key]]


def _with_variable(container: Obj, variable: Obj) -> Obj:
    have = container.get("env") or []
    if any(item.get("name") == variable["name"] for item in have):
        return container
    return {**container, "env": [*have, variable]}


def read_indexes(text: str, below: int) -> set[int]:
    """The numbers of a text such as ``0,2-5`` that are smaller than ``below``; junk is no number."""
    found: set[int] = set()
    for first, last in _INDEXES.findall(text):
        found.update(range(int(first), min(int(last or first) + 1, below)))
    return {index for index in found if index < below}


def write_indexes(indexes: Iterable[int]) -> str:
    """The shortest text for numbers: ``0,1``, ``0-2``, ``1,3-5``."""
    runs: list[list[int]] = []
    for index in sorted(indexes):
        if runs and runs[-1][-1] == index - 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    return ",".join(
        f"{run[0]}-{run[-1]}" if len(run) > 2 else ",".join(map(str, run)) for run in runs
    )
