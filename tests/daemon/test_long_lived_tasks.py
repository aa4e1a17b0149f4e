"""Exceptions planted in what runs for as long as the daemon does: none of it ends the process."""

from __future__ import annotations

import pytest

from gpusched import limits
from gpusched.errors import InvariantBroken
from gpusched.io.adapters import Adapters
from gpusched.io.audit import Auditor
from gpusched.io.binder import Binder
from gpusched.io.carrier import Carrier
from gpusched.io.config_watch import ConfigWatch
from gpusched.io.events import EventWriter
from gpusched.io.evictor import Evictor
from gpusched.io.fair import Lines
from gpusched.io.feeds import KindSink
from gpusched.io.pace import Pace
from gpusched.io.reflector import Reflector
from gpusched.io.status import StatusWriter
from gpusched.io.status_stops import StopNotes
from tests.daemon.claims.conftest import priority
from tests.daemon.test_containment import Planted

pytestmark = pytest.mark.contains


class PlantedInvariant(InvariantBroken):
    """The same, as what our own bookkeeping raises."""


PLACES = [
    (Adapters, "_follow"),
    (Adapters, "_look"),
    (Auditor, "_look"),
    (Auditor, "_read"),
    (Auditor, "_stream"),
    (Binder, "_bind"),
    (Binder, "_evict"),
    (Binder, "_read_back"),
    (Carrier, "_answered"),
    (Carrier, "_carry"),
    (Carrier, "_evict"),
    (Carrier, "_promise"),
    (Carrier, "_switch"),
    (Carrier, "_tell"),
    (Carrier, "_unmark"),
    (ConfigWatch, "_look"),
    (EventWriter, "_put"),
    (EventWriter, "_send"),
    (EventWriter, "_work"),
    (EventWriter, "tell"),
    (Evictor, "_end"),
    (Evictor, "_evict"),
    (Evictor, "evict"),
    (KindSink, "fails"),
    (KindSink, "knows"),
    (Lines, "pop"),
    (Pace, "turn"),
    (Reflector, "page"),
    (StatusWriter, "_put"),
    (StatusWriter, "_request"),
    (StatusWriter, "_work"),
    (StatusWriter, "_write"),
    (StopNotes, "stopped"),
]


@pytest.mark.parametrize("place", PLACES, ids=lambda place: f"{place[0].__name__}.{place[1]}")
def test_no_task_that_raises_ends_the_daemon(play, monkeypatch, tmp_path, place):
    """Bindings, evictions, statuses, audits: the process stays, and all goes on when it works."""
    (owner, name), kind = place, (Planted if len(place[1]) % 2 else PlantedInvariant)
    monkeypatch.setattr(limits, "AUDIT_PERIOD_S", 15.0)
    monkeypatch.setattr(limits, "AUDIT_GRACE_S", 1.0)
    config = tmp_path / "config.yaml"
    config.write_text("schedulerNames: [gpusched]\n")

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


RARE = {(Binder, "_evict"), (Binder, "_read_back"), (Carrier, "_switch")}
"""What this story does not need; whoever adds to the story takes them out."""
