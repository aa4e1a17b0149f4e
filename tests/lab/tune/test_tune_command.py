"""``gpusched tune``: what is varied, what is found, and what is said where nothing is better."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from gpusched.base import installed_files
from gpusched.base.errors import UsageError
from gpusched.cli.lab.sweep.results import SweepRow
from gpusched.cli.lab.tune.command import parse_objectives
from gpusched.cli.lab.tune.search_space import search_space
from gpusched.cli.lab.tune.study import choose_setting, compare_unseen, is_beaten, search_settings
from gpusched.cli.main import main
from gpusched.config.load import load_file
from gpusched.config.model import DEFAULT

pytestmark = pytest.mark.long

HOUR = 3600


def jobs_with_holes(days: int) -> str:
    """Each day a large job waits for a long one, and short ones could pass: with room kept, they do not.

    Three nodes of 8 GPUs: one job of 8 runs, one of 24 waits, one of 8 comes that outlasts the first.
    """
    lines = ["submit_s,duration_s,gpus,queue"]
    for day in range(days):
        at = day * 86_400
        lines += [f"{at},{HOUR},8,a", f"{at + 10},600,24,a", f"{at + 20},{5 * HOUR},8,a"]
    return "\n".join(lines) + "\n"


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    """Four such days."""
    path = tmp_path / "jobs.csv"
    path.write_text(jobs_with_holes(4))
    return path


def tune(jobs: Path, *more: str) -> int:
    """The command with its usual options, in this process."""
    args = ["tune", "--trace", str(jobs), "--nodes", "3x8", "--workers", "1", "-o", "json"]
    args += ["--out", str(jobs.parent / "out"), "--set", "walltimes=truth"]
    try:
        return main([*args, *more])
    except SystemExit as ended:
        return int(ended.code or 0)


def printed(capsys: pytest.CaptureFixture[str]) -> Any:
    """What was printed as JSON."""
    return json.loads(capsys.readouterr().out)


# -- from the command line -------------------------------------------------------------------------
def test_what_is_better_is_found_checked_and_written(
    jobs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A configuration that keeps no room beats itself with room kept; the file says what was simulated."""
    # Given a configuration that keeps no room for the large job
    base = jobs.parent / "base.yaml"
    text = installed_files.path("conf/gpusched.yaml").read_text()
    base.write_text(text.replace("{reservations: 8}", "{reservations: 0}"))
    # When it is tuned on two days
    vary = ["--vary", "walltime.reservations=0..2", "--config", str(base), "--settings", "8"]
    goal = ["--objective", "max(wait), p95(wait)"]
    assert tune(jobs, *goal, *vary) == 0
    told = printed(capsys)
    # Then room is kept, also where it was not tuned: in the other two days
    assert told["beaten"] is True
    assert told["chosen"]["plugins.walltime.reservations"] != "0"
    assert told["settings"][0]["values"] == {"plugins.walltime.reservations": "0"}
    unseen = told["unseen"][0]
    assert (unseen["objective"], unseen["better"], unseen["of"]) == ("max(wait)", 1, 1)
    assert unseen["tuned"] < 2 * HOUR < 5 * HOUR < unseen["shipped"]
    out = jobs.parent / "out"
    written = load_file(str(out / "gpusched.yaml"))
    kept = {each.name: each.arguments for tier in written.tiers for each in tier.plugins}
    assert str(kept["walltime"]["reservations"]) == told["chosen"]["plugins.walltime.reservations"]
    assert main(["check-config", str(out / "gpusched.yaml")]) == 0
    # And the pages and the sweep show why
    assert "Better than the shipped configuration" in (out / "index.html").read_text()
    assert "tuned" in (out / "unseen" / "index.html").read_text()
    capsys.readouterr()
    sweep = ["simulate", "--sweep", str(out / "check.yaml"), "--out", str(out / "check")]
    assert main([*sweep, "--workers", "1", "-o", "json"]) == 0
    means = {row["configuration"]: row["means"]["max(wait)"] for row in printed(capsys)["rows"]}
    assert means == {"shipped": unseen["shipped"], "tuned": unseen["tuned"]}


def test_it_is_said_where_the_shipped_configuration_is_not_beaten(
    jobs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No configuration is written then; the same search gives the same answer."""
    goal = ["--objective", "max(wait)", "--vary", "walltime.reservations=0..2", "--settings", "4"]
    assert tune(jobs, *goal) == 0
    first = printed(capsys)
    assert first["beaten"] is False
    assert first["sentences"][0].startswith("The shipped configuration is not beaten: none of ")
    out = jobs.parent / "out"
    assert not (out / "gpusched.yaml").exists()
    assert "The shipped configuration is not beaten" in (out / "index.html").read_text()
    assert tune(jobs, *goal) == 2  # results are there
    assert "--resume" in capsys.readouterr().err
    assert tune(jobs, *goal, "--resume") == 0
    assert printed(capsys) == first


@pytest.mark.parametrize(
    ("more", "status", "says"),
    [
        (["--objective", "speed"], 2, "there is no statistic 'speed'"),
        (["--objective", "jobs"], 2, "whether more or less of it is better is not known"),
        (["--objective", "p95(wait), p95(wait)"], 2, "names a statistic twice"),
        (["--objective", "p95(wait) of team a"], 2, "jobs are not chosen by 'team'"),
        (["--objective", "gpuUse", "--vary", "walltime"], 2, "--vary takes PLUGIN.ARGUMENT"),
        (["--objective", "gpuUse", "--vary", "walltime.reserv"], 2, 'did you mean "walltime.reservations"?'),
        (["--objective", "gpuUse", "--vary", "walltime.reservations=3..99"], 2, "is no range within"),
        (["--objective", "gpuUse", "--vary", "lifetime.staleAfter"], 2, "needs a range, such as"),
        (["--objective", "gpuUse", "--vary", "topology.compact=1..2"], 2, "is one of gangs, requested"),
        (["--objective", "gpuUse", "--vary", "topology.compact=gangs,tight"], 2, "write words of"),
        (["--objective", "gpuUse", "--vary", "walltime.reservations=a..b"], 2, "'a' is no whole number"),
        (["--objective", "gpuUse", "--set", "topology.required=racks"], 78,
         "gpusched: --set topology.required=racks: the nodes have no such level; there are host"),
        (["--objective", "gpuUse", "--jobs", "7"], 2, "--jobs goes with --trace m6 or philly, not with a file"),
        (["--objective", "gpuUse", "--days", "3"], 2, "--days goes with --trace m6 or philly"),
        (["--objective", "gpuUse", "--seeds", "1-3"], 2, "--seeds goes with --trace m6 or philly"),
        (["--objective", "gpuUse", "--check-seeds", "5-6"], 2, "--check-seeds goes with --trace m6"),
        (["--objective", "gpuUse", "--out", ""], 2, "an empty text names no file or folder"),
        (["--objective", "gpuUse", "--settings", "0"], 2, "--settings takes 1 to"),
        (["--objective", "gpuUse", "--seed", "-5"], 2, "--seed takes a number from 0 to"),
        (["--objective", "gpuUse", "--seeds", "9-1"], 2, "--seeds takes A or A-B"),
        (["--objective", "gpuUse", "--check-trace", "none.csv"], 78, "none.csv cannot be read"),
        (["--objective", "p95(wait) of class a, p95(wait) of class A"], 2, "names a statistic twice"),
        (["--objective", "mean(wait) of class none"], 78, "no job is of class 'none', only of 5-8-GPUs, 9-32-GPUs"),
        (["--objective", "mean(wait) of queue b"], 78, "--objective (tuned-on): mean(wait) of queue b: no job is of queue 'b', only of a"),
    ],
)  # fmt: skip
def test_mistakes_are_one_sentence(
    jobs: Path, more: list[str], status: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Told before anything is searched."""
    assert tune(jobs, *more) == status
    assert says in capsys.readouterr().err
    assert not (jobs.parent / "out").exists()


def test_settings_and_the_shipped_one_are_counted_apart(
    jobs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """For people; a class is meant whatever its case."""
    goal = ["--objective", "p95(wait) Of Class 5-8 gpus", "--vary", "nodeorder.strategy"]
    plain = ["tune", "--trace", str(jobs), "--nodes", "3x8", "--workers", "1", "--settings", "1"]
    assert main([*plain, *goal, "--out", str(jobs.parent / "out")]) == 0
    told = capsys.readouterr()
    assert "none of 1 setting is better" in told.out
    assert "of 1 setting and the shipped one, 2 that none beats (*)" in told.out
    assert "tried: 1 setting\n" in told.err


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--jobs", "9" * 20], "--jobs takes a number from 1 to 1,000,000"),
        (["--jobs", "0"], "--jobs takes a number from 1 to 1,000,000, not 0"),
        (["--days", "nan"], "--days takes a number above 0 and up to 3,660, not nan"),
    ],
)
def test_absurd_numbers_of_generated_jobs_are_told_before_anything_is_made(
    tmp_path: Path, more: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One sentence, and no folder."""
    out = tmp_path / "tuned"
    assert main(["tune", "--trace", "m6", "--objective", "gpuUse", "--out", str(out), *more]) == 2
    assert capsys.readouterr().err.startswith(f"gpusched: {says}")
    assert not out.exists()


def test_seeds_that_were_tuned_on_are_no_check(capsys: pytest.CaptureFixture[str]) -> None:
    """Generated jobs are checked with other seeds."""
    args = ["tune", "--trace", "m6", "--objective", "gpuUse", "--out", "none"]
    assert main([*args, "--check-seeds", "1-3"]) == 2
    assert "--check-seeds are not seen while tuning" in capsys.readouterr().err


def test_a_missing_library_is_told(
    jobs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """78, with what to install."""
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert tune(jobs, "--objective", "gpuUse") == 78
    assert 'gpusched tune needs optuna, which is not installed: run pip install ".[tune]"' in (
        capsys.readouterr().err
    )


# -- parts -----------------------------------------------------------------------------------------
def test_the_space_is_what_plugins_declare() -> None:
    """Words, true or false, whole numbers within bounds; durations where a range is given."""
    space = {each.path: each for each in search_space(DEFAULT, [])}
    assert space["plugins.topology.compact"].words == ("gangs", "requested")
    assert space["plugins.walltime.learn"].words == ("false", "true")
    reservations = space["plugins.walltime.reservations"]
    assert (reservations.low, reservations.high, reservations.now) == (0, 64, "8")
    assert "plugins.lifetime.staleAfter" not in space
    (stale,) = search_space(DEFAULT, ["lifetime.staleAfter=30s..10m"])
    assert (stale.low, stale.high, stale.text(90), stale.now) == (30, 600, "90s", "60s")
    (some,) = search_space(DEFAULT, ["nodeorder.strategy=binpack,fragmentation"])
    assert some.words == ("binpack", "fragmentation")
    with pytest.raises(UsageError, match="twice"):
        search_space(DEFAULT, ["walltime.learn", "walltime.learn"])


def test_objectives_are_written_as_people_do() -> None:
    """Case and spaces of names do not count; what is better is known."""
    found = parse_objectives("p95(wait) of class 1 GPU, gpu use,Evictions")
    assert [(each.text, each.better) for each in found] == [
        ("p95(wait) of class 1-GPU", -1), ("gpuUse", 1), ("evictions", -1),
    ]  # fmt: skip


def row(*seeds: tuple[float, float], name: str = "tried") -> SweepRow:
    """A setting with its wait and use on each seed."""
    results = [{"statistics": {"mean(wait)": wait, "gpuUse": use}} for wait, use in seeds]
    return SweepRow(input="x", configuration=name, values=(), results=tuple(results), points=len(seeds))  # fmt: skip


BOTH = parse_objectives("mean(wait), gpuUse")


def test_a_setting_that_is_worse_in_anything_is_not_chosen() -> None:
    """Of the others, the one that gains most, as parts of what the shipped one has."""
    shipped = row((100, 0.5), name="shipped")
    longer, both, less = row((10, 0.4)), row((90, 0.6)), row((80, 0.5))
    assert choose_setting(shipped, [longer, both, less], BOTH) is both
    assert choose_setting(shipped, [longer, shipped], BOTH) is None


def test_beaten_is_what_is_better_on_most_of_the_unseen_and_worse_in_no_mean() -> None:
    """One lucky seed is not enough."""
    shipped = row((100, 0.5), (100, 0.5), (100, 0.5))
    for tuned, beaten in (
        (row((90, 0.5), (90, 0.5), (105, 0.5)), True),
        (row((10, 0.5), (105, 0.5), (105, 0.5)), False),
        (row((90, 0.5), (90, 0.5), (90, 0.4)), False),
        (shipped, False),
    ):
        unseen = compare_unseen(shipped, tuned, BOTH)
        assert unseen is not None
        assert is_beaten(unseen) is beaten


def test_a_search_with_the_same_seed_proposes_the_same() -> None:
    """Round after round, whatever fails on the way."""
    space = search_space(DEFAULT, ["walltime.reservations", "topology.compact"])

    def proposed(seed: int) -> list[Any]:
        asked: list[Any] = []

        def measure(settings: Any) -> list[tuple[float, ...] | None]:
            asked.extend(settings)
            counts = [int(dict(each)["plugins.walltime.reservations"]) for each in settings]
            return [None if count % 5 == 0 else (float(count), count / 64) for count in counts]

        search_settings(space, BOTH, settings=20, seed=seed, measure=measure)
        return asked

    assert len(proposed(1)) == 20
    assert proposed(1) == proposed(1)
    assert proposed(1) != proposed(2)
