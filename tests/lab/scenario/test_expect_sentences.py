"""An expectation without a sentence of its own gets one that says all of it."""

from __future__ import annotations

import pytest

from gpusched.lab.scenario.judge.messages import duration_text, expectation_message
from gpusched.lab.scenario.model.scenario import (
    Comparator,
    Comparison,
    Count,
    EventSeen,
    JobIs,
    ObjectIs,
    Span,
    Statistic,
    Subject,
    Target,
)

ZERO = Comparison(Comparator.EQUALS, 0.0)
TWO = Comparison(Comparator.AT_LEAST, 2.0)
JOB = Target(kind="Job", name="a")


@pytest.mark.parametrize(
    ("subject", "sentence"),
    [
        (JobIs(job="train", state="complete"), "train is complete"),
        (
            JobIs(job="t-*", namespace="x", state="waiting", reason="Reserved"),
            "every x/t-* waits because of Reserved",
        ),
        (
            JobIs(job="a", pods=TWO, within="rack"),
            "a has at least 2 pods bound and is within one rack",
        ),
        (JobIs(job="a", evicted=ZERO), "a is never evicted"),
        (JobIs(job="a", on="gpu-*", says="8 nodes"), "a says /8 nodes/ and is on gpu-*"),
        (ObjectIs(target=JOB, exists=False), "no Job a is there"),
        (
            ObjectIs(target=JOB, path=".status.succeeded", comparison=TWO),
            "Job a has .status.succeeded at least 2",
        ),
        (ObjectIs(target=JOB, condition="Ready=False"), "Job a has Ready False"),
        (
            Count(target=Target(kind="Pod"), comparison=TWO, where={".status.phase": "Running"}),
            "there are at least 2 Pod with .status.phase Running",
        ),
        (
            Statistic(
                name="p95(wait)", comparison=Comparison(Comparator.AT_MOST, 30.0), of={"queue": "a"}
            ),
            "p95(wait) of queue a is at most 30.0 s",
        ),
        (
            Statistic(name="cpuUseBusy", comparison=Comparison(Comparator.AT_LEAST, 0.98)),
            "cpuUseBusy is at least 98.0 %",
        ),
        (
            EventSeen(reason="Preempted", on=JOB, says="x"),
            "event Preempted on Job a that says /x/ is seen",
        ),
    ],
)
def test_sentences(subject: Subject, sentence: str) -> None:
    """Whatever is expected, in words."""
    assert expectation_message(subject, Span()) == sentence


def test_moments() -> None:
    """When it must be so."""
    subject = JobIs(job="a", state="running")
    assert expectation_message(subject, Span(kind="by", until_s=120)) == "a runs by 2m"
    assert expectation_message(subject, Span(kind="at", until_s=0)) == "a runs at 0s"
    during = Span(kind="during", since_s=61.5, until_s=7200)
    assert expectation_message(subject, during) == "a runs from 1m1.5s to 2h"
    assert [duration_text(each) for each in (59.96, 3600.5, 90)] == ["1m", "1h0.5s", "1m30s"]
