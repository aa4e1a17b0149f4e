"""The table of every field of a scenario's files; the reader and the JSON schema are made of it."""

from __future__ import annotations

from typing import Final

from gpusched.limits import GANG_PODS_MAX, SCENARIO_COUNT_MAX, SCENARIO_SEED_MAX
from gpusched.scenario.fields_expect import EXPECTATION, TABLE
from gpusched.scenario.fields_work import DNS, LABELS, NAME, STRINGS, WORKLOAD
from gpusched.scenario.mappings import Either, Field, Listing, MapOf, Table
from gpusched.scenario.model import API_VERSION, KIND, Process
from gpusched.scenario.shapes import (
    Amount,
    Anything,
    Choice,
    Decimal,
    Duration,
    Flag,
    Text,
    Whole,
)

DAEMONS_MAX: Final = 5
FAILURES: Final = ("notReady", "lost", "deleted", "gpus")
RESTARTS: Final = ("apiserver", "scheduler", "leader")
HOURS: Final = 24
_MAPPING: Final = Anything("a mapping", (dict,))
PATH_OR_OBJECT: Final = Anything("a path or an object", (str, dict))
PATTERN: Final = Text("a name, or a pattern with *", r"[-a-z0-9.*]{1,253}", 253)

# -- nodes and queues --------------------------------------------------------------------------
NODES: Final = Table(
    "an entry of nodes",
    (
        Field("name", NAME, "Nodes are called NAME-0, NAME-1 ...; node when left out."),
        Field("count", Whole(1), "How many; 1 when left out."),
        Field("gpus", Whole(0, 1024), "GPUs of each node; 0 when left out."),
        Field("cpu", Amount(), "CPUs of each node; 96 when left out."),
        Field("memory", Amount(), "Memory of each node; 1Ti when left out."),
        Field("pods", Whole(1, 10_000), "Pods that each node takes; 110 when left out."),
        Field("product", Text(), "Label nvidia.com/gpu.product."),
        Field("perRack", Whole(1), "Nodes to a rack: label gpusched.io/rack, rack-0 ..."),
        Field("perBlock", Whole(1), "Nodes to a block: label gpusched.io/block, block-0 ..."),
        Field("perZone", Whole(1), "Nodes to a zone: label topology.kubernetes.io/zone."),
        Field("labels", LABELS, "Further labels."),
        Field("annotations", STRINGS, "Annotations."),
        Field("taints", Listing(_MAPPING), "Taints, as in a Node."),
        Field("resources", MapOf(Amount(), "names of resources"), "Other resources by name."),
    ),
    schema_id="nodes",
)
QUEUE_NAME: Final = Field("name", NAME, "Name of the queue.", required=True)

# -- the timeline ------------------------------------------------------------------------------
_TARGET: Final = (
    Field("kind", Text(), "Kind of the objects, such as Job.", required=True),
    Field("apiVersion", Text(), "Of the kind; the one that is served when left out."),
    Field("name", PATTERN, "Name, or a pattern with *; all when left out."),
    Field("namespace", PATTERN, "Namespace, * for all; default when left out."),
    Field("labels", LABELS, "Labels that the objects have."),
)
_POD_TARGET: Final = (
    Field("kind", Choice(("Pod",)), "Pod, and may be left out."),
    *_TARGET[2:],
)
_NODE_TARGET: Final = Either(
    (
        ((str,), PATTERN),
        (
            (dict,),
            Table(
                "a choice of nodes",
                (
                    Field("name", PATTERN, "Name, or a pattern with *."),
                    Field("labels", LABELS, "Labels that the nodes have."),
                ),
            ),
        ),
    ),
    "a name or pattern of nodes, or a mapping with name or labels",
)
_FOR: Final = Field("for", Duration(0.001), "It is over after so long; never when left out.")
ACTS: Final = (
    Field("submit", WORKLOAD, "Create a workload."),
    Field(
        "apply",
        Either(
            (
                ((str, dict), PATH_OR_OBJECT),
                ((tuple,), Listing(PATH_OR_OBJECT, 1)),
            ),
            "a path, an object or a list of them",
        ),
        "Create or change objects, as kubectl apply --server-side does.",
    ),
    Field(
        "delete",
        Table(
            "a deletion",
            (*_TARGET, Field("grace", Duration(), "Instead of the objects' own grace.")),
        ),
        "Delete objects.",
    ),
    Field(
        "patch",
        Table(
            "a patch",
            (
                *_TARGET,
                Field("merge", _MAPPING, "Merge patch.", required=True),
                Field("status", Flag(), "Patch the subresource status."),
            ),
        ),
        "Merge a patch into objects.",
    ),
    Field(
        "scale",
        Table(
            "a scaling",
            (*_TARGET, Field("replicas", Whole(), "How many from now on.", required=True)),
        ),
        "Set replicas, of Jobs parallelism.",
    ),
    Field("cordon", _NODE_TARGET, "Let no new pods come to nodes."),
    Field("uncordon", _NODE_TARGET, "Let pods come again."),
    Field("drain", _NODE_TARGET, "Cordon nodes and evict their pods, budgets respected."),
    Field(
        "fail",
        Table(
            "a failure",
            (
                Field("node", PATTERN, "Name of the node, or a pattern with *."),
                Field("labels", LABELS, "Labels of the nodes, such as those of one rack."),
                Field("how", Choice(FAILURES), "notReady when left out."),
                _FOR,
                Field("gpus", Whole(1, 1024), "How many are lost, for gpus."),
            ),
        ),
        "Nodes fail.",
    ),
    Field("evict", Table("an eviction", _POD_TARGET), "Evict pods through the Eviction API, once."),
    Field(
        "fault",
        Table(
            "a fault",
            (
                Field("name", Text(), "Of the rule."),
                Field("match", _MAPPING, "Which requests; all when left out."),
                Field("fault", _MAPPING, "What happens to them.", required=True),
                Field("when", _MAPPING, "At which of them; all when left out."),
                _FOR,
            ),
        ),
        "A fault rule of the API server (embedded cluster only).",
    ),
    Field(
        "restart",
        Table(
            "a restart",
            (
                Field("what", Choice(RESTARTS), "What goes away.", required=True),
                Field("down", Duration(0, 3600), "For how long; 0s when left out."),
                Field("afterWrites", Whole(1), "leader: killed after so many more bindings."),
            ),
        ),
        "Part of the control plane goes away (embedded cluster only).",
    ),
)
ACT_NAMES: Final = tuple(field.name for field in ACTS)
ENTRY: Final = Table(
    "an entry of the timeline",
    (
        Field("at", Duration(), "When first; 0s when left out."),
        Field("every", Duration(0.001), "Again after so long."),
        Field("count", Whole(1, SCENARIO_COUNT_MAX), "How often at most."),
        Field("until", Duration(), "None later than this."),
        Field(
            "arrivals",
            Choice(tuple(each.value for each in Process)),
            "How the gaps are: each the same, or drawn with that mean.",
        ),
        Field("seed", Whole(0, SCENARIO_SEED_MAX), "Of its own draws, added to the scenario's."),
        Field(
            "day",
            Listing(Decimal(0, 1e6), HOURS, HOURS),
            "How busy each hour of the day is, relative to their mean.",
        ),
        Field("say", Text(), "Sentence for the report."),
        Field("unchecked", Flag(), "What it names need not exist."),
        *ACTS,
    ),
    one_of=ACT_NAMES,
    schema_id="entry",
)

# -- the scenario ------------------------------------------------------------------------------
SPEC: Final = Table(
    "spec",
    (
        Field("teaches", Text(), "One sentence: what a reader learns from it.", required=True),
        Field("seed", Whole(0, SCENARIO_SEED_MAX), "Of everything drawn; 1 when left out."),
        Field("limit", Duration(1), "Time after which it counts as endless; 1h when left out."),
        Field("ends", Duration(1), "It ends then, instead of when everything is over."),
        Field("settle", Duration(0, 3600), "Goes on so long after the end; 5s when left out."),
        Field("slack", Duration(0, 3600), "May be so late where time is real; 2s when left out."),
        Field("daemons", Whole(1, DAEMONS_MAX), "Schedulers that elect a leader; 1."),
        Field(
            "config",
            Anything("a path or a mapping", (str, dict)),
            "Of the daemons: a whole file, or what differs from the shipped one.",
        ),
        Field("nodes", Listing(NODES), "Nodes in short."),
        Field(
            "queues",
            Listing(Anything("a mapping", (dict,))),
            "Queues: name, and the fields of a Queue's spec; a bare number is GPUs.",
        ),
        Field(
            "priorities",
            MapOf(Whole(-(10**9), 10**9), "names of PriorityClasses", DNS),
            "PriorityClasses: name and value.",
        ),
        Field("objects", Listing(PATH_OR_OBJECT), "Paths or objects, there from the beginning."),
        Field(
            "stages",
            Listing(Anything("the path of a file", (str,))),
            "KWOK Stages instead of the shipped ones.",
        ),
        Field("timeline", Listing(ENTRY), "What happens when."),
        Field("expect", Listing(EXPECTATION), "What must be so."),
        Field("tables", Listing(TABLE), "Printed after the verdicts and in the report."),
    ),
)
METADATA: Final = Table(
    "metadata",
    (
        Field("name", NAME, "Unique among the scenarios of one run.", required=True),
        Field("labels", LABELS, "Labels, for whoever sorts scenarios."),
        Field("annotations", STRINGS, "Annotations."),
    ),
)
SCENARIO: Final = Table(
    "a scenario",
    (
        Field("apiVersion", Choice((API_VERSION,)), "Of this format.", required=True),
        Field("kind", Choice((KIND,)), "Scenario.", required=True),
        Field("metadata", METADATA, "Its name.", required=True),
        Field("spec", SPEC, "What is there, what happens, what is expected.", required=True),
    ),
)
PODS_MAX: Final = GANG_PODS_MAX
