"""What a PodGroup of Kubernetes itself says and no other PodGroup does."""

from __future__ import annotations

from typing import Final

from gpusched.api.devices.dynamic.claims import PodClaim
from gpusched.base.classes import frozen

COMPOSITE: Final = "CompositePodGroup"
"""The kind of a group of groups."""
TOLD_AS: Final = {
    "Admitted": "gpusched.io/Admitted",
    "Scheduled": "gpusched.io/Scheduled",
    "Preempted": "DisruptionTarget",
}
"""Conditions of our own PodGroup by the type that they have on a native one."""
COMPLETED: Final = "Completed"
"""The reason of the condition Scheduled of a native group whose members have all succeeded."""


@frozen(slots=True, kw_only=True)
class NativeTerms:
    """Fields of a ``scheduling.k8s.io`` PodGroup or CompositePodGroup without a counterpart in ours.

    Attributes:
        basic: whether its policy is ``basic``: nothing starts together.
        priority: the number; None where the object has none.
        preemption_policy: ``Never`` or ``PreemptLowerPriority``; empty where it says nothing.
        workload: name of the Workload from whose template it was made; empty for none.
        template: name of that template.
        owners: kind and name of each object that owns it.
        parent: name of the CompositePodGroup that it is a child of; empty for none.
        claims: names of its resource claims, sorted.
        group_claims: these claims as its spec has them, sorted by name.
        made_claims: the ResourceClaims made from templates, by the names that it has for them, sorted.
        started: whether its condition says that it was scheduled once.
        error: why none of its members may start, a reason and a sentence; empty for nothing.
        composite: whether it is a CompositePodGroup, whose members are other groups.
        min_groups: children that a CompositePodGroup needs at once; 0 where its policy is basic.
    """

    basic: bool = False
    priority: int | None = None
    preemption_policy: str = ""
    workload: str = ""
    template: str = ""
    owners: tuple[tuple[str, str], ...] = ()
    parent: str = ""
    claims: tuple[str, ...] = ()
    group_claims: tuple[PodClaim, ...] = ()
    made_claims: tuple[tuple[str, str], ...] = ()
    started: bool = False
    error: tuple[str, str] = ("", "")
    composite: bool = False
    min_groups: int = 0
