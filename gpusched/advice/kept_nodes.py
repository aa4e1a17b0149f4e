"""Windows of Reservations into which something would run that is submitted: it starts, and does not stay."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpusched.advice.proposals.proposal import joined_names
from gpusched.advice.trial import TrialCluster
from gpusched.api.meta.identity import format_time
from gpusched.base.classes import frozen
from gpusched.cache.gangs.gang import Gang
from gpusched.session.state.nodes.windows.reserved_windows import NO_END, NodeWindow
from gpusched.session.state.session import Session


@frozen
class FoundStart:
    """A start that was found for a gang.

    Attributes:
        title: of the gang, for sentences.
        nodes: that it gets, by name.
        at: seconds since the Unix epoch.
    """

    title: str
    gang: Gang
    nodes: tuple[str, ...]
    at: float


def kept_node_remarks(trial: TrialCluster, starts: Sequence[FoundStart]) -> list[str]:
    """One sentence for each gang whose nodes are kept for others before it is known to have ended."""
    if not trial.take_snapshot().reservations:
        return []
    with trial.opened_session() as session:
        first = (_first_window(session, each) for each in starts)
        return [remark for remark in first if remark]


def _first_window(session: Session, start: FoundStart) -> str:
    """The sentence about the first window that it runs into; empty for none."""
    found = [
        (begins, each.reservation.name, nodes, each)
        for each in session.windows.windows
        if each.reservation.evicts and not session.windows.may_use(start.gang, each.reservation)
        for begins in _beginning_after(session, start, each)
        if (nodes := _nodes_in(session, start, each))
    ]
    if not found:
        return ""
    begins, name, nodes, each = min(found, key=lambda one: one[:2])
    moves = "moved before or " if each.reservation.move_before_s else ""
    are = "is" if len(nodes) == 1 else "are"
    return (
        f"{start.title}: {joined_names(nodes)} {are} kept by Reservation {name} from "
        f"{format_time(begins)} on: it is {moves}evicted then if it still runs"
    )


def _beginning_after(session: Session, start: FoundStart, each: NodeWindow) -> Iterator[int]:
    """When the next window begins after the start, where the gang may not have ended by then."""
    end = session.windows.end_of(start.gang)
    ends = end - session.snapshot.now + start.at if end < NO_END else end
    for window in each.reservation.windows_from(start.at):
        if window.begins > start.at:
            if ends > window.begins:
                yield window.begins
            return


def _nodes_in(session: Session, start: FoundStart, each: NodeWindow) -> list[str]:
    row_of = session.snapshot.nodes.row
    return [name for name in start.nodes if name in row_of and each.rows[row_of[name]]]
