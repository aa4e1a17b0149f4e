"""The judge decides at the right moment, and says what was there instead."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from gpusched.engine.run_record import EvictionRecord, RunRecord
from gpusched.lab.scenario.judge.judge import ExpectationVerdict, Judge
from gpusched.lab.scenario.judge.messages import expectation_message
from gpusched.lab.scenario.model.scenario import (
    Comparator,
    Comparison,
    Count,
    EventSeen,
    Expectation,
    JobIs,
    ObjectIs,
    SourceLocation,
    Span,
    Statistic,
    Subject,
    Target,
)
from gpusched.lab.scenario.target_cluster.interface import ObjectChange

END = Span()
Obj = dict[str, Any]


def at(seconds: float) -> Span:
    return Span(kind="at", since_s=seconds, until_s=seconds)


def by(seconds: float) -> Span:
    return Span(kind="by", until_s=seconds)


def during(since: float, until: float) -> Span:
    return Span(kind="during", since_s=since, until_s=until)


def pod(name: str, *, job: str = "", node: str = "", phase: str = "Pending", **more: Any) -> Obj:
    meta: Obj = {"name": name, "namespace": "default", "uid": f"uid-{name}", "labels": {}}
    if job:
        meta["ownerReferences"] = [{"kind": "Job", "name": job, "controller": True}]
    status: Obj = {"phase": phase, **more}
    return {
        "kind": "Pod",
        "metadata": meta,
        "spec": {"nodeName": node} if node else {},
        "status": status,
    }


def job(name: str, pods: int = 2, *, suspend: bool = False, **status: Any) -> Obj:
    return {
        "kind": "Job",
        "metadata": {
            "name": name, "namespace": "default", "uid": name,
            "labels": {"gpusched.io/queue": "q"},
        },
        "spec": {
            "parallelism": pods, "completions": pods, "completionMode": "Indexed",
            "suspend": suspend,
        },
        "status": status,
    }  # fmt: skip


def done(name: str, pods: int = 2) -> Obj:
    return job(name, pods, conditions=[{"type": "Complete", "status": "True"}])


class Play:
    """A judge of one expectation, told of changes as a player would."""

    def __init__(self, subject: Subject, span: Span = END, *, slack_s: float = 0.0) -> None:
        place = SourceLocation("a.yaml", 1)
        sentence = expectation_message(subject, span)
        self.judge = Judge(
            [Expectation(subject=subject, span=span, sentence=sentence, place=place)],
            slack_s=slack_s,
        )
        self.now = 0.0
        self.evictions: tuple[EvictionRecord, ...] = ()
        self.records = 0
        self._looks()

    def record(self) -> RunRecord:
        """The run so far."""
        self.records += 1
        return RunRecord(
            name="a", ground="embedded", seed=1, seconds=self.now, epoch=0.0,
            evictions=self.evictions,
        )  # fmt: skip

    def _looks(self) -> None:
        while self.judge.wants(self.now) <= self.now:
            self.judge.look(self.now, self.record)

    def to(self, now: float) -> Play:
        """Time goes on, with looks as they are wanted."""
        for _ in range(10_000):
            due = self.judge.wants(self.now)
            if due > now:
                break
            self.now = max(due, self.now)
            self.judge.look(self.now, self.record)
        else:
            pytest.fail("it wants to be asked without end")
        self.now = now
        return self

    def there(self, *objects: Obj, gone: bool = False) -> Play:
        """Objects came, changed or went just now."""
        for obj in objects:
            self.judge.observe_change(ObjectChange(self.now, obj["kind"], obj, gone))
        return self

    def verdict(self) -> ExpectationVerdict:
        """After the end of the run."""
        self.judge.finish(self.now, self.record)
        assert self.judge.wants(self.now) == math.inf
        (found,) = self.judge.verdicts()
        return found


def test_a_job_that_is_complete_at_the_end_is_as_expected() -> None:
    """Nothing has to be asked before the end."""
    play = (
        Play(JobIs(job="train", state="complete")).there(job("train")).to(50).there(done("train"))
    )
    assert play.judge.wants(50) == math.inf
    found = play.verdict()
    assert (found.ok, found.at, found.seen) == (True, 50, "train is complete")


def test_who_still_waits_is_quoted_with_reason_and_sentence() -> None:
    """The object's own words are in the verdict."""
    waits = [{
        "type": "PodScheduled", "status": "False", "reason": "QuotaExceeded",
        "message": "needs 24 GPUs",
    }]  # fmt: skip
    play = Play(JobIs(job="train", state="complete"), by(120)).there(
        job("train"), pod("train-0", job="train", conditions=waits), pod("train-1", job="train")
    )
    found = play.to(130).verdict()
    assert (found.ok, found.at) == (False, 120)
    assert found.seen == (
        "train is waiting, 0 of 2 pods bound and 0 running: QuotaExceeded: needs 24 GPUs"
    )


def test_what_never_appeared_is_called_so() -> None:
    """A name that is wrong is no job that waits."""
    found = Play(JobIs(job="trian", state="complete")).there(job("train")).to(5).verdict()
    assert found.seen == "no Job, PodGroup, Deployment or Pod named trian ever appeared"
    target = Target(kind="Node", name="gpu-9", namespace="")
    assert Play(ObjectIs(target=target)).to(5).verdict().seen == "no Node gpu-9 ever appeared"


def test_a_state_that_passes_is_seen_by_a_deadline() -> None:
    """It held at some moment; that it changed later does not matter."""
    play = Play(JobIs(job="a", state="running"), by(60)).there(job("a", 1)).to(10)
    play.there(pod("a-0", job="a", node="n", phase="Running")).to(10.5)
    play.there(pod("a-0", job="a", node="n", phase="Failed"))
    found = play.to(70).verdict()
    assert (found.ok, found.at) == (True, 10)


def test_a_state_between_two_writes_of_one_moment_is_none() -> None:
    """Objects of one workload change one after another, none of it lasts."""
    play = Play(JobIs(job="a", state="running"), during(5, 60))
    play.there(job("a", 1), pod("a-0", job="a", node="n", phase="Running")).to(10)
    play.there(pod("a-0", job="a", node="n", phase="Failed"))
    play.there(pod("a-0", job="a", node="n", phase="Running"))
    assert play.to(70).verdict().ok


def test_all_the_time_fails_at_the_first_breach() -> None:
    """And tells when it was, and what was there."""
    play = Play(JobIs(job="a", pods=Comparison(Comparator.EQUALS, 1.0)), during(5, 60))
    play.there(job("a", 1), pod("a-0", job="a", node="n", phase="Running")).to(10)
    play.there(pod("a-0", job="a", node="n", phase="Failed")).to(20)
    play.there(pod("a-1", job="a", node="n", phase="Running"))
    found = play.to(70).verdict()
    assert (found.ok, found.at) == (False, 10)
    assert found.seen == "a is waiting, 0 of 1 pods bound and 0 running"


def test_before_and_after_its_span_nothing_counts() -> None:
    """Only what is so between the two moments is judged."""
    play = (
        Play(JobIs(job="a", state="running"), during(5, 60))
        .to(4)
        .there(job("a", 1), pod("a-0", job="a", node="n", phase="Running"))
    )
    play.to(61).there(done("a", 1))
    assert play.to(70).verdict().ok


def test_at_a_moment_is_judged_at_that_moment() -> None:
    """Neither before nor after."""
    play = Play(JobIs(job="a", state="running"), at(30)).there(job("a", 1)).to(29)
    play.there(pod("a-0", job="a", node="n", phase="Running")).to(31).there(done("a", 1))
    found = play.to(40).verdict()
    assert (found.ok, found.at) == (True, 30)


def test_a_run_that_ends_too_early_fails_what_it_did_not_live_to_see() -> None:
    """It is said when it ended."""
    play = Play(JobIs(job="a", state="waiting"), at(300)).there(job("a", 1)).to(62)
    found = play.verdict()
    assert not found.ok
    assert found.seen.startswith("the run ended at 1m2s, before 5m; a is waiting")


def test_of_a_pattern_all_must_be_so_and_one_must_be_there() -> None:
    """How many are not is told."""
    play = Play(JobIs(job="t-*", state="complete")).there(done("t-1"), job("t-2"), done("u"))
    found = play.to(9).verdict()
    assert not found.ok
    assert found.seen.startswith("1 of 2 are not so; t-2 is waiting")
    assert not Play(JobIs(job="x-*", state="complete")).there(done("t-1")).to(9).verdict().ok


def test_many_objects_are_looked_at_once_a_second() -> None:
    """A stream of changes costs one look a second, and does not put it off for ever."""
    target = Target(kind="Pod", labels={})
    count = Count(target=target, comparison=Comparison(Comparator.AT_LEAST, 50.0))
    play = Play(count, by(60))
    for number in range(200):
        play.to(number * 0.05).there(pod(f"p-{number}"))
    found = play.to(70).verdict()
    assert found.ok
    assert 2.4 <= found.at <= 4.0


def test_statistics_and_evictions_make_a_record_only_when_looked_at() -> None:
    """Sixty looks over a span at most."""
    play = Play(JobIs(job="a", evicted=Comparison(Comparator.EQUALS, 0.0)), during(0, 600))
    play.there(job("a", 1)).to(700)
    assert play.verdict().ok
    assert play.records <= 62
    play = Play(
        Statistic(name="completed", comparison=Comparison(Comparator.AT_LEAST, 1.0)), by(600)
    )
    found = play.to(700).verdict()
    assert (found.ok, found.seen) == (False, "it is 0")


def test_evictions_are_counted_by_workload() -> None:
    """With the reason of the last."""
    play = Play(JobIs(job="a", evicted=Comparison(Comparator.AT_MOST, 0.0))).there(job("a", 1))
    play.evictions = (
        EvictionRecord(
            at=3, pod="default/a-0", job="default/a", queue="q", why="Reclaimed",
            sentence="for b", lost=0,
        ),
    )  # fmt: skip
    assert play.to(9).verdict().seen == "a was evicted 1 times, last because of Reclaimed: for b"


def test_a_suspended_job_waits_for_its_queue_and_events_tell_why() -> None:
    """Such a Job has no pods that could say it."""
    event = {
        "kind": "Event",
        "metadata": {
            "name": "e", "namespace": "default", "uid": "e",
            "annotations": {"gpusched.io/reason": "QuotaExceeded"},
        },
        "regarding": {"kind": "Job", "name": "a", "namespace": "default"},
        "reason": "FailedScheduling",
        "note": "queue q never gets more",
    }  # fmt: skip
    subject = JobIs(job="a", state="waiting", reason="QuotaExceeded", says="never")
    assert Play(subject).there(job("a", suspend=True), event).to(5).verdict().ok
    assert Play(JobIs(job="a", state="suspended")).there(job("a", suspend=True)).to(5).verdict().ok
    by_hand = job("a", suspend=True)
    by_hand["metadata"]["labels"] = {}
    assert not Play(JobIs(job="a", state="waiting")).there(by_hand).to(5).verdict().ok


def test_pods_that_only_say_unschedulable_have_the_reason_of_their_event() -> None:
    """Autoscalers need that word, people the reason; numbers may have changed since."""
    condition = {
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
        "message": "needs 4 GPUs, 3 are free",
    }  # fmt: skip
    event = {
        "kind": "Event",
        "metadata": {
            "name": "e", "namespace": "default", "uid": "e",
            "annotations": {"gpusched.io/reason": "InsufficientResources"},
        },
        "regarding": {"kind": "Pod", "name": "a-0", "namespace": "default"},
        "reason": "FailedScheduling",
        "note": "needs 4 GPUs, 2 are free",
    }  # fmt: skip
    for reason in ("InsufficientResources", "Unschedulable"):
        subject = JobIs(job="a", reason=reason, says="3 are free")
        told = pod("a-0", job="a", conditions=[condition])
        assert Play(subject).there(job("a", 1), told, event).to(5).verdict().ok
    assert not Play(JobIs(job="a", reason="Reserved")).there(job("a", 1), told).to(5).verdict().ok


def test_a_group_and_its_job_are_one_workload() -> None:
    """The group tells the minimum and why it waits, the Job that it is complete."""
    group: Obj = {
        "kind": "PodGroup",
        "metadata": {"name": "a", "namespace": "default", "uid": "g"},
        "spec": {"minMember": 1},
        "status": {"phase": "Inqueue"},
    }
    bound = pod("a-0", job="a", node="n")
    waiting = pod("a-1", job="a")
    for state in ("started", "admitted"):
        play = Play(JobIs(job="a", state=state)).there(group, job("a"), bound, waiting)
        assert play.to(5).verdict().ok
    assert (
        not Play(JobIs(job="a", state="started")).there(job("a"), bound, waiting).to(5).verdict().ok
    )


def test_who_was_complete_when_it_was_deleted_stays_so() -> None:
    """And it is gone, too; what never was is not."""
    for state in ("complete", "gone"):
        play = Play(JobIs(job="a", state=state)).there(done("a")).to(5).there(done("a"), gone=True)
        assert play.to(9).verdict().ok
    assert not Play(JobIs(job="a", state="gone")).to(5).verdict().ok


def node(name: str, **labels: str) -> Obj:
    told = {key.replace("__", "/").replace("_", "."): value for key, value in labels.items()}
    return {"kind": "Node", "metadata": {"name": name, "labels": told}}


@pytest.mark.parametrize(
    ("level", "nodes", "ok"),
    [
        ("rack", ("a1", "a2"), True),
        ("rack", ("a1", "b1"), False),
        ("node", ("a1", "a1"), True),
        ("node", ("a1", "a2"), False),
        ("gpusched.io/rack", ("a1", "a2"), True),
        ("zone", ("a1", "b1"), True),
        ("rack", ("a1", "c1"), False),
        ("switch", ("a1", "a2"), False),
    ],
)
def test_pods_share_a_domain(level: str, nodes: tuple[str, str], ok: bool) -> None:
    """Of a level by name, of a label, or of a node; wider levels must agree, too."""
    play = Play(JobIs(job="a", within=level)).there(
        node("a1", gpusched_io__rack="r", topology_kubernetes_io__zone="z"),
        node("a2", gpusched_io__rack="r", topology_kubernetes_io__zone="z"),
        node("b1", gpusched_io__rack="s", topology_kubernetes_io__zone="z"),
        node("c1", gpusched_io__rack="r", topology_kubernetes_io__zone="y"),
        job("a"),
        *(pod(f"a-{place}", job="a", node=name) for place, name in enumerate(nodes)),
    )
    assert play.to(5).verdict().ok is ok


def test_levels_of_a_topology_go_by_their_names() -> None:
    """A Topology object decides what a level is."""
    levels = [{"name": "pod", "nodeLabel": "x/pod"}, {"name": "rail", "nodeLabel": "x/rail"}]
    topology = {"kind": "Topology", "metadata": {"name": "t"}, "spec": {"levels": levels}}
    play = Play(JobIs(job="a", within="rail", on="n*")).there(
        topology, node("n1", x__pod="1", x__rail="1"), node("n2", x__pod="2", x__rail="1"),
        job("a"), pod("a-0", job="a", node="n1"), pod("a-1", job="a", node="n2"),
    )  # fmt: skip
    assert play.to(5).verdict().seen == "a is in 2 domains of rail: 1/1, 2/1"


def test_events_are_counted_with_their_repeats() -> None:
    """So far; one is enough where no number is given."""
    event = {
        "kind": "Event",
        "metadata": {"name": "e", "namespace": "default", "uid": "e"},
        "regarding": {"kind": "Pod", "name": "a-0", "namespace": "default"},
        "reason": "Preempted",
        "note": "for b",
        "series": {"count": 3},
    }
    on = Target(kind="Pod", name="a-*")
    assert Play(EventSeen(reason="Preempted", on=on)).there(event).to(5).verdict().ok
    never = EventSeen(reason="Preempted", comparison=Comparison(Comparator.EQUALS, 0.0))
    assert Play(never).there(event).to(5).verdict().seen == "it was seen 3 times"
    other = EventSeen(reason="Preempted", says="for c")
    found = Play(other).there(event).to(5).verdict()
    assert found.seen == "it never appeared; such events said: for b"


def test_objects_are_looked_into() -> None:
    """Paths, conditions, and what must not be there."""
    mine = Target(kind="Job", name="a")
    path = ObjectIs(
        target=mine, path=".status.succeeded", comparison=Comparison(Comparator.EQUALS, 2.0)
    )
    assert Play(path).there(job("a", succeeded=2)).to(5).verdict().ok
    assert (
        Play(path).there(job("a")).to(5).verdict().seen == "Job a has nothing at .status.succeeded"
    )
    complete = ObjectIs(target=mine, condition="Complete")
    assert Play(complete).there(done("a")).to(5).verdict().ok
    assert Play(complete).there(job("a")).to(5).verdict().seen == "Job a has no condition Complete"
    gone = ObjectIs(target=mine, exists=False)
    assert Play(gone).to(5).verdict().ok
    assert not Play(gone).there(job("a")).to(5).verdict().ok


def test_counts_take_only_what_is_like_where() -> None:
    """Paths to texts or patterns, all of which must match."""
    running = Count(
        target=Target(kind="Pod", name="a-*"),
        where={".status.phase": "Run*", ".spec.nodeName": "n1"},
        comparison=Comparison(Comparator.EQUALS, 1.0),
    )
    play = Play(running).there(
        pod("a-0", node="n1", phase="Running"), pod("a-1", node="n2", phase="Running"),
        pod("a-2", node="n1"), pod("b-0", node="n1", phase="Running"),
    )  # fmt: skip
    found = play.to(5).verdict()
    assert (found.ok, found.seen) == (True, "there are 1: a-0")


def test_it_says_what_it_must_be_told_of() -> None:
    """Kinds whose changes it needs."""
    place = SourceLocation(str(Path("a.yaml")), 1)
    subjects: list[Subject] = [
        JobIs(job="a", within="rack"),
        ObjectIs(target=Target(kind="Queue", name="q", namespace="")),
    ]
    judge = Judge(
        [Expectation(subject=each, span=END, sentence="", place=place) for each in subjects]
    )
    assert judge.kinds == (
        "Deployment", "Event", "Job", "Node", "Pod", "PodGroup", "Queue", "Topology",
    )  # fmt: skip
