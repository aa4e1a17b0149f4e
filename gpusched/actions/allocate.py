"""Places for gangs: first every minimum as a whole, then extras into what is left."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import attrs

from gpusched.plugin import (
    ActionNeeds,
    Capability,
    DependsOn,
    Gang,
    GangStarts,
    Session,
    gangs_to_place,
    grow_in_turn,
    in_queue_order,
    keep_reserved,
    make_reservations,
    nominate_for_repair,
    split_repairs,
    withdraw_idle_nominations,
)


@attrs.frozen
class Allocate:
    """Takes queues and gangs by key; a gang that does not fit blocks none behind it."""

    name: ClassVar[str] = "allocate"
    depends_on: ClassVar[DependsOn] = DependsOn.VIEW
    provides: ClassVar[tuple[Capability, ...]] = (Capability.PLACEMENT,)
    needs: ClassVar[ActionNeeds] = ActionNeeds(
        after=(Capability.ADMISSION,),
        otherwise="gangs are placed a session after they were admitted",
    )

    def run(self, session: Session) -> None:
        """Start gangs in queue order: those that lost members first."""
        make_reservations(session)
        ready = gangs_to_place(session)
        withdraw_idle_nominations(session, ready)
        starts = GangStarts(session)
        self._fill(session, ready, starts)
        # Held until here: what was freed for a gang is not given to others before the actions
        # that evict have had the chance to complete it.
        for gang in starts.lost_nominations:
            if gang.key not in session.nominations.plans:
                session.nominations.cancel(gang)

    def _fill(self, session: Session, ready: list[Gang], starts: GangStarts) -> None:
        early = session.early_end
        kept = {gang.key for gang in session.gang_selection.heads_left_out}
        placements = session.placements
        for gang, repairs in self._turns(session, ready):
            if kept and gang.key in kept:
                if early.reached:
                    return
                keep_reserved(session, gang)
            elif not repairs:
                if placements.is_full or early.reached:
                    return
                asks = bool(gang.missing_members) or not gang.placed
                started = asks and session.has_budget_for(gang) and starts.start(gang)
                if started and len(session.placements.assigned(gang)) < gang.pending:
                    early.keep_whole()
                early.note_turn(gang, started=started)
                if not (started or placements.is_full):
                    early.end_where_all_are_refused(session.pending_gangs, starts.not_refused)
                    if asks and early.outlasts_refusals:
                        early.note_refused(starts.refuse_alike_behind(gang))
            elif gang.pending < gang.missing_members:
                nominate_for_repair(session, gang)
            else:
                early.note_awaited(gang, started=starts.start(gang))
        early.note_last_turn()
        if not early.reached:
            self._grow(session, ready)

    def _grow(self, session: Session, ready: list[Gang]) -> None:
        grow_in_turn(session, ready)

    def _turns(self, session: Session, ready: list[Gang]) -> Iterator[tuple[Gang, bool]]:
        """Gangs as their turns come, and whether each lost members and is to be whole again."""
        first, later = split_repairs(session, ready)
        yield from ((gang, True) for gang in in_queue_order(session, first))
        # Who may bind no more pods in this session is told so, whatever the session before has found.
        if session.early_end.came_as_foreseen and not session.placements.is_full:
            return
        waiting = [*later, *session.gang_selection.heads_left_out]
        yield from ((gang, False) for gang in in_queue_order(session, waiting))
