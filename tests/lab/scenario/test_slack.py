"""Where time is real things may happen a little later; in virtual time nothing may."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpusched.devcluster.control.fault_rules import parse_rule
from gpusched.engine.run_record import JobLife, LifeEnd, RunRecord
from gpusched.lab.report.statistics.named import statistic
from gpusched.lab.scenario.judge.tolerance import nearest_value, statistic_tolerance
from gpusched.lab.scenario.model.scenario import Comparator, Comparison, JobIs, Span
from gpusched.lab.scenario.play.on_embedded import play_embedded
from tests.lab.scenario.test_expect_judge import Play, done, job
from tests.lab.scenario.test_ground_real import played
from tests.lab.scenario.texts import scenario

COMPLETE = JobIs(job="train", state="complete")
WAITING = JobIs(job="train", state="waiting")
BY = Span(kind="by", until_s=50)
AT = Span(kind="at", until_s=50)


@pytest.mark.parametrize(
    ("ends", "slack_s", "ok"), [(49, 0, True), (51, 0, False), (51, 2, True), (53, 2, False)]
)
def test_what_is_due_by_a_moment_may_be_late(ends: float, slack_s: float, ok: bool) -> None:
    """By no more than the slack, and the verdict says by how much."""
    play = Play(COMPLETE, BY, slack_s=slack_s).there(job("train")).to(ends)
    found = play.there(done("train")).to(80).verdict()
    assert found.ok is ok
    late = "train is complete; 1.0 s late, within the slack of real time"
    assert (found.seen == late) is (ok and ends > 50)
    assert found.expectation.span == BY


@pytest.mark.parametrize(
    ("ends", "slack_s", "ok"), [(49, 0, True), (51, 0, False), (51, 2, True), (53, 2, False)]
)
def test_what_is_so_at_a_moment_may_come_to_it_late(ends: float, slack_s: float, ok: bool) -> None:
    """At some moment from then on."""
    play = Play(COMPLETE, AT, slack_s=slack_s).there(job("train")).to(ends)
    assert play.there(done("train")).to(80).verdict().ok is ok


def test_a_state_that_was_over_before_is_not_believed() -> None:
    """Slack is for what is late, not for what is early."""
    play = Play(WAITING, AT, slack_s=2).there(job("train")).to(49)
    assert not play.there(done("train")).to(80).verdict().ok


def test_a_run_that_ends_before_the_moment_says_so() -> None:
    """Whatever the slack is."""
    found = Play(COMPLETE, AT, slack_s=2).there(done("train")).to(20).verdict()
    assert not found.ok
    assert "the run ended at 20s, before" in found.seen


@pytest.mark.parametrize(("begins", "ok"), [(11, True), (13, False)])
def test_a_span_may_begin_late(begins: float, ok: bool) -> None:
    """What holds during a span may come so much later, and must then stay."""
    span = Span(kind="during", since_s=10, until_s=50)
    play = Play(COMPLETE, span, slack_s=2).there(job("train")).to(begins)
    assert play.there(done("train")).to(80).verdict().ok is ok


def life(name: str, **parts: Any) -> JobLife:
    """A job of eight GPUs that took 100 s."""
    told: dict[str, Any] = {
        "key": f"default/{name}", "kind": "Job", "uid": name, "queue": "", "klass": "job",
        "priority": 0, "size": 2, "min_member": 2, "gpus": 8, "created": 0.0, "started": 0.0,
        "ended": 100.0, "end": LifeEnd.SUCCEEDED, **parts,
    }  # fmt: skip
    return JobLife(**told)


RECORD = RunRecord(
    name="a", ground="cluster", seed=1, seconds=200.0, epoch=0.0,
    jobs=(life("a"), life("b", gpus=0)),
)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "off"),
    [
        ("mean(wait)", 2.0),
        ("makespan", 2.0),
        ("partialGangSeconds", 20.0),
        ("lostGpuHours", 20 / 3600),
        ("completed", 0.0),
        ("evictions", 0.0),
        ("count(wait)", 0.0),
    ],
)
def test_a_statistic_may_be_off_by_what_its_jobs_may(name: str, off: float) -> None:
    """Seconds by the slack, GPU-seconds by that of each GPU; pieces are counted."""
    assert statistic_tolerance(RECORD, name, {}, 2.0) == pytest.approx(off)
    assert statistic_tolerance(RECORD, name, {}, 0.0) == 0


def test_shares_may_be_off_by_the_part_of_a_job() -> None:
    """Two seconds of a job of a hundred are two percent."""
    takes = statistic(RECORD, "mean(service)").value
    off = statistic_tolerance(RECORD, "gpuUse", {}, 2.0)
    assert off == (2.0 / takes if takes else 0.0)


@pytest.mark.parametrize(
    ("test", "wanted", "value", "near"),
    [
        (Comparator.EQUALS, 0.0, 1.5, 0.0),
        (Comparator.EQUALS, 0.0, 2.5, 2.5),
        (Comparator.AT_MOST, 5.0, 6.0, 4.0),
        (Comparator.AT_LEAST, 5.0, 4.0, 6.0),
        (Comparator.NOT, 5.0, 4.0, 4.0),
    ],
)
def test_the_nearest_value(test: Comparator, wanted: float, value: float, near: float) -> None:
    """Of those within two of what was found."""
    assert nearest_value(Comparison(test, wanted), value, 2.0) == near


SLOW = """
nodes: [{name: gpu, count: 4, gpus: 8}]
slack: SLACK
timeline:
- submit: {name: left, pods: 4, gpus: 8, runFor: 1m}
- submit: {name: right, pods: 4, gpus: 8, runFor: 1m}
expect:
- {job: left, is: complete, by: 1m30s}
- {stat: partialGangSeconds, equals: 0}
"""
RULE = {
    "name": "slow",
    "match": {"verbs": ["create"], "resources": ["pods/binding"]},
    "fault": {"type": "delay", "seconds": [0.1, 0.4]},
}


def test_bindings_that_take_time_fit_into_the_slack(tmp_path: Path) -> None:
    """A gang is bound pod by pod: for a moment it holds GPUs in part."""

    async def before(world: Any) -> None:
        world.cluster.faults.add([parse_rule(RULE, default_name="slow")])

    notes: list[str] = []
    run, _ = played(scenario(tmp_path, SLOW.replace("SLACK", "2s")), notes, before=before)
    assert run.ok, run.verdicts
    assert "within the slack of real time" in run.verdicts[1].seen
    run, _ = played(scenario(tmp_path, SLOW.replace("SLACK", "0s")), notes, before=before)
    assert [each.ok for each in run.verdicts] == [True, False]


def test_virtual_time_allows_nothing(tmp_path: Path) -> None:
    """However much slack a scenario has."""
    late = SLOW.replace("SLACK", "10s").replace("1m30s", "59s")
    run = play_embedded(scenario(tmp_path, late))
    assert [each.ok for each in run.verdicts] == [False, True]
