"""Finding the smallest change of a family that lets one gang start."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from itertools import islice
from typing import Final

import attrs
import numpy as np

from gpusched.advice.played_rounds import TurnAnswer
from gpusched.advice.proposals.in_the_way import TakenChange
from gpusched.advice.proposals.proposal import OWN_FAMILIES, ChangeProposal, Family, Suggestion
from gpusched.advice.start_answer import (
    StartAnswer,
    StartKind,
    acting_gangs,
    start_answer,
    starting_gangs,
)
from gpusched.advice.trial import DecidedLine, ObjectEdit, SessionTally, TrialCluster
from gpusched.api.meta.identity import GangKey
from gpusched.arrays.columns import how_many_fit, pod_class_vector
from gpusched.arrays.node_usage import NodeUsage
from gpusched.cache.gangs.gang import Gang
from gpusched.cache.snapshot import Snapshot
from gpusched.session.decide import Decision
from gpusched.topology.levels import topology_levels

_GANGS_A_DECISION: Final = 4
"""Gangs that are looked at in the time of a decision about one."""
_TURNS_A_DECISION: Final = 14
"""The same where the session ends with the turn of one gang."""
_HEAD_PRICE: Final = 8
"""Decisions that it is worth to look at those who have room reserved before it."""
_EVICTING_PRICE: Final = 4
"""How many decisions more one costs in which victims are sought."""
_EVICTING_GANGS_MAX: Final = 30
"""Gangs that seek victims where many wait, each as dear as a decision: most are refused before."""
_PLAYED_PRICE: Final = 70
"""Decisions that it is worth to play a few gangs forward, on as many nodes as are laid out in one."""
_ROUNDS_PLAYED_MAX: Final = 4
"""Sessions of half a second that are played in one answer, where each looks at a part of the line."""
_NODES_A_DECISION: Final = 300
"""Nodes that are laid out anew in the time of a decision, where some are added."""
_LARGER_IN_LONG_LINES: Final = 16
"""How much larger a change may be than the gang alone needs: what serves all before it helps it little."""
_PODS_A_DECISION: Final = 10
"""Pods that are changed, and changed back, in the time of a decision: all of a gang for some changes."""
_VICTIMS_FREE: Final = 25_000
"""Gangs that are looked at in all domains in the time of a decision."""
_ADDED_A_DECISION: Final = 2
"""Nodes that are filled in the time of a decision."""
_ENDS_A_DECISION: Final = 10
"""Ended gangs by whose room a decision with all gangs costs as much again."""
_TAKERS_MAX: Final = 12
"""Gangs that are known to take what changes give, in a long line."""
_LIKELY_MAX: Final = 6
"""Gangs that are looked at first, of those that could take what a change gives."""
_TURN_KEPT: Final = OWN_FAMILIES - {Family.QUEUE}
"""Changes by which nothing is different for gangs before it: whom there is nothing for gets nothing by them."""
_TURN_MOVED: Final = frozenset({Family.QUEUE, Family.PRIORITY})
"""Changes of what the gang alone asks for by which its turn comes at another time."""
_ALL_MAX: Final = 150
"""Gangs of which all are looked at even so, before a change is told."""
_SHARED_ROOM: Final = frozenset({Family.QUOTA, Family.NODES})
"""Changes of which others may need a part, so that it is said for whom they are enough."""

SizedChange = Callable[[int], ChangeProposal]
"""Makes the proposal of a size, from 1 on."""


class Competitors:
    """Gangs that wait beside one gang.

    Args:
        snapshot: of the unchanged cluster.
        line: the gangs that wait in it.
        gang: that is advised.
    """

    def __init__(self, snapshot: Snapshot, line: DecidedLine, gang: GangKey) -> None:
        self.is_whole = line.is_whole
        turns = [turn.gang for turn in line.decision.order.turns]
        self.count = len(snapshot.gangs)
        self.before = turns.index(gang) if gang in turns else self.count
        """Number of gangs whose turn comes before."""
        self.starting = starting_gangs(line.decision)
        """Gangs that start without a change."""
        self.acting = acting_gangs(line.decision) | {gang}
        """Gangs that get something without a change, and the advised one."""
        self.domains_price = _domains(snapshot, gang) * len(snapshot.placed_gangs) // _VICTIMS_FREE
        """Decisions that one costs more in which victims are sought: in each domain among all that run."""
        waiting = {each.key: each for each in snapshot.gangs if each.pod_sets}
        self._gang = waiting.get(gang)
        self._line = [waiting[key] for key in turns[: self.before] if key not in self.acting]
        idle = (key for key in turns if key not in self.acting)
        self.next_acting = self.acting | {*islice(idle, _LIKELY_MAX)}
        """With those for whom room is kept where one of the others needs none any more."""
        self.layout_price = len(snapshot.nodes) // _NODES_A_DECISION
        """Decisions that one costs more in which there are other nodes."""

    def likely_takers(self, changed: Snapshot, *, evict: bool) -> set[GangKey]:
        """The first few in line that could have what a change gives to the gang.

        Args:
            changed: the cluster with the change.
            evict: whether it gives room by evictions: to all then that need no more than the gang.
        """
        room = _FreeRoom(changed)
        most = self._gang.members_at_start if self._gang is not None else 0
        found = (
            each.key
            for each in self._line
            if (each.members_at_start <= most if evict else room.could_hold(each))
        )
        return {*islice(found, _LIKELY_MAX)}


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
    start there, others that compete for the room would not help. What passes is confirmed with the
    others. In a long line that costs as much as hundreds of quick trials, so gangs that took what
    another change gave are tried first.

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
        self._kept = 0 if competitors.is_whole else 2 * budget
        """Beside the budget, for what has shown to be likely."""
        self._known: dict[Hashable, list[tuple[list[ObjectEdit], Decision]]] = {}
        """What was decided about a change: several searches ask about the same one."""
        self._takers: list[GangKey] = []
        """Gangs that took what was there for it, in a long line."""
        self.taken: dict[Family, TakenChange] = {}
        """The first change of each family that helps the gang alone, and not beside the others."""
        self._turns: dict[Hashable, TurnAnswer] = {}
        self._played = SessionTally(_ROUNDS_PLAYED_MAX)
        self.is_cut = False
        """Whether something was not tried, as the budget was spent."""

    @property
    def is_exact(self) -> bool:
        """Whether the very smallest is looked for: in a long line each try costs too much."""
        return self._competitors.is_whole

    @property
    def is_crowded(self) -> bool:
        """Whether so many wait that one decision with all of them costs seconds."""
        return not self.is_exact and self._competitors.count > _ALL_MAX

    def starts_alone(self, proposal: ChangeProposal, *, evict: bool = False) -> bool:
        """Whether the gang starts by a change if no other gang waits."""
        return self.decided_alone(proposal, evict=evict) is not None

    def decided_alone(self, proposal: ChangeProposal, *, evict: bool = False) -> Decision | None:
        """The decision by which the gang starts if no other gang waits; None where it does not."""
        if not self._may_confirm(evict=evict):
            return None
        decision = self._decided(proposal, {self.gang}, evict=evict or self.is_exact)
        if decision is None or not start_answer(decision, self.gang).starts:
            return None
        return decision

    def _decided(
        self,
        proposal: ChangeProposal,
        among: set[GangKey] | None,
        *,
        evict: bool = False,
        to_turn: bool = False,
        last: bool = False,
    ) -> Decision | None:
        """A session on the changed cluster; None where the budget is spent.

        Args:
            proposal: the change.
            among: gangs that wait; None for all.
            evict: whether gangs may be evicted for others.
            to_turn: whether the session ends with the turn of the gang.
            last: whether the change is told where the gang starts: some of the budget is kept for that.
        """
        key = (proposal.family, proposal.message, evict, to_turn, among and frozenset(among))
        known = self._known.setdefault(key, [])
        edits = [_told_of(edit) for edit in (*self._trial.standing, *proposal.edits)]
        for others, decision in known:
            if others == edits:
                return decision
        price = self._price(proposal, among, evict=evict, to_turn=to_turn)
        if not self._may_spend(price, last=last):
            return None
        with self._trial.changed(proposal.edits):
            decision = self._trial.decide(
                among=among,
                evict=evict,
                until=self.gang if to_turn else None,
                brief=not self.is_exact,
            )
        known.append((edits, decision))
        return decision

    def _price(
        self,
        proposal: ChangeProposal | None,
        among: set[GangKey] | None,
        *,
        evict: bool,
        to_turn: bool,
    ) -> int:
        """Decisions about one gang that one decision is worth."""
        competitors = self._competitors
        gangs = competitors.count if among is None else len(among)
        price = max(1, gangs // _GANGS_A_DECISION)
        if to_turn:
            price = _HEAD_PRICE + min(gangs, competitors.before) // _TURNS_A_DECISION
        if evict:
            price += competitors.domains_price
        if proposal is not None:
            price += sum(each.plural == "pods" for each in proposal.edits) // _PODS_A_DECISION
        if self.is_exact:
            return price
        if evict:
            price += _EVICTING_PRICE + min(gangs, _EVICTING_GANGS_MAX)
        if proposal is None:
            return price
        if proposal.family is Family.END_OF_OTHERS and among is None:
            price += price * int(proposal.size) // _ENDS_A_DECISION
        if proposal.family is not Family.NODES:
            return price
        all_again = competitors.count // _GANGS_A_DECISION if self.is_crowded and not among else 0
        return (
            price + competitors.layout_price + all_again + int(proposal.size) // _ADDED_A_DECISION
        )

    def confirmed(self, proposal: ChangeProposal, *, evict: bool = False) -> Suggestion | None:
        """The proposal with its start, decided as the daemon does; None where it does not start it.

        Args:
            proposal: the change.
            evict: whether it starts by evictions alone.
        """
        if self.is_exact:
            decision = self._decided(proposal, None, evict=True)
        else:
            decision = self._decided_in_long_line(proposal, evict=evict)
        if decision is None:
            return None
        answer = start_answer(decision, self.gang)
        if not answer.starts:
            self._note_taken(proposal, decision, alone=None)
            return None
        if not self._is_kept(proposal, decision, answer, evict=evict):
            return None
        others = starting_gangs(decision) - self._competitors.starting - {self.gang}
        if others and proposal.family in _SHARED_ROOM:
            first = f"{len(others)} gang{'s' if len(others) > 1 else ''}"
            message = f"{proposal.message}, which {first} before it would use as well"
            proposal = attrs.evolve(proposal, message=message)
        return Suggestion(proposal=proposal, start=answer)

    def _decided_in_long_line(self, proposal: ChangeProposal, *, evict: bool) -> Decision | None:
        """A decision with all who matter; None where a cheaper one shows that the gang does not start.

        Free room is given in the gang's turn, so that what comes after it is left out at first.
        """
        alone = self.decided_alone(proposal, evict=evict)
        if alone is None or not self.may_start_beside_others(proposal, evict=evict):
            return None
        if self.is_crowded and not evict and not self._may_have_room_left(proposal):
            return None
        if self._is_decided_in_turn(proposal):
            self._starts_in_turn(proposal, evict=True)  # notes who takes what it would have
            return self._answer_in_turn(proposal, evict=True).decision
        is_kept = proposal.family in _TURN_KEPT and not self._trial.standing
        among = self._competitors.next_acting if is_kept and self.is_crowded else None
        # Up to the turn it costs nearly as much as all of it where hundreds wait, but for new nodes.
        is_layout = proposal.family is Family.NODES
        if not evict and (is_layout or not self.is_crowded):
            given = self._decided_to_turn(proposal, among, alone, evict=False, last=is_layout)
            if given is None:
                return None
            if is_layout and self.is_crowded:
                among = self._competitors.next_acting | starting_gangs(given)
        # What it was given in its turn may be taken again for one that may have it evicted.
        decision = self._decided(proposal, among, evict=True, last=True)
        if decision is not None and not start_answer(decision, self.gang).starts:
            self._note_taken(proposal, decision, alone=alone)
        return decision

    def may_start_beside_others(self, proposal: ChangeProposal, *, evict: bool = False) -> bool:
        """Whether the gang starts beside those few that are most likely to take what a change gives."""
        if self.is_exact:
            return True
        alone = self.decided_alone(proposal, evict=evict)
        if alone is None:
            return False
        if evict and self._is_decided_in_turn(proposal):
            return self._starts_in_turn(proposal, evict=True)
        among = self._competitors.next_acting
        if proposal.family not in _TURN_KEPT or self._trial.standing:
            with self._trial.changed(proposal.edits):
                likely = self._competitors.likely_takers(self._trial.take_snapshot(), evict=evict)
            acting = set() if evict else self._competitors.acting
            among = {self.gang, *self._takers, *likely} | acting
        return self._decided_to_turn(proposal, among, alone, evict=evict) is not None

    def _decided_to_turn(
        self,
        proposal: ChangeProposal,
        among: set[GangKey] | None,
        alone: Decision,
        *,
        evict: bool,
        last: bool = False,
    ) -> Decision | None:
        """The decision with some gangs by which the gang starts; None where it does not.

        Args:
            proposal: the change.
            among: gangs that wait; None for all.
            alone: by which the gang starts if no other gang waits.
            evict: whether it starts by evictions alone, and not in its turn.
            last: as in ``_decided``.
        """
        decision = self._decided(proposal, among, evict=evict, to_turn=not evict, last=last)
        if decision is None:
            return None
        if start_answer(decision, self.gang).starts:
            return decision
        self._note_taken(proposal, decision, alone=alone)
        return None

    def _note_taken(
        self, proposal: ChangeProposal, decision: Decision, *, alone: Decision | None
    ) -> None:
        """Remember which gangs had what the gang would have alone: by a start, or by room that is kept."""
        found = starting_gangs(decision) - self._competitors.starting
        if alone is not None:
            nodes = {name for name, _ in start_answer(alone, self.gang).nodes}
            found |= {
                room.gang
                for room in decision.reserved
                if not nodes or not nodes.isdisjoint(room.nodes)
            }
        takers = sorted(found - {self.gang})
        for key in takers:
            if key not in self._takers and len(self._takers) < _TAKERS_MAX:
                self._takers.append(key)
        message = start_answer(decision, self.gang).message
        self.taken.setdefault(proposal.family, TakenChange(proposal, tuple(takers), message))

    def _is_kept(
        self, proposal: ChangeProposal, decision: Decision, answer: StartAnswer, *, evict: bool
    ) -> bool:
        """Whether the gang gets what a decision has for it, where its start takes further sessions.

        Played forward with all, they would cost seconds each in a long line. There, where others have
        gangs evicted before the pods of a Job are made, only those that get something are played with
        it, all of them where others get more by the change; and what is to start by free room may not need evictions after all.
        """
        by_evictions = answer.kind is StartKind.AFTER_EVICTIONS and bool(answer.nodes)
        if self.is_exact:
            return not (by_evictions or not answer.nodes) or self._lasts(proposal, None)
        if self._is_decided_in_turn(proposal):
            return evict or not answer.evicted
        if by_evictions:
            return (evict or not answer.evicted) and self._gets_turn(proposal)
        if self.is_crowded and proposal.family is not Family.PRIORITY:
            return proposal.family in _TURN_KEPT or self._lasts_in_rounds(proposal)
        if answer.nodes or not any(
            made.stops and made.gang != self.gang for made in decision.plan.preemptions
        ):
            return True
        price = _PLAYED_PRICE * (1 + self._competitors.layout_price)
        if proposal.family in _TURN_KEPT and not self._trial.standing:
            among = self._competitors.next_acting | acting_gangs(decision)
            return self._may_spend(price, last=True) and self._lasts(proposal, among)
        # Others get more by it in the sessions that follow, too.
        price += self._competitors.count
        return (
            not self.is_crowded
            and self._may_spend(price, last=True)
            and self._lasts(proposal, None)
        )

    def _may_have_room_left(self, proposal: ChangeProposal) -> bool:
        """Whether free room may be left in its turn; a pair would have to be played to tell, which is not done."""
        if self._trial.standing:
            self.is_cut = True
            return False
        is_told = proposal.family in OWN_FAMILIES or proposal.family is Family.PERMISSION
        return not is_told or self._starts_in_turn(proposal, evict=False)

    def _is_decided_in_turn(self, proposal: ChangeProposal) -> bool:
        """Whether the daemon's session in which its turn comes decides, as it is another one by the change."""
        return self.is_crowded and proposal.family in _TURN_MOVED and not self._trial.standing

    def _answer_in_turn(self, proposal: ChangeProposal, *, evict: bool) -> TurnAnswer:
        key = (proposal.family, proposal.message, evict)
        if key not in self._turns:
            price = self._price(proposal, self._competitors.acting, evict=True, to_turn=False)
            if evict and not self._may_spend(price):
                return TurnAnswer(starts=None)
            self._turns[key] = self._trial.turn_answer(self.gang, proposal.edits, evict=evict)
        return self._turns[key]

    def _starts_in_turn(self, proposal: ChangeProposal, *, evict: bool) -> bool:
        """Whether it starts when the daemon comes to it: its sessions look at parts of so long a line."""
        found = self._answer_in_turn(proposal, evict=evict)
        if found.starts is None:
            self.is_cut = True
        elif not found.starts:
            taken = TakenChange(proposal, found.takers, found.message)
            self.taken.setdefault(proposal.family, taken)
        return bool(found.starts)

    def _gets_turn(self, proposal: ChangeProposal) -> bool:
        """Whether the daemon comes to a gang for which others leave: in a strict line only to the first."""
        if not self.is_crowded or self._trial.standing or proposal.family in OWN_FAMILIES:
            return True
        return self._trial.has_turn(self.gang, proposal.edits)

    def _lasts_in_rounds(self, proposal: ChangeProposal) -> bool:
        starts = False
        if self._played.left > 0:
            with self._trial.changed(proposal.edits):
                starts = self._trial.starts_when_played(self.gang, tally=self._played)
        self.is_cut |= self._played.left <= 0 and not starts
        return starts

    def _lasts(self, proposal: ChangeProposal, among: set[GangKey] | None) -> bool:
        with self._trial.changed(proposal.edits):
            return self._trial.starts_when_played(self.gang, among=among)

    def smallest(
        self, propose: SizedChange, *, most: int, evict: bool = False
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

    def smallest_alone(self, propose: SizedChange, *, most: int, evict: bool = False) -> int | None:
        """The smallest size by which the gang starts if no other waits; None for none."""
        return bisected(
            lambda size: self.starts_alone(propose(size), evict=evict), low=1, high=most
        )

    def enough_beside_others(
        self, propose: SizedChange, *, least: int, most: int, evict: bool = False
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
            if not self.may_start_beside_others(propose(most), evict=evict):
                return None  # nothing smaller is enough then
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

    def may_decide_all(self) -> bool:
        """Whether the budget allows to decide a change with all gangs; where it does not, the search is cut."""
        return self._has_left(None, evict=True)

    def _may_confirm(self, *, evict: bool) -> bool:
        """Whether what a trial without others shows could be looked at further."""
        return self._has_left(self._competitors.acting, evict=evict)

    def _has_left(self, among: set[GangKey] | None, *, evict: bool) -> bool:
        if self.is_exact or self._price(None, among, evict=evict, to_turn=not evict) <= self._left:
            return True
        self.is_cut = True
        return False

    def _may_spend(self, decisions: int, *, last: bool = False) -> bool:
        if last and decisions <= self._kept:
            self._kept -= decisions
            return True
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
