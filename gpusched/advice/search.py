"""Finding the smallest change of a family that lets one gang start."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final

import attrs
import numpy as np

from gpusched.advice.proposals.proposal import OWN_FAMILIES, ChangeProposal, Family, Suggestion
from gpusched.advice.start_answer import (
    StartAnswer,
    StartKind,
    acting_gangs,
    start_answer,
    starting_gangs,
)
from gpusched.advice.trial import DecidedLine, ObjectEdit, TrialCluster
from gpusched.api.meta.identity import GangKey
from gpusched.arrays.columns import how_many_fit, pod_class_vector
from gpusched.arrays.node_usage import NodeUsage
from gpusched.cache.gangs.gang import Gang
from gpusched.cache.snapshot import Snapshot
from gpusched.session.decide import Decision
from gpusched.session.framework.reasons import Reason
from gpusched.topology.levels import topology_levels

_GANGS_A_DECISION: Final = 4
"""Gangs that are looked at in the time of a decision about one."""
_LARGER_IN_LONG_LINES: Final = 2
"""How much larger a change may be than the gang alone needs: what serves all before it helps it little."""
_VICTIMS_FREE: Final = 5_000
"""Gangs that are looked at in all domains in the time of a decision."""
_FREES_QUOTA: Final = frozenset({Family.QUOTA, Family.END_OF_OTHERS, Family.PERMISSION})
_LETS_OTHERS_EVICT: Final = frozenset({Family.QUOTA, Family.PERMISSION})
"""Changes by which other gangs may have others evicted as well, also those that got nothing before."""
_SHARED_ROOM: Final = frozenset({Family.QUOTA, Family.NODES})
"""Changes of which others may need a part, so that it is said for whom they are enough."""


class Competitors:
    """Gangs that wait of which each could take what a change gives before one gang has its turn.

    In a short line these are all. In a long one, gangs are left out that would be refused in any case,
    since a gang that is refused takes nothing from those after it: those whose turn comes later, and
    those before it for which there is too little room, or too little quota, after the change as well.

    Args:
        snapshot: of the unchanged cluster.
        line: the gangs that wait in it.
        gang: that is advised.
    """

    def __init__(self, snapshot: Snapshot, line: DecidedLine, gang: GangKey) -> None:
        waiting = [each for each in snapshot.gangs if each.pod_sets and each.members_at_start]
        self.is_whole = line.is_whole
        turns = [turn.gang for turn in line.decision.order.turns]
        later = set(turns[turns.index(gang) + 1 :]) if gang in turns else set()
        self.starting = starting_gangs(line.decision)
        """Gangs that start without a change."""
        self.acting = acting_gangs(line.decision) | {gang}
        """Gangs that get something without a change, and the advised one."""
        self.evict = line.is_whole or any(made.stops for made in line.decision.plan.preemptions)
        """Whether decisions about free room let others evict: where one does, it takes quota or room."""
        self.eviction_price = _domains(snapshot, gang) * len(snapshot.placed_gangs) // _VICTIMS_FREE
        """Decisions that one costs more in which victims are sought: in each domain among all that run."""
        self.count = len(snapshot.gangs)
        self._before = [
            each for each in waiting if each.key not in later and each.key not in self.acting
        ]
        self._over_quota = {
            status.gang
            for status in line.decision.plan.gangs
            if status.scheduled.reason == Reason.WAITING_FOR_QUOTA
        }

    def competing(self, proposal: ChangeProposal, changed: Snapshot) -> set[GangKey]:
        """Gangs of a long line to decide a change with, the advised one among them.

        Args:
            proposal: the change.
            changed: the cluster with it.
        """
        room = _FreeRoom(changed)
        frees_quota = proposal.family in _FREES_QUOTA
        could_start = {
            each.key
            for each in self._before
            if (frees_quota or each.key not in self._over_quota) and room.could_hold(each)
        }
        return self.acting | could_start


def _domains(snapshot: Snapshot, key: GangKey) -> int:
    """Domains of the level that a gang requires; one for none."""
    gang = next((each for each in snapshot.gangs if each.key == key), None)
    required = gang.topology.required if gang is not None else ""
    levels = topology_levels(snapshot.nodes.nodes, snapshot.topologies) if required else ()
    return next(
        (int(each.domain.max(initial=0)) + 1 for each in levels if each.name == required), 1
    )


class _FreeRoom:
    """Room for pods on nodes as they are, counted without rules between pods and levels."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._nodes = snapshot.nodes
        self._usage = NodeUsage(snapshot.nodes)
        self._usage.show_usage(later=True)
        self._counts: dict[str, int] = {}

    def could_hold(self, gang: Gang) -> bool:
        """Whether as many pods as it starts with have room one by one."""
        found = 0
        for pod_set in gang.pod_sets:
            count = self._counts.get(pod_set.pod_class.digest)
            if count is None:
                ask = pod_class_vector(pod_set.pod_class, self._nodes.columns)
                if ask.missing:
                    return True
                fits = how_many_fit(
                    self._usage.free_amounts(slice(None), ask.columns), ask.amounts
                ).clip(0)
                for label, value in pod_set.pod_class.node_selector:
                    fits = fits * np.fromiter(
                        (node.labels.get(label) == value for node in self._nodes.nodes), dtype=bool
                    )
                count = self._counts[pod_set.pod_class.digest] = int(fits.sum())
            found += min(count, len(pod_set.pods))
        return found >= gang.members_at_start


class ChangeSearch:
    """Decides changed clusters for one gang.

    A quick trial leaves out all other gangs that wait, and costs milliseconds: where the gang does not
    start there, others that compete for the room would not help. What passes is confirmed with
    those that compete.

    Args:
        trial: the cluster.
        gang: that waits.
        competitors: others that wait.
        budget: decisions at most; one with many gangs counts as several.
    """

    def __init__(
        self, trial: TrialCluster, gang: GangKey, competitors: Competitors, *, budget: int
    ) -> None:
        self._trial = trial
        self.gang = gang
        self._competitors = competitors
        self._left = budget
        self._known: dict[Hashable, list[tuple[list[ObjectEdit], Decision]]] = {}
        """What was decided about a change: several searches ask about the same one."""
        self.is_cut = False
        """Whether something was not tried, as the budget was spent."""

    @property
    def is_exact(self) -> bool:
        """Whether the very smallest is looked for: in a long line each try costs too much."""
        return self._competitors.is_whole

    def starts_alone(self, proposal: ChangeProposal, *, evict: bool = False) -> bool:
        """Whether the gang starts by a change if no other gang waits."""
        return self.decided_alone(proposal, evict=evict) is not None

    def decided_alone(self, proposal: ChangeProposal, *, evict: bool = False) -> Decision | None:
        """The decision by which the gang starts if no other gang waits; None where it does not."""
        decision = self._decided(proposal, {self.gang}, evict=evict or self.is_exact)
        if decision is None or not start_answer(decision, self.gang).starts:
            return None
        return decision

    def _decided(
        self, proposal: ChangeProposal, among: set[GangKey] | None, *, evict: bool
    ) -> Decision | None:
        """A session on the changed cluster; None where the budget is spent."""
        key = (proposal.family, proposal.message, evict, among and frozenset(among))
        known = self._known.setdefault(key, [])
        edits = [_told_of(edit) for edit in (*self._trial.standing, *proposal.edits)]
        for others, decision in known:
            if others == edits:
                return decision
        price = max(1, self._gangs_in(among) // _GANGS_A_DECISION)
        if not self._may_spend(price + self._competitors.eviction_price * evict):
            return None
        with self._trial.changed(proposal.edits):
            decision = self._trial.decide(among=among, evict=evict)
        known.append((edits, decision))
        return decision

    def _gangs_in(self, among: set[GangKey] | None) -> int:
        return self._competitors.count if among is None else len(among)

    def confirmed(self, proposal: ChangeProposal, *, evict: bool = False) -> Suggestion | None:
        """The proposal with its start, decided as the daemon does; None where it does not start it.

        Args:
            proposal: the change.
            evict: whether it starts by evictions alone.
        """
        among = self._among(proposal, evict=evict)
        decision = self._decided(proposal, among, evict=evict or self._competitors.evict)
        if decision is None:
            return None
        answer = start_answer(decision, self.gang)
        if not answer.starts or not self._is_kept(proposal, decision, answer, evict=evict):
            return None
        others = starting_gangs(decision) - self._competitors.starting - {self.gang}
        if others and proposal.family in _SHARED_ROOM:
            first = f"{len(others)} gang{'s' if len(others) > 1 else ''}"
            message = f"{proposal.message}, which {first} before it would use as well"
            proposal = attrs.evolve(proposal, message=message)
        return Suggestion(proposal=proposal, start=answer)

    def _is_kept(
        self, proposal: ChangeProposal, decision: Decision, answer: StartAnswer, *, evict: bool
    ) -> bool:
        """Whether the gang gets what a decision has for it, where its start takes further sessions.

        Played forward, they would cost seconds each in a long line. There, a Job is only told to start
        where no other gang has anyone evicted before its pods are made, and what is to start by free
        room may not need evictions after all.
        """
        by_evictions = answer.kind is StartKind.AFTER_EVICTIONS
        if self.is_exact:
            return not (by_evictions or not answer.nodes) or self._lasts(proposal)
        if by_evictions:
            return evict
        return bool(answer.nodes) or not any(
            made.stops and made.gang != self.gang for made in decision.plan.preemptions
        )

    def _among(self, proposal: ChangeProposal, *, evict: bool) -> set[GangKey] | None:
        """Gangs to decide a change with; None for all."""
        if self._competitors.is_whole or (evict and proposal.family in _LETS_OTHERS_EVICT):
            return None
        if proposal.family in OWN_FAMILIES:
            return self._competitors.acting
        with self._trial.changed(proposal.edits):
            return self._competitors.competing(proposal, self._trial.take_snapshot())

    def _lasts(self, proposal: ChangeProposal) -> bool:
        with self._trial.changed(proposal.edits):
            return self._trial.starts_when_played(self.gang)

    def suggested(self, proposal: ChangeProposal, *, evict: bool = False) -> Suggestion | None:
        """The proposal, tried alone and then with others; None where it does not help."""
        if not self.starts_alone(proposal, evict=evict):
            return None
        return self.confirmed(proposal, evict=evict)

    def smallest(
        self,
        propose: Callable[[int], ChangeProposal],
        *,
        most: int,
        evict: bool = False,
    ) -> Suggestion | None:
        """The smallest of a family of proposals whose steps each contain the one before.

        Args:
            propose: the proposal of a size, from 1.
            most: the largest size.
            evict: whether others may be evicted.
        """
        least = self.smallest_alone(propose, most=most, evict=evict)
        if least is None:
            return None
        return self.enough_beside_others(propose, least=least, most=most, evict=evict)

    def smallest_alone(
        self, propose: Callable[[int], ChangeProposal], *, most: int, evict: bool = False
    ) -> int | None:
        """The smallest size by which the gang starts if no other waits; None for none."""
        return bisected(
            lambda size: self.starts_alone(propose(size), evict=evict), low=1, high=most
        )

    def enough_beside_others(
        self,
        propose: Callable[[int], ChangeProposal],
        *,
        least: int,
        most: int,
        evict: bool = False,
    ) -> Suggestion | None:
        """The smallest by which it starts although gangs before it take part of what the change frees.

        Args:
            propose: the proposal of a size.
            least: the smallest that is enough for it alone.
            most: the largest size.
            evict: whether others may be evicted.
        """
        found = self.confirmed(propose(least), evict=evict)
        if found is not None or least >= most:
            return found
        if not self.is_exact:
            most = min(most, least * _LARGER_IN_LONG_LINES)
        enough, size = None, least
        while enough is None and size < most and not self.is_cut:
            fails, size = size, min(most, 2 * size)
            enough = self.confirmed(propose(size), evict=evict)
        if enough is None or not self.is_exact:
            return enough

        def starts(middle: int) -> bool:
            nonlocal enough
            answer = self.confirmed(propose(middle), evict=evict)
            enough = answer or enough
            return answer is not None

        halved(starts, fails=fails, holds=size)
        return enough

    def _may_spend(self, decisions: int) -> bool:
        if self._left < decisions or self._left <= 0:
            self.is_cut = True
            return False
        self._left -= decisions
        return True


def _told_of(edit: ObjectEdit) -> ObjectEdit:
    """The edit without the version of its object, which every trial moves on."""
    if edit.becomes is None:
        return edit
    metadata = {**edit.becomes["metadata"], "resourceVersion": ""}
    return attrs.evolve(edit, becomes={**edit.becomes, "metadata": metadata})


def bisected(holds: Callable[[int], bool], *, low: int, high: int) -> int | None:
    """The smallest number for which something holds that holds for all larger ones; None for none.

    Steps double at first, since most changes are small.
    """
    step, tried, fails = 1, low, low - 1
    while not holds(tried):
        fails = tried
        if tried >= high:
            return None
        tried = min(high, tried + step)
        step *= 2
    return halved(holds, fails=fails, holds=tried)


def halved(starts: Callable[[int], bool], *, fails: int, holds: int) -> int:
    """The smallest number for which something holds, between one for which it fails and one for which it does."""
    while holds - fails > 1:
        middle = (holds + fails) // 2
        if starts(middle):
            holds = middle
        else:
            fails = middle
    return holds
