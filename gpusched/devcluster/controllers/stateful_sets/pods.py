"""Pods of StatefulSets: their names, numbers, claims and what tells that they work."""

from __future__ import annotations

import re
from typing import Any, Final

from gpusched.devcluster.controllers import pod_state
from gpusched.devcluster.controllers.deployments.ownership import reference_to

Obj = dict[str, Any]

POD_NAME: Final = "statefulset.kubernetes.io/pod-name"
POD_INDEX: Final = "apps.kubernetes.io/pod-index"
REVISION: Final = "controller-revision-hash"
_MEMBER: Final = re.compile(r"(.*)-([0-9]{1,9})", re.DOTALL)


def ordinal_of(owner: Obj, pod: Obj) -> int:
    """The number of a pod of a set, -1 for one that its name does not make a member."""
    found = _MEMBER.fullmatch(pod["metadata"]["name"])
    return int(found[2]) if found and found[1] == owner["metadata"]["name"] else -1


def revision_of(pod: Obj) -> str:
    """The name of the revision that a pod was made of."""
    return str((pod["metadata"].get("labels") or {}).get(REVISION) or "")


def is_ready(pod: Obj) -> bool:
    """Whether a pod runs and is ready."""
    return pod_state.pod_phase(pod) == "Running" and pod_state.is_ready(pod)


def is_available(pod: Obj, least_ready_s: int, now: float) -> bool:
    """Whether a pod has been ready for long enough."""
    wait = pod_state.available_in(pod, least_ready_s, now)
    return is_ready(pod) and wait is not None and wait <= 0


def new_pod(owner: Obj, template: Obj, revision: str, ordinal: int) -> Obj:
    """The pod of a number, made of a revision's template."""
    metadata, given = owner["metadata"], template.get("metadata") or {}
    name = f"{metadata['name']}-{ordinal}"
    own = {POD_NAME: name, POD_INDEX: str(ordinal), REVISION: revision}
    kept = {key: given[key] for key in ("annotations", "finalizers") if given.get(key)}
    spec = {**template["spec"], "hostname": name}
    spec.pop("subdomain", None)
    if service := owner["spec"].get("serviceName"):
        spec["subdomain"] = service
    claims = owner["spec"].get("volumeClaimTemplates") or ()
    if claims:
        names = [claim["metadata"]["name"] for claim in claims]
        own_volumes = [v for v in spec.get("volumes") or () if v.get("name") not in names]
        added = [
            {"name": claim, "persistentVolumeClaim": {"claimName": f"{claim}-{name}"}}
            for claim in names
        ]
        spec["volumes"] = [*added, *own_volumes]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "generateName": f"{metadata['name']}-",
            "namespace": metadata["namespace"],
            "labels": {**(given.get("labels") or {}), **own},
            **kept,
            "ownerReferences": [reference_to(owner)],
        },
        "spec": spec,
    }


def claims_of(owner: Obj, ordinal: int) -> list[Obj]:
    """The claims of volumes that the pod of a number uses."""
    metadata, spec = owner["metadata"], owner["spec"]
    found = []
    for template in spec.get("volumeClaimTemplates") or ():
        like = template["metadata"]
        labels = {**(like.get("labels") or {}), **(spec["selector"].get("matchLabels") or {})}
        kept: Obj = {"annotations": like["annotations"]} if like.get("annotations") else {}
        found.append(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {
                    **kept,
                    "name": f"{like['name']}-{metadata['name']}-{ordinal}",
                    "namespace": metadata["namespace"],
                    "labels": labels,
                },
                "spec": template["spec"],
            }
        )
    return found
