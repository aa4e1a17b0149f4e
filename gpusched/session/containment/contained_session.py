"""Holds one session whatever it takes: in full, without some objects, plainer, or gang by gang."""

from __future__ import annotations

import attrs

from gpusched.base import limits
from gpusched.base.classes import frozen
from gpusched.cache.gangs.gang import Gang
from gpusched.cache.snapshot import Snapshot
from gpusched.session.containment.attempt import AttemptResult, AttemptSetting, attempt_session
from gpusched.session.containment.culprit_search import CulpritSearch, find_open_blocker
from gpusched.session.containment.failing_hooks import HookCulpritSearch
from gpusched.session.containment.set_aside import Containment, SessionMode, SetAside
from gpusched.session.containment.suspects import SessionFault, Suspect, gang_suspect
from gpusched.session.state.plan import Plan


@frozen(kw_only=True)
class ContainedResult:
    """A session that was held.

    Attributes:
        contained: objects that were set aside in it.
        again: whether the next one should follow at once.
    """

    decided: AttemptResult
    contained: tuple[SetAside, ...] = ()
    again: bool = False


def decide_contained(
    snapshot: Snapshot, setting: AttemptSetting, memory: Containment
) -> ContainedResult:
    """Decide; what raises is contained and remembered."""
    known, mode = memory.begin_session(snapshot)
    if not mode.decides and memory.degraded is not None and memory.degraded.fault is None:
        # Processes died of whatever was tried: this one waits until it is time to try again.
        return ContainedResult(decided=_empty_result(snapshot))
    if not mode.together:
        return _gang_by_gang(snapshot, setting, memory, known=known, mode=mode, fault=None)
    aside = frozenset(known)
    session_cache = memory.session_cache(setting.session_cache, aside)
    outcome = attempt_session(
        snapshot, aside, attrs.evolve(setting, session_cache=session_cache), mode=mode
    )
    if isinstance(outcome, AttemptResult):
        memory.note_outcome(snapshot, mode, None)
        outcome, mode = _without_needless_orders(
            snapshot, setting, memory, aside=aside, mode=mode, decided=outcome
        )
        if outcome.hooks or outcome.failing_orders:
            held = _without_failing_hooks(
                snapshot, setting, memory, known=known, mode=mode, decided=outcome
            )
            return _without_failing_orders(snapshot, setting, memory, mode=mode, held=held)
        return _without_open_blocker(
            snapshot, setting, memory, known=known, mode=mode, decided=outcome
        )
    search = CulpritSearch(snapshot, known, setting, containment=memory, mode=mode)
    found = search.run(outcome)
    if found.decided is None:
        plain = attrs.evolve(found.mode, together=False)
        return _gang_by_gang(snapshot, setting, memory, known=known, mode=plain, fault=found.last)
    memory.readmit_suspects(found.pardoned)
    new = memory.set_aside(snapshot, found.culprits)
    memory.note_outcome(snapshot, found.mode, found.last)
    return ContainedResult(decided=found.decided, contained=new)


def _without_needless_orders(
    snapshot: Snapshot,
    setting: AttemptSetting,
    memory: Containment,
    *,
    aside: frozenset[Suspect],
    mode: SessionMode,
    decided: AttemptResult,
) -> tuple[AttemptResult, SessionMode]:
    """Without orders that fail for the one object that they are asked about.

    Whether it is the object or the order, there is nothing to be put in order: the session is
    held without it, and the next one asks again, as others may have come by then.
    """
    failing = {each.name: each.fault for each in decided.failing_orders if each.objects <= 1}
    if not failing:
        return decided, mode
    plain = attrs.evolve(mode, unordered=tuple(sorted({*mode.unordered, *failing})))
    outcome = _attempt_without(snapshot, setting, memory, aside=aside, mode=plain)
    if isinstance(outcome, SessionFault):
        return decided, mode
    # A quarantined hook is asked about one of many only: it is known to fail for all.
    lasting = not failing.keys().isdisjoint(memory.lasting_mode.unordered)
    memory.note_outcome(snapshot, plain, next(iter(failing.values())), lasting=lasting)
    said = tuple(dict.fromkeys((*decided.faults, *outcome.faults)))
    return attrs.evolve(outcome, faults=said), plain


def _without_failing_hooks(
    snapshot: Snapshot,
    setting: AttemptSetting,
    memory: Containment,
    *,
    known: dict[Suspect, SessionFault],
    mode: SessionMode,
    decided: AttemptResult,
) -> ContainedResult:
    """Without the objects for which hooks fail, where it is not the hooks."""

    def attempt(more: frozenset[Suspect]) -> AttemptResult | SessionFault:
        return _attempt_without(snapshot, setting, memory, aside=more.union(known), mode=mode)

    found = HookCulpritSearch(snapshot, memory, attempt).run(decided)
    memory.readmit_suspects(found.pardoned)
    new = memory.set_aside(snapshot, found.culprits)
    return ContainedResult(decided=found.decided, contained=new, again=bool(found.pardoned))


def _without_failing_orders(
    snapshot: Snapshot,
    setting: AttemptSetting,
    memory: Containment,
    *,
    mode: SessionMode,
    held: ContainedResult,
) -> ContainedResult:
    """Without orders of queues and gangs that fail for everything, so that gangs start all the same.

    Other hooks of these policies stay: what they refuse when they fail, evictions above all, stays
    refused.
    """
    failing = {
        each.name: each.fault
        for each in held.decided.failing_orders
        if each.objects > 1  # of those that fail for one see above
    }
    if not failing:
        return held
    plain = attrs.evolve(mode, unordered=tuple(sorted({*mode.unordered, *failing})))
    aside = frozenset(each.suspect for each in memory.objects_set_aside)
    outcome = _attempt_without(snapshot, setting, memory, aside=aside, mode=plain)
    if isinstance(outcome, SessionFault):
        return held
    memory.note_outcome(snapshot, plain, next(iter(failing.values())))
    said = tuple(dict.fromkeys((*held.decided.faults, *outcome.faults)))
    return attrs.evolve(held, decided=attrs.evolve(outcome, faults=said))


def _without_open_blocker(
    snapshot: Snapshot,
    setting: AttemptSetting,
    memory: Containment,
    *,
    known: dict[Suspect, SessionFault],
    mode: SessionMode,
    decided: AttemptResult,
) -> ContainedResult:
    """A policy that cannot open stops all gangs: if one object is to blame, it is set aside."""
    if not decided.closed or decided.closed == memory.closed:
        memory.closed = decided.closed
        return ContainedResult(decided=decided)
    idle = attrs.evolve(setting, policy=attrs.evolve(setting.policy, actions=()))

    def fails(more: frozenset[Suspect]) -> bool:
        aside = frozenset(known) | more
        session_cache = memory.session_cache(setting.session_cache, aside)
        outcome = attempt_session(
            snapshot, aside, attrs.evolve(idle, session_cache=session_cache), mode=mode
        )
        return not isinstance(outcome, AttemptResult) or bool(outcome.closed)

    culprit = find_open_blocker(snapshot, fails)
    if culprit is None:
        memory.closed = decided.closed
        return ContainedResult(decided=decided)
    aside = frozenset({*known, culprit})
    session_cache = memory.session_cache(setting.session_cache, aside)
    outcome = attempt_session(
        snapshot, aside, attrs.evolve(setting, session_cache=session_cache), mode=mode
    )
    if not isinstance(outcome, AttemptResult):
        return ContainedResult(decided=decided)
    why = decided.closed.partition("; nothing is placed")[0]
    fault = SessionFault(
        kind="PluginFault", says=why, stage="open", place="open", suspects=(culprit,), story=why
    )
    return ContainedResult(decided=outcome, contained=memory.set_aside(snapshot, {culprit: fault}))


# -- gang by gang ------------------------------------------------------------------------------
def _gang_by_gang(
    snapshot: Snapshot,
    setting: AttemptSetting,
    memory: Containment,
    *,
    known: dict[Suspect, SessionFault],
    mode: SessionMode,
    fault: SessionFault | None,
) -> ContainedResult:
    """Decide gangs one by one until one gets places; the next session goes on from there.

    A gang that fails by itself is set aside, unless the first few all fail: then nothing
    is decided, and no object is blamed.
    """
    mode = attrs.evolve(mode, decides=True)
    culprits: dict[Suspect, SessionFault] = {}
    base = _empty_result(snapshot)
    waiting = [
        gang
        for gang in snapshot.gangs
        if gang.missing_members and gang_suspect(gang.key) not in known
    ]
    every = frozenset(gang_suspect(gang.key) for gang in snapshot.gangs if gang.missing_members)
    outcome = _attempt_without(snapshot, setting, memory, aside=every | frozenset(known), mode=mode)
    if isinstance(outcome, AttemptResult):
        base = outcome
    plan, again = base.plan, False
    tried, good = 0, False
    for gang in _in_retry_order(waiting, memory):
        tried += 1
        memory.turn = gang.key
        others = every - {gang_suspect(gang.key)}
        outcome = _attempt_without(
            snapshot, setting, memory, aside=others | frozenset(known), mode=mode
        )
        if isinstance(outcome, SessionFault):
            fault = fault or outcome
            culprits[gang_suspect(gang.key)] = outcome
            if not good and len(culprits) >= limits.ONE_BY_ONE_FAULTS_MAX:
                break
            continue
        good = True
        if outcome.plan.has_effects:
            plan, again = outcome.plan, True
            break
        statuses = [status for status in outcome.plan.gangs if status.gang == gang.key]
        plan = attrs.evolve(plan, gangs=(*plan.gangs, *statuses))
        again = again or tried < len(waiting) <= limits.ONE_BY_ONE_MAX
    plan = attrs.evolve(plan, gangs=tuple(sorted(plan.gangs, key=lambda status: status.gang)))
    if culprits and not good:
        mode = attrs.evolve(mode, decides=False)
        culprits = {}
    new = memory.set_aside(snapshot, culprits)
    memory.note_outcome(snapshot, mode, fault)
    return ContainedResult(
        decided=attrs.evolve(base, plan=plan),
        contained=new,
        again=again and plan.has_effects,
    )


def _empty_result(snapshot: Snapshot) -> AttemptResult:
    return AttemptResult(
        snapshot=snapshot, plan=Plan(revision=snapshot.revision), waiting={}, faults=(), searches=()
    )


def _attempt_without(
    snapshot: Snapshot,
    setting: AttemptSetting,
    memory: Containment,
    *,
    aside: frozenset[Suspect],
    mode: SessionMode,
) -> AttemptResult | SessionFault:
    session_cache = memory.session_cache(setting.session_cache, aside)
    return attempt_session(
        snapshot, aside, attrs.evolve(setting, session_cache=session_cache), mode=mode
    )


def _in_retry_order(waiting: list[Gang], memory: Containment) -> list[Gang]:
    """By priority and age; after a session that ended early, from where it ended."""
    order = sorted(waiting, key=lambda gang: (-gang.priority, gang.created, gang.key))
    keys = [gang.key for gang in order]
    begin = keys.index(memory.turn) + 1 if memory.turn in keys else 0
    return [*order[begin:], *order[:begin]][: limits.ONE_BY_ONE_MAX]
