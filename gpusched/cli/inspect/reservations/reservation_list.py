"""Reservations as the API shows them, with the status that a daemon wrote, as lines of a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpusched.cli.command import clean_cell
from gpusched.cli.inspect.cluster_reader import (
    GROUP_PATH,
    Json,
    items_at,
    list_objects,
    value_at,
)
from gpusched.cli.inspect.listing.view_table import age_text
from gpusched.io.client.api_client import ApiClient


async def list_reservations(api: ApiClient, selector: str = "") -> list[Json]:
    """All Reservations by name.

    Raises:
        NotFound: the cluster does not know the kind.
    """
    query = {"labelSelector": selector} if selector else {}
    items = await list_objects(api, f"{GROUP_PATH}/reservations", what="reservations", query=query)
    return sorted(items, key=lambda item: str(value_at(item, "metadata", "name")))


def reservation_rows(items: Sequence[Json], now: float, *, wide: bool) -> list[list[str]]:
    """A header and a line for each Reservation.

    Args:
        items: as the API has them.
        now: seconds since the epoch.
        wide: with the names of their nodes and the daemon's sentence.
    """
    header = ["NAME", "PURPOSE", "PHASE", "FROM", "TO", "NODES", "FOR", "GANGS", "AGE"]
    rows = [header + (["NODENAMES", "MESSAGE"] if wide else [])]
    for item in items:
        row = [
            value_at(item, "metadata", "name"),
            value_at(item, "spec", "purpose") or "Reserved",
            value_at(item, "status", "phase"),
            value_at(item, "status", "from"),
            value_at(item, "status", "to"),
            value_at(item, "status", "nodeCount"),
            ",".join(users_of(item)),
            value_at(item, "status", "gangsInTheWay"),
            age_text(str(value_at(item, "metadata", "creationTimestamp") or ""), now),
        ]
        if wide:
            row += [",".join(nodes_of(item)), ready_condition(item).get("message")]
        rows.append([clean_cell(cell) for cell in row])
    return rows


def users_of(item: Json) -> list[str]:
    """Queues and namespaces that may use its nodes."""
    lists = [value_at(item, "spec", kind) for kind in ("queues", "namespaces")]
    return [str(name) for names in lists if isinstance(names, list) for name in names]


def nodes_of(item: Json) -> list[str]:
    """Nodes that it keeps, as its status says."""
    nodes = value_at(item, "status", "nodes")
    return [str(node) for node in nodes] if isinstance(nodes, list) else []


def ready_condition(item: Json) -> dict[str, Any]:
    """Its condition Ready; empty while nobody wrote it."""
    found = items_at(item, "status", "conditions")
    return next((each for each in found if each.get("type") == "Ready"), {})
