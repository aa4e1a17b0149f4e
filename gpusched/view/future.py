"""What is known of the time to come: ends of gangs that run, starts of gangs that wait."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gpusched.view.model import RUNNING, WAITING, GangView, ViewPart

EXPECTED: Final = "expected"
ENDS: Final = "running"


class SpanView(ViewPart, frozen=True, kw_only=True, rename={"begins": "from", "ends": "to"}):
    """A gang on the axis of time.

    Attributes:
        begins, ends: empty where they are not known.
        what: ``running``: it runs, and ends then if it keeps to what its author says;
            ``expected``: it waits, and is estimated to start then.
    """

    namespace: str
    kind: str
    name: str
    queue: str
    gpus: str
    nodes: tuple[str, ...] = ()
    begins: str
    ends: str
    what: str


def future_spans(gangs: Iterable[GangView]) -> list[SpanView]:
    """Spans of gangs that run and of those that wait with an estimate, by their beginning."""
    found = []
    for gang in gangs:
        waits = gang.state == WAITING and bool(gang.estimated_start_time)
        if not waits and gang.state != RUNNING:
            continue
        found.append(
            SpanView(
                namespace=gang.metadata.namespace,
                kind=gang.gang_kind,
                name=gang.metadata.name,
                queue=gang.queue,
                gpus=gang.gpus,
                nodes=gang.nodes,
                begins=gang.estimated_start_time if waits else gang.since,
                ends="" if waits else gang.expected_end_time,
                what=EXPECTED if waits else ENDS,
            )
        )
    return sorted(found, key=lambda span: (span.begins, span.namespace, span.name))
