"""Gangs that are stopped for their own sake: policies name them, before any gang is placed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from gpusched.api.gang.turn_record import TurnRecord
from gpusched.cache.gangs.gang import Gang
from gpusched.session.allocate.gang_repair import broken_gangs, is_broken
from gpusched.session.framework.reasons import Reason, truncate_message
from gpusched.session.framework.verdict import ALLOW, Verdict
from gpusched.session.preempt.preemption_plans import has_record_object, is_suspended_to_evict
from gpusched.session.preempt.victims import DisruptionBudgets
from gpusched.session.state.session import Session

STOP_ACTION = "stop"
"""The name for metrics of what no action of the configuration decided."""
_TURNS_NOT_COUNTED: Final = (
    "it keeps its place by age and all its turns are equal, as turns are counted for PodGroups of "
    "gpusched and for Jobs alone"
)


def stop_gangs(session: Session) -> None:
    """Ask the policies, and make those gangs leave whole; see ``Hooks.stop_check``."""
    if not session.hooks.stop_checks or session.outcomes.closed:
        return
    budgets = DisruptionBudgets(session.snapshot.budgets)
    for gang in _gangs_to_check(session):
        verdict = _stop_verdict(session, gang)
        if verdict.refuses and budgets_allow_leaving(gang, budgets):
            _stop_by_verdict(session, gang, verdict)


def budgets_allow_leaving(gang: Gang, budgets: DisruptionBudgets) -> bool:
    """Whether disruption budgets let a member go, or all of a Job that would be suspended.

    The API asks them when a pod is evicted, but not when a Job is suspended. A gang that
    they protect whole would be told every minute that it is stopped, and never would be.
    """
    drawn = [budgets.numbers_of(member) for member in gang.placed]
    if not is_suspended_to_evict(gang):
        return any(all(budgets.left[number] for number in each) for each in drawn)
    counts = Counter(number for each in drawn for number in each)
    if any(count > budgets.left[number] for number, count in counts.items()):
        return False
    for number, count in counts.items():
        budgets.left[number] -= count
    return True


def _gangs_to_check(session: Session) -> Iterator[Gang]:
    """Gangs about which a policy may have something to say, by key."""
    tests = [queues for _, queues in session.hooks.stop_checks]
    queues = {
        name
        for name, node in session.snapshot.queues.queues.items()
        if any(test(node) for test in tests)
    }
    keys = {gang.key for gang in broken_gangs(session)}
    if queues:
        keys |= {key for key, gang in session.snapshot.placed_gangs.items() if gang.queue in queues}
    for key in sorted(keys):
        gang = session.snapshot.placed_gangs.get(key)
        if gang is not None and gang.placed and all(each.confirmed for each in gang.placed):
            yield gang


def _stop_verdict(session: Session, gang: Gang) -> Verdict:
    node = session.queue_of(gang)
    # Room that is being freed for its repair is waited for: a promise has its own end.
    broken = is_broken(gang) and not session.nominations.has_nomination(gang)
    for check, queues in session.hooks.stop_checks:
        if broken or (node is not None and queues(node)):
            verdict = check(gang)
            if verdict.refuses:
                return verdict
    return ALLOW


def _stop_by_verdict(session: Session, gang: Gang, verdict: Verdict) -> None:
    turn = _turn_with_this(gang, session.snapshot.now) if verdict.ends_turn else None
    message = verdict.message
    if turn is not None and not has_record_object(gang):
        # Told where the stop is: it is served by its age, and may be the next one again.
        message = truncate_message(f"{message}; {_TURNS_NOT_COUNTED}")
    stop_gang(session, gang, verdict.reason, message, action=STOP_ACTION, turn=turn)


def stop_gang(
    session: Session,
    gang: Gang,
    reason: str,
    message: str,
    *,
    action: str,
    turn: TurnRecord | None = None,
) -> None:
    """Evict all members of a gang for its own sake.

    Args:
        session: in which it is stopped.
        gang: that runs.
        reason: of the evictions, one of the contract's.
        message: for its members and its status.
        action: that decides, for metrics.
        turn: turns that it has had, where one is over.
    """
    statement = session.statement()
    for member in gang.placed:
        if member.node in session.snapshot.nodes.row:
            session.evict(statement, gang, member)
    if not statement.evictions:
        statement.discard()
        return
    session.nominations.stop(
        gang,
        statement,
        action=action,
        reason=reason,
        message=message,
        turn=turn,
    )
    session.outcomes.refuse(gang, Reason(reason), message)


def _turn_with_this(gang: Gang, now: float) -> TurnRecord:
    """Turns that the gang has had when this one is over."""
    before, since = 0, gang.started_at
    if gang.turn is not None:  # it may have ended in this run: a budget protected the members
        before, since = gang.turn.seconds, max(since, gang.turn.ended)
    return TurnRecord(float(int(now)), before + max(0, int(now - since)))
