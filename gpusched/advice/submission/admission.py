"""What the API server would do with submitted objects: refuse them, or fill in what they leave out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from gpusched.advice.submission.definition_rules import definition_faults
from gpusched.advice.submission.expansion import RefusedDocument
from gpusched.advice.submission.namespace_limits import (
    limit_faults,
    quota_faults,
    with_limit_defaults,
)
from gpusched.advice.submission.workload_pods import ExpandedWorkload
from gpusched.advice.trial import TrialCluster
from gpusched.config.yaml_tree import did_you_mean, list_names, quoted
from gpusched.engine.objects import Obj, key_of, plural_of

_NAMED_MAX: Final = 8
_CHANGED_BY_APPLY: Final = frozenset(
    {"namespaces", "queues", "topologies", "priorityclasses", "persistentvolumeclaims",
     "persistentvolumes", "storageclasses", "resourcequotas", "poddisruptionbudgets"}
)  # fmt: skip
"""Kinds of which an existing object takes on what the document says, as with ``kubectl apply``."""


def admit_workloads(
    trial: TrialCluster, workloads: Sequence[ExpandedWorkload], limit_ranges: Sequence[Obj] = ()
) -> tuple[list[ExpandedWorkload], list[RefusedDocument]]:
    """The workloads as the API server would keep them, and those that it would refuse.

    Args:
        trial: the cluster, without them.
        workloads: of one submission.
        limit_ranges: of the namespaces, as far as they are known.
    """
    names = _SubmittedNames(trial, workloads)
    by_name = sorted(limit_ranges, key=lambda each: str(each["metadata"]["name"]))
    admitted, refused = [], []
    for workload in workloads:
        ranges = [each for each in by_name if each["metadata"]["namespace"] == workload.namespace]
        workload.objects = [_with_limit_defaults(each, ranges) for each in workload.objects]
        why = next(_faults(trial, workload, names, ranges), "")
        if why:
            refused.append(RefusedDocument(workload.title, workload.place, why))
            continue
        workload.objects = [with_class_priority(each, names.classes) for each in workload.objects]
        admitted.append(workload)
    return admitted, refused


class _SubmittedNames:
    """Names that exist once everything is submitted.

    Attributes:
        namespaces: of the cluster and the submission; empty where they may not be read.
        classes: priority classes by name.
    """

    def __init__(self, trial: TrialCluster, workloads: Sequence[ExpandedWorkload]) -> None:
        made = [obj for each in workloads for obj in each.objects]
        spaces = [*trial.objects.all("namespaces")]
        self.namespaces = {
            str(obj["metadata"]["name"])
            for obj in (*spaces, *(each for each in made if each["kind"] == "Namespace"))
            if spaces
        }
        self.classes = {
            str(obj["metadata"]["name"]): obj
            for obj in (
                *trial.objects.all("priorityclasses"),
                *(each for each in made if each["kind"] == "PriorityClass"),
            )
        }


def with_class_priority(obj: Obj, classes: Mapping[str, Obj]) -> Obj:
    """A pod with the priority of its class; other objects stay.

    Args:
        obj: the manifest.
        classes: priority classes by name.
    """
    if obj["kind"] != "Pod":
        return obj
    spec = obj.get("spec") or {}
    everywhere = [each for each in classes.values() if each.get("globalDefault")]
    default = min(everywhere, key=lambda each: int(each.get("value") or 0), default=None)
    found = classes.get(str(spec.get("priorityClassName") or ""), default)
    if found is None or spec.get("priority") is not None:
        return obj
    more = {
        "priorityClassName": found["metadata"]["name"], "priority": found.get("value") or 0,
        "preemptionPolicy": found.get("preemptionPolicy") or "PreemptLowerPriority",
    }  # fmt: skip
    return {**obj, "spec": {**spec, **more}}


def _faults(
    trial: TrialCluster, workload: ExpandedWorkload, names: _SubmittedNames, ranges: Sequence[Obj]
) -> Iterator[str]:
    space = workload.namespace
    if space and names.namespaces and space not in names.namespaces:
        known = sorted(names.namespaces)
        some = list_names(known[:_NAMED_MAX]) + (" ..." if len(known) > _NAMED_MAX else "")
        yield (
            f"namespace {quoted(space)} does not exist; create it or name one of: {some}"
            f"{did_you_mean(space, known).rstrip('?')}"
        )
    for obj in workload.objects:
        yield from definition_faults(obj)
        plural = plural_of(obj)
        if plural and plural not in _CHANGED_BY_APPLY:
            if trial.objects.get(plural, key_of(obj)) is not None:
                yield _exists(obj)
        elif trial.objects.other(obj["kind"], space, obj["metadata"]["name"]) is not None:
            yield _exists(obj)
        if obj["kind"] == "Pod":
            yield from _pod_faults(obj, trial, names)
    pods = [
        with_class_priority(obj, names.classes) for obj in workload.objects if obj["kind"] == "Pod"
    ]
    for pod in pods or _templates(workload):
        for why in limit_faults(pod, ranges):
            yield f"{why}: its pods are never made"
    yield from quota_faults(trial, pods)


def _with_limit_defaults(obj: Obj, ranges: Sequence[Obj]) -> Obj:
    """A pod with what the namespace gives it; a Job with that in the template of pods that come later."""
    if obj["kind"] == "Pod":
        return with_limit_defaults(obj, ranges)
    template = _template(obj)
    if template is None:
        return obj
    return {**obj, "spec": {**obj["spec"], "template": with_limit_defaults(template, ranges)}}


def _template(obj: Obj) -> Obj | None:
    """The template of a Job; None where there is none."""
    spec = obj.get("spec")
    if plural_of(obj) != "jobs" or not isinstance(spec, dict):
        return None
    template = spec.get("template")
    return template if isinstance(template, dict) else None


def _templates(workload: ExpandedWorkload) -> list[Obj]:
    return [each for each in map(_template, workload.objects) if each is not None]


def _exists(obj: Obj) -> str:
    kind, name = obj["kind"], obj["metadata"]["name"]
    space = f" -n {obj['metadata']['namespace']}" if obj["metadata"].get("namespace") else ""
    return (
        f"{kind} {name} exists already: gpusched advise {kind.lower()} {name}{space} says when that starts; "
        "give it another name to ask about one more"
    )


def _pod_faults(obj: Obj, trial: TrialCluster, names: _SubmittedNames) -> Iterator[str]:
    spec = obj.get("spec") or {}
    wanted = spec.get("priorityClassName")
    if isinstance(wanted, str) and wanted and names.classes and wanted not in names.classes:
        known = sorted(names.classes)
        yield (
            f"no PriorityClass with name {wanted} was found; there are {list_names(known[:_NAMED_MAX])}"
            f"{did_you_mean(wanted, known).rstrip('?')}"
        )
    scheduler = spec.get("schedulerName") or "default-scheduler"
    ours = trial.config.scheduler_names
    if scheduler not in ours:
        yield (
            f"its pods name scheduler {quoted(str(scheduler))}, of which nothing is known here: "
            f"set schedulerName: {min(ours)} in the pod template"
        )
    if not spec.get("containers"):
        yield "its pods have no containers"
