"""The Workload and the PodGroup that a Job's pods become a gang by.

Both are made once, before the Job's first pod. Their names follow from the Job's uid, so that a
second turn finds them again. In Kubernetes 1.36 only a Job whose pods all run at once gets them, in
1.37 every Job that nothing else controls, with the policy that its ``spec.scheduling`` says.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from gpusched.devcluster.apiserver.admission.gangs import POD_GROUPS, WORKLOADS
from gpusched.devcluster.apiserver.client.local_client import LocalClient
from gpusched.devcluster.controllers import pod_state
from gpusched.devcluster.registry.gangs.features import WITH_JOB, GangFeatures

Obj = dict[str, Any]

TEMPLATE_NAME: Final = "scheduling.k8s.io/group-template-name"
"""Annotation of a Job whose controller has the Workload and leaves the group to the Job."""
_NAME_MAX: Final = 253
_SAFE: Final = "bcdfghjklmnpqrstvwxz2456789"
_FNV_BASIS: Final = 2166136261
_FNV_PRIME: Final = 16777619
_STARTED: Final = ("startTime", "succeeded", "failed")
_COPIED: Final = (
    "schedulingPolicy",
    "schedulingConstraints",
    "disruptionMode",
    "priorityClassName",
    "priority",
    "resourceClaims",
)


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
        self._older = features.release == "1.36"

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
        if not self.active or job["spec"]["template"]["spec"].get("schedulingGroup") is not None:
            return None
        new = _is_new(job, pods)
        if self._older:
            return self._own_group(job, new=new) if _is_gang(job) else None
        if pod_state.controller_of(job) is None:
            return self._own_group(job, new=new)
        if (template := _annotations(job).get(TEMPLATE_NAME)) is not None:
            return self._delegated_group(job, template, new=new)
        return None

    # -- groups of Jobs that stand for themselves ------------------------------------------------

    def _own_group(self, job: Obj, *, new: bool) -> Obj | None:
        workload = self._workload(job, new=new)
        if workload is None:
            return None
        template = workload["spec"]["podGroupTemplates"][0]
        group = self._find_group(job, workload, template["name"])
        if group is None and (new or self._older) and not self._claimed(job, workload):
            group = self._make_group(job, workload, template, owners=[_plain_owner(workload)])
        if self._older or group is None:
            return group
        wanted = _scheduling_template(job)["schedulingPolicy"].get("gang")
        if wanted is not None:
            self._resize_workload(workload, wanted["minCount"])
            group = self._resize_group(group, wanted["minCount"])
        return group

    def _workload(self, job: Obj, *, new: bool) -> Obj | None:
        """The one Workload that is the Job's, made for a new Job; None where others are, too."""
        namespace = job["metadata"]["namespace"]
        known = self._client.get(WORKLOADS, namespace, workload_name(job))
        if known is not None and _controls(job, known) and not new:
            named = [known]
        else:
            named = self._workloads_naming("batch", job)
            if not self._older:
                named = [workload for workload in named if _controls(job, workload)]
        if not named:
            return self._make_workload(job) if new else None
        if len(named) > 1 or not _controls(job, named[0]):
            return None
        return named[0] if len(named[0]["spec"]["podGroupTemplates"] or ()) == 1 else None

    def _workloads_naming(self, group: str, controller: Obj) -> list[Obj]:
        """Workloads whose controllerRef names an object."""
        meta = controller["metadata"]
        wanted = {"apiGroup": group, "kind": controller["kind"], "name": meta["name"]}
        return [
            workload
            for workload in self._client.list(WORKLOADS, meta["namespace"])
            if workload["spec"].get("controllerRef") == wanted
        ]

    def _make_workload(self, job: Obj) -> Obj:
        meta = job["metadata"]
        template = _gang_template(job) if self._older else _scheduling_template(job)
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
                "podGroupTemplates": [{"name": f"{meta['name']}-pgt-0", **template}],
            },
        }
        made = self._client.create(WORKLOADS, workload)
        self._told(job, "Workload", made)
        return made

    def _told(self, job: Obj, kind: str, made: Obj) -> None:
        text = f"Created {kind} {made['metadata']['name']} for Job {job['metadata']['name']}"
        self._client.event(job, f"{kind}Created", text, component="job-controller")

    def _claimed(self, job: Obj, workload: Obj) -> bool:
        """Whether 1.36 finds a group of the Workload that is not the Job's, and gives up."""
        if not self._older:
            return False
        name, namespace = workload["metadata"]["name"], job["metadata"]["namespace"]
        return any(_linked_workload(g) == name for g in self._client.list(POD_GROUPS, namespace))

    def _find_group(self, job: Obj, workload: Obj, template: str) -> Obj | None:
        """The group of a Job by its name, which follows from Workload and template."""
        meta = workload["metadata"]
        name = pod_group_name(meta["name"], template)
        group = self._client.get(POD_GROUPS, meta["namespace"], name)
        return group if group is not None and _controls(job, group) else None

    def _make_group(self, job: Obj, workload: Obj, template: Obj, *, owners: list[Obj]) -> Obj:
        meta = workload["metadata"]
        spec: Obj
        if self._older:
            link = {"workloadName": meta["name"], "podGroupTemplateName": template["name"]}
            spec = {
                "podGroupTemplateRef": {"workload": link},
                "schedulingPolicy": template["schedulingPolicy"],
            }
        else:
            link = {"workloadName": meta["name"], "templateName": template["name"]}
            spec = {"workloadRef": link}
            spec |= {key: template[key] for key in _COPIED if template.get(key) is not None}
        group = {
            "apiVersion": self._features.group_version,
            "kind": "PodGroup",
            "metadata": {
                "name": pod_group_name(meta["name"], template["name"]),
                "namespace": meta["namespace"],
                "ownerReferences": [_owner(job), *owners],
            },
            "spec": spec,
        }
        made = self._client.create(POD_GROUPS, group)
        if not self._older:
            self._told(job, "PodGroup", made)
        return made

    def _resize_workload(self, workload: Obj, count: int) -> None:
        """Let a Workload's one template follow the size that its Job says now."""
        template = workload["spec"]["podGroupTemplates"][0]
        if _min_count(template) in {None, count}:
            return
        changed = {**template, "schedulingPolicy": {"gang": {"minCount": count}}}
        spec = {**workload["spec"], "podGroupTemplates": [changed]}
        self._client.update(WORKLOADS, {**workload, "spec": spec})

    def _resize_group(self, group: Obj, count: int) -> Obj:
        if _min_count(group["spec"]) in {None, count}:
            return group
        spec = {**group["spec"], "schedulingPolicy": {"gang": {"minCount": count}}}
        return self._client.update(POD_GROUPS, {**group, "spec": spec})

    # -- groups of Jobs that another controller made ----------------------------------------------

    def _delegated_group(self, job: Obj, template_name: str, *, new: bool) -> Obj | None:
        """The group that a Job makes out of a template of its controller's Workload."""
        owner = pod_state.controller_of(job)
        assert owner is not None
        group, _, _ = owner.get("apiVersion", "").rpartition("/")
        parent = {"kind": owner.get("kind"), "metadata": {
            "name": owner.get("name"), "namespace": job["metadata"]["namespace"]}}  # fmt: skip
        for workload in self._workloads_naming(group, parent)[:1]:
            for template in workload["spec"]["podGroupTemplates"] or ():
                if template["name"] == template_name:
                    return self._made_from(job, workload, template, new=new)
        return None

    def _made_from(self, job: Obj, workload: Obj, template: Obj, *, new: bool) -> Obj | None:
        group = self._find_group(job, workload, template["name"])
        if group is None and new:
            group = self._make_group(job, workload, template, owners=[])
        count = _min_count(template)
        return group if group is None or count is None else self._resize_group(group, count)


def _gang_template(job: Obj) -> Obj:
    """What a group of a Job asks for in 1.36: all its pods at once."""
    return {"schedulingPolicy": {"gang": {"minCount": job["spec"]["parallelism"]}}}


def _scheduling_template(job: Obj) -> Obj:
    """What a group of a Job asks for in 1.37, as its ``spec.scheduling`` says."""
    said = job["spec"].get("scheduling") or {}
    policy = said.get("schedulingPolicy") or {"basic": {}}
    if policy.get("basic") is None and (gang := policy.get("gang")) is not None:
        parallelism = job["spec"].get("parallelism")
        least = max(1, 1 if parallelism is None else parallelism)
        policy = {"gang": {"minCount": gang.get("minCount") or least}}
    template: Obj = {"schedulingPolicy": policy}
    if (said.get("schedulingConstraints") or {}).get("topology"):
        template["schedulingConstraints"] = said["schedulingConstraints"]
    for key in ("disruptionMode", "resourceClaims"):
        if said.get(key):
            template[key] = said[key]
    if name := job["spec"]["template"]["spec"].get("priorityClassName"):
        template["priorityClassName"] = name
    return template


def _min_count(holder: Obj) -> int | None:
    """The size of a gang that a group or a template asks for, None for a basic one."""
    gang = (holder.get("schedulingPolicy") or {}).get("gang")
    return None if gang is None else gang.get("minCount")


def _linked_workload(group: Obj) -> str:
    """The name of the Workload that a group of 1.36 refers to, empty for none."""
    link = (group["spec"].get("podGroupTemplateRef") or {}).get("workload") or {}
    return str(link.get("workloadName") or "")


def with_group(pod: Obj, group: Obj) -> Obj:
    """Return a Job's new pod as a member of a group.

    The group does not own it: kube-controller-manager writes such an owner into the template that
    it makes pods of, from where no owners are taken.
    """
    spec = {**pod["spec"], "schedulingGroup": {"podGroupName": group["metadata"]["name"]}}
    return {**pod, "spec": spec}


def _annotations(obj: Obj) -> Obj:
    return obj["metadata"].get("annotations") or {}


def _plain_owner(owner: Obj) -> Obj:
    """A reference to an owner that does not control."""
    meta = owner["metadata"]
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": meta["name"],
        "uid": meta["uid"],
    }


def _owner(job: Obj) -> Obj:
    return {**_plain_owner(job), "controller": True, "blockOwnerDeletion": True}


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
    )


def _is_new(job: Obj, pods: Sequence[Obj]) -> bool:
    """Whether a Job has never started."""
    status = job.get("status") or {}
    suspended = any(c.get("type") == "Suspended" for c in status.get("conditions") or ())
    return not pods and not suspended and not any(status.get(key) for key in _STARTED)
