"""What each session decided, in metrics and in the log: queues, topologies, faults of methods."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Sequence
from itertools import filterfalse
from typing import Protocol

from gpusched.api.meta.pool_resources import resource_of
from gpusched.api.meta.resources import NOTHING, Resources
from gpusched.api.meta.units import unit_of
from gpusched.api.queue.budget import GPU_HOUR
from gpusched.api.queue.queue import DEFAULT_QUEUE
from gpusched.cache.snapshot import Snapshot
from gpusched.io.cycle.fault_report import FaultReport
from gpusched.io.observe.fault_dumps import FaultDumps
from gpusched.io.observe.logs import Logger
from gpusched.io.observe.telemetry import Telemetry
from gpusched.io.solver.process import SolverProcess
from gpusched.session.decide import Decision
from gpusched.session.state.plan import (
    GangStatus,
    QueueStatus,
    ReservationStatus,
    TopologyStatus,
)
from gpusched.session.state.search_records import SearchRecord
from gpusched.session.state.session_cache import SessionCache
from gpusched.session.status.reserved.reservation_status import PHASES

_FAULTS_TOLD_MAX = 1000
_log = Logger(__name__)


class StatusSink(Protocol):
    """Where status goes; it is written later and never delays a decision."""

    def submit(
        self,
        gangs: Sequence[GangStatus],
        queues: Sequence[QueueStatus],
        topologies: Sequence[TopologyStatus] = (),
        reservations: Sequence[ReservationStatus] = (),
    ) -> Sequence[tuple[str, Exception]]:
        """This is how things stand now; names of objects that cannot be told, and why."""


class DecisionReport:
    """Counts what decisions hold; what stayed the same since the last one is not counted again.

    Args:
        telemetry: where metrics are set.
        faults: told of levels with too many domains.
        solver: told of its own losses already; None where searches run in the session's thread.
    """

    def __init__(
        self, telemetry: Telemetry, faults: FaultReport, solver: SolverProcess | None
    ) -> None:
        self._telemetry = telemetry
        self._faults = faults
        self._solver = solver
        self._dumps = FaultDumps()
        self._told: set[str] = set()
        self._counted: dict[str, tuple[Resources, Resources, tuple[int, int] | None]] = {}

    def report_times(
        self,
        decision: Decision,
        took: Sequence[tuple[str, float]],
        *,
        session_s: float,
        began: float,
    ) -> None:
        """Seconds of a session, of its actions, which followed each other, and of its searches.

        Args:
            decision: what the session came to.
            took: each action with its seconds.
            session_s: of the session.
            began: when, seconds since the epoch.
        """
        telemetry = self._telemetry
        for action, seconds in took:
            telemetry.cycle(action, seconds)
            telemetry.tracing.finished(action, began=began, ended=began + seconds)
            began += seconds
        for each in decision.searches:
            telemetry.solver(str(each.outcome), each.seconds, each.gap)
        telemetry.cycle("session", session_s)

    def report_decision(self, decision: Decision, session_cache: SessionCache) -> None:
        """Log what failed in a decision, and set its metrics; a session that ended early has none."""
        self._report_faults(decision.faults)
        self._report_unusable_answers(decision.searches)
        if decision.ended_early:
            return
        self._telemetry.replace_pending(decision.waiting)
        self._count_queues(decision.plan.queues, decision.snapshot)
        self._telemetry.set_topologies(
            conflicts=sum(not each.is_ready for each in decision.plan.topologies),
            crossed=sum(each.crossed for each in decision.plan.topologies),
            outside=self._nodes_outside_levels(decision, session_cache),
        )
        reserved = decision.plan.reservations
        self._telemetry.set_reservations(
            dict.fromkeys(PHASES, 0) | Counter(each.phase for each in reserved),
            in_the_way=sum(each.in_the_way for each in reserved),
        )

    def _nodes_outside_levels(self, decision: Decision, session_cache: SessionCache) -> int:
        """Nodes beyond the domains of a level that count; without a Topology it is told here."""
        if decision.snapshot.topologies:
            return sum(each.outside for each in decision.plan.topologies)
        levels = session_cache.topology_levels(
            decision.snapshot.nodes, (), decision.snapshot.devices.slices
        )
        full = next((level for level in levels if level.beyond), None)
        self._faults.tell_too_many_domains(full)
        return full.beyond if full is not None else 0

    def _count_queues(self, queues: Sequence[QueueStatus], snapshot: Snapshot) -> None:
        """Gauges of what queues hold and are due; only those that changed are set again.

        Queue ``default`` holds pods whether it is an object, which has a status, or not.
        """
        counted = {
            queue.name: (queue.allocated, queue.fair_share, _budget_amounts(queue))
            for queue in queues
        }
        built_in = snapshot.queues.get(DEFAULT_QUEUE)
        if built_in is not None:
            counted.setdefault(DEFAULT_QUEUE, (built_in.allocated, NOTHING, None))
        for gone in self._counted.keys() - counted.keys():
            self._telemetry.forget_queue(gone)
        for name, (allocated, due, budget) in counted.items():
            if self._counted.get(name) != (allocated, due, budget):
                used, available = budget or (0, 0)
                hours = {"used": used / GPU_HOUR, "available": available / GPU_HOUR}
                self._telemetry.set_queue(
                    name,
                    allocated=_gauges(allocated),
                    fair_share=_gauges(due),
                    budget=hours if budget else None,
                )
        self._counted = counted

    def _report_unusable_answers(self, searches: Sequence[SearchRecord]) -> None:
        """Answers of methods that could not be used: ours to mend, each with its problem."""
        for record in searches:
            for message in filterfalse(self._is_reported_solver_loss, record.faults):
                self._telemetry.solver("invalid", 0.0)
                body = pickle.dumps(record.problem, protocol=pickle.HIGHEST_PROTOCOL)
                self._dumps.write(
                    f"a method of placement failed: {message}", "", what="Problem", body=body
                )

    def _is_reported_solver_loss(self, message: str) -> bool:
        """Whether it is about a loss of the solver's process, which was told and counted there."""
        told = self._solver.told if self._solver is not None else ()
        return any(message.endswith(each) for each in told)

    def _report_faults(self, faults: Sequence[str]) -> None:
        for message in faults:
            if message not in self._told and len(self._told) < _FAULTS_TOLD_MAX:
                self._told.add(message)
                _log.error("a plugin failed", why=message)


def _budget_amounts(queue: QueueStatus) -> tuple[int, int] | None:
    """Used and available of its budget, millionths of GPU-seconds; None where it has none."""
    return None if queue.budget is None else (queue.budget.record.used, queue.budget.available)


def _gauges(amounts: Resources) -> dict[str, float]:
    """Amounts in the units of the metrics: cores, bytes, GPUs, pieces."""
    return {resource: amount / unit_of(resource_of(resource)) for resource, amount in amounts.items}
