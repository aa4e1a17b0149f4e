"""Finds the objects for which a session raises, so that it can be held without them.

First the objects that the stack of the exception names, then, where that does not help, by halves. Where no
object is to blame the session is made plainer, step by step. The number of attempts is bounded,
and their order follows from the snapshot alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import attrs

from gpusched.base import limits
from gpusched.base.classes import frozen
from gpusched.cache.gangs.gang import Gang
from gpusched.cache.snapshot import Snapshot
from gpusched.session.containment.attempt import (
    OPTIONAL_STAGES,
    SKIPPABLE_STAGES,
    AttemptResult,
    AttemptSetting,
    attempt_session,
)
from gpusched.session.containment.set_aside import EVICTING_ACTIONS, Containment, SessionMode
from gpusched.session.containment.suspects import (
    SessionFault,
    Suspect,
    SuspectKind,
    budget_suspect,
    gang_suspect,
    node_suspect,
    pod_suspect,
    queue_suspect,
    topology_suspect,
)

_SAME_FAULTS: Final = 2
"""Faults of one kind with different objects, after which it may not be the objects."""
_COMMON_WIDE: Final = 4
"""So many faults of one kind must have a queue or topology in common before that is blamed."""
_PROBED_GANGS: Final = 2
"""Gangs not named so far that are tried one by one to find out whether it is the objects."""
_READMITTED_MAX: Final = 8
"""Suspects that are let in again, one by one, to see whether they were to blame."""
_STEP_TRIES: Final = 6
"""Attempts that each step to a plainer session is worth, however many were made before."""


@frozen(kw_only=True)
class CulpritSearchResult:
    """How a session could be held.

    Attributes:
        decided: what came of it; None when nothing could be decided in this mode.
        culprits: objects without which it had to be held, and the fault of each.
        mode: how plain it had to be.
        pardoned: known objects that are not to blame: it fails for any object.
        last: fault for which it had to be plainer, or for which it could not be held.
    """

    decided: AttemptResult | None
    culprits: dict[Suspect, SessionFault]
    mode: SessionMode
    last: SessionFault | None
    pardoned: frozenset[Suspect] = frozenset()


class CulpritSearch:
    """One search. ``run`` may be called once.

    Args:
        snapshot: of this moment.
        known: objects that are left out already, and for which fault.
        setting: of the decision.
        containment: has the caches of sessions without some nodes.
        mode: how plain the session begins.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        known: Mapping[Suspect, SessionFault],
        setting: AttemptSetting,
        *,
        containment: Containment,
        mode: SessionMode,
    ) -> None:
        self._snapshot = snapshot
        self._known = dict(known)
        self._setting = setting
        self._containment = containment
        self._begin = self._mode = mode
        self._culprits: dict[Suspect, SessionFault] = {}
        self._alike: dict[tuple[str, str, str], list[SessionFault]] = {}
        self._cleared: set[Suspect] = set()
        self._asked: set[tuple[str, str, str]] = set()
        self._pardoned: dict[Suspect, SessionFault] = {}
        self._unsure = False
        """Whether no object was blamed only because there was no other gang to try."""
        self._trusting = False
        """Whether the objects that the stack names are taken to be to blame."""
        self.left = self._budget()
        """Attempts that may still be made."""

    def run(self, first: SessionFault) -> CulpritSearchResult:
        """Hold the session, with as little left out as it takes.

        Args:
            first: what the session raised as it was to be held.
        """
        found = self._degrade_stepwise(first)
        if found.decided is None and self._unsure:
            self._trusting, self._mode = True, self._begin
            self._known.update(self._pardoned)
            self._pardoned.clear()
            self._culprits.clear()
            self._forget_all()
            self.left = self._budget()
            found = self._degrade_stepwise(first)
        return found

    def _budget(self) -> int:
        snapshot = self._snapshot
        size = len(snapshot.gangs) + len(snapshot.placed_gangs) + len(snapshot.nodes)
        most = limits.CONTAIN_WORK_MAX // max(1, size)
        return min(limits.CONTAIN_TRIES_MAX, max(limits.CONTAIN_TRIES_MIN, most))

    def _degrade_stepwise(self, first: SessionFault) -> CulpritSearchResult:
        """Step by step plainer, until the session can be held."""
        last: SessionFault | None = None
        outcome: AttemptResult | SessionFault = first
        while isinstance(outcome, SessionFault):
            if self.left <= 0 or not self._set_gang_aside(outcome):
                last = outcome
                plainer = next_reduced_mode(self._mode, outcome.stage)
                if plainer is None:
                    return CulpritSearchResult(
                        decided=None, culprits={}, mode=self._mode, last=outcome
                    )
                self._mode = plainer
                self._clear_suspects(outcome.signature)
                self._forget_all()
                self.left = max(self.left, _STEP_TRIES)
            outcome = self._try_without(self._culprits)
        outcome = self._with_evictions_again(self._readmit_innocent(outcome), last)
        return CulpritSearchResult(
            decided=outcome,
            culprits=self._culprits,
            mode=self._mode,
            last=last,
            pardoned=frozenset(self._pardoned),
        )

    def _with_evictions_again(
        self, outcome: AttemptResult, last: SessionFault | None
    ) -> AttemptResult:
        """With evictions after all, where what was given up after them was to blame."""
        if (
            self._mode.solver
            or self._mode.evictions
            or last is None
            or last.stage in EVICTING_ACTIONS
        ):
            return outcome
        plain, self._mode = self._mode, attrs.evolve(self._mode, evictions=True)
        again = self._try_without(self._culprits)
        if isinstance(again, AttemptResult):
            return again
        self._mode = plain
        return outcome

    def _try_without(self, culprits: Iterable[Suspect]) -> AttemptResult | SessionFault:
        self.left -= 1
        aside = frozenset({*self._known, *culprits})
        session_cache = self._containment.session_cache(self._setting.session_cache, aside)
        setting = attrs.evolve(self._setting, session_cache=session_cache)
        return attempt_session(self._snapshot, aside, setting, mode=self._mode)

    # -- blame -------------------------------------------------------------------------------
    def _set_gang_aside(self, fault: SessionFault) -> bool:
        """Add an object to the culprits; False when no object is to blame."""
        signature = fault.signature
        if signature not in self._alike:
            known = self._known.values()
            self._alike[signature] = [each for each in known if each.signature == signature]
        alike = self._alike[signature]
        alike.append(fault)
        common = self._suspect_in_every_fault(alike)
        if common is not None:
            # The object in all faults is rather to blame than objects in some of them.
            self._cleared.add(common)
            self._clear_suspects(signature)
            self._culprits[common] = fault
            return True
        if len(alike) >= _SAME_FAULTS and signature not in self._asked and not self._trusting:
            self._asked.add(signature)
            # A stage that only improves the plan is left out first.
            if fault.stage in OPTIONAL_STAGES or self._fails_for_any_gang(fault):
                self._clear_known_suspects(signature)
                return False
        named = next((each for each in fault.suspects if each not in self._culprits), None)
        if named is None and fault.stage in SKIPPABLE_STAGES:
            return False
        if named is None or len(alike) > limits.CONTAIN_TRIES_MAX // 2:
            named = self._bisect_suspects()
        if named is None:
            return False
        self._culprits[named] = fault
        return True

    def _suspect_in_every_fault(self, alike: Sequence[SessionFault]) -> Suspect | None:
        """The object in each of several faults of one kind that is not cleared yet."""
        if len(alike) < 2:
            return None
        wide = len(alike) > _COMMON_WIDE
        for each in alike[-1].suspects:
            if each in self._culprits or each in self._cleared:
                continue
            if (
                each.what in (SuspectKind.QUEUE, SuspectKind.TOPOLOGY, SuspectKind.RESERVATION)
                and not wide
            ):
                continue  # many gangs have these in common
            if all(each in fault.suspects for fault in alike):
                return each
        return None

    def _clear_suspects(self, signature: tuple[str, str, str]) -> None:
        """The object blamed for a defect was not to blame after all."""
        for suspect, fault in list(self._culprits.items()):
            if fault.signature == signature:
                del self._culprits[suspect]

    def _clear_known_suspects(self, signature: tuple[str, str, str]) -> None:
        """Clear objects that were blamed for it in earlier sessions, too."""
        for suspect, fault in list(self._known.items()):
            if fault.signature == signature:
                del self._known[suspect]
                self._pardoned[suspect] = fault

    def _forget_all(self) -> None:
        self._alike.clear()
        self._asked.clear()
        self._cleared.clear()

    def _fails_for_any_gang(self, fault: SessionFault) -> bool:
        """Whether it fails for gangs that no fault has named so far, tried one by one, as well.

        Without any such gang the answer is yes.
        """
        seen = {suspect for each in self._alike[fault.signature] for suspect in each.suspects[:1]}
        seen |= self._culprits.keys() | self._known.keys()
        waiting = [gang for gang in self._snapshot.gangs if gang.missing_members and gang.pending]
        blamed = [gang for gang in waiting if gang_suspect(gang.key) in seen]
        others = [gang for gang in waiting if gang_suspect(gang.key) not in seen]
        if not others:
            self._unsure = True
            return True
        others.sort(key=lambda gang: (sum(_similarity(gang, each) for each in blamed), gang.key))
        every = [gang_suspect(gang.key) for gang in self._snapshot.gangs]
        for gang in others[:_PROBED_GANGS]:
            rest = {each for each in every if each.key != gang.key}
            outcome = self._try_without({*self._culprits, *rest})
            if isinstance(outcome, AttemptResult) or outcome.signature != fault.signature:
                return False
        return True

    # -- by halves ---------------------------------------------------------------------------
    def _bisect_suspects(self) -> Suspect | None:
        """The last object of the shortest row of objects with which it fails."""
        for row in self._suspect_rows():
            row = [each for each in row if each not in self._culprits and each not in self._known]  # noqa: PLW2901
            if not row or self.left <= 0:
                continue
            if not isinstance(self._try_without({*self._culprits, *row}), AttemptResult):
                continue  # it fails without all of them
            low, high = 0, len(row)
            while high - low > 1 and self.left > 0:
                middle = (low + high) // 2
                good = isinstance(
                    self._try_without({*self._culprits, *row[middle:]}), AttemptResult
                )
                low, high = (middle, high) if good else (low, middle)
            found = row[low] if high - low == 1 else None
            return None if found is None or self._fails_only_with_others(found) else found
        return None

    def _fails_only_with_others(self, suspect: Suspect) -> bool:
        """Whether a waiting gang fails with others only, and so is not to blame for it."""
        every = {gang_suspect(gang.key) for gang in self._snapshot.gangs if gang.missing_members}
        if suspect not in every or len(every) == 1:
            return False
        others = every - {suspect}
        return isinstance(self._try_without({*self._culprits, *others}), AttemptResult)

    def _suspect_rows(self) -> Iterable[list[Suspect]]:
        snapshot = self._snapshot
        yield [gang_suspect(gang.key) for gang in snapshot.gangs]
        yield sorted(
            gang_suspect(key) for key in {*snapshot.placed_gangs, *(g.key for g in snapshot.gangs)}
        )
        yield [Suspect(SuspectKind.MOVE, key) for key, _ in snapshot.move_records]
        yield sorted({pod_suspect(pod) for pods in snapshot.pods_by_node.pods for pod in pods})
        tree = snapshot.queues.queues
        yield [
            queue_suspect(name)
            for name in sorted(tree, key=lambda name: (len(tree[name].path), name))
        ]
        yield [topology_suspect(each.name) for each in snapshot.topologies]
        yield [budget_suspect(each) for each in snapshot.budgets]
        yield [node_suspect(node.name) for node in snapshot.nodes.nodes]

    # -- pardon ------------------------------------------------------------------------------
    def _readmit_innocent(self, outcome: AttemptResult) -> AttemptResult:
        """Let in again objects that were not to blame: a single suspect was, as it went well without."""
        if len(self._culprits) < 2:
            return outcome
        for suspect in list(self._culprits)[:_READMITTED_MAX]:
            if self.left <= 0 or len(self._culprits) < 2:
                break
            again = self._try_without({each for each in self._culprits if each != suspect})
            if isinstance(again, AttemptResult):
                del self._culprits[suspect]
                outcome = again
        return outcome


def _similarity(one: Gang, other: Gang) -> int:
    """In how many ways two gangs are alike: those of one author often share a defect."""
    return (
        (one.key.namespace == other.key.namespace)
        + (one.queue == other.queue)
        + (one.min_member == other.min_member)
        + (one.pending_requests == other.pending_requests)
        + (one.created == other.created)
    )


def next_reduced_mode(mode: SessionMode, stage: str) -> SessionMode | None:
    """One step plainer, given where it fails; None when there is none."""
    if stage in {*SKIPPABLE_STAGES, "enqueue"} and stage not in mode.skipped:
        return attrs.evolve(mode, skipped=tuple(sorted({*mode.skipped, stage})))
    if mode.evictions:
        return attrs.evolve(mode, evictions=False)
    if mode.solver and stage not in EVICTING_ACTIONS:
        return attrs.evolve(mode, solver=False)
    return None


def find_open_blocker(
    snapshot: Snapshot, fails: Callable[[frozenset[Suspect]], bool]
) -> Suspect | None:
    """The one object without which a policy can open; None when there is none.

    Args:
        snapshot: of this moment.
        fails: whether it cannot open without these.
    """
    tree = snapshot.queues.queues
    rows: list[list[Suspect]] = [
        [
            queue_suspect(name)
            for name in sorted(tree, key=lambda name: (len(tree[name].path), name))
        ],
        sorted(
            gang_suspect(key) for key in {*snapshot.placed_gangs, *(g.key for g in snapshot.gangs)}
        ),
        [node_suspect(node.name) for node in snapshot.nodes.nodes],
    ]
    for row in rows:
        if not row or fails(frozenset(row)):
            continue
        low, high = 0, len(row)
        while high - low > 1:
            middle = (low + high) // 2
            bad = fails(frozenset(row[middle:]))
            low, high = (low, middle) if bad else (middle, high)
        return row[low]
    return None
