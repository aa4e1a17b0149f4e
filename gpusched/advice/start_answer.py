"""When a gang starts, as one decision says it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum

from gpusched.api.meta.identity import GangKey, ObjectKey
from gpusched.base.classes import frozen
from gpusched.session.decide import Decision
from gpusched.session.state.plan import GangStatus, Plan


class StartKind(StrEnum):
    """How well a start is known."""

    NOW = "now"
    """It is bound, or its Job is started where room is free, by this very decision."""
    AFTER_EVICTIONS = "afterEvictions"
    """Room is made for it: it starts when the evicted pods have ended, or those that leave anyway."""
    EXPECTED = "expected"
    """At a time at which others are expected to end."""
    UNKNOWN = "unknown"
    """Nothing says when."""


@frozen(kw_only=True)
class StartAnswer:
    """When one gang starts.

    Attributes:
        at: seconds since the Unix epoch where ``kind`` is EXPECTED, else 0.0.
        nodes: name of each node that it gets and number of its pods there, sorted.
        evicted: gangs that lose members for it, sorted; empty where its room becomes free anyway.
        reason, message: why it waits, as the daemon tells it; empty where it starts now.
    """

    kind: StartKind
    at: float = 0.0
    nodes: tuple[tuple[str, int], ...] = ()
    evicted: tuple[GangKey, ...] = ()
    reason: str = ""
    message: str = ""

    @property
    def starts(self) -> bool:
        """Whether this decision starts it, or makes room for it."""
        return self.kind in (StartKind.NOW, StartKind.AFTER_EVICTIONS)


def start_answer(decision: Decision, gang: GangKey) -> StartAnswer:
    """What a decision says about the start of a gang."""
    plan = decision.plan
    for bind in plan.binds:
        if bind.gang == gang and bind.placed + len(bind.binds) >= bind.min_member:
            nodes = _counted_nodes(each.node for each in bind.binds)
            return StartAnswer(kind=StartKind.NOW, nodes=nodes)
    status = next((each for each in plan.gangs if each.gang == gang), None)
    reason, message = pending_reason(status)
    for made in plan.preemptions:
        if made.gang == gang and (made.stops or made.nominations):
            return StartAnswer(
                kind=StartKind.AFTER_EVICTIONS,
                nodes=_counted_nodes(node for _, _, node in made.nominations),
                evicted=tuple(sorted({stop.gang for stop in made.stops})),
                reason=reason,
                message=made.message,
            )
    if _starts_job(plan, gang):
        room = next((each for each in decision.reserved if each.gang == gang), None)
        if room is not None and room.evicted:  # its pods have them evicted once they are made
            return StartAnswer(kind=StartKind.AFTER_EVICTIONS, evicted=room.evicted)
        return StartAnswer(kind=StartKind.NOW)
    at = status.estimated_start if status is not None else 0.0
    kind = StartKind.EXPECTED if at else StartKind.UNKNOWN
    return StartAnswer(kind=kind, at=at, reason=reason, message=message)


def starting_gangs(decision: Decision) -> set[GangKey]:
    """Gangs that get places by a decision, a start, or room that is made."""
    plan = decision.plan
    return {
        *(bind.gang for bind in plan.binds),
        *(made.gang for made in plan.preemptions),
        *(GangKey("Job", change.key.namespace, change.key.name) for change in plan.job_changes),
    }


def acting_gangs(decision: Decision) -> set[GangKey]:
    """Gangs that start by a decision, and those for which room is kept."""
    return {
        *starting_gangs(decision),
        *(room.gang for room in decision.reserved),
        *(status.gang for status in decision.plan.gangs if status.nominated),
    }


def _starts_job(plan: Plan, gang: GangKey) -> bool:
    key = ObjectKey(gang.namespace, gang.name)
    return gang.kind == "Job" and any(
        change.key == key and not change.suspend for change in plan.job_changes
    )


def pending_reason(status: GangStatus | None) -> tuple[str, str]:
    """Reason and message of a gang that waits; empty where nothing is said of it."""
    if status is None:
        return "", ""
    why = status.pending_reason or status.scheduled
    return why.reason, why.message


def _counted_nodes(names: Iterable[str]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(Counter(names).items()))
