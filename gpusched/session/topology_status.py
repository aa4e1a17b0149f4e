"""What each Topology is told: that its levels count, or that it stands beside the one that does."""

from __future__ import annotations

from gpusched.session.plan import Ask, TopologyStatus
from gpusched.session.reasons import Reason, cut
from gpusched.session.session import Session

IN_USE = "InUse"
"""The reason of the condition Ready when it is true."""


def topology_statuses(session: Session) -> tuple[TopologyStatus, ...]:
    """The status of every Topology, sorted by name."""
    snapshot = session.snapshot
    found = session.masks.verdicts(snapshot.nodes, snapshot.topologies)
    return tuple(
        TopologyStatus(
            name=each.topology.name,
            uid=each.topology.uid,
            generation=each.topology.generation,
            is_ready=each.counts,
            ready=Ask(
                reason=IN_USE if each.counts else Reason.TOPOLOGY_CONFLICT,
                sentence=cut(each.sentence),
            ),
            crossed=each.crossed,
            outside=each.outside,
        )
        for each in found
    )
