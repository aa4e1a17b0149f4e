"""The Workload and the PodGroup that a Job's pods become a gang by.

Both are made once, before the Job's first pod. Their names follow from the Job's uid, so that a
second turn finds them again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from gpusched.devcluster.apiserver.admission.gangs import POD_GROUPS, WORKLOADS
from gpusched.devcluster.apiserver.client.local_client import LocalClient
from gpusched.devcluster.controllers import pod_state
from gpusched.devcluster.registry.gangs.features import WITH_JOB, GangFeatures

Obj = dict[str, Any]

_NAME_MAX: Final = 253
_SAFE: Final = "bcdfghjklmnpqrstvwxz2456789"
_FNV_BASIS: Final = 2166136261
_FNV_PRIME: Final = 16777619
_STARTED: Final = ("startTime", "succeeded", "failed")


def name_hash(*texts: str) -> str:
    """Return the FNV-1a sum of texts, spelled with letters that form no words."""
    total = _FNV_BASIS
    for byte in "".join(texts).encode():
        total = ((total ^ byte) * _FNV_PRIME) % 2**32
    return "".join(_SAFE[ord(digit) % len(_SAFE)] for digit in str(total))


def workload_name(job: Obj) -> str:
    """Return the name of a Job's Workload."""
    suffix = name_hash(f"(types.UID){job['metadata']['uid']}")
    return f"{job['metadata']['name'][: _NAME_MAX - len(suffix) - 1]}-{suffix}"


def pod_group_name(workload: str, template: str) -> str:
    """Return the name of the group made from a template of a Workload."""
    suffix = name_hash(workload, template)
    room = _NAME_MAX - len(suffix) - 2
    if len(workload) + len(template) > room:
        half = room // 2
        if len(workload) <= half:
            template = template[: room - len(workload)]
        elif len(template) <= half:
            workload = workload[: room - len(template)]
        else:
            workload, template = workload[: room - half], template[:half]
    return f"{workload}-{template}-{suffix}"


class JobGangs:
    """Finds or makes the group of a Job, as the release does whose gangs are served.

    Args:
        client: the cluster.
        features: whether Jobs get groups, and in which form.
    """

    def __init__(self, client: LocalClient, features: GangFeatures) -> None:
        self._client = client
        self._features = features

    @property
    def active(self) -> bool:
        """Whether Jobs get groups at all."""
        return self._features.served and self._features.enabled(WITH_JOB)

    def group_of(self, job: Obj, pods: Sequence[Obj]) -> Obj | None:
        """Return the group that a Job's new pods belong to, None for a Job without one.

        Args:
            job: the Job as stored.
            pods: its pods so far.

        Raises:
            StatusError: the Workload or the group is refused.
        """
        if not self.active or not _is_gang(job):
            return None
        workload = self._workload(job, new=_is_new(job, pods))
        return None if workload is None else self._group(job, workload)

    def _workload(self, job: Obj, *, new: bool) -> Obj | None:
        """The one Workload that names the Job, if the Job controls it; made for a new Job."""
        named = list(self._workloads_naming(job))
        if not named:
            return self._make_workload(job) if new else None
        if len(named) > 1 or not _controls(job, named[0]):
            return None
        return named[0] if len(named[0]["spec"]["podGroupTemplates"] or ()) == 1 else None

    def _workloads_naming(self, job: Obj) -> Iterator[Obj]:
        meta = job["metadata"]
        wanted = {"apiGroup": "batch", "kind": "Job", "name": meta["name"]}
        for workload in self._client.list(WORKLOADS, meta["namespace"]):
            if workload["spec"].get("controllerRef") == wanted:
                yield workload

    def _make_workload(self, job: Obj) -> Obj:
        meta = job["metadata"]
        gang = {"gang": {"minCount": job["spec"]["parallelism"]}}
        workload = {
            "apiVersion": self._features.group_version,
            "kind": "Workload",
            "metadata": {
                "name": workload_name(job),
                "namespace": meta["namespace"],
                "ownerReferences": [_owner(job)],
            },
            "spec": {
                "controllerRef": {"apiGroup": "batch", "kind": "Job", "name": meta["name"]},
                "podGroupTemplates": [{"name": f"{meta['name']}-pgt-0", "schedulingPolicy": gang}],
            },
        }
        made = self._client.create(WORKLOADS, workload)
        text = f"Created Workload {made['metadata']['name']} for Job {meta['name']}"
        self._client.event(job, "WorkloadCreated", text, component="job-controller")
        return made

    def _group(self, job: Obj, workload: Obj) -> Obj | None:
        name = workload["metadata"]["name"]
        made = [
            group
            for group in self._client.list(POD_GROUPS, job["metadata"]["namespace"])
            if linked_workload(group) == name
        ]
        if not made:
            return self._make_group(job, workload)
        return made[0] if len(made) == 1 and _controls(job, made[0]) else None

    def _make_group(self, job: Obj, workload: Obj) -> Obj:
        template = workload["spec"]["podGroupTemplates"][0]
        meta = workload["metadata"]
        link = {"workloadName": meta["name"], "podGroupTemplateName": template["name"]}
        group = {
            "apiVersion": self._features.group_version,
            "kind": "PodGroup",
            "metadata": {
                "name": pod_group_name(meta["name"], template["name"]),
                "namespace": meta["namespace"],
                "ownerReferences": [_owner(job), plain_owner(workload)],
            },
            "spec": {
                "podGroupTemplateRef": {"workload": link},
                "schedulingPolicy": template["schedulingPolicy"],
            },
        }
        return self._client.create(POD_GROUPS, group)


def linked_workload(group: Obj) -> str:
    """Return the name of the Workload that a group refers to, empty for none."""
    spec = group["spec"]
    older = (spec.get("podGroupTemplateRef") or {}).get("workload") or {}
    return (spec.get("workloadRef") or older).get("workloadName") or ""


def with_group(pod: Obj, group: Obj) -> Obj:
    """Return a Job's new pod as a member of a group.

    The group does not own it: kube-controller-manager writes such an owner into the template that
    it makes pods of, from where no owners are taken.
    """
    spec = {**pod["spec"], "schedulingGroup": {"podGroupName": group["metadata"]["name"]}}
    return {**pod, "spec": spec}


def plain_owner(owner: Obj) -> Obj:
    """Return a reference to an owner that does not control."""
    meta = owner["metadata"]
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": meta["name"],
        "uid": meta["uid"],
    }


def _owner(job: Obj) -> Obj:
    return {**plain_owner(job), "controller": True, "blockOwnerDeletion": True}


def _controls(job: Obj, obj: Obj) -> bool:
    owner = pod_state.controller_of(obj)
    return owner is not None and owner.get("uid") == job["metadata"]["uid"]


def _is_gang(job: Obj) -> bool:
    """Whether all of a Job's pods work at the same time, by a Job's own words."""
    spec = job["spec"]
    parallelism = spec.get("parallelism") or 0
    return (
        spec.get("completionMode") == "Indexed"
        and parallelism > 1
        and spec.get("completions") == parallelism
        and spec["template"]["spec"].get("schedulingGroup") is None
    )


def _is_new(job: Obj, pods: Sequence[Obj]) -> bool:
    """Whether a Job has never started."""
    status = job.get("status") or {}
    suspended = any(c.get("type") == "Suspended" for c in status.get("conditions") or ())
    return not pods and not suspended and not any(status.get(key) for key in _STARTED)
