"""One log line a decision, on whole daemons: who starts where, who waits and why, who leaves for whom."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from gpusched.api.meta.identity import UID, GangKey, ObjectKey
from gpusched.io.decisions.decision_log import DecisionLog
from gpusched.session.state.plan import GangStatus, JobSuspendChange, PendingReason, Plan

SOURCE = "gpusched.io.decisions.decision_log"


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[list[str]]:
    """Lines so far: the sentence with its facts, and nothing of others."""

    class Told(list[str]):
        def __iter__(self) -> Iterator[str]:
            for each in caplog.records:
                if each.name == SOURCE:
                    facts = vars(each)["gpusched_facts"]
                    yield f"{each.message} {' '.join(f'{key}={facts[key]}' for key in facts)}"

    with caplog.at_level(logging.INFO, logger=SOURCE):
        yield Told()


def members(w, group, count, *, gpus, priority=0):
    """A gang of pods that all must run."""
    w.group(group, minMember=count, **({"priorityClassName": "high"} if priority else {}))
    for number in range(count):
        w.pod(
            f"{group}-{number}", gpus=gpus, labels={"gpusched.io/pod-group": group},
            annotations={"gpusched.io/run-for": "10h"},
        )  # fmt: skip


def about(lines, gang):
    """Lines whose sentence begins with a gang."""
    return [each for each in lines if each.startswith(f"PodGroup default/{gang} ")]


def test_a_suspended_job_that_waits_has_a_line(play, lines):
    """Given Jobs without a pod, one whose queue is misspelt, then each is told to wait, and once."""

    async def scenario(w):
        await w.start(nodes=1)
        w.daemon()
        w.job("lost", 1, queue="tema", suspend=True)
        w.job("large", 4, queue="default", suspend=True)
        await w.clock.sleep(30)
        told = [each for each in lines if each.startswith("Job default/")]
        large, lost = sorted(each.partition(" why=")[0] for each in told)
        assert (
            large == "Job default/large waits queue=default reason=InsufficientResources position=1"
        )
        assert lost == "Job default/lost waits queue=tema reason=QueueNotFound"

    play(scenario)


def test_what_cannot_be_believed_is_logged_once_until_it_says_something_else(play, caplog):
    """Given a pod with a bad annotation, which the daemon's own condition changes, then one line; then another."""

    async def scenario(w):
        await w.start(nodes=1)
        w.daemon()
        w.pod("odd", gpus=1, annotations={"gpusched.io/min-member": "many"})
        await w.until(lambda: w.told("odd"))
        await w.clock.sleep(15)
        change = {"metadata": {"annotations": {"gpusched.io/min-member": "few"}}}
        w.client.patch("pods", "default", "odd", change)
        await w.clock.sleep(15)
        told = [vars(each)["gpusched_facts"]["why"] for each in caplog.records
                if each.message == "an object cannot be believed"]  # fmt: skip
        assert [each.rpartition(": ")[2] for each in told] == [
            "'many' is not a whole number", "'few' is not a whole number",
        ]  # fmt: skip

    play(scenario)


def test_starts_waits_and_evictions_have_a_line_each(play, lines):
    """Given a full node, then who waits is told once, and who leaves for whom at what cost."""

    async def scenario(w):
        await w.start(nodes=1)
        w.client.create(
            "priorityclasses.scheduling.k8s.io",
            {"metadata": {"name": "high"}, "value": 1000},
        )
        w.daemon()
        members(w, "a", 2, gpus=4)
        await w.until(lambda: len(w.bound()) == 2)
        await w.until(lambda: about(lines, "a"))
        (start,) = about(lines, "a")
        assert start.startswith("PodGroup default/a starts with 2 pods queue=default pods=2 nodes=")
        assert "(2)" in start
        # when: a gang waits for a minute and a half, session after session
        members(w, "b", 2, gpus=4)
        await w.clock.sleep(90)
        (wait,) = about(lines, "b")
        assert "PodGroup default/b waits queue=default reason=InsufficientResources pods=2" in wait
        assert "why=needs 2 pods" in wait
        # when: one of higher priority comes
        members(w, "c", 2, gpus=4, priority=1000)
        await w.until(lambda: any("starts" in each for each in about(lines, "c")))
        (loss,) = [each for each in about(lines, "a") if "loses" in each]
        assert loss.startswith("PodGroup default/a loses 2 pods for PodGroup default/c by=preempt")
        lost = int(loss.partition("lost_gpu_seconds=")[2].split()[0])
        assert 8 * 90 <= lost < 8 * 110
        held = [each for each in lines if each.startswith("room for 2 pods is held for")]
        assert len(held) == 1

    play(scenario)


def test_none_are_written_where_the_configuration_says_so(play, tmp_path, lines):
    """Given 0 lines a second, then a reload that allows some, they begin."""
    file = tmp_path / "gpusched.yaml"
    file.write_text("limits: {decisionLineRate: 0}\n")

    async def scenario(w):
        await w.start(nodes=1)
        daemon = w.daemon(config_file=str(file))
        members(w, "a", 1, gpus=1)
        await w.until(lambda: len(w.bound()) == 1)
        await w.clock.sleep(5)
        assert [*lines] == []
        file.write_text("limits: {decisionLineRate: 5}\n")
        daemon.app.reload()
        await w.clock.sleep(5)
        members(w, "b", 1, gpus=1)
        await w.until(lambda: about(lines, "b"))

    play(scenario)


class StoppedClock:
    """A clock that goes on when it is told to."""

    at = 0.0

    def monotonic(self) -> float:
        """Seconds."""
        return self.at


def waits(number: int, reason: str = "InsufficientResources") -> GangStatus:
    """A gang that waits."""
    return GangStatus(
        gang=GangKey("PodGroup", "default", f"g{number}"), uid=UID(f"u{number}"), generation=1,
        queue="default", phase="Inqueue", admitted=PendingReason(reason="Admitted", message=""),
        is_admitted=True, scheduled=PendingReason(reason=reason, message="needs 1 pod"),
        is_scheduled=False, waiting_pods=((ObjectKey("default", f"p{number}"), UID("p")),),
        counts=(0, 0, 0, 0),
    )  # fmt: skip


def test_a_flood_of_decisions_is_bounded_and_what_is_left_out_is_counted(lines):
    """Given five lines a second and a thousand gangs, then fifty lines, and later how many were left out."""
    clock = StoppedClock()
    log = DecisionLog(clock, lambda: 5, lambda _gang: True)
    log.decided(Plan(revision=1, gangs=tuple(waits(number) for number in range(1_000))))
    assert len([*lines]) == 50
    clock.at = 1.0
    log.decided(Plan(revision=2, gangs=(waits(1_000),)))
    assert [each.partition(" ")[0] for each in [*lines][50:]] == ["decisions", "PodGroup"]
    assert "left out of the log lines=950 lines_per_s=5" in [*lines][50]


def test_another_reason_is_a_line_and_another_number_is_none(lines):
    """Given a gang whose sentence changes, it is told again only with another reason."""
    log = DecisionLog(StoppedClock(), lambda: 5, lambda _gang: True)
    for reason in ("InsufficientResources", "InsufficientResources", "WaitingForQuota"):
        log.decided(Plan(revision=1, gangs=(waits(1, reason),)))
    assert [each.partition("reason=")[2].split()[0] for each in lines] == [
        "InsufficientResources",
        "WaitingForQuota",
    ]


def test_gangs_that_are_gone_are_forgotten(lines):
    """Given a gang that was deleted while it waited, and made again, then it is told again."""
    there: set[GangKey] = set()
    log = DecisionLog(StoppedClock(), lambda: 5, lambda gang: gang in there)
    for gangs in ((waits(1),), (), (waits(1),)):
        log.decided(Plan(revision=1, gangs=gangs))
    assert len([*lines]) == 2


def test_a_job_that_gets_its_turn_is_told(lines):
    """Given a suspended Job that is started, then one line with who decided and why."""
    change = JobSuspendChange(
        key=ObjectKey("default", "train"), uid=UID("u"), suspend=False, reason="Admitted",
        message="admitted to queue a", action="enqueue",
    )  # fmt: skip
    log = DecisionLog(StoppedClock(), lambda: 5, lambda _gang: True)
    log.decided(Plan(revision=1, job_changes=(change,)))
    (line,) = lines
    assert line.startswith("Job default/train is resumed by=enqueue reason=Admitted")
