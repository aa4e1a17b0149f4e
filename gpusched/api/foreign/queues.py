"""Queues of Volcano and KAI, as ours."""

from __future__ import annotations

from typing import Any, Final

import attrs

from gpusched.api.foreign import kinds, wire
from gpusched.api.meta.codec import KindCodec
from gpusched.api.meta.fields import (
    check_identity,
    parse_duration_ns,
    parse_resources,
    quoted,
    read_resource_version,
    read_uid,
)
from gpusched.api.meta.gpu_resources import gpu_resources
from gpusched.api.meta.identity import InvalidObject, Rejected, parse_time
from gpusched.api.meta.resources import Resources
from gpusched.api.meta.status import decode_conditions, read_status
from gpusched.api.meta.units import DEVICE
from gpusched.api.queue.queue import ROOT_QUEUE, Queue
from gpusched.base.limits import QUANTITY_MAX

_STOPPED: Final = ("Closed", "Closing")
_ORDERINGS: Final = {"": "Priority", "traverse": "Priority", "fifo": "StrictFifo"}
_MEGABYTE: Final = 10**6
_KAI_PRIORITY: Final = 100


def decode_volcano_queue(parsed: wire.VolcanoQueue) -> Queue:
    """A Volcano Queue; its object ``root`` is there in every cluster and is our root.

    Raises:
        InvalidObject: a field of it is missing, malformed or out of bounds.
    """
    metadata, spec = parsed.metadata, parsed.spec or wire.VolcanoQueueSpec()
    check_identity(metadata, namespaced=False)
    strategy = spec.dequeue_strategy or ""
    if strategy not in _ORDERINGS:
        raise InvalidObject("spec.dequeueStrategy", f"{quoted(strategy)} is not known")
    status, canonical = read_status(parsed.status)
    return Queue(
        name=metadata.name,
        uid=read_uid(metadata),
        resource_version=read_resource_version(metadata),
        generation=metadata.generation,
        created=parse_time(metadata.creation_timestamp or ""),
        parent=_parent(metadata.name, spec.parent),
        weight=1 if spec.weight is None else spec.weight,
        priority=spec.priority or 0,
        guarantee=parse_resources(
            spec.guarantee.resource if spec.guarantee else None, field="spec.guarantee.resource"
        ),
        deserved=parse_resources(spec.deserved, field="spec.deserved"),
        capability=parse_resources(spec.capability, field="spec.capability"),
        reclaimable=spec.reclaimable is not False,
        ordering=_ORDERINGS[strategy],
        # The state is how Volcano's command line closes a queue; the spec has no word for it.
        stop_policy="Hold" if status.state in _STOPPED else "None",
        conditions=decode_conditions(status),
        status=canonical,
        source=kinds.VOLCANO,
    )


def _parent(name: str, parent: str | None) -> str:
    if parent and parent == name and name != ROOT_QUEUE:
        raise InvalidObject("spec.parent", "a queue cannot be its own parent")
    return parent or ROOT_QUEUE


def decode_kai_queue(parsed: wire.KaiQueue) -> Queue:
    """A KAI Queue: GPUs, of which there may be parts, thousandths of a CPU, megabytes; -1 is unlimited, 0 is nothing.

    Raises:
        InvalidObject: a field of it is missing, malformed or out of bounds.
    """
    metadata, spec = parsed.metadata, parsed.spec or wire.KaiQueueSpec()
    check_identity(metadata, namespaced=False)
    resources = spec.resources or wire.KaiResources()
    status, canonical = read_status(parsed.status)
    gpu = resources.gpu or wire.KaiResource()
    limits = _kai_amounts(resources, "limit")
    return Queue(
        name=metadata.name,
        uid=read_uid(metadata),
        resource_version=read_resource_version(metadata),
        generation=metadata.generation,
        created=parse_time(metadata.creation_timestamp or ""),
        parent=_parent(metadata.name, spec.parent_queue),
        weight=max(0, int(1 if gpu.over_quota_weight is None else gpu.over_quota_weight)),
        priority=_KAI_PRIORITY if spec.priority is None else spec.priority,
        deserved=_at_most_limits(_kai_amounts(resources, "quota"), limits),
        capability=limits,
        min_runtime_ns=parse_duration_ns(spec.preempt_min_runtime, field="spec.preemptMinRuntime"),
        conditions=decode_conditions(status),
        status=canonical,
        source=kinds.KAI,
    )


def _kai_amounts(resources: wire.KaiResources, what: str) -> Resources:
    """Amounts in base units; what is unlimited or not said is left out."""
    amounts: dict[str, int] = {}
    for name, part, unit in (
        (gpu_resources().main.name, resources.gpu, DEVICE),
        ("cpu", resources.cpu, 1),
        ("memory", resources.memory, _MEGABYTE),
    ):
        value = None if part is None else getattr(part, what)
        if part is None or value == -1 or (value is None and what == "limit"):
            continue
        if value is not None and not 0 <= value <= QUANTITY_MAX:
            raise InvalidObject(f"spec.resources[].{what}", f"{value} is no amount")
        amounts[name] = round((value or 0) * unit)
    return Resources.of(amounts)


def _at_most_limits(amounts: Resources, limits: Resources) -> Resources:
    """KAI lets a quota be above the limit, where it means nothing."""
    return Resources.of(
        {
            name: min(amount, limits.get(name)) if name in limits else amount
            for name, amount in amounts.items
        }
    )


def _codec(source: str, wire_type: type[Any], entity: Any) -> KindCodec[Any, Queue]:
    kind = kinds.QUEUES[source]

    def adorn(rejected: Rejected, _parts: dict[str, bytes]) -> Rejected:
        return attrs.evolve(rejected, api_version=f"{kind.group}/{kind.versions[0]}")

    return KindCodec("Queue", wire_type=wire_type, entity=entity, ours=True, adorn=adorn)


CODECS: Final = {
    kinds.VOLCANO: _codec(kinds.VOLCANO, wire.VolcanoQueue, decode_volcano_queue),
    kinds.KAI: _codec(kinds.KAI, wire.KaiQueue, decode_kai_queue),
}
