"""Which kinds are recorded, and in which order their objects can be applied."""

from __future__ import annotations

from typing import Any, Final

import attrs

from gpusched.io.adapters import codec_of
from gpusched.io.feeds import KINDS
from gpusched.objects.adapters import kinds
from gpusched.objects.decode import CODECS
from gpusched.simulate.recorded_parts import RESOURCE_QUOTA, recorded
from gpusched.simulate.trim import Shape


@attrs.frozen(kw_only=True)
class RecordedKind:
    """One kind.

    Attributes:
        resource: plural name with group, as kubectl takes it.
        kind: as in objects.
        places: API version and path of the collection, best first; the first one served counts.
        shape: what is recorded of an object.
    """

    resource: str
    kind: str
    places: tuple[tuple[str, str], ...]
    shape: Shape


def _usual(plural: str) -> RecordedKind:
    path = KINDS[plural]
    codec: Any = CODECS[plural]
    api_version = path.removeprefix("/apis/").removeprefix("/api/").rpartition("/")[0]
    group = api_version.rpartition("/")[0]
    return RecordedKind(
        resource=f"{plural}.{group}" if group else plural,
        kind=codec.kind,
        places=((api_version, path),),
        shape=recorded(codec.wire_type),
    )


def _foreign(kind: kinds.ForeignKind) -> RecordedKind:
    return RecordedKind(
        resource=kind.name,
        kind=kind.kind,
        places=tuple(
            (f"{kind.group}/{version}", f"/apis/{kind.group}/{version}/{kind.plural}")
            for version in kind.versions
        ),
        shape=recorded(codec_of(kind).wire_type),
    )


_FIRST: Final = (
    "namespaces", "priorityclasses", "storageclasses", "queues", "topologies", "nodes",
    "persistentvolumes", "persistentvolumeclaims", "poddisruptionbudgets",
)  # fmt: skip
"""What others name."""
_LAST: Final = ("podgroups", "jobs", "pods")
_QUOTAS: Final = RecordedKind(
    resource="resourcequotas",
    kind="ResourceQuota",
    places=(("v1", "/api/v1/resourcequotas"),),
    shape=RESOURCE_QUOTA,
)
RECORDED: Final = (
    *map(_usual, _FIRST),
    *map(_foreign, kinds.INSIDES.values()),
    *map(_foreign, kinds.QUEUES.values()),
    *map(_foreign, kinds.POD_GROUPS.values()),
    *map(_foreign, kinds.WORKLOADS.values()),
    *map(_usual, _LAST),
    _QUOTAS,
)
"""In the order of the file: a pod comes after its Job and its node, quotas after what they count."""
assert {*_FIRST, *_LAST, _QUOTAS.resource} == {*KINDS}, "a kind that is read is not recorded"
