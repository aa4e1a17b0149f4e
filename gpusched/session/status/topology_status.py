"""Status of each Topology: its levels count, or it stands beside the one that does."""

from __future__ import annotations

from gpusched.session.framework.reasons import Reason, truncate_message
from gpusched.session.state.plan import PendingReason, TopologyStatus
from gpusched.session.state.session import Session

IN_USE_REASON = "InUse"
"""The reason of the condition Ready when it is true."""


def topology_statuses(session: Session) -> tuple[TopologyStatus, ...]:
    """The status of every Topology, sorted by name."""
    snapshot = session.snapshot
    found = session.cache.topology_verdicts(
        snapshot.nodes, snapshot.topologies, snapshot.devices.slices
    )
    return tuple(
        TopologyStatus(
            name=each.topology.name,
            uid=each.topology.uid,
            generation=each.topology.generation,
            is_ready=each.counts,
            ready=PendingReason(
                reason=IN_USE_REASON if each.counts else Reason.TOPOLOGY_CONFLICT,
                message=truncate_message(each.message),
            ),
            crossed=each.crossed,
            outside=each.outside,
        )
        for each in found
    )
