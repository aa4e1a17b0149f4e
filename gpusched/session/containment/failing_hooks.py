"""Finds the objects for which hooks of shipped policies fail, so that these alone are left out.

A hook that answers for others failed because of the object that it was asked about. Where it was asked
about one gang only, nothing tells the two apart: a gang that could not start anyway is set aside, and the
next one shows whether it was the gang. A hook that fails for a second one without an answer in
between is to blame itself: what its guard answers counts, until there are other gangs to ask about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import attrs

from gpusched.base import limits
from gpusched.base.classes import frozen
from gpusched.cache.snapshot import Snapshot
from gpusched.session.containment.attempt import AttemptResult
from gpusched.session.containment.set_aside import Containment, HookBlame
from gpusched.session.containment.suspects import SessionFault, Suspect, SuspectKind, gang_suspect

_ALTERNATIVES_MAX: Final = 3
"""Other objects of a fault that are tried where the first choice proves nothing."""
_UNPROVEN_MAX: Final = 1
"""Objects in a row for which a hook may fail, with no answer in between, before it is the hook."""
_DECISIVE_HOOKS: Final = frozenset(
    {"queue_order", "queue_turn", "gang_order", "enqueue_check", "quota_check", "gang_ready"}
    | {"pair_filter"}
)
"""Hooks without whose answer a gang does not start, so that leaving it out costs it nothing."""

TryWithout = Callable[[frozenset[Suspect]], AttemptResult | SessionFault]
"""Holds the session without some objects, beside those that are left out already."""


@frozen(kw_only=True)
class HookSearchResult:
    """What is decided, and without which objects.

    Attributes:
        culprits: objects for which hooks failed, each with its fault.
        pardoned: objects left out until now for a hook that is to blame itself.
    """

    decided: AttemptResult
    culprits: dict[Suspect, SessionFault] = attrs.Factory(dict)
    pardoned: frozenset[Suspect] = frozenset()


class HookCulpritSearch:
    """One search; ``run`` may be called once.

    Args:
        snapshot: of this moment.
        memory: which hooks were to blame in earlier sessions.
        attempt: holds the session without some objects.
    """

    def __init__(self, snapshot: Snapshot, memory: Containment, attempt: TryWithout) -> None:
        self._snapshot = snapshot
        self._memory = memory
        self._attempt = attempt
        self._answered: set[str] = set()
        self._given_up: set[str] = set()
        self._found: dict[Suspect, SessionFault] = {}
        size = len(snapshot.gangs) + len(snapshot.placed_gangs) + len(snapshot.nodes)
        most = limits.CONTAIN_WORK_MAX // max(1, size)
        self._left = min(limits.HOOK_SUSPECTS_MAX, max(limits.HOOK_TRIES_MIN, most))

    def run(self, first: AttemptResult) -> HookSearchResult:
        """Decide without the objects for which hooks fail that answer for others.

        Args:
            first: the session with them.
        """
        self._note_hook_faults(first)
        outcome: AttemptResult | None = first
        while outcome is not None and (faults := self._open_faults(outcome)):
            if self._left:
                self._choose_culprits(faults)
            else:
                self._give_up(*faults)
            outcome = self._try_without(self._found) if self._found else first
        proven = frozenset() if outcome is None else outcome.answers
        for place in {fault.place: None for fault in self._found.values()}:
            if outcome is None:
                self._give_up(place)
            elif place not in proven:
                outcome = self._settle_unproven(place) or outcome
        if not self._found or outcome is None:
            return HookSearchResult(decided=first, pardoned=self._give_up_hooks())
        said = tuple(dict.fromkeys((*first.faults, *outcome.faults)))
        return HookSearchResult(
            decided=attrs.evolve(outcome, faults=said),
            culprits=self._found,
            pardoned=self._give_up_hooks(),
        )

    # -- attempts ----------------------------------------------------------------------------
    def _try_without(self, culprits: Iterable[Suspect]) -> AttemptResult | None:
        self._left = max(0, self._left - 1)
        found = self._attempt(frozenset(culprits))
        if isinstance(found, SessionFault):
            return None
        self._note_hook_faults(found)
        return found

    def _note_hook_faults(self, outcome: AttemptResult) -> None:
        self._answered |= outcome.answers
        for place in outcome.answers:
            self._memory.unproven_faults.pop(place, None)

    def _open_faults(self, outcome: AttemptResult) -> dict[str, list[SessionFault]]:
        """Faults of hooks that may be an object's, by the hook's name."""
        by_hook: dict[str, list[SessionFault]] = {}
        for fault in outcome.hooks:
            if fault.place in self._given_up or self._is_blamed(fault.place):
                continue
            by_hook.setdefault(fault.place, []).append(fault)
        return by_hook

    def _is_blamed(self, place: str) -> bool:
        """Whether an earlier session blamed the hook, and no other object is left to ask it about."""
        blame = self._memory.blamed_hooks.get(place)
        if blame is None or self._snapshot.now >= blame.until:
            return False
        return self._failing_gangs() <= blame.gangs

    def _failing_gangs(self) -> frozenset[Suspect]:
        keys = {*self._snapshot.placed_gangs, *(gang.key for gang in self._snapshot.gangs)}
        return frozenset(gang_suspect(key) for key in keys)

    # -- blame -------------------------------------------------------------------------------
    def _choose_culprits(self, faults: Mapping[str, Sequence[SessionFault]]) -> None:
        """Leave out the objects that hooks failed for, or give hooks up that answer for none."""
        for place, same in faults.items():
            chosen = _object_of_all(same) or {fault.suspects[0]: fault for fault in same}
            count = len({*self._culprits_of(place), *chosen})
            most = limits.HOOK_SUSPECTS_MAX if place in self._answered else _UNPROVEN_MAX
            if count > most or chosen.keys() <= self._found.keys():
                self._give_up(place)
            else:
                self._found.update(chosen)

    def _culprits_of(self, place: str) -> list[Suspect]:
        return [suspect for suspect, fault in self._found.items() if fault.place == place]

    def _give_up(self, *places: str) -> None:
        """Take the hooks to be to blame themselves."""
        self._given_up.update(places)
        for place in places:
            for suspect in self._culprits_of(place):
                del self._found[suspect]

    def _settle_unproven(self, place: str) -> AttemptResult | None:
        """Find out about an object without which the hook was asked about nothing else.

        Returns:
            What is decided then, None where that is what was decided already.
        """
        culprits = self._culprits_of(place)
        first = self._found[culprits[0]]
        others = [each for each in first.suspects if each not in self._found]
        rest = {each: fault for each, fault in self._found.items() if fault.place != place}
        for other in others[:_ALTERNATIVES_MAX]:
            outcome = self._try_without({*rest, other}) if self._left else None
            if outcome and place in outcome.answers and not self._open_faults(outcome):
                self._found = {**rest, other: first}
                return outcome
        unproven = self._memory.unproven_faults.setdefault(place, set())
        asked = first.hook in _DECISIVE_HOOKS and culprits[0] in first.asked
        if asked and len(unproven.union(culprits)) <= _UNPROVEN_MAX:
            unproven.update(culprits)
            return None
        self._give_up(place)
        return self._try_without(self._found) if self._found else None

    def _give_up_hooks(self) -> frozenset[Suspect]:
        """Remember the hooks that are given up; the objects that are let in again."""
        until = self._snapshot.now + limits.SET_ASIDE_RETRY_S
        pardoned: set[Suspect] = set()
        for place in sorted(self._given_up):
            self._memory.blamed_hooks[place] = HookBlame(until, self._failing_gangs())
            pardoned |= self._memory.unproven_faults.pop(place, set())
        return frozenset(pardoned)


def _object_of_all(same: Sequence[SessionFault]) -> dict[Suspect, SessionFault]:
    """The gang in all faults of a hook, where they are not all about the same objects."""
    if len({fault.suspects for fault in same}) < 2:
        return {}
    for each in same[0].suspects:
        if each.what is SuspectKind.GANG and all(each in fault.suspects for fault in same):
            return {each: same[0]}
    return {}
