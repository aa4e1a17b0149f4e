"""Scripts as files, and runs that never end."""

from __future__ import annotations

import asyncio
import logging

import pytest

from gpusched.chaos.draw import draw
from gpusched.chaos.fleet import Fleet
from gpusched.chaos.play import TURNS_MAX, play
from gpusched.chaos.script import Script, Step, read
from gpusched.errors import ConfigError


@pytest.fixture(autouse=True)
def silent():
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_a_bare_on_is_an_occasion_and_not_the_truth_of_yaml(tmp_path):
    path = tmp_path / "script.yaml"
    path.write_text("steps:\n- {at: 2, do: unnode, name: it, on: binding, nth: 3}\n")

    script = read(path)

    assert script.steps[0].args == {"name": "it", "on": "binding", "nth": 3}


def test_a_script_is_read_as_it_was_written(tmp_path):
    path = tmp_path / "script.yaml"
    script = draw(3)
    path.write_text(script.text())

    assert read(path) == script


def test_the_time_until_broken_gangs_are_stopped_is_read_as_it_was_written(tmp_path):
    path = tmp_path / "script.yaml"
    step = Step(at=1.0, do="start", args={"slot": 0})
    script = Script(seed=1, stale_after="never", steps=(step,))
    path.write_text(script.text())

    assert read(path) == script


def test_a_time_that_is_none_is_told(tmp_path):
    path = tmp_path / "script.yaml"
    path.write_text("stale_after: soon\nsteps: []\n")

    with pytest.raises(ConfigError, match="stale_after is 'soon'; never and durations"):
        read(path)


def test_a_run_in_which_time_stands_still_ends(monkeypatch):
    """Two tasks wake one another for ever, and no timer is ever due."""

    def spin(_fleet, _slot):
        async def turn():
            while True:  # noqa: ASYNC110 - to spin is what it is for
                await asyncio.sleep(0)

        tasks.append(asyncio.get_running_loop().create_task(turn()))

    tasks = []
    monkeypatch.setattr(Fleet, "start", spin)

    run = play(Script(seed=0, steps=(Step(at=1.0, do="start", args={"slot": 0}),)))

    assert [str(each.finding) for each in run.seen] == [
        f"I10: {TURNS_MAX} turns of the loop, and time does not move"
    ]
