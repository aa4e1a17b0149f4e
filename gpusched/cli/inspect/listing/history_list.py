"""``gpusched get history``: what became of gangs, as ``sacct`` answers, from the file that the daemon writes."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Any, Final

from gpusched.api.meta.duration import NANOSECONDS, parse_duration
from gpusched.api.meta.identity import InvalidObject, parse_time
from gpusched.base.clock import SystemClock
from gpusched.base.errors import UsageError
from gpusched.base.limits import HISTORY_PAGE_MAX
from gpusched.cli.command import connection_choice, print_json, table
from gpusched.cli.inspect import cluster_reader
from gpusched.cli.inspect.listing.history_table import (
    RUN_COLUMNS,
    SORT_KEYS,
    SUM_COLUMNS,
    as_csv,
    flat_item,
    run_rows,
    sum_rows,
    write_parquet,
)
from gpusched.cli.inspect.listing.printed_listing import print_yaml
from gpusched.io.history.gang_run import STILL_OPEN, GangRun
from gpusched.io.history.history_query import (
    SUM_KEYS,
    HistoryQuery,
    query_history,
    run_as_json,
    sum_as_json,
    sum_history,
)

FORMATS: Final = ("csv", "parquet")
"""Of ``-o``, which no other kind has."""
_SHOWN: Final = 500
_DAY_S: Final = 86_400
_DAYS: Final = re.compile(r"(\d{1,5})d")
_OPTIONS: Final = ("file", "queue", "created_by", "since", "until", "state", "by", "limit")


def add_history_options(parser: argparse.ArgumentParser) -> None:
    """Options of ``get`` that only ``history`` has."""
    own = parser.add_argument_group("of history")
    own.add_argument(
        "--file",
        metavar="F",
        help="which the daemon writes (default: what the configuration says under history)",
    )
    own.add_argument("--queue", metavar="Q", help="runs of one queue")
    own.add_argument("--created-by", metavar="U", help="runs of one user, where users are known")
    own.add_argument(
        "--state", metavar="S", help="Waiting, Running, or how it ended, such as Preempted"
    )
    own.add_argument(
        "--since", metavar="T", help="not what was over before: 7d, 12h ago, or 2026-11-01"
    )
    own.add_argument("--until", metavar="T", help="not what began later")
    own.add_argument(
        "--by", choices=tuple(SUM_KEYS), metavar="KEY",
        help=f"sums of what ended, by {', '.join(SUM_KEYS)}",
    )  # fmt: skip
    own.add_argument(
        "--limit", metavar="N", type=int,
        help=f"how many runs, the latest (default: {_SHOWN}; 0: all)",
    )  # fmt: skip


def refuse_history_options(arguments: argparse.Namespace) -> None:
    """Nothing, unless another kind is asked for with what only ``history`` has.

    Raises:
        UsageError: it is.
    """
    for name in _OPTIONS:
        if getattr(arguments, name) is not None:
            option = name.replace("_", "-")
            raise UsageError(f"--{option} is for history")
    if arguments.output in FORMATS:
        raise UsageError(f"-o {arguments.output} is for history")


def print_history(arguments: argparse.Namespace) -> int:
    """List runs, or add them up.

    Raises:
        UsageError: an option means nothing.
        HistoryUnavailable: the file cannot be read.
    """
    now = SystemClock().now()
    file = _file(arguments)
    query = _query(arguments, now)
    if arguments.by:
        sums = sum_history(file, query, arguments.by, now)
        items = [sum_as_json(each, arguments.by) for each in sums]
    else:
        runs = _read(file, query, 0 if arguments.limit == 0 else arguments.limit or _SHOWN)
        items = [run_as_json(run, now) for run in _sorted(runs, arguments.sort_by)]
    _print(arguments, items)
    return 0


def _file(arguments: argparse.Namespace) -> Path:
    named = arguments.file or cluster_reader.configuration(arguments.config).history.file
    if not named:
        raise UsageError(
            "which history? gpusched run --history FILE keeps one, get history --file FILE reads it"
        )
    return Path(named)


def _query(arguments: argparse.Namespace, now: float) -> HistoryQuery:
    namespaces = None
    if not arguments.all_namespaces:
        name = arguments.namespace or cluster_reader.default_namespace(connection_choice(arguments))
        namespaces = (cluster_reader.checked_object_name(name, what="namespace"),)
    if arguments.limit is not None and arguments.limit < 0:
        raise UsageError(f"--limit takes a number from 0, not {arguments.limit}")
    since = _moment(arguments.since, now, "--since") if arguments.since else 0.0
    until = _moment(arguments.until, now, "--until") if arguments.until else STILL_OPEN
    if since >= until:
        raise UsageError("--since must be before --until")
    return HistoryQuery(
        namespaces=namespaces,
        queue=arguments.queue or "",
        user=arguments.created_by or "",
        state=arguments.state or "",
        since=since,
        until=until,
    )


def _moment(text: str, now: float, option: str) -> float:
    """A time, or a duration before now."""
    days = _DAYS.fullmatch(text)
    if days is not None:
        return max(0.0, now - int(days[1]) * _DAY_S)
    try:
        return max(0.0, now - parse_duration(text) / NANOSECONDS)
    except ValueError:
        pass
    try:
        return parse_time(text)
    except InvalidObject:
        raise UsageError(
            f"{option} takes a time such as 2026-11-01 or 2026-11-01T12:00:00Z, or one ago such as "
            f"7d or 12h, not {text[:40]!r}"
        ) from None


def _read(file: Path, query: HistoryQuery, most: int) -> list[GangRun]:
    """The latest runs; all of them for 0."""
    found: list[GangRun] = []
    after = ""
    while True:
        left = most - len(found) if most else HISTORY_PAGE_MAX
        page = query_history(
            file,
            HistoryQuery(
                namespaces=query.namespaces, queue=query.queue, user=query.user, state=query.state,
                since=query.since, until=query.until, after=after,
                limit=min(left, HISTORY_PAGE_MAX),
            ),
        )  # fmt: skip
        found += page.runs
        after = page.after
        if not after:
            return found
        if most and len(found) >= most:
            print(
                f"gpusched: only the latest {most} runs are shown; --limit 0 shows all",
                file=sys.stderr,
            )
            return found


def _sorted(runs: list[GangRun], by: str | None) -> list[GangRun]:
    """Runs by what was asked for: by their ends unless said otherwise."""
    by = by or "ended"
    if by not in SORT_KEYS:
        raise UsageError(f"history is sorted by {', '.join(SORT_KEYS)}, not by {by}")
    return sorted(sorted(runs, key=SORT_KEYS["ended"]), key=SORT_KEYS[by])


def _print(arguments: argparse.Namespace, items: list[dict[str, Any]]) -> None:
    if arguments.output == "json":
        print_json({"apiVersion": "v1", "kind": "List", "items": items})
    elif arguments.output == "yaml":
        print_yaml({"apiVersion": "v1", "kind": "List", "items": items})
    elif arguments.output in ("csv", "parquet"):
        flat = [flat_item(item) for item in items]
        columns = SUM_COLUMNS if arguments.by else RUN_COLUMNS
        if arguments.output == "csv":
            sys.stdout.write(as_csv(flat, columns))
            return
        if sys.stdout.isatty():
            raise UsageError("-o parquet is no text: send it into a file, with > FILE")
        write_parquet(flat, columns, sys.stdout.buffer)
    elif items:
        rows = (
            sum_rows(items, arguments.by)
            if arguments.by
            else run_rows(
                items, wide=arguments.output == "wide", everywhere=arguments.all_namespaces
            )
        )
        print(table(rows))
    else:
        print("No gang has such a record.")
