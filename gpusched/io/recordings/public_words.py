"""Words that tell nothing about who runs what: those of Kubernetes, of gpusched, of their peers.

They stay in an anonymised snapshot; every other text is replaced. A word stands here because a
decision reads it as it is, or because the API server would not take another one there.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from gpusched.api.foreign import kinds
from gpusched.api.jobs import wire as job_wire
from gpusched.api.meta.gpu_resources import DEFAULT_GPU_RESOURCES
from gpusched.api.node import wire as node_wire
from gpusched.api.pod import wire as pod_wire
from gpusched.api.pod.gang_annotations import (
    GROUP_LABEL,
    KAI_SUB_GROUP,
    LWS_INDEX,
    MAX_EXEC_LABEL,
    QUEUE_LABEL,
    ROLE_LABEL,
    ROLES,
    SUB_GROUP_LABEL,
)
from gpusched.session.framework.reasons import Reason
from gpusched.topology.layout_choice import LABEL
from gpusched.topology.levels import WELL_KNOWN


def _notes(struct: type[msgspec.Struct]) -> set[str]:
    return {each.encode_name for each in msgspec.structs.fields(struct)}


_LABEL_KEYS: Final = frozenset(
    {
        *ROLES, GROUP_LABEL, QUEUE_LABEL, ROLE_LABEL, SUB_GROUP_LABEL, KAI_SUB_GROUP, LWS_INDEX,
        MAX_EXEC_LABEL, LABEL, *(label for _, label in DEFAULT_GPU_RESOURCES.product_labels),
        *(label for _, labels in WELL_KNOWN for label in labels),
        "alpha.jobset.sigs.k8s.io/exclusive-topology", "app", "app.kubernetes.io/component",
        "app.kubernetes.io/instance", "app.kubernetes.io/name", "applicationId",
        "apps.kubernetes.io/pod-index", "batch.kubernetes.io/controller-uid",
        "batch.kubernetes.io/job-completion-index", "batch.kubernetes.io/job-name",
        "beta.kubernetes.io/arch", "beta.kubernetes.io/instance-type", "beta.kubernetes.io/os",
        "controller-revision-hash", "controller-uid", "failure-domain.beta.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone", "gpusched.io/class", "job-name",
        "jobset.sigs.k8s.io/job-global-index", "jobset.sigs.k8s.io/job-index",
        "jobset.sigs.k8s.io/jobset-name", "jobset.sigs.k8s.io/replicatedjob-replicas",
        "kai.scheduler/queue", "kubernetes.io/arch", "kubernetes.io/metadata.name",
        "kubernetes.io/os", "kueue.x-k8s.io/pod-group-name", "kueue.x-k8s.io/queue-name",
        "leaderworkerset.sigs.k8s.io/group-index", "leaderworkerset.sigs.k8s.io/name",
        "metadata.name", "node-role.kubernetes.io/control-plane",
        "node-role.kubernetes.io/worker", "node.kubernetes.io/instance-type", "nvidia.com/gpu",
        "nvidia.com/gpu.count", "nvidia.com/gpu.memory", "nvidia.com/gpu.present",
        "nvidia.com/gpu.replicas", "nvidia.com/mig.capable", "nvidia.com/mig.strategy",
        "pod-group.scheduling.sigs.k8s.io/min-available", "pod-group.scheduling.sigs.k8s.io/name",
        "pod-template-hash", "ray.io/cluster", "ray.io/node-type", "ray.io/replica-host-index",
        "ray.io/worker-group-replica-index", "scheduling.volcano.sh/queue-name",
        "scheduling.x-k8s.io/pod-group", "simulate.gpusched.io/user", "spark-app-selector",
        "statefulset.kubernetes.io/pod-name", "training.kubeflow.org/job-name",
        "training.kubeflow.org/operator-name", "training.kubeflow.org/replica-index",
        "volcano.sh/queue-name", "volcano.sh/task-index", "volcano.sh/task-spec",
        "yunikorn.apache.org/app-id",
    }
)  # fmt: skip
_NOTE_KEYS: Final = frozenset(
    {
        *_notes(pod_wire.PodAnnotations), *_notes(node_wire.NodeAnnotations),
        *_notes(job_wire.JobAnnotations), "gpusched.io/gpus-lost", "gpusched.io/failure",
        "gpusched.io/fail-after", "gpusched.io/fail-chance", "gpusched.io/fail-on-attempt",
        "gpusched.io/rank", "gpusched.io/run-for", "gpusched.io/start-after",
        "gpusched.io/stop-after", "gpusched.io/seal", "kwok.x-k8s.io/node",
        "pv.kubernetes.io/bind-completed", "storageclass.kubernetes.io/is-default-class",
        "volume.kubernetes.io/selected-node",
    }
)  # fmt: skip
_TAINTS: Final = frozenset(
    f"node.kubernetes.io/{each}"
    for each in (
        "not-ready", "unreachable", "unschedulable", "disk-pressure", "memory-pressure",
        "pid-pressure", "network-unavailable", "out-of-service",
    )
)  # fmt: skip
KEYS: Final = _LABEL_KEYS | _NOTE_KEYS | _TAINTS
"""Keys of labels, annotations, selectors and taints."""
_OBJECTS: Final = frozenset(
    {
        "default", "root", "kube-system", "kube-public", "kube-node-lease", "gpusched-system",
        "gpusched", "default-scheduler", "volcano", "kai-scheduler",
        "scheduler-plugins-scheduler", "system-node-critical", "system-cluster-critical",
        "kubernetes.io/no-provisioner", "gpu.nvidia.com", "gpu.amd.com", "gpu.intel.com",
        "recorded", "fake", "gpu", "amdgpu", "gaudi", "npu",
    }
)  # fmt: skip
_ENUMS: Final = frozenset(
    [
        "True",
        "False",
        "Unknown",
        "true",
        "false",
        "None",
        "In",
        "NotIn",
        "Exists",
        "DoesNotExist",
        "Gt",
        "Lt",
        "Equal",
        "NoSchedule",
        "PreferNoSchedule",
        "NoExecute",
        "Pending",
        "Running",
        "Succeeded",
        "Failed",
        "Inqueue",
        "Completed",
        "Bound",
        "Lost",
        "Available",
        "Released",
        "PreScheduling",
        "Scheduling",
        "Scheduled",
        "Finished",
        "Always",
        "OnFailure",
        "Never",
        "OrderedReady",
        "Parallel",
        "Indexed",
        "NonIndexed",
        "TerminatingOrFailed",
        "PreemptLowerPriority",
        "DoNotSchedule",
        "ScheduleAnyway",
        "Honor",
        "Ignore",
        "IfHealthyBudget",
        "AlwaysAllow",
        "TCP",
        "UDP",
        "SCTP",
        "Immediate",
        "WaitForFirstConsumer",
        "Retain",
        "Delete",
        "Recycle",
        "Filesystem",
        "Block",
        "ReadWriteOnce",
        "ReadOnlyMany",
        "ReadWriteMany",
        "ReadWriteOncePod",
        "Priority",
        "Fifo",
        "StrictFifo",
        "FairShare",
        "fifo",
        "traditional",
        "Hold",
        "HoldAndDrain",
        "Maintenance",
        "Evict",
        "Leave",
        "Announced",
        "Active",
        "Ended",
        "Invalid",
        "Open",
        "Closed",
        "Draining",
        "Closing",
        "Group",
        "Pod",
        "Extras",
        "hard",
        "soft",
        "Terminating",
        "NotTerminating",
        "BestEffort",
        "NotBestEffort",
        "PriorityClass",
        "CrossNamespacePodAffinity",
        "VolumeAttributesClass",
        "Ready",
        "PodScheduled",
        "Admitted",
        "Preempted",
        "DisruptionTarget",
        "FailJob",
        "FailIndex",
        "Count",
        "gpusched.io/GangWhole",
        "Initialized",
        "ContainersReady",
        "MemoryPressure",
        "DiskPressure",
        "PIDPressure",
        "NetworkUnavailable",
        "Complete",
        "Suspended",
        "SuccessCriteriaMet",
        "FailureTarget",
        "PodReadyToStartContainers",
        "PodGroupScheduled",
        "Unschedulable",
        "SchedulingGated",
        "UnexpectedAdmissionError",
        "TopologyAffinityError",
        "InUse",
        "LeaderCreated",
        "LeaderReady",
        "InOrder",
        "AnyOrder",
        "AtStartup",
        "WaitForWorkersReady",
        "topologyManagerPolicy",
        "topologyManagerScope",
        "single-numa-node",
        "restricted",
        "best-effort",
        "none",
        "container",
        "pod",
        "Node",
        "Package",
        "Core",
        "SingleNUMANodeContainerLevel",
        "SingleNUMANodePodLevel",
        "SingleNUMANode",
        "Restricted",
        "RestrictedContainerLevel",
        "RestrictedPodLevel",
        "optimal",
        "linux",
        "windows",
        "amd64",
        "arm64",
        "batch.kubernetes.io/job-tracking",
        "v1",
        "apps/v1",
        "batch/v1",
    ]
)
_ROLES: Final = frozenset(
    [
        "master",
        "worker",
        "launcher",
        "chief",
        "ps",
        "evaluator",
        "head",
        "leader",
        "driver",
        "executor",
        "headgroup",
        "Master",
        "Worker",
        "Launcher",
        "Chief",
        "PS",
        "Evaluator",
        "pytorchjob-controller",
        "tfjob-controller",
        "xgboostjob-controller",
        "jaxjob-controller",
        "paddlejob-controller",
        "mpijob-controller",
        "mpi-operator",
    ]
)
_KINDS: Final = frozenset(
    {
        *(each.kind for each in kinds.ALL),
        *("Pod", "Job", "CronJob", "ReplicaSet", "Deployment", "StatefulSet", "DaemonSet"),
    }
)
_API_VERSIONS: Final = frozenset(
    f"{each.group}/{version}" for each in kinds.ALL for version in each.versions
)
_LEVELS: Final = frozenset(name for name, _ in WELL_KNOWN)
VALUES: Final = (
    KEYS | _OBJECTS | _ENUMS | _ROLES | _KINDS | _API_VERSIONS | _LEVELS | frozenset(Reason)
    | DEFAULT_GPU_RESOURCES.whole
)  # fmt: skip
"""Whole texts that stay wherever they stand."""
PLAIN: Final = re.compile(
    r"|[+-]?[0-9.]+([eE][+-]?[0-9]+|[KMGTPE]i|[munkMGTPE])?"  # quantities
    r"|([0-9]+(\.[0-9]+)?(ms|us|ns|[smhd]))+"
    r"|[\[\]0-9, -]+|tier:[0-9]+"
    r"|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
    r"|[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+(Z|[+-][0-9:]+)"
    r"|OutOf(cpu|memory|pods|ephemeral-storage|[a-z0-9.]+/gpu)"
)
"""Quantities, durations, lists of numbers, UIDs and times: they are no names."""
PRODUCT_KEYS: Final = frozenset(
    {LABEL, *(label for _, label in DEFAULT_GPU_RESOURCES.product_labels)}
)
PRODUCT: Final = re.compile(r"(NVIDIA|Tesla|AMD|Instinct|Intel|HL|Ascend)[-A-Za-z0-9_.]*")
"""What vendors call their GPUs, by which layouts are found."""
GPU_WORD: Final = re.compile(
    r"nvidia|tesla|quadro|geforce|grid|titan|amd|instinct|radeon|intel|gaudi|habana|hl|ascend"
    r"|rtx|gtx|ada|generation|super|ti|dgx|dgxs|hgx|display|laptop|pro|data|center|gpu|max|shared|mig"
    r"|pcie|nvl|sxm|ls|oam|[0-9]+gb|[0-9]+g\.[0-9]+gb|sxm[0-9]|hbm[0-9]e?|gaudi[0-9]|ascend[0-9]+b?"
    r"|[ablhtvpkm][0-9]{1,4}[a-z]?|g[bh][0-9]{3}|mi[0-9]{2,3}[a-z]?|[0-9]+"
)
"""Words of vendors' names of GPUs, in small letters: what gangs call types by."""
GPU_WORDS: Final = re.compile(r"[a-z0-9.]+")
"""Words of which names of GPU types are compared, see ``names_gpu_type``."""
DEVICE_NAMES: Final = frozenset(
    [
        "index",
        "minor",
        "deviceindex",
        "numanode",
        "numa",
        "numanodeid",
        "numaid",
        "cpusocketid",
        "socket",
        "pcieroot",
        "pciroot",
        "nvlinkdomain",
        "nvlink",
        "xgmihive",
        "island",
        "type",
    ]
)
"""Attributes of devices, without domain and in small letters, by which GPUs are ordered."""
STORAGE_QUOTA: Final = ".storageclass.storage.k8s.io/"
"""In the name of a resource of a quota, behind the name of a storage class."""
