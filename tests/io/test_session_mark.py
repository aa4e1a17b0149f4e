"""What a process died of is there for the next one, however it died."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from gpusched.api.meta.identity import GangKey
from gpusched.base import limits
from gpusched.io.cycle.crash_marker import CrashMarker
from gpusched.io.cycle.crash_recovery import begin_after_crashes
from gpusched.session.containment.set_aside import Containment
from gpusched.testing.given import Given

BAD = GangKey("PodGroup", "team", "bad")
PROGRAM = """
import os, signal, sys
from pathlib import Path
from gpusched.io.cycle.crash_marker import CrashMarker
from gpusched.api.meta.identity import GangKey
mark = CrashMarker.open(Path(sys.argv[1]))
mark.begin()
mark.mark_stage("allocate")
mark.mark_gang(GangKey("PodGroup", "team", "a-longer-name"))
mark.mark_gang(GangKey("PodGroup", "team", "bad"))
{ends}
"""


def lives(path, ends="os.kill(os.getpid(), signal.SIGKILL)"):
    """A process that ends in a session; its status."""
    program = PROGRAM.format(ends=ends)
    return subprocess.run([sys.executable, "-c", program, str(path)], check=False).returncode


@pytest.fixture
def path(tmp_path):
    """Where the file is; its folder is not there yet."""
    return tmp_path / "state" / "file"


@pytest.mark.parametrize(
    "ends", ["os.kill(os.getpid(), signal.SIGKILL)", "os._exit(70)", "os.abort()"]
)
def test_the_gang_in_hand_is_known_to_the_next(path, ends):
    """After SIGKILL, an end on the spot and a crash of native code."""
    assert lives(path, ends) != 0
    mark = CrashMarker.open(path)
    assert mark.memory.deaths == 1
    assert mark.death.hand == BAD
    assert mark.death.message == (
        "the last process died in a session, in allocate with gang PodGroup team/bad in hand"
    )
    mark.close()


@pytest.mark.parametrize(
    "ends", ["mark.close()", "mark.end(); os.kill(os.getpid(), signal.SIGKILL)"]
)
def test_who_ends_in_order_or_between_sessions_did_not_die_of_one(path, ends):
    """An end from outside is nobody's fault."""
    lives(path, ends)
    mark = CrashMarker.open(path)
    assert mark.death is None
    assert mark.memory.deaths == 0
    mark.close()


def test_a_fault_of_its_own_is_remembered(path):
    """What an orderly end because of a fault said is told by the next."""
    lives(path, "mark.mark_fault('InvariantBroken: told so'); mark.close()")
    mark = CrashMarker.open(path)
    assert mark.death.message.endswith("because of a fault of its own: InvariantBroken: told so")
    assert mark.memory.deaths == 1
    mark.close()


def test_two_processes_have_a_file_each(path):
    """The second does not take the living for dead."""
    first = CrashMarker.open(path)
    first.begin()
    second = CrashMarker.open(path)
    assert second.death is None
    second.close()
    first.close()


def test_a_file_that_cannot_be_used_costs_nothing_else(path, caplog):
    """It is said once, and there is no memory."""
    path.parent.write_text("a file where a folder should be")
    assert CrashMarker.open(path) is None
    assert "not remembered" in caplog.text


@pytest.mark.parametrize(
    "body", [b"", b"session\0", b"session\0" + b"\xff" * 20_000, os.urandom(999)]
)
def test_rubbish_in_the_file_is_survived(path, body):
    """Whatever is there, a mark opens and works."""
    path.parent.mkdir()
    path.write_bytes(body)
    mark = CrashMarker.open(path)
    mark.begin()
    mark.mark_gang(BAD)
    mark.end()
    mark.close()


def test_deaths_are_forgotten_after_a_while_of_full_sessions(path):
    """Not before, and not while something is left out."""
    lives(path)
    mark = CrashMarker.open(path)
    mark.record_success(0.0, full=True)
    mark.record_success(100.0, full=False)
    mark.record_success(100.0 + limits.CRASHES_FORGOTTEN_S, full=True)
    assert mark.memory.deaths == 1
    mark.record_success(101.0 + 2 * limits.CRASHES_FORGOTTEN_S, full=True)
    assert mark.memory.deaths == 0
    mark.close()
    again = CrashMarker.open(path)
    assert again.memory.deaths == 0
    again.close()


def test_a_gang_that_killed_two_is_set_aside_by_the_third(path):
    """One death may be anybody's; with two the gang waits until it changes."""
    for deaths in (1, 2):
        assert lives(path) == -signal.SIGKILL
        mark = CrashMarker.open(path)
        c = Given().nodes(2, gpus=8).gang("bad", pods=1, gpus=8, namespace="team")
        c.gang("good", pods=1, gpus=8)
        memory = c.containment
        told = begin_after_crashes(mark.memory, mark.death, memory, c.cache.take_snapshot(c.now))
        mark.close()
        assert told
        c.when.one_session()
        assert ("bad" in c.then.started()) == (deaths == 1)
        assert "good" in c.then.started()
    assert "set aside: PodGroup team/bad" in told
    assert "2 processes died with it in hand" in c.then.why("bad")
    assert c.decision.degraded is None


STEPS = [
    (1, ()),
    (2, ("evictions",)),
    (3, ("solver", "evictions")),
    (4, ("gangs together", "solver", "evictions")),
    (5, ("decisions", "gangs together", "solver", "evictions")),
    (9, ("decisions", "gangs together", "solver", "evictions")),
]


@pytest.mark.parametrize(("deaths", "off"), STEPS)
def test_deaths_that_no_gang_explains_make_sessions_plainer(path, deaths, off):
    """A step for each; in the end nothing is decided for a time, but the daemon stays."""
    for _ in range(deaths):
        lives(path, "mark.mark_stage('allocate'); os.kill(os.getpid(), signal.SIGKILL)")
        mark = CrashMarker.open(path)
        mark.close()
    memory = Containment()
    c = Given().nodes(1, gpus=8).gang("good", pods=1, gpus=8)
    c.containment = memory
    told = begin_after_crashes(mark.memory, mark.death, memory, c.cache.take_snapshot(c.now))
    c.when.one_session()
    assert (memory.degraded.mode.omitted_parts if memory.degraded else ()) == off
    assert c.then.started() == ([] if "decisions" in off else ["good"])
    for name in off:
        assert name in told
    c.now += limits.DEGRADED_RETRY_MAX_S + 1
    c.when.one_session()
    assert memory.degraded is None
    assert c.then.started() == ["good"]
