"""A scenario as data: what is there, what happens when, and what is expected of it.

``docs/scenarios.md`` is the reference of the files; the names here are theirs. Times are seconds
of simulated time since the scenario's start. Nothing in here reads a clock or a file.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Any, Final, TypeAlias

from gpusched.base.classes import frozen
from gpusched.config.model import DEFAULT, Config
from gpusched.devcluster.registry.gangs.features import OFF, GangFeatures
from gpusched.lab.scenario.model.expectation import (
    Comparator,
    Comparison,
    Count,
    EventSeen,
    Expectation,
    JobIs,
    ObjectIs,
    PrintedRow,
    PrintedTable,
    SourceLocation,
    Span,
    Statistic,
    Subject,
    Target,
)
from gpusched.lab.scenario.model.workload import WorkloadSpec

__all__ = [
    "API_VERSION",
    "CLASS_LABEL",
    "KIND",
    "LIMIT_S",
    "Act",
    "ApplyAct",
    "ArrivalProcess",
    "Comparator",
    "Comparison",
    "CordonAct",
    "Count",
    "DeleteAct",
    "DrainAct",
    "EntryTimes",
    "EventSeen",
    "EvictAct",
    "Expectation",
    "FailNodeAct",
    "FaultAct",
    "JobIs",
    "Manifest",
    "Obj",
    "ObjectIs",
    "PatchAct",
    "PrintedRow",
    "PrintedTable",
    "RestartAct",
    "ScaleAct",
    "Scenario",
    "SourceLocation",
    "Span",
    "Statistic",
    "Subject",
    "SubmitAct",
    "Target",
    "TimelineEntry",
]
Obj: TypeAlias = dict[str, Any]
API_VERSION: Final = "scenario.gpusched.io/v1alpha1"
KIND: Final = "Scenario"
CLASS_LABEL: Final = "scenario.gpusched.io/class"
"""On a workload or its pods: the class by which waits are told apart."""
LIMIT_S: Final = 3600.0
"""Simulated seconds after which a scenario counts as one that never ends, unless it says more."""


@frozen
class Manifest:
    """One object to be created, with the place it was written at.

    Strings in it may hold ``{{ Index }}`` and the other functions of the timeline; ``moments``
    renders them. An object without ``metadata.namespace`` goes to ``default``.
    """

    obj: Obj
    place: SourceLocation


# -- when --------------------------------------------------------------------------------------
class ArrivalProcess(StrEnum):
    """How arrivals follow each other.

    FIXED: each ``every`` seconds. POISSON: exponential gaps with that mean. UNIFORM: gaps even
    between 0 and twice that mean.
    """

    FIXED = "fixed"
    POISSON = "poisson"
    UNIFORM = "uniform"


@frozen(kw_only=True)
class EntryTimes:
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
    process: ArrivalProcess = ArrivalProcess.FIXED
    seed: int = 0
    day: tuple[float, ...] = ()


# -- what --------------------------------------------------------------------------------------
@frozen
class ApplyAct:
    """Create or change objects, as ``kubectl apply --server-side`` does."""

    manifests: tuple[Manifest, ...]


@frozen
class SubmitAct:
    """Create a workload in short; ``moments`` draws it anew for each repeat and makes an Apply."""

    work: WorkloadSpec


@frozen
class DeleteAct:
    """Delete objects.

    Attributes:
        grace_s: None for their own.
    """

    target: Target
    grace_s: int | None = None


@frozen
class PatchAct:
    """Merge a patch into objects; ``status`` patches that subresource."""

    target: Target
    body: Obj
    status: bool = False


@frozen
class ScaleAct:
    """Set ``spec.replicas``, of Jobs ``spec.parallelism`` (and completions, where they were equal)."""

    target: Target
    replicas: int


@frozen
class CordonAct:
    """Let no new pods come to nodes; ``on`` False lifts it."""

    target: Target
    on: bool = True


@frozen
class DrainAct:
    """Cordon nodes and evict their pods through the Eviction API until none is left.

    Disruption budgets are respected: what is refused is asked again every 5 s.
    """

    target: Target


@frozen
class FailNodeAct:
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


@frozen
class EvictAct:
    """Evict pods through the Eviction API, once each."""

    target: Target


@frozen
class FaultAct:
    """A fault rule of the API server for a while; only the embedded cluster can play it.

    Attributes:
        rule: as in a FaultSchedule (docs/devcluster.md), checked when it was read.
        for_s: None to the end.
    """

    rule: Obj
    for_s: float | None = None


@frozen
class RestartAct:
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
    ApplyAct
    | DeleteAct
    | PatchAct
    | ScaleAct
    | CordonAct
    | DrainAct
    | FailNodeAct
    | EvictAct
    | FaultAct
    | RestartAct
)


@frozen
class TimelineEntry:
    """One line of the timeline.

    Attributes:
        say: its sentence in the report, empty for a made one.
        unchecked: what it names need not exist.
    """

    when: EntryTimes
    act: Act | SubmitAct
    place: SourceLocation
    say: str = ""
    unchecked: bool = False


@frozen(kw_only=True)
class Scenario:
    """One scenario, checked.

    Attributes:
        name: unique among those of one run.
        teaches: one sentence.
        folder: against which its paths were read.
        config: of the daemons; ``config_said`` that the scenario says it itself, so that
            ``--config`` is an error for it.
        plays_starts: whether starts of gangs that wait are played in an embedded cluster, as often as ``config`` says.
        daemons: how many run from the start.
        limit_s: see ``LIMIT_S``.
        settle_s: the run ends when the timeline and every expectation with a time are over and
            every Job that is not held back has ended; then so many seconds more.
        ends_s: the run ends at this moment instead; None for the rule above.
        slack_s: by how much later things may happen where time is real, see ``slack``.
        before: objects that are there before the daemons start.
        gangs: what the cluster is to serve of Kubernetes' own gangs.
        stages: files of Stages instead of the shipped ones; empty for those.
        embedded_only: why a real cluster cannot play it; empty when it can.
    """

    name: str
    teaches: str
    folder: Path
    place: SourceLocation
    seed: int = 1
    config: Config = DEFAULT
    config_said: bool = False
    plays_starts: bool = False
    daemons: int = 1
    limit_s: float = LIMIT_S
    settle_s: float = 5.0
    slack_s: float = 2.0
    ends_s: float | None = None
    before: tuple[Manifest, ...] = ()
    gangs: GangFeatures = OFF
    stages: tuple[Path, ...] = ()
    timeline: tuple[TimelineEntry, ...] = ()
    expect: tuple[Expectation, ...] = ()
    tables: tuple[PrintedTable, ...] = ()
    embedded_only: str = ""
