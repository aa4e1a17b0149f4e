"""Which kinds of gangs a release serves, and under which versions.

The first version that serves a kind is the one its objects are stored in. Two versions of one
kind differ by name alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from gpusched.base.classes import frozen
from gpusched.devcluster.registry.gangs.features import COMPOSITE, GangFeatures
from gpusched.devcluster.registry.gangs.strategies import (
    CompositePodGroupStrategy,
    PodGroupStrategy,
    WorkloadStrategy,
)
from gpusched.devcluster.registry.strategy import Strategy

Obj = dict[str, Any]

GROUP: Final = "scheduling.k8s.io"
_STATUS_VERBS: Final = ("get", "patch", "update")
_VERBS: Final = (
    "create", "delete", "deletecollection", "get", "list", "patch", "update", "watch",
)  # fmt: skip
_VERSIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "1.36": ("v1alpha2",),
    "1.37": ("v1beta1", "v1alpha3"),
}


@frozen
class GangKind:
    """One kind of gangs in one version; ``has_status`` tells of the status subresource."""

    version: str
    plural: str
    kind: str
    strategy: Strategy
    has_status: bool = True

    @property
    def verbs(self) -> tuple[str, ...]:
        """What can be done with its objects, as discovery orders it."""
        return _VERBS

    @property
    def subresources(self) -> tuple[Obj, ...]:
        """Its subresources, as aggregated discovery tells them."""
        if not self.has_status:
            return ()
        kind = {"group": "", "version": "", "kind": self.kind}
        return ({"subresource": "status", "responseKind": kind, "verbs": list(_STATUS_VERBS)},)


def gang_kinds(features: GangFeatures) -> Iterator[GangKind]:
    """Yield the kinds that are served, in the order of discovery."""
    if not features.served:
        return
    groups, workloads = PodGroupStrategy(features), WorkloadStrategy(features)
    composite = CompositePodGroupStrategy(features)
    for version in _VERSIONS[features.release]:
        if version == "v1alpha3" and features.enabled(COMPOSITE):
            yield GangKind(version, "compositepodgroups", "CompositePodGroup", composite)
        yield GangKind(version, "podgroups", "PodGroup", groups)
        yield GangKind(version, "workloads", "Workload", workloads, has_status=False)


def version_view(group: str, version: str, kind: str) -> Callable[[Obj], Obj] | None:
    """Return how a stored object appears in a version; None where it already does."""
    if group != GROUP or version != "v1alpha3" or kind == "CompositePodGroup":
        return None
    return lambda obj: {**obj, "apiVersion": f"{group}/{version}"}


def stored_version(group: str, version: str, kind: str) -> str:
    """Return the version in which objects of a version are stored."""
    newer = group == GROUP and version == "v1alpha3" and kind != "CompositePodGroup"
    return "v1beta1" if newer else version
