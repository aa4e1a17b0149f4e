"""Claims of volumes, volumes and their classes: from the wire to the entity."""

from __future__ import annotations

from typing import Final

from gpusched.api.affinity.decode import node_terms, parse_selector
from gpusched.api.meta import wire
from gpusched.api.meta.codec import KindCodec
from gpusched.api.meta.fields import (
    check_identity,
    parse_resources,
    read_labels,
    read_resource_version,
    read_uid,
)
from gpusched.api.meta.identity import UID, ObjectKey
from gpusched.api.volumes import wire as wire_volumes
from gpusched.api.volumes.volume import PersistentVolume, PersistentVolumeClaim, StorageClass

_BLOCK: Final = "Block"
_WAITS: Final = "WaitForFirstConsumer"


def decode_claim(parsed: wire_volumes.WirePersistentVolumeClaim) -> PersistentVolumeClaim:
    """A parsed claim as an entity.

    Raises:
        InvalidObject: a field of it is missing, malformed or out of bounds.
    """
    metadata, spec = parsed.metadata, parsed.spec or wire_volumes.ClaimSpec()
    check_identity(metadata, namespaced=True)
    notes = metadata.annotations or wire_volumes.ClaimAnnotations()
    owners = [each.uid for each in metadata.owner_references or () if each.controller]
    chosen = spec.selector
    return PersistentVolumeClaim(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=read_uid(metadata),
        resource_version=read_resource_version(metadata),
        volume=spec.volume_name or "",
        bound=bool(spec.volume_name) and notes.completed is not None,
        lost=parsed.status is not None and parsed.status.phase == "Lost",
        deleting=metadata.deletion_timestamp is not None,
        storage_class=spec.storage_class_name or "",
        selected_node=notes.selected_node or "",
        owner=UID(owners[0]) if owners else UID(""),
        modes=tuple(sorted(spec.access_modes or ())),
        block=spec.volume_mode == _BLOCK,
        size=_size(spec.resources.requests if spec.resources else None, "spec.resources.requests"),
        selector=None
        if chosen is None
        else parse_selector(chosen.match_labels, chosen.match_expressions, field="spec.selector"),
    )


def _size(amounts: wire.Quantities | None, field: str) -> int:
    return parse_resources(amounts, field=field).get("storage")


def decode_volume(parsed: wire_volumes.WirePersistentVolume) -> PersistentVolume:
    """A parsed volume as an entity.

    Raises:
        InvalidObject: a field of it is missing, malformed or out of bounds.
    """
    metadata, spec = parsed.metadata, parsed.spec or wire_volumes.VolumeSpec()
    check_identity(metadata, namespaced=False)
    affinity = spec.node_affinity.required if spec.node_affinity else None
    promised = spec.claim_ref
    return PersistentVolume(
        name=metadata.name,
        uid=read_uid(metadata),
        resource_version=read_resource_version(metadata),
        labels=read_labels(metadata),
        nodes=None if affinity is None else node_terms(affinity, field="spec.nodeAffinity"),
        storage_class=spec.storage_class_name or "",
        modes=tuple(sorted(spec.access_modes or ())),
        block=spec.volume_mode == _BLOCK,
        size=_size(spec.capacity, "spec.capacity"),
        promised=ObjectKey(promised.namespace, promised.name) if promised else None,
        promised_uid=(promised.uid or "") if promised else "",
        available=parsed.status is not None and parsed.status.phase == "Available",
        deleting=metadata.deletion_timestamp is not None,
    )


def decode_storage_class(parsed: wire_volumes.WireStorageClass) -> StorageClass:
    """A parsed class as an entity.

    Raises:
        InvalidObject: a field of it is missing, malformed or out of bounds.
    """
    metadata = parsed.metadata
    check_identity(metadata, namespaced=False)
    return StorageClass(
        name=metadata.name,
        uid=read_uid(metadata),
        resource_version=read_resource_version(metadata),
        provisioner=parsed.provisioner,
        waits=parsed.volume_binding_mode == _WAITS,
        topologies=tuple(
            tuple(
                (each.key, tuple(sorted(each.values)))
                for each in term.match_label_expressions or ()
            )
            for term in parsed.allowed_topologies or ()
        ),
    )


CLAIMS: Final = KindCodec(
    "PersistentVolumeClaim", wire_type=wire_volumes.WirePersistentVolumeClaim, entity=decode_claim
)
VOLUMES: Final = KindCodec(
    "PersistentVolume", wire_type=wire_volumes.WirePersistentVolume, entity=decode_volume
)
STORAGE_CLASSES: Final = KindCodec(
    "StorageClass", wire_type=wire_volumes.WireStorageClass, entity=decode_storage_class
)
