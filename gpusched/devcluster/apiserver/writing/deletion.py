"""Deletion: preconditions, grace, finalizers, and the one or two writes watchers see."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from gpusched.base.classes import frozen
from gpusched.devcluster.apimachinery import status
from gpusched.devcluster.apimachinery.field_errors import (
    FieldError,
    invalid,
    not_supported,
    quote_value,
)
from gpusched.devcluster.apimachinery.times import parse_time, rfc3339
from gpusched.devcluster.apiserver.server_state import ServerState
from gpusched.devcluster.registry.kinds import Resource
from gpusched.devcluster.storage.store import Stored

Obj = dict[str, Any]

_IMMORTAL: Final = frozenset({"default", "kube-public", "kube-system"})
_PRIORITIES: Final = "priorityclasses.scheduling.k8s.io"
_SYSTEM_PRIORITIES: Final = frozenset({"system-cluster-critical", "system-node-critical"})
_POLICIES: Final = ("Foreground", "Background", "Orphan")
_BY_FINALIZER: Final = {"orphan": "Orphan", "foregroundDeletion": "Foreground"}


@frozen(kw_only=True)
class DeleteOptions:
    """What a deletion asks for."""

    grace_s: int | None = None
    uid: str = ""
    version: str = ""
    propagation: str = ""
    dry_run: bool = False

    def as_object(self) -> Obj:
        """Return the options as an object of the API."""
        body: Obj = {"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"}
        if self.grace_s is not None:
            body["gracePeriodSeconds"] = self.grace_s
        if self.propagation:
            body["propagationPolicy"] = self.propagation
        if self.dry_run:
            body["dryRun"] = ["All"]
        wanted = {"uid": self.uid, "resourceVersion": self.version}
        if held := {key: value for key, value in wanted.items() if value}:
            body["preconditions"] = held
        return body

    @classmethod
    def from_body(cls, body: Obj | None, query: dict[str, str]) -> DeleteOptions:
        """Read a DeleteOptions body, else the query parameters of the same names."""
        body = body or {}
        wanted = body.get("preconditions") or {}
        grace = body.get("gracePeriodSeconds")
        if grace is None and query.get("gracePeriodSeconds"):
            try:
                grace = int(query["gracePeriodSeconds"])
            except ValueError:
                said = quote_value(query["gracePeriodSeconds"])
                why = f"strconv.ParseInt: parsing {said}: invalid syntax"
                raise status.bad_request(why) from None
        policy = body.get("propagationPolicy") or query.get("propagationPolicy") or ""
        orphan = body.get("orphanDependents")
        if orphan is None and query.get("orphanDependents"):
            orphan = query["orphanDependents"].lower() in {"1", "true"}
        dry_run = body.get("dryRun") or ([query["dryRun"]] if query.get("dryRun") else [])
        _check_options(policy, orphan, dry_run)
        if not policy and orphan is not None:
            policy = "Orphan" if orphan else "Background"
        return cls(
            # A negative period means a second, so that it is not taken for none.
            grace_s=grace if grace is None or grace >= 0 else 1,
            uid=wanted.get("uid") or "",
            version=wanted.get("resourceVersion") or "",
            propagation=policy,
            dry_run=bool(dry_run),
        )


def _check_options(policy: str, orphan: bool | None, dry_run: list[str]) -> None:
    errors: list[FieldError] = []
    if policy and orphan is not None:
        why = "orphanDependents and deletionPropagation cannot be both set"
        errors.append(invalid("propagationPolicy", policy, why))
    if policy and policy not in _POLICIES:
        errors.append(not_supported("propagationPolicy", policy, (*_POLICIES, "nil")))
    if any(value != "All" for value in dry_run):
        errors.append(not_supported("dryRun", dry_run, ("All",)))
    if errors:
        raise status.invalid("DeleteOptions", "meta.k8s.io", "", errors=errors)


def delete_object(
    core: ServerState, resource: Resource, stored: Stored, *, options: DeleteOptions
) -> tuple[Stored, bool]:
    """Delete an object; return its last state and whether it is gone."""
    old = stored.obj
    meta = old["metadata"]
    if resource.storage == "namespaces" and meta["name"] in _IMMORTAL:
        why = "this namespace may not be deleted"
        raise status.forbidden(resource.plural, "", meta["name"], why=why)
    if resource.storage == _PRIORITIES and meta["name"] in _SYSTEM_PRIORITIES:
        why = "this is a system priority class and cannot be deleted"
        raise status.forbidden(resource.plural, resource.group, meta["name"], why=why)
    check_preconditions(resource, meta, options)
    if meta.get("deletionTimestamp"):
        return _delete_again(core, resource, stored, options=options)
    grace = resource.strategy.grace_s(old, options.grace_s)
    collection = core.store.collection(resource.storage)
    key = resource.key(meta.get("namespace", ""), meta["name"])
    marked = _marked(core, resource, old, grace=grace, propagation=options.propagation)
    stays = bool(marked["metadata"].get("finalizers")) or bool(grace)
    stays = stays or resource.strategy.stays_when_deleted(marked)
    if options.dry_run:
        return Stored(marked, stored.version), not stays
    if grace is None and not stays:
        return collection.remove(key), True
    written = collection.write(key, marked)
    if stays:
        return written, False
    return collection.remove(key), True


def _delete_again(
    core: ServerState, resource: Resource, stored: Stored, *, options: DeleteOptions
) -> tuple[Stored, bool]:
    """Shorten the grace period of an object that is already terminating, if requested.

    Only what the request says counts: a pod that has ended meanwhile still waits for its kubelet.
    """
    old = stored.obj
    meta = old["metadata"]
    left, grace = meta.get("deletionGracePeriodSeconds") or 0, options.grace_s
    if resource.strategy.grace_s(old, grace) is None:
        return _redirect(core, resource, stored, options=options)
    if grace is None or grace >= left:
        return stored, False
    began = parse_time(meta["deletionTimestamp"]) - left
    new = {
        **old,
        "metadata": {
            **meta,
            "deletionTimestamp": rfc3339(began + grace),
            "deletionGracePeriodSeconds": grace,
        },
    }
    gone = grace == 0 and not meta.get("finalizers")
    if options.dry_run:
        return Stored(new, stored.version), gone
    collection = core.store.collection(resource.storage)
    key = resource.key(meta.get("namespace", ""), meta["name"])
    if gone:
        return collection.remove(key, new), True
    return collection.write(key, new), False


def _redirect(
    core: ServerState, resource: Resource, stored: Stored, *, options: DeleteOptions
) -> tuple[Stored, bool]:
    """Change the propagation policy of an object that is already terminating."""
    meta = stored.obj["metadata"]
    finalizers = _finalizers(resource, meta.get("finalizers") or (), options.propagation)
    if finalizers == (meta.get("finalizers") or []):
        return stored, False
    changed = {**meta, "finalizers": finalizers}
    if not finalizers:
        del changed["finalizers"]
    new = {**stored.obj, "metadata": changed}
    gone = not finalizers and not resource.strategy.stays_when_deleted(new)
    if options.dry_run:
        return Stored(new, stored.version), gone
    collection = core.store.collection(resource.storage)
    key = resource.key(meta.get("namespace", ""), meta["name"])
    if gone:
        return collection.remove(key, new), True
    return collection.write(key, new), False


def _marked(
    core: ServerState, resource: Resource, old: Obj, *, grace: int | None, propagation: str
) -> Obj:
    meta = dict(old["metadata"])
    meta["deletionTimestamp"] = rfc3339(core.clock.now() + (grace or 0))
    meta["deletionGracePeriodSeconds"] = grace or 0
    if meta.get("generation"):
        meta["generation"] += 1
    finalizers = _finalizers(resource, meta.get("finalizers") or (), propagation)
    if finalizers:
        meta["finalizers"] = finalizers
    else:
        meta.pop("finalizers", None)
    new = {**old, "metadata": meta}
    resource.strategy.mark_deleted(new)
    if grace is None and not (finalizers or resource.strategy.stays_when_deleted(new)):
        return old
    return new


def _finalizers(resource: Resource, have: Iterable[str], propagation: str) -> list[str]:
    """What must happen before the object goes: a request outweighs the object, that its kind."""
    default = resource.strategy.default_propagation
    if default == "None":
        return list(have)
    asked = propagation or next((_BY_FINALIZER[f] for f in have if f in _BY_FINALIZER), default)
    finalizers = [f for f in have if f not in _BY_FINALIZER]
    added = [finalizer for finalizer, policy in _BY_FINALIZER.items() if policy == asked]
    return finalizers + added


def check_preconditions(resource: Resource, meta: Obj, options: DeleteOptions) -> None:
    """Refuse to delete another object than the one meant; raises StatusError 409."""
    if options.uid and options.uid != meta["uid"]:
        why = (
            f"the UID in the precondition ({options.uid}) does not match the UID in record "
            f"({meta['uid']}). The object might have been deleted and then recreated"
        )
        raise status.conflict(resource.kind, resource.group, meta["name"], why=why)
    if options.version and options.version != meta["resourceVersion"]:
        raise version_conflict(resource, meta, options.version)


def version_conflict(resource: Resource, meta: Obj, asked: str) -> status.StatusError:
    """Return the refusal of a precondition on a version that is no longer the stored one."""
    why = (
        f"the ResourceVersion in the precondition ({asked}) does not match the "
        f"ResourceVersion in record ({meta['resourceVersion']}). "
        "The object might have been modified"
    )
    return status.conflict(resource.kind, resource.group, meta["name"], why=why)
