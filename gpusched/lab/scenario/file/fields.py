"""The table of every field of a scenario's files; the reader and the JSON schema are made of it."""

from __future__ import annotations

from typing import Any, Final

import attrs

from gpusched.base.limits import GANG_PODS_MAX, SCENARIO_COUNT_MAX, SCENARIO_SEED_MAX
from gpusched.config.values import BadValueError
from gpusched.config.yaml_tree import (
    ConfigProblems,
    YamlNode,
    describe_value,
    did_you_mean,
    list_names,
)
from gpusched.lab.scenario.expansion.workload_manifests import KINDS
from gpusched.lab.scenario.file.mappings import (
    ConvertedType,
    DrawableType,
    ListType,
    MappingField,
    MappingType,
    MappingValues,
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
    RegexType,
    Schema,
    TextType,
    ValueType,
)
from gpusched.lab.scenario.judge.json_path import parse_path
from gpusched.lab.scenario.model.scenario import API_VERSION, KIND, ArrivalProcess, Comparator

DNS: Final = r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?"
NAME: Final = TextType("a name such as train or team-a", DNS, 253)
_VALUE: Final = TextType("the value of a label", most=63)
LABELS: Final = MapType(_VALUE)
STRINGS: Final = MapType(TextType("a text", most=65_536), "keys of annotations")
_GPUS_MAX: Final = 1024
LEVEL: Final = TextType("a level of topology or a label of nodes", r"[-A-Za-z0-9._/]{1,317}", 317)
FRACTION: Final = NumberTextType("a share of a GPU such as 0.25", r"0?[.][0-9]{1,3}", 8)
MIG: Final = TextType("a slice such as 1g.5gb", r"[0-9]+g[.][0-9]+gb([.+][a-z0-9.]+)?", 32)


def _same(value: Any) -> float:
    return float(value)


def drawable_integer(low: int, high: int) -> ValueType:
    """A whole number that may be drawn."""
    return DrawableType(IntegerType(low, high), _same)


DURATION: Final = DrawableType(DurationType(0.001), _same)
WISH: Final = MappingType(
    "topology",
    (
        MappingField("required", LEVEL, "All pods in one domain of this level."),
        MappingField("preferred", LEVEL, "The narrowest level that works, at best this one."),
        MappingField("maxWait", DurationType(), "How long to hold out for the preferred level."),
    ),
)
ROLE: Final = MappingType(
    "a role",
    (
        MappingField("name", NAME, "Of the role.", required=True),
        MappingField("pods", IntegerType(1, GANG_PODS_MAX), "How many; 1 when left out."),
        MappingField("gpus", IntegerType(0, _GPUS_MAX), "Of each pod; 0 when left out."),
        MappingField("cpu", QuantityType(), "Of each pod; 1 when left out."),
        MappingField("memory", QuantityType(), "Of each pod; 1Gi when left out."),
        MappingField(
            "minMember", IntegerType(0, GANG_PODS_MAX), "Fewer are enough; all when left out."
        ),
        MappingField("subGroup", NAME, "Starts with its minimum or not at all."),
        MappingField("topology", WISH, "Of the sub-group."),
    ),
)
SUB_GROUP: Final = MappingType(
    "a sub-group",
    (
        MappingField(
            "name", NAME, "As in subGroup of roles, or of one that holds others.", required=True
        ),
        MappingField("parent", NAME, "The sub-group that it is in; none at the top."),
        MappingField(
            "minSubGroups",
            IntegerType(1, GANG_PODS_MAX),
            "So many in it are enough; all when left out.",
        ),
        MappingField("topology", WISH, "Of all its pods."),
    ),
)
_ATTEMPTS: Final = UnionType(
    (
        ((int,), IntegerType(1, 10_000)),
        ((str,), TextType("attempts such as 1,2", r"[0-9]+(,[0-9]+)*")),
    ),
    "a number or attempts such as 1,2",
)
NOTES: Final[dict[str, tuple[str, ValueType, str]]] = {
    "startAfter": ("start-after", DurationType(), "Time from the binding to Running."),
    "startJitter": ("start-jitter", DurationType(), "Up to so much more."),
    "pullFor": ("pull-for", DurationType(), "Images are pulled for so long."),
    "pullError": ("pull-error", TextType(), "Containers wait with this reason."),
    "runJitter": (
        "run-jitter",
        TextType("a share or a duration"),
        "Up to so much more of the run.",
    ),
    "failAfter": ("fail-after", DurationType(), "Time from the start to Failed."),
    "failChance": ("fail-chance", NumberType(0, 1), "Share of the pods that fail."),
    "failOnAttempt": ("fail-on-attempt", _ATTEMPTS, "Only these attempts fail."),
    "attempt": ("attempt", IntegerType(1, 10_000), "Which attempt the pods are."),
    "exitCode": ("exit-code", IntegerType(0, 255), "Exit code of a failure."),
    "exitReason": ("exit-reason", TextType(), "Reason of a failure."),
    "stopAfter": ("stop-after", DurationType(), "Time from the deletion to the end."),
}
"""Annotations of pods that kwok-scenarios/README.md tells of: field, key, value."""
WORKLOAD: Final = MappingType(
    "a workload",
    (
        MappingField(
            "name", NAME, "Its name; with {{ Index }} or a number behind it.", required=True
        ),
        MappingField("kind", EnumType(KINDS), "Job when left out."),
        MappingField("namespace", NAME, "default when left out; it is made if need be."),
        MappingField("pods", drawable_integer(1, GANG_PODS_MAX), "How many; 1 when left out."),
        MappingField("minMember", drawable_integer(1, GANG_PODS_MAX), "Fewer are enough to start."),
        MappingField(
            "minSubGroups", IntegerType(1, GANG_PODS_MAX), "So many sub-groups are enough."
        ),
        MappingField("gpus", drawable_integer(0, _GPUS_MAX), "GPUs of each pod; 0 when left out."),
        MappingField("cpu", DrawableType(QuantityType()), "CPUs of each pod; 1 when left out."),
        MappingField(
            "memory", DrawableType(QuantityType()), "Memory of each pod; 1Gi when left out."
        ),
        MappingField("fraction", DrawableType(FRACTION), "Share of one GPU, such as 0.25."),
        MappingField("gpuMemory", DrawableType(QuantityType()), "Of the memory of one GPU."),
        MappingField("mig", DrawableType(MIG), "A slice such as 1g.5gb."),
        MappingField(
            "slices", drawable_integer(1, _GPUS_MAX), "How many of them; 1 when left out."
        ),
        MappingField(
            "resources", MapType(QuantityType(), "names of resources"), "Other resources by name."
        ),
        MappingField("queue", DrawableType(NAME), "Its queue."),
        MappingField("priority", DrawableType(NAME), "Name of a PriorityClass."),
        MappingField("preemptible", BooleanType(), "Whether it may be preempted or reclaimed."),
        MappingField("minRuntime", DurationType(), "It is safe from preemption for so long."),
        MappingField("runFor", DURATION, "From its start; until it is deleted when left out."),
        MappingField(
            "expectedDuration",
            UnionType(
                (((bool,), BooleanType()), ((str, int, dict), DURATION)),
                "true or a duration",
            ),
            "What it tells the scheduler; true for its runFor.",
        ),
        MappingField("topology", WISH, "Where its pods must be together."),
        MappingField("deadline", DurationType(1), "Of the Job, from its start."),
        MappingField("backoffLimit", IntegerType(), "Of the Job."),
        MappingField(
            "suspend", BooleanType(), "Of the Job; true when it names a queue and this is left out."
        ),
        MappingField("class", DrawableType(_VALUE), "By which waits are told apart."),
        *(MappingField(name, shape, doc) for name, (_, shape, doc) in NOTES.items()),
        MappingField("labels", LABELS, "Of the pods."),
        MappingField("annotations", STRINGS, "Of the pods."),
        MappingField("nodeSelector", LABELS, "Of the pods."),
        MappingField("tolerations", ListType(AnyType("a mapping", (dict,))), "Of the pods."),
        MappingField("roles", ListType(ROLE, 1, 256), "A PodGroup of several roles."),
        MappingField(
            "subGroups",
            ListType(SUB_GROUP, 1, 256),
            "A tree of sub-groups; roles need not all start.",
        ),
    ),
    at_most_one=(
        ("gpus", "fraction", "gpuMemory", "mig"),
        ("pods", "roles"),
        ("minMember", "roles"),
        ("gpus", "roles"),
        ("cpu", "roles"),
        ("memory", "roles"),
    ),
    schema_id="workload",
)


STATES: Final = (
    "waiting", "admitted", "started", "running", "complete", "failed", "suspended", "gone",
)  # fmt: skip
TESTS: Final = tuple(each.value for each in Comparator)
SPANS: Final = ("at", "by", "during")
TEXT_PATTERN: Final = TextType("a name, or a pattern with *", r"[-a-z0-9.*:]{1,253}", 253)
_WORD: Final = TextType("a word such as InsufficientResources", r"[A-Za-z][A-Za-z0-9]*", 128)
_COMPARED_VALUE: Final = AnyType("a number, a text, true or false", (int, float, str, bool))
_COMPARISONS: Final = (
    MappingField("equals", _COMPARED_VALUE, "It is this."),
    MappingField("not", _COMPARED_VALUE, "It is not this."),
    MappingField("atLeast", _COMPARED_VALUE, "It is this or more."),
    MappingField("atMost", _COMPARED_VALUE, "It is this or less."),
    MappingField("above", _COMPARED_VALUE, "It is more."),
    MappingField("below", _COMPARED_VALUE, "It is less."),
    MappingField("contains", _COMPARED_VALUE, "It holds this."),
    MappingField("matches", RegexType(), "It holds what this regular expression matches."),
)
_WHEN: Final = (
    MappingField("at", DurationType(), "Then."),
    MappingField("by", DurationType(), "At some moment until then."),
    MappingField(
        "during", ListType(DurationType(), 2, 2), "All the time from the first to the second."
    ),
    MappingField("say", TextType(), "Instead of the sentence made of the rest."),
    MappingField("unchecked", BooleanType(), "What it is about need not be in the files."),
)


def _path(text: str, node: YamlNode, name: str) -> str:
    try:
        parse_path(text)
    except ValueError as error:
        raise BadValueError(node.line, f"{name}: {error}") from error
    return text


_PATH: Final = ConvertedType(TextType("a path such as .status.phase"), _path)
_NUMBER: Final = UnionType(
    (((int,), NumberType()), ((dict,), MappingType("a comparison", _COMPARISONS, one_of=TESTS))),
    "a number, or a mapping with a comparison",
)
_TARGET_FIELDS: Final = (
    MappingField("kind", TextType(), "Kind of the objects, such as Job.", required=True),
    MappingField("apiVersion", TextType(), "Of the kind; the one that is served when left out."),
    MappingField("name", TEXT_PATTERN, "Name, or a pattern with *; all when left out."),
    MappingField("namespace", TEXT_PATTERN, "Namespace, * for all; default when left out."),
    MappingField("labels", LABELS, "Labels that the objects have."),
)
TARGET: Final = MappingType("a target", _TARGET_FIELDS)
JOB: Final = MappingType(
    "an expectation on a job",
    (
        MappingField(
            "job", TEXT_PATTERN, "Name of the workload, or a pattern with *.", required=True
        ),
        MappingField("namespace", TEXT_PATTERN, "Of the job; default when left out."),
        MappingField("is", EnumType(STATES), "Its state."),
        MappingField("pods", _NUMBER, "Number of its pods that are bound and not over."),
        MappingField("reason", _WORD, "Why it waits."),
        MappingField("says", RegexType(), "What its sentence matches."),
        MappingField("within", LEVEL, "Its bound pods share one domain of this level."),
        MappingField("on", TEXT_PATTERN, "Its bound pods are on these nodes."),
        MappingField("evicted", _NUMBER, "How often pods of it were told to go."),
        *_WHEN,
    ),
    at_most_one=(SPANS,),
    schema_id="expectJob",
)
OBJECT: Final = MappingType(
    "an expectation on an object",
    (
        MappingField("object", TARGET, "Which.", required=True),
        MappingField("exists", BooleanType(), "false when it must not be there."),
        MappingField("path", _PATH, "As in kubectl jsonpath."),
        MappingField(
            "condition", TextType("a condition such as Ready or Ready=False"), "It must have."
        ),
        MappingField("reason", _WORD, "Of the condition."),
        MappingField("says", RegexType(), "What the condition's message matches."),
        *_COMPARISONS,
        *_WHEN,
    ),
    at_most_one=(SPANS, TESTS),
    schema_id="expectObject",
)
COUNT: Final = MappingType(
    "an expectation on a count",
    (
        MappingField("count", TARGET, "Of what.", required=True),
        MappingField(
            "where",
            MapType(_COMPARED_VALUE, "paths such as .status.phase", r"[.\[].*"),
            "Path to value or pattern, all of which must match.",
        ),
        *_COMPARISONS,
        *_WHEN,
    ),
    one_of=TESTS,
    at_most_one=(SPANS,),
    schema_id="expectCount",
)
_OF: Final = MappingField(
    "of",
    MappingType(
        "of",
        (
            MappingField("queue", TEXT_PATTERN, "Jobs of this queue."),
            MappingField("class", TextType(), "Jobs of this class."),
            MappingField("job", TEXT_PATTERN, "Jobs of this name or pattern."),
            MappingField("kind", TextType(), "Workloads of this kind."),
        ),
    ),
    "Of which jobs; all when left out.",
)
STAT: Final = MappingType(
    "an expectation on a statistic",
    (
        MappingField("stat", TextType("a statistic such as p95(wait)"), "Which.", required=True),
        _OF,
        *_COMPARISONS,
        *_WHEN,
    ),
    one_of=TESTS,
    at_most_one=(SPANS,),
    schema_id="expectStat",
)
EVENT: Final = MappingType(
    "an expectation on an event",
    (
        MappingField("event", _WORD, "Its reason.", required=True),
        MappingField("on", TARGET, "The object that it is about."),
        MappingField("says", RegexType(), "What its message matches."),
        *_COMPARISONS,
        *_WHEN,
    ),
    at_most_one=(SPANS, TESTS),
    schema_id="expectEvent",
)
FORMS: Final = {"job": JOB, "object": OBJECT, "count": COUNT, "stat": STAT, "event": EVENT}


@attrs.frozen
class ExpectationForm:
    """What one expectation says: the key that tells its form, and the rest."""

    name: str
    found: MappingValues


@attrs.frozen
class ExpectationFormType:
    """A mapping whose fields hang by which of some keys it has; read as ``Form``."""

    what: str = "an expectation"

    def read(self, node: YamlNode, name: str, problems: ConfigProblems) -> ExpectationForm:
        """Value of the node; see ``ValueType.read``."""
        if not isinstance(node.value, dict):
            raise BadValueError(
                node.line, f"{self.what} must be a mapping, not {describe_value(node)}"
            )
        given = [key for key in node.value if key in FORMS]
        if not given:
            close = next((did_you_mean(key, tuple(FORMS)) for key in node.value), "")
            raise BadValueError(node.line, f"{self.what} needs one of {list_names(FORMS)}{close}")
        form = given[0]
        found = FORMS[form].read(node, name, problems)
        return ExpectationForm(form, found)

    def schema(self) -> Schema:
        """JSON Schema of the value; see ``ValueType.schema``."""
        return {"oneOf": [table.schema() for table in FORMS.values()]}


EXPECTATION: Final = ExpectationFormType()
_CELL: Final = UnionType(
    (((str,), TextType()), ((int, float), AnyType())), "a text or a number"
)  # fmt: skip
_ROW: Final = MappingType(
    "a row",
    (
        MappingField("name", TextType(), "Of the system.", required=True),
        MappingField("cells", ListType(_CELL, 1, 64), "As published."),
        MappingField("stats", ListType(TextType(), 1, 64), "Statistics of this run."),
        _OF,
    ),
    one_of=("cells", "stats"),
)
TABLE: Final = MappingType(
    "a table",
    (
        MappingField("title", TextType(), "Of the table.", required=True),
        MappingField(
            "columns", ListType(TextType(), 1, 64), "Without that of the names.", required=True
        ),
        MappingField("rows", ListType(_ROW, 1, 1000), "Of others and of this run.", required=True),
    ),
    schema_id="table",
)
DEFINITIONS: Final[tuple[Any, ...]] = (*FORMS.values(), TABLE)


DAEMONS_MAX: Final = 5
FAILURES: Final = ("notReady", "lost", "deleted", "gpus")
RESTARTS: Final = ("apiserver", "scheduler", "leader")
HOURS: Final = 24
_MAPPING: Final = AnyType("a mapping", (dict,))
PATH_OR_OBJECT: Final = AnyType("a path or an object", (str, dict))
PATTERN: Final = TextType("a name, or a pattern with *", r"[-a-z0-9.*]{1,253}", 253)

# -- nodes and queues --------------------------------------------------------------------------
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
