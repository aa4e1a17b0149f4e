"""What is asked of GPUs and their MIG partitions, and which nodes could be partitioned otherwise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from gpusched.api.meta.gpu_resources import GpuResource
from gpusched.api.meta.quantity import parse_billionths
from gpusched.base.classes import frozen
from gpusched.engine.objects import Obj
from gpusched.lab.simulate.mig.layouts import WHOLE, MigLayout, layouts_for, product_of

CONFIG: Final = "nvidia.com/mig.config"
_STATE: Final = "nvidia.com/mig.config.state"
_PRODUCT: Final = "nvidia.com/gpu.product"
_COUNT: Final = "nvidia.com/gpu.count"
_CAPABLE: Final = "nvidia.com/mig.capable"
_STRATEGY: Final = "nvidia.com/mig.strategy"
_GROUP: Final = "gpusched.io/pod-group"
_OVER: Final = ("Succeeded", "Failed")
_BILLION: Final = 10**9


@frozen
class MigNode:
    """A node whose GPUs can be partitioned.

    Attributes:
        gpus: of the node, partitioned or not.
        config: its present configuration, empty where no label tells it.
        provides: pieces by profile that it offers now.
        layouts: that it may get, with what it then provides.
        keeps: why it is not to be changed, empty where it may be.
    """

    name: str
    product: str
    gpus: int
    config: str
    provides: Mapping[str, int]
    layouts: tuple[tuple[MigLayout, Mapping[str, int]], ...]
    keeps: str = ""


@frozen
class MigGang:
    """Pods that wait to start together.

    Attributes:
        name: ``namespace/name`` of the group, Job or pod.
        needs: pieces by profile for all pods together.
        largest: pieces by profile that a single pod needs on one node.
    """

    name: str
    needs: Mapping[str, int]
    largest: Mapping[str, int]


@frozen
class MigDemand:
    """Nodes, and what is asked of them.

    Attributes:
        free: pieces by profile on all nodes that are not changed, less what pods use there.
        waiting: gangs that wait for whole GPUs or partitions, by name.
        usual: pieces by profile that running pods use: what is expected to come again.
    """

    nodes: tuple[MigNode, ...]
    free: Mapping[str, int]
    waiting: tuple[MigGang, ...]
    usual: Mapping[str, int]


def read_demand(
    objects: Iterable[Obj],
    layouts: Sequence[MigLayout],
    gpu: GpuResource,
    schedulers: Collection[str],
) -> MigDemand:
    """What a cluster's objects tell.

    Args:
        objects: of the cluster.
        layouts: of a file, empty for those that the operator ships.
        gpu: the resource of whole GPUs, with the prefix of its partitions.
        schedulers: names of schedulers whose waiting pods count.
    """
    every = list(objects)
    used: dict[str, Counter[str]] = {}
    usual: Counter[str] = Counter()
    pods = [obj for obj in every if obj.get("kind") == "Pod" and not _is_over(obj)]
    for pod in pods:
        node = pod["spec"].get("nodeName")
        if node:
            needs = _needs(pod["spec"], gpu)
            used.setdefault(node, Counter()).update(needs)
            usual.update(needs)
    nodes, free = [], Counter[str]()
    for obj in every:
        if obj.get("kind") != "Node":
            continue
        name = obj["metadata"]["name"]
        node = _node(obj, layouts, gpu, busy=sum(used.get(name, Counter()).values()))
        if node is not None:
            nodes.append(node)
        if (node is None or node.keeps) and _is_usable(obj):
            free.update(_offers(obj, gpu))
            free.subtract(used.get(name, Counter()))
    nodes.sort(key=lambda each: each.name)
    waiting = sorted(_waiting(every, pods, gpu, schedulers), key=lambda each: each.name)
    return MigDemand(
        tuple(nodes), {k: n for k, n in sorted(free.items()) if n > 0}, tuple(waiting), usual
    )


def _is_over(pod: Obj) -> bool:
    return (pod.get("status") or {}).get("phase") in _OVER


def _is_usable(node: Obj) -> bool:
    if (node.get("spec") or {}).get("unschedulable"):
        return False
    conditions = (node.get("status") or {}).get("conditions") or ()
    return all(each.get("status") == "True" for each in conditions if each.get("type") == "Ready")


def _pieces(name: str, gpu: GpuResource) -> str | None:
    """The profile of a resource, None for resources that are no GPUs."""
    if name == gpu.name:
        return WHOLE
    prefix = gpu.slice_prefix
    return name.removeprefix(prefix) if prefix and name.startswith(prefix) else None


def resource_of(profile: str, gpu: GpuResource) -> str:
    """The resource that partitions of a profile are, as the device plugin names it."""
    return f"{gpu.slice_prefix}{profile}" if profile else gpu.name


def _amounts(given: Mapping[str, Any] | None, gpu: GpuResource) -> Counter[str]:
    found: Counter[str] = Counter()
    for name, text in (given or {}).items():
        profile = _pieces(name, gpu)
        if profile is not None:
            try:
                found[profile] += parse_billionths(str(text)) // _BILLION
            except ValueError:
                continue  # the scheduler does not believe the object either
    return found


def _offers(node: Obj, gpu: GpuResource) -> Counter[str]:
    return _amounts((node.get("status") or {}).get("allocatable"), gpu)


def _needs(spec: Mapping[str, Any], gpu: GpuResource) -> Counter[str]:
    found: Counter[str] = Counter()
    for container in spec.get("containers") or ():
        resources = container.get("resources") or {}
        found += _amounts(
            {**(resources.get("limits") or {}), **(resources.get("requests") or {})}, gpu
        )
    return found


def _node(obj: Obj, layouts: Sequence[MigLayout], gpu: GpuResource, *, busy: int) -> MigNode | None:
    """A node with GPUs that can be partitioned; None for others."""
    labels: Mapping[str, str] = obj["metadata"].get("labels") or {}
    offers = _offers(obj, gpu)
    partitioned = any(name != WHOLE and n for name, n in offers.items())
    if not (partitioned or labels.get(_CAPABLE) == "true" or labels.get(CONFIG)):
        return None
    product = product_of(labels.get(_PRODUCT, ""))
    gpus = _gpus(labels, offers, partitioned=partitioned)
    found = layouts_for(product, layouts, gpus)
    config = labels.get(CONFIG, "") or ("" if partitioned else "all-disabled")
    keeps = ""
    if not _is_usable(obj):
        keeps = "is cordoned or not ready"
    elif labels.get(_STRATEGY) == "single":
        keeps = "has the strategy single, under which requests do not tell their profile"
    elif product is None and not layouts:
        keeps = f"has GPUs that are not known ({labels.get(_PRODUCT) or 'no product label'})"
    elif not gpus:
        keeps = f"does not tell how many GPUs it has (label {_COUNT})"
    elif labels.get(_STATE) in {"pending", "rebooting"}:
        keeps = "is being partitioned now"
    elif busy:
        keeps = "runs pods with GPUs"
    return MigNode(
        obj["metadata"]["name"],
        product.name if product is not None else labels.get(_PRODUCT, ""),
        gpus, config, dict(sorted(offers.items())), tuple(found), keeps,
    )  # fmt: skip


def _gpus(labels: Mapping[str, str], offers: Counter[str], *, partitioned: bool) -> int:
    """GPUs of a node, 0 where nothing tells it."""
    told = labels.get(_COUNT, "")
    if told.isascii() and told.isdecimal() and len(told) <= 3:
        return int(told)
    return 0 if partitioned else offers[WHOLE]


def _waiting(
    objects: Iterable[Obj], pods: Iterable[Obj], gpu: GpuResource, schedulers: Collection[str]
) -> Iterator[MigGang]:
    """Gangs of pods without a node, and suspended Jobs, that ask for GPUs."""
    gangs: dict[str, list[Counter[str]]] = {}
    for pod in pods:
        spec = pod["spec"]
        if not spec.get("nodeName") and spec.get("schedulerName") in schedulers:
            gangs.setdefault(_gang_of(pod), []).append(_needs(spec, gpu))
    for obj in objects:
        spec = obj.get("spec") or {}
        template = (spec.get("template") or {}).get("spec") or {}
        is_suspended = obj.get("kind") == "Job" and spec.get("suspend")
        if is_suspended and template.get("schedulerName") in schedulers:
            count = spec.get("parallelism", 1)
            name = f"{obj['metadata'].get('namespace', '')}/{obj['metadata']['name']}"
            gangs.setdefault(name, []).extend([_needs(template, gpu)] * count)
    for name, needs in gangs.items():
        total: Counter[str] = Counter()
        largest: Counter[str] = Counter()
        for each in needs:
            total.update(each)
            largest |= each
        if total:
            yield MigGang(name, dict(sorted(total.items())), dict(sorted(largest.items())))


def _gang_of(pod: Obj) -> str:
    metadata = pod["metadata"]
    space = metadata.get("namespace", "")
    group = (metadata.get("labels") or {}).get(_GROUP)
    owner = next(
        (each["name"] for each in metadata.get("ownerReferences") or () if each.get("controller")),
        "",
    )
    return f"{space}/{group or owner or metadata['name']}"
