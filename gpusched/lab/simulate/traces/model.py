"""A trace as data: jobs with the moment they came, how long they ran and how many GPUs they used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from gpusched.base.classes import frozen

SIZES = ((1, "1 GPU"), (4, "2-4 GPUs"), (8, "5-8 GPUs"), (32, "9-32 GPUs"))
"""Largest size of each class of jobs, by which waits are told apart; the last class is open."""
LARGEST = "over 32 GPUs"


@frozen(kw_only=True)
class TraceJob:
    """One job.

    Attributes:
        name: unique in its trace, a DNS label.
        submit_s: seconds since the trace began.
        duration_s: how long it ran, whole seconds, at least 1.
        gpus: of all its pods together.
        queue: DNS label.
        user: who submitted it; empty when the trace does not tell.
    """

    name: str
    submit_s: float
    duration_s: int
    gpus: int
    queue: str
    user: str = ""

    @property
    def klass(self) -> str:
        """Its class by size."""
        return next((name for most, name in SIZES if self.gpus <= most), LARGEST)


@frozen
class SkippedRow:
    """A row that was passed over.

    Attributes:
        place: ``FILE:LINE``, or ``FILE:row N`` where a file has no lines.
        reason: in few words, the same for all rows of its kind.
        sentence: what is wrong with this one.
    """

    place: str
    reason: str
    sentence: str


@frozen(kw_only=True)
class Trace:
    """Jobs of a file.

    Attributes:
        source: its name, for sentences.
        jobs: by time, then name.
        passed: rows that cannot be used, the first of each reason; ``counts`` has all of them.
        counts: rows passed over, by reason, sorted.
        remarks: what else a reader of the results should know.
    """

    source: str
    jobs: Sequence[TraceJob]
    passed: Sequence[SkippedRow] = ()
    counts: Mapping[str, int] = attrs.Factory(dict)
    remarks: Sequence[str] = ()

    @property
    def queues(self) -> tuple[str, ...]:
        """Names of all queues, sorted."""
        return tuple(sorted({job.queue for job in self.jobs}))
