"""Fields of what a scenario's file expects, counts and compares."""

from __future__ import annotations

from typing import Any, Final

from gpusched.base.classes import frozen
from gpusched.config.values import BadValueError
from gpusched.config.yaml_tree import (
    ConfigProblems,
    YamlNode,
    describe_value,
    did_you_mean,
    list_names,
)
from gpusched.lab.scenario.file.mappings import (
    ConvertedType,
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
    NumberType,
    RegexType,
    Schema,
    TextType,
)
from gpusched.lab.scenario.file.workload_fields import LABELS, LEVEL
from gpusched.lab.scenario.judge.json_path import parse_path
from gpusched.lab.scenario.model.scenario import Comparator

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


@frozen
class ExpectationForm:
    """What one expectation says: the key that tells its form, and the rest."""

    name: str
    found: MappingValues


@frozen
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
