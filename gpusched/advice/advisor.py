"""The smallest changes that would let a waiting gang start, each decided before it is told."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final

import attrs

from gpusched.advice.contradiction import Contradiction, find_contradiction
from gpusched.advice.forbidden_search import ForbiddenSearch
from gpusched.advice.proposals.allowances import AllowanceProposals
from gpusched.advice.proposals.cluster_proposals import ClusterProposals
from gpusched.advice.proposals.forbidden_evictions import EvictionRule, ForbiddenEvictions
from gpusched.advice.proposals.in_the_way import what_is_in_the_way
from gpusched.advice.proposals.own_proposals import OwnProposals
from gpusched.advice.proposals.proposal import ChangeProposal, Family, Suggestion, joined
from gpusched.advice.search import ChangeSearch, Competitors, bisected
from gpusched.advice.start_answer import StartAnswer, start_answer
from gpusched.advice.trial import TrialCluster
from gpusched.advice.workload import find_workload
from gpusched.api.meta.identity import GangKey
from gpusched.api.meta.resources import Resources, total
from gpusched.base.classes import frozen
from gpusched.cache.gangs.gang import Gang
from gpusched.cache.snapshot import Snapshot
from gpusched.engine.objects import Obj

SUGGESTIONS_MAX: Final = 6
DECISIONS_MAX: Final = 1_000
DECISIONS_LEAST: Final = 160
_IN_LONG_LINES_MAX: Final = 240
"""There a decision with all gangs costs a second or more."""
_NODES_DECIDED: Final = 60_000
"""An answer is worth so many decisions on one node, where nobody says another number; see ``ChangeSearch``."""
_SINGLE_ENDS_MAX: Final = 24
"""Running gangs of which it is tried whether the end of one alone helps."""
_NODES_MAX: Final = 1_000
_CONFIRMED_MAX: Final = 2
"""Changes of a family that are tried with those that wait, in a long line."""
_ENOUGH_WHERE_CROWDED: Final = 2
"""Changes of the gang's own demands that are enough where what others may take costs seconds to decide."""
_STEPS_MAX: Final = 64
"""Pods for which a limit is raised beyond what the gang alone needs."""
_RULES_CHANGED: Final = {
    Family.PRIORITY: EvictionRule.PRIORITY,
    Family.QUOTA: EvictionRule.DESERVED,
}
"""What forbids evictions that a change of a family allows."""
_PAIRED_MAX: Final = 4
"""Changes with each of which others are tried, where none helps alone."""


@frozen(kw_only=True)
class Advice:
    """What would help one gang.

    Attributes:
        gang: that was asked about.
        as_of: the moment of the cluster, seconds since the Unix epoch.
        unchanged: its start if nothing is changed.
        contradiction: why it never starts; None where it may.
        suggestions: the cheapest first; none contains another.
        in_the_way: where there is none, what keeps changes from helping, one sentence each.
        decisions: sessions that were run for the answer.
        is_cut: whether some changes were not tried, as the budget of decisions was spent.
    """

    gang: GangKey
    as_of: float
    unchanged: StartAnswer
    contradiction: Contradiction | None
    suggestions: tuple[Suggestion, ...]
    in_the_way: tuple[str, ...] = ()
    decisions: int
    is_cut: bool = False


def advise_gang(trial: TrialCluster, gang: Gang, *, budget: int | None = None) -> Advice:
    """Search for changes that let a gang start.

    Args:
        trial: the cluster, which is left as it was.
        gang: that waits.
        budget: decisions at most, one about many gangs counting as several; None for fewer the more nodes
            there are.
    """
    before = trial.decisions
    line = trial.waiting_line()
    snapshot = trial.take_snapshot()
    competitors = Competitors(snapshot, line, gang.key)
    unchanged = start_answer(line.decision, gang.key)
    contradiction = None
    suggestions: list[Suggestion] = []
    in_the_way: tuple[str, ...] = ()
    is_cut = False
    if not unchanged.starts:
        if budget is None:
            affordable = _NODES_DECIDED // max(1, len(snapshot.nodes))
            most = DECISIONS_MAX if line.is_whole else _IN_LONG_LINES_MAX
            budget = max(DECISIONS_LEAST, min(most, affordable))
        search = ChangeSearch(trial, gang.key, competitors, budget=budget)
        advisor = _Advisor(trial, gang, snapshot, search)
        suggestions = advisor.suggestions()
        if not advisor.waits_for_others:
            contradiction = find_contradiction(trial, gang)
        is_cut = search.is_cut
        if not suggestions and contradiction is None:
            turns = [turn.gang for turn in line.decision.order.turns]
            in_the_way = tuple(what_is_in_the_way(gang, snapshot, turns, search.taken.values()))
    return Advice(
        gang=gang.key,
        as_of=trial.now,
        unchanged=unchanged,
        contradiction=contradiction,
        suggestions=_cheapest(suggestions),
        in_the_way=in_the_way,
        decisions=trial.decisions - before,
        is_cut=is_cut,
    )


class _Advisor:
    """Tries the families of changes one after the other."""

    def __init__(
        self, trial: TrialCluster, gang: Gang, snapshot: Snapshot, search: ChangeSearch
    ) -> None:
        self._trial = trial
        self._gang = gang
        self._own = OwnProposals(trial, gang, find_workload(trial, gang), snapshot)
        self._around = ClusterProposals(trial, gang, snapshot)
        self._allowances = AllowanceProposals(trial, gang, snapshot)
        self._barriers = ForbiddenEvictions(trial, gang, snapshot, self._own)
        self._search = search
        self._waits_for: list[Gang] = []
        self.waits_for_others = False
        """Whether it starts once all others have ended, so that it is no contradiction in itself."""

    def suggestions(self) -> list[Suggestion]:
        """One of each family that helps, and two queues."""
        own = [
            self._first(self._own.other_levels()),
            self._first(self._own.other_node_labels()),
            self._first(self._own.tolerated_taints()),
            self._fewer_members(),
            self._first(self._own.preemptible()),
            self._priority(),
        ]
        helpful = self._completed(own)
        search = self._search
        if search.is_crowded and len(helpful) >= _ENOUGH_WHERE_CROWDED:
            search.is_cut = True
            return _without_larger(helpful)
        # What others may take part of is decided with many gangs, most of them for what comes last.
        helpful += self._completed(
            [
                self._first(self._own.other_queues(), confirmed_max=1),
                self._out_of_line(),
                self._ends(),
                self._quota(),
            ]
        )
        if not search.is_exact:
            helpful = helpful or self._pairs()
        if search.may_decide_all():
            forbidden = ForbiddenSearch(self._barriers, search, self._waits_for)
            helpful += forbidden.suggestions({*_rules_of(helpful)})
        if not (search.is_crowded and helpful):
            helpful += filter(None, [self._nodes()])
        if search.is_exact:
            helpful = helpful or self._pairs()
        return _without_larger(helpful)

    def _completed(self, found: Iterable[Suggestion | None]) -> list[Suggestion]:
        """What was found, with what forbids evictions now."""
        return [self._with_forbidden(each) for each in found if each is not None]

    def _pairs(self) -> list[Suggestion]:
        """Two changes at once: one of where it may run or what pays for it, and one more."""
        firsts = [
            *self._barriers.other_orderings(),
            *list(self._own.other_levels())[-1:],
            *list(self._own.other_node_labels())[-1:],
            *list(self._own.tolerated_taints())[-1:],
            *self._own.other_queues(),
        ][:_PAIRED_MAX]
        found = []
        for first in firsts:
            with self._trial.changed(first.edits):
                changed = self._trial.gang(self._gang.key)
                if changed is None:
                    continue
                snapshot = self._trial.take_snapshot()
                beside = _Advisor(self._trial, changed, snapshot, self._search)
                tries = [beside._fewer_members, beside._priority, beside._quota]
                if self._search.is_exact:
                    tries.append(beside._nodes)
                second = next(filter(None, (each() for each in tries)), None)
            if second is not None:
                found.append(attrs.evolve(second, proposal=joined(first, second.proposal)))
                if not self._search.is_exact:
                    break
        return found

    def _first(
        self, proposals: Iterable[ChangeProposal], *, confirmed_max: int = _CONFIRMED_MAX
    ) -> Suggestion | None:
        helping: Iterator[ChangeProposal] = filter(self._search.starts_alone, proposals)
        if not self._search.is_exact:
            likely = filter(self._search.may_start_beside_others, islice(helping, _CONFIRMED_MAX))
            helping = islice(likely, confirmed_max)
        return next(filter(None, map(self._search.confirmed, helping)), None)

    def _out_of_line(self) -> Suggestion | None:
        """Its queue not served in line, where room is free; that others leave then is told as a permission."""
        found = self._first(self._barriers.other_orderings())
        return None if found is None or found.start.evicted else found

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
        if not self._search.may_start_beside_others(classes[-1], evict=True):
            return None  # no lower one is enough then
        return self._search.smallest(lambda size: classes[size - 1], most=len(classes), evict=True)

    def _nodes(self) -> Suggestion | None:
        others = sum(each.members_at_start for each in self._around.waiting())
        most = min(_NODES_MAX, max(1, self._gang.members_at_start) + others)
        ways: list[Callable[[int], ChangeProposal]] = []
        for shape in self._around.node_shapes():
            ways.append(partial(self._around.more_nodes, shape))
            beside = self._around.roomiest_domain(shape)
            if beside is not None:
                ways.append(partial(self._around.more_nodes_beside, beside))
        alone = max(1, self._gang.members_at_start)
        sizes = [
            (least, number)
            for number, way in enumerate(ways)
            if (least := self._search.smallest_alone(way, most=min(most, alone)))
        ]
        best: Suggestion | None = None
        for least, number in sorted(sizes)[: None if self._search.is_exact else _CONFIRMED_MAX]:
            if best is not None and least >= best.proposal.size:
                break  # nothing that comes is smaller
            found = self._search.enough_beside_others(ways[number], least=least, most=most)
            if found is not None and (best is None or found.proposal.size < best.proposal.size):
                best = found
        return best

    # -- queues ------------------------------------------------------------------------------
    def _quota(self) -> Suggestion | None:
        """Limits on its path that refuse it, raised no further than they must be."""
        for field, evict in (("capability", False), ("deserved", True)):
            for needed in self._amounts_needed():
                fields = {
                    node.queue.name: {field: raised}
                    for node in self._around.queues_above()
                    if (raised := _raised(getattr(node.queue, field), node.allocated, needed))
                }
                found = self._smallest_raise(fields, evict=evict)
                if found is not None:
                    return found
        return self._raised_allowances() if self._allowances.refuse else None

    def _raised_allowances(self) -> Suggestion | None:
        """Limits of its user and groups, and used budgets, raised no further than they must be."""
        propose = self._allowances.raised
        for evict in (False, True):
            if self._search.starts_alone(propose(1), evict=evict):
                return self._search.enough_beside_others(
                    propose, least=1, most=_STEPS_MAX, evict=evict
                )
        return None

    def _amounts_needed(self) -> Iterator[Resources]:
        """What its start takes, and what all its pods take."""
        pods = [each.pod_class.charged for each in self._gang.pod_sets for _ in each.pods]
        pods.sort(key=lambda amounts: amounts.items)
        yield total(pods[: self._gang.members_at_start])
        if self._gang.members_at_start < len(pods):
            yield total(pods)

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
        found = self._search.confirmed(self._around.raised_limits(fields), evict=evict)
        if found is not None:
            return found
        # Gangs before it in these queues use what is added: so much more that it is enough for it, too.
        step = total(each.pod_class.charged for each in self._gang.pod_sets[:1])
        return self._search.smallest(
            lambda size: self._around.raised_limits(_with_more(fields, step, size)),
            most=_STEPS_MAX,
            evict=evict,
        )

    # -- others ------------------------------------------------------------------------------
    def _with_forbidden(self, suggestion: Suggestion) -> Suggestion:
        """A suggestion by which others are evicted, with what forbids that now."""
        proposal, start = suggestion.proposal, suggestion.start
        rule = _RULES_CHANGED.get(proposal.family)
        if not start.evicted or rule is None or not self._lifts_rule(proposal):
            return suggestion
        changed = {(edit.plural, edit.key) for edit in proposal.edits}
        evicted = self._barriers.gangs_of(start.evicted)
        forbidden_by = tuple(
            each.named(evicted)
            for each in self._barriers.obstacles
            if each.rule is rule and changed.issuperset(each.targets)
        )
        return attrs.evolve(suggestion, proposal=attrs.evolve(proposal, forbidden_by=forbidden_by))

    def _lifts_rule(self, proposal: ChangeProposal) -> bool:
        """Whether a change is one of what forbids evictions: of a queue's amounts, of what it deserves."""
        if proposal.family is not Family.QUOTA:
            return True
        return any(
            _deserved(edit.becomes) != _deserved(self._trial.objects.get(edit.plural, edit.key))
            for edit in proposal.edits
        )

    def _ends(self) -> Suggestion | None:
        """The gangs whose ends it waits for."""
        waits_for = self._waits_for = self._awaited()
        if not waits_for:
            return None
        found = self._search.confirmed(self._around.ended(waits_for))
        if not self._search.is_exact:
            return found
        return self._first_ends() if found is None else self._fewer_ends(found, waits_for)

    def _first_ends(self) -> Suggestion | None:
        """So many running gangs, those that end first, that it starts although others take room first."""
        running = self._around.running()
        found = self._search.smallest(
            lambda count: self._around.ended(running[:count]), most=len(running)
        )
        return found and self._fewer_ends(found, running[: int(found.proposal.size)])

    def _fewer_ends(self, found: Suggestion, needed: list[Gang]) -> Suggestion:
        """Those of the ends of which none can be left out beside the others that wait.

        Fewer may do than alone, as others that wait may have gangs evicted; and one may be left out only
        once another one is.
        """
        before: list[Gang] = []
        while len(before) != len(needed) > 1:
            before = needed
            for each in before[:_SINGLE_ENDS_MAX]:
                fewer = [other for other in needed if other is not each]
                answer = self._search.confirmed(self._around.ended(fewer)) if fewer else None
                if answer is not None:
                    found, needed = answer, fewer
        return found

    def _awaited(self) -> list[Gang]:
        """The fewest running gangs, those that end first, whose ends let it start; empty for none."""
        running = self._around.running()
        starts, ended = self._search.starts_alone, self._around.ended
        count = (
            bisected(lambda first: starts(ended(running[:first])), low=1, high=len(running))
            if running
            else None
        )
        if count is None:
            return []
        self.waits_for_others = True
        needed = self._on_its_nodes(running[:count])
        for each in list(needed):
            fewer = [other for other in needed if other is not each]
            if len(needed) <= _SINGLE_ENDS_MAX and fewer and starts(ended(fewer)):
                needed = fewer
        if len(needed) > 1 and not needed[-1].expected_end:
            needed = self._single_end(running) or needed
        return needed

    def _on_its_nodes(self, gangs: list[Gang]) -> list[Gang]:
        """Those of the gangs that hold nodes which it would get if all of them had ended."""
        decision = self._search.decided_alone(self._around.ended(gangs))
        if decision is None:
            return gangs
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


def _deserved(queue: Obj | None) -> Any:
    return (queue or {}).get("spec", {}).get("deserved")


def _rules_of(found: Iterable[Suggestion]) -> Iterator[str]:
    """Rules that forbid evictions now by which suggestions would start the gang."""
    return (by.rule for each in found for by in each.proposal.forbidden_by)


def _cheapest(found: Sequence[Suggestion]) -> tuple[Suggestion, ...]:
    """At most a handful, the cheapest first; what forbids evictions has the last place for sure."""
    ranked = sorted(found, key=lambda each: each.rank)
    told, rest = ranked[:SUGGESTIONS_MAX], ranked[SUGGESTIONS_MAX:]
    if rest and not any(each.proposal.forbidden_by for each in told):
        told[-1:] = [each for each in rest if each.proposal.forbidden_by][:1] or told[-1:]
    return tuple(told)


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


def _with_more(
    fields: Mapping[str, Mapping[str, Resources]], step: Resources, steps: int
) -> dict[str, dict[str, Resources]]:
    """Amounts of queues with so many steps more."""
    return {
        name: {
            field: Resources.of(
                {resource: amount + steps * step.get(resource) for resource, amount in wanted.items}
            )
            for field, wanted in amounts.items()
        }
        for name, amounts in fields.items()
    }


def _without_larger(found: Sequence[Suggestion]) -> list[Suggestion]:
    """Suggestions that contain no other one."""
    return [each for each in found if not _contains_another(each, found)]


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
