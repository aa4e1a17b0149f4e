"""Create, update, patch: one synchronous path for HTTP and for clients in this process.

Each verb decodes, admits, defaults, validates, drops what changes nothing, and writes once.
There is no await inside, so every write sees the outcome of the one before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

import attrs

from gpusched.base.classes import frozen
from gpusched.devcluster.apimachinery import status
from gpusched.devcluster.apimachinery.field_errors import FieldError, invalid, quote_value
from gpusched.devcluster.apimachinery.metadata import (
    MetadataRules,
    changed_metadata_errors,
    clean_for_create,
    immutable_field_errors,
    keep_server_fields,
    metadata_errors,
    new_finalizer_errors,
)
from gpusched.devcluster.apiserver.admission import plugins
from gpusched.devcluster.apiserver.admission_attributes import Attributes, Operation
from gpusched.devcluster.apiserver.patching.created_fields import server_filled
from gpusched.devcluster.apiserver.patching.field_sets import Path, TypedObjectError
from gpusched.devcluster.apiserver.patching.managed_fields import (
    readable_entries,
    track_create,
    track_update,
)
from gpusched.devcluster.apiserver.rbac.claim_status import claim_status_errors
from gpusched.devcluster.apiserver.rbac.rules import User
from gpusched.devcluster.apiserver.server_state import ServerState
from gpusched.devcluster.registry import unsupported
from gpusched.devcluster.registry.kinds import Resource
from gpusched.devcluster.schema.schema import Schema
from gpusched.devcluster.storage.store import Stored

Obj = dict[str, Any]
Origin = Literal["put", "patch"]
Check = Callable[[Obj, Obj | None], list[FieldError]]
_NOBODY: Final = "unknown"
"""Manager of writes by clients that give no name."""
_CLAIMS: Final = "resourceclaims.resource.k8s.io"


_CHECKED_METADATA: Final = ("labels", "annotations", "ownerReferences", "finalizers")


def _nothing_wrong(_new: Obj, _old: Obj | None) -> list[FieldError]:
    return []


@frozen(kw_only=True)
class WriteOptions:
    """What a write request asks for beside its body.

    Attributes:
        validation: Strict, Warn or Ignore unknown fields.
        manager: name of the field manager; empty when the client gave none.
        operation: what managedFields will call this write.
        force: whether an apply takes fields over from other managers.
        check: validation of the finished object by the schema, given the old one.
        schema: of the kind, by which managedFields are kept; None to leave them alone.
        repeated: what strict decoding says of fields that the body names twice.
        user: the requester, for admission policies; None for the cluster's own machinery, which
            they are not asked about.
    """

    dry_run: bool = False
    validation: str = "Warn"
    manager: str = ""
    operation: Literal["Update", "Apply"] = "Update"
    force: bool = False
    warnings: list[str] = attrs.field(factory=list)
    check: Check = _nothing_wrong
    schema: Schema | None = None
    repeated: list[str] = attrs.field(factory=list)
    user: User | None = None

    def judged(self, schema: Schema, check: Check) -> WriteOptions:
        """The same request with schema and validation of its kind."""
        # Field by field: every write asks for it, and ``attrs.evolve`` takes five times as long.
        return WriteOptions(
            dry_run=self.dry_run,
            validation=self.validation,
            manager=self.manager,
            operation=self.operation,
            force=self.force,
            warnings=self.warnings,
            check=check,
            schema=schema,
            repeated=self.repeated,
            user=self.user,
        )

    def as_object(self, kind: str) -> Obj:
        """Return the options as an object of the API, ``CreateOptions`` or the like."""
        body: Obj = {"kind": kind, "apiVersion": "meta.k8s.io/v1"}
        if self.dry_run:
            body["dryRun"] = ["All"]
        if self.manager:
            body["fieldManager"] = self.manager
        return body


def admit_write(
    core: ServerState,
    resource: Resource,
    operation: Operation,
    *,
    objects: tuple[Obj | None, Obj | None],
    options: WriteOptions,
    name: str = "",
    namespace: str = "",
    subresource: str = "",
    kind: tuple[str, str, str] | None = None,
    delete_options: Obj | None = None,
) -> None:
    """Ask the admission policies about a write; raises StatusError by which one refuses it.

    Args:
        core: whose policies are asked.
        resource: what is written.
        operation: create, update or delete.
        objects: the new and the old object, each None where there is none.
        options: of the write; without a user no policy is asked.
        name: of the object; the server has made one by now. Empty for one of many.
        namespace: of the request.
        subresource: of the request.
        kind: of the body, where it is not that of the resource.
        delete_options: of a deletion, as policies see them.
    """
    if core.policies is None or options.user is None or not core.policies.active:
        return
    options_kind = "CreateOptions" if operation == "CREATE" else "UpdateOptions"
    core.policies.admit(
        _attributes(
            resource,
            operation,
            objects=objects,
            user=options.user,
            options=options,
            name=name,
            namespace=namespace,
            subresource=subresource,
            kind=kind or (resource.group, resource.version, resource.kind),
            own_options=options.as_object(options_kind)
            if delete_options is None
            else delete_options,
        )
    )


def _attributes(
    resource: Resource,
    operation: Operation,
    *,
    objects: tuple[Obj | None, Obj | None],
    user: User,
    options: WriteOptions,
    name: str,
    namespace: str,
    subresource: str,
    kind: tuple[str, str, str],
    own_options: Obj,
) -> Attributes:
    new, old = objects
    return Attributes(
        operation=operation,
        resource=resource,
        kind=kind,
        namespace=name if resource.storage == "namespaces" else namespace,
        name=name,
        user=user,
        subresource=subresource,
        obj=new,
        old=old,
        dry_run=options.dry_run,
        options=own_options,
        warnings=options.warnings,
    )


def _mutated(
    core: ServerState,
    resource: Resource,
    new: Obj,
    old: Obj | None,
    *,
    options: WriteOptions,
    namespace: str,
    subresource: str = "",
) -> Obj:
    """Let the admission policies change a write; raises StatusError by which one fails.

    What comes back is ``new`` itself where none has a say. Plug-ins of the server that have filled
    in the object are not asked again.
    """
    schema = options.schema
    if core.policies is None or options.user is None or not core.policies.mutates or schema is None:
        return new
    changed = core.policies.mutate(
        _attributes(
            resource,
            "CREATE" if old is None else "UPDATE",
            objects=(new, old),
            user=options.user,
            options=options,
            name=new["metadata"].get("name", ""),
            namespace=namespace,
            subresource=subresource,
            kind=(resource.group, resource.version, resource.kind),
            own_options=options.as_object("CreateOptions" if old is None else "UpdateOptions"),
        ),
        schema.decode_error,
    )
    if changed is new:
        return new
    changed = schema.prune(changed)
    changed["metadata"] = dict(changed["metadata"])
    if resource.custom is not None:
        changed = schema.apply_defaults(changed)
    if "spec" in new and resource.custom is None:
        changed.setdefault("spec", {})  # strategies fill it in before anything is validated
    if old is None and resource.strategy.has_status:  # as a client's own is dropped
        changed.pop("status", None)
        changed |= {"status": new["status"]} if "status" in new else {}
    return changed


def create_object(
    core: ServerState, resource: Resource, *, namespace: str, obj: Obj, options: WriteOptions
) -> Stored:
    """Store a new object; ``obj`` is decoded, of the right kind, and owned by this call."""
    unsupported.refuse_unsupported(resource.storage, obj)
    strategy = resource.strategy
    if resource.custom is not None and resource.custom.terminating:
        raise status.terminating_definition(resource.plural, resource.group)
    meta = obj["metadata"]
    version = _version_number(meta)
    clean_for_create(meta)
    filled = server_filled(resource.storage, obj, has_status=strategy.has_status)
    if resource.namespaced:
        meta["namespace"] = namespace
    if not meta.get("name") and meta.get("generateName"):
        meta["name"] = _free_name(core, resource, namespace, prefix=meta["generateName"])
    about = resource.key(namespace, meta.get("name", ""))
    meta["uid"] = core.new_uid(f"{resource.storage}/{about}")
    meta["creationTimestamp"] = core.time_text()
    if strategy.generation:
        meta["generation"] = 1
    strategy.prepare_create(obj, core)
    plugins.admit_create(core, resource, obj)
    core.gangs.drop_disabled(resource.storage, obj)
    strategy.default(obj)
    mutated = _mutated(core, resource, obj, None, options=options, namespace=namespace)
    if mutated is not obj:
        obj, meta = mutated, mutated["metadata"]
        strategy.default(obj)
    errors = metadata_errors(meta, rules=_metadata_rules(resource))
    # Strategies read fields that the schema promises, so they come second.
    errors += options.check(obj, None) or strategy.validate(obj)
    name = meta.get("name", "")
    if errors:
        raise status.invalid(resource.kind, resource.error_group, name, errors=errors)
    plugins.admit_bounded(core, resource, obj)
    admit_write(
        core,
        resource,
        "CREATE",
        objects=(obj, None),
        options=options,
        name=name,
        namespace=namespace,
    )
    collection = core.store.collection(resource.storage)
    key = resource.key(namespace, name)
    if collection.get(key) is not None:
        # Quotas are asked first on a real server, too; nothing is counted.
        plugins.admit_finished(core, resource, obj, dry_run=True)
        raise status.already_exists(resource.plural, resource.group, name)
    strategy.allocate(obj, None, core)
    plugins.admit_finished(core, resource, obj, dry_run=options.dry_run)
    if version and not options.dry_run and options.operation == "Update":
        raise status.failure(500, "", "resourceVersion should not be set on objects to be created")
    if options.operation == "Update":
        _record_create(obj, filled, options=options, core=core)
    if options.dry_run:
        return Stored(obj, 0)
    return collection.write(key, obj)


def _version_number(meta: Obj) -> int:
    """Return the version in a body; 0 for none, and for what the store would not read as one."""
    text = meta.get("resourceVersion") or ""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0


def _free_name(core: ServerState, resource: Resource, namespace: str, *, prefix: str) -> str:
    collection = core.store.collection(resource.storage)
    place = f"{resource.storage}/{namespace}"
    name = core.name_from(prefix, place=place)
    while collection.get(resource.key(namespace, name)) is not None:
        name = core.name_from(prefix, place=place)
    return name


def read_object(core: ServerState, resource: Resource, namespace: str, *, name: str) -> Stored:
    """Return a stored object; raises StatusError 404."""
    found = core.store.collection(resource.storage).get(resource.key(namespace, name))
    if found is None:
        raise status.not_found(resource.plural, resource.group, name)
    return found


def write_object(
    core: ServerState,
    resource: Resource,
    stored: Stored,
    *,
    new: Obj,
    options: WriteOptions,
    subresource: str = "",
    origin: Origin = "patch",
) -> Stored:
    """Replace a stored object by ``new``, which may share parts with it.

    Its top level and its metadata belong to this call; what is below may be stored already, so
    strategies put new containers there in place of changing them.

    Raises StatusError 409 for an old version, 422 for what may not change.
    """
    old = stored.obj
    name = old["metadata"]["name"]
    unsupported.refuse_unsupported(resource.storage, new, old)
    _check_identity(resource, stored, new=new, origin=origin)
    immutable = immutable_field_errors(new["metadata"], old["metadata"])
    keep_server_fields(new["metadata"], old["metadata"])
    new = _mutated(
        core,
        resource,
        new,
        old,
        options=options,
        namespace=old["metadata"].get("namespace", ""),
        subresource=subresource,
    )
    if not subresource:
        core.gangs.drop_disabled(resource.storage, new)
    _prepare(resource, new, old, subresource=subresource)
    if not subresource:
        plugins.admit_update(core, resource, new)
    errors = _update_errors(resource, new, old, options=options, subresource=subresource)
    # Real servers check metadata of an update twice and tell what they find both times.
    errors = [*immutable, *errors, *immutable]
    if resource.storage == _CLAIMS and subresource == "status" and options.user is not None:
        verb = "update" if origin == "put" else "patch"
        errors = [
            *claim_status_errors(core.store, options.user, new=new, old=old, verb=verb),
            *errors,
        ]
    if errors:
        raise status.invalid(resource.kind, resource.error_group, name, errors=errors)
    if not subresource:
        plugins.admit_changed(core, resource, new, old)
    admit_write(
        core,
        resource,
        "UPDATE",
        objects=(new, old),
        options=options,
        name=name,
        namespace=old["metadata"].get("namespace", ""),
        subresource=subresource,
    )
    if not subresource:
        resource.strategy.allocate(new, old, core)
    counted = resource.strategy.generation and not subresource
    if counted and resource.strategy.raises_generation(new, old):
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
    if options.operation == "Update":
        new = _with_record(new, old, options=options, subresource=subresource, core=core)
    if new == old:
        return stored
    if options.dry_run:
        return Stored(new, stored.version)
    collection = core.store.collection(resource.storage)
    key = resource.key(new["metadata"].get("namespace", ""), name)
    if _deletable(resource, new):
        collection.remove(key)
        return Stored(new, core.store.version)
    return collection.write(key, new)


def _record_create(
    obj: Obj, filled: Sequence[Path], *, options: WriteOptions, core: ServerState
) -> None:
    """Begin the record of field managers."""
    meta = obj["metadata"]
    brought = meta.pop("managedFields", None)
    if options.schema is None or not (brought or core.records):
        return
    if brought:
        meta["managedFields"] = brought
    try:
        meta["managedFields"] = track_create(
            obj,
            schema=options.schema,
            manager=options.manager or _NOBODY,
            now=core.time_text(),
            skip=filled,
        )
    except TypedObjectError:
        # Lists whose elements share a key have no owners; real servers keep no record either.
        meta.pop("managedFields", None)


def _with_record(
    new: Obj, old: Obj, *, options: WriteOptions, subresource: str, core: ServerState
) -> Obj:
    """Carry on the record of field managers; an object without one gets none by updates.

    A client may write the record itself, and erases it with one empty entry; an empty list, as
    clients send that do not know of it, is ignored.
    """
    meta = new["metadata"]
    sent, record = meta.get("managedFields"), old["metadata"].get("managedFields")
    if sent == [{}] and not subresource:
        record = None
    elif sent and not subresource and sent != record:
        record = readable_entries(sent) or record
    if not record or options.schema is None:
        meta.pop("managedFields", None)
        return new
    meta["managedFields"] = record
    if new == old:
        return new
    try:
        return track_update(
            old,
            new,
            schema=options.schema,
            manager=options.manager or _NOBODY,
            now=core.time_text(),
            subresource=subresource,
        )
    except TypedObjectError:
        # Lists without their keys have no owners; real servers keep the old record as well.
        return new


def _check_identity(resource: Resource, stored: Stored, *, new: Obj, origin: Origin) -> None:
    old_meta, meta = stored.obj["metadata"], new["metadata"]
    name = old_meta["name"]
    asked = meta.get("resourceVersion") or ""
    if not asked and origin == "put" and resource.strategy.needs_version:
        error = invalid("metadata.resourceVersion", 0, "must be specified for an update")
        raise status.invalid(resource.plural, resource.group, name, errors=[error])
    if asked and not (asked.isascii() and asked.isdigit()):
        why = f"strconv.ParseUint: parsing {quote_value(asked)}: invalid syntax"
        raise status.failure(500, "", why)
    if asked and asked != "0" and asked != old_meta["resourceVersion"]:
        raise status.conflict(resource.plural, resource.group, name, why=status.MODIFIED)
    uid = meta.get("uid") or ""
    if uid and uid != old_meta["uid"]:
        if origin == "put":
            raise other_uid(resource, name, asked=uid, held=old_meta["uid"])
        error = invalid("metadata.uid", uid, "field is immutable")
        raise status.invalid(resource.kind, resource.error_group, name, errors=[error, error])


def other_uid(resource: Resource, name: str, *, asked: str, held: str) -> status.StatusError:
    """Return the refusal of a PUT that names another object; ``held`` is empty when none is."""
    why = f"Precondition failed: UID in precondition: {asked}, UID in object meta: {held}"
    return status.conflict(resource.plural, resource.group, name, why=why)


def _prepare(resource: Resource, new: Obj, old: Obj, *, subresource: str) -> None:
    """Undo what this subresource may not change, and fill in defaults."""
    strategy = resource.strategy
    if subresource == "status":
        strategy.prepare_status(new, old)
        return
    if subresource == "finalize":
        strategy.prepare_finalize(new, old)
        return
    if "spec" in old and resource.custom is None:
        new.setdefault("spec", {})
    strategy.prepare_update(new, old)
    if new.get("spec") is not old.get("spec") or "spec" not in new:
        strategy.default(new)


def _update_errors(
    resource: Resource, new: Obj, old: Obj, *, options: WriteOptions, subresource: str
) -> list[FieldError]:
    strategy = resource.strategy
    if subresource == "finalize":
        return []
    errors = _metadata_update_errors(resource, new["metadata"], old["metadata"])
    by_schema = options.check(new, old) if new != old else []
    if by_schema:
        return errors + by_schema
    if subresource == "status":
        return errors + strategy.validate_status(new, old)
    return errors + strategy.validate_update(new, old)


def _metadata_update_errors(resource: Resource, new: Obj, old: Obj) -> list[FieldError]:
    """Errors of metadata, each as often as a real server's layers find it.

    The layer that all kinds share looks twice at what can change, then each kind's own looks.
    """
    if all(new.get(key) == old.get(key) for key in _CHECKED_METADATA):
        return []
    strategy = resource.strategy
    whole = metadata_errors(new, rules=_metadata_rules(resource))
    changed = changed_metadata_errors(new) if whole else []
    added = new_finalizer_errors(new, old)
    errors = [*whole, *added, *changed]
    if strategy.checks_changes_again:
        errors += [*added, *changed]
    if strategy.checks_metadata_again:
        errors += whole
    return errors


def _metadata_rules(resource: Resource) -> MetadataRules:
    strategy = resource.strategy
    return MetadataRules(
        label_name=strategy.label_name,
        segment_name=strategy.segment_name,
        any_finalizer=resource.custom is not None or resource.group == "apiextensions.k8s.io",
    )


def _deletable(resource: Resource, obj: Obj) -> bool:
    meta = obj["metadata"]
    if not meta.get("deletionTimestamp") or meta.get("finalizers"):
        return False
    if meta.get("deletionGracePeriodSeconds"):
        return False
    return not resource.strategy.stays_when_deleted(obj)
