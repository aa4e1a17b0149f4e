"""What the server's own admission plug-ins do: namespaces, priority, tolerations, node taint."""

from __future__ import annotations

from typing import Any, Final

from gpusched.devcluster.apimachinery import status
from gpusched.devcluster.apiserver.admission import gangs, limit_ranger
from gpusched.devcluster.apiserver.admission.resource_quota import charge_quotas
from gpusched.devcluster.apiserver.server_state import ServerState
from gpusched.devcluster.registry.kinds import Resource
from gpusched.devcluster.registry.pods.defaults import add_default_tolerations

Obj = dict[str, Any]

_CLASSES: Final = "priorityclasses.scheduling.k8s.io"
_NOT_READY: Final = "node.kubernetes.io/not-ready"


def admit_create(core: ServerState, resource: Resource, obj: Obj) -> None:
    """Refuse or complete a new object in place; raises StatusError 403 or 404."""
    meta = obj["metadata"]
    if resource.namespaced:
        check_namespace(core, resource, meta["namespace"], name=meta.get("name", ""))
    if resource.storage == "pods":
        limit_ranger.apply_pod_defaults(obj, limit_ranger.limits_of_object(core, resource, obj))
        _resolve_priority(core, resource, obj)
        add_default_tolerations(obj["spec"])
        _check_runtime_class(core, resource, obj)
    elif resource.storage == "nodes":
        _taint_new_node(obj)
    elif resource.storage in {gangs.POD_GROUPS, gangs.COMPOSITES}:
        gangs.protect_group(resource, obj)
        gangs.resolve_group_priority(core, resource, obj, _class_of(core, resource, obj))
    elif resource.storage == _CLASSES:
        _check_default_class(core, resource, obj)


def admit_update(core: ServerState, resource: Resource, obj: Obj) -> None:
    """Refuse a change that the rest of the cluster cannot bear; raises StatusError 403."""
    if resource.storage == _CLASSES:
        _check_default_class(core, resource, obj)


def admit_changed(core: ServerState, resource: Resource, new: Obj, old: Obj) -> None:
    """Refuse a valid change that another object forbids; raises StatusError 403."""
    gangs.check_job_parallelism(core, resource, new, old)


def admit_bounded(core: ServerState, resource: Resource, obj: Obj) -> None:
    """Refuse a valid object that is outside limits, or names what it must not."""
    gangs.check_workload_exists(core, resource, obj)
    limit_ranger.check_limits(resource, obj, limit_ranger.limits_of_object(core, resource, obj))


def admit_finished(core: ServerState, resource: Resource, obj: Obj, *, dry_run: bool) -> None:
    """Refuse a valid object that would exceed a quota, and count it."""
    charge_quotas(core, resource, obj, dry_run=dry_run)


def check_namespace(core: ServerState, resource: Resource, namespace: str, *, name: str) -> None:
    """Refuse creates in a namespace that is missing or terminating."""
    found = core.store.collection("namespaces").get(namespace)
    if found is None:
        raise status.not_found("namespaces", "", namespace)
    if found.obj["metadata"].get("deletionTimestamp"):
        raise status.forbidden(
            resource.plural,
            resource.group,
            name,
            why=f"unable to create new content in namespace {namespace} "
            "because it is being terminated",
            causes=[
                {
                    "reason": "NamespaceTerminating",
                    "message": f"namespace {namespace} is being terminated",
                    "field": "metadata.namespace",
                }
            ],
        )


def _class_of(core: ServerState, resource: Resource, obj: Obj) -> Obj | None:
    """Return the priority class that an object names, else the default one; raises 403."""
    name = (obj.get("spec") or {}).get("priorityClassName") or ""
    found = core.store.collection(_CLASSES).get(name) if name else _global_default(core)
    if name and found is None:
        meta = obj["metadata"]
        about = meta.get("name") or meta.get("generateName", "")
        why = f"no PriorityClass with name {name} was found"
        raise status.forbidden(resource.plural, resource.group, about, why=why)
    return None if found is None else found.obj


def _resolve_priority(core: ServerState, resource: Resource, obj: Obj) -> None:
    spec = obj.setdefault("spec", {})
    chosen = _class_of(core, resource, obj)
    pod = obj["metadata"].get("name") or obj["metadata"].get("generateName", "")
    value = chosen.get("value", 0) if chosen else 0
    policy = chosen.get("preemptionPolicy") if chosen else None
    policy = policy or "PreemptLowerPriority"
    if spec.get("priority") not in {None, value}:
        why = (
            f"the integer value of priority ({spec['priority']}) must not be provided in pod spec; "
            f"priority admission controller computed {value} from the given PriorityClass name"
        )
        raise status.forbidden(resource.plural, "", pod, why=why)
    if spec.get("preemptionPolicy") not in {None, policy}:
        why = (
            f"the string value of PreemptionPolicy ({spec['preemptionPolicy']}) must not be "
            f"provided in pod spec; priority admission controller computed {policy} from the given "
            "PriorityClass name"
        )
        raise status.forbidden(resource.plural, "", pod, why=why)
    if chosen and not spec.get("priorityClassName"):
        spec["priorityClassName"] = chosen["metadata"]["name"]
    spec["priority"] = value
    spec["preemptionPolicy"] = policy


def _check_runtime_class(core: ServerState, resource: Resource, obj: Obj) -> None:
    """Take a pod's overhead from its runtime class, which must exist; raises 403."""
    spec, meta = obj["spec"], obj["metadata"]
    name = spec.get("runtimeClassName")
    found = core.store.collection("runtimeclasses.node.k8s.io").get(name) if name else None
    why = ""
    if name and found is None:
        why = f'pod rejected: RuntimeClass "{name}" not found'
    fixed = ((found.obj.get("overhead") or {}).get("podFixed") if found else None) or {}
    if spec.get("overhead") and not fixed:
        why = why or (
            "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
        )
    elif fixed and spec.get("overhead") not in (None, fixed):
        why = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
    if why:
        pod = meta.get("name") or meta.get("generateName", "")
        raise status.forbidden(resource.plural, "", pod, why=why)
    if fixed:
        spec["overhead"] = dict(fixed)


def _check_default_class(core: ServerState, resource: Resource, obj: Obj) -> None:
    """Refuse a second priority class that is the global default; raises 403."""
    name = obj["metadata"].get("name", "")
    if not obj.get("globalDefault"):
        return
    for key, stored in core.store.collection(_CLASSES).scan():
        if stored.obj.get("globalDefault") and key != name:
            why = f"PriorityClass {key} is already marked as default. Only one default can exist"
            raise status.forbidden(resource.plural, resource.group, name, why=why)


def _global_default(core: ServerState) -> Any:
    classes = core.store.collection(_CLASSES)
    marked = [stored for _, stored in classes.scan() if stored.obj.get("globalDefault")]
    return min(marked, key=lambda stored: stored.obj.get("value", 0), default=None)


def _taint_new_node(obj: Obj) -> None:
    spec = obj.setdefault("spec", {})
    taints = spec.setdefault("taints", [])
    if not any(t.get("key") == _NOT_READY and t.get("effect") == "NoSchedule" for t in taints):
        taints.append({"key": _NOT_READY, "effect": "NoSchedule"})
