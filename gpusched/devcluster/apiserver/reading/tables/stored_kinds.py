"""Columns of kinds that are stored for others: services, volumes, devices, revisions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gpusched.cel.schema_nodes import Doc, Json
from gpusched.devcluster.apiserver.reading.tables.columns import (
    AGE,
    NAME,
    Cell,
    Column,
    Columns,
    count_cell,
    field_cell,
    nested_value,
    selector_text,
    wide_only,
)

_NONE = "<none>"
_UNSET = "<unset>"
_MODES = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}
_DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
_SHOWN_MAX = 3
"""Most addresses that a cell lists one by one."""


def _labels(labels: Any) -> str:
    return ",".join(f"{k}={v}" for k, v in sorted((labels or {}).items())) or _NONE


def _joined(values: Iterable[Any] | None) -> str:
    return ",".join(str(v) for v in values or ())


def _yes(*path: str) -> Cell:
    """A cell that prints a boolean as a word; ``<unset>`` when it is absent."""

    def cell(obj: Doc, _now: float) -> Json:
        value = nested_value(obj, *path)
        return _UNSET if value is None else str(bool(value)).lower()

    return cell


# -- admission policies --------------------------------------------------------------------------


def _param_kind(obj: Doc, _now: float) -> str:
    kind = nested_value(obj, "spec", "paramKind")
    return f"{kind['apiVersion']}/{kind['kind']}" if kind else _UNSET


def _param_ref(obj: Doc, _now: float) -> str:
    reference = nested_value(obj, "spec", "paramRef") or {}
    if name := reference.get("name"):
        return f"{reference['namespace']}/{name}" if reference.get("namespace") else f"*/{name}"
    selector = reference.get("selector")
    return _UNSET if selector is None else _labels(selector.get("matchLabels"))


# -- services ----------------------------------------------------------------------------------


def _cluster_ip(obj: Doc, _now: float) -> str:
    if nested_value(obj, "spec", "type") == "ExternalName":
        return _NONE
    return nested_value(obj, "spec", "clusterIP") or _NONE


def _external_ip(obj: Doc, _now: float) -> str:
    spec = obj.get("spec") or {}
    own = _joined(spec.get("externalIPs"))
    if spec.get("type") == "ExternalName":
        return spec.get("externalName") or _NONE
    if spec.get("type") != "LoadBalancer":
        return own or _NONE
    points = nested_value(obj, "status", "loadBalancer", "ingress") or ()
    given = _joined(p.get("ip") or p.get("hostname") for p in points)
    return _joined(part for part in (given, own) if part) or "<pending>"


def _ports(obj: Doc, _now: float) -> str:
    shown = []
    for port in nested_value(obj, "spec", "ports") or ():
        node = f":{port['nodePort']}" if port.get("nodePort") else ""
        shown.append(f"{port.get('port')}{node}/{port.get('protocol', 'TCP')}")
    return ",".join(shown) or _NONE


def _endpoints(obj: Doc, _now: float) -> str:
    found: list[str] = []
    for subset in obj.get("subsets") or ():
        ports = subset.get("ports") or ()
        for address in subset.get("addresses") or ():
            found += [f"{address['ip']}:{port['port']}" for port in ports] or [address["ip"]]
    if not found:
        return _NONE
    more = len(found) - _SHOWN_MAX
    rest = f" + {more} more..." if more > 0 else ""
    return ",".join(found[:_SHOWN_MAX]) + rest


# -- volumes -----------------------------------------------------------------------------------


def _modes(*path: str) -> Cell:
    def cell(obj: Doc, _now: float) -> str:
        given = dict.fromkeys(nested_value(obj, *path) or ())
        return ",".join(short for mode, short in _MODES.items() if mode in given)

    return cell


def _bound(cell: Cell) -> Cell:
    """The cell of a claim that has its volume, else nothing."""
    return lambda obj, now: cell(obj, now) if nested_value(obj, "spec", "volumeName") else ""


def _claim(obj: Doc, _now: float) -> str:
    claim = nested_value(obj, "spec", "claimRef")
    return f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else ""


def _phase(obj: Doc, _now: float) -> str:
    if nested_value(obj, "metadata", "deletionTimestamp"):
        return "Terminating"
    return nested_value(obj, "status", "phase") or ""


def _class_name(obj: Doc, _now: float) -> str:
    name = nested_value(obj, "metadata", "name") or ""
    marked = (nested_value(obj, "metadata", "annotations") or {}).get(_DEFAULT_CLASS) == "true"
    return f"{name} (default)" if marked else name


_VOLUME_CLASS = (
    Column(
        "StorageClass", field_cell("spec", "storageClassName"), description="StorageClass of it."
    ),
    Column(
        "VolumeAttributesClass",
        field_cell("spec", "volumeAttributesClassName", default=_UNSET),
        description="VolumeAttributesClass of it.",
    ),
)
_VOLUME_MODE = wide_only(
    Column(
        "VolumeMode", field_cell("spec", "volumeMode"), description="File system or block device."
    )
)

# -- others ------------------------------------------------------------------------------------


def _claim_state(obj: Doc, _now: float) -> str:
    deleted = bool(nested_value(obj, "metadata", "deletionTimestamp"))
    states = ["deleted"] if deleted else []
    if nested_value(obj, "status", "allocation") is not None:
        states.append("allocated")
        if nested_value(obj, "status", "reservedFor"):
            states.append("reserved")
    elif not deleted:
        states.append("pending")
    return ",".join(states)


def _controller(obj: Doc, _now: float) -> str:
    for owner in nested_value(obj, "metadata", "ownerReferences") or ():
        if owner.get("controller"):
            group = owner.get("apiVersion", "").rpartition("/")[0]
            kind = owner.get("kind", "").lower()
            return f"{kind}.{group}/{owner['name']}" if group else f"{kind}/{owner['name']}"
    return _NONE


def _template_containers(key: str) -> Cell:
    def cell(obj: Doc, _now: float) -> str:
        return _joined(
            c.get(key, "") for c in nested_value(obj, "template", "spec", "containers") or ()
        )

    return cell


def _subjects(kind: str) -> Cell:
    def cell(obj: Doc, _now: float) -> str:
        found = [s for s in obj.get("subjects") or () if s.get("kind") == kind]
        namespaced = kind == "ServiceAccount"
        return ", ".join(
            f"{s['namespace']}/{s['name']}" if namespaced else s["name"] for s in found
        )

    return cell


_BINDING: Columns = (
    NAME,
    Column(
        "Role",
        lambda o, _: f"{nested_value(o, 'roleRef', 'kind')}/{nested_value(o, 'roleRef', 'name')}",
        description="The role that is bound.",
    ),
    AGE,
    wide_only(Column("Users", _subjects("User"), description="Users that have it.")),
    wide_only(Column("Groups", _subjects("Group"), description="Groups that have it.")),
    wide_only(
        Column("ServiceAccounts", _subjects("ServiceAccount"), description="Accounts that have it.")
    ),
)


def _available(obj: Doc, _now: float) -> str:
    for condition in nested_value(obj, "status", "conditions") or ():
        if condition.get("type") == "Available":
            return str(condition.get("status"))
    return "Unknown"


STORED: dict[tuple[str, str], Columns] = {
    ("", "Service"): (
        NAME,
        Column("Type", field_cell("spec", "type"), description="How the service is reached."),
        Column("Cluster-IP", _cluster_ip, description="Its address in the cluster."),
        Column("External-IP", _external_ip, description="Its addresses outside."),
        Column("Port(s)", _ports, description="Its ports, those of nodes behind a colon."),
        AGE,
        wide_only(
            Column(
                "Selector",
                lambda o, _: _labels(nested_value(o, "spec", "selector")),
                description="Its pods.",
            )
        ),
    ),
    ("", "Endpoints"): (
        NAME,
        Column("Endpoints", _endpoints, description="Addresses behind the service."),
        AGE,
    ),
    ("", "PersistentVolume"): (
        NAME,
        Column("Capacity", field_cell("spec", "capacity", "storage"), description="Its size."),
        Column("Access Modes", _modes("spec", "accessModes"), description="How it can be mounted."),
        Column(
            "Reclaim Policy",
            field_cell("spec", "persistentVolumeReclaimPolicy"),
            description="What becomes of it when released.",
        ),
        Column("Status", _phase, description="Whether it is bound."),
        Column("Claim", _claim, description="The claim it is bound to."),
        *_VOLUME_CLASS,
        Column("Reason", field_cell("status", "reason"), description="Why it failed."),
        AGE,
        _VOLUME_MODE,
    ),
    ("", "PersistentVolumeClaim"): (
        NAME,
        Column("Status", _phase, description="Whether it is bound."),
        Column(
            "Volume", field_cell("spec", "volumeName"), description="The volume it is bound to."
        ),
        Column(
            "Capacity", _bound(field_cell("status", "capacity", "storage")), description="Its size."
        ),
        Column(
            "Access Modes",
            _bound(_modes("status", "accessModes")),
            description="How it can be mounted.",
        ),
        *_VOLUME_CLASS,
        AGE,
        _VOLUME_MODE,
    ),
    ("", "PodTemplate"): (
        NAME,
        Column("Containers", _template_containers("name"), description="Containers of it."),
        Column("Images", _template_containers("image"), description="Images of it."),
        Column(
            "Pod Labels",
            lambda o, _: _labels(nested_value(o, "template", "metadata", "labels")),
            description="Labels of its pods.",
        ),
    ),
    ("apiregistration.k8s.io", "APIService"): (
        NAME,
        Column("Service", lambda _o, _now: "Local", description="Who serves it."),
        Column("Available", _available, description="Whether it is served."),
        AGE,
    ),
    ("apps", "ControllerRevision"): (
        NAME,
        Column("Controller", _controller, description="The object it is a revision of."),
        Column(
            "Revision", field_cell("revision", default=0), type="integer", description="Its number."
        ),
        AGE,
    ),
    ("networking.k8s.io", "NetworkPolicy"): (
        NAME,
        Column(
            "Pod-Selector",
            lambda o, _: selector_text(nested_value(o, "spec", "podSelector")),
            description="Pods it rules.",
        ),
        AGE,
    ),
    ("rbac.authorization.k8s.io", "RoleBinding"): _BINDING,
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"): _BINDING,
    ("storage.k8s.io", "StorageClass"): (
        Column("Name", _class_name, format="name", description="Name of the object."),
        Column("Provisioner", field_cell("provisioner"), description="Who makes volumes."),
        Column("ReclaimPolicy", field_cell("reclaimPolicy"), description="What becomes of them."),
        Column(
            "VolumeBindingMode", field_cell("volumeBindingMode"), description="When they are bound."
        ),
        Column(
            "AllowVolumeExpansion",
            field_cell("allowVolumeExpansion", default=False),
            description="Whether they can grow.",
        ),
        AGE,
    ),
    ("storage.k8s.io", "VolumeAttributesClass"): (
        NAME,
        Column("DriverName", field_cell("driverName"), description="Whose class it is."),
        AGE,
    ),
    ("storage.k8s.io", "CSINode"): (
        NAME,
        Column(
            "Drivers",
            lambda o, _: count_cell("drivers")(o.get("spec") or {}, 0),
            type="integer",
            description="Number of drivers on the node.",
        ),
        AGE,
    ),
    ("storage.k8s.io", "CSIDriver"): (
        NAME,
        Column("AttachRequired", _yes("spec", "attachRequired"), description="Needs attaching."),
        Column("PodInfoOnMount", _yes("spec", "podInfoOnMount"), description="Wants the pod."),
        Column("StorageCapacity", _yes("spec", "storageCapacity"), description="Tells capacity."),
        Column(
            "TokenRequests",
            lambda o, _: (
                _joined(t["audience"] for t in nested_value(o, "spec", "tokenRequests") or ())
                or _UNSET
            ),
            description="Audiences of the tokens it wants.",
        ),
        Column("RequiresRepublish", _yes("spec", "requiresRepublish"), description="Is repeated."),
        Column(
            "Modes",
            lambda o, _: _joined(nested_value(o, "spec", "volumeLifecycleModes")) or _UNSET,
            description="Kinds of volumes it makes.",
        ),
        AGE,
    ),
    ("storage.k8s.io", "CSIStorageCapacity"): (
        NAME,
        Column("StorageClassName", field_cell("storageClassName"), description="Of which class."),
        Column("Capacity", field_cell("capacity"), description="How much there is."),
    ),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"): (
        NAME,
        Column(
            "Validations",
            lambda o, _: len(nested_value(o, "spec", "validations") or ()),
            type="integer",
            description="Number of things that must hold.",
        ),
        Column("ParamKind", _param_kind, description="Kind of its parameters."),
        AGE,
    ),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding"): (
        NAME,
        Column("PolicyName", field_cell("spec", "policyName"), description="The policy in force."),
        Column("ParamRef", _param_ref, description="Its parameters."),
        AGE,
    ),
    ("admissionregistration.k8s.io", "MutatingAdmissionPolicy"): (
        NAME,
        Column(
            "Mutations",
            lambda o, _: len(nested_value(o, "spec", "mutations") or ()),
            type="integer",
            description="Number of patches.",
        ),
        Column("ParamKind", _param_kind, description="Kind of its parameters."),
        AGE,
    ),
    ("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding"): (
        NAME,
        Column("PolicyName", field_cell("spec", "policyName"), description="The policy in force."),
        Column("ParamRef", _param_ref, description="Its parameters."),
        AGE,
    ),
    ("resource.k8s.io", "DeviceClass"): (NAME, AGE),
    ("resource.k8s.io", "ResourceClaimTemplate"): (NAME, AGE),
    ("resource.k8s.io", "ResourceClaim"): (
        NAME,
        Column("State", _claim_state, description="A summary of the current state."),
        AGE,
    ),
    ("resource.k8s.io", "ResourceSlice"): (
        NAME,
        Column("Node", field_cell("spec", "nodeName"), description="Node that has the devices."),
        Column("Driver", field_cell("spec", "driver"), description="Driver of the devices."),
        Column("Pool", field_cell("spec", "pool", "name"), description="Pool they belong to."),
        AGE,
    ),
}
"""Columns by group and kind."""
