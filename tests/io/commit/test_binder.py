"""The binder against an API server that misbehaves on demand, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from gpusched.api.meta.identity import UID, GangKey
from gpusched.base import limits
from gpusched.base.errors import InvariantBroken
from gpusched.commit.model import CommitPhase
from gpusched.io.workers.rate_limiter import TrafficClass
from tests.io.commit.conftest import make_pod

NAMES = ("a", "b", "c")


def test_a_gang_is_bound_with_its_signature(play, gang):
    """Three pods, one barrier read, three bindings at once, and the ledger knows."""

    async def scenario(given):
        given.cluster.add(*NAMES)
        given.cluster.group()
        decided = gang(NAMES)
        given.binder.submit(decided)
        assert given.binder.has_open_commit(decided.gang)
        await given.rest()
        assert [s.phase for s in given.settled] == [CommitPhase.BOUND]
        assert set(given.ledger.confirmed) == {"u-a", "u-b", "u-c"}
        assert given.ledger.confirmed["u-a"] == ("n-a", 0b11, decided.plan_id)
        assert given.ledger.forgotten == []
        first = given.cluster.bodies("POST", "/a/binding")[0]
        assert first["metadata"]["uid"] == "u-a"
        assert first["metadata"]["annotations"] == {
            "gpusched.io/charged": "", "gpusched.io/fence": "me/1", "gpusched.io/plan": decided.plan_id,
            "gpusched.io/proof": "", "gpusched.io/rank": "0", "gpusched.io/seal": "",
            "gpusched.io/slots": "0,1",
        }  # fmt: skip
        assert len(given.cluster.calls("GET")) == 1
        assert not given.binder.has_open_commit(decided.gang)
        assert (given.binder.in_flight, given.binder.committing) == (0, 0)

    play(scenario)


def test_a_resized_pod_group_is_not_bound(play, gang):
    """The barrier read sees another generation: no binding is sent."""

    async def scenario(given):
        given.cluster.add(*NAMES)
        given.cluster.group(generation=2)
        given.binder.submit(gang(NAMES))
        await given.rest()
        assert given.settled[0].phase is CommitPhase.RELEASED
        assert given.cluster.calls("POST") == []
        assert sorted(given.ledger.forgotten) == ["u-a", "u-b", "u-c"]

    play(scenario)


def test_an_event_waits_until_a_lone_binding_is_answered(play, gang):
    """Two writes at once take longer than one, and only one of them is waited for by somebody."""

    async def scenario(given):
        given.cluster.add("a")
        given.cluster.latency_s = 0.5
        given.binder.submit(gang(["a"], "Job"))
        await given.until(lambda: given.binder.in_flight)
        await given.rate_limiter.turn(TrafficClass.EVENTS)
        assert (given.binder.in_flight, given.settled[0].bound) == (0, 1)

    play(scenario)


def test_at_most_so_many_bindings_are_in_flight(play, gang):
    """Two hundred pods and a slow server: 64 at a time, all at once otherwise."""

    async def scenario(given):
        names = [f"p{i}" for i in range(200)]
        given.cluster.add(*names)
        given.cluster.latency_s = 0.5
        most = 0

        def count(_name):
            nonlocal most
            most = max(most, given.binder.in_flight)

        given.cluster.on_bound = count
        given.binder.submit(gang(names, "Job"))
        await given.rest()
        assert most == limits.BINDS_IN_FLIGHT_MAX
        sent = given.cluster.calls("POST")
        assert sum(at < 0.5 for at in sent) == limits.BINDS_IN_FLIGHT_MAX
        assert given.settled[0].bound == 200

    play(scenario)


@pytest.mark.parametrize(("code", "after_s"), [(500, 0), (504, 0), (409, 0), (201, 60.0)])
def test_bound_but_not_said_is_found_by_reading_back(play, gang, says, code, after_s):
    """500, 504, 409 or no answer at all, although the pod was bound: read back, confirmed."""

    async def scenario(given):
        given.cluster.add(*NAMES)
        given.cluster.script("POST", "/b/binding", says(code, bind_first=True, after_s=after_s))
        given.binder.submit(gang(NAMES, "Job"))
        await given.rest()
        assert given.settled[0].phase is CommitPhase.BOUND
        assert given.ledger.forgotten == []
        assert len(given.cluster.calls("POST", "/b/binding")) == 1
        assert len(given.cluster.calls("GET")) == 1
        if after_s:
            read_at = given.cluster.calls("GET")[0]
            assert read_at == pytest.approx(limits.BIND_TIMEOUT_CLIENT_S, abs=0.1)

    play(scenario)


def test_409_of_a_pod_that_another_bound_is_forgotten(play, gang):
    """Ours are kept in repair, and taken back when nothing completes the gang."""

    async def scenario(given):
        given.cluster.add(*NAMES)
        given.cluster.pods["b"]["spec"]["nodeName"] = "n-x"
        given.binder.submit(gang(NAMES, "Job"))
        await given.rest()
        assert given.settled[0].phase is CommitPhase.REPAIR
        assert given.ledger.forgotten == ["u-b"]
        assert given.cluster.calls("POST", "/eviction") == []
        await given.rest(2)
        assert given.settled[1].phase is CommitPhase.RELEASED
        assert given.cluster.bound() == {"b"}
        evicted = given.cluster.calls("POST", "/eviction")
        assert len(evicted) == 2
        assert evicted[0] == pytest.approx(limits.GANG_RECOVERY_MAX_S, abs=1)

    play(scenario)


def test_500_that_did_nothing_is_tried_three_times(play, gang, says):
    """The same slots again with pauses; the server heals in time."""

    async def scenario(given):
        given.cluster.add("a")
        given.cluster.script("POST", "/a/binding", says(500), says(503))
        given.binder.submit(gang(["a"], "Pod"))
        await given.rest()
        assert given.settled[0].phase is CommitPhase.BOUND
        first, second, third = given.cluster.calls("POST", "/a/binding")
        assert second - first == pytest.approx(limits.BIND_RETRY_S, abs=0.05)
        assert third - second == pytest.approx(2 * limits.BIND_RETRY_S, abs=0.05)
        bodies = given.cluster.bodies("POST", "/a/binding")
        assert bodies[0] == bodies[1] == bodies[2]

    play(scenario)


def test_500_for_ever_is_forgotten_after_the_server_must_have_given_up(play, gang, says):
    """Three tries, and the last look comes the server's timeout later."""

    async def scenario(given):
        given.cluster.add("a")
        given.cluster.script("POST", "/a/binding", *[says(500)] * 3)
        given.binder.submit(gang(["a"], "Pod"))
        await given.rest()
        assert given.settled[0].phase is CommitPhase.RELEASED
        last = given.cluster.calls("POST", "/a/binding")[-1]
        look = given.cluster.calls("GET")[-1]
        assert look - last == pytest.approx(limits.BIND_TIMEOUT_SERVER_S, abs=0.01)
        assert given.ledger.forgotten == ["u-a"]

    play(scenario)


def test_a_read_back_without_an_answer_keeps_the_room(play, gang, says):
    """The server is ill for five minutes: nothing is forgotten, then it is found bound."""

    async def scenario(given):
        given.cluster.add("a")
        given.cluster.script("POST", "/a/binding", says(500, bind_first=True))
        given.cluster.script("GET", "/pods/a", *[says(503)] * 300)
        given.binder.submit(gang(["a"], "Pod"))
        await asyncio.sleep(250)
        assert given.ledger.forgotten == []
        assert given.settled == []
        await given.rest()
        assert "u-a" in given.ledger.confirmed

    play(scenario)


def test_404_spares_the_siblings_that_were_not_sent(play, gang):
    """A member is gone: bound siblings are undone at the deadline, no pod stays in part."""

    async def scenario(given):
        given.cluster.add("a", "c")
        given.binder.submit(gang(NAMES, "Job"))
        await given.rest()
        assert given.ledger.forgotten[0] == "u-b"
        await given.until(lambda: not given.binder.has_open_commit(gang(NAMES, "Job").gang))
        assert given.cluster.bound() == set()

    play(scenario)


def test_403_doubts_the_lease(play, gang, says):
    """The elector is asked to make sure; the gang is forgotten, nobody crashes."""

    async def scenario(given):
        given.cluster.add("a")
        given.cluster.script("POST", "/a/binding", says(403))
        given.binder.submit(gang(["a"], "Pod"))
        await given.rest()
        assert given.lease.doubts == 1
        assert given.settled[0].phase is CommitPhase.RELEASED

    play(scenario)


def test_429_slows_down_and_is_tried_again(play, gang, says):
    """A busy server is no verdict about a pod."""

    async def scenario(given):
        given.cluster.add("a")
        given.cluster.script("POST", "/a/binding", *[says(429)] * 5)
        given.binder.submit(gang(["a"], "Pod"))
        await given.rest()
        assert given.settled[0].phase is CommitPhase.BOUND
        assert given.rate_limiter.rate < limits.API_RATE_MAX
        assert b"gpusched_api_throttled_total 5.0" in given.telemetry.render()
        assert b'gpusched_bind_total{result="throttled"} 5.0' in given.telemetry.render()

    play(scenario)


def test_nothing_is_sent_without_the_lease(play, gang):
    """The lease would end before the request could: no binding begins."""

    async def scenario(given):
        given.cluster.add(*NAMES)
        given.lease.until = given.clock.monotonic() + limits.BIND_TIMEOUT_CLIENT_S
        given.binder.submit(gang(NAMES, "Job"))
        await given.rest()
        assert given.cluster.seen == []
        assert sorted(given.ledger.forgotten) == ["u-a", "u-b", "u-c"]

    play(scenario)


def test_a_new_leadership_does_not_finish_what_an_older_began(play, gang, says):
    """The fence changed between two tries: the pod is looked at once more, never sent again."""

    async def scenario(given):
        given.cluster.add("a")
        given.cluster.script("POST", "/a/binding", says(500))
        given.binder.submit(gang(["a"], "Pod"))
        await given.until(lambda: given.cluster.calls("GET"))
        given.lease.fence = "me/2"
        await given.rest()
        assert given.settled[0].phase is CommitPhase.RELEASED
        assert len(given.cluster.calls("POST")) == 1

    play(scenario)


def test_the_watch_may_be_first(play, gang, says):
    """The watch shows the pod bound while the answer is still out: no reply is needed."""

    async def scenario(given):
        given.cluster.add("a")
        given.cluster.script("POST", "/a/binding", says(500, bind_first=True, after_s=3))
        given.binder.submit(gang(["a"], "Pod"))
        await given.until(given.cluster.bound)
        given.binder.observe(given.shown("a"))
        assert given.settled[0].phase is CommitPhase.BOUND
        assert given.clock.monotonic() < 1
        await asyncio.sleep(5)
        assert given.cluster.calls("GET") == []
        assert given.binder.in_flight == 0

    play(scenario)


def test_a_pod_deleted_while_it_is_bound_is_forgotten_once(play, gang, says):
    """The watch says it is gone before the answer comes."""

    async def scenario(given):
        given.cluster.add("a")
        given.cluster.script("POST", "/a/binding", says(404, after_s=1))
        given.binder.submit(gang(["a"], "Pod"))
        await given.until(lambda: given.binder.in_flight)
        given.binder.observe_gone(UID("u-a"))
        await asyncio.sleep(3)
        assert given.ledger.forgotten == ["u-a"]
        assert given.settled[0].phase is CommitPhase.RELEASED

    play(scenario)


def test_a_later_plan_completes_the_gang_before_the_deadline(play, gang, says):
    """Repair: the rest is placed around the bound, and nothing is evicted."""

    async def scenario(given):
        given.cluster.add("a")
        given.binder.submit(gang(["a", "b"], "Job"))
        await given.rest()
        assert given.settled[0].phase is CommitPhase.REPAIR
        given.cluster.add("b2")
        await asyncio.sleep(100)
        given.binder.submit(gang(["b2"], "Job", need=2, placed=1))
        await given.rest(3)
        assert [s.phase for s in given.settled[1:]] == [CommitPhase.BOUND, CommitPhase.BOUND]
        await asyncio.sleep(200)
        assert given.cluster.calls("POST", "/eviction") == []
        assert given.cluster.bound() == {"a", "b2"}

    play(scenario)


def test_our_own_contradiction_stops_all_binding(play, gang, says):
    """The API shows our plan on another node: reported with its story, nothing new is sent."""

    async def scenario(given):
        given.cluster.add("a", "z")
        given.cluster.script("POST", "/a/binding", says(201, bind_first=True, after_s=2))
        given.binder.submit(gang(["a"], "Pod"))
        await given.until(given.cluster.bound)
        given.binder.observe(given.shown("a", node="n-x"))
        assert isinstance(given.faults[0], InvariantBroken)
        given.binder.submit(gang(["z"], "Pod", name="z"))
        await asyncio.sleep(5)
        assert given.cluster.calls("POST", "/z/binding") == []
        assert given.ledger.forgotten == ["u-z"]

    play(scenario, faults=1)


@pytest.mark.contains
def test_a_crash_in_the_cache_costs_its_gang_alone(play, gang):
    """It is told, and the next gang is bound."""

    async def scenario(given):
        given.cluster.add("a", "b")
        original = given.ledger.confirm_binding

        def crash(uid, *rest):
            if uid == "u-a":
                raise ZeroDivisionError
            original(uid, *rest)

        given.ledger.confirm_binding = crash
        given.binder.submit(gang(["a"], "Pod"))
        given.binder.submit(gang(["b"], "Pod", name="h"))
        given.ledger.pods[UID("u-a")] = make_pod("a", "u-a", 1)
        await given.rest()
        await given.clock.sleep(20)
        assert given.cluster.bound() == {"a", "b"}
        assert given.binder.has_open_commit(GangKey("Pod", "ns", "g"))  # until the books say so too
        given.ledger.confirm_binding = original
        await given.until(lambda: not given.binder.has_open_commit(GangKey("Pod", "ns", "g")))
        assert set(given.ledger.confirmed) == {"u-a", "u-b"}
        assert given.ledger.forgotten == []
        assert len(given.cluster.calls("GET", "/a")) < 10

    play(scenario)
