"""Exceptions planted in what runs for as long as the daemon does: none of it ends the process."""

from __future__ import annotations

import pytest

from gpusched.base import limits
from gpusched.base.errors import InvariantBroken
from gpusched.io.cycle.config_watcher import ConfigWatcher
from gpusched.io.cycle.session_cycle import SessionCycle
from gpusched.io.observe.telemetry import BoundedNames
from gpusched.io.watch.cache_comparer import CacheComparer
from gpusched.io.watch.discovery import KindDiscovery
from gpusched.io.watch.informers import KindEventHandler
from gpusched.io.watch.reflector import Reflector
from gpusched.io.workers.rate_limiter import RateLimiter
from gpusched.io.workers.work_queue import FairQueue
from gpusched.io.write.binder import Binder
from gpusched.io.write.events.event_recorder import EventRecorder
from gpusched.io.write.events.eviction_events import EvictionEvents
from gpusched.io.write.evictor import Evictor
from gpusched.io.write.preemption_executor import PreemptionExecutor
from gpusched.io.write.status.status_queue import StatusQueue
from tests.daemon.claims.conftest import priority
from tests.daemon.containment.test_containment import Planted

pytestmark = pytest.mark.contains


class PlantedInvariant(InvariantBroken):
    """The same, as what our own bookkeeping raises."""


PLACES = [
    (KindDiscovery, "_follow_kinds"),
    (KindDiscovery, "_discover_kinds"),
    (CacheComparer, "_compare_kind"),
    (CacheComparer, "_read"),
    (CacheComparer, "_await_events"),
    (Binder, "_bind"),
    (Binder, "_evict"),
    (Binder, "_read_back"),
    (PreemptionExecutor, "_note_answer"),
    (PreemptionExecutor, "_carry_out"),
    (PreemptionExecutor, "_evict"),
    (PreemptionExecutor, "_nominate_pods"),
    (PreemptionExecutor, "_switch_jobs"),
    (PreemptionExecutor, "_evict_victims"),
    (PreemptionExecutor, "_unmark_leaving"),
    (BoundedNames, "__call__"),
    (SessionCycle, "_pause_for_more"),
    (ConfigWatcher, "_look_at_file"),
    (EventRecorder, "_put_in_queue"),
    (EventRecorder, "_send_event"),
    (EventRecorder, "_tell_events"),
    (EventRecorder, "record"),
    (Evictor, "_end"),
    (Evictor, "_evict"),
    (Evictor, "evict"),
    (KindEventHandler, "fails"),
    (KindEventHandler, "knows"),
    (FairQueue, "pop"),
    (RateLimiter, "turn"),
    (Reflector, "page"),
    (StatusQueue, "_put_in_queue"),
    (StatusQueue, "_build_request"),
    (StatusQueue, "_write_status"),
    (StatusQueue, "_write"),
    (EvictionEvents, "stopped"),
]


@pytest.mark.parametrize("place", PLACES, ids=lambda place: f"{place[0].__name__}.{place[1]}")
def test_no_task_that_raises_ends_the_daemon(play, monkeypatch, tmp_path, place):
    """Bindings, evictions, statuses, audits: the process stays, and all goes on when it works."""
    (owner, name), kind = place, (Planted if len(place[1]) % 2 else PlantedInvariant)
    monkeypatch.setattr(limits, "COMPARE_GRACE_S", 1.0)
    config = tmp_path / "config.yaml"
    config.write_text("limits: {auditPeriod: 15s}\n")

    async def scenario(w):
        await w.start(nodes=1)
        priority(w, "high", 1000)
        fired, wrong = [], []
        original = getattr(owner, name)

        def broken(*args, **how):
            if not wrong:
                return original(*args, **how)
            fired.append(name)
            raise kind(name)

        # Before the daemon begins: some are handed to their pools then.
        monkeypatch.setattr(owner, name, broken)
        daemon = w.daemon(config_file=str(config))
        w.gang("victim", 1)
        await w.until(lambda: w.running("victim"))
        wrong.append(True)
        w.group("urgent", minMember=1, priorityClassName="high")
        w.job("urgent", 1, group="urgent")
        await w.clock.sleep(5)
        w.node("another")
        w.gang("small", 1)
        await w.clock.sleep(40)
        assert not daemon.task.done()
        assert daemon.leading
        wrong.clear()
        assert len(fired) < 3000, "it spins"
        w.node("third")
        w.node("fourth")
        w.gang("after", 1)
        await w.until(lambda: w.running("after"), within=300)
        assert not daemon.task.done()
        assert fired or (owner, name) in RARE

    play(scenario)


RARE = {(Binder, "_evict"), (Binder, "_read_back"), (PreemptionExecutor, "_switch_jobs")}
"""What this story does not need; whoever adds to the story takes them out."""
