"""Decisions about devices are repeated from what was recorded of them."""

from __future__ import annotations

from gpusched.base.clock import SystemClock
from gpusched.config.model import DEFAULT
from gpusched.io.decisions.decision_file import DecisionInputs, pack_decision, read_decision
from gpusched.lab.recordings.replay import replay_decision
from tests.session.devices.conftest import exactly, gpu


def test_a_decision_about_devices_is_repeated(given, devices, tmp_path):
    """What devices have beside what is written of them, such as their schema and a hash, is worked out again."""
    given.nodes(2)
    for node in ("node-0", "node-1"):
        of_80_gib = {"memory": {"value": "80Gi"}}
        devices.on_node(node, [gpu(number, capacity=of_80_gib) for number in range(2)])
    devices.template("one", exactly("r", "gpu"))
    devices.gang("starts", 3, template="one")
    devices.gang("waits", 2, template="one")
    plan = given.when.one_session()
    path = tmp_path / "devices.decision.gz"
    path.write_bytes(pack_decision(DecisionInputs(snapshot=given.snapshot, config=DEFAULT), plan))
    again = replay_decision(read_decision(path), clock=SystemClock())
    assert given.then.started() == ["starts"]
    assert again.identical, [str(each) for each in again.differences]
