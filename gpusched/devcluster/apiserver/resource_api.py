"""Every verb on decoded bodies: what HTTP and the in-process client share.

Turns what a client sent into an object of a served kind (decode, unknown fields, prune,
defaults) and hands it to the synchronous writes in ``verbs`` and ``deletion``.
"""

from __future__ import annotations

from typing import Any, Final

import attrs

from gpusched.devcluster.apimachinery import status
from gpusched.devcluster.apimachinery.field_errors import FieldError
from gpusched.devcluster.apimachinery.metadata import copy_tree
from gpusched.devcluster.apiserver.patching.server_side_apply import (
    ApplyConflict,
    TypedObjectError,
    apply_object,
)
from gpusched.devcluster.apiserver.reading.representations import view_function
from gpusched.devcluster.apiserver.server_state import ServerState
from gpusched.devcluster.apiserver.writing import bodies, verbs
from gpusched.devcluster.apiserver.writing.binding import bind_pod
from gpusched.devcluster.apiserver.writing.deletion import (
    DeleteOptions,
    check_preconditions,
    delete_object,
)
from gpusched.devcluster.apiserver.writing.eviction import evict_pod
from gpusched.devcluster.apiserver.writing.patch_requests import (
    UndecodablePatch,
    applied_object_name,
    apply_patch,
    invalid_patch_result,
    untyped_apply_error,
)
from gpusched.devcluster.apiserver.writing.scale import (
    paths_of,
    scale_of,
    scale_schema,
    with_scale,
)
from gpusched.devcluster.apiserver.writing.verbs import WriteOptions
from gpusched.devcluster.registry.devices import older_versions
from gpusched.devcluster.registry.gangs.kinds import stored_version
from gpusched.devcluster.registry.kinds import Resource
from gpusched.devcluster.registry.stored.events import to_core
from gpusched.devcluster.schema.schema import Schema, load_builtin
from gpusched.devcluster.storage.store import Stored

Obj = dict[str, Any]

PATCH_TYPES: Final = {
    "application/json-patch+json": "json",
    "application/merge-patch+json": "merge",
    "application/strategic-merge-patch+json": "strategic",
    "application/apply-patch+yaml": "apply",
}

_TYPE: Final = frozenset({"kind", "apiVersion"})
_ENVELOPE: Final = frozenset({"kind", "apiVersion", "metadata"})


class ResourceApi:
    """The verbs. Bodies are decoded JSON values; answers are stored objects."""

    def __init__(self, core: ServerState) -> None:
        self.core = core

    # -- reading -----------------------------------------------------------------------------

    def get(self, resource: Resource, namespace: str, name: str) -> Stored:
        """Return an object; raises StatusError 404."""
        return verbs.read_object(self.core, resource, namespace, name=name)

    def schema(self, resource: Resource) -> Schema:
        """Return the schema that bodies of a resource must follow; 501 where none is accepted."""
        if resource.only_read:
            raise status.not_implemented(f"resource {resource.qualified}")
        if resource.custom is not None:
            return resource.custom.schema
        return load_builtin(resource.group, resource.version, resource.kind, resource.edition)

    # -- writing -----------------------------------------------------------------------------

    def create(
        self, resource: Resource, namespace: str, body: Any, *, options: WriteOptions
    ) -> Stored:
        """Create an object; raises StatusError."""
        obj = bodies.as_object(self.core, resource, body)
        in_body = obj["metadata"].get("namespace") or ""
        if not resource.namespaced:
            obj["metadata"] = {k: v for k, v in obj["metadata"].items() if k != "namespace"}
        elif in_body and in_body != namespace:
            raise status.bad_request(
                "the namespace of the provided object does not match "
                "the namespace sent on the request"
            )
        obj = self._decoded(resource, obj, options)
        return verbs.create_object(
            self.core,
            resource,
            namespace=namespace,
            obj=self._stored_form(resource, obj),
            options=self._checked(resource, options),
        )

    def replace(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        body: Any,
        options: WriteOptions,
        subresource: str = "",
    ) -> tuple[Stored, bool]:
        """Replace an object; return it and whether this created it."""
        obj = bodies.as_object(self.core, resource, body)
        self._check_place(obj, namespace, name)
        obj = self._decoded(resource, obj, options)
        obj["metadata"].setdefault("name", name)
        if resource.namespaced:
            obj["metadata"].setdefault("namespace", namespace)
        obj = self._stored_form(resource, obj)
        options = self._checked(resource, options)
        try:
            stored = self.get(resource, namespace, name)
        except status.StatusError:
            if subresource or not resource.strategy.create_on_update:
                raise
            if uid := obj["metadata"].get("uid"):
                raise verbs.other_uid(resource, name, asked=uid, held="") from None
            obj["metadata"].pop("resourceVersion", None)
            made = verbs.create_object(
                self.core, resource, namespace=namespace, obj=obj, options=options
            )
            return made, True
        written = verbs.write_object(
            self.core,
            resource,
            stored,
            new=obj,
            options=options,
            subresource=subresource,
            origin="put",
        )
        return written, False

    def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        patch: Any,
        patch_type: str,
        options: WriteOptions,
        subresource: str = "",
    ) -> tuple[Stored, bool]:
        """Patch an object; return it and whether this created it (apply only)."""
        if patch_type == "apply":
            return self._apply(
                resource, namespace, name, patch=patch, options=options, subresource=subresource
            )
        stored = self.get(resource, namespace, name)
        old = self._client_form(resource, stored.obj)
        changed = apply_patch(
            old,
            patch,
            patch_type=patch_type,
            schema=self.schema(resource),
            validation=options.validation,
        )
        new = bodies.as_object(self.core, resource, changed)
        try:
            new = self._decoded_changes(resource, new, old, options)
        except UndecodablePatch as e:
            raise invalid_patch_result(changed, patch, patch_type=patch_type, why=e.why) from None
        self._check_place(new, namespace, name)
        new = self._stored_form(resource, new)
        written = verbs.write_object(
            self.core,
            resource,
            stored,
            new=new,
            options=self._checked(resource, options),
            subresource=subresource,
        )
        return written, False

    def scale(self, resource: Resource, namespace: str, name: str) -> Obj:
        """Return the Scale of an object."""
        return scale_of(self.get(resource, namespace, name).obj, paths_of(resource))

    def write_scale(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        body: Any,
        patch_type: str,
        options: WriteOptions,
    ) -> Obj:
        """Replace (no patch type) or patch the Scale of an object, and return it."""
        stored, paths = self.get(resource, namespace, name), paths_of(resource)
        scale = body
        if patch_type:
            scale = apply_patch(
                scale_of(stored.obj, paths),
                body,
                patch_type=patch_type,
                schema=scale_schema(),
                validation=options.validation,
            )
        verbs.admit_write(
            self.core,
            resource,
            "UPDATE",
            objects=(scale, scale_of(stored.obj, paths)),
            options=options,
            name=name,
            namespace=namespace,
            subresource="scale",
            kind=("autoscaling", "v1", "Scale"),
        )
        written = verbs.write_object(
            self.core,
            resource,
            stored,
            new=copy_tree(with_scale(resource, stored.obj, scale)),
            options=attrs.evolve(self._checked(resource, options), user=None),  # asked above
        )
        return scale_of(written.obj, paths)

    def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        options: DeleteOptions,
        by: WriteOptions | None = None,
        with_others: bool = False,
    ) -> tuple[Obj | Stored, bool]:
        """Delete an object; return the body of the answer and whether it is gone.

        ``by`` has the user for admission policies, and gets their warnings; to them a request
        that deletes it ``with_others`` names no object.
        """
        stored = self.get(resource, namespace, name)
        if resource.only_read:
            raise status.not_implemented(f"resource {resource.qualified}")
        if by is not None:
            check_preconditions(resource, stored.obj["metadata"], options)
            verbs.admit_write(
                self.core,
                resource,
                "DELETE",
                objects=(None, stored.obj),
                options=attrs.evolve(by, dry_run=options.dry_run),
                name="" if with_others else name,
                namespace=namespace,
                delete_options=options.as_object(),
            )
        last, gone = delete_object(self.core, resource, stored, options=options)
        if not gone or resource.strategy.returns_object:
            return last, gone
        details: Obj = {"name": name}
        if resource.group:
            details["group"] = resource.group
        details |= {"kind": resource.plural, "uid": last.obj["metadata"]["uid"]}
        return status.success(details=details), gone

    def connect(
        self,
        namespace: str,
        name: str,
        subresource: str,
        *,
        body: Any,
        options: WriteOptions,
        alone: bool = False,
    ) -> Obj:
        """Post a Binding or an Eviction to a pod; return the Status that answers it.

        ``alone`` tells that a Binding came by its own resource and not by the pod's.
        """
        what = "Binding" if subresource == "binding" else "Eviction"
        body = bodies.as_options(body, what)
        bodies.check_kind(body, what)
        meta = body.get("metadata") or {}
        if (meta.get("namespace") or namespace) != namespace:
            raise status.bad_request(
                "the namespace of the provided object does not match "
                "the namespace sent on the request"
            )
        if meta.get("name", "") != name:
            raise status.bad_request(f"name in URL does not match name in {what} object")

        def admit() -> None:
            whole = {**body, "metadata": {**meta, "namespace": namespace}}
            verbs.admit_write(
                self.core,
                self.core.registry.named("bindings" if alone else "pods"),
                "CREATE",
                objects=(whole, None),
                options=options,
                name=name,
                namespace=namespace,
                subresource="" if alone else subresource,
                kind=("", "v1", what) if subresource == "binding" else ("policy", "v1", what),
            )

        dry_run = options.dry_run
        if subresource == "binding":
            bind_pod(self.core, namespace, name, body=body, dry_run=dry_run, admit=admit)
            return status.success()
        return evict_pod(self.core, namespace, name, body=body, dry_run=dry_run, admit=admit)

    def issue(
        self, resource: Resource, account: Stored, request: Obj, *, options: WriteOptions
    ) -> None:
        """Ask the admission policies about a token for a service account."""
        meta = account.obj["metadata"]
        verbs.admit_write(
            self.core,
            resource,
            "CREATE",
            objects=(request, None),
            options=options,
            name=meta["name"],
            namespace=meta["namespace"],
            subresource="token",
            kind=("authentication.k8s.io", "v1", "TokenRequest"),
        )

    # -- between client and store ------------------------------------------------------------

    def _decoded(self, resource: Resource, obj: Obj, options: WriteOptions) -> Obj:
        """Drop or refuse unknown fields, and bring values into their canonical form."""
        schema = self.schema(resource)
        clean = None if options.repeated else schema.plain(obj)
        if clean is None:
            clean = schema.prune(self._checked_fields(resource, obj, options))
        clean["metadata"] = dict(clean.get("metadata") or {})
        if resource.custom is not None:
            clean = schema.apply_defaults(clean)
        return clean

    def _checked_fields(self, resource: Resource, obj: Obj, options: WriteOptions) -> Obj:
        """Refuse values of the wrong type, and unknown fields where that was asked."""
        schema, kind = self.schema(resource), resource.kind
        head = f'{kind} in version "{resource.version}" cannot be handled as a {kind}: '
        if (why := schema.decode_error(obj)) is not None:
            raise UndecodablePatch(head, why)
        unknown = [] if options.validation == "Ignore" else schema.strict_errors(obj)
        if unknown := [*options.repeated, *unknown]:
            if options.validation == "Strict":
                raise UndecodablePatch(head, f"strict decoding error: {', '.join(unknown)}")
            options.warnings.extend(unknown)
        return obj

    def _decoded_changes(
        self, resource: Resource, new: Obj, old: Obj, options: WriteOptions
    ) -> Obj:
        """Decode only the top-level fields that a patch touched: the rest is stored already.

        Patches share what they leave alone, so identity tells.
        """
        if resource.custom is not None:
            return self._decoded(resource, new, options)
        touched = {k: v for k, v in new.items() if k in _TYPE or v is not old.get(k)}
        clean = self._decoded(resource, touched, options)
        if new["metadata"] is old["metadata"]:
            clean["metadata"] = dict(new["metadata"])
        return {k: clean.get(k, v) for k, v in new.items() if k in clean or k not in touched}

    def _checked(self, resource: Resource, options: WriteOptions) -> WriteOptions:
        schema = self.schema(resource)
        if resource.strategy.knows_all:
            return options.judged(schema, options.check)
        if resource.custom is not None:
            return options.judged(schema, resource.custom.errors)

        def check(new: Obj, _old: Obj | None) -> list[FieldError]:
            return schema.validate(self._client_form(resource, new))

        return options.judged(schema, check)

    def _apply(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        patch: Any,
        options: WriteOptions,
        subresource: str,
    ) -> tuple[Stored, bool]:
        config = self._applied(resource, namespace, name, body=patch)
        found = self._find(resource, namespace, name)
        if found is None and subresource:
            raise status.not_found(resource.plural, resource.group, name)
        live = None if found is None else self._client_form(resource, found.obj)
        place = applied_object_name(resource, patch)
        try:
            new = self._merge_applied(
                resource, live, config, options=options, subresource=subresource
            )
        except TypedObjectError as e:
            raise untyped_apply_error(f"create typed patch object ({place})", str(e)) from None
        if found is not None and new is live:
            # What changes nothing is asked about as well.
            verbs.admit_write(
                self.core,
                resource,
                "UPDATE",
                objects=(found.obj, found.obj),
                options=options,
                name=name,
                namespace=namespace,
                subresource=subresource,
            )
            return found, False
        try:
            new = self._decoded(resource, new, options)
        except UndecodablePatch as e:
            raise untyped_apply_error(
                f"convert new typed object ({place}) to object", e.why
            ) from None
        obj = self._stored_form(resource, new)
        checked = self._checked(resource, options)
        if found is None:
            made = verbs.create_object(
                self.core, resource, namespace=namespace, obj=obj, options=checked
            )
            return made, True
        written = verbs.write_object(
            self.core, resource, found, new=obj, options=checked, subresource=subresource
        )
        return written, False

    def _applied(self, resource: Resource, namespace: str, name: str, *, body: Any) -> Obj:
        """Check what an applied configuration is of, and complete its name and namespace."""
        self.schema(resource)  # 501 of a kind that is only read comes before anything else
        config = bodies.as_applied(resource, body)
        metadata = config.get("metadata") or {}
        if not isinstance(metadata, dict):
            return config  # a wrong type is reported with all other errors
        if metadata.get("managedFields") is not None:
            raise status.bad_request("metadata.managedFields must be nil")
        config["metadata"] = {**metadata, "name": metadata.get("name", name)}
        if resource.namespaced:
            config["metadata"].setdefault("namespace", namespace)
        self._check_place(config, namespace, name)
        return config

    def _merge_applied(
        self,
        resource: Resource,
        live: Obj | None,
        config: Obj,
        *,
        options: WriteOptions,
        subresource: str,
    ) -> Obj:
        if subresource == "status":
            reset = [(f"f:{key}",) for key in config if key not in _ENVELOPE and key != "status"]
        elif live is None:
            reset = []  # a new object goes through create, where each strategy drops its own
        else:
            reset = [("f:status",)] if resource.strategy.has_status else []
        try:
            return apply_object(
                live,
                config,
                schema=self.schema(resource),
                manager=options.manager,
                now=self.core.time_text(),
                force=options.force,
                subresource=subresource,
                reset=reset,
            )
        except ApplyConflict as e:
            details = {"causes": e.causes}
            raise status.failure(409, "Conflict", str(e), details=details) from None

    def _find(self, resource: Resource, namespace: str, name: str) -> Stored | None:
        key = resource.key(namespace, name)
        return self.core.store.collection(resource.storage).get(key)

    def _stored_form(self, resource: Resource, obj: Obj) -> Obj:
        if resource.storage == "events" and resource.group:
            return to_core(obj)
        if resource.custom is not None:
            return {**obj, "apiVersion": resource.custom.storage_version}
        stored = stored_version(resource.group, resource.version, resource.kind)
        if stored != resource.version:
            return {**obj, "apiVersion": f"{resource.group}/{stored}"}
        return older_versions.stored_form(resource.group, resource.version, obj)

    def _client_form(self, resource: Resource, obj: Obj) -> Obj:
        change = view_function(resource)
        return obj if change is None else change(obj)

    def _check_place(self, obj: Obj, namespace: str, name: str) -> None:
        meta = obj["metadata"]
        if (meta.get("name") or name) != name:
            raise status.bad_request(
                f"the name of the object ({meta['name']}) does not match the name on the URL ({name})"
            )
        if (meta.get("namespace") or namespace) != namespace:
            raise status.bad_request(
                "the namespace of the provided object does not match "
                "the namespace sent on the request"
            )
