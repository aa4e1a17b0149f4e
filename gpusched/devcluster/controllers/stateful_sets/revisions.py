"""Revisions of StatefulSets: the templates that pods were and are made of, newest last."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any, Final

from gpusched.base.classes import frozen
from gpusched.devcluster.apimachinery.status import StatusError
from gpusched.devcluster.apiserver.client.local_client import LocalClient
from gpusched.devcluster.controllers import pod_state
from gpusched.devcluster.controllers.deployments.ownership import reference_to

Obj = dict[str, Any]

REVISIONS: Final = "controllerrevisions.apps"
_HASH: Final = "controller.kubernetes.io/hash"
_SAFE: Final = "bcdfghjklmnpqrstvwxz2456789"
_FNV_BASIS: Final = 2166136261
_FNV_PRIME: Final = 16777619
_ESCAPED: Final = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}


@frozen
class RevisionPair:
    """The revision that pods are of, the one they are to become, and name clashes so far."""

    current: Obj
    update: Obj
    collisions: int


def template_of(revision: Obj) -> Obj:
    """The template that a revision holds."""
    template = revision["data"]["spec"]["template"]
    return {key: value for key, value in template.items() if key != "$patch"}


def revision_data(owner: Obj) -> Obj:
    """What a revision of a set's template holds."""
    return {"spec": {"template": {**owner["spec"]["template"], "$patch": "replace"}}}


def data_hash(data: Obj, collisions: int) -> str:
    """Return the FNV-1 sum of a revision's data, as Go prints it, spelled with safe letters."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    for plain, escaped in _ESCAPED.items():
        text = text.replace(plain, escaped)
    total = _FNV_BASIS
    for byte in f"{text}{collisions}".encode():
        total = ((total * _FNV_PRIME) % 2**32) ^ byte
    return "".join(_SAFE[ord(digit) % len(_SAFE)] for digit in str(total))


class RevisionHistory:
    """Finds, makes and forgets the revisions of sets."""

    def __init__(self, client: LocalClient) -> None:
        self._client = client

    def of_set(self, owner: Obj) -> list[Obj]:
        """Every revision of a set, oldest first."""
        uid = owner["metadata"]["uid"]
        found = [
            revision
            for revision in self._client.list(REVISIONS, owner["metadata"]["namespace"])
            if (pod_state.controller_of(revision) or {}).get("uid") == uid
        ]
        return sorted(found, key=lambda r: (r["revision"], r["metadata"]["name"]))

    def pair(self, owner: Obj, known: Sequence[Obj]) -> RevisionPair:
        """The two revisions that count now; a changed template makes a new one.

        Raises:
            StatusError: a revision is refused.
        """
        status = owner.get("status") or {}
        collisions = int(status.get("collisionCount") or 0)
        data, number = revision_data(owner), 1 + max((r["revision"] for r in known), default=0)
        equal = [revision for revision in known if revision["data"] == data]
        if equal and equal[-1] is known[-1]:
            update = known[-1]
        elif equal:
            update = self._client.update(REVISIONS, {**equal[-1], "revision": number})
        else:
            update, collisions = self._create(owner, data, number, collisions=collisions)
        name = status.get("currentRevision")
        current = next((r for r in known if r["metadata"]["name"] == name), update)
        return RevisionPair(current, update, collisions)

    def _create(self, owner: Obj, data: Obj, number: int, *, collisions: int) -> tuple[Obj, int]:
        metadata = owner["metadata"]
        labels = (owner["spec"]["template"].get("metadata") or {}).get("labels") or {}
        while True:
            suffix = data_hash(data, collisions)
            revision = {
                "apiVersion": "apps/v1",
                "kind": "ControllerRevision",
                "metadata": {
                    "name": f"{metadata['name']}-{suffix}",
                    "namespace": metadata["namespace"],
                    "labels": {**labels, _HASH: suffix},
                    "annotations": dict(metadata.get("annotations") or {}),
                    "ownerReferences": [reference_to(owner)],
                },
                "data": data,
                "revision": number,
            }
            try:
                return self._client.create(REVISIONS, revision), collisions
            except StatusError as refusal:
                if refusal.code != 409:
                    raise
                collisions += 1

    def truncate(self, owner: Obj, known: Sequence[Obj], live: Collection[str]) -> None:
        """Delete the oldest revisions that nothing is of, beyond the limit of the set."""
        idle = [r for r in known if r["metadata"]["name"] not in live]
        limit = owner["spec"]["revisionHistoryLimit"]
        for revision in idle[: max(len(idle) - limit, 0)] if limit >= 0 else ():
            metadata = revision["metadata"]
            self._client.delete(REVISIONS, metadata["namespace"], metadata["name"])
