"""Statistics as people ask for them: ``p95(wait) of class interactive``, ``gpu use``."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Final

from gpusched.base.classes import frozen
from gpusched.engine.run_record import JobLife, RunRecord
from gpusched.lab.report.statistics.comparison import STATISTICS
from gpusched.lab.report.statistics.named import (
    OF,
    StatisticValue,
    UnknownStatistic,
    check_name,
    known_statistics,
    statistic,
)

_OF: Final = re.compile(
    r"\s*(?P<name>.+?)(?:\s+of\s+(?P<key>\w+)\s+(?P<value>\S.*?))?\s*", re.IGNORECASE
)

_NAMES_OF: Final[Mapping[str, Callable[[JobLife], str]]] = {
    "queue": lambda job: job.queue,
    "class": lambda job: job.klass,
    "kind": lambda job: job.kind,
}


@frozen(kw_only=True)
class AskedStatistic:
    """A statistic of all jobs, or of those of one queue, class, kind or name.

    Attributes:
        name: as ``statistic`` takes it.
        key, value: by which jobs are chosen; empty for all jobs.
    """

    name: str
    key: str = ""
    value: str = ""

    @property
    def text(self) -> str:
        """The one way to write it."""
        return f"{self.name} of {self.key} {self.value}" if self.key else self.name

    @property
    def better(self) -> int:
        """1 where more is better, -1 where less is, 0 where that is not known."""
        known = {each.name: each.better for each in STATISTICS}
        return known.get(self.name, -1 if "(" in self.name and "count" not in self.name else 0)

    def spelled_in(self, names: Collection[str]) -> str:
        """The name among these that is asked for, whatever its case; empty for none."""
        if self.value in names:
            return self.value
        folded = self.value.casefold()
        return next((name for name in sorted(names) if name.casefold() == folded), "")

    def measure(self, record: RunRecord) -> StatisticValue:
        """The figure of a run."""
        if not self.key:
            return statistic(record, self.name)
        of = _NAMES_OF.get(self.key)
        spelled = self.spelled_in({of(job) for job in record.jobs}) if of else self.value.lower()
        return statistic(record, self.name, of={self.key: spelled or self.value})


def parse_asked(text: str) -> AskedStatistic:
    """The statistic that a text means; case and spaces of its name, and of what jobs are chosen by, do not count.

    Raises:
        UnknownStatistic: there is none of that name, or jobs cannot be chosen so.
    """
    match = _OF.fullmatch(text)
    if match is None:
        raise UnknownStatistic("the name of a statistic is missing")
    folded = {each.casefold(): each for each in known_statistics()}
    plain = "".join(match["name"].split())
    name = folded.get(plain.casefold(), plain)
    check_name(name)
    key = (match["key"] or "").casefold()
    if key and key not in OF:
        raise UnknownStatistic(f"jobs are not chosen by {key!r}, only by {', '.join(OF)}")
    return AskedStatistic(name=name, key=key, value="-".join((match["value"] or "").split()))
