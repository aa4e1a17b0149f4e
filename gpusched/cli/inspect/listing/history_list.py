"""``gpusched get history``: what became of gangs, as ``sacct`` answers, from the daemon or from its file."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Any, Final

import attrs

from gpusched.api.meta.duration import NANOSECONDS, parse_duration
from gpusched.api.meta.identity import InvalidObject, format_time, parse_time
from gpusched.base.clock import SystemClock
from gpusched.base.errors import GpuschedError, UsageError
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
from gpusched.config.model import LeaderElectionConfig
from gpusched.io.client.api_client import ApiClient
from gpusched.io.history.gang_run import STILL_OPEN
from gpusched.io.history.history_query import SUM_KEYS, HistoryQuery, query_history, sum_history
from gpusched.io.history.past_runs import run_as_json, sum_as_json
from gpusched.io.serve.view_client import NotServed, NoView, ViewClient, find_view

FORMATS: Final = ("csv", "parquet")
"""Of ``-o``, which no other kind has."""
_SHOWN: Final = 500
_SERVED_PAGE: Final = 1_000
_DAY_S: Final = 86_400
_DAYS: Final = re.compile(r"(\d{1,5})d")
_OPTIONS: Final = ("file", "queue", "created_by", "since", "until", "state", "by", "limit")


_Json = dict[str, Any]


class NoHistoryView(GpuschedError):
    """The daemon cannot be asked; the sentence says why, and what can be read in its place."""

    exit_status = 69


class NoHistory(GpuschedError):
    """The daemon answers that it keeps no history, or shows none: its configuration says so."""

    exit_status = 78


def add_history_options(parser: argparse.ArgumentParser) -> None:
    """Options of ``get`` that only ``history`` has."""
    own = parser.add_argument_group("of history")
    own.add_argument(
        "--file",
        metavar="F",
        help="which the daemon writes (default: what the daemon serves)",
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
        ClusterUnreachable: no cluster.
        NoHistory: the daemon keeps none.
        NoHistoryView: it cannot be asked.
    """
    now = SystemClock().now()
    query, most = _query(arguments, now), _run_limit(arguments)
    if arguments.sort_by is not None and arguments.sort_by not in SORT_KEYS:
        raise UsageError(f"history is sorted by {', '.join(SORT_KEYS)}, not by {arguments.sort_by}")
    if arguments.file:
        items, more = read_history_file(Path(arguments.file), query, arguments.by, most, now)
    else:
        election = cluster_reader.configuration(arguments.config).leader_election
        items, more = cluster_reader.with_cluster(
            connection_choice(arguments),
            lambda api: read_served_history(api, election, query, arguments.by, most),
        )
    if more:
        print(
            f"gpusched: only the latest {most} runs are shown; --limit 0 shows all", file=sys.stderr
        )
    if not arguments.by:
        items = sorted(items, key=SORT_KEYS["ended"])
        items = sorted(items, key=SORT_KEYS[arguments.sort_by or "ended"])
    _print(arguments, items)
    return 0


def _run_limit(arguments: argparse.Namespace) -> int:
    """How many runs are shown; 0 for all."""
    if arguments.limit is None:
        return _SHOWN
    if arguments.limit < 0:
        raise UsageError(f"--limit takes a number from 0, not {arguments.limit}")
    return int(arguments.limit)


def read_history_file(
    file: Path, query: HistoryQuery, by: str | None, most: int, now: float
) -> tuple[list[_Json], bool]:
    """Items from the file, and whether there are more."""
    if by:
        return [sum_as_json(each, by) for each in sum_history(file, query, by, now)], False
    found: list[_Json] = []
    while True:
        left = min(most - len(found), HISTORY_PAGE_MAX) if most else HISTORY_PAGE_MAX
        page = query_history(file, attrs.evolve(query, limit=left))
        found += [run_as_json(run, now) for run in page.runs]
        if not page.after or (most and len(found) >= most):
            return found, bool(page.after)
        query = attrs.evolve(query, after=page.after)


async def read_served_history(
    api: ApiClient, election: LeaderElectionConfig, query: HistoryQuery, by: str | None, most: int
) -> tuple[list[_Json], bool]:
    """Items that the daemon shows this user, and whether there are more.

    Raises:
        NoHistory: it keeps none.
        NoHistoryView: it cannot be asked.
    """
    asked = {
        "namespace": query.namespaces[0] if query.namespaces else "", "queue": query.queue,
        "state": query.state, "since": _as_time(query.since),
        "until": _as_time(query.until) if query.until < STILL_OPEN else "", "by": by or "",
    }  # fmt: skip
    asked = {name: value for name, value in asked.items() if value}
    found: list[_Json] = []
    try:
        route = await find_view(api, namespace=election.lease_namespace, lease=election.lease_name)
        async with ViewClient(route) as client:
            while True:
                left = min(most - len(found), _SERVED_PAGE) if most else _SERVED_PAGE
                page = await client.read("/v1/history", {**asked, "limit": str(left)})
                found += page["items"]
                after = str(page.get("continue") or "")
                if not after or (most and len(found) >= most):
                    return found, bool(after)
                asked["continue"] = after
    except NoView as error:
        kind = NoHistory if isinstance(error, NotServed) else NoHistoryView
        raise kind(f"{error}; --file FILE reads the file of gpusched run --history") from error


def _as_time(seconds: float) -> str:
    return format_time(seconds) if seconds else ""


def _query(arguments: argparse.Namespace, now: float) -> HistoryQuery:
    namespaces = None
    if not arguments.all_namespaces:
        name = arguments.namespace or cluster_reader.default_namespace(connection_choice(arguments))
        namespaces = (cluster_reader.checked_object_name(name, what="namespace"),)
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
