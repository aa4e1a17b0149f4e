"""The smallest changes that would let a waiting gang start, each decided before it is told."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import attrs

from gpusched.advice.cluster_proposals import ClusterProposals
from gpusched.advice.contradiction import Contradiction, find_contradiction
from gpusched.advice.own_proposals import OwnProposals
from gpusched.advice.proposal import ChangeProposal, Suggestion
from gpusched.advice.search import ChangeSearch
from gpusched.advice.start_answer import StartAnswer, start_answer
from gpusched.advice.trial import TrialCluster
from gpusched.advice.workload import find_workload
from gpusched.api.meta.identity import GangKey
from gpusched.api.meta.resources import Resources
from gpusched.cache.gangs.gang import Gang

SUGGESTIONS_MAX: Final = 6
_CONFIRMATIONS_MAX: Final = 40
_CONFIRMATIONS_LEAST: Final = 20
_CONFIRMED_GANGS: Final = 4_000
"""An answer costs so many looks at gangs that wait: each confirmation looks at all of them."""
_SINGLE_ENDS_MAX: Final = 24
"""Running gangs of which it is tried whether the end of one alone helps."""
_NODES_MAX: Final = 1_000


@attrs.frozen(kw_only=True)
class Advice:
    """What would help one gang.

    Attributes:
        gang: that was asked about.
        as_of: the moment of the cluster, seconds since the Unix epoch.
        unchanged: its start if nothing is changed.
        contradiction: why it never starts; None where it may.
        suggestions: the cheapest first; none contains another.
        decisions: sessions that were run for the answer.
    """

    gang: GangKey
    as_of: float
    unchanged: StartAnswer
    contradiction: Contradiction | None
    suggestions: tuple[Suggestion, ...]
    decisions: int


def advise_gang(trial: TrialCluster, gang: Gang) -> Advice:
    """Search for changes that let a gang start.

    Args:
        trial: the cluster, which is left as it was.
        gang: that waits.
    """
    unchanged = _start_unchanged(trial, gang.key)
    if unchanged.starts:
        return _advice(trial, gang, unchanged, None, ())
    contradiction = find_contradiction(trial, gang)
    suggestions = _Advisor(trial, gang).suggestions()
    return _advice(trial, gang, unchanged, contradiction, suggestions)


def _start_unchanged(trial: TrialCluster, key: GangKey) -> StartAnswer:
    """When the gang starts if nothing is changed, as the next session of the daemon says it."""
    return start_answer(trial.decide(), key)


def _advice(
    trial: TrialCluster,
    gang: Gang,
    unchanged: StartAnswer,
    contradiction: Contradiction | None,
    suggestions: Sequence[Suggestion],
) -> Advice:
    chosen = sorted(suggestions, key=lambda each: each.rank)[:SUGGESTIONS_MAX]
    return Advice(
        gang=gang.key,
        as_of=trial.now,
        unchanged=unchanged,
        contradiction=contradiction,
        suggestions=tuple(chosen),
        decisions=trial.decisions,
    )


class _Advisor:
    """Tries the families of changes one after the other."""

    def __init__(self, trial: TrialCluster, gang: Gang) -> None:
        snapshot = trial.take_snapshot()
        self._trial = trial
        self._gang = gang
        self._own = OwnProposals(trial, gang, find_workload(trial, gang), snapshot)
        self._around = ClusterProposals(trial, gang, snapshot)
        affordable = _CONFIRMED_GANGS // (len(self._around.waiting()) + 1)
        confirmations = max(_CONFIRMATIONS_LEAST, min(_CONFIRMATIONS_MAX, affordable))
        self._search = ChangeSearch(trial, gang.key, confirmations=confirmations)

    def suggestions(self) -> list[Suggestion]:
        """One of each family that helps, and two queues."""
        found = [
            self._first(self._own.other_levels()),
            self._first(self._own.other_node_labels()),
            self._first(self._own.other_queues()),
            self._fewer_members(),
            *self._ends(),
            self._first(self._own.preemptible()),
            self._priority(),
            self._quota(),
            self._nodes(),
        ]
        helpful = [each for each in found if each is not None]
        return [each for each in helpful if not _contains_another(each, helpful)]

    def _first(self, proposals: Iterable[ChangeProposal]) -> Suggestion | None:
        return next(filter(None, map(self._search.suggested, proposals)), None)

    def _fewer_members(self) -> Suggestion | None:
        if not self._own.may_have_fewer_members:
            return None
        most = self._gang.min_member - max(1, self._gang.ready_members + 1)
        if most < 1:
            return None
        return self._search.smallest(self._own.fewer_members, most=most)

    def _priority(self) -> Suggestion | None:
        classes = self._own.higher_classes()
        if not classes or not self._search.starts_alone(classes[-1], evict=True):
            return None
        return self._search.smallest(lambda size: classes[size - 1], most=len(classes), evict=True)

    def _nodes(self) -> Suggestion | None:
        others = sum(each.members_at_start for each in self._around.waiting())
        most = min(_NODES_MAX, max(1, self._gang.members_at_start) + others)
        best: Suggestion | None = None
        for shape in self._around.node_shapes():
            found = self._search.smallest(
                lambda count, shape=shape: self._around.more_nodes(shape, count),  # type: ignore[misc]
                most=most,
            )
            if found is not None and (best is None or found.proposal.size < best.proposal.size):
                best = found
        return best

    # -- queues ------------------------------------------------------------------------------
    def _quota(self) -> Suggestion | None:
        """Limits on its path that refuse it, raised no further than they must be."""
        needed = self._gang.pending_requests
        limited = {
            node.queue.name: {"capability": _raised(node.queue.capability, node.allocated, needed)}
            for node in self._around.queues_above()
            if _raised(node.queue.capability, node.allocated, needed)
        }
        found = self._smallest_raise(limited, evict=False)
        if found is not None:
            return found
        due = {
            node.queue.name: {"deserved": _raised(node.queue.deserved, node.allocated, needed)}
            for node in self._around.queues_above()
            if _raised(node.queue.deserved, node.allocated, needed)
        }
        return self._smallest_raise(due, evict=True)

    def _smallest_raise(
        self, fields: dict[str, dict[str, Resources]], *, evict: bool
    ) -> Suggestion | None:
        if not fields:
            return None
        starts = self._search.starts_alone
        if not starts(self._around.raised_limits(fields), evict=evict):
            return None
        for name in sorted(fields):
            fewer = {other: amounts for other, amounts in fields.items() if other != name}
            if fewer and starts(self._around.raised_limits(fewer), evict=evict):
                fields = fewer
        return self._search.confirmed(self._around.raised_limits(fields))

    # -- others ------------------------------------------------------------------------------
    def _ends(self) -> Iterator[Suggestion | None]:
        """The gangs whose ends it waits for, and whether they could be evicted instead."""
        waits_for = self._awaited()
        if not waits_for:
            return
        found = self._search.confirmed(self._around.ended(waits_for))
        yield found if found is not None else self._first_ends()
        for permission in (
            self._around.made_preemptible(waits_for),
            self._around.reclaimable_queues(),
        ):
            if permission is not None:
                yield self._search.suggested(permission, evict=True)

    def _first_ends(self) -> Suggestion | None:
        """So many running gangs, those that end first, that it starts although others take room first."""
        running = self._around.running()
        return self._search.smallest(
            lambda count: self._around.ended(running[:count]), most=len(running)
        )

    def _awaited(self) -> list[Gang]:
        """The fewest running gangs, those that end first, whose ends let it start; empty for none."""
        running = self._around.running()
        starts, ended = self._search.starts_alone, self._around.ended
        if not running or not starts(ended(running)):
            return []
        low, high = 0, len(running)
        while high - low > 1:
            middle = (low + high) // 2
            if starts(ended(running[:middle])):
                high = middle
            else:
                low = middle
        needed = self._on_its_nodes(running[:high])
        for each in list(needed):
            fewer = [other for other in needed if other is not each]
            if len(needed) <= _SINGLE_ENDS_MAX and fewer and starts(ended(fewer)):
                needed = fewer
        if len(needed) > 1 and not needed[-1].expected_end:
            needed = self._single_end(running) or needed
        return needed

    def _on_its_nodes(self, gangs: list[Gang]) -> list[Gang]:
        """Those of the gangs that hold nodes which it would get if all of them had ended."""
        with self._trial.changed(self._around.ended(gangs).edits):
            decision = self._trial.decide(alone=self._gang.key, evict=False)
        nodes = {name for name, _ in start_answer(decision, self._gang.key).nodes}
        there = [each for each in gangs if any(member.node in nodes for member in each.placed)]
        return there if there and self._search.starts_alone(self._around.ended(there)) else gangs

    def _single_end(self, running: list[Gang]) -> list[Gang]:
        """One gang whose end alone is enough, where nothing tells which ends first."""
        largest = sorted(running, key=lambda each: (-len(each.placed), each.key))
        for each in largest[:_SINGLE_ENDS_MAX]:
            if self._search.starts_alone(self._around.ended([each])):
                return [each]
        return []


def _raised(limits: Resources, allocated: Resources, needed: Resources) -> Resources:
    """Those limits that are too low for what is held and needed, as they would have to be."""
    held = allocated.plus(needed)
    return Resources.of(
        {
            name: held.get(name)
            for name, amount in limits.items
            if needed.get(name) and held.get(name) > amount
        }
    )


def _contains_another(one: Suggestion, found: Sequence[Suggestion]) -> bool:
    """Whether a suggestion asks for all that another one asks for, and more."""
    mine = {(edit.plural, edit.key): edit.becomes for edit in one.proposal.edits}
    for other in found:
        if other is one:
            continue
        theirs = {(edit.plural, edit.key): edit.becomes for edit in other.proposal.edits}
        if len(theirs) < len(mine) and all(
            name in mine and mine[name] == becomes for name, becomes in theirs.items()
        ):
            return True
    return False
