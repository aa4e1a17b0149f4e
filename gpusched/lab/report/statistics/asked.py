"""Statistics as people ask for them: ``p95(wait) of class interactive``, ``gpu use``."""

from __future__ import annotations

import re
from typing import Final

from gpusched.base.classes import frozen
from gpusched.engine.run_record import RunRecord
from gpusched.lab.report.statistics.comparison import STATISTICS
from gpusched.lab.report.statistics.named import (
    OF,
    StatisticValue,
    UnknownStatistic,
    check_name,
    known_statistics,
    statistic,
)

_OF: Final = re.compile(r"\s*(?P<name>.+?)(?:\s+of\s+(?P<key>\w+)\s+(?P<value>\S.*?))?\s*")


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

    def measure(self, record: RunRecord) -> StatisticValue:
        """The figure of a run."""
        return statistic(record, self.name, of={self.key: self.value} if self.key else None)


def parse_asked(text: str) -> AskedStatistic:
    """The statistic that a text means; case and spaces of its name do not count.

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
    key = match["key"] or ""
    if key and key not in OF:
        raise UnknownStatistic(f"jobs are not chosen by {key!r}, only by {', '.join(OF)}")
    return AskedStatistic(name=name, key=key, value="-".join((match["value"] or "").split()))
