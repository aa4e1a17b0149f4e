"""The life of a Reservation: nodes are kept in its windows, and what runs into them does not start."""

from __future__ import annotations

import logging
from datetime import datetime

import msgspec
import pytest

from gpusched.api.meta.identity import ObjectKey, format_time
from gpusched.api.policy.reservation import WEEKDAYS
from gpusched.api.policy.reservation_decode import decode_reservation
from gpusched.api.policy.reservation_wire import WireReservation
from gpusched.base.time_zones import find_time_zone
from gpusched.cache.verify.placements import recheck_placements
from gpusched.io.cycle import session_cycle
from tests.daemon.sentences.explained import explained, facts

RESERVATIONS = "reservations.scheduling.gpusched.io"
GROUPS = "podgroups.scheduling.gpusched.io"
QUEUES = "queues.scheduling.gpusched.io"


def queue(w, name, **spec):
    """A Queue."""
    head = {"apiVersion": "scheduling.gpusched.io/v1alpha1", "kind": "Queue"}
    w.client.create(QUEUES, {**head, "metadata": {"name": name}, "spec": spec})


def reserve(w, name, *, after_s, lasts="10m", **spec):
    """A Reservation whose first window begins so many seconds from now; when that is."""
    begins = int(w.clock.now()) + after_s
    w.client.create(
        RESERVATIONS,
        {
            "apiVersion": "scheduling.gpusched.io/v1alpha1",
            "kind": "Reservation",
            "metadata": {"name": name},
            "spec": {"from": format_time(begins), "duration": lasts, **spec},
        },
    )
    return begins


def status(w, name):
    """The status of a Reservation, empty while nobody wrote it."""
    return w.client.get(RESERVATIONS, None, name).get("status") or {}


def ready(w, name):
    """Its condition Ready, empty while nobody wrote it."""
    found = [each for each in status(w, name).get("conditions", ()) if each["type"] == "Ready"]
    return found[0] if found else {}


def gang(w, name, count=1, *, run_for="10h", queue="default", **spec):
    """A PodGroup with a Job whose pods take whole nodes."""
    w.group(name, minMember=count, queue=queue, **spec)
    w.job(name, count, group=name, run_for=run_for)


def nodes_of(w, name):
    """Names of the nodes on which a gang's pods are, sorted."""
    return sorted(
        pod["spec"]["nodeName"]
        for pod in w.bound(name)
        if not pod["metadata"].get("deletionTimestamp") and pod["status"].get("phase") != "Failed"
    )


async def until_time(w, time):
    """Wait until a moment, in virtual seconds."""
    await w.clock.sleep(max(0.0, time - w.clock.now()))


def test_what_would_run_into_maintenance_does_not_start_and_what_ends_before_does(play):
    """Given maintenance of the only node, a gang that says no length waits until it is over."""

    async def scenario(w):
        await w.start(nodes=1)
        begins = reserve(w, "firmware", after_s=300, purpose="Maintenance", nodeNames=["node-0"])
        w.daemon()
        await w.until(lambda: status(w, "firmware").get("phase") == "Announced")
        gang(w, "long", preemptible=False)
        await w.until(lambda: w.condition("long"))
        told = w.condition("long")
        assert told["reason"] == "Reserved"
        assert told["message"].startswith(
            "fits now and would run for a time that it does not tell (expectedDuration, or annotation "
            "gpusched.io/expected-duration), but of the nodes 1 is kept by Reservation firmware for "
            f"maintenance from {format_time(begins)} on"
        )
        gang(w, "short", run_for="60s", preemptible=False, expectedDuration="60s")
        await w.until(lambda: nodes_of(w, "short") == ["node-0"])
        await until_time(w, begins + 1)
        assert not w.bound("long")
        await w.until(lambda: status(w, "firmware")["phase"] == "Active")
        assert status(w, "firmware")["nodes"] == ["node-0"]
        await until_time(w, begins + 599)
        assert not w.bound("long")
        await w.until(lambda: nodes_of(w, "long") == ["node-0"])
        assert w.clock.now() >= begins + 600
        await w.until(lambda: status(w, "firmware")["phase"] == "Ended")

    play(scenario)


def test_those_who_may_use_it_run_in_it_and_others_do_not(play):
    """Given nodes reserved for a queue, its gangs start there in the window, and others elsewhere."""

    async def scenario(w):
        await w.start(nodes=2)
        queue(w, "course")
        queue(w, "other")
        begins = reserve(w, "lecture", after_s=60, nodeNames=["node-1"], queues=["course"])
        w.daemon()
        await until_time(w, begins + 1)
        gang(w, "first", queue="other")
        await w.until(lambda: nodes_of(w, "first") == ["node-0"])
        gang(w, "second", queue="other")
        await w.until(lambda: w.condition("second"))
        assert w.condition("second")["reason"] == "Reserved"
        assert "1 is kept by Reservation lecture until" in w.condition("second")["message"]
        gang(w, "mine", queue="course")
        await w.until(lambda: nodes_of(w, "mine") == ["node-1"])

    play(scenario)


def test_what_can_be_evicted_by_then_starts_and_is_evicted_whole_when_the_window_begins(play):
    """Given a preemptible gang of unknown length, it runs until the window begins, and no longer."""

    async def scenario(w):
        await w.start(nodes=2)
        begins = reserve(
            w, "firmware", after_s=120, purpose="Maintenance", nodeNames=["node-1"],
            moveBefore="0s",
        )  # fmt: skip
        w.daemon()
        gang(w, "sweep", 2)
        await w.until(lambda: nodes_of(w, "sweep") == ["node-0", "node-1"])
        await w.until(lambda: "; 1 gang is evicted then" in ready(w, "firmware")["message"])
        await until_time(w, begins - 1)
        assert nodes_of(w, "sweep") == ["node-0", "node-1"]
        await w.until(lambda: not nodes_of(w, "sweep"), within=10)
        await w.until(lambda: w.condition("sweep", "Preempted").get("reason") == "Reserved")
        assert (
            "1 is kept by Reservation firmware for maintenance until"
            in (w.condition("sweep", "Preempted")["message"])
        )
        await until_time(w, begins + 599)
        assert not nodes_of(w, "sweep")
        await w.until(lambda: nodes_of(w, "sweep") == ["node-0", "node-1"])

    play(scenario)


def test_an_announced_drain_moves_what_can_be_moved_before_it_begins(play):
    """Given room elsewhere, a gang moves in the time before, and one that ends in time does not."""

    async def scenario(w):
        await w.start(nodes=1)
        w.daemon()
        gang(w, "sweep")
        await w.until(lambda: nodes_of(w, "sweep") == ["node-0"])
        w.node("node-1")
        w.node("node-2")
        begins = reserve(
            w, "firmware", after_s=300, purpose="Maintenance", nodeNames=["node-0"],
            moveBefore="2m",
        )  # fmt: skip
        await until_time(w, begins - 121)
        assert nodes_of(w, "sweep") == ["node-0"]
        await w.until(lambda: nodes_of(w, "sweep") == ["node-1"], within=30)
        assert w.clock.now() < begins - 60
        await w.until(lambda: w.condition("sweep", "Preempted").get("reason") == "Reserved")
        told = w.condition("sweep", "Preempted")["message"]
        assert told.startswith("moved to other nodes before the window: of its nodes 1 is kept by")
        gang(w, "next")
        await w.until(lambda: nodes_of(w, "next") == ["node-2"])
        gang(w, "short", expectedDuration="30s", run_for="30s")
        await w.until(lambda: nodes_of(w, "short") == ["node-0"])
        gang(w, "long")
        await w.clock.sleep(20)
        assert nodes_of(w, "long") == []
        await until_time(w, begins + 5)
        assert nodes_of(w, "sweep") == ["node-1"]
        assert status(w, "firmware")["gangsInTheWay"] == 0

    play(scenario)


@pytest.mark.parametrize(
    "closed", [{"stopPolicy": "Hold"}, {"budget": {"gpuHours": "10m", "period": "Month"}}]
)
def test_what_could_not_start_anew_is_not_moved(play, closed):
    """Given a queue that starts nothing more, then what runs in it goes on until the window begins."""

    async def scenario(w):
        await w.start(nodes=1)
        queue(w, "held")
        w.daemon()
        gang(w, "sweep", queue="held")
        await w.until(lambda: nodes_of(w, "sweep") == ["node-0"])
        w.node("node-1")
        w.client.patch(QUEUES, None, "held", {"spec": closed})
        begins = reserve(
            w, "firmware", after_s=300, purpose="Maintenance", nodeNames=["node-0"],
            moveBefore="2m",
        )  # fmt: skip
        await until_time(w, begins - 1)
        assert nodes_of(w, "sweep") == ["node-0"]
        await w.until(lambda: not nodes_of(w, "sweep"), within=10)

    play(scenario)


def test_who_runs_into_a_window_is_told_by_explain(play):
    """Given nodes that are kept ahead, then gangs there are told until when they may stay, but those that may or end before."""

    async def scenario(w):
        await w.start(nodes=3)
        queue(w, "school")
        queue(w, "course", parent="school")
        w.daemon()
        gang(w, "long")
        gang(w, "mine", queue="course")
        gang(w, "short", expectedDuration="5m")
        await w.until(lambda: all(nodes_of(w, name) for name in ("long", "mine", "short")))
        begins = reserve(
            w,
            "lecture",
            after_s=600,
            nodeNames=["node-0", "node-1", "node-2"],
            queues=["school"],
            moveBefore="1m",
        )
        await w.until(lambda: status(w, "lecture").get("phase") == "Announced")
        (node,) = nodes_of(w, "long")
        told = (
            f"{node} is kept by Reservation lecture from {format_time(begins)} on: "
            "it may be moved before, or evicted then if it still runs"
        )
        assert facts(await explained(w, "podgroup", "long"), "until") == [told]
        for name in ("mine", "short"):
            assert facts(await explained(w, "podgroup", name), "until") == []

    play(scenario)


def test_what_finds_no_room_elsewhere_is_not_moved(play):
    """Given no other node, the gang runs until the window begins."""

    async def scenario(w):
        await w.start(nodes=1)
        w.daemon()
        gang(w, "sweep")
        await w.until(lambda: nodes_of(w, "sweep") == ["node-0"])
        begins = reserve(w, "firmware", after_s=200, purpose="Maintenance", nodeNames=["node-0"])
        await until_time(w, begins - 1)
        assert nodes_of(w, "sweep") == ["node-0"]
        await w.until(lambda: not nodes_of(w, "sweep"), within=10)

    play(scenario)


def test_what_cannot_be_evicted_stays_and_is_told(play):
    """Given a gang that is not preemptible, the Reservation says that it stays, and nothing else starts."""

    async def scenario(w):
        await w.start(nodes=1)
        w.daemon()
        gang(w, "fixed", preemptible=False)
        await w.until(lambda: nodes_of(w, "fixed"))
        begins = reserve(w, "firmware", after_s=60, purpose="Maintenance", nodeNames=["node-0"])
        await until_time(w, begins + 5)
        assert nodes_of(w, "fixed") == ["node-0"]
        assert (
            "1 gang that cannot be evicted stays, for nobody knows how long"
            in (ready(w, "firmware")["message"])
        )
        assert status(w, "firmware")["gangsInTheWay"] == 1

    play(scenario)


def test_a_window_that_recurs_is_kept_again_and_a_restart_loses_nothing(play):
    """Given a window each quarter of an hour, the second one is kept too, by a daemon that started in between."""

    async def scenario(w):
        await w.start(nodes=3)
        begins = reserve(
            w, "lecture", after_s=60, lasts="5m", nodes=2, nodeSelector={"gpusched.io/rack": "r0"},
            recurring={"every": "15m"},
        )  # fmt: skip
        first = w.daemon()
        await w.until(lambda: status(w, "lecture").get("phase") == "Active", within=120)
        chosen = status(w, "lecture")["nodes"]
        assert len(chosen) == 2
        first.kill()
        await w.clock.sleep(30)
        w.daemon()
        gang(w, "taken", 2, preemptible=False, expectedDuration="9m", run_for="9m")
        await w.until(lambda: w.condition("taken").get("reason") == "Reserved", within=120)
        assert status(w, "lecture")["nodes"] == chosen
        await until_time(w, begins + 299)
        assert not w.bound("taken")
        await w.until(lambda: len(nodes_of(w, "taken")) == 2)
        assert status(w, "lecture")["from"] == format_time(begins + 900)
        gang(w, "late", 2, preemptible=False, expectedDuration="9m", run_for="9m")
        await until_time(w, begins + 900 + 299)
        assert not w.bound("late")
        await w.until(lambda: len(nodes_of(w, "late")) == 2)

    play(scenario, limit_s=3000.0)


def test_windows_on_weekdays_come_again_on_the_next_of_their_days(play):
    """Given today and tomorrow in a zone, tomorrow's window follows at the same time of day."""

    async def scenario(w):
        await w.start(nodes=1)
        today = datetime.fromtimestamp(w.clock.now() + 60, find_time_zone("Asia/Kolkata")).weekday()
        begins = reserve(
            w, "lecture", after_s=60, lasts="5m", nodeNames=["node-0"],
            recurring={
                "weekdays": [WEEKDAYS[today], WEEKDAYS[(today + 1) % 7]], "timeZone": "Asia/Kolkata",
            },
        )  # fmt: skip
        w.daemon()
        await w.until(lambda: status(w, "lecture").get("phase") == "Active", within=120)
        gang(w, "work")
        await until_time(w, begins + 299)
        assert not w.bound("work")
        await w.until(lambda: nodes_of(w, "work") == ["node-0"])
        await w.until(lambda: status(w, "lecture")["phase"] == "Announced")
        assert status(w, "lecture")["from"] == format_time(begins + 86_400)

    play(scenario)


def test_a_zone_that_is_unknown_is_told_and_keeps_nothing(play):
    """Given a misspelt zone, which the definition cannot know, the Reservation says what was meant."""

    async def scenario(w):
        await w.start(nodes=1)
        reserve(
            w, "odd", after_s=0, nodeNames=["node-0"],
            recurring={"weekdays": ["Mon"], "timeZone": "Europe/Berln"},
        )  # fmt: skip
        w.daemon()
        gang(w, "work")
        await w.until(lambda: nodes_of(w, "work") == ["node-0"])
        await w.until(lambda: status(w, "odd").get("phase") == "Invalid")
        assert "did you mean Europe/Berlin?" in ready(w, "odd")["message"]

    play(scenario)


def test_a_window_that_opens_while_a_session_decides_is_not_run_into(play, monkeypatch):
    """Given a Reservation that the cache learns of between decision and binding, nothing is bound."""

    async def scenario(w):
        await w.start(nodes=1)
        made = []

        def opens(cache, *arguments, **how):
            if not made:
                made.append(reserve(w, "lecture", after_s=-1, nodeNames=["node-0"]))
                item = w.client.get(RESERVATIONS, None, "lecture")
                read = decode_reservation(msgspec.convert(item, WireReservation))
                cache.reservations.put(ObjectKey("", "lecture"), read)
            return recheck_placements(cache, *arguments, **how)

        monkeypatch.setattr(session_cycle, "recheck_placements", opens)
        w.daemon()
        gang(w, "work", preemptible=False)
        await w.until(lambda: w.condition("work").get("reason") == "Reserved")
        await until_time(w, made[0] + 599)
        assert not w.bound("work")
        await w.until(lambda: nodes_of(w, "work") == ["node-0"])

    play(scenario)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"duration": "10m", "nodeNames": ["node-9"]}, "node node-9 does not exist"),
        ({"duration": "10m", "nodeSelector": {"pool": "x"}}, "there is no node with pool=x"),
        ({"duration": "10m", "nodes": 5}, "needs 5 nodes; there are 1 node"),
    ],
)
def test_nodes_that_are_missing_are_told(play, spec, says):
    """Given a Reservation of nodes that are not there, it says so, and gangs start."""

    async def scenario(w):
        await w.start(nodes=1)
        begins = format_time(int(w.clock.now()) + 3600)
        w.client.create(
            RESERVATIONS,
            {
                "apiVersion": "scheduling.gpusched.io/v1alpha1",
                "kind": "Reservation",
                "metadata": {"name": "odd"},
                "spec": {"from": begins, **spec},
            },
        )
        w.daemon()
        gang(w, "work", expectedDuration="10m")
        await w.until(lambda: nodes_of(w, "work") == ["node-0"])
        await w.until(lambda: ready(w, "odd"))
        assert ready(w, "odd")["status"] == "False"
        assert ready(w, "odd")["reason"] == "NodesMissing"
        assert says in ready(w, "odd")["message"]

    play(scenario)


def test_those_that_it_is_for_and_that_are_not_there_are_told(play):
    """Given names that were mistyped, it says so and keeps its nodes; once there is a queue of that name it is silent."""

    async def scenario(w):
        await w.start(nodes=1)
        names = {"nodeNames": ["node-0"], "queues": ["cuorse"], "namespaces": ["default", "tema"]}
        reserve(w, "lecture", after_s=3600, **names)
        w.daemon()
        await w.until(lambda: ready(w, "lecture"))
        assert ready(w, "lecture")["status"] == "True"
        assert ready(w, "lecture")["message"].endswith(
            "for queue cuorse and namespaces default, tema; there is no queue cuorse; "
            "there is no namespace tema"
        )
        queue(w, "cuorse")
        await w.until(lambda: "no queue" not in ready(w, "lecture")["message"])

    play(scenario)


def test_a_window_in_the_past_keeps_nothing_and_says_what_to_do(play):
    """Given a window that has ended, gangs start as if it were not there."""

    async def scenario(w):
        await w.start(nodes=1)
        reserve(w, "past", after_s=-7200, nodeNames=["node-0"])
        w.daemon()
        gang(w, "work")
        await w.until(lambda: nodes_of(w, "work") == ["node-0"])
        await w.until(lambda: status(w, "past").get("phase") == "Ended")
        assert "delete it, give it a later from, or let it recur" in ready(w, "past")["message"]

    play(scenario)


def test_room_that_a_window_frees_is_claimed_by_the_session_that_evicts(play, caplog):
    """Given a gang on two nodes of which a window takes one, then who is next has the other with the same decision."""

    async def scenario(w):
        await w.start(nodes=2)
        daemon = w.daemon()
        await w.until(lambda: daemon.leading)
        gang(w, "holds", 2)
        await w.until(lambda: w.running("holds"))
        gang(w, "next")
        begins = reserve(w, "window", after_s=60, nodeNames=["node-1"])
        await w.until(lambda: nodes_of(w, "next"), within=100)
        assert nodes_of(w, "next") == ["node-0"]
        assert w.clock.now() >= begins
        await daemon.stop()

    with caplog.at_level(logging.INFO):
        play(scenario)
    assert [each for each in caplog.records if "out of date" in each.getMessage()] == []
