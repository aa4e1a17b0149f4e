"""Scripts as files, and runs that never end."""

from __future__ import annotations

import asyncio
import logging

import pytest

from gpusched.base.errors import ConfigError
from gpusched.lab.chaos.daemons import DaemonFleet
from gpusched.lab.chaos.play import TURNS_MAX, play_script
from gpusched.lab.chaos.scripts.generator import draw_script
from gpusched.lab.chaos.scripts.script import ChaosScript, ScriptStep, read_script


@pytest.fixture(autouse=True)
def silent():
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_a_bare_on_is_an_occasion_and_not_the_truth_of_yaml(tmp_path):
    path = tmp_path / "script.yaml"
    path.write_text("steps:\n- {at: 2, do: unnode, name: it, on: binding, nth: 3}\n")

    script = read_script(path)

    assert script.steps[0].args == {"name": "it", "on": "binding", "nth": 3}


def test_a_script_is_read_as_it_was_written(tmp_path):
    path = tmp_path / "script.yaml"
    script = draw_script(3)
    path.write_text(script.text())

    assert read_script(path) == script


def test_the_time_until_broken_gangs_are_stopped_is_read_as_it_was_written(tmp_path):
    path = tmp_path / "script.yaml"
    step = ScriptStep(at=1.0, do="start", args={"slot": 0})
    script = ChaosScript(seed=1, stale_after="never", steps=(step,))
    path.write_text(script.text())

    assert read_script(path) == script


def test_a_time_that_is_none_is_told(tmp_path):
    path = tmp_path / "script.yaml"
    path.write_text("stale_after: soon\nsteps: []\n")

    with pytest.raises(ConfigError, match="stale_after is 'soon'; never and durations"):
        read_script(path)


def test_a_run_in_which_time_stands_still_ends(monkeypatch):
    """Two tasks wake one another for ever, and no timer is ever due."""

    def spin(_fleet, _slot):
        async def turn():
            while True:  # noqa: ASYNC110 - to spin is what it is for
                await asyncio.sleep(0)

        tasks.append(asyncio.get_running_loop().create_task(turn()))

    tasks = []
    monkeypatch.setattr(DaemonFleet, "start", spin)

    run = play_script(
        ChaosScript(seed=0, steps=(ScriptStep(at=1.0, do="start", args={"slot": 0}),))
    )

    assert [str(each.finding) for each in run.seen] == [
        f"I10: {TURNS_MAX} turns of the loop, and time does not move"
    ]
