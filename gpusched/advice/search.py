"""Finding the smallest change of a family that lets one gang start."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gpusched.advice.proposal import ChangeProposal, Suggestion
from gpusched.advice.start_answer import StartAnswer, start_answer
from gpusched.advice.trial import TrialCluster
from gpusched.api.meta.identity import GangKey

_KEPT_FOR_OTHERS: Final = 6
"""Confirmations that a search for a larger size leaves to the families that come after it."""


class ChangeSearch:
    """Decides changed clusters for one gang.

    A quick trial leaves out all other gangs that wait, and costs milliseconds: where the gang does not
    start there, others that compete for the room would not help. What passes is confirmed with all
    of them.

    Args:
        trial: the cluster.
        gang: that waits.
        confirmations: at most, decisions with all gangs: each looks at all of them.
    """

    def __init__(self, trial: TrialCluster, gang: GangKey, *, confirmations: int) -> None:
        self._trial = trial
        self._gang = gang
        self.confirmations_left = confirmations

    def starts_alone(self, proposal: ChangeProposal, *, evict: bool = False) -> bool:
        """Whether the gang starts by a change if no other gang waits."""
        with self._trial.changed(proposal.edits):
            decision = self._trial.decide(alone=self._gang, evict=evict)
        return start_answer(decision, self._gang).starts

    def confirmed(self, proposal: ChangeProposal) -> Suggestion | None:
        """The proposal with its start, decided with all gangs; None where it does not start it."""
        if self.confirmations_left <= 0:
            return None
        self.confirmations_left -= 1
        answer = self.decided(proposal)
        return Suggestion(proposal=proposal, start=answer) if answer.starts else None

    def decided(self, proposal: ChangeProposal) -> StartAnswer:
        """What a session with all gangs says of the gang after a change."""
        with self._trial.changed(proposal.edits):
            return start_answer(self._trial.decide(), self._gang)

    def suggested(self, proposal: ChangeProposal, *, evict: bool = False) -> Suggestion | None:
        """The proposal, tried alone and then with all gangs; None where it does not help."""
        if not self.starts_alone(proposal, evict=evict):
            return None
        return self.confirmed(proposal)

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
        least = _bisected(
            lambda size: self.starts_alone(propose(size), evict=evict), low=1, high=most
        )
        if least is None:
            return None
        found = self.confirmed(propose(least))
        if found is not None or least == most or self.confirmations_left <= _KEPT_FOR_OTHERS:
            return found
        # Gangs before it take what the change frees: it needs more than alone.
        best: Suggestion | None = None

        def starts(size: int) -> bool:
            nonlocal best
            answer = self.confirmed(propose(size))
            best = answer or best
            return answer is not None

        _bisected(starts, low=least + 1, high=most)
        return best


def _bisected(holds: Callable[[int], bool], *, low: int, high: int) -> int | None:
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
    while tried - fails > 1:
        middle = (tried + fails) // 2
        if holds(middle):
            tried = middle
        else:
            fails = middle
    return tried
