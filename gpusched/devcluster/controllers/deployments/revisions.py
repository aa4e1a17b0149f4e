"""Which replica set carries a Deployment's template, and the annotations that number them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from gpusched.devcluster.controllers.deployments.ownership import reference_to
from gpusched.devcluster.controllers.deployments.rollout_sizes import (
    DESIRED,
    MAXIMUM,
    size_annotations,
)
from gpusched.devcluster.controllers.pod_state import Obj

REVISION: Final = "deployment.kubernetes.io/revision"
_HISTORY: Final = "deployment.kubernetes.io/revision-history"
HASH: Final = "pod-template-hash"
_HISTORY_CHARACTERS_MAX: Final = 2000
_NOT_COPIED: Final = frozenset(
    {
        "kubectl.kubernetes.io/last-applied-configuration",
        REVISION,
        _HISTORY,
        DESIRED,
        MAXIMUM,
        "deprecated.deployment.rollback.to",
    }
)
_SAFE: Final = "bcdfghjklmnpqrstvwxz2456789"
_FNV_OFFSET: Final = 0x811C9DC5
_FNV_PRIME: Final = 0x01000193


def oldest_first(sets: Iterable[Obj]) -> list[Obj]:
    """Replica sets, the oldest first."""
    return sorted(
        sets, key=lambda one: (one["metadata"]["creationTimestamp"], one["metadata"]["name"])
    )


def revision_number(obj: Obj) -> int:
    """The revision that an annotation tells; 0 when it tells none."""
    return size_annotations(obj, REVISION) or 0


def split_by_template(deployment: Obj, sets: Iterable[Obj]) -> tuple[Obj | None, list[Obj]]:
    """The set with the Deployment's template, the oldest of several, and all others."""
    template = _bare(deployment["spec"]["template"])
    ordered = oldest_first(sets)
    newest = next((one for one in ordered if _bare(one["spec"]["template"]) == template), None)
    return newest, [one for one in ordered if one is not newest]


def has_template(deployment: Obj, one: Obj) -> bool:
    """Tell whether a set was made from the Deployment's template."""
    return _bare(deployment["spec"]["template"]) == _bare(one["spec"]["template"])


def _bare(template: Obj) -> Obj:
    """A template without the label that tells its hash."""
    metadata = template.get("metadata") or {}
    labels = {k: v for k, v in (metadata.get("labels") or {}).items() if k != HASH}
    return {**template, "metadata": {**metadata, "labels": labels}}


def template_hash(deployment: Obj) -> str:
    """Ten safe characters at most, from the template and the number of collisions so far.

    It has the form of a real cluster's hash, not its value, which depends on how the Go types
    of the template print.
    """
    collisions = (deployment.get("status") or {}).get("collisionCount")
    text = msgspec.json.encode(deployment["spec"]["template"], order="sorted")
    if collisions is not None:
        text += collisions.to_bytes(8, "little")
    digest = _FNV_OFFSET
    for byte in text:
        digest = ((digest ^ byte) * _FNV_PRIME) & 0xFFFFFFFF
    return "".join(_SAFE[ord(digit) % len(_SAFE)] for digit in str(digest))


def new_replica_set(deployment: Obj, hashed: str) -> Obj:
    """The replica set of a Deployment's template, without replicas."""
    metadata, spec = deployment["metadata"], deployment["spec"]
    template, selector = spec["template"], spec["selector"]
    given = template.get("metadata") or {}
    labels = {**(given.get("labels") or {}), HASH: hashed}
    made: Obj = {
        "replicas": 0,
        "selector": {
            **selector,
            "matchLabels": {**(selector.get("matchLabels") or {}), HASH: hashed},
        },
        "template": {**template, "metadata": {**given, "labels": labels}},
    }
    if least := spec.get("minReadySeconds"):
        made["minReadySeconds"] = least
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": f"{metadata['name']}-{hashed}",
            "namespace": metadata["namespace"],
            "labels": labels,
            "annotations": {},
            "ownerReferences": [reference_to(deployment)],
        },
        "spec": made,
    }


def annotations_of_revision(deployment: Obj, one: Obj, number: int) -> dict[str, str]:
    """Annotations of the set that becomes revision ``number``: the Deployment's and its past."""
    given = deployment["metadata"].get("annotations") or {}
    fresh = dict(one["metadata"].get("annotations") or {})
    fresh.update({key: value for key, value in given.items() if key not in _NOT_COPIED})
    before = fresh.get(REVISION)
    if revision_number(one) < number:
        fresh[REVISION] = str(number)
        if before:
            past = [text for text in fresh.get(_HISTORY, "").split(",") if text]
            past.append(before)
            while len(",".join(past)) > _HISTORY_CHARACTERS_MAX:
                past.pop(0)
            fresh[_HISTORY] = ",".join(past)
    return fresh


def beyond_history_limit(sets: Sequence[Obj], limit: int) -> list[Obj]:
    """Old replica sets beyond the limit of the history, the oldest revisions first."""
    alive = [one for one in sets if "deletionTimestamp" not in one["metadata"]]
    surplus = max(len(alive) - limit, 0)
    oldest = sorted(oldest_first(alive), key=revision_number)[:surplus]
    return [one for one in oldest if _idle(one)]


def _idle(one: Obj) -> bool:
    status = one.get("status") or {}
    seen = status.get("observedGeneration", 0) >= one["metadata"].get("generation", 0)
    return seen and not status.get("replicas") and not one["spec"]["replicas"]
