"""What containers of a bound pod were granted: an in-place resize shows here before the spec.

While a resize is under way the node must have room for the largest of what the spec asks for,
what the kubelet has granted and what the container has; a resize that the node has called
infeasible is not waited for, so the spec does not count then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from gpusched.objects import wire

_PENDING: Final = "PodResizePending"
_INFEASIBLE: Final = "Infeasible"


@attrs.frozen(slots=True)
class Grant:
    """Raw ``allocatedResources`` and ``resources`` of a container or of the pod as a whole.

    Attributes:
        spec_counts: False when the node has said that the spec cannot be granted.
    """

    allocated: bytes = b""
    actual: bytes = b""
    spec_counts: bool = True


NO_GRANT: Final = Grant()


@attrs.frozen(slots=True)
class Grants:
    """All that a pod was granted.

    Attributes:
        parts: the content, for interning.
        pod: of the pod as a whole.
    """

    parts: tuple[bytes | bool | str, ...]
    pod: Grant
    containers: Mapping[str, Grant]

    def of(self, container: str) -> Grant:
        """Of one container."""
        return self.containers.get(container, NO_GRANT)


NO_GRANTS: Final = Grants((), NO_GRANT, {})


def grants_of(status: wire.PodStatus | None) -> Grants | None:
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
    pod = Grant(bytes(status.allocated_resources), bytes(status.resources), counts)
    containers = {
        each.name: Grant(bytes(each.allocated_resources), bytes(each.resources), counts)
        for each in told
    }
    parts: list[bytes | bool | str] = [counts, pod.allocated, pod.actual]
    for name, grant in containers.items():
        parts += [name, grant.allocated, grant.actual]
    return Grants(tuple(parts), pod, containers)
