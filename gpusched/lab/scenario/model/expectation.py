"""What a scenario expects, and of what: places, targets, expectations and tables.

``gpusched.lab.scenario.model.scenario`` has them too; its names are the ones to import.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeAlias

import attrs

from gpusched.base.classes import frozen


@frozen
class SourceLocation:
    """Where something is written; ``str`` is ``FILE:LINE``."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@frozen(kw_only=True)
class Target:
    """Objects that an act or an expectation speaks of.

    Attributes:
        kind: as in manifests: ``Job``, ``Pod``, ``Node``, ``PodGroup`` ...
        api_version: empty for the one that is served of that kind.
        name: exact, or with ``*``; empty for all.
        namespace: of namespaced kinds; ``*`` for all.
        labels: that it must have.
    """

    kind: str
    name: str = ""
    namespace: str = "default"
    api_version: str = ""
    labels: Mapping[str, str] = attrs.Factory(dict)


class Comparator(StrEnum):
    """How a value is compared."""

    __test__ = False  # it is no class of tests, whatever its name makes a runner think

    EQUALS = "equals"
    NOT = "not"
    AT_LEAST = "atLeast"
    AT_MOST = "atMost"
    ABOVE = "above"
    BELOW = "below"
    CONTAINS = "contains"
    MATCHES = "matches"


@frozen
class Comparison:
    """``value`` is a number (seconds, shares, pieces) or a text; MATCHES takes a regular expression."""

    test: Comparator
    value: float | str | bool


@frozen(kw_only=True)
class Span:
    """When an expectation must hold.

    Attributes:
        kind: ``end``, ``at`` (that moment), ``by`` (at some moment up to it, and it may change
            later), ``during`` (at every look from ``since_s`` to ``until_s``).
    """

    kind: str = "end"
    since_s: float = 0.0
    until_s: float = 0.0


@frozen(kw_only=True)
class JobIs:
    """A workload is in a state.

    Attributes:
        job: name of the Job, PodGroup, Deployment or lone Pod; may hold ``*``: then all that
            match, and at least one must.
        state: ``waiting``, ``admitted``, ``started``, ``running``, ``complete``, ``failed``,
            ``suspended``, ``gone``; empty for any.
        pods: number of its pods that are bound and not over; None for any.
        reason, says: of the condition that tells why it waits; ``says`` is a regular expression.
        within: level of topology (``node``, ``rack`` or a node label) of which its bound pods
            share one domain.
        on: pattern of names of the nodes its bound pods are on.
        evicted: how often pods of it were told to go so far.
    """

    job: str
    namespace: str = "default"
    state: str = ""
    pods: Comparison | None = None
    reason: str = ""
    says: str = ""
    within: str = ""
    on: str = ""
    evicted: Comparison | None = None


@frozen(kw_only=True)
class ObjectIs:
    """An object is there, or has something in it.

    Attributes:
        exists: False when it must not be there.
        path: as in ``kubectl get -o jsonpath``: ``.status.succeeded``, ``.spec.nodeName``,
            ``.metadata.annotations['gpusched.io/slots']``; empty for none.
        condition: type of a condition that must be True, or ``Type=False``; empty for none.
        reason, says: of that condition; ``says`` is a regular expression.
    """

    target: Target
    exists: bool = True
    path: str = ""
    comparison: Comparison | None = None
    condition: str = ""
    reason: str = ""
    says: str = ""


@frozen(kw_only=True)
class Count:
    """A number of objects.

    Attributes:
        where: path to text or pattern, all of which must match: ``.status.phase``: Running.
    """

    target: Target
    comparison: Comparison
    where: Mapping[str, str] = attrs.Factory(dict)


@frozen(kw_only=True)
class Statistic:
    """A number over the run so far, such as ``p95(wait)`` or ``evictions``; see ``statistics``.

    Attributes:
        name: with its function, as it was written.
        of: which jobs: ``queue``, ``class``, ``job`` (pattern), ``kind``; empty for all.
    """

    name: str
    comparison: Comparison
    of: Mapping[str, str] = attrs.Factory(dict)


@frozen(kw_only=True)
class EventSeen:
    """An Event was recorded; ``says`` is a regular expression."""

    reason: str
    on: Target | None = None
    says: str = ""
    comparison: Comparison | None = None


Subject: TypeAlias = JobIs | ObjectIs | Count | Statistic | EventSeen


@frozen(kw_only=True)
class Expectation:
    """One thing that must be so.

    Attributes:
        sentence: for the verdict line: ``say`` of the file, else made from the rest.
        unchecked: what it is about need not be in the files.
    """

    subject: Subject
    span: Span
    sentence: str
    place: SourceLocation
    unchecked: bool = False


# -- tables ------------------------------------------------------------------------------------
@frozen(kw_only=True)
class PrintedRow:
    """One line of a table: numbers that others published, or statistics of this run.

    Attributes:
        name: of the system.
        cells: texts as published; for this run names of statistics, in the order of columns.
        measured: whether the cells are statistics.
        of: which jobs they count, see ``Statistic``; empty for all.
    """

    name: str
    cells: tuple[str, ...]
    measured: bool = False
    of: Mapping[str, str] = attrs.Factory(dict)


@frozen(kw_only=True)
class PrintedTable:
    """Printed after the verdicts and in the report."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[PrintedRow, ...]
