"""Invariants of a cluster, read from API objects alone: a witness that shares no logic with us.

``findings`` looks at one moment, ``check_journal`` at a list of writes; the modules have the
checks of single nodes, gangs and queues for checks after each write. The numbers I1 to
I18 are those of docs/chaos.md, I19 is that of docs/audit.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpusched.testing.invariants.devices import device_findings, leaked_claims, unserved_claims
from gpusched.testing.invariants.gangs import gang_findings, unrequested_binds
from gpusched.testing.invariants.journal import Write, check_journal, fence_findings
from gpusched.testing.invariants.model import (
    GROUP_LABEL,
    RECOVERY_S,
    Finding,
    Obj,
    holds_room,
    is_ours,
    object_name,
    pod_requests,
)
from gpusched.testing.invariants.nodes import node_findings
from gpusched.testing.invariants.queues import queue_findings
from gpusched.testing.invariants.reservations import reservation_findings

__all__ = [
    "GROUP_LABEL",
    "RECOVERY_S",
    "Finding",
    "Obj",
    "Write",
    "check",
    "check_journal",
    "findings",
    "leaked_claims",
    "pod_requests",
]


def findings(
    objects: Mapping[str, Sequence[Obj]],
    *,
    schedulers: Sequence[str] = ("gpusched",),
    now: float | None = None,
) -> list[Finding]:
    """What is wrong at this moment; an empty list is good.

    Args:
        objects: ``pods``, ``nodes``, ``podgroups``, ``queues``, ``topologies``, ``jobs``,
            ``namespaces``, ``resourceclaims``, ``resourceslices`` and ``reservations``, as the API
            lists them; what is left out is not looked at.
        schedulers: names under which we place pods.
        now: seconds since the epoch, so that a gang bound in part is given its recovery time
            (I3), and windows of Reservations are known to be open (I19); None for no patience, and
            no windows.
    """
    pods, nodes = objects.get("pods", ()), objects.get("nodes", ())
    groups = objects.get("podgroups", ())
    topologies = objects.get("topologies", ())
    claims = objects.get("resourceclaims", ())
    by_name = {object_name(each): each for each in claims}
    return [
        *node_findings(pods, nodes),
        *gang_findings(pods, groups, nodes=nodes, topologies=topologies, now=now),
        *(found for pod in pods for found in unrequested_binds(pod, schedulers)),
        *queue_findings(
            pods,
            objects.get("queues", ()),
            groups=groups,
            jobs=objects.get("jobs", ()),
            namespaces=objects.get("namespaces", ()),
        ),
        *fence_findings(pods),
        *device_findings(claims, objects.get("resourceslices", ())),
        *(
            found
            for pod in pods
            if "resourceclaims" in objects and is_ours(pod) and holds_room(pod)
            for found in unserved_claims(pod, by_name)
        ),
        *(
            reservation_findings(
                pods,
                objects.get("reservations", ()),
                nodes=nodes,
                queues=objects.get("queues", ()),
                groups=groups,
                jobs=objects.get("jobs", ()),
                namespaces=objects.get("namespaces", ()),
                now=now,
            )
            if now is not None
            else ()
        ),
    ]


def check(
    objects: Mapping[str, Sequence[Obj]],
    *,
    schedulers: Sequence[str] = ("gpusched",),
    now: float | None = None,
) -> list[str]:
    """The same as sentences, each behind the number of its invariant."""
    return [str(each) for each in findings(objects, schedulers=schedulers, now=now)]
