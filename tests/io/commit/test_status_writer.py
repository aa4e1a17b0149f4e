"""Status and events against a scripted server: coalesced, once a second, never twice."""

from __future__ import annotations

import asyncio
import json

import attrs
import pytest
from aiohttp import web

from gpusched.api.meta.identity import UID, GangKey, ObjectKey, Rejected, ResourceVersion
from gpusched.api.meta.resources import NOTHING
from gpusched.base import limits
from gpusched.io.write.status.status_writer import StatusWriter
from gpusched.session.state.plan import GangBind, GangStatus, PendingReason, PodBind

LACK = PendingReason(reason="InsufficientResources", message="needs 2 nodes; 1 fits now")
QUOTA = PendingReason(reason="WaitingForQuota", message="queue q has 0 of 8 GPUs left")
DONE = PendingReason(reason="Scheduled", message="2 of 2 pods needed have their place")
ADMITTED = PendingReason(reason="Admitted", message="admitted to queue q")


def says_status(scheduled=LACK, *, name="g", kind="PodGroup", waiting=(), running=0, **more):
    """How a gang stands."""
    fields = {
        "gang": GangKey(kind, "ns", name), "uid": UID(f"u-{name}"), "generation": 1,
        "queue": "q", "phase": "Inqueue", "admitted": ADMITTED, "is_admitted": True,
        "scheduled": scheduled, "is_scheduled": scheduled is DONE,
        "waiting_pods": tuple((ObjectKey("ns", n), UID(f"u-{n}")) for n in waiting),
        "counts": (0, running, 0, 0),
    }  # fmt: skip
    return GangStatus(**{**fields, **more})


@attrs.define
class Shelf:
    """See ``status_writes.Shelf``."""

    items: dict = attrs.Factory(dict)


class Shown:
    """The cache, as tests set it."""

    def __init__(self):
        self.pods = {}
        self.groups = Shelf()
        self.queues = Shelf()

    def withdraw_nomination(self, uid, reason):
        """No pod here is promised room."""

    def find_pod(self, uid):
        """See ``StatusCache``."""
        return self.pods.get(uid)


@pytest.fixture
def told(play, group):
    """Run ``async def scenario(given, writer, shown)``; writes are recorded and accepted."""

    def run(scenario, **flags):
        async def main(given):
            shown = Shown()
            shown.groups.items[ObjectKey("ns", "g")] = group()
            writer = StatusWriter(
                given.api, given.rate_limiter, shown, lease=given.lease, clock=given.clock,
                telemetry=given.telemetry, on_fault=given.faults.append,
            )  # fmt: skip
            given.cluster.default = accept
            ending = asyncio.create_task(writer.run())
            try:
                await scenario(given, writer, shown)
            finally:
                ending.cancel()
                await asyncio.gather(ending, return_exceptions=True)

        play(main, **flags)

    return run


def accept(request, body):
    """The object as it is after a write."""
    if request.method == "POST":
        return web.json_response(body, status=201)
    version = f"{body['metadata'].get('resourceVersion', '')}+"
    left = {"metadata": {"resourceVersion": version}, "status": body.get("status")}
    return web.json_response(left)


def events(given, method="POST"):
    """Notes of the events told."""
    return [
        body.get("note") for _, m, path, body in given.cluster.seen
        if m == method and "/events" in path
    ]  # fmt: skip


def patches(given, tail="/status"):
    """Status patches sent."""
    return given.cluster.bodies("PATCH", tail)


def test_the_latest_of_many_is_written_once_a_second(told):
    """Fifty changes within a second are two writes: the first, and the last when allowed."""

    async def scenario(given, writer, shown):
        for n in range(50):
            writer.submit([says_status(running=n)], [])
            await asyncio.sleep(0.01)
        await asyncio.sleep(3)
        first, last = patches(given, "/podgroups/g/status")
        times = given.cluster.calls("PATCH", "/podgroups/g/status")
        assert first["status"]["running"] == 0
        assert last["status"]["running"] == 49
        assert times[1] - times[0] == pytest.approx(limits.STATUS_PERIOD_S, abs=0.05)

    told(scenario)


def test_what_was_written_need_not_be_seen_to_be_known(told):
    """The watch lags: the next patch holds only what differs from our own last one."""

    async def scenario(given, writer, shown):
        writer.submit([says_status(running=1)], [])
        await asyncio.sleep(2)
        writer.submit([says_status(running=2)], [])
        await asyncio.sleep(2)
        assert patches(given, "/podgroups/g/status")[1] == {
            "metadata": {"uid": "u-g", "resourceVersion": "1+"}, "status": {"running": 2},
        }  # fmt: skip

    told(scenario)


def test_a_condition_keeps_its_time_while_its_status_stays(told):
    """Another sentence is no transition."""

    async def scenario(given, writer, shown):
        writer.submit([says_status(LACK)], [])
        await asyncio.sleep(30)
        writer.submit([says_status(QUOTA)], [])
        await asyncio.sleep(30)
        writer.submit([says_status(DONE)], [])
        await asyncio.sleep(2)
        times = [
            {c["type"]: c["lastTransitionTime"] for c in patch["status"]["conditions"]}
            for patch in patches(given, "/podgroups/g/status")
        ]
        assert times[0] == times[1]
        assert times[2]["Admitted"] == times[0]["Admitted"]
        assert times[2]["Scheduled"] > times[0]["Scheduled"]

    told(scenario)


def test_other_conditions_survive(told, group):
    """Conditions of other types are written back as they were."""

    async def scenario(given, writer, shown):
        other = {"type": "Preempted", "status": "True", "reason": "Reclaimed", "message": "x",
                 "lastTransitionTime": "2026-01-01T00:00:00Z"}  # fmt: skip
        status = json.dumps({"conditions": [other]}).encode()
        shown.groups.items[ObjectKey("ns", "g")] = group(status=status)
        writer.submit([says_status()], [])
        await asyncio.sleep(1)
        assert patches(given)[0]["status"]["conditions"][0] == other

    told(scenario)


def test_a_group_that_is_not_found_is_asked_for_again_until_its_end_is_seen(told, says):
    """A server may be wrong for a moment; of one that is deleted nothing more is sent."""

    async def scenario(given, writer, shown):
        given.cluster.script("PATCH", "/podgroups/g/status", says(404))
        writer.submit([says_status()], [])
        await asyncio.sleep(60)
        assert len(patches(given, "/podgroups/g/status")) == 2
        given.cluster.script("PATCH", "/podgroups/g/status", says(404))
        writer.submit([says_status(running=1)], [])
        await asyncio.sleep(1)
        writer.gang_gone(GangKey("PodGroup", "ns", "g"), UID("u-g"))
        await asyncio.sleep(60)
        assert len(patches(given, "/podgroups/g/status")) == 3

    told(scenario)


def test_a_conflict_about_a_group_that_stays_is_met_again(told, says):
    """A gang that has settled is in no later session; tries become seldom until the group is gone."""

    async def scenario(given, writer, shown):
        given.cluster.script("PATCH", "/podgroups/g/status", *[says(409)] * 100)
        writer.submit([says_status()], [])
        await asyncio.sleep(300)
        tried = len(patches(given, "/podgroups/g/status"))
        assert 5 <= tried <= 20
        writer.gang_gone(GangKey("PodGroup", "ns", "g"), UID("u-g"))
        await asyncio.sleep(300)
        assert len(patches(given, "/podgroups/g/status")) == tried

    told(scenario)


def test_a_group_that_is_not_the_one_is_forgotten(told, says):
    """No retry; a later session may say it again."""

    async def scenario(given, writer, shown):
        given.cluster.script("PATCH", "/podgroups/g/status", says(422))
        writer.submit([says_status()], [])
        await asyncio.sleep(60)
        assert len(patches(given, "/podgroups/g/status")) == 1
        writer.submit([says_status()], [])
        await asyncio.sleep(2)
        assert len(patches(given, "/podgroups/g/status")) == 2

    told(scenario)


@pytest.mark.parametrize("code", [429, 500, 503])
def test_a_busy_or_ill_server_is_asked_again(told, says, code):
    """With the newest wish."""

    async def scenario(given, writer, shown):
        given.cluster.script("PATCH", "/podgroups/g/status", *[says(code)] * 3)
        writer.submit([says_status(running=1)], [])
        await asyncio.sleep(1)
        writer.submit([says_status(running=7)], [])
        await asyncio.sleep(60)
        written = patches(given, "/podgroups/g/status")
        assert len(written) == 4
        assert written[-1]["status"]["running"] == 7

    told(scenario)


def test_nothing_is_written_without_the_lease(told):
    """Neither status nor events; with the lease a later session is heard."""

    async def scenario(given, writer, shown):
        given.lease.ours = False
        writer.submit([says_status()], [])
        await asyncio.sleep(10)
        assert given.cluster.seen == []
        given.lease.ours = True
        writer.submit([says_status()], [])
        await asyncio.sleep(2)
        assert len(patches(given)) == 1

    told(scenario)


def test_what_waited_for_the_lease_is_written_without_another_session(told):
    """A slow renewal lets the lease be too short for a moment: nobody repeats what is not news."""

    async def scenario(given, writer, shown):
        given.lease.ours = False
        writer.submit([says_status(running=3)], [])
        await asyncio.sleep(1)
        assert patches(given) == []
        given.lease.ours = True
        await asyncio.sleep(5)
        assert [body["status"]["running"] for body in patches(given)] == [3]

    told(scenario)


def test_a_gang_that_goes_while_its_status_waits_for_its_turn_and_the_lease_breaks_nothing(told):
    """Nothing is written about it when its time comes, nor looked for."""

    async def scenario(given, writer, shown):
        broken = []
        asyncio.get_running_loop().set_exception_handler(lambda _, what: broken.append(what))
        given.lease.ours = False
        given.rate_limiter.throttled(2.0)
        writer.submit([says_status()], [])
        await asyncio.sleep(0.5)
        writer.forget(UID("u-g"))
        await asyncio.sleep(10)
        assert broken == []
        assert patches(given) == []

    told(scenario)


@pytest.mark.parametrize(("ask", "reason"), [(LACK, "Unschedulable"), (QUOTA, "WaitingForQuota")])
def test_only_pods_that_lack_nodes_are_unschedulable(told, pod, ask, reason):
    """Autoscalers act on the word: quota is nothing that nodes could help."""

    async def scenario(given, writer, shown):
        shown.pods = {"u-a": pod("a", "u-a", 5), "u-b": pod("b", "u-b", 6, gated=True)}
        writer.submit([says_status(ask, waiting=("a", "b", "c"))], [])
        await asyncio.sleep(3)
        (patch,) = patches(given, "/pods/a/status")
        assert patch["metadata"] == {"uid": "u-a", "resourceVersion": "5"}
        (condition,) = patch["status"]["conditions"]
        assert (condition["reason"], condition["message"]) == (reason, ask.message)
        assert patches(given, "/pods/b/status") == []

    told(scenario)


def test_a_pod_that_is_soon_bound_is_never_told(told, pod):
    """Two thousand pods bound within a second are not patched two thousand times before."""

    async def scenario(given, writer, shown):
        shown.pods = {"u-a": pod("a", "u-a", 5)}
        writer.submit([says_status(waiting=("a",))], [])
        await asyncio.sleep(0.3)
        shown.pods = {"u-a": pod("a", "u-a", 6, node="n1")}
        writer.observe(shown.pods["u-a"])
        writer.submit([says_status(DONE)], [])
        await asyncio.sleep(10)
        assert patches(given, "/pods/a/status") == []
        assert events(given) == [DONE.message]

    told(scenario)


def test_a_sentence_that_returns_while_another_is_being_written_is_written_again(told, pod):
    """The watch shows the first sentence until the second arrives, so that it seems said."""

    async def scenario(given, writer, shown):
        shown.pods = {"u-a": pod("a", "u-a", 5)}
        writer.submit([says_status(waiting=("a",))], [])
        await asyncio.sleep(3)
        given.cluster.latency_s = 3.0
        writer.submit([says_status(QUOTA, waiting=("a",))], [])
        await asyncio.sleep(2)
        writer.submit([says_status(LACK, waiting=("a",))], [])
        await asyncio.sleep(15)
        said = [b["status"]["conditions"][0]["message"] for b in patches(given, "/pods/a/status")]
        assert said == [LACK.message, QUOTA.message, LACK.message]

    told(scenario)


def test_events_are_told_on_other_words_only(told):
    """Numbers that change every second tell nobody anything; another cause does."""

    async def scenario(given, writer, shown):
        for n in range(200):
            ask = PendingReason(reason=LACK.reason, message=f"needs 2 nodes; {n} fit now")
            writer.submit([says_status(ask)], [])
            await asyncio.sleep(1)
        assert len(events(given)) == 1
        writer.submit([says_status(QUOTA)], [])
        await asyncio.sleep(5)
        assert events(given)[1:] == [QUOTA.message]

    told(scenario)


def test_one_reason_is_told_once_a_minute_and_repeats_are_counted(told):
    """Back and forth between two causes: a first event each, then their series."""

    async def scenario(given, writer, shown):
        for n in range(100):
            writer.submit([says_status(QUOTA if n % 2 else LACK)], [])
            await asyncio.sleep(2)
        assert len(events(given)) <= 2 * 4
        assert sorted(set(events(given))) == sorted({QUOTA.message, LACK.message})

    told(scenario)


def test_an_event_again_after_others_becomes_a_series(told):
    """The same words come back: the first event is counted up; expired, it is told anew."""

    async def scenario(given, writer, shown):
        for ask in (LACK, PendingReason(reason=LACK.reason, message="needs rack r1"), LACK):
            writer.submit([says_status(ask)], [])
            await asyncio.sleep(100)
        assert len(events(given)) == 2
        (series,) = [body for _, m, p, body in given.cluster.seen if m == "PATCH" and "events" in p]
        assert series["series"]["count"] == 2

    told(scenario)


def test_the_event_queue_is_bounded(told, monkeypatch):
    """A thousand more than it holds: the oldest are dropped and counted."""
    monkeypatch.setattr(limits, "EVENT_QUEUE_MAX", 2_000)

    async def scenario(given, writer, shown):
        given.rate_limiter.binds_open(1)
        names = (f"g{n}" for n in range(limits.EVENT_QUEUE_MAX + 1000))
        writer.submit([says_status(name=name) for name in names], [])
        await asyncio.sleep(5)
        assert writer.events.dropped == 1000
        given.rate_limiter.binds_open(0)
        await asyncio.sleep(5)
        assert len(events(given)) == limits.EVENT_QUEUE_MAX

    told(scenario)


def test_a_rejected_object_is_told_once_a_generation(told):
    """Its author hears of each attempt, and no more; objects of others are none of ours."""

    async def scenario(given, writer, shown):
        def bad(generation, **more):
            fields = {
                "kind": "PodGroup", "key": ObjectKey("ns", "x"), "uid": UID("u-x"),
                "resource_version": ResourceVersion("1"), "field": "spec.minMember",
                "why": f"is {generation}", "generation": generation,
            }  # fmt: skip
            return Rejected(**{**fields, **more})

        for _ in range(3):
            writer.report_rejected(bad(1))
        writer.report_rejected(bad(1, uid=UID("u-y"), ours=False))
        await asyncio.sleep(1)
        writer.report_rejected(bad(2))
        await asyncio.sleep(1)
        assert events(given) == [f"PodGroup ns/x: spec.minMember: is {n}" for n in (1, 2)]

    told(scenario)


def bound_gang(name, kind, *pods):
    """What this process bound: these pods of a gang, all to one node."""
    binds = tuple(
        PodBind(
            key=ObjectKey("default", pod), uid=UID(f"u-{pod}"), node="n", node_uid=UID("u-n"),
            slots=0, rank=-1, requests=NOTHING,
        )
        for pod in pods
    )  # fmt: skip
    return GangBind(
        gang=GangKey(kind, "default", name), uid=UID(f"u-{name}"), generation=0, queue="",
        min_member=1, placed=0, binds=binds,
    )  # fmt: skip


def test_a_lone_pod_is_told_scheduled_by_the_one_who_bound_it(told, pod):
    """After a restart the pods of earlier leaders are not announced again."""

    async def scenario(given, writer, shown):
        shown.pods = {
            "u-a": pod("a", "u-a", 5, node="n", fence="me/1"),
            "u-b": pod("b", "u-b", 5, node="n", fence="other/0"),
        }
        writer.note_bound(bound_gang("job2", "Job"))
        writer.note_bound(bound_gang("a", "Pod", "a"))
        statuses = [says_status(DONE, name=n, kind="Pod") for n in ("a", "b")]
        statuses += [says_status(DONE, name=n, kind="Job") for n in ("job1", "job2")]
        writer.submit(statuses, [])
        await asyncio.sleep(2)
        about = [b["regarding"]["name"] for b in given.cluster.bodies("POST", "/events")]
        assert sorted(about) == ["a", "job2"]

    told(scenario)


def test_flush_writes_what_waits(told, pod):
    """At the end nothing waits for its second, or its minute."""

    async def scenario(given, writer, shown):
        shown.pods = {"u-a": pod("a", "u-a", 5)}
        writer.submit([says_status(waiting=("a",))], [])
        assert await writer.flush(5)
        assert given.clock.monotonic() < 0.1
        assert len(patches(given)) == 2
        assert events(given) == [LACK.message] * 2

    told(scenario)


def test_waiting_pods_of_a_gang_are_told_too_but_not_a_thousand_of_them(told, pod):
    """Whoever describes a pod reads why it waits; a large gang does not flood the events."""

    async def scenario(given, writer, shown):
        names = [f"p{number}" for number in range(limits.POD_EVENTS_MAX + 5)]
        shown.pods = {f"u-{name}": pod(name, f"u-{name}", 5) for name in names}
        writer.submit([says_status(waiting=tuple(names))], [])
        await asyncio.sleep(10)
        about = [body["regarding"]["name"] for body in given.cluster.bodies("POST", "/events")]
        assert sorted(about) == sorted(["g", *names[: limits.POD_EVENTS_MAX]])

    told(scenario)


def test_pods_of_missing_groups_are_each_told(told, pod):
    """Gangs whose PodGroups do not exist have no uid: each is told, on a pod that names it."""

    async def scenario(given, writer, shown):
        shown.groups.items.clear()
        shown.pods = {f"u-{name}": pod(name, f"u-{name}", 5) for name in "abc"}
        missing = [
            attrs.evolve(says_status(waiting=(name,)), uid="", gang=GangKey("PodGroup", "ns", name))
            for name in "abc"
        ]
        writer.submit(missing, [])
        await asyncio.sleep(10)
        told_about = {
            (body["regarding"]["kind"], body["regarding"]["name"])
            for body in given.cluster.bodies("POST", "/events")
        }
        assert told_about == {("Pod", "a"), ("Pod", "b"), ("Pod", "c")}

    told(scenario)


def test_flush_gives_up_in_time(told, says):
    """A server that does not answer does not keep the process."""

    async def scenario(given, writer, shown):
        given.cluster.script("PATCH", "/status", *[says(500, after_s=4)] * 9)
        writer.submit([says_status()], [])
        assert not await writer.flush(2)
        assert given.clock.monotonic() == pytest.approx(2, abs=0.1)

    told(scenario)


def test_a_hundred_thousand_wishes_are_bounded(told, pod, monkeypatch):
    """What finds no room is not lost: the next session says it again."""

    async def scenario(given, writer, shown):
        monkeypatch.setattr(limits, "STATUS_QUEUE_MAX", 200)  # one tenant may fill half of it
        names = [f"p{n}" for n in range(150)]
        shown.pods = {f"u-{n}": pod(n, f"u-{n}", 5) for n in names}
        shown.groups.items.clear()
        status = says_status(waiting=names, kind="Job")
        writer.submit([status], [])
        assert writer.waiting == 100
        assert writer.dropped == 50
        await asyncio.sleep(5)
        for n in names:
            shown.pods[f"u-{n}"] = pod(
                n, f"u-{n}", 6 if n in names[:100] else 5,
                unschedulable=LACK.message if n in names[:100] else "",
                unschedulable_reason="Unschedulable" if n in names[:100] else "",
            )  # fmt: skip
        writer.submit([status], [])
        await asyncio.sleep(5)
        assert len(patches(given)) == 150

    told(scenario)


def test_statuses_of_others_find_room(told, pod, monkeypatch):
    """Given a tenant that fills the queue, then another's status is written all the same."""

    async def scenario(given, writer, shown):
        monkeypatch.setattr(limits, "STATUS_QUEUE_MAX", 100)
        names = [f"p{n}" for n in range(150)]
        shown.pods = {f"u-{n}": pod(n, f"u-{n}", 5) for n in names}
        shown.pods["u-other"] = pod("other", "u-other", 5)
        writer.submit([says_status(waiting=names, kind="Job")], [])
        mine = ((ObjectKey("quiet", "other"), UID("u-other")),)
        gang = GangKey("Job", "quiet", "j")
        theirs = says_status(gang=gang, uid=UID("u-j"))
        writer.submit([attrs.evolve(theirs, waiting_pods=mine)], [])
        await asyncio.sleep(5)
        assert len(patches(given, "/pods/other/status")) == 1
        assert writer.dropped == 100

    told(scenario)


def test_statuses_that_cannot_be_said_take_no_room(told, pod, monkeypatch):
    """Given statuses that raised before they were sent, then as many find room afterwards."""

    async def scenario(given, writer, shown):
        monkeypatch.setattr(limits, "STATUS_QUEUE_MAX", 100)
        names = [f"p{n}" for n in range(45)]
        shown.pods = {f"u-{n}": pod(n, f"u-{n}", 5) for n in names}
        shown.groups.items.clear()
        status = says_status(waiting=names, kind="Job")

        def broken(_known):
            raise KeyError("planted")

        for _ in range(2):
            with monkeypatch.context() as patch:
                patch.setattr(writer._queue, "_build_request", broken)
                writer.submit([status], [])
                await asyncio.sleep(5)
            assert writer.waiting == 0
        writer.submit([status], [])
        await asyncio.sleep(5)
        assert writer.dropped == 0
        assert len(patches(given)) == 45

    told(scenario)


def test_what_is_known_of_objects_that_are_gone_is_forgotten(told, pod):
    """Given a gang and its pod that were told about, when they are gone, then nothing is kept."""

    async def scenario(given, writer, shown):
        shown.pods = {"u-p": pod("p", "u-p", 5)}
        writer.submit([says_status(waiting=["p"])], [])
        await asyncio.sleep(3)
        assert len(patches(given)) == 2
        shown.pods.clear()
        shown.groups.items.clear()
        writer.observe_gone(UID("u-p"))
        writer.gang_gone(GangKey("PodGroup", "ns", "g"), UID("u-g"))
        # A session that had begun before says it once more.
        writer.submit([says_status(waiting=["p"])], [])
        writer.gang_gone(GangKey("PodGroup", "ns", "g"), UID("u-g"))
        await asyncio.sleep(limits.EVENT_PERIOD_S + 3)
        assert not writer._queue._objects
        assert not writer._said
        assert not writer.events._objects
        assert writer.waiting == 0

    told(scenario)


def test_a_provisional_status_replaces_nothing(told):
    """Given a gang that was told why it waits, then that it waits to be looked at is not told."""

    async def scenario(given, writer, shown):
        later = PendingReason(reason="WaitingForTurn", message="waits to be looked at")
        writer.submit([says_status()], [])
        await asyncio.sleep(2)
        writer.submit([says_status(later, provisional=True)], [])
        await asyncio.sleep(2)
        assert len(patches(given, "/podgroups/g/status")) == 1

    told(scenario)


@pytest.mark.parametrize(("left", "phase"), [(3, "Unknown"), (0, "Inqueue")])
def test_a_gang_that_was_said_to_run_is_broken_though_its_group_does_not_show_it_yet(
    told, left, phase
):
    """A member is lost while the first status is on its way; nobody left is a new start."""

    async def scenario(given, writer, shown):
        writer.submit([says_status(DONE, phase="Running", counts=(4, 4, 0, 0))], [])
        await asyncio.sleep(2)
        for _ in range(2):
            writer.submit([says_status(phase="Inqueue", counts=(left, left, 0, 0))], [])
            await asyncio.sleep(2)
        assert patches(given, "/podgroups/g/status")[-1]["status"]["phase"] == phase

    told(scenario)
