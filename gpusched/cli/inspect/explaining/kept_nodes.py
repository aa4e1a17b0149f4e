"""Windows of Reservations into which a gang runs: what becomes of it when they begin."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from gpusched.base.errors import Denied, NotFound
from gpusched.cli.inspect.cluster_reader import GROUP_PATH, Json, list_objects, value_at
from gpusched.cli.inspect.explaining.explanation import printable_line
from gpusched.cli.inspect.reservations.reservation_list import list_reservations, nodes_of
from gpusched.io.client.api_client import ApiClient
from gpusched.view.model import RUNNING, STARTING, GangView

_NAMED_MAX: Final = 4
_NOT_MOVED: Final = ("0", "0s")


async def read_kept_nodes(api: ApiClient, gangs: Sequence[GangView]) -> tuple[str, ...]:
    """One sentence for each gang whose nodes are kept for others before it is to have ended.

    Args:
        api: of the cluster; where its Reservations may not be read, nothing is told.
        gangs: that wait or run.
    """
    running = [each for each in gangs if each.state in (STARTING, RUNNING) and each.preemptible]
    if not running:
        return ()
    try:
        reservations = await list_reservations(api)
        queues = (
            await list_objects(api, f"{GROUP_PATH}/queues", what="queues") if reservations else []
        )
    except (Denied, NotFound):
        return ()
    parents = {
        str(value_at(each, "metadata", "name")): str(value_at(each, "spec", "parent") or "")
        for each in queues
    }
    return tuple(
        dict.fromkeys(
            text
            for gang in running
            if (text := min(_windows(gang, reservations, parents), default=("", ""))[1])
        )
    )


def _windows(
    gang: GangView, reservations: Sequence[Json], parents: dict[str, str]
) -> Iterator[tuple[str, str]]:
    """When each window begins that it runs into, and the sentence about it."""
    path = set(_path(gang.queue, parents))
    for each in reservations:
        spec, begins = each.get("spec"), str(value_at(each, "status", "from") or "")
        if not isinstance(spec, dict) or value_at(each, "status", "phase") != "Announced":
            continue
        nodes = sorted({*nodes_of(each)} & {*gang.nodes})
        may_stay = (
            not nodes
            or spec.get("atStart") == "Leave"
            or not path.isdisjoint(_names(spec.get("queues")))
            or gang.metadata.namespace in _names(spec.get("namespaces"))
            or (gang.expected_end_time and gang.expected_end_time <= begins)
        )
        if not may_stay:
            yield begins, _sentence(each, spec, nodes, begins)


def _sentence(item: Json, spec: Json, nodes: Sequence[str], begins: str) -> str:
    name = printable_line(value_at(item, "metadata", "name"))
    is_repair = spec.get("purpose") == "Maintenance"
    is_moved = spec.get("moveBefore", "1h" if is_repair else "0s") not in _NOT_MOVED
    more = f" and {len(nodes) - _NAMED_MAX} more" if len(nodes) > _NAMED_MAX else ""
    return (
        f"{', '.join(nodes[:_NAMED_MAX])}{more} {'is' if len(nodes) == 1 else 'are'} kept by Reservation {name} "
        f"from {printable_line(begins)} on: it may be {'moved before, or ' if is_moved else ''}evicted then if it still runs"
    )


def _names(value: Any) -> list[str]:
    return [str(each) for each in value] if isinstance(value, list) else []


def _path(queue: str, parents: dict[str, str]) -> Iterator[str]:
    """The queue and those above it; queues in a ring once."""
    seen: set[str] = set()
    while queue and queue not in seen:
        seen.add(queue)
        yield queue
        queue = parents.get(queue, "")
