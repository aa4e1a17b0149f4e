"""Holds one session whatever it takes: in full, without some objects, plainer, or gang by gang."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import attrs

from gpusched.base import limits
from gpusched.cache.gangs.gang import Gang
from gpusched.cache.snapshot import Snapshot
from gpusched.session.containment.attempt import AttemptResult, AttemptSetting, attempt_session
from gpusched.session.containment.culprit_search import CulpritSearch, find_open_blocker
from gpusched.session.containment.set_aside import Containment, SessionMode, SetAside
from gpusched.session.containment.suspects import SessionFault, Suspect, SuspectKind, gang_suspect
from gpusched.session.state.plan import Plan

_HOOK_ROUNDS: Final = 4
"""Attempts without those for whom a hook failed, each of which may show others."""


@attrs.frozen(kw_only=True)
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
    known, mode = memory.begin(snapshot)
    if not mode.decides and memory.degraded is not None and memory.degraded.fault is None:
        # Processes died of whatever was tried: this one waits until it is time to try again.
        return ContainedResult(decided=_empty_result(snapshot))
    if not mode.together:
        return _gang_by_gang(snapshot, setting, memory, known=known, mode=mode, fault=None)
    aside = frozenset(known)
    masks = memory.masks(setting.masks, aside)
    outcome = attempt_session(snapshot, aside, attrs.evolve(setting, masks=masks), mode=mode)
    if isinstance(outcome, AttemptResult):
        memory.settle(snapshot, mode, None)
        if outcome.hooks:
            return _without_failing_hooks(
                snapshot, setting, memory, known=known, mode=mode, decided=outcome
            )
        return _without_open_blocker(
            snapshot, setting, memory, known=known, mode=mode, decided=outcome
        )
    search = CulpritSearch(snapshot, known, setting, containment=memory, mode=mode)
    found = search.run(outcome)
    if found.decided is None:
        plain = attrs.evolve(found.mode, together=False)
        return _gang_by_gang(snapshot, setting, memory, known=known, mode=plain, fault=found.last)
    memory.pardon(found.pardoned)
    new = memory.set_aside(snapshot, found.guilty)
    memory.settle(snapshot, found.mode, found.last)
    return ContainedResult(decided=found.decided, contained=new)


def _without_failing_hooks(
    snapshot: Snapshot,
    setting: AttemptSetting,
    memory: Containment,
    *,
    known: dict[Suspect, SessionFault],
    mode: SessionMode,
    decided: AttemptResult,
) -> ContainedResult:
    """Without the objects for which hooks fail that answer others.

    A hook that fails for many is to blame itself: what its guard says counts then.
    """
    guilty: dict[Suspect, SessionFault] = {}
    first, outcome = decided, decided
    for _ in range(_HOOK_ROUNDS):
        more = _objects_of_hook_faults(outcome.hooks, memory, snapshot.now)
        if not more:
            break
        guilty.update(more)
        counts = Counter(fault.place for fault in guilty.values())
        if any(count > limits.HOOK_SUSPECTS_MAX for count in counts.values()):
            break
        aside = frozenset({*known, *guilty})
        found = _attempt_without(snapshot, setting, memory, aside=aside, mode=mode)
        if isinstance(found, SessionFault):
            return ContainedResult(decided=first)
        outcome = found
    if not guilty:
        return ContainedResult(decided=first)
    # Who answers for others without them failed for what it was asked about.
    proven = all(fault.place in outcome.answers for fault in guilty.values())
    if proven and not _objects_of_hook_faults(outcome.hooks, memory, snapshot.now):
        outcome = attrs.evolve(outcome, faults=(*first.faults, *outcome.faults))
        return ContainedResult(decided=outcome, contained=memory.set_aside(snapshot, guilty))
    for fault in (*outcome.hooks, *guilty.values()):
        memory.blamed_hooks[fault.place] = snapshot.now + limits.SET_ASIDE_RETRY_S
    return ContainedResult(decided=first)


def _objects_of_hook_faults(
    faults: Sequence[SessionFault], memory: Containment, now: float
) -> dict[Suspect, SessionFault]:
    """For each hook, who was asked about each time that it failed; else who was each time first."""
    by_hook: dict[str, list[SessionFault]] = {}
    for fault in faults:
        if memory.blamed_hooks.get(fault.place, now) <= now:
            by_hook.setdefault(fault.place, []).append(fault)
    found: dict[Suspect, SessionFault] = {}
    for those in by_hook.values():
        always = [
            each for each in those[0].suspects if all(each in fault.suspects for fault in those)
        ]
        narrow = [each for each in always if each.what is SuspectKind.GANG]
        if len({fault.suspects for fault in those}) > 1 and narrow:
            found[narrow[0]] = those[0]
        else:
            found.update({fault.suspects[0]: fault for fault in those})
    return found


def _without_open_blocker(
    snapshot: Snapshot,
    setting: AttemptSetting,
    memory: Containment,
    *,
    known: dict[Suspect, SessionFault],
    mode: SessionMode,
    decided: AttemptResult,
) -> ContainedResult:
    """A policy that cannot open stops everybody: if one object is to blame, it is set aside."""
    if not decided.closed or decided.closed == memory.closed:
        memory.closed = decided.closed
        return ContainedResult(decided=decided)
    idle = attrs.evolve(setting, policy=attrs.evolve(setting.policy, actions=()))

    def fails(more: frozenset[Suspect]) -> bool:
        aside = frozenset(known) | more
        masks = memory.masks(setting.masks, aside)
        outcome = attempt_session(snapshot, aside, attrs.evolve(idle, masks=masks), mode=mode)
        return not isinstance(outcome, AttemptResult) or bool(outcome.closed)

    guilty = find_open_blocker(snapshot, fails)
    if guilty is None:
        memory.closed = decided.closed
        return ContainedResult(decided=decided)
    aside = frozenset({*known, guilty})
    masks = memory.masks(setting.masks, aside)
    outcome = attempt_session(snapshot, aside, attrs.evolve(setting, masks=masks), mode=mode)
    if not isinstance(outcome, AttemptResult):
        return ContainedResult(decided=decided)
    why = decided.closed.partition("; nothing is placed")[0]
    fault = SessionFault(
        kind="PluginFault", says=why, stage="open", place="open", suspects=(guilty,), story=why
    )
    return ContainedResult(decided=outcome, contained=memory.set_aside(snapshot, {guilty: fault}))


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
    """Each gang alone, until one gets places: the next session goes on from there.

    A gang that fails alone is set aside, unless it happens to the first few alike: then nothing
    is decided, and nothing is anybody's fault.
    """
    mode = attrs.evolve(mode, decides=True)
    guilty: dict[Suspect, SessionFault] = {}
    base = _empty_result(snapshot)
    waiting = [gang for gang in snapshot.gangs if gang.need and gang_suspect(gang.key) not in known]
    every = frozenset(gang_suspect(gang.key) for gang in snapshot.gangs if gang.need)
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
            guilty[gang_suspect(gang.key)] = outcome
            if not good and len(guilty) >= limits.ONE_BY_ONE_FAULTS_MAX:
                break
            continue
        good = True
        if _changes_anything(outcome.plan):
            plan, again = outcome.plan, True
            break
        told = [status for status in outcome.plan.gangs if status.gang == gang.key]
        plan = attrs.evolve(plan, gangs=(*plan.gangs, *told))
        again = again or tried < len(waiting) <= limits.ONE_BY_ONE_MAX
    plan = attrs.evolve(plan, gangs=tuple(sorted(plan.gangs, key=lambda status: status.gang)))
    if guilty and not good:
        mode = attrs.evolve(mode, decides=False)
        guilty = {}
    new = memory.set_aside(snapshot, guilty)
    memory.settle(snapshot, mode, fault)
    return ContainedResult(
        decided=attrs.evolve(base, plan=plan),
        contained=new,
        again=again and _changes_anything(plan),
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
    masks = memory.masks(setting.masks, aside)
    return attempt_session(snapshot, aside, attrs.evolve(setting, masks=masks), mode=mode)


def _in_retry_order(waiting: list[Gang], memory: Containment) -> list[Gang]:
    """By priority and age; after a session that ended early, from where it ended."""
    order = sorted(waiting, key=lambda gang: (-gang.priority, gang.created, gang.key))
    keys = [gang.key for gang in order]
    begin = keys.index(memory.turn) + 1 if memory.turn in keys else 0
    return [*order[begin:], *order[:begin]][: limits.ONE_BY_ONE_MAX]


def _changes_anything(plan: Plan) -> bool:
    return bool(plan.binds or plan.claims or plan.stops or plan.switches)
