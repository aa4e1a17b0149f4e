"""Nodes as the scheduler reads them."""

from __future__ import annotations

from collections.abc import Mapping

from gpusched.api.affinity.selector import Taint
from gpusched.api.devices.gpu_layout import Island
from gpusched.api.devices.numa import NumaTopology
from gpusched.api.meta.identity import UID, ResourceVersion
from gpusched.api.meta.resources import Resources
from gpusched.base.classes import frozen


@frozen(slots=True, kw_only=True)
class Node:
    """A node as the scheduler sees it.

    Attributes:
        allocatable: including ``pods``.
        taints: NoSchedule and NoExecute only.
        soft_taints: PreferNoSchedule, which only makes the node worse.
        not_ready: why the node takes no pods (its Ready condition), empty when it does.
        layout: slots by island; empty when nothing is known. As it comes from the API this is
            what the annotation says; the cache puts there what counts, see ``topology.layouts``.
        numa: slot numbers by NUMA node; empty when not known. The same holds.
        layout_trouble: why the annotation cannot be believed; empty when it can, or is not there.
        cells: its NUMA nodes, where its kubelet refuses pods that do not fit them; None
            elsewhere. Put there by the cache.
        avoided: requests of pods that its kubelet refused lately; sorted. Put there by the cache.
        devices_only: extended resources that it has as devices only, of which ``allocatable`` says how many may
            match: the devices themselves decide. Sorted. Put there by the cache.
        gpus_built_in: GPUs that the node has, healthy or not; 0 when it does not say.
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
    layout: tuple[Island, ...]
    soft_taints: tuple[Taint, ...] = ()
    numa: tuple[tuple[int, ...], ...] = ()
    layout_error: str = ""
    gpus_installed: int = 0
    avoided: tuple[Resources, ...] = ()
    cells: NumaTopology | None = None
    devices_only: tuple[str, ...] = ()
