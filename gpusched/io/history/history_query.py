"""Questions to the file of runs: lists by page, and sums. It is opened read-only, by any process.

Runs count that were open at some time of the span that is asked about. Pages go from the latest end
to the earliest, runs that have not ended first.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import attrs

from gpusched.api.devices.gpu_types import PRICE_ONE, gpu_type_price
from gpusched.api.meta.gpu_resources import gpu_resources
from gpusched.api.meta.identity import format_time
from gpusched.base import limits
from gpusched.base.classes import frozen
from gpusched.base.errors import UsageError
from gpusched.io.history.gang_run import (
    RUN_COLUMNS,
    STILL_OPEN,
    GangRun,
    run_from_row,
)
from gpusched.io.history.history_store import (
    HistoryUnavailable,
    check_version,
    columns_of_version,
)

WAITING: Final = "Waiting"
RUNNING: Final = "Running"
SUM_KEYS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "queue": "queue",
        "namespace": "namespace",
        "user": "user",
        "gpu-type": "gpu_type",
        "day": "day",
    }
)
"""What runs can be added up by, and its column; a run counts for the day on which it ended."""
_DAY_S: Final = 86_400
_NAMES: Final = "queue, namespace, user"
_WAITED: Final = "CASE WHEN started > 0 THEN started ELSE min(ended, :now) END - since"
_STATES: Final = {
    WAITING: "ended >= :open AND started = 0",
    RUNNING: "ended >= :open AND started > 0",
}


class BadHistoryQuery(UsageError):
    """A question that means nothing."""


@frozen(kw_only=True)
class HistoryQuery:
    """Which runs are asked for.

    Attributes:
        namespaces: None for all of them.
        queue, user, state: empty for any; a state is ``Waiting``, ``Running`` or an outcome.
        since, until: seconds since the epoch; runs that were over before or began after are left out.
        limit: of one page.
        after: where the page begins, as the page before said.
    """

    namespaces: tuple[str, ...] | None = None
    queue: str = ""
    user: str = ""
    state: str = ""
    since: float = 0.0
    until: float = STILL_OPEN
    limit: int = 500
    after: str = ""


@frozen(kw_only=True)
class HistoryPage:
    """Runs, and where the next page begins; empty when there is none."""

    runs: tuple[GangRun, ...]
    after: str


@frozen(kw_only=True)
class HistorySum:
    """Runs of one queue, namespace, user, GPU type or day, added up.

    Attributes:
        key: the name; empty where it is not known, or for runs that have no end yet.
        runs: a gang counts each time that it waited and ran.
        started: of these had their minimum.
        waited_s, ran_s: seconds of all runs, those that go on up to now.
        longest_wait_s: of one run.
        evictions: of pods.
        cost: GPU-seconds times the prices of their types.
    """

    key: str
    runs: int
    started: int
    waited_s: float
    longest_wait_s: float
    ran_s: float
    evictions: int
    gpu_seconds: float
    lost_gpu_seconds: float
    cost: float = 0.0


_SUMMED: Final = tuple(each.name for each in attrs.fields(HistorySum) if each.name != "cost")


def cost_of_types(gpu_seconds: Mapping[str, float]) -> float:
    """GPU-seconds by type, each times its price, added up."""
    resources = gpu_resources()
    return sum(
        seconds * gpu_type_price(name, resources) / PRICE_ONE
        for name, seconds in sorted(gpu_seconds.items())
    )


def query_history(path: Path, query: HistoryQuery) -> HistoryPage:
    """One page of runs.

    Raises:
        HistoryUnavailable: the file cannot be read.
        BadHistoryQuery: the question means nothing.
    """
    if not 1 <= query.limit <= limits.HISTORY_PAGE_MAX:
        raise BadHistoryQuery(
            f"limit must be from 1 to {limits.HISTORY_PAGE_MAX}, not {query.limit}"
        )
    where, values = _conditions(query)
    if query.after:
        ended, number = _page_start(query.after)
        where.append("(ended, id) < (:ended, :number)")
        values |= {"ended": ended, "number": number}
    with _reading(path) as file:
        (version,) = file.execute("PRAGMA user_version").fetchone()
        text = (
            f"SELECT {', '.join(columns_of_version(version))}, id FROM runs WHERE {' AND '.join(where)} "  # noqa: S608
            "ORDER BY ended DESC, id DESC LIMIT :most"
        )
        rows = file.execute(text, {**values, "most": query.limit + 1}).fetchall()
    page = rows[: query.limit]
    after = ""
    if len(rows) > len(page):
        last = page[-1]
        after = f"{last[RUN_COLUMNS.index('ended')]!r}/{last[-1]}"
    return HistoryPage(runs=tuple(run_from_row(row[:-1]) for row in page), after=after)


def sum_history(path: Path, query: HistoryQuery, by: str, now: float) -> tuple[HistorySum, ...]:
    """Runs that ended in a span added up, and where it lasts until now those that go on; sorted by name.

    Args:
        path: of the file.
        query: which runs; the page does not count.
        by: of ``SUM_KEYS``.
        now: seconds since the epoch, until which runs count that go on.

    Raises:
        HistoryUnavailable: the file cannot be read.
        BadHistoryQuery: the question means nothing.
    """
    if by not in SUM_KEYS:
        raise BadHistoryQuery(f"history is added up by {', '.join(SUM_KEYS)}, not by {by}")
    where, values = _conditions(query)
    first, last = -(-query.since // _DAY_S) * _DAY_S, min(query.until, now) // _DAY_S * _DAY_S
    if last <= first:  # hardly a day: run by run
        first = last = min(query.until, STILL_OPEN)
    values |= {"now": now, "first": first, "last": last}
    values |= {"first_day": _day(first), "last_day": _day(last), "by_type": by == "gpu-type"}
    wanted = " AND ".join(where[2:] or ["1"])
    with _reading(path) as file:
        rows = file.execute(_sum_text(by, wanted), values).fetchall()
        values["by_type"] = True
        by_type: dict[str, dict[str, float]] = {}
        for key, gpu_type, seconds in file.execute(_type_sum_text(by, wanted), values):
            by_type.setdefault(key, {})[gpu_type] = seconds
    return tuple(
        HistorySum(
            **dict(zip(_SUMMED, row, strict=True)), cost=cost_of_types(by_type.get(row[0], {}))
        )
        for row in rows
    )


def _sum_text(by: str, wanted: str) -> str:
    """What is added up, by one key."""
    return (
        f"SELECT {SUM_KEYS[by]}, sum(runs), sum(started), sum(waited_s), max(longest_wait_s), "  # noqa: S608
        "sum(ran_s), sum(evictions), sum(gpu_seconds), sum(lost_gpu_seconds) "
        f"FROM ({_sum_sources(wanted, by_type=by == 'gpu-type')}) GROUP BY 1 ORDER BY 1"
    )


def _type_sum_text(by: str, wanted: str) -> str:
    """GPU-seconds by one key and by type."""
    return (
        f"SELECT {SUM_KEYS[by]}, gpu_type, sum(gpu_seconds) "  # noqa: S608
        f"FROM ({_sum_sources(wanted, by_type=True)}) GROUP BY 1, 2"
    )


def _sum_sources(wanted: str, *, by_type: bool) -> str:
    """Whole days as they were added up, what is beside them run by run, and runs that go on."""
    of_days = wanted if "ended" not in wanted else "0"  # days know runs that have ended
    several = "json_each(CASE gpu_types WHEN '' THEN '{}' ELSE gpu_types END) each"
    sources = [
        (
            f"SELECT day, {_NAMES}, outcome, gpu_type, runs, started, waited_s, longest_wait_s, ran_s, "  # noqa: S608
            "evictions, gpu_seconds, lost_gpu_seconds FROM days "
            f"WHERE by_type = :by_type AND day >= :first_day AND day < :last_day AND {of_days}"
        )
    ]
    parts = [("runs", "gpu_type, ", "gpu_seconds", "1")]
    if by_type:
        parts = [
            ("runs", "gpu_type, ", "gpu_seconds", "gpu_types = ''"),
            (f"runs, {several}", "each.key, ", "each.value", "gpu_types <> ''"),
        ]
    for span in (
        "ended >= :since AND ended < :first",
        "ended >= max(:last, :first) AND ended < :until AND ended < :open",
        "ended >= :open AND since < :until AND :until > :now",
    ):
        sources += [
            f"SELECT CASE WHEN ended >= :open THEN '' ELSE date(ended, 'unixepoch') END, {_NAMES}, "  # noqa: S608
            f"outcome, {gpu_type}1, started > 0, {_WAITED}, {_WAITED}, "
            "CASE WHEN started > 0 THEN max(0, min(ended, :now) - started) ELSE 0 END, evictions, "
            f"{gpu_seconds}, lost_gpu_seconds FROM {table} WHERE {span} AND {which} AND {wanted}"
            for table, gpu_type, gpu_seconds, which in parts
        ]
    return " UNION ALL ".join(sources)


def _day(seconds: float) -> str:
    return format_time(seconds)[:10] if seconds < STILL_OPEN else "9999"


def _conditions(query: HistoryQuery) -> tuple[list[str], dict[str, Any]]:
    """What runs must fulfil, and values for the names in it."""
    where = ["ended >= :since", "since < :until"]
    values: dict[str, Any] = {"since": query.since, "until": query.until, "open": STILL_OPEN}
    if query.namespaces is not None:
        names = {f"namespace{number}": name for number, name in enumerate(query.namespaces)}
        where.append(f"namespace IN ({', '.join(f':{name}' for name in names)})")
        values.update(names)
    for column, wanted in (("queue", query.queue), ("user", query.user)):
        if wanted:
            where.append(f"{column} = :{column}")
            values[column] = wanted
    if query.state in _STATES:
        where.append(_STATES[query.state])
    elif query.state:
        where.append("outcome = :state")
        values["state"] = query.state
    return where, values


def _page_start(after: str) -> tuple[float, int]:
    ended, _, number = after.partition("/")
    try:
        return float(ended), int(number)
    except ValueError:
        raise BadHistoryQuery(f"continue {after[:40]!r} is none that an answer gave") from None


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection]:
    if not path.exists():
        raise HistoryUnavailable(
            f"{path}: there is no history; gpusched run --history {path} keeps one"
        )
    try:
        with contextlib.closing(_opened_for_reading(path)) as file:
            check_version(file, path)
            yield file
    except sqlite3.Error as error:
        raise HistoryUnavailable(f"{path}: cannot be read: {error}") from error


def _opened_for_reading(path: Path) -> sqlite3.Connection:
    """The file as others write it; one that nobody writes may lie in a folder that is read-only."""
    address = path.absolute().as_uri()
    file = sqlite3.connect(f"{address}?mode=ro", uri=True, check_same_thread=False)
    try:
        file.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.Error as error:
        file.close()
        written = path.with_name(f"{path.name}-wal").exists()
        if written or not isinstance(error, sqlite3.OperationalError):
            raise
        return sqlite3.connect(f"{address}?immutable=1", uri=True, check_same_thread=False)
    return file


def history_namespaces(path: Path) -> tuple[str, ...]:
    """Namespaces of which the file knows anything, sorted.

    Raises:
        HistoryUnavailable: the file cannot be read.
    """
    text = (
        "WITH RECURSIVE known(name) AS (SELECT min(namespace) FROM runs UNION ALL "
        "SELECT (SELECT min(namespace) FROM runs WHERE namespace > known.name) FROM known "
        "WHERE known.name IS NOT NULL) SELECT name FROM known WHERE name IS NOT NULL "
        "UNION SELECT namespace FROM days WHERE by_type = 0 ORDER BY 1"
    )
    with _reading(path) as file:
        return tuple(name for (name,) in file.execute(text).fetchall())
