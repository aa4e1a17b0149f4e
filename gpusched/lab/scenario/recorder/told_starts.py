"""Starts beside what was told of them, as the daemons of a run compared them, in the times of its record."""

from __future__ import annotations

from collections.abc import Sequence

from gpusched.engine.run_record import StartRecord, ToldStartRecord
from gpusched.io.history.told_starts import ComparedStart, ToldStart


def start_records(compared: Sequence[ComparedStart], *, epoch: float) -> tuple[StartRecord, ...]:
    """Records of starts, by time and name.

    Args:
        compared: of all daemons.
        epoch: when the run began, seconds since the Unix epoch.
    """

    def told_record(each: ToldStart | None) -> ToldStartRecord | None:
        if each is None:
            return None
        return ToldStartRecord(
            at=each.at - epoch,
            start=each.start - epoch,
            known_by=str(each.known_by),
            earliest=each.earliest - epoch if each.latest else None,
            latest=each.latest - epoch if each.latest else None,
        )

    records = (
        StartRecord(
            job=f"{each.gang.namespace}/{each.gang.name}",
            queue=each.queue,
            since=each.since - epoch,
            started=each.started - epoch,
            first=told_record(each.first),
            half=told_record(each.half),
            last=told_record(each.last),
            moves=each.moves,
        )
        for each in compared
    )
    return tuple(sorted(records, key=lambda each: (each.started, each.job)))
