"""When nodes were kept by Reservations during a run, from what their status said."""

from __future__ import annotations

from collections.abc import Sequence

from gpusched.engine.run_record import KeptSpan


class KeptSpanRecorder:
    """Windows of Reservations that were active, with the nodes that they kept."""

    def __init__(self) -> None:
        self._open: dict[str, KeptSpan] = {}
        self._over: list[KeptSpan] = []

    def note_status(self, name: str, phase: str, nodes: Sequence[str], *, at: float) -> None:
        """Take note of what a Reservation's status says.

        Args:
            name: of the Reservation.
            phase: ``Active`` where it keeps its nodes now; empty where it is gone.
            nodes: that it keeps.
            at: seconds since the beginning of the run.
        """
        now = tuple(sorted(nodes)) if phase == "Active" else ()
        known = self._open.get(name)
        if known is not None and known.nodes == now:
            return
        if known is not None:
            self._over.append(_ended(self._open.pop(name), at))
        if now:
            self._open[name] = KeptSpan(name=name, since=at, until=at, nodes=now)

    def spans(self, seconds: float) -> tuple[KeptSpan, ...]:
        """Spans so far, by time and name; those that go on end with the run."""
        going = [_ended(each, seconds) for each in self._open.values()]
        return tuple(sorted((*self._over, *going), key=lambda each: (each.since, each.name)))


def _ended(span: KeptSpan, at: float) -> KeptSpan:
    return KeptSpan(name=span.name, since=span.since, until=at, nodes=span.nodes)
