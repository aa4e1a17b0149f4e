# ruff: noqa: ARG002  # strategies share one interface, and few kinds need all of it
"""Namespaces and the service accounts in them: phase, finalizers, the label with the name."""

from __future__ import annotations

from typing import Any

from gpusched.devcluster.apimachinery.field_errors import FieldError, invalid
from gpusched.devcluster.apimachinery.metadata import STANDARD_FINALIZERS, key_errors
from gpusched.devcluster.registry.strategy import ServerContext, Strategy

Obj = dict[str, Any]


class ServiceAccountStrategy(Strategy):
    """Service accounts: plain storage whose deletion shows the object."""

    checks_metadata_again = True
    returns_object = True


class NamespaceStrategy(Strategy):
    """Namespaces: a phase, a finalizer of their own, and a label with their name."""

    checks_metadata_again = True
    label_name = True
    returns_object = True
    has_status = True

    def prepare_create(self, obj: Obj, core: ServerContext) -> None:
        """Start active, to be finalized by the namespace controller."""
        spec = obj.setdefault("spec", {})
        finalizers = spec.setdefault("finalizers", [])
        if "kubernetes" not in finalizers:
            finalizers.append("kubernetes")
        obj["status"] = {"phase": "Active"}
        labels = obj["metadata"].setdefault("labels", {})
        labels["kubernetes.io/metadata.name"] = obj["metadata"].get("name", "")

    def prepare_update(self, new: Obj, old: Obj) -> None:
        """Keep finalizers and status: they have their own subresources."""
        super().prepare_update(new, old)
        new["spec"] = {**(new.get("spec") or {}), **(old.get("spec") or {})}
        name = old["metadata"]["name"]
        labels = new["metadata"].get("labels") or {}
        new["metadata"]["labels"] = {**labels, "kubernetes.io/metadata.name": name}

    def validate(self, obj: Obj) -> list[FieldError]:
        """Check the finalizers that keep a namespace."""
        finalizers = (obj.get("spec") or {}).get("finalizers") or ()
        why = "name is neither a standard finalizer name nor is it fully qualified"
        errors = [e for name in finalizers for e in key_errors(name, "spec.finalizers")]
        return errors + [
            invalid("spec.finalizers", name, why)
            for name in finalizers
            if "/" not in name and name not in STANDARD_FINALIZERS
        ]

    def validate_status(self, new: Obj, old: Obj) -> list[FieldError]:
        """Let the phase say no more than the deletion mark does."""
        deleted = bool(old["metadata"].get("deletionTimestamp"))
        phase = (new.get("status") or {}).get("phase") or ""
        wanted = "Terminating" if deleted else "Active"
        if phase == wanted:
            return []
        mark = "not empty" if deleted else "empty"
        why = f"may only be '{wanted}' if `deletionTimestamp` is {mark}"
        return [invalid("status.Phase", phase, why)]

    def mark_deleted(self, obj: Obj) -> None:
        """Show the phase that forbids creates; a namespace knows no grace."""
        del obj["metadata"]["deletionGracePeriodSeconds"]
        obj["status"] = {**(obj.get("status") or {}), "phase": "Terminating"}

    def stays_when_deleted(self, obj: Obj) -> bool:
        """Stay until the namespace controller has emptied it."""
        return bool((obj.get("spec") or {}).get("finalizers"))
