"""Deletion: preconditions, grace, finalizers, and the one or two writes watchers see."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from gpusched.devcluster import status
from gpusched.devcluster.core import parse_time, rfc3339
from gpusched.devcluster.store import Stored

if TYPE_CHECKING:
    from gpusched.devcluster.core import Core
    from gpusched.devcluster.kinds import Resource

Obj = dict[str, Any]


@attrs.frozen(kw_only=True)
class DeleteOptions:
    """What a deletion asks for."""

    grace_s: int | None = None
    uid: str = ""
    version: str = ""
    propagation: str = ""
    dry_run: bool = False

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
                raise status.bad_request(
                    f"invalid gracePeriodSeconds: {query['gracePeriodSeconds']}"
                ) from None
        propagation = body.get("propagationPolicy") or query.get("propagationPolicy") or ""
        if not propagation and body.get("orphanDependents") is not None:
            propagation = "Orphan" if body["orphanDependents"] else "Background"
        return cls(
            grace_s=grace,
            uid=wanted.get("uid") or "",
            version=wanted.get("resourceVersion") or "",
            propagation=propagation,
            dry_run=bool(body.get("dryRun") or query.get("dryRun")),
        )


def delete(
    core: Core, resource: Resource, stored: Stored, *, options: DeleteOptions
) -> tuple[Stored, bool]:
    """Delete an object; return its last state and whether it is gone."""
    old = stored.obj
    meta = old["metadata"]
    _check_preconditions(resource, meta, options)
    grace = resource.strategy.grace_s(old, options.grace_s)
    collection = core.store.collection(resource.storage)
    key = resource.key(meta.get("namespace", ""), meta["name"])
    if meta.get("deletionTimestamp"):
        return _delete_again(core, resource, stored, grace=grace, options=options)
    marked = _marked(core, resource, old, grace=grace, propagation=options.propagation)
    stays = bool(marked["metadata"].get("finalizers")) or bool(grace)
    stays = stays or resource.strategy.stays_when_deleted(marked)
    if options.dry_run:
        return Stored(marked, stored.version), not stays
    if grace is None and not stays:
        return collection.remove(key), True
    written = collection.put(key, marked)
    if stays:
        return written, False
    return collection.remove(key), True


def _delete_again(
    core: Core,
    resource: Resource,
    stored: Stored,
    *,
    grace: int | None,
    options: DeleteOptions,
) -> tuple[Stored, bool]:
    """Shorten the grace of an object that is already on its way out, if that was asked."""
    old = stored.obj
    meta = old["metadata"]
    left = meta.get("deletionGracePeriodSeconds") or 0
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
    return collection.put(key, new), False


def _marked(
    core: Core, resource: Resource, old: Obj, *, grace: int | None, propagation: str
) -> Obj:
    meta = dict(old["metadata"])
    meta["deletionTimestamp"] = rfc3339(core.clock.now() + (grace or 0))
    meta["deletionGracePeriodSeconds"] = grace or 0
    if meta.get("generation"):
        meta["generation"] += 1
    finalizers = [
        f for f in meta.get("finalizers") or () if f not in {"orphan", "foregroundDeletion"}
    ]
    if propagation == "Orphan":
        finalizers.append("orphan")
    elif propagation == "Foreground":
        finalizers.append("foregroundDeletion")
    if finalizers:
        meta["finalizers"] = finalizers
    else:
        meta.pop("finalizers", None)
    new = {**old, "metadata": meta}
    resource.strategy.mark_deleted(new)
    if grace is None and not (finalizers or resource.strategy.stays_when_deleted(new)):
        return old
    return new


def _check_preconditions(resource: Resource, meta: Obj, options: DeleteOptions) -> None:
    if options.uid and options.uid != meta["uid"]:
        why = (
            f"the UID in the precondition ({options.uid}) does not match the UID in record "
            f"({meta['uid']}). The object might have been deleted and then recreated"
        )
        raise status.conflict(resource.kind, resource.group, meta["name"], why=why)
    if options.version and options.version != meta["resourceVersion"]:
        why = (
            f"the ResourceVersion in the precondition ({options.version}) does not match the "
            f"ResourceVersion in record ({meta['resourceVersion']}). "
            "The object might have been modified"
        )
        raise status.conflict(resource.kind, resource.group, meta["name"], why=why)
