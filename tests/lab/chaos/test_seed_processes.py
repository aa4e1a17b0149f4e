"""Seeds that are played in processes: one that is lost, and a Ctrl-C that all of them get."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpusched.lab.chaos.campaign import play_seed, run_campaign
from gpusched.lab.chaos.play import ChaosRun
from gpusched.lab.chaos.scripts.generator import draw_script
from gpusched.lab.chaos.seed_processes import SeedProcesses

FATAL = 3


def run_of(seed: int, digest: str = "") -> ChaosRun:
    return ChaosRun(
        script=draw_script(seed), seen=(), digest=digest, writes=0, virtual_s=0.0, counts={}
    )


def play_but_one(seed: int) -> ChaosRun:
    """One seed is the end of the process."""
    if seed == FATAL:
        os.kill(os.getpid(), signal.SIGKILL)
    return run_of(seed, digest=f"played {seed}")


def test_the_others_are_played_when_a_process_is_lost():
    """Its seed is told as not played; nobody waits for it, and all come in their order."""
    processes = SeedProcesses(2, play_but_one, run_of)
    try:
        runs = list(processes.play(range(6)))
    finally:
        processes.close()
    told = [each.digest for each in runs]
    assert told[:FATAL] == ["played 0", "played 1", "played 2"]
    assert told[FATAL] == "was ended by SIGKILL, as the kernel does where memory is short"
    assert told[FATAL + 1 :] == ["played 4", "played 5"]


def test_a_seed_comes_to_the_same_in_another_process():
    """What is told of a campaign does not depend on how many play it."""
    told: list[ChaosRun] = []
    assert list(run_campaign([0], jobs=2, tell=told.append)) == []
    assert [each.digest for each in told] == [play_seed(0).digest]


@pytest.mark.parametrize("signalled", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_campaign_says_how_far_it_came(signalled):
    """130, a sentence, and not a word of its processes, which a terminal signals, too."""
    words = ["chaos", "--jobs", "2", "--seeds", "0-999999"]
    call = [sys.executable, "-m", "gpusched.cli.main", *words]
    with subprocess.Popen(
        call, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        while len(children.read_text().split()) < 3:  # two that play, and the resource tracker
            assert process.poll() is None, "it ended by itself"
            time.sleep(0.05)
        if signalled == signal.SIGINT:
            os.killpg(process.pid, signalled)
        else:
            process.send_signal(signalled)
        said, complained = process.communicate()
    assert process.returncode == 130
    assert complained.startswith("interrupted: ")
    assert complained.endswith(" of 1,000,000 seeds were played\n")
    assert "Traceback" not in complained
    assert " runs, " in said
