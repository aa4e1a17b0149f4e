"""Exceptions planted in a whole daemon: it goes on, tells whom it set aside, and tries again."""

from __future__ import annotations

import re

import pytest

from gpusched.actions import allocate, preempt
from gpusched.api.pod import decode as decode_pod
from gpusched.base import limits
from gpusched.base.errors import InvariantBroken
from gpusched.cache.cache import Cache
from gpusched.cache.gangs import gang_builder, gang_index
from gpusched.cache.gangs.gang import Gang
from gpusched.io.cycle import session_cycle
from gpusched.io.cycle.decision_report import DecisionReport
from gpusched.io.write import binder, preemption_executor
from gpusched.io.write.status import status_writer
from gpusched.session.start.gang_start import GangStarts
from gpusched.session.status import fragmentation, next_wakeup
from tests.daemon.conftest import GROUPS
from tests.populations import WHOLE

pytestmark = pytest.mark.contains


class Planted(RuntimeError):
    """What the tests plant."""


class PlantedInvariant(InvariantBroken):
    """The same, as what our own bookkeeping raises."""


KINDS = pytest.mark.parametrize("kind", [PlantedInvariant, *([Planted] if WHOLE else [])])
"""Only what the commit machine itself finds may end the process. Whatever contains what our own
bookkeeping raises contains any exception: the other kind is left to ``make soak``."""


def metric(daemon, name):
    """Values by labels; to parse all others takes as long as what is tested."""
    rendered = daemon.app.telemetry.render().decode()
    rows = re.findall(rf"(?m)^gpusched_{name}(?:{{(.*)}})? (\S+)$", rendered)
    return {
        tuple(re.findall('="([^"]*)"', has)): float(value) for has, value in rows if float(value)
    }


def condition(w, name, kind="Scheduled"):
    """Of a PodGroup; empty while it has none."""
    shown = w.client.get(GROUPS, "default", name).get("status", {}).get("conditions", [])
    return next((each for each in shown if each["type"] == kind), {})


def events(w, reason, name=""):
    """Whom such events are about, and what they say."""
    return [
        (each["involvedObject"]["kind"], each["message"])
        for each in w.client.list("events")
        if each["reason"] == reason and each["involvedObject"]["name"].startswith(name)
    ]


def raising_for(monkeypatch, owner, name, culprit, *, where=lambda args: args[1]):
    """Let a function raise for the gang of one name."""
    original = getattr(owner, name)

    def planted(*args, **how):
        if where(args).key.name == culprit:
            raise Planted(f"for {culprit}")
        return original(*args, **how)

    monkeypatch.setattr(owner, name, planted)


def test_one_gang_is_set_aside_and_told(play, monkeypatch, caplog, tmp_path):
    """Condition, event, metric, log, dump and readyz; others run; after a change it is tried."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    async def scenario(w):
        await w.start(nodes=3)
        with monkeypatch.context() as patch:
            raising_for(patch, GangStarts, "start", "bad")
            daemon = w.daemon()
            w.gang("bad", 1)
            w.gang("good", 1)
            await w.until(lambda: w.running("good"))
            w.gang("later", 1)
            await w.until(lambda: w.running("later"))
            await w.until(lambda: condition(w, "bad"))
            told = condition(w, "bad")
            assert (told["status"], told["reason"]) == ("False", "SchedulerError")
            assert "set aside: the scheduler failed on it in allocate" in told["message"]
            await w.until(lambda: events(w, "SchedulerError", "bad"))
            assert metric(daemon, "contained_faults_total") == {("allocate", "gang"): 1}
            assert metric(daemon, "set_aside_objects") == {("gang",): 1}
            assert metric(daemon, "pending_pod_groups") == {("default", "SchedulerError"): 1}
            assert daemon.app.readiness() == (
                True,
                "leader; degraded: 1 objects set aside after faults",
            )
        w.client.patch(
            GROUPS, "default", "bad", {"spec": {"priorityClassName": "changed"}},
        )  # fmt: skip
        await w.until(lambda: w.running("bad"))
        assert metric(daemon, "set_aside_objects") == {}
        assert daemon.app.readiness() == (True, "leader")

    play(scenario)
    dumps = [record for record in caplog.records if hasattr(record, "gpusched_dump")]
    assert any("Planted: for bad" in record.gpusched_dump for record in dumps)
    (kept,) = list(tmp_path.glob("gpusched-*.txt"))
    assert "Planted" in kept.read_text()
    assert "GangKey(kind='PodGroup', namespace='default', name='bad')" in kept.read_text()


def test_what_is_broken_for_everybody_is_gone_without(play, monkeypatch):
    """Evictions are off, everything else goes on, and it comes back by itself."""

    async def scenario(w):
        await w.start(nodes=2)
        with monkeypatch.context() as patch:

            def broken(*_args):
                raise Planted("always")

            patch.setattr(preempt.Preempt, "run", broken)
            daemon = w.daemon()
            w.gang("one", 1)
            await w.until(lambda: w.running("one"))
            ready, why = daemon.app.readiness()
            assert ready
            assert why == "leader; degraded: no evictions after a fault"
            assert metric(daemon, "degraded") == {("evictions",): 1}
            await w.until(lambda: events(w, "SchedulerDegraded"))
        w.gang("two", 1)
        await w.until(lambda: w.running("two"))
        await w.clock.sleep(limits.DEGRADED_RETRY_S)
        await w.until(lambda: daemon.app.readiness() == (True, "leader"), within=120)
        assert metric(daemon, "degraded") == {}
        await w.until(lambda: events(w, "SchedulerRecovered"))

    play(scenario)


def test_where_nothing_can_be_decided_the_daemon_stays(play, monkeypatch):
    """It leads, is ready, says so, and decides again when it can."""

    async def scenario(w):
        await w.start(nodes=2)
        with monkeypatch.context() as patch:

            def broken(*_args):
                raise Planted("always")

            patch.setattr(allocate.Allocate, "run", broken)
            daemon = w.daemon()
            w.gang("one", 1)
            await w.until(lambda: condition(w, "one").get("reason") == "SchedulerError")
            assert "no decisions" in daemon.app.readiness()[1]
            assert w.bound() == []
        await w.until(lambda: w.running("one"), within=3 * limits.DEGRADED_RETRY_S)

    play(scenario)


@KINDS
def test_what_is_told_of_a_commit_ends_no_process(play, monkeypatch, kind):
    """The bindings stand; a listener or a line of the log that raises costs itself."""
    original = binder.SettledGang

    def planted(gang, *rest):
        if gang.gang.name == "bad":
            raise kind("settled")
        return original(gang, *rest)

    monkeypatch.setattr(binder, "SettledGang", planted)

    async def scenario(w):
        await w.start(nodes=2)
        daemon = w.daemon()
        w.gang("bad", 1)
        w.gang("good", 1)
        await w.until(lambda: w.running("good") and w.running("bad"))
        await w.clock.sleep(5)
        assert daemon.leading
        assert metric(daemon, "contained_faults_total") == {("commit", "object"): 1}

    play(scenario)


AROUND = [
    (
        next_wakeup,
        "next_due",
        lambda patch, planted: patch.setattr(session_cycle, "next_wakeup", planted),
    ),
    (
        fragmentation,
        "fragmentation_by_level",
        lambda patch, planted: patch.setattr(
            "gpusched.io.cycle.gpu_gauges.fragmentation_by_level", planted
        ),
    ),
    (
        session_cycle.SessionCycle,
        "_longest_s",
        lambda patch, planted: patch.setattr(session_cycle.SessionCycle, "_longest_s", planted),
    ),
    (
        session_cycle.SessionCycle,
        "report_decision",
        lambda patch, planted: patch.setattr(DecisionReport, "report_decision", planted),
    ),
    (
        session_cycle.SessionCycle,
        "_count_queues",
        lambda patch, planted: patch.setattr(DecisionReport, "_count_queues", planted),
    ),
    (
        status_writer.StatusWriter,
        "_say_gang",
        lambda patch, planted: patch.setattr(status_writer.StatusWriter, "_say_gang", planted),
    ),
    (
        preemption_executor.PreemptionExecutor,
        "submit",
        lambda patch, planted: patch.setattr(
            preemption_executor.PreemptionExecutor, "submit", planted
        ),
    ),
    (
        gang_index.GangIndex,
        "held_by_queue",
        lambda patch, planted: patch.setattr(gang_index.GangIndex, "held_by_queue", planted),
    ),
]


@KINDS
@pytest.mark.parametrize(("_owner", "name", "plant"), AROUND, ids=[name for _, name, _ in AROUND])
def test_what_raises_around_sessions_ends_no_daemon(play, monkeypatch, kind, _owner, name, plant):
    """Whatever it is, the process stays; when it works again everybody is served."""

    async def scenario(w):
        await w.start(nodes=2)
        with monkeypatch.context() as patch:

            def broken(*_args, **_how):
                raise kind("always")

            plant(patch, broken)
            daemon = w.daemon()
            w.gang("one", 1)
            await w.clock.sleep(20)
            assert not daemon.task.done()
            assert daemon.app.readiness()[0]
            assert "failed" in daemon.app.readiness()[1]
            assert metric(daemon, "contained_faults_total")
        await w.until(lambda: w.running("one"), within=120)
        assert metric(daemon, "leader") == {(): 1}

    play(scenario)


@KINDS
def test_a_commit_that_cannot_begin_stops_nobody_else(play, monkeypatch, kind):
    """The gang is left out until it changes; its room is free for others."""

    async def scenario(w):
        await w.start(nodes=1)
        original = session_cycle.recheck_placements

        def recheck(cache, gang, **how):
            if gang.name == "bad":
                raise kind("recheck")
            return original(cache, gang, **how)

        monkeypatch.setattr(session_cycle, "recheck_placements", recheck)
        w.gang("bad", 1)
        await w.clock.sleep(2)
        w.gang("good", 1)
        daemon = w.daemon()
        await w.until(lambda: w.running("good"))
        await w.until(lambda: condition(w, "bad").get("reason") == "SchedulerError")
        assert metric(daemon, "set_aside_objects") == {("gang",): 1}

    play(scenario)


@KINDS
@pytest.mark.parametrize("where", ["assume_binding", "decision"])
def test_a_commit_that_breaks_off_in_its_beginning_keeps_no_room(play, monkeypatch, kind, where):
    """What was assumed of it is forgotten: one node is enough for somebody else."""

    async def scenario(w):
        await w.start(nodes=2)
        daemon = w.daemon()
        await w.until(lambda: daemon.leading)
        owner = Cache if where == "assume_binding" else type(daemon.app.telemetry)
        original, calls = getattr(owner, where), []

        def planted(*args):
            calls.append(args)
            if len(calls) == 2:
                raise kind(where)
            return original(*args)

        monkeypatch.setattr(owner, where, planted)
        w.gang("bad", 2)
        await w.until(lambda: condition(w, "bad").get("reason") == "SchedulerError")
        w.gang("good", 2)
        await w.until(lambda: len(w.running("good")) == 2)

    play(scenario)


@KINDS
def test_a_fault_that_cannot_even_be_told_ends_no_daemon(play, monkeypatch, kind):
    """It is counted, and others go on."""

    async def scenario(w):
        await w.start(nodes=2)
        daemon = w.daemon()
        await w.until(lambda: daemon.leading)
        with monkeypatch.context() as patch:

            def broken(*_args):
                raise kind("always")

            patch.setattr(session_cycle, "next_wakeup", broken)
            patch.setattr("gpusched.io.cycle.fault_report.shorten", broken)
            w.gang("one", 1)
            await w.until(lambda: w.running("one"))
            assert metric(daemon, "contained_faults_total")[("next look", "part")] >= 1
            assert "failed" in daemon.app.readiness()[1]

    play(scenario)


def planted_for(original, name, fired, kind):
    """The function, which raises where it is called with an object of that name."""

    def planted(*args, **how):
        for value in (*args, *how.values()):
            known = getattr(value, "name", "") or getattr(
                getattr(value, "metadata", None), "name", ""
            )
            if isinstance(known, str) and known.startswith(name):
                fired.append(known)
                raise kind(f"for {known}")
        return original(*args, **how)

    return planted


@KINDS
@pytest.mark.parametrize(
    "where",
    [
        "gpusched.cache.gangs.gang_builder.build_gang",
        "gpusched.cache.gangs.gang_builder.GangBuilder._charge_queue",
        "gpusched.cache.cache.Cache.put_pod",
        "gpusched.cache.cache.Cache._enter_pod",
        "gpusched.cache.gangs.gang_index.GangIndex.add_member",
        "gpusched.io.write.binder.Binder.observe",
        "gpusched.io.write.status.object_writes.GroupWrite.request",
        "gpusched.api.serializer.requests.event_body",
    ],
)
def test_one_object_that_raises_elsewhere_stops_nobody_else(play, monkeypatch, kind, where):
    """Reading, counting, writing: the daemon stays, and the others run."""

    async def scenario(w):
        await w.start(nodes=3)
        fired = []
        parts = where.split(".")
        module = ".".join(parts[:3])
        owner = __import__(module, fromlist=["x"])
        for part in parts[3:-1]:
            owner = getattr(owner, part)
        original = getattr(owner, parts[-1])
        if parts[-1] in {"build_gang", "_charge_queue"}:

            def planted(*args, **how):
                key = next(each for each in (getattr(a, "key", None) for a in args) if each)
                if key.name == "bad":
                    fired.append(key)
                    raise kind(key.name)
                return original(*args, **how)

        elif parts[-1] in {"request", "event_body"}:

            def planted(*args, **how):
                about = args[0]
                text = str(getattr(about, "status", "")) + str(getattr(about, "gang", ""))
                text += str(getattr(about, "regarding", ""))
                if "name='bad" in text:
                    fired.append(text)
                    raise kind(where)
                return original(*args, **how)

        else:
            planted = planted_for(original, "bad", fired, kind)
        monkeypatch.setattr(owner, parts[-1], planted)
        daemon = w.daemon()
        w.gang("bad", 1)
        w.gang("good", 1)
        await w.until(lambda: w.running("good"))
        w.gang("later", 1)
        await w.until(lambda: w.running("later"))
        await w.clock.sleep(10)
        assert not daemon.task.done()
        assert daemon.leading
        assert fired

    play(scenario)


@KINDS
@pytest.mark.parametrize("name", ["ready_members", "done", "active"])
def test_a_gang_that_does_not_say_how_it_stands_stops_nobody_else(play, monkeypatch, kind, name):
    """What is asked of every gang before anybody is decided is asked where it concerns one."""
    asked = getattr(Gang, name).fget

    def planted(gang):
        if gang.key.name == "bad":
            raise kind(name)
        return asked(gang)

    monkeypatch.setattr(Gang, name, property(planted))

    async def scenario(w):
        await w.start(nodes=3)
        daemon = w.daemon()
        w.gang("bad", 1)
        w.gang("good", 1)
        await w.until(lambda: w.running("good"), within=20)
        w.gang("later", 1)
        await w.until(lambda: w.running("later"), within=20)
        assert daemon.leading
        assert set(metric(daemon, "contained_faults_total")) == {("counting", "object")}
        await w.until(lambda: condition(w, "bad").get("reason") == "SchedulerError")
        assert f"fails to count its members ({kind.__name__})" in condition(w, "bad")["message"]

    play(scenario)


@KINDS
def test_a_gang_whose_room_cannot_be_counted_stops_nobody_else(play, monkeypatch, kind):
    """What it holds is charged to its nodes all the same."""
    enter = gang_index.GangIndex._count_gang

    def planted(self, gang):
        if gang.key.name == "bad":
            raise kind("entered")
        enter(self, gang)

    monkeypatch.setattr(gang_index.GangIndex, "_count_gang", planted)

    async def scenario(w):
        await w.start(nodes=3)
        daemon = w.daemon()
        w.gang("bad", 1)
        await w.until(lambda: w.running("bad"), within=20)
        w.gang("good", 1)
        await w.until(lambda: w.running("good"), within=20)
        w.gang("later", 1)
        await w.until(lambda: w.running("later"), within=20)
        assert daemon.leading
        assert set(metric(daemon, "contained_faults_total")) == {("counting", "object")}

    play(scenario)


@pytest.mark.parametrize("where", ["read", "taken in"])
def test_a_pod_that_could_not_be_read_is_read_again_after_a_while(play, monkeypatch, where):
    """The next audit looks whether what made it fail has passed."""
    owner, name = (decode_pod, "_owner") if where == "read" else (Cache, "put_pod")
    original = getattr(owner, name)

    def planted(*args):
        if "bad" in str(args[-1]):
            raise MemoryError("planted")
        return original(*args)

    async def scenario(w):
        await w.start(nodes=1)
        daemon = w.daemon()
        await w.until(lambda: daemon.leading)
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, planted)
            w.gang("bad", 1)
            await w.clock.sleep(10)
            assert metric(daemon, "rejected_objects_total")
        await w.until(lambda: w.running("bad"), within=limits.COMPARE_PERIOD_S + 60)

    play(scenario)


def test_a_gang_that_could_not_be_counted_is_counted_again_after_a_while(play, monkeypatch):
    """What made it fail may have passed, such as a lack of memory: nothing of it need change."""
    original = gang_builder.build_gang

    def planted(origin, *rest):
        if origin.key.name == "bad":
            raise MemoryError("planted")
        return original(origin, *rest)

    async def scenario(w):
        await w.start(nodes=1)
        with monkeypatch.context() as patch:
            patch.setattr(gang_builder, "build_gang", planted)
            w.daemon()
            w.gang("bad", 1)
            await w.until(lambda: condition(w, "bad").get("reason") == "SchedulerError")
            assert "or within 10 min" in condition(w, "bad")["message"]
        await w.until(lambda: w.running("bad"), within=limits.SET_ASIDE_RETRY_S + 30)

    play(scenario)


@KINDS
def test_an_object_that_cannot_be_decoded_by_our_fault_is_told(play, monkeypatch, kind):
    """Its author is told that it is not his fault; the list of its kind goes on."""
    from gpusched.api.gang import decode  # noqa: PLC0415

    original = decode._disruption_mode

    def planted(wish):
        if wish is not None and wish.mode == "Group":
            raise kind("mode")
        return original(wish)

    monkeypatch.setattr(decode, "_disruption_mode", planted)

    async def scenario(w):
        await w.start(nodes=2)
        w.group("bad", minMember=1, disruption={"mode": "Group"})
        w.job("bad", 1, group="bad")
        daemon = w.daemon()
        w.gang("good", 1)
        await w.until(lambda: w.running("good"))
        assert list(metric(daemon, "contained_faults_total")) == [("reading", "PodGroup")]
        await w.until(
            lambda: (
                "a defect of the scheduler" in condition(w, "bad", "Admitted").get("message", "")
            )
        )

    play(scenario)


@KINDS
@pytest.mark.parametrize(
    ("where", "culprit"),
    [
        ("gpusched.cache.queues.tree.limits_error", "team"),
        ("gpusched.cache.queues.tree._own_words", "team"),
    ],
)
def test_an_object_that_no_snapshot_can_hold_is_left_out(play, monkeypatch, kind, where, culprit):
    """All others are decided; it comes back with its next event."""
    module, _, name = where.rpartition(".")
    owner = __import__(module, fromlist=["x"])
    original = getattr(owner, name)

    def planted(*args, **how):
        if any(getattr(each, "name", "") == culprit for each in args):
            raise kind(culprit)
        return original(*args, **how)

    async def scenario(w):
        await w.start(nodes=2)
        daemon = w.daemon()
        w.gang("before", 1, gpus=2)
        await w.until(lambda: w.running("before"))
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, planted)
            w.client.create(
                "queues.scheduling.gpusched.io",
                {
                    "apiVersion": "scheduling.gpusched.io/v1alpha1",
                    "kind": "Queue",
                    "metadata": {"name": "team"},
                    "spec": {},
                },
            )
            w.gang("good", 1, gpus=2)
            await w.until(lambda: w.running("good"))
            assert metric(daemon, "contained_faults_total")[("snapshot", "object")] == 1
            w.group("bad", minMember=1, queue=culprit)
            w.job("bad", 1, gpus=1, group="bad")
            await w.clock.sleep(5)
            assert not w.running("bad")
        w.client.patch("queues.scheduling.gpusched.io", "", "team", {"spec": {"weight": 2}})
        await w.until(lambda: w.running("bad"))

    play(scenario)
