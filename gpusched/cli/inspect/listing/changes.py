"""``gpusched get -w``: list, print, and list again when the API tells of a change."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final

from gpusched.base.clock import SystemClock
from gpusched.base.errors import ApiError, ClusterUnreachable
from gpusched.cli.inspect.cluster_reader import get_object, value_at
from gpusched.cli.inspect.listing.printed_listing import (
    Listing,
    column_widths,
    print_changes,
    print_listing,
    print_notes,
)
from gpusched.io.client.api_client import ApiClient
from gpusched.io.client.watch_lines import WatchLineTooLong

_PAUSE_S: Final = 1.0
"""Between two listings, however much changes."""
_SETTLE_S: Final = 3.0
"""So long after the last change a listing is made once more: the daemon's view may tell it later than the API."""
_SILENCE_S: Final = 300.0
"""After so long without a word a stream is opened anew."""
_ALL: Final = "?limit=1"


async def follow(
    api: ApiClient,
    read: Callable[[ApiClient], Awaitable[Listing]],
    collections: Sequence[str],
    *,
    output: str | None,
    header: bool,
) -> None:
    """Print a listing, then its changes, until somebody stops it.

    Args:
        api: of the cluster.
        read: makes the listing.
        collections: paths whose objects the listing is made of.
        output: as for ``print_listing``.
        header: whether a table has titles.

    Raises:
        ApiError: what is listed may not be read.
        ClusterUnreachable: no cluster.
    """
    changed = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        for path in collections:
            begun = asyncio.Event()
            tasks.create_task(_tell_changes(api, path, changed, begun))
            await begun.wait()
        before = await read(api)
        print_listing(before, output, header=header)
        widths = column_widths(before)
        settled = True
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(None if settled else _SETTLE_S):
                    await changed.wait()
            settled = not changed.is_set()
            await SystemClock().sleep(_PAUSE_S)
            changed.clear()
            after = await read(api)
            print_notes([note for note in after.notes if note not in before.notes])
            print_changes(before, after, output, widths=widths)
            before = after


async def _tell_changes(
    api: ApiClient, path: str, changed: asyncio.Event, begun: asyncio.Event
) -> None:
    """Set the event at each change of a collection; one that cannot be watched is passed over."""
    try:
        while True:
            page = await get_object(api, f"{path}{_ALL}", what=path.rpartition("/")[2])
            if page is None:
                return  # the cluster does not know the kind
            begun.set()
            version = str(value_at(page, "metadata", "resourceVersion") or "0")
            with suppress(ClusterUnreachable, WatchLineTooLong):
                await _read_stream(api, path, version, changed)
            changed.set()  # what was missed between two streams is in the next listing
            await SystemClock().sleep(_PAUSE_S)
    except ApiError:
        return  # the listing says what may not be read
    finally:
        begun.set()


async def _read_stream(api: ApiClient, path: str, version: str, changed: asyncio.Event) -> None:
    query = {"watch": "1", "resourceVersion": version}
    async with api.stream(path, query=query, read_timeout_s=_SILENCE_S) as (status, lines):
        if status != 200:
            return
        async for line in lines:
            if json.loads(line).get("type") != "BOOKMARK":
                changed.set()
