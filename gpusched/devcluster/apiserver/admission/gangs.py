"""Admission of Kubernetes' own gangs: the finalizer, the priority, the Workload a group names,
and the parallelism of Jobs whose pods are a gang.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from gpusched.devcluster.apimachinery import status
from gpusched.devcluster.apiserver.server_state import ServerState
from gpusched.devcluster.registry.gangs.features import (
    PREEMPTION,
    PREEMPTION_POLICY,
    WITH_JOB,
)
from gpusched.devcluster.registry.kinds import Resource

Obj = dict[str, Any]

POD_GROUPS: Final = "podgroups.scheduling.k8s.io"
COMPOSITES: Final = "compositepodgroups.scheduling.k8s.io"
WORKLOADS: Final = "workloads.scheduling.k8s.io"
PROTECTION: Final = "scheduling.k8s.io/podgroup-protection"
_JOBS: Final = "jobs.batch"
_CALLED: Final = {POD_GROUPS: "pod group", COMPOSITES: "composite pod group"}
_PREEMPT: Final = "PreemptLowerPriority"


def protect_group(resource: Resource, obj: Obj) -> None:
    """Put the finalizer on a new group that keeps it while pods name it."""
    meta = obj["metadata"]
    if resource.storage == POD_GROUPS and PROTECTION not in (meta.get("finalizers") or ()):
        meta["finalizers"] = [*(meta.get("finalizers") or ()), PROTECTION]


def resolve_group_priority(
    core: ServerState, resource: Resource, obj: Obj, chosen: Obj | None
) -> None:
    """Give a new group the priority of its class, or of the default one.

    Args:
        core: whose gates count.
        resource: the kind of group.
        obj: the group.
        chosen: its priority class; None where there is none and no default.
    """
    features = core.gangs
    if resource.storage == POD_GROUPS and not features.enabled(PREEMPTION):
        return
    spec = obj["spec"] = dict(obj.get("spec") or {})
    called = _CALLED[resource.storage]
    value = chosen.get("value", 0) if chosen else 0
    if spec.get("priority") not in {None, value}:
        raise _refused(
            resource,
            obj,
            f"priority set in the {called} ({spec['priority']}) must match the priority computed "
            f"({value}) based on the priority class set in the spec",
        )
    spec["priority"] = value
    if chosen and not spec.get("priorityClassName"):
        spec["priorityClassName"] = chosen["metadata"]["name"]
    if not features.enabled(PREEMPTION_POLICY):
        return
    policy = (chosen.get("preemptionPolicy") if chosen else None) or _PREEMPT
    given = spec.get("preemptionPolicy") or _PREEMPT  # its default is filled in before admission
    if given != policy:
        raise _refused(
            resource,
            obj,
            f"the string value of PreemptionPolicy ({given}) must not be provided in {called} "
            f"spec; priority admission controller computed {policy} from the given PriorityClass "
            "name",
        )
    spec["preemptionPolicy"] = policy


def _refused(resource: Resource, obj: Obj, why: str) -> status.StatusError:
    meta = obj["metadata"]
    name = meta.get("name") or meta.get("generateName", "")
    return status.forbidden(resource.plural, resource.group, name, why=why)


def check_workload_exists(core: ServerState, resource: Resource, obj: Obj) -> None:
    """Refuse a group of 1.36 whose Workload or template is missing or being deleted; raises 403."""
    if resource.storage != POD_GROUPS or core.gangs.release != "1.36":
        return
    link = (obj["spec"].get("podGroupTemplateRef") or {}).get("workload")
    if link is None:
        return
    name, template = link["workloadName"], link["podGroupTemplateName"]
    found = core.store.collection(WORKLOADS).get(f"{obj['metadata']['namespace']}/{name}")
    why = ""
    if found is None:
        why = f'Workload "{name}" not found'
    elif found.obj["metadata"].get("deletionTimestamp"):
        why = f'Workload "{name}" is being deleted'
    elif all(t["name"] != template for t in found.obj["spec"].get("podGroupTemplates") or ()):
        why = f'PodGroupTemplate "{template}" not found in Workload "{name}"'
    if why:
        raise _refused(resource, obj, f"PodGroup rejected: {why}")


def check_job_parallelism(core: ServerState, resource: Resource, new: Obj, old: Obj) -> None:
    """Refuse another parallelism of a Job of 1.36 whose pods are a gang; raises 403."""
    features = core.gangs
    if resource.storage != _JOBS or features.release != "1.36":
        return
    if not features.served and not features.enabled(WITH_JOB):
        return
    if new["spec"].get("parallelism") == old["spec"].get("parallelism"):
        return
    for group in _groups_of(core, old):
        if (group["spec"].get("schedulingPolicy") or {}).get("gang") is not None:
            name = group["metadata"]["name"]
            why = (
                f'cannot change parallelism for a Job referencing gang-scheduled PodGroup "{name}"'
            )
            raise _refused(resource, old, why)


def _groups_of(core: ServerState, job: Obj) -> Iterator[Obj]:
    """The group that a Job's template names, else those that the Job controls."""
    meta = job["metadata"]
    groups = core.store.collection(POD_GROUPS)
    named = job["spec"]["template"]["spec"].get("schedulingGroup")
    if named and named.get("podGroupName") is not None:
        found = groups.get(f"{meta['namespace']}/{named['podGroupName']}")
        if found is not None:
            yield found.obj
        return
    for key, stored in groups.scan():
        owners = stored.obj["metadata"].get("ownerReferences") or ()
        controlled = any(o.get("controller") and o.get("uid") == meta["uid"] for o in owners)
        if controlled and key.startswith(f"{meta['namespace']}/"):
            yield stored.obj
