"""``/v1/history``: the daemon's file, asked by the process that serves the view, within a user's rights."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from gpusched.api.meta.identity import InvalidObject, parse_time
from gpusched.base.clock import Clock
from gpusched.base.errors import UsageError
from gpusched.io.history.gang_run import STILL_OPEN
from gpusched.io.history.history_query import (
    HistoryQuery,
    history_namespaces,
    query_history,
    sum_history,
)
from gpusched.io.history.history_store import HistoryUnavailable
from gpusched.io.history.past_runs import run_as_json, sum_as_json
from gpusched.io.serve.reviews import AccessRefused
from gpusched.view.access import ViewAccess

T = TypeVar("T")

PARAMETERS: Final = (
    "namespace", "queue", "user", "state", "since", "until", "by", "limit", "continue",
)  # fmt: skip
_AT_ONCE_MAX: Final = 2


class ServedHistory:
    """See the module.

    Args:
        file: of the daemon; empty where it keeps none.
        clock: time.
    """

    def __init__(self, file: str, clock: Clock) -> None:
        self._file = Path(file) if file else None
        self._clock = clock
        self._at_once = asyncio.Semaphore(_AT_ONCE_MAX)

    async def namespaces(self) -> tuple[str, ...]:
        """Namespaces that a user may have to be asked about; none where there is no history."""
        if self._file is None:
            return ()
        return await self._ask(partial(history_namespaces, self._file))

    async def answer(
        self, query: Mapping[str, str], limit: int, access: ViewAccess
    ) -> dict[str, Any]:
        """A page of runs, or sums.

        Raises:
            AccessRefused: the question means nothing, or there is no history.
        """
        file, now = self._file, self._clock.now()
        if file is None:
            raise AccessRefused(
                404,
                "NotFound",
                "this daemon keeps no history: gpusched run --history FILE keeps one",
            )
        wanted = HistoryQuery(
            namespaces=_namespaces(query.get("namespace", ""), access),
            queue=query.get("queue", ""),
            user=query.get("user", ""),
            state=query.get("state", ""),
            since=_time(query, "since") or 0.0,
            until=_time(query, "until") or STILL_OPEN,
            limit=limit,
            after=query.get("continue", ""),
        )
        by = query.get("by", "")
        if by:
            sums = await self._ask(partial(sum_history, file, wanted, by, now))
            return {"kind": "HistorySumList", "items": [sum_as_json(each, by) for each in sums]}
        page = await self._ask(partial(query_history, file, wanted))
        items = [_without_foreign_claimant(run_as_json(run, now), access) for run in page.runs]
        return {"kind": "HistoryList", "continue": page.after, "items": items}

    async def _ask(self, question: Callable[[], T]) -> T:
        try:
            async with self._at_once:
                return await asyncio.to_thread(question)
        except HistoryUnavailable as error:
            raise AccessRefused(
                503,
                "ServiceUnavailable",
                "the history cannot be read now; the daemon's log says why",
            ) from error
        except UsageError as error:
            raise AccessRefused(400, "BadRequest", str(error)) from error


def _without_foreign_claimant(item: dict[str, Any], access: ViewAccess) -> dict[str, Any]:
    """A run that does not name for whom it ended, where that is in a namespace that may not be seen."""
    kind, _, name = str(item["endedBy"]).partition(" ")
    namespace, slash, _ = name.partition("/")
    if slash and not access.sees_namespace(namespace):
        item["endedBy"] = f"{kind} of another namespace"
    return item


def _namespaces(named: str, access: ViewAccess) -> tuple[str, ...] | None:
    if named:
        if not access.sees_namespace(named):
            raise AccessRefused(
                403, "Forbidden",
                f"what became of gangs of namespace {named} may be seen by who may list its pods",
            )  # fmt: skip
        return (named,)
    return None if access.namespaces is None else tuple(sorted(access.namespaces))


def _time(query: Mapping[str, str], name: str) -> float:
    try:
        return parse_time(query.get(name, ""))
    except InvalidObject as error:
        raise AccessRefused(400, "BadRequest", f"{name}: {error}") from error
