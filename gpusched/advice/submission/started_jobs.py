"""A suspended Job that a session starts, with the pods that its controller then makes."""

from __future__ import annotations

from gpusched.advice.submission.admission import with_class_priority
from gpusched.advice.submission.workload_pods import ExpandedWorkload, Expander
from gpusched.advice.trial import ObjectEdit, TrialCluster, edit_to
from gpusched.api.meta.identity import GangKey, ObjectKey
from gpusched.engine.objects import Obj, with_annotations
from gpusched.session.decide import Decision
from gpusched.session.state.plan import JobSuspendChange

_NUMBER = 0xFFFF_FFFF
"""In UIDs of these pods: no document has this number."""


def started_job_edits(
    trial: TrialCluster, gang: GangKey, decision: Decision
) -> tuple[ObjectEdit, ...]:
    """The edits that start a Job as a decision does; empty where it starts none of that name."""
    key = ObjectKey(gang.namespace, gang.name)
    change = next(
        (each for each in decision.plan.job_changes if each.key == key and not each.suspend), None
    )
    obj = trial.objects.get("jobs", key)
    if change is None or obj is None:
        return ()
    job = _started(obj, change)
    made = Expander(ExpandedWorkload("Job", key.namespace, key.name, ""), job, number=_NUMBER)
    made.add_job_pods(job)
    classes = {str(each["metadata"]["name"]): each for each in trial.objects.all("priorityclasses")}
    pods = (with_class_priority(each, classes) for each in made.workload.objects)
    return tuple(edit_to(each) for each in (job, *pods))


def _started(obj: Obj, change: JobSuspendChange) -> Obj:
    spec = {**obj["spec"], "suspend": False}
    if change.parallelism is not None:
        spec["parallelism"] = change.parallelism
    if change.node_selector:
        template = spec["template"]
        selector = {**(template["spec"].get("nodeSelector") or {}), **dict(change.node_selector)}
        spec["template"] = {**template, "spec": {**template["spec"], "nodeSelector": selector}}
    return with_annotations({**obj, "spec": spec}, dict(change.annotations))
