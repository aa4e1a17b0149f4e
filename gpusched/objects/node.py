"""Nodes."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from gpusched.objects.meta import UID, ResourceVersion
from gpusched.objects.resources import Resources
from gpusched.objects.selector import Taint


@attrs.frozen(slots=True, kw_only=True)
class Node:
    """A node as the scheduler sees it.

    Attributes:
        allocatable: including ``pods``.
        taints: NoSchedule and NoExecute only.
        soft_taints: PreferNoSchedule, which only makes the node worse.
        not_ready: why the node takes no pods (its Ready condition), empty when it does.
        layout: slot numbers by island, best links first; empty when nothing is known.
    """

    name: str
    uid: UID
    resource_version: ResourceVersion
    created: float
    labels: Mapping[str, str]
    allocatable: Resources
    taints: tuple[Taint, ...]
    unschedulable: bool
    not_ready: str
    layout: tuple[tuple[int, ...], ...]
    soft_taints: tuple[Taint, ...] = ()
