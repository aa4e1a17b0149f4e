"""What gangs that wait were told of their starts, compared with the starts as they come.

Everything told is kept while a gang waits. When it starts, three of its estimates are compared with
the start: the first one, the one in force when half of the wait was over, and the last one that was told
with a tenth of the wait still to come. The one of the half counts in metrics and in what is learned:
the first is told when least is known, the last when little is left to know. One that was withdrawn by then, as a
gang ran for longer than it had said, counts all the same; where none was told before that moment, the
first one told after it does.

Where a fresh play of the whole line tells a start (``played_starts``), that is told, with what starts
after plays were worth; else what the session has worked out.

What is learned of a queue's starts stands in the status of its Queue (``status.startEstimates``), as the
sessions write it; a new leader goes on from there. What single gangs were told is kept here, and
of a run that goes on its first estimate in the history as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import attrs

from gpusched.api.meta.identity import UID, GangKey
from gpusched.api.node.node import Node
from gpusched.api.queue.queue import Queue
from gpusched.api.queue.start_errors import (
    NO_START_ERRORS,
    StartErrors,
    StartKnownBy,
    add_start_errors,
)
from gpusched.base.classes import define, frozen
from gpusched.base.limits import ESTIMATE_STEP_S
from gpusched.cache.snapshot import Snapshot, StartEstimate
from gpusched.session.backfill.estimates.start_moves import ClusterChange, explain_move, is_move
from gpusched.session.backfill.estimates.start_ranges import range_factors, start_range
from gpusched.session.state.plan import GangStatus, Plan, QueueStatus

WAIT_COMPARED_MIN_S: Final = 60.0
"""Shorter waits are not compared: in them the seconds of bindings count."""
_TOLD_KEPT_MAX: Final = 128
"""Estimates of one wait; of more every second one is dropped, but the first."""
_LAST_PART: Final = 10


@frozen(slots=True, kw_only=True)
class ToldStart:
    """One estimate as a gang was told it.

    Attributes:
        at: when it was told first, seconds since the epoch, as all times.
        start: expected; 0.0 where it was told that nothing is known.
        earliest, latest: its range; 0.0 for none.
    """

    at: float
    start: float
    known_by: str = StartKnownBy.UNKNOWN
    earliest: float = 0.0
    latest: float = 0.0


@frozen(slots=True, kw_only=True)
class ComparedStart:
    """A start beside what was told of it; None for what was never told.

    Attributes:
        since: from when the gang counts as waiting.
        half: in force when half of the wait was over.
        last: in force when a tenth of it was left.
        moves: changes of the estimate that count.
    """

    gang: GangKey
    uid: UID
    queue: str
    since: float
    started: float
    first: ToldStart | None = None
    half: ToldStart | None = None
    last: ToldStart | None = None
    moves: int = 0

    @property
    def wait(self) -> float:
        """Seconds that the gang waited."""
        return self.started - self.since

    @property
    def half_at(self) -> float:
        """From when the estimate of the half counts: from the half of the wait on.

        But from when it was told where that came after, or where the time told had passed by then.
        """
        middle = self.since + self.wait / 2
        if self.half is None:
            return middle
        return self.half.at if self.half.start <= middle else max(middle, self.half.at)

    @property
    def in_range(self) -> bool | None:
        """Whether it started within the range of the estimate of the half; None for no range."""
        told = self.half
        if told is None or not told.latest:
            return None
        return told.earliest <= self.started <= told.latest


@define(slots=True, eq=False)
class _WaitingTold:
    """A gang that waits, with what it was told.

    Attributes:
        told: estimates in the order in which they were told.
        anchor: the estimate with which the next ones are compared, and nodes that could be used then.
        shown: the last status and estimate of a session, and the status as it was told.
    """

    told: list[ToldStart] = attrs.Factory(list)
    anchor: StartEstimate | None = None
    nodes: frozenset[str] = frozenset()
    change: str = ""
    moves: int = 0
    shown: tuple[GangStatus, StartEstimate | None, GangStatus] | None = None


@define(slots=True, eq=False)
class _LearnedStarts:
    """What became of the starts of one queue.

    Attributes:
        uid: of its object.
        rows: names of rows of its status whose starts are among these.
    """

    uid: UID
    errors: StartErrors
    rows: set[str]


class ToldStarts:
    """See the module. One for each term of a daemon.

    Args:
        on_compared: called with each start that is compared.
    """

    def __init__(self, on_compared: Callable[[ComparedStart], None]) -> None:
        self._on_compared = on_compared
        self._waiting: dict[tuple[GangKey, UID], _WaitingTold] = {}
        self._learned: dict[str, _LearnedStarts] = {}
        """By queue, what was learned since this term began, and before."""
        self._queues: Mapping[str, Queue] = {}
        """Queues as they were when the last snapshot was taken."""
        self._usable: tuple[Sequence[Node], frozenset[str]] = ((), frozenset())
        self.played: Callable[[float], Mapping[tuple[GangKey, UID], float]] = lambda _now: {}
        """When gangs start that wait, by a play that is fresh at a moment, all in seconds since the epoch."""

    # -- sessions ------------------------------------------------------------------------------
    def with_start_errors(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with what is known of earlier starts, of all its queues."""
        self._queues = {name: node.queue for name, node in snapshot.queues.queues.items()}
        for name, learned in self._learned.items():
            if name in self._queues:
                learned.rows.add(self._queues[name].own_row)
        known = {
            name: errors
            for name, queue in self._queues.items()
            if (
                errors := add_start_errors((self.errors_of(name), queue.start_errors_elsewhere))
            ).tallies
        }
        return attrs.evolve(snapshot, start_errors=known) if known else snapshot

    def errors_of(self, queue: str) -> StartErrors:
        """What is known of earlier starts of a queue, in the shards of this daemon."""
        known, learned = self._queues.get(queue), self._learned.get(queue)
        if learned is not None and learned.uid == (known.uid if known is not None else ""):
            return learned.errors
        return known.start_errors if known is not None else NO_START_ERRORS

    def _with_own_starts(self, plan: Plan) -> Plan:
        """The plan with the starts of the shards of this daemon, where several divide the cluster."""
        if not any(queue.own_row for queue in self._queues.values()):
            return plan

        def own_status(status: QueueStatus) -> QueueStatus:
            learned = self._learned.get(status.name)
            rows = tuple(sorted(learned.rows)) if learned is not None else ()
            return attrs.evolve(status, start_errors=self.errors_of(status.name), start_rows=rows)

        return attrs.evolve(plan, queues=tuple(own_status(each) for each in plan.queues))

    def note_told(
        self,
        plan: Plan,
        estimates: Mapping[GangKey, StartEstimate],
        snapshot: Snapshot,
        *,
        names_shown: bool,
    ) -> Plan:
        """Remember what gangs that wait are told, and add it to their statuses, with why it has moved.

        Args:
            plan: as it is told.
            estimates: of the session.
            snapshot: on which it was decided.
            names_shown: whether sentences may name gangs of other namespaces.
        """
        now, plan = snapshot.now, self._with_own_starts(plan)
        played = self.played(now)
        if not self._waiting and not estimates and not played:
            return plan
        nodes = self._usable_nodes(snapshot)
        waiting = frozenset(each.gang for each in plan.gangs if not each.is_scheduled)

        def told_status(session_status: GangStatus) -> GangStatus:
            status = session_status
            if status.is_scheduled:
                return status
            who = (status.gang, status.uid)
            start = played.get(who, 0.0) if played else 0.0
            estimate = estimates.get(status.gang)
            if start > now:
                estimate = self._played_estimate(status, start, snapshot)
                status = attrs.evolve(status, estimated_start=estimate.start)
            elif estimate is None and who not in self._waiting:
                return status
            known = self._waiting.setdefault(who, _WaitingTold())
            shown_before = known.shown
            if shown_before and shown_before[0] is session_status and shown_before[1] == estimate:
                return shown_before[2]
            _note_estimate(known, estimate, now)
            change = ClusterChange(
                running=snapshot.placed_gangs.keys(),
                waiting=waiting,
                lost_nodes=sorted(known.nodes - nodes),
                new_nodes=sorted(nodes - known.nodes),
                namespace="" if names_shown else status.gang.namespace,
            )
            _note_move(known, estimate, change, now=now, nodes=nodes)
            shown = attrs.evolve(
                status, start_estimate=estimate, estimate_change=known.change if estimate else ""
            )
            known.shown = (session_status, estimate, shown)
            return shown

        return attrs.evolve(plan, gangs=tuple(told_status(each) for each in plan.gangs))

    def _played_estimate(
        self, status: GangStatus, start: float, snapshot: Snapshot
    ) -> StartEstimate:
        """The estimate that a play tells; the start that was told before where it is still about right."""
        waiting, now = self._waiting.get((status.gang, status.uid)), snapshot.now
        before = waiting.told[-1].start if waiting is not None and waiting.told else 0.0
        if before > now and abs(before - start) < ESTIMATE_STEP_S:
            start = before
        known_by = StartKnownBy.PLAYED
        factors = range_factors(snapshot.start_errors, (status.queue,), known_by)
        earliest, latest = start_range(now, start, factors) if factors else (0.0, 0.0)
        return StartEstimate(start=start, known_by=known_by, earliest=earliest, latest=latest)

    def _usable_nodes(self, snapshot: Snapshot) -> frozenset[str]:
        """Names of nodes that take pods; worked out again when a node has changed."""
        nodes = snapshot.nodes.nodes
        if self._usable[0] is not nodes:
            names = (each.name for each in nodes if not each.not_ready and not each.unschedulable)
            self._usable = (nodes, frozenset(names))
        return self._usable[1]

    # -- starts --------------------------------------------------------------------------------
    def compare_start(
        self,
        gang: GangKey,
        uid: UID,
        *,
        queue: str,
        since: float,
        started: float,
        earlier: ToldStart | None,
    ) -> ComparedStart:
        """Compare the start of a gang with what it was told, and learn from it where it waited long enough.

        Args:
            gang: that has started.
            uid: of its object.
            queue: in which it waited.
            since: from when it counts as waiting.
            started: when it started.
            earlier: the first estimate that an earlier process told, as the history has it.
        """
        known = self._waiting.pop((gang, uid), None) or _WaitingTold()
        told = [each for each in known.told if each.start]
        first = next(iter(told), None)
        if earlier is not None and (first is None or earlier.at < first.at):
            first = earlier
        wait = started - since
        compared = ComparedStart(
            gang=gang,
            uid=uid,
            queue=queue,
            since=since,
            started=started,
            first=first,
            half=_in_force(known.told, since + wait / 2),
            last=_in_force(known.told, started - wait / _LAST_PART),
            moves=known.moves,
        )
        if wait >= WAIT_COMPARED_MIN_S:
            self._learn(compared)
            self._on_compared(compared)
        return compared

    def _learn(self, compared: ComparedStart) -> None:
        told = compared.half
        if told is None or compared.queue not in self._queues:
            return
        at = compared.half_at
        ratio = max(0.0, compared.started - at) / max(1.0, told.start - at)
        errors = self.errors_of(compared.queue).with_start(
            told.known_by, ratio, in_range=compared.in_range
        )
        queue, learned = self._queues[compared.queue], self._learned.get(compared.queue)
        rows = learned.rows if learned is not None and learned.uid == queue.uid else {queue.own_row}
        self._learned[queue.name] = _LearnedStarts(queue.uid, errors, rows)

    def forget(self, gang: GangKey, uid: UID) -> None:
        """A gang waits no more without having started."""
        self._waiting.pop((gang, uid), None)

    def first_told(self, gang: GangKey, uid: UID) -> ToldStart | None:
        """The first estimate that a gang was told, while it waits."""
        known = self._waiting.get((gang, uid))
        return next((each for each in known.told if each.start), None) if known else None

    def last_change(self, gang: GangKey, uid: UID) -> str:
        """Why its estimate moved last, while it waits; empty for no move."""
        known = self._waiting.get((gang, uid))
        return known.change if known is not None else ""


def _in_force(told: list[ToldStart], moment: float) -> ToldStart | None:
    """The estimate told last before a moment, were it withdrawn since; else the first one told after it."""
    known = [each for each in told if each.start]
    before = [each for each in known if each.at <= moment]
    return before[-1] if before else next(iter(known), None)


def _note_estimate(known: _WaitingTold, told: StartEstimate | None, now: float) -> None:
    """Remember what a gang is told now, where it is something else than before."""
    new = ToldStart(at=now, start=0.0)
    if told is not None:
        new = ToldStart(
            at=now,
            start=told.start,
            known_by=told.known_by,
            earliest=told.earliest,
            latest=told.latest,
        )
    if known.told and attrs.evolve(known.told[-1], at=now) == new:
        return
    known.told.append(new)
    if len(known.told) > _TOLD_KEPT_MAX:
        known.told[1:-1] = known.told[2:-1:2]


def _note_move(
    known: _WaitingTold,
    told: StartEstimate | None,
    change: ClusterChange,
    *,
    now: float,
    nodes: frozenset[str],
) -> None:
    """Say why the estimate moved, where it did; the next one is compared with this one then."""
    if told is None:
        return
    if known.anchor is not None:
        if not is_move(known.anchor, told, now=now):
            return
        known.change = explain_move(known.anchor, told, change)
        known.moves += 1
    known.anchor, known.nodes = told, nodes
