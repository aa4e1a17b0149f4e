"""Statuses are written for the version that was read: what a paused leader sends late is refused."""

from __future__ import annotations

import json
from types import SimpleNamespace

from gpusched.api.meta.identity import UID, ObjectKey, ResourceVersion
from gpusched.api.policy.kinds import Topology
from gpusched.io.write.status.object_writes import TopologyWrite
from gpusched.io.write.status.status_request import WrittenStatus
from gpusched.session.framework.reasons import Reason
from gpusched.session.state.plan import PendingReason, TopologyStatus


def _written_version(written: WrittenStatus | None) -> str:
    """The version that a write of a topology demands, which the API shows as version 5."""
    topology = Topology(
        name="t", uid=UID("u"), resource_version=ResourceVersion("5"), generation=1, levels=(),
        status=b"{}",
    )  # fmt: skip
    cache = SimpleNamespace(topologies=SimpleNamespace(items={ObjectKey("", "t"): topology}))
    reason = PendingReason(reason=Reason.TOPOLOGY_CONFLICT, message="m")
    status = TopologyStatus(name="t", uid=UID("u"), generation=1, is_ready=False, ready=reason)
    request = TopologyWrite(status).request(cache, written, now=0.0)
    assert request is not None
    assert request.seen == "5"
    return json.loads(request.body)["metadata"]["resourceVersion"]


def test_the_status_of_a_topology_is_written_for_the_version_that_was_read() -> None:
    assert _written_version(None) == "5"


def test_after_our_own_write_it_is_the_version_that_this_left() -> None:
    written = WrittenStatus(seen=ResourceVersion("5"), status=b"{}", version="6")
    assert _written_version(written) == "6"
