"""The shape on the wire of claims of volumes, volumes and their classes."""

from __future__ import annotations

from msgspec import Struct

from gpusched.api.affinity.wire import LabelSelector, RequiredTerms
from gpusched.api.meta.wire import Metadata, OwnerReference, Quantities


class ClaimAnnotations(
    Struct,
    gc=False,
    rename={
        "selected_node": "volume.kubernetes.io/selected-node",
        "completed": "pv.kubernetes.io/bind-completed",
    },
):
    """Those of a claim."""

    selected_node: str | None = None
    completed: str | None = None


class ClaimMetadata(Metadata, gc=False, rename="camel"):
    """Metadata of a PersistentVolumeClaim."""

    annotations: ClaimAnnotations | None = None
    owner_references: list[OwnerReference] | None = None


class ClaimResources(Struct, gc=False):
    """How much is claimed."""

    requests: Quantities | None = None


class ClaimSpec(Struct, gc=False, rename="camel"):
    """What a claim asks for."""

    volume_name: str | None = None
    storage_class_name: str | None = None
    access_modes: list[str] | None = None
    volume_mode: str | None = None
    resources: ClaimResources | None = None
    selector: LabelSelector | None = None


class ClaimStatus(Struct, gc=False):
    """Pending, Bound or Lost."""

    phase: str | None = None


class WirePersistentVolumeClaim(Struct, gc=False):
    """A PersistentVolumeClaim as the API sends it."""

    metadata: ClaimMetadata
    spec: ClaimSpec | None = None
    status: ClaimStatus | None = None


class ClaimReference(Struct, gc=False):
    """``spec.claimRef`` of a volume: the claim for which it is kept."""

    namespace: str = ""
    name: str = ""
    uid: str | None = None


class VolumeNodeAffinity(Struct, gc=False):
    """From where a volume can be reached."""

    required: RequiredTerms | None = None


class VolumeSpec(Struct, gc=False, rename="camel"):
    """What a volume offers."""

    capacity: Quantities | None = None
    access_modes: list[str] | None = None
    storage_class_name: str | None = None
    volume_mode: str | None = None
    node_affinity: VolumeNodeAffinity | None = None
    claim_ref: ClaimReference | None = None


class WirePersistentVolume(Struct, gc=False):
    """A PersistentVolume as the API sends it."""

    metadata: Metadata
    spec: VolumeSpec | None = None
    status: ClaimStatus | None = None


class TopologyExpression(Struct, gc=False):
    """Values of one label."""

    key: str
    values: list[str]


class TopologyTerm(Struct, gc=False, rename="camel"):
    """Labels of nodes, ANDed."""

    match_label_expressions: list[TopologyExpression] | None = None


class WireStorageClass(Struct, gc=False, rename="camel"):
    """A StorageClass as the API sends it."""

    metadata: Metadata
    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: list[TopologyTerm] | None = None
