"""Snapshots, configurations and scenarios of version 0.1.0 are read as they were then."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from gpusched.cli.main import main
from gpusched.config.load import load_file
from gpusched.engine.from_snapshot import start_from_snapshot
from gpusched.io.recordings.snapshot_file import read_snapshot
from gpusched.lab.scenario.expansion.moments import unroll_timeline
from gpusched.lab.scenario.file.read import read_path
from gpusched.lab.scenario.model.scenario import ApplyAct, Scenario

OLD = Path(__file__).with_name("0.1.0")
SNAPSHOTS = sorted(OLD.glob("snapshots/*.snapshot.gz"))
OUTSIDE = OLD / "configurations" / "outside"
"""Configurations with plugins of others, which are not installed here."""
CONFIGURATIONS = sorted(
    path
    for path in OLD.glob("configurations/**/*.yaml")
    if path.name != "gpu-layouts.yaml" and path.parent != OUTSIDE
)
SCENARIOS = sorted(
    path
    for pattern in ("library/*.yaml", "experiments/*.yaml", "first-gang", "*.yaml")
    for path in OLD.glob(f"scenarios/{pattern}")
)
DRAWN: dict[str, str] = json.loads((OLD / "scenarios" / "drawn.json").read_text())
"""Of each scenario, a sum of all that its timeline did in 0.1.0."""


def name_of(path: Path) -> str:
    return str(path.relative_to(OLD)).partition("/")[2].partition(".")[0]


# -- snapshots -----------------------------------------------------------------------------------
@pytest.mark.parametrize("path", SNAPSHOTS, ids=name_of)
def test_an_old_snapshot_is_read(path: Path) -> None:
    """With each of its objects."""
    snapshot = read_snapshot(path)
    assert snapshot.recorder == "0.1.0"
    assert snapshot.anonymized == (path.name == "anonymized.snapshot.gz")
    counts = {name: len(items) for name, items in snapshot.objects.items() if items}
    assert counts == {
        "namespaces": 5,
        "priorityclasses.scheduling.k8s.io": 5,
        "queues.scheduling.gpusched.io": 11,
        "topologies.scheduling.gpusched.io": 1,
        "nodes": 16,
        "podgroups.scheduling.gpusched.io": 3,
        "jobs.batch": 12,
        "pods": 35,
    }
    assert len(start_from_snapshot(snapshot).objects) == 88


def test_an_old_snapshot_is_simulated(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Half an hour from it, with today's decisions: the queue lab gets its share at once.

    0.1.0 let its gang wait for 241 s longer beside a queue that held 4 GPUs more than its share, and let work
    of before the snapshot survive an eviction.
    """
    monkeypatch.chdir(OLD / "snapshots")
    asked = ["simulate", "--snapshot", "cluster.snapshot.gz", "--for", "30m"]
    assert main([*asked, "--assume-duration", "10m"]) == 0
    assert capsys.readouterr().out == Path("cluster.simulated.txt").read_text()


# -- configurations ------------------------------------------------------------------------------
@pytest.mark.parametrize("path", CONFIGURATIONS, ids=name_of)
def test_an_old_configuration_is_good(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The daemon would start with it; a word that has another name by now is a warning at most."""
    assert main(["check-config", str(path)]) == 0
    assert "is good; the daemon would run:" in capsys.readouterr().out


@pytest.mark.parametrize("path", sorted(OUTSIDE.glob("*.yaml")), ids=name_of)
def test_an_old_configuration_with_plugins_of_others_is_read(path: Path) -> None:
    """Whether they are installed is another question."""
    config = load_file(str(path))
    assert "burstcap" in [each.name for tier in config.tiers for each in tier.plugins]


# -- scenarios -----------------------------------------------------------------------------------
def drawn(scenario: Scenario) -> str:
    """A sum of what happens when: moments, what they say, and the objects that are made."""
    told: list[Any] = []
    for moment in unroll_timeline(scenario):
        act = moment.act
        made = [each.obj for each in act.manifests] if isinstance(act, ApplyAct) else []
        told.append([round(moment.at_s, 6), moment.number, moment.index, moment.sentence, made])
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]


@pytest.mark.parametrize("path", SCENARIOS, ids=name_of)
def test_an_old_scenario_means_what_it_meant(path: Path) -> None:
    """It is read, and its seed draws the same moments, sizes and lengths."""
    assert [drawn(scenario) for scenario in read_path(path)] == [DRAWN[name_of(path)]]
