"""The roles and bindings that every cluster is born with.

A subset of the documented defaults: those for people, for discovery and for schedulers. The
user-facing ones are unions of others by label, which a controller computes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from gpusched.devcluster.apiserver.rbac.authorizer import GROUP
from gpusched.devcluster.apiserver.rbac.rules import EVERYONE, MASTERS

Obj = dict[str, Any]

_READ: Final = ("get", "list", "watch")
_WRITE: Final = ("create", "delete", "deletecollection", "patch", "update")
_AGGREGATE: Final = "rbac.authorization.k8s.io/aggregate-to-"

_Rule = tuple[str, str, Sequence[str]]
"""API groups and resources, both as words, and verbs."""

_PODS_REMOTE: Final = "pods/attach pods/exec pods/portforward pods/proxy"
_APPS: Final = (
    "daemonsets deployments deployments/{0} deployments/scale replicasets replicasets/scale "
    "statefulsets statefulsets/scale"
)
_TO_VIEW: Final[tuple[_Rule, ...]] = (
    (
        "core",
        (
            "configmaps endpoints persistentvolumeclaims persistentvolumeclaims/status pods "
            "replicationcontrollers replicationcontrollers/scale serviceaccounts services "
            "services/status"
        ),
        _READ,
    ),
    (
        "core",
        (
            "bindings events limitranges namespaces/status pods/log pods/status "
            "replicationcontrollers/status resourcequotas resourcequotas/status"
        ),
        _READ,
    ),
    ("core", "namespaces", _READ),
    ("discovery.k8s.io", "endpointslices", _READ),
    (
        "apps",
        (
            "controllerrevisions daemonsets daemonsets/status deployments deployments/scale "
            "deployments/status replicasets replicasets/scale replicasets/status statefulsets "
            "statefulsets/scale statefulsets/status"
        ),
        _READ,
    ),
    ("autoscaling", "horizontalpodautoscalers horizontalpodautoscalers/status", _READ),
    ("batch", "cronjobs cronjobs/status jobs jobs/status", _READ),
    ("policy", "poddisruptionbudgets poddisruptionbudgets/status", _READ),
    ("networking.k8s.io", "ingresses ingresses/status networkpolicies", _READ),
    ("resource.k8s.io", "resourceclaims resourceclaims/status resourceclaimtemplates", _READ),
)
_TO_EDIT: Final[tuple[_Rule, ...]] = (
    ("core", f"{_PODS_REMOTE} secrets services/proxy", _READ),
    ("core", "serviceaccounts", ("impersonate",)),
    ("core", f"pods {_PODS_REMOTE}", _WRITE),
    ("core", "pods/eviction", ("create",)),
    (
        "core",
        (
            "configmaps events persistentvolumeclaims replicationcontrollers "
            "replicationcontrollers/scale secrets serviceaccounts services services/proxy"
        ),
        _WRITE,
    ),
    ("core", "serviceaccounts/token", ("create",)),
    ("apps", _APPS.format("rollback"), _WRITE),
    ("autoscaling", "horizontalpodautoscalers", _WRITE),
    ("batch", "cronjobs jobs", _WRITE),
    ("policy", "poddisruptionbudgets", _WRITE),
    ("networking.k8s.io", "ingresses networkpolicies", _WRITE),
    ("coordination.k8s.io", "leases", (*_WRITE, *_READ)),
    ("resource.k8s.io", "resourceclaims resourceclaimtemplates", _WRITE),
)
_TO_ADMIN: Final[tuple[_Rule, ...]] = (
    ("authorization.k8s.io", "localsubjectaccessreviews", ("create",)),
    ("rbac.authorization.k8s.io", "rolebindings roles", (*_WRITE, *_READ)),
)
_BASIC: Final[tuple[_Rule, ...]] = (
    ("authorization.k8s.io", "selfsubjectaccessreviews selfsubjectrulesreviews", ("create",)),
    ("authentication.k8s.io", "selfsubjectreviews", ("create",)),
)
_SCHEDULER: Final[tuple[_Rule, ...]] = (
    ("core events.k8s.io", "events", ("create", "patch", "update")),
    ("core", "nodes namespaces replicationcontrollers services", _READ),
    ("core", "pods", ("delete", *_READ)),
    ("core", "bindings pods/binding", ("create",)),
    ("core", "pods/status", ("patch", "update")),
    ("core", "persistentvolumeclaims persistentvolumes", _READ),
    ("apps", "replicasets statefulsets", _READ),
    ("policy", "poddisruptionbudgets", _READ),
    ("coordination.k8s.io", "leases", ("create", "get", "list", "update", "watch")),
    ("storage.k8s.io", "csidrivers csinodes csistoragecapacities storageclasses", _READ),
    ("resource.k8s.io", "deviceclasses resourceclaims resourceslices", _READ),
    ("resource.k8s.io", "resourceclaims resourceclaims/status", ("patch", "update")),
    ("resource.k8s.io", "resourceclaims/binding", ("patch", "update")),
)
_CLAIM_CONTROLLER: Final[tuple[_Rule, ...]] = (
    ("core", "pods", _READ),
    ("resource.k8s.io", "resourceclaimtemplates", _READ),
    ("resource.k8s.io", "resourceclaims", ("create", "delete", *_READ)),
    ("resource.k8s.io", "resourceclaims resourceclaims/status", ("patch", "update")),
    ("resource.k8s.io", "resourceclaims/binding", ("patch", "update")),
    ("core", "pods/status", ("patch", "update")),
    ("core events.k8s.io", "events", ("create", "patch", "update")),
)
_INFO_PATHS: Final = ("/healthz", "/livez", "/readyz", "/version", "/version/")
_DISCOVERY_PATHS: Final = (
    "/api",
    "/api/*",
    "/apis",
    "/apis/*",
    "/healthz",
    "/livez",
    "/openapi",
    "/openapi/*",
    "/readyz",
    "/version",
    "/version/",
)


def cluster_roles() -> Iterator[Obj]:
    """Yield the ClusterRoles; each is a new object without server-made metadata."""
    every = {"verbs": ["*"]}
    all_resources = {"apiGroups": ["*"], "resources": ["*"], **every}
    yield _role("cluster-admin", [all_resources, {"nonResourceURLs": ["*"], **every}])
    yield _union("admin", "admin")
    yield _union("edit", "edit", into="admin")
    yield _union("view", "view", into="edit")
    yield _role("system:aggregate-to-admin", _rules(_TO_ADMIN), into="admin")
    yield _role("system:aggregate-to-edit", _rules(_TO_EDIT), into="edit")
    yield _role("system:aggregate-to-view", _rules(_TO_VIEW), into="view")
    yield _role("system:basic-user", _rules(_BASIC))
    yield _role("system:discovery", [_paths(_DISCOVERY_PATHS)])
    yield _role("system:public-info-viewer", [_paths(_INFO_PATHS)])
    yield _role("system:kube-scheduler", _rules(_SCHEDULER))
    yield _role("system:controller:resource-claim-controller", _rules(_CLAIM_CONTROLLER))


def cluster_role_bindings() -> Iterator[Obj]:
    """Yield the ClusterRoleBindings that go with the roles."""
    yield _binding("cluster-admin", "Group", MASTERS)
    yield _binding("system:basic-user", "Group", EVERYONE)
    yield _binding("system:discovery", "Group", EVERYONE)
    yield _binding("system:public-info-viewer", "Group", EVERYONE, "system:unauthenticated")
    yield _binding("system:kube-scheduler", "User", "system:kube-scheduler")
    account = {
        "kind": "ServiceAccount",
        "name": "resource-claim-controller",
        "namespace": "kube-system",
    }
    binding = _binding("system:controller:resource-claim-controller", "User")
    yield {**binding, "subjects": [account]}


def _head(kind: str, name: str, into: str = "") -> Obj:
    labels = {"kubernetes.io/bootstrapping": "rbac-defaults"}
    if into:
        labels[_AGGREGATE + into] = "true"
    annotations = {"rbac.authorization.kubernetes.io/autoupdate": "true"}
    metadata = {"name": name, "labels": labels, "annotations": annotations}
    return {"kind": kind, "apiVersion": f"{GROUP}/v1", "metadata": metadata}


def _role(name: str, rules: list[Obj], *, into: str = "") -> Obj:
    return {**_head("ClusterRole", name, into), "rules": rules}


def _union(name: str, of: str, *, into: str = "") -> Obj:
    selector = {"matchLabels": {_AGGREGATE + of: "true"}}
    rule = {"clusterRoleSelectors": [selector]}
    return {**_head("ClusterRole", name, into), "aggregationRule": rule, "rules": None}


def _binding(role: str, kind: str, *names: str) -> Obj:
    subjects = [{"kind": kind, "apiGroup": GROUP, "name": name} for name in names]
    ref = {"apiGroup": GROUP, "kind": "ClusterRole", "name": role}
    return {**_head("ClusterRoleBinding", role), "subjects": subjects, "roleRef": ref}


def _rules(rules: Sequence[_Rule]) -> list[Obj]:
    return [
        {
            "verbs": sorted(verbs),
            "apiGroups": ["" if g == "core" else g for g in groups.split()],
            "resources": resources.split(),
        }
        for groups, resources, verbs in rules
    ]


def _paths(paths: Sequence[str]) -> Obj:
    return {"verbs": ["get"], "nonResourceURLs": list(paths)}
