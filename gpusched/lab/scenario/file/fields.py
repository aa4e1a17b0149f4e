"""The table of every field of a scenario's files; the reader and the JSON schema are made of it."""

from __future__ import annotations

from typing import Final

from gpusched.base.limits import GANG_PODS_MAX, SCENARIO_COUNT_MAX, SCENARIO_SEED_MAX
from gpusched.devcluster.controllers.nodes.devices.device_entries import CHANNELS_MAX, KINDS
from gpusched.devcluster.controllers.nodes.devices.gpu_models import MODELS
from gpusched.lab.scenario.file.expectation_fields import EXPECTATION, TABLE
from gpusched.lab.scenario.file.mappings import (
    ListType,
    MappingField,
    MappingType,
    MapType,
    UnionType,
)
from gpusched.lab.scenario.file.value_types import (
    AnyType,
    BooleanType,
    DurationType,
    EnumType,
    IntegerType,
    NumberTextType,
    NumberType,
    QuantityType,
    TextType,
)
from gpusched.lab.scenario.file.workload_fields import DNS, LABELS, NAME, STRINGS, WORKLOAD
from gpusched.lab.scenario.model.scenario import API_VERSION, KIND, ArrivalProcess

DAEMONS_MAX: Final = 5
FAILURES: Final = ("notReady", "lost", "deleted", "gpus")
RESTARTS: Final = ("apiserver", "scheduler", "leader")
HOURS: Final = 24
_MAPPING: Final = AnyType("a mapping", (dict,))
PATH_OR_OBJECT: Final = AnyType("a path or an object", (str, dict))
PATTERN: Final = TextType("a name, or a pattern with *", r"[-a-z0-9.*]{1,253}", 253)

# -- nodes and queues --------------------------------------------------------------------------
_DEVICES: Final = MappingType(
    "an entry of devices",
    (
        MappingField("kind", EnumType(KINDS), "What they are.", required=True),
        MappingField("count", IntegerType(1, CHANNELS_MAX), "How many; 1 when left out."),
        MappingField("model", EnumType(tuple(MODELS)), "Of GPUs; H100 when left out."),
        MappingField(
            "roots",
            IntegerType(1, 64),
            "PCIe roots they share; as many as the kind with the fewest devices when left out.",
        ),
        MappingField("without", ListType(TextType()), "Names of devices that are missing."),
    ),
)
NODES: Final = MappingType(
    "an entry of nodes",
    (
        MappingField("name", NAME, "Nodes are called NAME-0, NAME-1 ...; node when left out."),
        MappingField("count", IntegerType(1), "How many; 1 when left out."),
        MappingField("gpus", IntegerType(0, 1024), "GPUs of each node; 0 when left out."),
        MappingField("cpu", QuantityType(), "CPUs of each node; 96 when left out."),
        MappingField("memory", QuantityType(), "Memory of each node; 1Ti when left out."),
        MappingField(
            "pods", IntegerType(1, 10_000), "Pods that each node takes; 110 when left out."
        ),
        MappingField("product", TextType(), "Label nvidia.com/gpu.product."),
        MappingField(
            "perRack", IntegerType(1), "Nodes to a rack: label gpusched.io/rack, rack-0 ..."
        ),
        MappingField(
            "perBlock", IntegerType(1), "Nodes to a block: label gpusched.io/block, block-0 ..."
        ),
        MappingField(
            "perZone", IntegerType(1), "Nodes to a zone: label topology.kubernetes.io/zone."
        ),
        MappingField("labels", LABELS, "Further labels."),
        MappingField("annotations", STRINGS, "Annotations."),
        MappingField("taints", ListType(_MAPPING), "Taints, as in a Node."),
        MappingField(
            "resources", MapType(QuantityType(), "names of resources"), "Other resources by name."
        ),
        MappingField(
            "devices",
            ListType(_DEVICES),
            "Devices that drivers publish for each node (embedded cluster only).",
        ),
    ),
    schema_id="nodes",
)
QUEUE_NAME: Final = MappingField("name", NAME, "Name of the queue.", required=True)

# -- the timeline ------------------------------------------------------------------------------
_TARGET: Final = (
    MappingField("kind", TextType(), "Kind of the objects, such as Job.", required=True),
    MappingField("apiVersion", TextType(), "Of the kind; the one that is served when left out."),
    MappingField("name", PATTERN, "Name, or a pattern with *; all when left out."),
    MappingField("namespace", PATTERN, "Namespace, * for all; default when left out."),
    MappingField("labels", LABELS, "Labels that the objects have."),
)
_POD_TARGET: Final = (
    MappingField("kind", EnumType(("Pod",)), "Pod, and may be left out."),
    *_TARGET[2:],
)
_NODE_TARGET: Final = UnionType(
    (
        ((str,), PATTERN),
        (
            (dict,),
            MappingType(
                "a choice of nodes",
                (
                    MappingField("name", PATTERN, "Name, or a pattern with *."),
                    MappingField("labels", LABELS, "Labels that the nodes have."),
                ),
            ),
        ),
    ),
    "a name or pattern of nodes, or a mapping with name or labels",
)
_FOR: Final = MappingField(
    "for", DurationType(0.001), "It is over after so long; never when left out."
)
ACTS: Final = (
    MappingField("submit", WORKLOAD, "Create a workload."),
    MappingField(
        "apply",
        UnionType(
            (
                ((str, dict), PATH_OR_OBJECT),
                ((tuple,), ListType(PATH_OR_OBJECT, 1)),
            ),
            "a path, an object or a list of them",
        ),
        "Create or change objects, as kubectl apply --server-side does.",
    ),
    MappingField(
        "delete",
        MappingType(
            "a deletion",
            (*_TARGET, MappingField("grace", DurationType(), "Instead of the objects' own grace.")),
        ),
        "Delete objects.",
    ),
    MappingField(
        "patch",
        MappingType(
            "a patch",
            (
                *_TARGET,
                MappingField("merge", _MAPPING, "Merge patch.", required=True),
                MappingField("status", BooleanType(), "Patch the subresource status."),
            ),
        ),
        "Merge a patch into objects.",
    ),
    MappingField(
        "scale",
        MappingType(
            "a scaling",
            (
                *_TARGET,
                MappingField("replicas", IntegerType(), "How many from now on.", required=True),
            ),
        ),
        "Set replicas, of Jobs parallelism.",
    ),
    MappingField("cordon", _NODE_TARGET, "Let no new pods come to nodes."),
    MappingField("uncordon", _NODE_TARGET, "Let pods come again."),
    MappingField("drain", _NODE_TARGET, "Cordon nodes and evict their pods, budgets respected."),
    MappingField(
        "fail",
        MappingType(
            "a failure",
            (
                MappingField("node", PATTERN, "Name of the node, or a pattern with *."),
                MappingField("labels", LABELS, "Labels of the nodes, such as those of one rack."),
                MappingField("how", EnumType(FAILURES), "notReady when left out."),
                _FOR,
                MappingField("gpus", IntegerType(1, 1024), "How many are lost, for gpus."),
            ),
        ),
        "Nodes fail.",
    ),
    MappingField(
        "evict",
        MappingType("an eviction", _POD_TARGET),
        "Evict pods through the Eviction API, once.",
    ),
    MappingField(
        "fault",
        MappingType(
            "a fault",
            (
                MappingField("name", TextType(), "Of the rule."),
                MappingField("match", _MAPPING, "Which requests; all when left out."),
                MappingField("fault", _MAPPING, "What happens to them.", required=True),
                MappingField("when", _MAPPING, "At which of them; all when left out."),
                _FOR,
            ),
        ),
        "A fault rule of the API server (embedded cluster only).",
    ),
    MappingField(
        "restart",
        MappingType(
            "a restart",
            (
                MappingField("what", EnumType(RESTARTS), "What goes away.", required=True),
                MappingField("down", DurationType(0, 3600), "For how long; 0s when left out."),
                MappingField(
                    "afterWrites", IntegerType(1), "leader: killed after so many more bindings."
                ),
            ),
        ),
        "Part of the control plane goes away (embedded cluster only).",
    ),
)
ACT_NAMES: Final = tuple(field.name for field in ACTS)
ENTRY: Final = MappingType(
    "an entry of the timeline",
    (
        MappingField("at", DurationType(), "When first; 0s when left out."),
        MappingField("every", DurationType(0.001), "Again after so long."),
        MappingField("count", IntegerType(1, SCENARIO_COUNT_MAX), "How often at most."),
        MappingField("until", DurationType(), "None later than this."),
        MappingField(
            "arrivals",
            EnumType(tuple(each.value for each in ArrivalProcess)),
            "How the gaps are: each the same, or drawn with that mean.",
        ),
        MappingField(
            "seed", IntegerType(0, SCENARIO_SEED_MAX), "Of its own draws, added to the scenario's."
        ),
        MappingField(
            "day",
            ListType(NumberType(0, 1e6), HOURS, HOURS),
            "How busy each hour of the day is, relative to their mean.",
        ),
        MappingField("say", TextType(), "Sentence for the report."),
        MappingField("unchecked", BooleanType(), "What it names need not exist."),
        *ACTS,
    ),
    one_of=ACT_NAMES,
    schema_id="entry",
)

# -- the scenario ------------------------------------------------------------------------------
CLUSTER: Final = MappingType(
    "cluster",
    (
        MappingField(
            "kubernetesGangs",
            NumberTextType("off, or a release of Kubernetes such as 1.36", r"off|1[.][0-9]{2}", 8),
            "Kubernetes' own gangs are served as this release does, all their gates on.",
        ),
        MappingField(
            "featureGates",
            MapType(BooleanType(), "names of feature gates", r"[A-Za-z0-9]{1,63}"),
            "Single gates of gangs: true or false.",
        ),
    ),
)
SPEC: Final = MappingType(
    "spec",
    (
        MappingField(
            "teaches", TextType(), "One sentence: what a reader learns from it.", required=True
        ),
        MappingField(
            "seed", IntegerType(0, SCENARIO_SEED_MAX), "Of everything drawn; 1 when left out."
        ),
        MappingField(
            "limit", DurationType(1), "Time after which it counts as endless; 1h when left out."
        ),
        MappingField("ends", DurationType(1), "It ends then, instead of when everything is over."),
        MappingField(
            "settle", DurationType(0, 3600), "Goes on so long after the end; 5s when left out."
        ),
        MappingField(
            "slack", DurationType(0, 3600), "May be so late where time is real; 2s when left out."
        ),
        MappingField("daemons", IntegerType(1, DAEMONS_MAX), "Schedulers that elect a leader; 1."),
        MappingField(
            "config",
            AnyType("a path or a mapping", (str, dict)),
            "Of the daemons: a whole file, or what differs from the shipped one.",
        ),
        MappingField("nodes", ListType(NODES), "Nodes in short."),
        MappingField(
            "queues",
            ListType(AnyType("a mapping", (dict,))),
            "Queues: name, and the fields of a Queue's spec; a bare number is GPUs.",
        ),
        MappingField(
            "priorities",
            MapType(IntegerType(-(10**9), 10**9), "names of PriorityClasses", DNS),
            "PriorityClasses: name and value.",
        ),
        MappingField(
            "objects", ListType(PATH_OR_OBJECT), "Paths or objects, there from the beginning."
        ),
        MappingField("cluster", CLUSTER, "What the cluster serves beside its defaults."),
        MappingField(
            "stages",
            ListType(AnyType("the path of a file", (str,))),
            "KWOK Stages instead of the shipped ones.",
        ),
        MappingField("timeline", ListType(ENTRY), "What happens when."),
        MappingField("expect", ListType(EXPECTATION), "What must be so."),
        MappingField("tables", ListType(TABLE), "Printed after the verdicts and in the report."),
    ),
)
METADATA: Final = MappingType(
    "metadata",
    (
        MappingField("name", NAME, "Unique among the scenarios of one run.", required=True),
        MappingField("labels", LABELS, "Labels, for whoever sorts scenarios."),
        MappingField("annotations", STRINGS, "Annotations."),
    ),
)
SCENARIO: Final = MappingType(
    "a scenario",
    (
        MappingField("apiVersion", EnumType((API_VERSION,)), "Of this format.", required=True),
        MappingField("kind", EnumType((KIND,)), "Scenario.", required=True),
        MappingField("metadata", METADATA, "Its name.", required=True),
        MappingField("spec", SPEC, "What is there, what happens, what is expected.", required=True),
    ),
)
PODS_MAX: Final = GANG_PODS_MAX
