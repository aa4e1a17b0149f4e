# ruff: noqa: ARG002  # strategies share one interface, and few kinds need all of it
"""Volumes, claims of volumes and their classes: stored as they would be, never bound."""

from __future__ import annotations

from typing import Any, Final

from gpusched.cel.quantities import parse_amount
from gpusched.devcluster.apimachinery.field_errors import FieldError, forbidden, invalid, required
from gpusched.devcluster.apimachinery.metadata import name_errors
from gpusched.devcluster.registry.strategy import ServerContext, Strategy

Obj = dict[str, Any]

_DEFAULT_CLASS: Final = "storageclass.kubernetes.io/is-default-class"
_NO_SOURCE: Final = frozenset(
    {
        "accessModes",
        "capacity",
        "claimRef",
        "mountOptions",
        "nodeAffinity",
        "persistentVolumeReclaimPolicy",
        "storageClassName",
        "volumeAttributesClassName",
        "volumeMode",
    }
)
_MODES: Final = "at least 1 access mode is required"


class PersistentVolumeClaimStrategy(Strategy):
    """Claims of volumes: Pending until a client binds them through their status."""

    returns_object = True
    has_status = True

    def prepare_create(self, obj: Obj, core: ServerContext) -> None:
        """Start pending, in the cluster's default class when none is named."""
        obj["status"] = {"phase": "Pending"}
        spec = obj.setdefault("spec", {})
        if "storageClassName" not in spec and not spec.get("volumeName"):
            classes = core.store.collection("storageclasses.storage.k8s.io")
            marked = [stored for _, stored in classes.scan() if _is_default(stored.obj)]
            newest = max(marked, key=lambda s: s.obj["metadata"]["creationTimestamp"], default=None)
            if newest is not None:
                spec["storageClassName"] = newest.obj["metadata"]["name"]

    def default(self, obj: Obj) -> None:
        """Claim a file system unless a block device was asked for."""
        obj["spec"].setdefault("volumeMode", "Filesystem")

    def validate(self, obj: Obj) -> list[FieldError]:
        """Check access modes, requested storage and class of a claim."""
        spec = obj["spec"]
        errors: list[FieldError] = []
        if not spec.get("accessModes"):
            errors.append(required("spec.accessModes", _MODES))
        wanted = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
        if wanted is None:
            errors.append(required("spec.resources[storage]"))
        elif parse_amount(wanted) <= 0:
            why = "must be greater than zero"
            errors.append(invalid("spec.resources[storage]", str(wanted), why))
        if spec.get("storageClassName"):
            errors += name_errors(spec["storageClassName"], field="spec.storageClassName")
        return errors

    def validate_update(self, new: Obj, old: Obj) -> list[FieldError]:
        """Refuse changes of the spec, but for the volume that is bound to it."""
        now, was = dict(new["spec"]), dict(old["spec"])
        if not was.get("volumeName"):
            now.pop("volumeName", None)
        if not was.get("storageClassName"):
            now.pop("storageClassName", None)
        if now == was:
            return []
        why = (
            "spec is immutable after creation except resources.requests and "
            "volumeAttributesClassName for bound claims"
        )
        return [forbidden("spec", why)]


def _is_default(storage_class: Obj) -> bool:
    return (storage_class["metadata"].get("annotations") or {}).get(_DEFAULT_CLASS) == "true"


class PersistentVolumeStrategy(Strategy):
    """Volumes: Pending until a client writes their status."""

    returns_object = True
    has_status = True

    def prepare_create(self, obj: Obj, core: ServerContext) -> None:
        """Start in phase Pending, as on a real server."""
        obj.setdefault("spec", {})
        obj["status"] = {"phase": "Pending"}

    def default(self, obj: Obj) -> None:
        """Retain what was made by hand."""
        spec = obj["spec"]
        spec.setdefault("persistentVolumeReclaimPolicy", "Retain")
        spec.setdefault("volumeMode", "Filesystem")
        if (host := spec.get("hostPath")) is not None:
            host.setdefault("type", "")

    def validate(self, obj: Obj) -> list[FieldError]:
        """Check capacity, access modes and source of a volume."""
        spec = obj["spec"]
        errors: list[FieldError] = []
        if not spec.get("accessModes"):
            errors.append(required("spec.accessModes"))
        if not spec.get("capacity"):
            errors.append(required("spec.capacity"))
        sources = sorted(key for key in spec if key not in _NO_SOURCE)
        if not sources:
            errors.append(required("spec", "must specify a volume type"))
        errors += [
            forbidden(f"spec.{key}", "may not specify more than 1 volume type")
            for key in sources[1:]
        ]
        return errors

    def validate_update(self, new: Obj, old: Obj) -> list[FieldError]:
        """Refuse a change of the volume's source."""
        errors = self.validate(new)
        now, was = new["spec"], old["spec"]
        if {k: v for k, v in now.items() if k not in _NO_SOURCE} != {
            k: v for k, v in was.items() if k not in _NO_SOURCE
        }:
            why = "spec.persistentvolumesource is immutable after creation"
            errors.append(forbidden("spec.persistentvolumesource", why))
        return errors


class StorageClassStrategy(Strategy):
    """Storage classes, whose parameters are immutable."""

    returns_object = True

    def default(self, obj: Obj) -> None:
        """Delete released volumes and bind claims at once."""
        obj.setdefault("reclaimPolicy", "Delete")
        obj.setdefault("volumeBindingMode", "Immediate")

    def validate(self, obj: Obj) -> list[FieldError]:
        """Check the provisioner of a storage class."""
        if not obj.get("provisioner"):
            return [required("provisioner", obj.get("provisioner") or "")]
        return []

    def validate_update(self, new: Obj, old: Obj) -> list[FieldError]:
        """Refuse changes of all but metadata, mount options, expansion and topologies."""
        errors = self.validate(new)
        errors += [
            forbidden(key, f"updates to {key} are forbidden.")
            for key in ("parameters", "provisioner", "reclaimPolicy")
            if new.get(key) != old.get(key)
        ]
        if new["volumeBindingMode"] != old["volumeBindingMode"]:
            errors.append(
                invalid("volumeBindingMode", new["volumeBindingMode"], "field is immutable")
            )
        return errors


class CsiDriverStrategy(Strategy):
    """What is known of a driver of volumes."""

    generation = True
    returns_object = True

    def default(self, obj: Obj) -> None:
        """Fill in what drivers do unless they say otherwise."""
        spec = obj.setdefault("spec", {})
        spec.setdefault("attachRequired", True)
        spec.setdefault("podInfoOnMount", False)
        spec.setdefault("volumeLifecycleModes", ["Persistent"])
        spec.setdefault("storageCapacity", False)
        spec.setdefault("fsGroupPolicy", "ReadWriteOnceWithFSType")
        spec.setdefault("requiresRepublish", False)
        spec.setdefault("seLinuxMount", False)


class StorageObjectStrategy(Strategy):
    """Storage without rules of its own, whose deletion shows the object."""

    returns_object = True
