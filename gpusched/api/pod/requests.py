"""What containers of a bound pod were granted: an in-place resize shows here before the spec.

While a resize is under way the node must have room for the largest of what the spec asks for,
what the kubelet has granted and what the container has; a resize that the node has called
infeasible is not waited for, so the spec does not count then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from gpusched.api.affinity import wire as wire_rules
from gpusched.api.devices.numa import aligned_requests
from gpusched.api.meta import raw_json, wire
from gpusched.api.meta.fields import decode_part, parse_resources
from gpusched.api.meta.identity import InvalidObject
from gpusched.api.meta.quantity import QuantityError, parse_quantity
from gpusched.api.meta.resources import NOTHING, PODS, RESOURCE_KINDS_MAX, Resources
from gpusched.api.meta.units import unit_exponent
from gpusched.api.pod import wire as pod_wire
from gpusched.base.classes import frozen
from gpusched.base.limits import QUANTITY_MAX

_PENDING: Final = "PodResizePending"
_INFEASIBLE: Final = "Infeasible"


@frozen(slots=True)
class ContainerGrant:
    """Raw ``allocatedResources`` and ``resources`` of a container or of the pod as a whole.

    Attributes:
        spec_counts: False when the node has said that the spec cannot be granted.
    """

    allocated: bytes = b""
    actual: bytes = b""
    spec_counts: bool = True


NO_GRANT: Final = ContainerGrant()


@frozen(slots=True)
class PodGrants:
    """All that a pod was granted.

    Attributes:
        parts: the content, for interning.
        pod: of the pod as a whole.
    """

    parts: tuple[bytes | bool | str, ...]
    pod: ContainerGrant
    containers: Mapping[str, ContainerGrant]

    def grant_of(self, container: str) -> ContainerGrant:
        """What the kubelet granted to one container."""
        return self.containers.get(container, NO_GRANT)


NO_GRANTS: Final = PodGrants((), NO_GRANT, {})


def read_grants(status: pod_wire.PodStatus | None) -> PodGrants | None:
    """What a status tells; None when it tells nothing of resources."""
    if status is None:
        return None
    listed = [*(status.container_statuses or ()), *(status.init_container_statuses or ())]
    told = [each for each in listed if each.allocated_resources or each.resources]
    if not told and not status.allocated_resources and not status.resources:
        return None
    counts = not any(
        each.type == _PENDING and each.reason == _INFEASIBLE for each in status.conditions or ()
    )
    pod = ContainerGrant(bytes(status.allocated_resources), bytes(status.resources), counts)
    containers = {
        each.name: ContainerGrant(bytes(each.allocated_resources), bytes(each.resources), counts)
        for each in told
    }
    parts: list[bytes | bool | str] = [counts, pod.allocated, pod.actual]
    for name, grant in containers.items():
        parts += [name, grant.allocated, grant.actual]
    return PodGrants(tuple(parts), pod, containers)


_REQUIREMENTS: Final = msgspec.json.Decoder(wire_rules.ResourceRequirements)
_QUANTITIES: Final = msgspec.json.Decoder(wire.Quantities)
_ONE_POD: Final = Resources(((PODS, 1),))
_POD_LEVEL: Final = frozenset({"cpu", "memory"})


@frozen(slots=True)
class ContainerNeed:
    """Raw ``resources`` of a container, whether it is a sidecar, and what it was granted."""

    resources: bytes
    sidecar: bool = False
    grant: ContainerGrant = NO_GRANT


def pod_requests(
    *,
    containers: Iterable[ContainerNeed],
    init_containers: Iterable[ContainerNeed],
    pod_level: bytes,
    overhead: bytes,
    pod_grant: ContainerGrant = NO_GRANT,
) -> Resources:
    """The sum that a node must have, with one piece of ``pods`` and without zeros.

    Raises:
        InvalidObject: a part that cannot be read, or a sum beyond ``QUANTITY_MAX``.
    """
    running = NOTHING
    for need in containers:
        running = running.plus(_granted(need, field="spec.containers[].resources"))
    peak = _initial(init_containers)
    running = running.plus(peak[1]).maximum(peak[0])
    extra = parse_resources(
        decode_part(_QUANTITIES, overhead, field="spec.overhead"), field="spec.overhead"
    )
    running = _with_pod_level(running, pod_level, grant=pod_grant, overhead=extra)
    running = running.plus(extra).plus(_ONE_POD)
    for name, amount in running.items:
        if amount > QUANTITY_MAX:
            raise InvalidObject(
                "spec.containers[].resources", f"the sum of {name} is more than any machine has"
            )
    return Resources(tuple(item for item in running.items if item[1]))


def readable_requests(spec: bytes) -> Resources | None:
    """What a pod takes at most of whose spec something cannot be believed; None for anything.

    An amount that cannot be read is more than any node has, of that resource alone. All init
    containers are added: which of them stay is not looked at.
    """
    amounts = {PODS: 1}
    try:
        parts = raw_json.raw_members(spec)
        if not parts.get("containers", b"").startswith(b"["):
            return None
        needs = [
            raw_json.raw_members(raw_json.raw_members(raw).get("resources", b"{}"))
            for kind in ("containers", "initContainers")
            for raw in raw_json.raw_elements(parts.get(kind, b"[]"))
        ]
        needs.append(raw_json.raw_members(parts.get("resources", b"{}")))
        needs.append({"requests": parts.get("overhead", b"{}")})
        for need in needs:
            asked = {
                **raw_json.raw_members(need.get("limits", b"{}")),
                **raw_json.raw_members(need.get("requests", b"{}")),
            }
            for name, raw in asked.items():
                amounts[name] = min(QUANTITY_MAX, amounts.get(name, 0) + _amount(name, raw))
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    if len(amounts) > RESOURCE_KINDS_MAX:
        return None
    return Resources.of({name: amount for name, amount in amounts.items() if amount})


def _amount(name: str, raw: bytes) -> int:
    try:
        return parse_quantity(raw_json.raw_text(raw) or raw.decode(), power=unit_exponent(name))
    except (QuantityError, UnicodeDecodeError):
        return QUANTITY_MAX


def read_aligned_requests(containers: Iterable[bytes]) -> tuple[Resources, ...]:
    """What a topology manager keeps inside NUMA nodes, by container that stays.

    Raises:
        InvalidObject: a part that cannot be read.
    """
    field = "spec.containers[].resources"
    both = []
    for raw in containers:
        needs = decode_part(_REQUIREMENTS, raw, field=field)
        limits = parse_resources(needs.limits if needs else None, field=f"{field}.limits")
        both.append((_container(raw, field=field), limits))
    return aligned_requests(both)


def _container(raw: bytes, *, field: str) -> Resources:
    """Requests of one container; a limit stands in where there is no request."""
    needs = decode_part(_REQUIREMENTS, raw, field=field)
    if needs is None:
        return NOTHING
    requests = parse_resources(needs.requests, field=f"{field}.requests")
    if not needs.limits:
        return requests
    return parse_resources(needs.limits, field=f"{field}.limits").replaced_by(requests)


def _initial(init_containers: Iterable[ContainerNeed]) -> tuple[Resources, Resources]:
    """The peak while init containers run, and the sum of sidecars that stay."""
    peak = sidecars = NOTHING
    for need in init_containers:
        own = _granted(need, field="spec.initContainers[].resources")
        if need.sidecar:
            sidecars = sidecars.plus(own)
            peak = peak.maximum(sidecars)
        else:
            peak = peak.maximum(own.plus(sidecars))
    return peak, sidecars


def _granted(need: ContainerNeed, *, field: str) -> Resources:
    """The largest of what the spec asks for and what the container was granted and has."""
    asked = _container(need.resources, field=field)
    grant = need.grant
    if not grant.allocated and not grant.actual:
        return asked
    told = _reported_resources(grant, field="status.containerStatuses[]")
    return told.maximum(asked) if grant.spec_counts else told


def _reported_resources(grant: ContainerGrant, *, field: str) -> Resources:
    allocated = decode_part(_QUANTITIES, grant.allocated, field=f"{field}.allocatedResources")
    actual = decode_part(_REQUIREMENTS, grant.actual, field=f"{field}.resources")
    have = parse_resources(actual.requests if actual else None, field=f"{field}.resources.requests")
    return have.maximum(parse_resources(allocated, field=f"{field}.allocatedResources"))


def _with_pod_level(
    running: Resources, raw: bytes, *, grant: ContainerGrant, overhead: Resources
) -> Resources:
    """``spec.resources`` replaces what containers add up to, for what it may name."""
    needs = decode_part(_REQUIREMENTS, raw, field="spec.resources")
    if needs is None:
        return running
    requests = parse_resources(needs.requests, field="spec.resources.requests")
    limits = parse_resources(needs.limits, field="spec.resources.limits")
    missing = [each for each in limits.items if each[0] not in running]
    asked = {**dict(missing), **dict(requests.items)}
    amounts = {name: amount for name, amount in asked.items() if _pod_level(name)}
    if amounts and (grant.allocated or grant.actual):
        told = dict(_reported_resources(grant, field="status").items)
        extra = dict(overhead.items)
        for name, amount in amounts.items():
            # The kubelet counts the overhead in, the spec does not.
            granted = max(0, told.get(name, 0) - extra.get(name, 0))
            amounts[name] = max(granted, amount if grant.spec_counts else 0)
    return running.replaced_by(Resources.of(amounts))


def _pod_level(name: str) -> bool:
    return name in _POD_LEVEL or name.startswith("hugepages-")
