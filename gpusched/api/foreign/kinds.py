"""Which kinds of other projects are read when the API server serves them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gpusched.base.classes import frozen

OWN: Final = ""
"""The source of objects of our own kinds."""
NATIVE: Final = "native"
COSCHEDULING: Final = "coscheduling"
VOLCANO: Final = "volcano"
KAI: Final = "kai"
SOURCES: Final = (OWN, NATIVE, COSCHEDULING, VOLCANO, KAI)
"""Of groups and queues; of several with one name the first of these counts."""


@frozen(slots=True, kw_only=True)
class ForeignKind:
    """One kind.

    Attributes:
        group: API group.
        versions: that can be read, best first; of those served the first is used, alone.
        plural, kind: as in paths and in objects.
        source: for groups and queues, one of ``SOURCES``; empty for workloads.
        writes: whether status is written back.
        namespaced: whether its objects are in namespaces.
    """

    group: str
    versions: tuple[str, ...]
    plural: str
    kind: str
    source: str = ""
    writes: bool = False
    namespaced: bool = True

    @property
    def name(self) -> str:
        """Plural and group: unique, and what people see in logs and metrics."""
        return f"{self.plural}.{self.group}"


@frozen(slots=True)
class ServedForeignKind:
    """Where the API server has a kind.

    Attributes:
        api_version: group and version.
        plural: as in paths.
        status: whether status is a subresource; else it is written with the object.
    """

    api_version: str
    plural: str
    status: bool

    @property
    def path(self) -> str:
        """Of the collection over all namespaces."""
        return f"/apis/{self.api_version}/{self.plural}"

    def object_path(self, namespace: str, name: str) -> str:
        """Of one object; both names already quoted, no namespace for cluster-scoped kinds."""
        inside = f"/namespaces/{namespace}" if namespace else ""
        return f"/apis/{self.api_version}{inside}/{self.plural}/{name}"

    def status_path(self, namespace: str, name: str) -> str:
        """Where its status is patched."""
        return self.object_path(namespace, name) + ("/status" if self.status else "")


POD_GROUPS: Final[Mapping[str, ForeignKind]] = {
    NATIVE: ForeignKind(
        group="scheduling.k8s.io",
        versions=("v1", "v1beta1", "v1alpha3", "v1alpha2"),
        plural="podgroups",
        kind="PodGroup",
        source=NATIVE,
        writes=True,
    ),
    COSCHEDULING: ForeignKind(
        group="scheduling.x-k8s.io",
        versions=("v1alpha1",),
        plural="podgroups",
        kind="PodGroup",
        source=COSCHEDULING,
        writes=True,
    ),
    VOLCANO: ForeignKind(
        group="scheduling.volcano.sh",
        versions=("v1beta1",),
        plural="podgroups",
        kind="PodGroup",
        source=VOLCANO,
        writes=True,
    ),
    KAI: ForeignKind(
        group="scheduling.run.ai",
        versions=("v2alpha2",),
        plural="podgroups",
        kind="PodGroup",
        source=KAI,
    ),
}
COMPOSITES: Final[Mapping[str, ForeignKind]] = {
    NATIVE: ForeignKind(
        group="scheduling.k8s.io",
        versions=("v1", "v1beta2", "v1beta1", "v1alpha3"),
        plural="compositepodgroups",
        kind="CompositePodGroup",
        source=NATIVE,
        writes=True,
    ),
}
"""Groups of groups, by source."""
QUEUES: Final[Mapping[str, ForeignKind]] = {
    VOLCANO: ForeignKind(
        group="scheduling.volcano.sh",
        versions=("v1beta1",),
        plural="queues",
        kind="Queue",
        source=VOLCANO,
        writes=True,
        namespaced=False,
    ),
    KAI: ForeignKind(
        group="scheduling.run.ai",
        versions=("v2",),
        plural="queues",
        kind="Queue",
        source=KAI,
        namespaced=False,
    ),
}


def _workload(group: str, kind: str, plural: str, *versions: str) -> ForeignKind:
    return ForeignKind(group=group, versions=versions, plural=plural, kind=kind)


WORKLOADS: Final[Mapping[str, ForeignKind]] = {
    each.kind: each
    for each in (
        _workload("jobset.x-k8s.io", "JobSet", "jobsets", "v1alpha2"),
        _workload("leaderworkerset.x-k8s.io", "LeaderWorkerSet", "leaderworkersets", "v1"),
        _workload("kubeflow.org", "PyTorchJob", "pytorchjobs", "v1"),
        _workload("kubeflow.org", "TFJob", "tfjobs", "v1"),
        _workload("kubeflow.org", "XGBoostJob", "xgboostjobs", "v1"),
        _workload("kubeflow.org", "JAXJob", "jaxjobs", "v1"),
        _workload("kubeflow.org", "PaddleJob", "paddlejobs", "v1"),
        _workload("kubeflow.org", "MPIJob", "mpijobs", "v2beta1", "v1"),
        _workload("ray.io", "RayCluster", "rayclusters", "v1"),
        _workload(
            "scheduling.k8s.io",
            "Workload",
            "workloads",
            "v1",
            "v1beta1",
            "v1alpha3",
            "v1alpha2",
            "v1alpha1",
        ),
    )
}
"""By kind."""
_DEVICE_VERSIONS: Final = ("v1", "v1beta2", "v1beta1")
DYNAMIC_DEVICE_KINDS: Final[Mapping[str, ForeignKind]] = {
    kind: ForeignKind(
        group="resource.k8s.io",
        versions=versions,
        plural=f"{kind.lower()}{'es' if kind.endswith('s') else 's'}",
        kind=kind,
        namespaced=kind in {"ResourceClaim", "ResourceClaimTemplate"},
    )
    for kind, versions in (
        ("ResourceSlice", _DEVICE_VERSIONS),
        ("DeviceClass", _DEVICE_VERSIONS),
        ("DeviceTaintRule", ("v1beta2", "v1alpha3")),
        ("ResourceClaimTemplate", _DEVICE_VERSIONS),
        ("ResourceClaim", _DEVICE_VERSIONS),
    )
}
"""Of dynamic resource allocation, by kind; claims after what they name."""
DEVICE_KINDS: Final[Mapping[str, ForeignKind]] = {
    **DYNAMIC_DEVICE_KINDS,
    "NodeResourceTopology": ForeignKind(
        group="topology.node.k8s.io",
        versions=("v1alpha2",),
        plural="noderesourcetopologies",
        kind="NodeResourceTopology",
        namespaced=False,
    ),
}
"""Of the inside of nodes, by kind."""
ALL: Final[tuple[ForeignKind, ...]] = (
    *POD_GROUPS.values(),
    *COMPOSITES.values(),
    *QUEUES.values(),
    *WORKLOADS.values(),
    *DEVICE_KINDS.values(),
)


def api_version_of(kind: str) -> str:
    """Group and version of a workload's kind, for events; empty for none of ours."""
    found = WORKLOADS.get(kind)
    if found is None:
        return ""
    # A native Workload is a gang itself in its first version alone.
    return f"{found.group}/{found.versions[-1 if kind == 'Workload' else 0]}"
