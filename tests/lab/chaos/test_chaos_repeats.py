"""The same seed gives the same run, a script is what it was written from, and failures shrink."""

from __future__ import annotations

import os
import subprocess
import sys

import attrs
import pytest

from gpusched.base.errors import ConfigError
from gpusched.lab.chaos import campaign
from gpusched.lab.chaos.invariant_checker import TimedFinding
from gpusched.lab.chaos.play import ChaosRun, play_script
from gpusched.lab.chaos.scripts.generator import draw_script
from gpusched.lab.chaos.scripts.script import ChaosScript, ScriptStep, read_script
from gpusched.lab.chaos.scripts.shrink import shrink_script
from gpusched.testing.invariants import Finding

SEEDS = (37, 159)
_DIGESTS = f"""
import logging
from gpusched.lab.chaos.scripts.generator import draw_script
from gpusched.lab.chaos.play import play_script
logging.disable(logging.CRITICAL)
print(*(play_script(draw_script(seed)).digest for seed in {SEEDS}))
"""


def test_a_seed_gives_the_same_writes_whatever_the_hash_seed():
    """In a process with another hash seed, and in this one, whatever ran here before."""
    hashes = "1" if os.environ.get("PYTHONHASHSEED") == "77" else "77"
    said = subprocess.run(
        [sys.executable, "-c", _DIGESTS],
        env={**os.environ, "PYTHONHASHSEED": hashes},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert said.split() == [play_script(draw_script(seed)).digest for seed in SEEDS]


def test_a_script_that_was_written_and_read_is_the_same(tmp_path):
    file = tmp_path / "script.yaml"
    for seed in range(50):
        script = draw_script(seed)
        file.write_text(script.text())
        assert read_script(file) == script


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("steps: 1", "it needs a mapping with seed and steps"),
        ("{seed: 1, steps: [], colour: red}", "colour is no known key"),
        ("steps: [{at: 1, do: dance}]", "step 1 needs at, and do as one of"),
        ("steps: [", "is no script"),
    ],
)
def test_a_bad_script_gets_one_sentence(tmp_path, text, why):
    file = tmp_path / "script.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=why):
        read_script(file)


def step(number):
    """A step that can be told from others."""
    return ScriptStep(at=float(number), do="unnode", args={"name": f"n{number}"})


def test_what_is_needed_is_all_that_is_left():
    script = ChaosScript(seed=1, steps=tuple(map(step, range(20))), latency=(0.1, 0.2))

    def fails(each):
        names = {one.args["name"] for one in each.steps}
        return {"n3", "n17"} <= names

    found = shrink_script(script, fails)
    assert found.steps == (step(3), step(17))
    assert found.latency == (0.0, 0.0)


def test_a_failure_that_shrinks_stays_the_same_failure(monkeypatch):
    """A shorter script that fails in another way does not count."""

    def fake(script, config=None):
        del config
        names = {one.args["name"] for one in script.steps}
        found = [("I2", "slot 1 of node n1 has two")] if {"n3", "n5"} <= names else []
        found += [("I3", "another")] if len(names) < 3 else []
        seen = tuple(
            TimedFinding(at=0.0, finding=Finding(invariant=one, kind="", name="", sentence=text))
            for one, text in found
        )
        return ChaosRun(script=script, seen=seen, digest="", writes=0, virtual_s=0.0, counts={})

    monkeypatch.setattr(campaign, "play_or_report", fake)
    failed = fake(ChaosScript(seed=1, steps=tuple(map(step, range(9)))))
    assert campaign.shortest_script(failed).steps == (step(3), step(5))


def test_a_broken_simulation_is_a_finding_and_ends_nothing(monkeypatch):
    def broken(*_args, **_how):
        raise ZeroDivisionError("made by the test")

    monkeypatch.setattr(campaign, "play_script", broken)
    (seen,) = campaign.play_seed(1).seen
    assert "ZeroDivisionError: made by the test" in seen.finding.sentence


def test_two_daemons_are_two_in_the_script():
    script = attrs.evolve(draw_script(0), daemons=2)
    assert play_script(script).counts["starts"] >= 2
