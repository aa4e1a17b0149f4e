"""What could not be read or taken in is read again although it does not change, whatever its kind."""

from __future__ import annotations

import pytest

from gpusched.cache.cache import Cache
from tests.daemon.containment.test_containment import Planted
from tests.daemon.tenants.test_tenant_queues import queue

pytestmark = pytest.mark.contains
ABOUT = {
    "PodGroup": (Cache, "put_group"),
    "Queue": (Cache, "put_queue"),
    "Job": (Cache, "put_job"),
    "PriorityClass": (Cache, "put_priority"),
}


@pytest.mark.parametrize("kind", ABOUT)
def test_objects_that_failed_are_read_again_by_the_next_audit(play, monkeypatch, tmp_path, kind):
    """The fault passes, nothing changes, and within two audits the gang runs."""
    config = tmp_path / "config.yaml"
    config.write_text("limits: {auditPeriod: 60s}\n")
    owner, name = ABOUT[kind]
    original = getattr(owner, name)
    wrong = [True]

    def broken(self, key, item):
        if wrong and key.name == "bad":
            raise Planted(name)
        original(self, key, item)

    monkeypatch.setattr(owner, name, broken)

    async def scenario(w):
        await w.start(nodes=1)
        daemon = w.daemon(config_file=str(config))
        await w.until(lambda: daemon.leading)
        if kind == "Queue":
            queue(w, "bad")
            w.group("mine", minMember=1, queue="bad")
            w.job("mine", 1, group="mine")
        elif kind == "Job":
            w.job("bad", 1, queue="default", suspend=True)
        else:
            w.gang("bad", 1)
        await w.clock.sleep(5)
        if kind != "PriorityClass":
            assert not w.running()
        wrong.clear()
        await w.until(w.running, within=200)
        assert not daemon.task.done()

    play(scenario)
