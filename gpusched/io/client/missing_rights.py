"""What to do about an answer that refuses: which role has the right, where it is rights that are missing."""

from __future__ import annotations

import re
from typing import Final

from gpusched.base.errors import Denied

ONLY_ADMINISTRATORS: Final = (
    "of Kubernetes' own roles only cluster-admin has this right: ask an administrator for it"
)
DAEMON_ROLE: Final = "ClusterRole gpusched (manifests/rbac.yaml)"
_QUEUES_ROLE: Final = "ClusterRole gpusched-queue-view (manifests/rbac-users.yaml)"
_MISSING: Final = re.compile(
    r' cannot (?P<verb>[a-z]+) resource "(?P<resource>[^"]+)" in API group "(?P<group>[^"]*)"'
)
_READING: Final = frozenset({"get", "list", "watch"})
_OURS: Final = "scheduling.gpusched.io"
_OURS_ROLE: Final = "ClusterRole gpusched-view (manifests/rbac-users.yaml)"
_VIEW: Final = {
    "": "configmaps events namespaces persistentvolumeclaims pods pods/log resourcequotas services",
    "apps": "deployments replicasets statefulsets",
    "batch": "jobs",
    "policy": "poddisruptionbudgets",
    "resource.k8s.io": "resourceclaims resourceclaimtemplates",
}
"""What Kubernetes' role view lets read, as far as gpusched reads it."""
_OURS_VIEW: Final = {
    _OURS: "podgroups",
    "scheduling.k8s.io": "podgroups compositepodgroups workloads",
}
"""What our manifests add to it."""
_EDIT: Final = {
    "": "pods",
    "apps": "deployments replicasets statefulsets",
    "batch": "jobs",
    _OURS: "podgroups",
}
"""What Kubernetes' role edit lets write, with what our manifests add to it; and it lets evict pods."""


def explain_denied(error: Denied, role: str = "") -> Denied:
    """The same error with what to do about it.

    Refusals that are not about rights, such as those of an admission policy or a quota, say
    themselves what is wrong and stay as they are.

    Args:
        error: as the server's answer gave it; where a right is missing it names user, verb and resource.
        role: what grants the right; empty to find out which role for people does.
    """
    text = str(error)
    missing = _MISSING.search(text)
    if error.status == 401:
        todo = "the API server does not accept these credentials: renew them, or name others"
    elif " cannot impersonate" in text:
        todo = "leave out --as and what belongs to it, or ask an administrator for the right to impersonate"
    elif missing is None and not role:
        return error
    else:
        role = role or (_role_of_people(**missing.groupdict()) if missing else "")
        todo = f"{role} has this right: bind it to this user, or ask an administrator to"
        if not role:
            todo = ONLY_ADMINISTRATORS
    return Denied(f"{text}; {todo}", status=error.status, reason=error.reason)


def _role_of_people(verb: str, resource: str, group: str) -> str:
    """The role that grants it, of those that every cluster has or that we ship; empty for none."""
    if verb not in _READING:
        may = resource in _EDIT.get(group, "").split() or resource == "pods/eviction"
        return "ClusterRole edit" if may else ""
    if group == _OURS and resource in {"queues", "topologies", "reservations"}:
        return _QUEUES_ROLE
    if resource in _OURS_VIEW.get(group, "").split():
        return _OURS_ROLE
    return "ClusterRole view" if resource in _VIEW.get(group, "").split() else ""
