"""A scenario as data: what is there, what happens when, and what is expected of it.

``docs/scenarios.md`` is the reference of the files; the names here are theirs. Times are seconds
of simulated time since the scenario's start. Nothing in here reads a clock or a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, TypeAlias

import attrs

from gpusched.config.model import DEFAULT, Config
from gpusched.scenario.work import Workload

Obj: TypeAlias = dict[str, Any]
API_VERSION: Final = "scenario.gpusched.io/v1alpha1"
KIND: Final = "Scenario"
CLASS_LABEL: Final = "scenario.gpusched.io/class"
"""On a workload or its pods: the class by which waits are told apart."""
LIMIT_S: Final = 3600.0
"""Simulated seconds after which a scenario counts as one that never ends, unless it says more."""


@attrs.frozen
class Place:
    """Where something is written; ``str`` is ``FILE:LINE``."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@attrs.frozen
class Manifest:
    """One object to be created, with the place it was written at.

    Strings in it may hold ``{{ Index }}`` and the other functions of the timeline; ``moments``
    renders them. An object without ``metadata.namespace`` goes to ``default``.
    """

    obj: Obj
    place: Place


# -- when --------------------------------------------------------------------------------------
class Process(StrEnum):
    """How arrivals follow each other.

    FIXED: each ``every`` seconds. POISSON: exponential gaps with that mean. UNIFORM: gaps even
    between 0 and twice that mean.
    """

    FIXED = "fixed"
    POISSON = "poisson"
    UNIFORM = "uniform"


@attrs.frozen(kw_only=True)
class When:
    """The moments of one entry.

    Attributes:
        at_s: of the first.
        every_s: mean gap; 0 where it happens once.
        count: how many times at most; None where ``until_s`` ends it.
        until_s: none after it; None where ``count`` ends it.
        process, seed: see ``Process``; the seed is added to the scenario's.
        day: share of the mean rate in each hour of the day, 24 numbers; empty for an even day.
    """

    at_s: float = 0.0
    every_s: float = 0.0
    count: int | None = 1
    until_s: float | None = None
    process: Process = Process.FIXED
    seed: int = 0
    day: tuple[float, ...] = ()


# -- what --------------------------------------------------------------------------------------
@attrs.frozen(kw_only=True)
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


@attrs.frozen
class Apply:
    """Create or change objects, as ``kubectl apply --server-side`` does."""

    manifests: tuple[Manifest, ...]


@attrs.frozen
class Submit:
    """Create a workload in short; ``moments`` draws it anew for each repeat and makes an Apply."""

    work: Workload


@attrs.frozen
class Delete:
    """Delete objects.

    Attributes:
        grace_s: None for their own.
    """

    target: Target
    grace_s: int | None = None


@attrs.frozen
class Patch:
    """Merge a patch into objects; ``status`` patches that subresource."""

    target: Target
    body: Obj
    status: bool = False


@attrs.frozen
class Scale:
    """Set ``spec.replicas``, of Jobs ``spec.parallelism`` (and completions, where they were equal)."""

    target: Target
    replicas: int


@attrs.frozen
class Cordon:
    """Let no new pods come to nodes; ``on`` False lifts it."""

    target: Target
    on: bool = True


@attrs.frozen
class Drain:
    """Cordon nodes and evict their pods through the Eviction API until none is left.

    Disruption budgets are respected: what is refused is asked again every 5 s.
    """

    target: Target


@attrs.frozen
class FailNode:
    """Nodes fail.

    Attributes:
        how: ``notReady``, ``lost`` (no heartbeat), ``deleted``, ``gpus`` (some GPUs are lost).
        for_s: they return after it; None for never.
        gpus: how many, for ``gpus``.
    """

    target: Target
    how: str = "notReady"
    for_s: float | None = None
    gpus: int = 0


@attrs.frozen
class Evict:
    """Evict pods through the Eviction API, once each."""

    target: Target


@attrs.frozen
class Fault:
    """A fault rule of the API server for a while; only the embedded cluster can play it.

    Attributes:
        rule: as in a FaultSchedule (docs/devcluster.md), checked when it was read.
        for_s: None to the end.
    """

    rule: Obj
    for_s: float | None = None


@attrs.frozen
class Restart:
    """Something of the control plane goes away; only the embedded cluster can play it.

    Attributes:
        what: ``apiserver``, ``scheduler`` (ends in order) or ``leader`` (is killed).
        down_s: how long it stays away. A scenario with several daemons has another take over.
        after_writes: ``leader``: kill it right after so many further bindings, 0 for at once.
    """

    what: str
    down_s: float = 0.0
    after_writes: int = 0


Act: TypeAlias = (
    Apply | Delete | Patch | Scale | Cordon | Drain | FailNode | Evict | Fault | Restart
)


@attrs.frozen
class Entry:
    """One line of the timeline.

    Attributes:
        say: its sentence in the report, empty for a made one.
        unchecked: what it names need not exist.
    """

    when: When
    act: Act | Submit
    place: Place
    say: str = ""
    unchecked: bool = False


# -- what is expected --------------------------------------------------------------------------
class Test(StrEnum):
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


@attrs.frozen
class Comparison:
    """``value`` is a number (seconds, shares, pieces) or a text; MATCHES takes a regular expression."""

    test: Test
    value: float | str | bool


@attrs.frozen(kw_only=True)
class Span:
    """When an expectation must hold.

    Attributes:
        kind: ``end``, ``at`` (that moment), ``by`` (at some moment up to it, and it may change
            later), ``during`` (at every look from ``since_s`` to ``until_s``).
    """

    kind: str = "end"
    since_s: float = 0.0
    until_s: float = 0.0


@attrs.frozen(kw_only=True)
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


@attrs.frozen(kw_only=True)
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


@attrs.frozen(kw_only=True)
class Count:
    """A number of objects.

    Attributes:
        where: path to text or pattern, all of which must match: ``.status.phase``: Running.
    """

    target: Target
    comparison: Comparison
    where: Mapping[str, str] = attrs.Factory(dict)


@attrs.frozen(kw_only=True)
class Statistic:
    """A number over the run so far, such as ``p95(wait)`` or ``evictions``; see ``statistics``.

    Attributes:
        name: with its function, as it was written.
        of: which jobs: ``queue``, ``class``, ``job`` (pattern), ``kind``; empty for all.
    """

    name: str
    comparison: Comparison
    of: Mapping[str, str] = attrs.Factory(dict)


@attrs.frozen(kw_only=True)
class EventSeen:
    """An Event was recorded; ``says`` is a regular expression."""

    reason: str
    on: Target | None = None
    says: str = ""
    comparison: Comparison | None = None


Subject: TypeAlias = JobIs | ObjectIs | Count | Statistic | EventSeen


@attrs.frozen(kw_only=True)
class Expectation:
    """One thing that must be so.

    Attributes:
        sentence: for the verdict line: ``say`` of the file, else made from the rest.
        unchecked: what it is about need not be in the files.
    """

    subject: Subject
    span: Span
    sentence: str
    place: Place
    unchecked: bool = False


# -- tables ------------------------------------------------------------------------------------
@attrs.frozen(kw_only=True)
class Row:
    """One line of a table: numbers that others published, or statistics of this run.

    Attributes:
        name: of the system.
        cells: texts as published; for this run names of statistics, in the order of columns.
        measured: whether the cells are statistics.
    """

    name: str
    cells: tuple[str, ...]
    measured: bool = False


@attrs.frozen(kw_only=True)
class Table:
    """Printed after the verdicts and in the report."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]


@attrs.frozen(kw_only=True)
class Scenario:
    """One scenario, checked.

    Attributes:
        name: unique among those of one run.
        teaches: one sentence.
        folder: against which its paths were read.
        config: of the daemons; ``config_said`` that the scenario says it itself, so that
            ``--config`` is an error for it.
        daemons: how many run from the start.
        limit_s: see ``LIMIT_S``.
        settle_s: the run ends when the timeline and every expectation with a time are over and
            every Job that is not held back has ended; then so many seconds more.
        ends_s: the run ends at this moment instead; None for the rule above.
        before: objects that are there before the daemons start.
        stages: files of Stages instead of the shipped ones; empty for those.
        embedded_only: why a real cluster cannot play it; empty when it can.
    """

    name: str
    teaches: str
    folder: Path
    place: Place
    seed: int = 1
    config: Config = DEFAULT
    config_said: bool = False
    daemons: int = 1
    limit_s: float = LIMIT_S
    settle_s: float = 5.0
    ends_s: float | None = None
    before: tuple[Manifest, ...] = ()
    stages: tuple[Path, ...] = ()
    timeline: tuple[Entry, ...] = ()
    expect: tuple[Expectation, ...] = ()
    tables: tuple[Table, ...] = ()
    embedded_only: str = ""
