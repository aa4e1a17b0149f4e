"""Names that tell nobody anything, the same ones for the same names wherever they stand.

A name is replaced word by word: ``llama-70b-worker-0`` becomes ``k3xq2a-f7wz1m-bq8d0c-0``. So
what controllers build of names stays so: the pod of a Job begins with the Job's name. Numbers
stay. What belongs to nodes stays too (their names and labels, levels, node pools, classes of
priority and storage), as do roles and names of sub-groups: decisions hang by them.

Words are hashed with a key. Without the key nobody can tell whether ``k3xq2a`` is ``llama``.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from gpusched.objects.hints import KAI_SUB_GROUP, ROLE_LABEL, ROLES, SUB_GROUP_LABEL

_WORD: Final = re.compile(r"[^-._/:]+")
_PLAIN: Final = re.compile(
    r"|-?\d+(\.\d+)?|[Tt]rue|[Ff]alse|(\d+(\.\d+)?(ms|[smhd]))+"
    r"|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
)
"""Numbers, durations, answers and UIDs: they are no names."""
_LETTERS: Final = 6
_LABEL_MAX: Final = 63
_WELL_KNOWN: Final = frozenset(
    {"default", "root", "kube-system", "kube-public", "kube-node-lease", "gpusched-system"}
)
_OF_NODES: Final = frozenset(
    {
        "nodes",
        "priorityclasses.scheduling.k8s.io",
        "storageclasses.storage.k8s.io",
        "topologies.scheduling.gpusched.io",
        "resourceslices.resource.k8s.io",
        "noderesourcetopologies.topology.node.k8s.io",
    }
)
"""Resources whose objects stay as they are."""
_OF_VOLUMES: Final = frozenset({"persistentvolumes", "persistentvolumeclaims"})
"""Claims ask for volumes by labels, which tell of disks and zones."""
_NAMES: Final = frozenset(
    {
        "name", "namespace", "namespaces", "queue", "parent", "parentQueue", "claimName",
        "volumeName", "podGroupName", "resourceClaimName", "resourceClaimTemplateName",
    }
)  # fmt: skip
"""Members that hold names of objects."""
_KEPT: Final = frozenset(
    {
        "nodeAffinity", "nodeSelector", "tolerations", "resources", "allowedTopologies",
        "topology", "topologyConstraint", "networkTopology", "placement", "nodePools",
        "subGroups", "replicatedJobs", "replicatedJobsStatus", "workerGroupSpecs", "minTaskMember",
        "schedulingGates", "schedulingConstraints", "allocatedResources", "capacity",
    }
)  # fmt: skip
"""Members of which everything stays: they speak of nodes, roles and sub-groups."""
_LABELS: Final = frozenset({"labels", "matchLabels"})
_KEPT_LABELS: Final = frozenset(
    {
        *ROLES, ROLE_LABEL, SUB_GROUP_LABEL, KAI_SUB_GROUP, "ray.io/node-type", "spark-role",
        "training.kubeflow.org/operator-name", "training.kubeflow.org/replica-type",
        "training.kubeflow.org/job-role", "gpusched.io/class",
    }
)  # fmt: skip
_KEPT_NOTES: Final = frozenset(
    {
        "gpusched.io/topology-required", "gpusched.io/topology-preferred",
        "kueue.x-k8s.io/podset-required-topology", "kueue.x-k8s.io/podset-preferred-topology",
        "leaderworkerset.sigs.k8s.io/exclusive-topology",
        "alpha.jobset.sigs.k8s.io/exclusive-topology", "volcano.sh/task-spec",
        "gpusched.io/slots", "gpusched.io/plan", "gpusched.io/proof", "gpusched.io/moved",
        "gpusched.io/admitted", "gpusched.io/gpu-memory", "gpu-memory", "gpusched.io/run-for",
        "yunikorn.apache.org/task-groups", "volume.kubernetes.io/selected-node",
    }
)  # fmt: skip


class Pseudonyms:
    """See the module.

    Args:
        key: any bytes; the same key gives the same pseudonyms.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._word = lru_cache(maxsize=100_000)(self._hashed)

    def of_name(self, name: str) -> str:
        """The pseudonym of a name, or the name where it is well known or a number."""
        if name in _WELL_KNOWN or _PLAIN.fullmatch(name):
            return name
        text = _WORD.sub(lambda match: self._word(match[0]), name)
        # What had room in a label must have room in one still.
        return self._word(name) * 2 if len(text) > _LABEL_MAX >= len(name) else text

    def of_object(self, resource: str, item: Any) -> Any:
        """An object, trimmed before, with pseudonyms.

        Args:
            resource: plural name with group.
            item: is not changed.
        """
        return item if resource in _OF_NODES else self._walk(item, resource)

    def _hashed(self, word: str) -> str:
        if word.isdecimal():
            return word
        digest = hmac.new(self._key, word.encode(), hashlib.sha256).digest()
        text = base64.b32encode(digest).decode().lower()
        # A letter in front: some names must begin with one.
        return "abcdefghijklmnopqrstuvwxyz"[digest[-1] % 26] + text[: _LETTERS - 1]

    def _walk(self, value: Any, resource: str) -> Any:
        if isinstance(value, list):
            return [self._walk(each, resource) for each in value]
        if not isinstance(value, dict):
            return value
        if "key" in value and "operator" in value and isinstance(value.get("values"), list):
            key = str(value["key"])
            return {**value, "values": [self._label(key, each) for each in value["values"]]}
        return {
            name: part if name in _KEPT else self._member(name, part, resource)
            for name, part in value.items()
            if name != "message"
        }

    def _member(self, name: str, part: Any, resource: str) -> Any:
        if name == "annotations" and isinstance(part, dict):
            return self._values(part, kept=_KEPT_NOTES)
        if resource in _OF_VOLUMES and name in ("labels", "selector"):
            return part
        if name in _LABELS and isinstance(part, dict):
            return self._values(part, kept=_KEPT_LABELS)
        if name in _NAMES and isinstance(part, str):
            return self.of_name(part)
        if name in _NAMES and isinstance(part, list):
            return [self.of_name(each) if isinstance(each, str) else each for each in part]
        return self._walk(part, resource)

    def _values(self, part: Mapping[str, Any], *, kept: frozenset[str]) -> dict[str, Any]:
        return {
            key: value if key in kept or not isinstance(value, str) else self.of_name(value)
            for key, value in part.items()
        }

    def _label(self, key: str, value: Any) -> Any:
        return self._values({key: value}, kept=_KEPT_LABELS)[key]
