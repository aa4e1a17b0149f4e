"""Faults remembered from session to session: objects set aside, and parts left out.

An object is tried again when it changed, when the configuration changed (whose sessions begin
with an empty memory), and after a time that doubles. A plainer session is tried in full after a
time that doubles.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import attrs

from gpusched.api.meta.identity import GangKey, ResourceVersion
from gpusched.base import limits
from gpusched.base.classes import frozen
from gpusched.cache.gangs.gang import Gang
from gpusched.cache.snapshot import Snapshot
from gpusched.session.containment.suspects import (
    SessionFault,
    Suspect,
    SuspectKind,
    budget_suspect,
    node_suspect,
    pod_suspect,
    pods_of_gang,
    queue_suspect,
    topology_suspect,
)
from gpusched.session.state.session_cache import SessionCache

EVICTIONS_OFF: Final = "evictions"
SOLVER_OFF: Final = "solver"
TOGETHER_OFF: Final = "gangs together"
DECISIONS_OFF: Final = "decisions"
EVICTING_ACTIONS: Final = frozenset({"preempt", "reclaim", "consolidate"})
"""Actions that evict pods for other gangs."""


@frozen(kw_only=True)
class SessionMode:
    """How much of a session is done.

    Attributes:
        evictions: whether gangs leave for others.
        solver: whether the solver is used, else placement is greedy.
        together: whether gangs are decided in one session, else one by one.
        decides: whether anything is decided.
        skipped: names of other parts of a session that are left out, sorted.
        unordered: orders of queues and gangs that do not count, as ``policy.hook``, sorted.
    """

    evictions: bool = True
    solver: bool = True
    together: bool = True
    decides: bool = True
    skipped: tuple[str, ...] = ()
    unordered: tuple[str, ...] = ()

    @property
    def omitted_parts(self) -> tuple[str, ...]:
        """Names of what is not done, for metrics and sentences; empty for a full session."""
        steps = (
            (DECISIONS_OFF, self.decides),
            (TOGETHER_OFF, self.together),
            (SOLVER_OFF, self.solver),
            (EVICTIONS_OFF, self.evictions),
        )
        return (*(name for name, done in steps if not done), *self.skipped, *self.unordered)


FULL_MODE: Final = SessionMode()


@frozen(kw_only=True)
class SetAside:
    """An object that is left out of sessions.

    Attributes:
        mark: what it was like: it is tried again when that is another.
        since: when it was set aside first, seconds since the epoch.
        again: when it is tried again at the latest.
        times: how often in a row it failed.
    """

    suspect: Suspect
    fault: SessionFault
    mark: object
    since: float
    again: float
    times: int = 1

    @property
    def message(self) -> str:
        """For condition, event and log."""
        return set_aside_message(self.suspect, self.fault)


@frozen(kw_only=True)
class Degraded:
    """A session is plainer than it is configured to be.

    Attributes:
        fault: for which; None when an earlier process died of it.
        again: when a full session is tried again at the latest, seconds since the epoch.
        times: how often in a row that failed.
        why: where there is no fault, what is known.
        gangs: that there were when an order was found to fail for all: others may show that it
            answers.
    """

    mode: SessionMode
    fault: SessionFault | None
    since: float
    again: float
    times: int = 1
    why: str = ""
    gangs: frozenset[GangKey] = frozenset()

    @property
    def message(self) -> str:
        """For readiness, event and log."""
        off = ", ".join(self.mode.omitted_parts)
        why = self.why
        if self.fault is not None:
            why = f"the scheduler failed in {self.fault.stage} ({self.fault.message})"
        wait_s = self.again - self.since
        when = f"within {_duration_text(wait_s)}" if wait_s else "in the next session"
        return f"sessions go without {off}: {why}; tried in full again {when}"


@frozen
class HookBlame:
    """A hook that is to blame itself: no object is set aside for its faults.

    Attributes:
        until: when it is looked into again, seconds since the epoch.
        gangs: that there were: others may show that it answers.
    """

    until: float
    gangs: frozenset[Suspect]


def set_aside_message(suspect: Suspect, fault: SessionFault) -> str:
    """The sentence for the owner of an object that is set aside."""
    return (
        f"{suspect} is set aside: the scheduler failed on it in {fault.stage} ({fault.message}); "
        "this is a defect of the scheduler. It is tried again when it changes, or within "
        f"{_duration_text(limits.SET_ASIDE_RETRY_MAX_S)}; all others are scheduled"
    )


def _duration_text(seconds: float) -> str:
    if seconds >= 3600:
        return f"{seconds / 3600:g} h"
    return f"{seconds / 60:g} min" if seconds >= 60 else f"{seconds:g} s"


class Containment:
    """Faults under one loaded configuration; used by one session at a time."""

    def __init__(self) -> None:
        self._aside: dict[Suspect, SetAside] = {}
        self._tried: dict[Suspect, SetAside] = {}
        self.degraded: Degraded | None = None
        self._before: Degraded | None = None
        self.turn: GangKey | None = None
        """The gang after which the next session goes on where gangs are decided one by one."""
        self.closed = ""
        """Why a policy could not open when no object was found to blame for it; else empty."""
        self.blamed_hooks: dict[str, HookBlame] = {}
        """Hooks that fail for whatever they are asked about, by name."""
        self.unproven_faults: dict[str, set[Suspect]] = {}
        """By hook, objects set aside for it that it was asked about before anything else."""
        self._session_cache: tuple[frozenset[Suspect], SessionCache] | None = None

    @property
    def objects_set_aside(self) -> tuple[SetAside, ...]:
        """Objects that are left out of sessions, sorted."""
        return tuple(each for _, each in sorted(self._aside.items()))

    @property
    def is_clean(self) -> bool:
        """Whether sessions are held in full, with all objects and hooks."""
        return not (self._aside or self.degraded or self.blamed_hooks or self.closed)

    @property
    def lasting_mode(self) -> SessionMode:
        """The mode of sessions before this one, unless each of them was tried in full first."""
        before = self._before
        return before.mode if before is not None and before.again > before.since else FULL_MODE

    def begin_session(self, snapshot: Snapshot) -> tuple[dict[Suspect, SessionFault], SessionMode]:
        """Objects left out of this session with their faults, and the mode in which it begins."""
        self._tried = {}
        if self._aside:
            marks = object_fingerprints(snapshot, self._aside)
            for suspect, each in list(self._aside.items()):
                mark = marks.get(suspect)
                if mark is None:
                    del self._aside[suspect]  # it is gone
                elif mark != each.mark or snapshot.now >= each.again:
                    self._tried[suspect] = self._aside.pop(suspect)
        self._before = self.degraded
        mode = FULL_MODE
        if self.degraded is not None:
            mode = self.degraded.mode
            others = self.degraded.gangs and not _gangs(snapshot) <= self.degraded.gangs
            if snapshot.now >= self.degraded.again or others:
                mode, self.degraded = FULL_MODE, None
        return {suspect: each.fault for suspect, each in self._aside.items()}, mode

    def set_aside(
        self, snapshot: Snapshot, found: Mapping[Suspect, SessionFault]
    ) -> tuple[SetAside, ...]:
        """Leave objects out from now on; returns the ones that were not left out before."""
        marks = object_fingerprints(snapshot, found)
        new = []
        for suspect, fault in sorted(found.items()):
            before = self._tried.get(suspect)
            times = before.times + 1 if before is not None else 1
            wait_s = min(limits.SET_ASIDE_RETRY_S * 2 ** (times - 1), limits.SET_ASIDE_RETRY_MAX_S)
            entry = self._aside[suspect] = SetAside(
                suspect=suspect,
                fault=fault,
                mark=marks.get(suspect),
                since=before.since if before is not None else snapshot.now,
                again=snapshot.now + wait_s,
                times=times,
            )
            if before is None or before.fault.signature != fault.signature:
                new.append(entry)
        return tuple(new)

    def readmit_suspects(self, suspects: Iterable[Suspect]) -> None:
        """Let objects in again, as what they were set aside for happens to all."""
        for suspect in suspects:
            self._aside.pop(suspect, None)

    def note_outcome(
        self,
        snapshot: Snapshot,
        mode: SessionMode,
        fault: SessionFault | None,
        *,
        lasting: bool = True,
    ) -> None:
        """Note in which mode this session could be held.

        Args:
            snapshot: of the session.
            mode: in which it was held.
            fault: for which it is not the full one.
            lasting: whether the next sessions begin in it, else the next one is tried in full.
        """
        if mode == FULL_MODE:
            self.degraded = None
            return
        before = self._before
        if self.degraded is not None and mode == self.degraded.mode:
            return
        if not lasting:
            since = before.since if before is not None and before.mode == mode else snapshot.now
            self.degraded = Degraded(mode=mode, fault=fault, since=since, again=since, times=0)
            return
        times = before.times + 1 if before is not None else 1
        if before is not None and before.gangs and snapshot.now < before.again:
            times = before.times  # tried for the sake of others that came
        wait_s = min(limits.DEGRADED_RETRY_S * 2 ** (times - 1), limits.DEGRADED_RETRY_MAX_S)
        self.degraded = Degraded(
            mode=mode,
            fault=fault if fault is not None else (before.fault if before else None),
            since=snapshot.now,
            again=snapshot.now + wait_s,
            times=times,
            why=before.why if before is not None and fault is None else "",
            gangs=_gangs(snapshot) if mode.unordered else frozenset(),
        )

    def begin_reduced(self, mode: SessionMode, *, now: float, why: str, times: int) -> None:
        """Begin in a reduced mode, as an earlier process died in a session."""
        wait_s = min(limits.DEGRADED_RETRY_S * 2 ** (times - 1), limits.DEGRADED_RETRY_MAX_S)
        self.degraded = Degraded(
            mode=mode, fault=None, since=now, again=now + wait_s, times=times, why=why
        )

    def begin_set_aside(self, snapshot: Snapshot, suspect: Suspect, fault: SessionFault) -> None:
        """Begin without an object, as an earlier process died while looking at it."""
        if object_fingerprints(snapshot, (suspect,)):
            self.set_aside(snapshot, {suspect: fault})

    def session_cache(self, full: SessionCache, aside: Iterable[Suspect]) -> SessionCache:
        """The cache for sessions without some objects: rows are other nodes where nodes are left out."""
        nodes = frozenset(each for each in aside if each.what is SuspectKind.NODE)
        if not nodes:
            return full
        if self._session_cache is None or self._session_cache[0] != nodes:
            self._session_cache = (nodes, SessionCache())
        return self._session_cache[1]


def _gangs(snapshot: Snapshot) -> frozenset[GangKey]:
    """Keys of all gangs that wait or run."""
    return frozenset((*snapshot.placed_gangs, *(gang.key for gang in snapshot.gangs)))


def object_fingerprints(snapshot: Snapshot, suspects: Iterable[Suspect]) -> dict[Suspect, object]:
    """Fingerprints of objects; the ones that the snapshot does not have are missing.

    What the scheduler writes itself is not part of it, nor what changes by itself.
    """
    wanted = set(suspects)
    gangs: dict[GangKey, Gang] = {}
    if any(each.what is SuspectKind.GANG for each in wanted):
        gangs = {**snapshot.placed_gangs, **{gang.key: gang for gang in snapshot.gangs}}
    moves = dict(snapshot.move_records)
    topologies = {topology_suspect(each.name): each for each in snapshot.topologies}
    budgets = {budget_suspect(each): each for each in snapshot.budgets}
    residents = {}
    if any(each.what is SuspectKind.POD for each in wanted):
        here = (*snapshot.pods_by_node.pods, snapshot.nominated_foreign_pods)
        residents = {pod_suspect(pod): pod for pods in here for pod in pods}
    marks: dict[Suspect, object] = {}
    for suspect in wanted:
        name = suspect.key.name
        queue = snapshot.queues.get(name) if suspect.what is SuspectKind.QUEUE else None
        row = snapshot.nodes.row.get(name) if suspect.what is SuspectKind.NODE else None
        if suspect.what is SuspectKind.GANG and suspect.key in gangs:
            marks[suspect] = mark_of_gang(gangs[suspect.key])
        elif suspect.what is SuspectKind.MOVE and suspect.key in moves:
            marks[suspect] = moves[suspect.key]
        elif queue is not None and suspect == queue_suspect(name):
            marks[suspect] = (queue.queue.uid, queue.queue.generation, queue.path, queue.error)
        elif row is not None and suspect == node_suspect(name):
            node = snapshot.nodes.nodes[row]
            marks[suspect] = attrs.evolve(node, resource_version=ResourceVersion(""))
        elif suspect in topologies:
            marks[suspect] = (topologies[suspect].uid, topologies[suspect].levels)
        elif suspect in budgets:
            marks[suspect] = (budgets[suspect].uid, budgets[suspect].resource_version)
        elif suspect in residents:
            pod = residents[suspect]
            marks[suspect] = (pod.uid, pod.pod_class.digest, pod.node, pod.deleting)
    return marks


def mark_of_gang(gang: Gang) -> object:
    """Fingerprint of a gang: changes when anything but the scheduler changes it."""
    job = gang.job
    return (
        gang.uid,
        gang.generation,
        gang.queue,
        gang.priority,
        gang.min_member,
        gang.min_roles,
        gang.topology,
        gang.sub_groups,
        gang.parent_groups,
        gang.terms,
        gang.error,
        gang.expected_count,
        (job.uid, job.suspended, job.parallelism, job.hints) if job is not None else None,
        tuple(
            (pod.uid, pod.pod_class.digest, pod.role, pod.sub_group, pod.node, pod.hints)
            for pod in sorted(pods_of_gang(gang), key=lambda pod: pod.uid)
        ),
        gang.gated,
        gang.leaving,
    )
