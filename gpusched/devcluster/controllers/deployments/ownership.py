"""Adoption and release: a controller takes what its selector finds, and lets go what it no longer finds."""

from __future__ import annotations

from collections.abc import Iterable

from gpusched.devcluster.apimachinery.selectors import label_selector_matches
from gpusched.devcluster.apimachinery.status import StatusError
from gpusched.devcluster.apiserver.client.local_client import LocalClient
from gpusched.devcluster.controllers import pod_state
from gpusched.devcluster.controllers.pod_state import Obj


def reference_to(owner: Obj) -> Obj:
    """The owner reference of what a controller makes."""
    metadata = owner["metadata"]
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def claim_objects(
    client: LocalClient, owner: Obj, resource: str, *, candidates: Iterable[Obj]
) -> tuple[list[Obj], list[Obj]]:
    """Sort out which of the candidates an owner controls.

    Args:
        client: the cluster.
        owner: the controller; it adopts and releases nothing while it is being deleted.
        resource: plural with group of the candidates.
        candidates: objects of its namespace that it controls or that have no controller.

    Returns:
        The objects it controls now, and those whose owner changed, in their new state.
    """
    kept: list[Obj] = []
    moved: list[Obj] = []
    uid, leaving = owner["metadata"]["uid"], "deletionTimestamp" in owner["metadata"]
    selector = owner["spec"].get("selector")
    for obj in candidates:
        metadata = obj["metadata"]
        holder = pod_state.controller_of(obj)
        found = label_selector_matches(selector, metadata.get("labels") or {})
        if holder is not None and holder.get("uid") != uid:
            continue
        if holder is not None and found:
            kept.append(obj)
            continue
        if leaving or (holder is None and (not found or "deletionTimestamp" in metadata)):
            continue
        references = metadata.get("ownerReferences") or []
        if holder is None:
            references = [*references, reference_to(owner)]
        else:
            references = [r for r in references if r.get("uid") != uid]
        changed = _rewrite(client, resource, obj, references)
        if changed is not None:
            moved.append(changed)
            if holder is None:
                kept.append(changed)
    return kept, moved


def _rewrite(client: LocalClient, resource: str, obj: Obj, references: list[Obj]) -> Obj | None:
    """Write owner references; None when the object is gone."""
    metadata = obj["metadata"]
    patch = {"metadata": {"uid": metadata["uid"], "ownerReferences": references or None}}
    try:
        return client.patch(resource, metadata["namespace"], metadata["name"], patch)
    except StatusError as refusal:
        if refusal.code not in {404, 422}:  # gone, or another object by that name
            raise
        return None
