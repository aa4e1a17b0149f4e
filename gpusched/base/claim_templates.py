"""Resource claims as Kubernetes' claim controller makes them of templates, as plain manifests."""

from __future__ import annotations

from typing import Any, Final

POD_CLAIM: Final = "resource.kubernetes.io/pod-claim-name"
"""Annotation by which a claim is found again: its name inside of the pod or group."""
_PREFIX_MAX: Final = 57
"""Longest prefix of a generated name: a hyphen and five characters follow it."""


def claim_prefix(owner: str, part: str) -> str:
    """How the name of a claim begins.

    Args:
        owner: name of the pod or group that gets it.
        part: name of the claim inside of that.
    """
    prefix = f"{owner}-{part}-"
    if len(prefix) <= _PREFIX_MAX:
        return prefix
    share = _PREFIX_MAX / len(prefix)  # both parts give way in proportion
    return f"{owner[: int(len(owner) * share)]}-{part[: int(len(part) * share)]}"


def claim_from_template(
    owner: dict[str, Any], part: str, template: dict[str, Any]
) -> dict[str, Any]:
    """The claim that a pod or a group gets from a template; it has no name yet.

    Args:
        owner: manifest of the pod or group.
        part: name of the claim inside of that.
        template: manifest of the ResourceClaimTemplate.
    """
    like = template["spec"].get("metadata") or {}
    meta: dict[str, Any] = {
        "namespace": owner["metadata"]["namespace"],
        "annotations": {**(like.get("annotations") or {}), POD_CLAIM: part},
        "ownerReferences": [
            {
                "apiVersion": owner["apiVersion"],
                "kind": owner["kind"],
                "name": owner["metadata"]["name"],
                "uid": owner["metadata"]["uid"],
                "controller": True,
            }
        ],
    }
    if like.get("labels"):
        meta["labels"] = like["labels"]
    head = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"}
    return {**head, "metadata": meta, "spec": template["spec"]["spec"]}
