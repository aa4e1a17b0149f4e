"""The library: every shipped scenario holds what it says, on the whole daemon."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpusched.lab.scenario.file.read import read_path
from gpusched.lab.scenario.play.on_embedded import play_embedded

LIBRARY = Path(__file__).resolve().parents[3] / "kwok-scenarios" / "library"
NAMES = sorted(path.stem for path in LIBRARY.glob("*.yaml"))


@pytest.mark.parametrize("name", NAMES)
def test_a_scenario_of_the_library_holds(name: str) -> None:
    """Given what it describes, every expectation and every invariant holds to its end."""
    (scenario,) = read_path(LIBRARY / f"{name}.yaml")
    run = play_embedded(scenario)

    assert run.record is not None
    assert [f"{v.expectation.sentence}: {v.seen}" for v in run.verdicts if not v.ok] == []
    assert [each.sentence for each in run.record.broken] == []
    assert [each.trouble for each in run.record.acts if each.trouble] == []
    assert run.record.unfinished == ""


def test_the_library_has_what_users_start_from() -> None:
    """At least twenty, each of which says what it teaches and is named like its file."""
    scenarios = read_path(LIBRARY)
    assert sorted(each.name for each in scenarios) == NAMES
    assert len(NAMES) >= 20
    told = (LIBRARY.parent / "README.md").read_text()
    for scenario in scenarios:
        assert f"](library/{scenario.name}.yaml) | {' '.join(scenario.teaches.split())} |" in told
        assert scenario.teaches.endswith(".")
        assert (LIBRARY / f"{scenario.name}.yaml").is_file()
        assert scenario.expect
