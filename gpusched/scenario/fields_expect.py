"""The fields of expectations and tables."""

from __future__ import annotations

from typing import Any, Final

import attrs

from gpusched.config.tree import Node, Problems, listed, nearest, shown
from gpusched.config.values import BadValueError
from gpusched.scenario.fields_work import LABELS, LEVEL
from gpusched.scenario.json_paths import parse_path
from gpusched.scenario.mappings import Either, Field, Found, Listing, Made, MapOf, Table
from gpusched.scenario.model import Test
from gpusched.scenario.shapes import Anything, Choice, Decimal, Duration, Flag, Regex, Schema, Text

STATES: Final = (
    "waiting", "admitted", "started", "running", "complete", "failed", "suspended", "gone",
)  # fmt: skip
TESTS: Final = tuple(each.value for each in Test)
SPANS: Final = ("at", "by", "during")
PATTERN: Final = Text("a name, or a pattern with *", r"[-a-z0-9.*:]{1,253}", 253)
_WORD: Final = Text("a word such as InsufficientResources", r"[A-Za-z][A-Za-z0-9]*", 128)
_VALUE: Final = Anything("a number, a text, true or false", (int, float, str, bool))
_COMPARISONS: Final = (
    Field("equals", _VALUE, "It is this."),
    Field("not", _VALUE, "It is not this."),
    Field("atLeast", _VALUE, "It is this or more."),
    Field("atMost", _VALUE, "It is this or less."),
    Field("above", _VALUE, "It is more."),
    Field("below", _VALUE, "It is less."),
    Field("contains", _VALUE, "It holds this."),
    Field("matches", Regex(), "It holds what this regular expression matches."),
)
_WHEN: Final = (
    Field("at", Duration(), "Then."),
    Field("by", Duration(), "At some moment until then."),
    Field("during", Listing(Duration(), 2, 2), "All the time from the first to the second."),
    Field("say", Text(), "Instead of the sentence made of the rest."),
    Field("unchecked", Flag(), "What it is about need not be in the files."),
)


def _path(text: str, node: Node, name: str) -> str:
    try:
        parse_path(text)
    except ValueError as error:
        raise BadValueError(node.line, f"{name}: {error}") from error
    return text


_PATH: Final = Made(Text("a path such as .status.phase"), _path)
_NUMBER: Final = Either(
    (((int,), Decimal()), ((dict,), Table("a comparison", _COMPARISONS, one_of=TESTS))),
    "a number, or a mapping with a comparison",
)
_TARGET: Final = (
    Field("kind", Text(), "Kind of the objects, such as Job.", required=True),
    Field("apiVersion", Text(), "Of the kind; the one that is served when left out."),
    Field("name", PATTERN, "Name, or a pattern with *; all when left out."),
    Field("namespace", PATTERN, "Namespace, * for all; default when left out."),
    Field("labels", LABELS, "Labels that the objects have."),
)
TARGET: Final = Table("a target", _TARGET)
JOB: Final = Table(
    "an expectation on a job",
    (
        Field("job", PATTERN, "Name of the workload, or a pattern with *.", required=True),
        Field("namespace", PATTERN, "Of the job; default when left out."),
        Field("is", Choice(STATES), "Its state."),
        Field("pods", _NUMBER, "Number of its pods that are bound and not over."),
        Field("reason", _WORD, "Why it waits."),
        Field("says", Regex(), "What its sentence matches."),
        Field("within", LEVEL, "Its bound pods share one domain of this level."),
        Field("on", PATTERN, "Its bound pods are on these nodes."),
        Field("evicted", _NUMBER, "How often pods of it were told to go."),
        *_WHEN,
    ),
    at_most_one=(SPANS,),
    schema_id="expectJob",
)
OBJECT: Final = Table(
    "an expectation on an object",
    (
        Field("object", TARGET, "Which.", required=True),
        Field("exists", Flag(), "false when it must not be there."),
        Field("path", _PATH, "As in kubectl jsonpath."),
        Field("condition", Text("a condition such as Ready or Ready=False"), "It must have."),
        Field("reason", _WORD, "Of the condition."),
        Field("says", Regex(), "What the condition's message matches."),
        *_COMPARISONS,
        *_WHEN,
    ),
    at_most_one=(SPANS, TESTS),
    schema_id="expectObject",
)
COUNT: Final = Table(
    "an expectation on a count",
    (
        Field("count", TARGET, "Of what.", required=True),
        Field(
            "where",
            MapOf(_VALUE, "paths such as .status.phase", r"[.\[].*"),
            "Path to value or pattern, all of which must match.",
        ),
        *_COMPARISONS,
        *_WHEN,
    ),
    one_of=TESTS,
    at_most_one=(SPANS,),
    schema_id="expectCount",
)
_OF: Final = Field(
    "of",
    Table(
        "of",
        (
            Field("queue", PATTERN, "Jobs of this queue."),
            Field("class", Text(), "Jobs of this class."),
            Field("job", PATTERN, "Jobs of this name or pattern."),
            Field("kind", Text(), "Workloads of this kind."),
        ),
    ),
    "Of which jobs; all when left out.",
)
STAT: Final = Table(
    "an expectation on a statistic",
    (
        Field("stat", Text("a statistic such as p95(wait)"), "Which.", required=True),
        _OF,
        *_COMPARISONS,
        *_WHEN,
    ),
    one_of=TESTS,
    at_most_one=(SPANS,),
    schema_id="expectStat",
)
EVENT: Final = Table(
    "an expectation on an event",
    (
        Field("event", _WORD, "Its reason.", required=True),
        Field("on", TARGET, "The object that it is about."),
        Field("says", Regex(), "What its message matches."),
        *_COMPARISONS,
        *_WHEN,
    ),
    at_most_one=(SPANS, TESTS),
    schema_id="expectEvent",
)
FORMS: Final = {"job": JOB, "object": OBJECT, "count": COUNT, "stat": STAT, "event": EVENT}


@attrs.frozen
class Form:
    """What one expectation says: the key that tells its form, and the rest."""

    name: str
    found: Found


@attrs.frozen
class Forms:
    """A mapping whose fields hang by which of some keys it has; read as ``Form``."""

    what: str = "an expectation"

    def read(self, node: Node, name: str, problems: Problems) -> Form:
        """See ``Shape.read``."""
        if not isinstance(node.value, dict):
            raise BadValueError(node.line, f"{self.what} must be a mapping, not {shown(node)}")
        given = [key for key in node.value if key in FORMS]
        if not given:
            close = next((nearest(key, tuple(FORMS)) for key in node.value), "")
            raise BadValueError(node.line, f"{self.what} needs one of {listed(FORMS)}{close}")
        form = given[0]
        found = FORMS[form].read(node, name, problems)
        return Form(form, found)

    def schema(self) -> Schema:
        """See ``Shape.schema``."""
        return {"oneOf": [table.schema() for table in FORMS.values()]}


EXPECTATION: Final = Forms()
_CELL: Final = Either(
    (((str,), Text()), ((int, float), Anything())), "a text or a number"
)  # fmt: skip
_ROW: Final = Table(
    "a row",
    (
        Field("name", Text(), "Of the system.", required=True),
        Field("cells", Listing(_CELL, 1, 64), "As published."),
        Field("stats", Listing(Text(), 1, 64), "Statistics of this run."),
        _OF,
    ),
    one_of=("cells", "stats"),
)
TABLE: Final = Table(
    "a table",
    (
        Field("title", Text(), "Of the table.", required=True),
        Field("columns", Listing(Text(), 1, 64), "Without that of the names.", required=True),
        Field("rows", Listing(_ROW, 1, 1000), "Of others and of this run.", required=True),
    ),
    schema_id="table",
)
DEFINITIONS: Final[tuple[Any, ...]] = (*FORMS.values(), TABLE)
