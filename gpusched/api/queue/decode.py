"""Queues: from the wire to the entity, checked once more where the CRD is older or switched off."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from gpusched.api.affinity.decode import parse_selector
from gpusched.api.affinity.selector import EVERYTHING
from gpusched.api.meta.codec import KindCodec
from gpusched.api.meta.fields import (
    check_identity,
    parse_duration_ns,
    parse_resources,
    quoted,
    read_resource_version,
    read_uid,
)
from gpusched.api.meta.identity import InvalidObject, parse_time
from gpusched.api.meta.quantity import QuantityError
from gpusched.api.meta.resources import NOTHING, Resources
from gpusched.api.meta.status import (
    ShardRowStatus,
    StartTallyStatus,
    UsageStatus,
    decode_conditions,
    read_status,
)
from gpusched.api.meta.wire import Quantities
from gpusched.api.queue import wire as queue_wire
from gpusched.api.queue.decode_limits import (
    decode_budget,
    decode_budget_record,
    decode_user_limits,
)
from gpusched.api.queue.queue import ROOT_QUEUE, NodePool, Queue, QueueShardRow, QueueUsage
from gpusched.api.queue.start_errors import KNOWN_BY_MAX, StartErrors, read_tally


def decode_queue(parsed: queue_wire.WireQueue) -> Queue:
    """A parsed Queue as an entity.

    Raises:
        InvalidObject: a field of it is missing, malformed or out of bounds.
    """
    metadata, spec = parsed.metadata, parsed.spec or queue_wire.QueueSpec()
    check_identity(metadata, namespaced=False)
    parent = spec.parent or ROOT_QUEUE
    if metadata.name == ROOT_QUEUE:
        raise InvalidObject("metadata.name", "the queue root exists by itself")
    if parent == metadata.name:
        raise InvalidObject("spec.parent", "a queue cannot be its own parent")
    guarantee = parse_resources(
        spec.guarantee.resource if spec.guarantee else None, field="spec.guarantee.resource"
    )
    deserved = parse_resources(spec.deserved, field="spec.deserved")
    capability = parse_resources(spec.capability, field="spec.capability")
    _check_order(guarantee, deserved, field="spec.guarantee", above="deserved")
    _check_order(guarantee, capability, field="spec.guarantee", above="capability")
    _check_order(deserved, capability, field="spec.deserved", above="capability")
    status, canonical = read_status(parsed.status)
    selector = spec.namespace_selector
    return Queue(
        name=metadata.name,
        uid=read_uid(metadata),
        resource_version=read_resource_version(metadata),
        generation=metadata.generation,
        created=parse_time(metadata.creation_timestamp or ""),
        parent=parent,
        weight=1 if spec.weight is None else spec.weight,
        priority=spec.priority or 0,
        guarantee=guarantee,
        deserved=deserved,
        capability=capability,
        reclaimable=spec.reclaimable is not False,
        ordering=spec.ordering or "Priority",
        stop_policy=spec.stop_policy or "None",
        min_runtime_ns=parse_duration_ns(spec.min_runtime, field="spec.minRuntime"),
        max_runtime_ns=parse_duration_ns(spec.max_runtime, field="spec.maxRuntime"),
        max_wait_ns=parse_duration_ns(spec.max_wait, field="spec.maxWait"),
        namespaces=EVERYTHING
        if selector is None
        else parse_selector(
            selector.match_labels, selector.match_expressions, field="spec.namespaceSelector"
        ),
        node_pools=_node_pools(spec.node_pools),
        user_limits=decode_user_limits(spec.user_limits),
        budget=decode_budget(spec.budget),
        budget_record=decode_budget_record(status.budget),
        conditions=decode_conditions(status),
        usage=_usage_of(status.usage),
        start_errors=decode_start_errors(status.start_estimates or ()),
        shard_rows=_shard_rows_of(status.shards or ()),
        status=canonical,
    )


def _usage_of(usage: UsageStatus | None) -> QueueUsage:
    if usage is None or not usage.as_of:
        return QueueUsage()
    return QueueUsage(
        parse_time(usage.as_of),
        tuple(sorted((usage.average or {}).items())),
        tuple(sorted((usage.share or {}).items())),
    )


def decode_start_errors(tallies: Sequence[StartTallyStatus]) -> StartErrors:
    """What was counted of starts; each kind once, and what we never write left out."""
    found = {
        each.known_by: tally
        for each in tallies[:KNOWN_BY_MAX]
        if (
            tally := read_tally(
                each.known_by, each.starts_by_percent or {}, ranged=each.ranged, held=each.held
            )
        )
    }
    return StartErrors(tuple(found[name] for name in sorted(found)))


def _shard_rows_of(rows: Sequence[ShardRowStatus]) -> tuple[QueueShardRow, ...]:
    """Its parts by shard; amounts that cannot be read are left out until their daemon writes them again."""
    return tuple(
        QueueShardRow(
            name=row.name,
            allocated=_readable_amounts(row.allocated),
            start_errors=decode_start_errors(row.start_estimates or ()),
        )
        for row in rows
    )


def _readable_amounts(amounts: Quantities | None) -> Resources:
    try:
        return Resources.parse(amounts, field="status.shards")
    except QuantityError:
        return NOTHING


def _check_order(low: Resources, high: Resources, *, field: str, above: str) -> None:
    for name, amount in low.items:
        if name in high and amount > high.get(name):
            raise InvalidObject(field, f"exceeds {above} in {quoted(name)}")


def _node_pools(pools: Iterable[queue_wire.WireNodePool] | None) -> tuple[NodePool, ...]:
    made: list[NodePool] = []
    for pool in pools or ():
        if any(pool.name == known.name for known in made):
            raise InvalidObject("spec.nodePools[].name", f"{quoted(pool.name)} is there twice")
        made.append(
            NodePool(
                name=pool.name,
                node_selector=tuple(sorted((pool.node_selector or {}).items())),
                deserved=parse_resources(pool.deserved, field="spec.nodePools[].deserved"),
                capability=parse_resources(pool.capability, field="spec.nodePools[].capability"),
            )
        )
    return tuple(made)


QUEUES: Final = KindCodec("Queue", wire_type=queue_wire.WireQueue, entity=decode_queue, ours=True)
