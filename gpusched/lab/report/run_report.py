"""What a page is made of: a run, what was expected of it, and what it teaches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from gpusched.base.classes import frozen
from gpusched.engine.run_record import RunRecord
from gpusched.lab.report.statistics.comparison import ComparedRow
from gpusched.lab.report.statistics.tables import FilledTable


@frozen(kw_only=True)
class JudgedExpectation:
    """One expectation, judged.

    Attributes:
        sentence: what was expected.
        ok: it was so.
        seen: what was there instead, or with it; may be empty.
    """

    sentence: str
    ok: bool
    seen: str = ""


@frozen(kw_only=True)
class RunReport:
    """One run as its page shows it.

    Attributes:
        record: what happened.
        verdicts: in the order of the file.
        tables: with published numbers beside this run's.
        config: name of the configuration.
        teaches: one sentence; empty for none.
    """

    record: RunRecord
    verdicts: tuple[JudgedExpectation, ...] = ()
    tables: tuple[FilledTable, ...] = ()
    config: str = ""
    teaches: str = ""


@frozen(kw_only=True)
class ComparisonNotes:
    """What a comparison says beside its runs.

    Attributes:
        sentences: by heading, above the numbers.
        figures: in place of the statistics that every comparison has; None for those.
        waited: the runs with the jobs whose waits are drawn; empty for all jobs.
    """

    sentences: Mapping[str, Sequence[str]] = attrs.Factory(dict)
    figures: Sequence[ComparedRow] | None = None
    waited: Sequence[RunRecord] = ()


NO_NOTES: Final = ComparisonNotes()
