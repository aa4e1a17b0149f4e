# ruff: noqa: ARG002  # strategies share one interface, and few kinds need all of it
"""What create, update and status writes may change, kind by kind.

The base class is plain storage; a kind overrides what it does differently. ``obj`` and ``new``
are always owned by the caller and may be changed in place, ``old`` is stored and may not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpusched.devcluster.apimachinery.field_errors import FieldError, invalid
from gpusched.devcluster.apimachinery.metadata import STANDARD_FINALIZERS, key_errors
from gpusched.devcluster.registry.policy.disruption_budgets import budget_errors

if TYPE_CHECKING:
    from gpusched.devcluster.apiserver.server_state import ServerState

Obj = dict[str, Any]


class Strategy:
    """Plain storage with metadata rules; the attributes say how a kind differs.

    Attributes:
        generation: whether metadata.generation counts changes of the spec.
        label_name: whether the name must be a DNS label.
        segment_name: whether the name may be whatever fits into a path.
        returns_object: whether deletion answers with the object instead of a Status.
        create_on_update: whether PUT creates what is missing.
        needs_version: whether PUT must carry a resourceVersion.
        has_status: whether the status is written through its own subresource only.
        knows_all: whether ``validate`` covers what the schema would find as well.
        default_propagation: what becomes of dependents when a deletion does not say;
            ``None`` for kinds that have none.
        deletion_warning: what a client is told who relies on that.
        checks_changes_again: whether updates tell errors of changed metadata once more.
        checks_metadata_again: whether updates tell errors of all metadata once more.
    """

    generation = False
    label_name = False
    segment_name = False
    returns_object = False
    create_on_update = False
    needs_version = False
    has_status = False
    knows_all = False
    default_propagation = "Background"
    deletion_warning = ""
    checks_changes_again = True
    checks_metadata_again = False

    def prepare_create(self, obj: Obj, core: ServerState) -> None:
        """Fill in what the server decides; by default a client's status is dropped."""
        if self.has_status:
            obj.pop("status", None)

    def default(self, obj: Obj) -> None:
        """Fill in the values that absent fields stand for."""

    def validate(self, obj: Obj) -> list[FieldError]:
        """Check an object beyond its schema."""
        return []

    def prepare_update(self, new: Obj, old: Obj) -> None:
        """Undo what an update of the main resource may not touch."""
        if self.has_status:
            _keep(new, old, "status")

    def validate_update(self, new: Obj, old: Obj) -> list[FieldError]:
        """Check a change of the main resource."""
        return self.validate(new)

    def prepare_status(self, new: Obj, old: Obj) -> None:
        """Undo what a status write may not touch."""
        for key in [k for k in new if k not in {"metadata", "status"}]:
            if key not in old:
                del new[key]
        for key, value in old.items():
            if key not in {"metadata", "status"}:
                new[key] = value

    def validate_status(self, new: Obj, old: Obj) -> list[FieldError]:
        """Check a change of the status."""
        return []

    def prepare_finalize(self, new: Obj, old: Obj) -> None:
        """Undo what a finalize write may not touch: everything but ``spec.finalizers``."""
        spec = dict(old.get("spec") or {})
        spec["finalizers"] = (new.get("spec") or {}).get("finalizers") or []
        for key in new.keys() - old.keys():
            del new[key]
        for key, value in old.items():
            if key != "metadata":
                new[key] = value
        new["spec"] = spec

    def allocate(self, new: Obj, old: Obj | None, core: ServerState) -> None:
        """Give out what is unique in the cluster to a valid object; raises StatusError."""

    def raises_generation(self, new: Obj, old: Obj) -> bool:
        """Tell whether an update counts as a new generation."""
        return new.get("spec") != old.get("spec")

    def grace_s(self, obj: Obj, asked: int | None) -> int | None:
        """Return the seconds a deletion waits; None for kinds that know no grace."""
        return None

    def mark_deleted(self, obj: Obj) -> None:
        """Show in a shallow copy that deletion has begun."""

    def stays_when_deleted(self, obj: Obj) -> bool:
        """Tell whether something other than metadata.finalizers keeps a deleted object."""
        return False


def _keep(new: Obj, old: Obj, key: str) -> None:
    if key in old:
        new[key] = old[key]
    else:
        new.pop(key, None)


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

    def prepare_create(self, obj: Obj, core: ServerState) -> None:
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


class LeaseStrategy(Strategy):
    """Leases: a PUT creates, durations are positive."""

    create_on_update = True
    needs_version = True

    def validate(self, obj: Obj) -> list[FieldError]:
        """Check durations and counts."""
        spec = obj.get("spec") or {}
        errors: list[FieldError] = []
        duration = spec.get("leaseDurationSeconds")
        if duration is not None and duration <= 0:
            errors.append(invalid("spec.leaseDurationSeconds", duration, "must be greater than 0"))
        transitions = spec.get("leaseTransitions")
        if transitions is not None and transitions < 0:
            errors.append(
                invalid("spec.leaseTransitions", transitions, "must be greater than or equal to 0")
            )
        return errors


class DisruptionBudgetStrategy(Strategy):
    """Disruption budgets: the counts belong to their controller."""

    checks_changes_again = False
    generation = True
    has_status = True
    needs_version = True

    def prepare_create(self, obj: Obj, core: ServerState) -> None:
        """Start with zero counts, which forbid every eviction until the controller has looked."""
        obj.setdefault("spec", {})
        obj["status"] = {
            "disruptionsAllowed": 0,
            "currentHealthy": 0,
            "desiredHealthy": 0,
            "expectedPods": 0,
        }

    def validate(self, obj: Obj) -> list[FieldError]:
        """Check that one of the two bounds is given, and that it is sound."""
        return budget_errors(obj["spec"])
