"""Entities with sensible defaults, made without any API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import attrs

from gpusched.api.affinity.selector import NodeTerm, Taint, Toleration
from gpusched.api.devices.gpu_layout import parse_islands
from gpusched.api.devices.gpu_share import GpuShare, shared_resource
from gpusched.api.devices.slots import gpu_request
from gpusched.api.gang.pod_group import GangTerms, PodGroup, SubGroup
from gpusched.api.meta.gpu_resources import DEFAULT_GPU_RESOURCES
from gpusched.api.meta.identity import UID, Owner, ResourceVersion
from gpusched.api.meta.resources import PODS, Resources
from gpusched.api.meta.units import pieces_to_base_units
from gpusched.api.node.node import Node
from gpusched.api.pod.pod import NO_GANG_ANNOTATIONS, GangAnnotations, Pod, PodClass, PodPhase
from gpusched.api.pod.pod_class import add_share_requests, class_digest

GPU: Final = DEFAULT_GPU_RESOURCES.main.name
GIB: Final = 2**30
NOW: Final = 1_767_225_600.0
"""2026-01-01T00:00:00Z: when a session runs unless told."""
BORN: Final = NOW - 600.0
"""When objects were made unless told."""


def uid(kind: str, name: str, namespace: str = "") -> UID:
    """The same for the same object in every process."""
    return UID(f"{kind}/{namespace}/{name}")


def resources(amounts: Mapping[str, int]) -> Resources:
    """Amounts in base units, but GPUs in whole ones; what is zero is left out."""
    return Resources.of(
        {name: amount for name, amount in pieces_to_base_units(amounts).items() if amount}
    )


def pod_class(
    *,
    gpus: int = 0,
    cpu: int = 1000,
    memory: int = GIB,
    gpu: str = GPU,
    more: Mapping[str, int] | None = None,
    node_selector: Mapping[str, str] | None = None,
    affinity: Sequence[NodeTerm] | None = None,
    preferred: Sequence[tuple[int, NodeTerm]] = (),
    tolerations: Sequence[Toleration] = (),
    unsupported: str = "",
    share: GpuShare | None = None,
    **rules: Any,
) -> PodClass:
    """What placement reads of a pod: ``gpus`` pieces of ``gpu``, the rest in base units.

    ``rules`` are those about other pods, as fields of ``PodClass``: pod_affinity, pod_anti_affinity,
    preferred_pod_affinity, preferred_pod_anti_affinity, spread, soft_spread, ports.
    """
    more_rules: dict[str, Any] = {
        kind: terms if isinstance(terms, bool | str) else tuple(terms)
        for kind, terms in rules.items()
    }
    requests = resources({PODS: 1, "cpu": cpu, "memory": memory, gpu: gpus, **(more or {})})
    name, count = gpu_request(requests)
    if share is not None:
        requests, name = add_share_requests(requests, share), shared_resource()
    made = PodClass(
        digest="",
        requests=requests,
        gpu=name,
        gpus=count,
        node_selector=tuple(sorted((node_selector or {}).items())),
        affinity=None if affinity is None else tuple(affinity),
        preferred=tuple(preferred),
        tolerations=tuple(tolerations),
        unsupported=unsupported,
        share=share,
        **more_rules,
    )
    return attrs.evolve(made, digest=class_digest(made))


def node(
    name: str,
    *,
    gpus: int = 0,
    cpu: int = 64_000,
    memory: int = 512 * GIB,
    pods: int = 110,
    gpu: str = GPU,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Taint] = (),
    unschedulable: bool = False,
    not_ready: str = "",
    layout: Sequence[Sequence[object]] = (),
    numa: Sequence[Sequence[int]] = (),
    soft_taints: Sequence[Taint] = (),
    version: str = "1",
    own_uid: str = "",
) -> Node:
    """A node with amounts in base units."""
    return Node(
        name=name,
        uid=UID(own_uid) if own_uid else uid("Node", name),
        resource_version=ResourceVersion(version),
        created=BORN,
        labels=MappingProxyType(dict(labels or {})),
        allocatable=resources({PODS: pods, "cpu": cpu, "memory": memory, gpu: gpus}),
        taints=tuple(taints),
        unschedulable=unschedulable,
        not_ready=not_ready,
        layout=parse_islands(layout) if layout else (),
        numa=tuple(tuple(cell) for cell in numa),
        soft_taints=tuple(soft_taints),
    )


def pod(
    name: str,
    spec: PodClass,
    *,
    namespace: str = "default",
    group: str = "",
    queue: str = "",
    owner: Owner | None = None,
    scheduler: str = "gpusched",
    priority: int = 0,
    priority_class: str = "",
    role: str = "",
    sub_group: str = "",
    hints: GangAnnotations = NO_GANG_ANNOTATIONS,
    rank: int = -1,
    node: str = "",
    slots: int = 0,
    plan: str = "",
    phase: PodPhase = PodPhase.PENDING,
    gated: bool = False,
    deleting: bool = False,
    created: float = BORN,
    scheduled: float = 0.0,
    version: str = "1",
    own_uid: str = "",
    nominated: str = "",
    unschedulable_reason: str = "",
    unschedulable_since: float = 0.0,
    may_preempt: bool = True,
    labels: Mapping[str, str] | None = None,
    claims: Sequence[str] = (),
    deadline_s: int = 0,
) -> Pod:
    """A pod, unbound unless it names a node."""
    return Pod(
        namespace=namespace,
        name=name,
        uid=UID(own_uid) if own_uid else uid("Pod", name, namespace),
        resource_version=ResourceVersion(version),
        created=created,
        labels=MappingProxyType(dict(labels or {})),
        claims=tuple(sorted(claims)),
        owner=owner,
        scheduler=scheduler,
        pod_class=spec,
        priority=priority,
        priority_class=priority_class,
        group=group,
        queue=queue,
        role=role,
        sub_group=sub_group,
        hints=hints,
        rank=rank,
        node=node,
        phase=phase,
        deleting=deleting,
        gated=gated,
        scheduled=scheduled,
        slots=slots,
        plan=plan,
        fence="test/1" if plan else "",
        unschedulable_reason=unschedulable_reason,
        unschedulable="",
        unschedulable_since=unschedulable_since,
        nominated=nominated,
        may_preempt=may_preempt,
        deadline_s=deadline_s,
    )


def pod_group(
    name: str,
    *,
    namespace: str = "default",
    roles: Mapping[str, int] | None = None,
    sub_groups: Sequence[SubGroup] = (),
    generation: int = 1,
    created: float = BORN,
    **rest: Any,
) -> PodGroup:
    """A PodGroup; ``rest`` sets any other field of it or of its terms."""
    terms = {each.name for each in attrs.fields(GangTerms)} & rest.keys()
    return PodGroup(
        namespace=namespace,
        name=name,
        uid=uid("PodGroup", name, namespace),
        resource_version=rest.pop("resource_version", ResourceVersion("1")),
        generation=generation,
        created=created,
        min_task_member=tuple(sorted((roles or {}).items())),
        sub_groups=tuple(sub_groups),
        terms=GangTerms(**{name: rest.pop(name) for name in terms}),
        **rest,
    )
