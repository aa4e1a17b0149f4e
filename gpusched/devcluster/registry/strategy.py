# ruff: noqa: ARG002  # strategies share one interface, and few kinds need all of it
"""What create, update and status writes may change, kind by kind.

The base class is plain storage; a kind overrides what it does differently. ``obj`` and ``new``
are always owned by the caller and may be changed in place, ``old`` is stored and may not.
"""

from __future__ import annotations

from typing import Any, Protocol

from gpusched.base.clock import Clock
from gpusched.devcluster.apimachinery.field_errors import FieldError
from gpusched.devcluster.storage.store import Store

Obj = dict[str, Any]


class ServerContext(Protocol):
    """The state of the server as far as strategies and tokens use it."""

    @property
    def store(self) -> Store:
        """Return the store of all objects."""

    @property
    def clock(self) -> Clock:
        """Return the clock by which the server's times are written."""

    def time_text(self) -> str:
        """Return now as the API writes times: RFC 3339 in whole seconds."""

    def new_uid(self, about: str) -> str:
        """Return the next uid of what ``about`` names: another one at each call."""


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
        deletion_warning: the warning for clients that rely on that.
        checks_changes_again: whether updates report errors of changed metadata once more.
        checks_metadata_again: whether updates report errors of all metadata once more.
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

    def prepare_create(self, obj: Obj, core: ServerContext) -> None:
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
            _restore_field(new, old, "status")

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

    def allocate(self, new: Obj, old: Obj | None, core: ServerContext) -> None:
        """Assign what is unique in the cluster to a valid object; raises StatusError."""

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


def _restore_field(new: Obj, old: Obj, key: str) -> None:
    if key in old:
        new[key] = old[key]
    else:
        new.pop(key, None)
