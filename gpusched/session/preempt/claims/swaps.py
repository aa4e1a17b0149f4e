"""Claims of which each takes the place of its victim, so that neither has to be searched for.

Where nodes have no room for a class of lone pods, and each possible victim is a lone pod that holds what one of them asks
for, victims are chosen in the order of what they cost, and a claimant fits the node of its victim alone. A claim leaves
nodes as full as they were, so that the order holds for the next one, until a claim is made that changes that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gpusched.api.pod.pod import Pod
from gpusched.base.classes import define
from gpusched.cache.gangs.gang import Gang
from gpusched.session.allocate.pod_by_pod import is_plain_pod
from gpusched.session.backfill.earliest_start import has_published_start
from gpusched.session.backfill.reservations import session_reservations
from gpusched.session.framework.reasons import Reason
from gpusched.session.gpu_types.options import chooses_gpu_types
from gpusched.session.preempt.victim_pool import VictimGroup, VictimPool
from gpusched.session.preempt.victim_selection import ClaimantClass, VictimSelector
from gpusched.session.preempt.victims import Victims
from gpusched.session.state.session import Session
from gpusched.session.state.statement import Assignment, EvictOperation

SWAPS_FROM: Final = 8
"""Claims in a row that were swaps, before victims are put in order: that costs as much as a few claims."""


@define(eq=False)
class _VictimsInTurn:
    """Victims of a class of claimants, of which some may have left.

    Attributes:
        numbers: of bundles of the pool, those that come first last.
        head: the last of them as it would leave; None until it is looked at.
    """

    pool: VictimPool
    numbers: list[int]
    head: VictimGroup | None = None


class Swaps:
    """See the module. One for each action of a session.

    Args:
        session: in which is evicted.
        victims: of the session.
        chooser: of victims.
    """

    def __init__(self, session: Session, victims: Victims, chooser: VictimSelector) -> None:
        self._session = session
        self._victims = victims
        self._chooser = chooser
        snapshot = session.snapshot
        self._possible = not snapshot.reservations and not snapshot.nodes.shared
        self._lines: dict[ClaimantClass, _VictimsInTurn | None] = {}
        self._in_a_row = 0

    def note_claim(self, evictions: Sequence[EvictOperation], places: Sequence[Assignment]) -> None:
        """A claim was made: other lines hold where it leaves its node as full as it was."""
        if len(evictions) == len(places) == 1:
            leaves, comes = evictions[0], places[0]
            if leaves.row == comes.row and _ask_the_same(leaves.member.pod, comes.pod):
                self._in_a_row += 1
                return
        self.end()

    def end(self) -> None:
        """Something else may have changed how full nodes are."""
        self._in_a_row = 0
        self._lines.clear()

    def next_victim(
        self, gang: Gang, claimant: Gang, kind: ClaimantClass
    ) -> list[VictimGroup] | None:
        """The victim that the chooser would choose, whose place a claimant gets for sure; None where that is not known.

        Args:
            gang: that waits.
            claimant: the same with those members alone that are to start.
            kind: its class, for which limits on losses are in the way of no victim.
        """
        if self._in_a_row < SWAPS_FROM or not self._takes_any_place(gang, claimant):
            return None
        if kind not in self._lines:
            self._lines[kind] = self._make_line(claimant, kind)
        line = self._lines[kind]
        part = None if line is None else self._head(line)
        if part is None or not part.seats[0].member.confirmed:
            return None
        pods = part.seats[0].member.pod, claimant.pod_sets[0].pods[0]
        return [part] if _ask_the_same(*pods) else None

    def _takes_any_place(self, gang: Gang, claimant: Gang) -> bool:
        """Whether amounts alone decide where a claimant is placed, and nothing is in its way but victims."""
        session = self._session
        refusal, reservations = session.outcomes.refusal(gang), session_reservations(session)
        return (
            self._possible
            and is_plain_pod(session, claimant)
            and not chooses_gpu_types(session, claimant)
            and (refusal is None or refusal.reason != Reason.RESERVED)
            and (reservations is None or not reservations.binds_any)
            and not has_published_start(gang)
        )

    def _make_line(self, claimant: Gang, kind: ClaimantClass) -> _VictimsInTurn | None:
        """All possible victims in order; None where some are no lone pods that are as large as a claimant."""
        info = self._session.class_info(claimant.pod_sets[0].pod_class)
        pool = self._chooser.only_pool(kind)
        if pool is None or info.class_fit.has_caps or info.request.share is not None:
            return None
        pool.refresh()
        numbers = pool.search_state.swapped_in_turn()
        return None if numbers is None else _VictimsInTurn(pool, numbers[::-1])

    def _head(self, line: _VictimsInTurn) -> VictimGroup | None:
        """The next victim of a line that has not left; None where nobody is left."""
        field = line.pool.search_state
        while line.numbers:
            number = line.numbers[-1]
            if line.head is None:
                line.head = line.pool.victim_group(number, field.bundles[number].members)
            if number not in field.dead and not self._victims.has_left(
                line.head.seats[0].member.pod.uid
            ):
                return line.head
            line.head = None
            line.numbers.pop()
        return None


def _ask_the_same(one: Pod, other: Pod) -> bool:
    a, b = one.pod_class, other.pod_class
    return a.share is b.share is None and a.requests == b.requests
