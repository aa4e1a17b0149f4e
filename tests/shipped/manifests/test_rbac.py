"""RBAC in full: the manifest grants what the daemon's code asks for, and nothing else.

That the daemon really asks for these, and for nothing else, is watched on a running one in
``tests/daemon/tenants/test_daemon_rights.py``.
"""

from __future__ import annotations

from typing import Any

import yaml

from gpusched.api.foreign.kinds import ALL, POD_GROUPS
from gpusched.base.installed_files import path
from gpusched.io.watch.informers import KINDS

WRITTEN = {
    ("", "pods/binding", "create"): "io/write/bind_calls.py",
    ("", "pods", "get"): "io/write/bind_calls.py, io/write/evictor.py: a pod in doubt",
    (
        "scheduling.gpusched.io",
        "podgroups",
        "get",
    ): "io/write/bind_calls.py: the look before binding",
    ("", "pods/eviction", "create"): "io/write/evictor.py",
    ("", "pods/status", "patch"): "io/write/status/pod_writes.py, io/write/preemption_calls.py",
    (
        "",
        "persistentvolumeclaims",
        "patch",
    ): "io/write/preemption_calls.py: the node of a claim that waits",
    (
        "",
        "persistentvolumes",
        "patch",
    ): "io/write/preemption_calls.py: a volume given to a claim that waits",
    ("batch", "jobs", "patch"): "io/write/preemption_calls.py: Jobs started and paused",
    ("scheduling.gpusched.io", "podgroups", "patch"): "io/serve/answers/advice_writer.py",
    ("scheduling.gpusched.io", "podgroups/status", "patch"): "io/write/status/object_writes.py",
    ("scheduling.gpusched.io", "queues/status", "patch"): "io/write/status/object_writes.py",
    ("scheduling.gpusched.io", "topologies/status", "patch"): "io/write/status/object_writes.py",
    ("scheduling.gpusched.io", "reservations/status", "patch"): "io/write/status/object_writes.py",
    (
        "admissionregistration.k8s.io",
        "validatingadmissionpolicies",
        "get",
    ): "io/watch/user_policy.py: whether names of users are held to be true",
    (
        "admissionregistration.k8s.io",
        "validatingadmissionpolicybindings",
        "get",
    ): "io/watch/user_policy.py",
    ("events.k8s.io", "events", "create"): "io/write/events/event_recorder.py",
    ("events.k8s.io", "events", "patch"): "io/write/events/event_recorder.py",
    ("coordination.k8s.io", "leases", "get"): "io/leader/elector.py",
    ("coordination.k8s.io", "leases", "update"): "io/leader/elector.py",
}
"""Every right that is not a list or a watch, and who needs it."""


def granted(manifest: str = "rbac.yaml") -> set[tuple[str, str, str]]:
    """Group, resource and verb of every rule for the daemon's account."""
    docs: list[dict[str, Any]] = list(
        yaml.safe_load_all((path("manifests") / manifest).read_text())
    )
    return {
        (group, resource, verb)
        for doc in docs
        for rule in doc.get("rules", ())
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def read() -> set[tuple[str, str, str]]:
    """What the reflectors list and watch."""
    pairs = set()
    for where in KINDS.values():
        parts = where.strip("/").split("/")
        group = "" if parts[0] == "api" else parts[1]
        pairs |= {(group, parts[-1], verb) for verb in ("list", "watch")}
    return pairs


def test_everything_that_the_code_uses_is_granted():
    """Nothing fails with 403 in a cluster that was set up with our manifests."""
    assert (read() | WRITTEN.keys()) - granted() == set()


def test_nothing_else_is_granted():
    """A stolen token can do no more than the scheduler does."""
    assert granted() - read() - WRITTEN.keys() == set()


def test_kinds_of_other_projects_are_granted_as_they_are_used():
    """In a manifest of its own: every kind is read, status is written where we write it."""
    wanted = {(kind.group, kind.plural, verb) for kind in ALL for verb in ("list", "watch")}
    wanted |= {(kind.group, "podgroups", "get") for kind in POD_GROUPS.values()}
    wanted |= {(kind.group, f"{kind.plural}/status", "patch") for kind in ALL if kind.writes}
    # Volcano's PodGroup has no status of its own: it is patched as a whole.
    wanted.add(("scheduling.volcano.sh", "podgroups", "patch"))
    # Claims get their devices before a gang is bound.
    wanted |= {
        ("resource.k8s.io", "resourceclaims", "patch"),
        ("resource.k8s.io", "resourceclaims", "create"),
        ("resource.k8s.io", "resourceclaims", "delete"),
        ("resource.k8s.io", "resourceclaims/status", "patch"),
        ("resource.k8s.io", "resourceclaims/binding", "patch"),
    }
    assert granted("rbac-adapters.yaml") == wanted
