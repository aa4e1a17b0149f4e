"""What one pod takes from its node, by the rules of the kubelet and kube-scheduler.

Init containers run one after another before the others, so only the largest counts; one with
``restartPolicy: Always`` (a sidecar) stays, so it counts with all that start after it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import attrs
import msgspec

from gpusched.limits import QUANTITY_MAX
from gpusched.objects import wire
from gpusched.objects.fields import decode_part, parse_resources
from gpusched.objects.meta import Disbelief
from gpusched.objects.resources import NOTHING, PODS, Resources

_REQUIREMENTS: Final = msgspec.json.Decoder(wire.ResourceRequirements)
_QUANTITIES: Final = msgspec.json.Decoder(wire.Quantities)
_ONE_POD: Final = Resources(((PODS, 1),))
_POD_LEVEL: Final = frozenset({"cpu", "memory"})


@attrs.frozen(slots=True)
class ContainerNeed:
    """Raw ``resources`` of a container, and whether it is a sidecar."""

    resources: bytes
    sidecar: bool = False


def pod_requests(
    *,
    containers: Iterable[ContainerNeed],
    init_containers: Iterable[ContainerNeed],
    pod_level: bytes,
    overhead: bytes,
) -> Resources:
    """The sum that a node must have, with one piece of ``pods`` and without zeros.

    Raises:
        Disbelief: a part that cannot be read, or a sum beyond ``QUANTITY_MAX``.
    """
    running = NOTHING
    for need in containers:
        running = running.plus(_container(need.resources, field="spec.containers[].resources"))
    peak = _initial(init_containers)
    running = running.plus(peak[1]).maximum(peak[0])
    running = _with_pod_level(running, pod_level)
    extra = decode_part(_QUANTITIES, overhead, field="spec.overhead")
    running = running.plus(parse_resources(extra, field="spec.overhead")).plus(_ONE_POD)
    for name, amount in running.items:
        if amount > QUANTITY_MAX:
            raise Disbelief(
                "spec.containers[].resources", f"the sum of {name} is more than any machine has"
            )
    return Resources(tuple(item for item in running.items if item[1]))


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
        own = _container(need.resources, field="spec.initContainers[].resources")
        if need.sidecar:
            sidecars = sidecars.plus(own)
            peak = peak.maximum(sidecars)
        else:
            peak = peak.maximum(own.plus(sidecars))
    return peak, sidecars


def _with_pod_level(running: Resources, raw: bytes) -> Resources:
    """``spec.resources`` replaces what containers add up to, for what it may name."""
    needs = decode_part(_REQUIREMENTS, raw, field="spec.resources")
    if needs is None:
        return running
    requests = parse_resources(needs.requests, field="spec.resources.requests")
    limits = parse_resources(needs.limits, field="spec.resources.limits")
    missing = [each for each in limits.items if each[0] not in running]
    amounts = {**dict(missing), **dict(requests.items)}
    return running.replaced_by(
        Resources.of({name: amount for name, amount in amounts.items() if _pod_level(name)})
    )


def _pod_level(name: str) -> bool:
    return name in _POD_LEVEL or name.startswith("hugepages-")
